"""Findings that come from records: what was measured, arm against arm."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from sciformer.lab.claims.computed import plain_additive_memory, well_name
from sciformer.lab.claims.rules import (
    NOT_RECORDED,
    Finding,
    Relation,
    best_record,
    compare,
    found_in,
    smallest_effect,
)
from sciformer.lab.metrics import known_metric
from sciformer.lab.records import recorded_by_seed, recorded_metric
from sciformer.scores import WELLS


def wells_on(name: str, metric: str, form: str, data: str) -> list[Finding]:
    """Each well against the dot product in the same model."""
    return [
        compare(name, metric, f"{well}, {form}", "dot", condition=f"{data}, {well_name(well)}") for well in WELLS
    ]  # fmt: skip


BAKE_OFFS = {
    "look-up": "test accuracy",
    "patches": "test accuracy",
    "pixels": "test accuracy",
    "text": "validation loss",
}
STEP_TIME, PEAK = "step time against dot", "peak MB"


def in_bake_offs(score: str, relation: Relation) -> list[Finding]:
    """How well a score does, against the dot product, on every task of the bake-off."""
    return [
        compare(f"bake-off-{task}", metric, score, "dot", relation=relation, condition=f"on {task}")
        for task, metric in BAKE_OFFS.items()
    ]


def faster_in_bake_offs(score: str, of: str = "") -> list[Finding]:
    """A step of a score against one of the dot product, on the tasks with more than the look-up's nine tokens."""
    return [
        compare(f"bake-off-{task}", STEP_TIME, score, "dot", relation="better", condition=f"on {task}{of}")
        for task in BAKE_OFFS
        if task != "look-up"
    ]


def wells_in_time() -> Iterator[Finding]:
    """A step of each well, as stated, against one of the dot product."""
    for well in WELLS:
        yield from faster_in_bake_offs(f"{well}_well", f", {well_name(well)}")


PLACED, LENGTHS = "mnist-pixels-positions", "shakespeare-lengths"
TWO, LITTLE_TEXT = "additive-2x2", "additive-2x2-little-text"


#: The bias as it was published, in the model of the others: along the line of pixels, one slope that starts at 0.1.
LINE = "line, one slope"
#: The bias that knows the grid, its slopes starting alike.
GRID = "grid, four slopes a head"


def _against_positions(arm: str) -> list[Finding]:
    """A learned distance without positions, against the dot product with each kind of them, on pixels."""
    return [
        compare(PLACED, ACCURACY, arm, kind, relation="no worse", condition=f"on pixels, against {kind}")
        for kind in ("sinusoidal", "sinusoidal grid", "learned", "none")
    ]


def no_worse_than_positions() -> list[Finding]:
    """The bias along the line, without positions, against the dot product with each kind of them."""
    on_text = [
        compare(LENGTHS, "validation loss", "distance", kind, relation="no worse", condition=f"on text, against {kind}")
        for kind in ("sinusoidal", "learned", "none", "rotary")
    ]
    return _against_positions(LINE) + on_text


def grid_no_worse_than_positions() -> list[Finding]:
    """The bias that knows the grid, against the same positions."""
    return _against_positions(GRID)


def better_set_by_hand() -> list[Finding]:
    """Heads that face a side each before training, against heads that start alike."""
    return [compare(PLACED, ACCURACY, "grid, set by hand", GRID)]


def prefers_near() -> list[Finding]:
    """How far the published bias looks after training, against what it does before: the start alone favours near."""
    before = "attention distance before training"
    return [compare(PLACED, "attention distance", LINE, LINE, relation="lower", other_metric=before)]


def slopes_for_far_tokens() -> Iterator[Finding]:
    """The smallest slope that training found, of slopes that start at 0.1: below 0, a head seeks far tokens."""
    content = best_record(PLACED)
    for arm in (LINE, "line, one slope a head", "line, two slopes a head", GRID):
        if content is None:
            yield Finding(NOT_RECORDED, f"`{PLACED}`", arm)
            continue
        slopes = {
            run["seed"]: min(torch.tensor(layer).min().item() for layer in run["details"]["strength"])
            for run in content["runs"]
            if run.get("arm") == arm
        }
        yield found_in(content, "smallest slope", slopes, 0.0, "lower", arm)


def longer_texts(*arms: str) -> list[Finding]:
    """The loss on texts eight times as long as those trained on, against that at the trained length."""
    content = best_record(LENGTHS)
    if content is None:
        return [Finding(NOT_RECORDED, f"`{LENGTHS}`", f"with {arm}" if len(arms) > 1 else "") for arm in arms]
    findings = []
    for arm in arms:
        length = content["config"][arm]["length"]
        near, far = (recorded_by_seed(content, f"validation loss at {factor * length}", arm) for factor in (1, 8))
        condition = f"with {arm}" if len(arms) > 1 else ""
        findings.append(found_in(content, "loss", far, near, "no worse", condition))
    return findings


def overfits() -> list[Finding]:
    """Whether the dot product's last loss lies above its lowest by what matters, and the separable score's does not."""
    content = best_record(TWO, ("full",)) or best_record(LITTLE_TEXT)
    findings, delta = [], smallest_effect(known_metric(LOSS)).value
    claimed: tuple[tuple[str, Relation, float], ...] = (("dot", "higher", delta), ("separable", "no higher", 0.0))
    for positions in ("sinusoidal", "learned"):
        for score, relation, bound in claimed:
            arm = f"{positions}, {score}"
            condition = f"{arm} {'rises by more than δ' if relation == 'higher' else 'does not rise'}"
            if content is None:
                findings.append(Finding(NOT_RECORDED, f"`{TWO}`, full", condition))
                continue
            last, lowest = (recorded_by_seed(content, which, arm) for which in (LOSS, f"lowest {LOSS}"))
            rises = {seed: last[seed] - lowest[seed] for seed in last}
            findings.append(found_in(content, "loss", rises, bound, relation, condition))
    return findings


LOSS, ACCURACY, MATCH = "validation loss", "test accuracy", "test exact match"


def recipe_against_plain(recipe: str, relation: Relation) -> list[Finding]:
    """One change of attention against plain attention, in the same model, each at the rate that suits it."""
    return [
        compare("recipes-images", ACCURACY, recipe, "dot", relation=relation, condition="on digits"),
        compare("recipes-text", LOSS, recipe, "dot", relation=relation, condition="on text"),
    ]


SEARCHED, VALIDATION, RISE = "search-claims", "validation accuracy", "rise of accuracy per doubling"


def searched_arm(kind: str, value: int) -> str:
    """The name of an arm in which one hyper-parameter has a value; that of the base where it has the base's."""
    name, *same_size = kind.split(", ")
    base = {"heads": 4, "head dimension": 8, "tokens": 49, "blocks": 2}[name]
    return "base" if value == base else ", ".join([f"{name} {value}", *same_size])


def rise_per_doubling(content: dict[str, Any], kind: str, values: Sequence[int]) -> dict[int, float]:
    """Of the validation accuracy when a hyper-parameter doubles: the slope of a line, for each seed."""
    x = torch.tensor(values, dtype=torch.float64).log2()
    y = torch.tensor([recorded_metric(content, VALIDATION, searched_arm(kind, value)) for value in values]).double()
    slopes = (x - x.mean()) @ (y - y.mean(dim=0)) / (x - x.mean()).square().sum()
    return dict(zip(content["seeds"], slopes.tolist(), strict=True))


#: In the order in which accuracy is said to depend on them.
SIZES = {"heads": (1, 2, 4, 8), "head dimension": (2, 4, 8, 16), "tokens": (1, 4, 16, 49, 196)}


def rises_with_sizes() -> Iterator[Finding]:
    """Whether accuracy rises with each size, and whether more of each is worth more than of the one after it."""
    content = best_record(SEARCHED)
    rises = {} if content is None else {kind: rise_per_doubling(content, kind, SIZES[kind]) for kind in SIZES}
    for kind in SIZES:
        condition = f"for twice the {kind}"
        if content is None:
            yield Finding(NOT_RECORDED, f"`{SEARCHED}`", condition)
        else:
            yield found_in(content, RISE, rises[kind], 0.0, "better", condition)
    for more, less in (("heads", "head dimension"), ("head dimension", "tokens")):
        condition = f"{more} before {less}"
        if content is None:
            yield Finding(NOT_RECORDED, f"`{SEARCHED}`", condition)
        else:
            yield found_in(content, RISE, rises[more], rises[less], "better", condition)


def every_doubling_of_blocks() -> list[Finding]:
    """Twice the blocks against half as many, in models that grow with them and in models of the same size."""
    return [
        compare(
            SEARCHED, VALIDATION, searched_arm(kind, 2 * n), searched_arm(kind, n), condition=f"{n} → {2 * n}{size}"
        )
        for kind, size in (("blocks", ""), ("blocks, same size", ", at the same size"))
        for n in (1, 2, 4)
    ]


def additive_memory() -> list[Finding]:
    """The additive score written plainly, and in blocks of queries as it runs."""
    return [plain_additive_memory(), blocks_of_queries()]


def blocks_of_queries() -> Finding:
    """The additive score's peak memory over the dot product's, as a share of D, the factor of the plain form."""
    condition, name = "in blocks of queries", "bake-off-pixels"
    content = best_record(name)
    if content is None:
        return Finding(NOT_RECORDED, f"`{name}`", condition)
    config = content["config"]["additive"]
    D = config["embed_dim"] // config["num_heads"]
    additive, dot = (recorded_by_seed(content, PEAK, arm) for arm in ("additive", "dot"))
    shares = {seed: additive[seed] / dot[seed] / D for seed in additive}
    return found_in(content, "memory against the plain form", shares, 1.0, "equal", condition)
