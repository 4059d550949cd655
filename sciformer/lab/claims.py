"""What the original descriptions claim, what was measured, and the verdict: tables made from records and checks.

No number is typed here but those that a claim itself names. What is measured comes from ``results/``; what is a matter
of mathematics is computed in float64 when a table is made.

The rules are the same for every claim. Two arms of an experiment are compared seed by seed:

- one is *better* if the mean of the differences is more than two of their standard errors on its side;
- one is *no worse* if it is not more than two standard errors on the other side;
- a mean *reaches* a published value if it is no more than two standard errors short of it.

A claim that is measured under several conditions holds if it does under all of them, does not hold if it does under
none, and otherwise holds only under those that are named, or except under those. A record of one seed has no error, and
so gives no verdict.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sciformer.attention import MultiHeadAttention
from sciformer.data import clustered_tokens
from sciformer.functional import (
    InputError,
    additive_scores,
    attend,
    causal_mask,
    dot_product_scores,
    energy_well_scores,
    separable_additive_scores,
)
from sciformer.lab.experiments import EXPERIMENTS, MNIST_PIXELS, REVERSAL
from sciformer.lab.metrics import cluster_concentration, inter_cluster_attention, known_metric, mean_and_error
from sciformer.lab.records import describe_runs, figures, load_record
from sciformer.lab.settings import Profile
from sciformer.scores import SCORES, WELLS, EnergyWellScore

#: How many standard errors a difference must have to count.
ERRORS = 2
#: What is 0 in exact arithmetic stays below this in float64.
ZERO = 1e-10
NOT_RECORDED = "not recorded yet"
CHECKED = "float64, computed for this table"

#: "Higher" and "lower" are for a metric of which neither side is the better one.
Relation = Literal["better", "no worse", "higher", "lower"]


@dataclass(frozen=True)
class Finding:
    """One measurement of a claim.

    Args:
        holds: None if it is not recorded yet.
        setting: which record, or what was computed.
        condition: under what it was measured; completes "holds only …". Needed where a claim has several findings.
    """

    holds: bool | None
    measured: str
    setting: str
    condition: str = ""


@dataclass(frozen=True)
class Claim:
    """What was said, and how it is measured.

    Args:
        claimed: the claim, in a sentence.
        system: whose it is.
        notebook: the number of the notebook that shows why.
        findings: measures it.
    """

    claimed: str
    system: str
    notebook: int
    findings: Callable[[], Iterable[Finding]]


def verdict(findings: Sequence[Finding]) -> str:
    """ "holds", "holds only …", "holds except …", "does not hold" or "not recorded yet"; and how much is missing."""
    known = [finding for finding in findings if finding.holds is not None]
    if not known:
        return NOT_RECORDED
    held, failed = ([finding.condition for finding in known if finding.holds is value] for value in (True, False))
    missing = (
        "" if len(known) == len(findings) else f" ({len(findings) - len(known)} of {len(findings)} {NOT_RECORDED})"
    )
    if not failed or not held:
        return f"**{'holds' if held else 'does not hold'}**{missing}"
    return (
        f"**holds only** {'; '.join(held)}{missing}"
        if len(held) <= len(failed)
        else (f"**holds except** {'; '.join(failed)}{missing}")
    )


# ---------------------------------------------------------------------------- from records


def best_record(
    name: str, profiles: Sequence[Profile] = ("full", "long", "quick"), *, fewest_seeds: int = 2
) -> dict[str, Any] | None:
    """The record of the first of these profiles that there is one of, by default with seeds enough for an error."""
    for profile in profiles:
        if profile in EXPERIMENTS[name].settings:
            content = load_record(name, profile)
            if content is not None and len(content["seeds"]) >= fewest_seeds:
                return content
    return None


def described(content: dict[str, Any]) -> str:
    """A record as the column of settings names it."""
    seeds = len(content["seeds"])
    return f"`{content['name']}`, {content['profile']}, {seeds} seed{'s' * (seeds > 1)}"


def is_better_low(metric: str) -> bool:
    """Whether lower values of this metric are better.

    Raises:
        InputError: if there is no such metric.
    """
    return known_metric(metric).better == "lower"


def against(
    ours: Sequence[float], theirs: Sequence[float], metric: str, relation: Relation = "better"
) -> tuple[bool, str]:
    """Compare pair by pair: does the relation hold, and both means with the difference and its standard error.

    Raises:
        InputError: if there is no such metric, or it has no better side and the relation needs one.
    """
    known = known_metric(metric)
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, error = mean_and_error(differences)
    gain = mean if relation == "higher" else -mean if relation == "lower" else known.gain(mean)
    holds = gain >= -ERRORS * error if relation == "no worse" else gain > ERRORS * error
    return holds, f"{known.describe(ours)} against {known.describe(theirs)}: {known.describe_differences(differences)}"


def compare(
    name: str,
    metric: str,
    arm: str | None,
    other: str | None,
    *,
    condition: str = "",
    relation: Relation = "better",
    other_metric: str | None = None,
) -> Finding:
    """Two arms of an experiment, or two metrics of one."""
    content = best_record(name)
    if content is None:
        return Finding(None, NOT_RECORDED, f"`{name}`", condition)
    ours, theirs = figures(content, metric, arm), figures(content, other_metric or metric, other)
    return Finding(*against(ours, theirs, metric, relation), described(content), condition)


def reach(
    name: str,
    metric: str,
    arm: str | None,
    published: float,
    *,
    condition: str = "",
    fewest_seeds: int = 2,
) -> Finding:
    """An arm beside a published value. A single run, whose error is unknown, has to reach it by itself."""
    content = best_record(name, fewest_seeds=fewest_seeds)
    if content is None:
        return Finding(None, NOT_RECORDED, f"`{name}`", condition)
    values = figures(content, metric, arm)
    mean, error = mean_and_error(values)
    allowed = ERRORS * error if len(values) > 1 else 0.0
    known = known_metric(metric)
    holds = known.gain(mean - published) >= -allowed
    return Finding(holds, known.describe(values), described(content), condition)


def stays_at(name: str, metric: str, arm: str | None, published: float, *, condition: str = "") -> Finding:
    """Whether an arm gets no further than a published value."""
    content = best_record(name)
    if content is None:
        return Finding(None, NOT_RECORDED, f"`{name}`", condition)
    values = figures(content, metric, arm)
    mean, error = mean_and_error(values)
    holds = mean - ERRORS * error <= published
    return Finding(holds, known_metric(metric).describe(values), described(content), condition)


def similar(name: str, metric: str, arm: str, other: str, margin: float, *, condition: str = "") -> Finding:
    """Whether two arms differ by no more than a margin and two standard errors."""
    content = best_record(name)
    if content is None:
        return Finding(None, NOT_RECORDED, f"`{name}`", condition)
    ours, theirs = figures(content, metric, arm), figures(content, metric, other)
    mean, error = mean_and_error([a - b for a, b in zip(ours, theirs, strict=True)])
    return Finding(
        abs(mean) <= margin + ERRORS * error, against(ours, theirs, metric)[1], described(content), condition
    )


# ---------------------------------------------------------------------------- computed: the five theorems, and more


def size(value: float | Tensor) -> str:
    """A size that is the same on every machine: 0 up to rounding, or not."""
    return "below 1e-10" if float(value) < ZERO else "not 0"


def half_turn() -> list[Finding]:
    """With one slope for both sides and a mean over tokens, an image and its half turn get the same logits."""
    torch.manual_seed(0)
    images = torch.rand(4, 1, 14, 14, dtype=torch.float64)

    def change(arm: str) -> float:
        model = MNIST_PIXELS["quick"][arm].model().double().eval()
        with torch.no_grad():
            return (model(images) - model(images.flip(-1, -2))).abs().max().item()

    one, each = change("published"), change("distance")
    measured = f"change of the logits: {size(one)}; with a slope for each side: {size(each)}"
    return [Finding(one < ZERO < each, measured, CHECKED)]


def cancelling_query() -> list[Finding]:
    """In the separable form the softmax cancels the query's term."""
    torch.manual_seed(0)
    query, key, weight = torch.randn(1, 2, 7, 5).double(), torch.randn(1, 2, 11, 5).double(), torch.randn(2, 5).double()
    maps = [score(query, key, weight).softmax(dim=-1) for score in (separable_additive_scores, additive_scores)]
    separable, whole = ((weights - weights[..., :1, :]).abs().max().item() for weights in maps)
    measured = f"weights of two queries differ by: {size(separable)}; in Bahdanau's form: {size(whole)}"
    return [Finding(separable < ZERO < whole, measured, CHECKED)]


def moat() -> list[Finding]:
    """The stated score of a Gaussian well has one minimum, at 1/√(2α), and comes back to what it is at distance 0."""
    alpha = 1.0
    distance = torch.linspace(0, 8, 80_001, dtype=torch.float64)
    query, key = torch.zeros(1, 1, 1, 1).double(), distance.view(1, 1, -1, 1)
    weight = energy_well_scores(query, key, WELLS["gaussian"], alpha=alpha).exp().flatten()  # beside that at distance 0
    middle = distance[weight.argmin()].item()
    holds = abs(middle - (2 * alpha) ** -0.5) < 1e-3 and weight[-1] > 1 - ZERO and weight.min() < 0.9
    measured = (
        f"α = 1, weight beside that of distance 0: {weight.min():.2f} at {middle:.3f}, its least, and "
        f"{weight[30_000]:.2f} at 3"
    )
    return [Finding(bool(holds), measured, CHECKED)]


def leaking_mask() -> list[Finding]:
    """A finite trainable mask on the scores hides nothing: the output depends on what comes after it."""
    torch.manual_seed(0)
    x, mask = torch.randn(1, 1, 6, 4).double().requires_grad_(), torch.randn(6, 6).double()

    def future(attn_mask: Tensor | None) -> float:
        output, _ = attend(dot_product_scores(x, x) + mask, x, attn_mask=attn_mask)
        (gradient,) = torch.autograd.grad(output[..., 0, :].sum(), x)
        return gradient[..., 1:, :].abs().max().item()

    alone, beside = future(None), future(causal_mask(6))
    measured = (
        f"gradient of the first output by later tokens: {size(alone)}; with a causal mask beside it: {size(beside)}"
    )
    return [Finding(beside < ZERO < alone, measured, CHECKED)]


def ignored_source() -> list[Finding]:
    """A decoder whose cross-attention takes keys and values from itself gives the same whatever the source."""
    torch.manual_seed(0)
    setting = REVERSAL["quick"]["sinusoidal"]
    model = setting.model().double().eval()
    texts, answers = ["abcd", "wxyz"], ["dcba", "dcba"]
    source, target = setting.tokens(texts, answers)

    class Deaf(MultiHeadAttention):
        def forward(self, query: Tensor, key: Tensor | None = None, *args: Any, **options: Any) -> Any:
            return super().forward(query, query, is_causal=True)

    deaf = copy.deepcopy(model)
    for block in deaf.decoder:
        block.cross_attention = Deaf(setting.embed_dim, setting.num_heads).double()
    with torch.no_grad():
        changes = [(each(source, target).diff(dim=0)).abs().max().item() for each in (deaf, model)]
    measured = f"change of the output with the source: {size(changes[0])}; in a sound decoder: {size(changes[1])}"
    return [Finding(changes[0] < ZERO < changes[1], measured, CHECKED)]


def leaking_divisor() -> list[Finding]:
    """The softmax-exponential well divides by a sum over keys: over all of them, it knows what comes later."""
    torch.manual_seed(0)
    x = torch.randn(1, 1, 6, 4).double().requires_grad_()
    score = EnergyWellScore(1, 4, well="softmax_exponential").double()

    def future(over: Tensor | None) -> float:
        output, _ = attend(score(x, x, attn_mask=over), x, attn_mask=causal_mask(6))
        (gradient,) = torch.autograd.grad(output[..., 1, :].sum(), x)
        return gradient[..., 2:, :].abs().max().item()

    everything, allowed = future(None), future(causal_mask(6))
    measured = (
        f"gradient of an output by later tokens: {size(everything)}; with the sum over earlier ones: {size(allowed)}"
    )
    return [Finding(allowed < ZERO < everything, measured, CHECKED)]


def published_parameters() -> list[Finding]:
    """The published pixel model, built as published."""
    count = sum(p.numel() for p in MNIST_PIXELS["full"]["published"].model().parameters())
    return [Finding(abs(count / 250_000 - 1) < 0.1, f"{count:,} parameters", "the published code's model")]


def additive_memory() -> list[Finding]:
    """How much larger the largest tensor is that is kept for the gradient; and the peak of a whole step in blocks."""
    D = 64
    query, key = (torch.randn(1, 1, 16, D, requires_grad=True) for _ in range(2))
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = additive_scores(query, key, torch.randn(1, D, requires_grad=True))
    times = max(kept) / scores.numel()
    plain = Finding(
        times == D, f"{times:g} times the numbers of the scores, for D = {D}", CHECKED, "if written plainly"
    )
    return [plain, blocks_of_queries()]


def blocks_of_queries() -> Finding:
    """The additive score's peak memory over the dot product's, beside the head size D that it would be plainly."""
    condition, name = "in blocks of queries", "bake-off-pixels"
    content = best_record(name)
    if content is None:
        return Finding(None, NOT_RECORDED, f"`{name}`", condition)
    config = content["config"]["additive"]
    D = config["embed_dim"] // config["num_heads"]
    pairs = zip(figures(content, PEAK, "additive"), figures(content, PEAK, "dot"), strict=True)
    mean, error = mean_and_error([additive / dot for additive, dot in pairs])
    measured = f"{mean:.1f} ± {error:.1f} times the peak of dot product, for D = {D}"
    return Finding(mean + ERRORS * error >= D, measured, described(content), condition)


def clusters(well: str, form: Literal["gradient", "field"], alpha: float) -> tuple[Tensor, Tensor]:
    """Attention within and between clusters, for each of 50 sets of tokens as in notebook 10."""
    points, labels, importance = clustered_tokens(50, seed=0)
    points = points.double()
    weight = {"weight": importance[:, None].double()} if well == "lorentzian" else {}
    maps = energy_well_scores(points, points, WELLS[well], form=form, alpha=alpha, **weight).softmax(dim=-1)[:, None]
    return cluster_concentration(maps, labels)[:, 0], inter_cluster_attention(maps, labels)[:, 0]


FORMS: dict[Literal["gradient", "field"], str] = {"gradient": "as stated", "field": "as a field"}


def sharper_is_more_local() -> Iterator[Finding]:
    """Attention inside a token's own cluster at a large α, against that at a small one."""
    low, high = 0.1, 10.0
    for form, condition in FORMS.items():
        for well in ("gaussian", "softmax_exponential", "lorentzian"):
            sharp, blunt = (clusters(well, form, alpha)[0].tolist() for alpha in (high, low))
            holds, measured = against(sharp, blunt, "attention within clusters", "higher")
            where = f"α = {high:g} against {low:g}, 50 sets of clusters"
            yield Finding(holds, measured, where, f"{condition}, {well_name(well)}")


def favours_other_clusters(well: str) -> Iterator[Finding]:
    """What goes to other clusters, against the Gaussian well at the same α."""
    for form, condition in FORMS.items():
        ours, gaussian = (clusters(each, form, 1.0)[1].tolist() for each in (well, "gaussian"))
        holds, measured = against(ours, gaussian, "attention between clusters", "higher")
        yield Finding(holds, measured, "α = 1, 50 sets of clusters", condition)


def well_name(well: str) -> str:
    """As it is written in a sentence."""
    return well.removesuffix("_well").replace("_", " ")


# ---------------------------------------------------------------------------- the claims


def wells_on(name: str, metric: str, form: str, place: str) -> list[Finding]:
    """Each well against the dot product in the same model."""
    return [
        compare(name, metric, f"{well}, {form}", "dot", condition=f"{place}, {well_name(well)}") for well in WELLS
    ]  # fmt: skip


BAKE_OFFS = {"patches": "test accuracy", "pixels": "test accuracy", "text": "validation loss"}
STEP_TIME, PEAK = "step time against dot", "peak MB"


def in_bake_offs(score: str, relation: Relation, metric: str | None = None, *, of: str = "") -> list[Finding]:
    """A score against the dot product on every task of the bake-off."""
    return [
        compare(f"bake-off-{task}", metric or own, score, "dot", relation=relation, condition=f"on {task}{of}")
        for task, own in BAKE_OFFS.items()
    ]


def wells_in_time() -> Iterator[Finding]:
    """A step of each well, as stated, against one of the dot product."""
    for well in WELLS:
        yield from in_bake_offs(f"{well}_well", "better", STEP_TIME, of=f", {well_name(well)}")


PIXELS, LENGTHS = "mnist-pixels", "shakespeare-lengths"
TWO, LITTLE_TEXT = "additive-2x2", "additive-2x2-little-text"


def no_worse_than_positions() -> list[Finding]:
    """The distance bias without positions against the dot product with each kind of them."""
    on_pixels = [
        compare(PIXELS, "test accuracy", "distance", kind, relation="no worse", condition=f"on pixels, against {kind}")
        for kind in ("sinusoidal", "learned", "none")
    ]
    on_text = [
        compare(LENGTHS, "validation loss", "distance", kind, relation="no worse", condition=f"on text, against {kind}")
        for kind in ("sinusoidal", "learned", "none", "rotary")
    ]
    return on_pixels + on_text


def slopes_for_far_tokens() -> Iterator[Finding]:
    """The smallest slope that training found: below 0, a head seeks far tokens."""
    content = best_record(PIXELS)
    for arm, condition in (("distance", "with a slope for each side"), ("published", "as published")):
        if content is None:
            yield Finding(None, NOT_RECORDED, f"`{PIXELS}`", condition)
            continue
        runs = [run for run in content["runs"] if run.get("arm") == arm]
        slopes = [min(torch.tensor(layer).min().item() for layer in run["details"]["strength"]) for run in runs]
        mean, error = mean_and_error(slopes)
        told = f"smallest slope {mean:.2f} ± {error:.2f}".replace("-", "−")
        yield Finding(mean < -ERRORS * error, told, described(content), condition)


def longer_texts() -> list[Finding]:
    """The loss on texts eight times as long as those trained on, against that at the trained length."""
    content = best_record(LENGTHS)
    if content is None:
        return [Finding(None, NOT_RECORDED, f"`{LENGTHS}`")]
    findings = []
    for arm in ("distance", "sinusoidal", "learned", "none", "rotary"):
        length = content["config"][arm]["length"]
        near, far = (figures(content, f"validation loss at {factor * length}", arm) for factor in (1, 8))
        findings.append(Finding(*against(far, near, "loss", "no worse"), described(content), f"with {arm}"))
    return findings


def overfits() -> list[Finding]:
    """Whether the dot product's last loss lies above its lowest, and the separable score's does not."""
    content = best_record(TWO, ("full",)) or best_record(LITTLE_TEXT)
    if content is None:
        return [Finding(None, NOT_RECORDED, f"`{TWO}`, full")]
    findings = []
    for positions in ("sinusoidal", "learned"):
        rises = []
        for score in ("dot", "separable"):
            last, lowest = (figures(content, which, f"{positions}, {score}") for which in (LOSS, f"lowest {LOSS}"))
            rises.append([a - b for a, b in zip(last, lowest, strict=True)])
        (mean, error), (other, its_error) = map(mean_and_error, rises)
        dot_rises, separable_rises = mean > ERRORS * error, other > ERRORS * its_error
        less, measured = against(rises[1], rises[0], "loss")
        holds = less and dot_rises and not separable_rises
        findings.append(Finding(holds, f"the loss rises by {measured}", described(content), f"with {positions}"))
    return findings


LOSS, ACCURACY, MATCH = "validation loss", "test accuracy", "test exact match"
SEARCHED, VALIDATION, RISE = "search-claims", "validation accuracy", "rise of accuracy per doubling"


def searched_arm(kind: str, value: int) -> str:
    """The name of an arm in which one hyper-parameter has a value; that of the base where it has the base's."""
    name, *same_size = kind.split(", ")
    base = {"heads": 4, "head dimension": 8, "tokens": 49, "blocks": 2}[name]
    return "base" if value == base else ", ".join([f"{name} {value}", *same_size])


def rise_per_doubling(content: dict[str, Any], kind: str, values: Sequence[int]) -> list[float]:
    """Of the validation accuracy when a hyper-parameter doubles: the slope of a line, for each seed."""
    x = torch.tensor(values, dtype=torch.float64).log2()
    y = torch.tensor([figures(content, VALIDATION, searched_arm(kind, value)) for value in values]).double()
    return ((x - x.mean()) @ (y - y.mean(dim=0)) / (x - x.mean()).square().sum()).tolist()


#: In the order in which accuracy is said to depend on them.
SIZES = {"heads": (1, 2, 4, 8), "head dimension": (2, 4, 8, 16), "tokens": (1, 4, 16, 49, 196)}


def rises_with_sizes() -> Iterator[Finding]:
    """Whether accuracy rises with each size, and whether more of each is worth more than of the one after it."""
    content = best_record(SEARCHED)
    rises = {} if content is None else {kind: rise_per_doubling(content, kind, SIZES[kind]) for kind in SIZES}
    for kind in SIZES:
        condition = f"for twice the {kind}"
        if content is None:
            yield Finding(None, NOT_RECORDED, f"`{SEARCHED}`", condition)
            continue
        mean, error = mean_and_error(rises[kind])
        measured = known_metric(RISE).describe(rises[kind])
        yield Finding(mean > ERRORS * error, measured, described(content), condition)
    for more, less in (("heads", "head dimension"), ("head dimension", "tokens")):
        condition = f"{more} before {less}"
        if content is None:
            yield Finding(None, NOT_RECORDED, f"`{SEARCHED}`", condition)
        else:
            yield Finding(*against(rises[more], rises[less], RISE), described(content), condition)


def every_doubling_of_blocks() -> list[Finding]:
    """Twice the blocks against half as many, in models that grow with them and in models of the same size."""
    return [
        compare(
            SEARCHED, VALIDATION, searched_arm(kind, 2 * n), searched_arm(kind, n), condition=f"{n} → {2 * n}{size}"
        )
        for kind, size in (("blocks", ""), ("blocks, same size", ", at the same size"))
        for n in (1, 2, 4)
    ]


DISTANCE, ADDITIVE, WELL = "distance bias (DB-Transformer)", "additive attention", "energy wells"
COUPLED = "encoder–decoder"
#: The larger of the two differences between positions in the published two by two: 1.532 less 1.504.
PUBLISHED_MARGIN = 0.028

CLAIMS = [
    Claim(
        "Theorem: with one slope for both sides and a mean over the tokens, a digit and the same digit turned by 180° "
        "get the same answer",
        DISTANCE,
        7,
        half_turn,
    ),
    Claim("Theorem: in the separable form the query cancels; all attend alike", ADDITIVE, 9, cancelling_query),
    Claim("Theorem: the stated score has a moat; far tokens weigh as much as one at distance 0", WELL, 10, moat),
    Claim(
        "Theorem: a trainable additive mask in place of the causal one leaks the future",
        "trainable masks",
        2,
        leaking_mask,
    ),
    Claim("Theorem: keys and values from the decoder make it ignore its source", COUPLED, 11, ignored_source),
    Claim("It replaces positional encodings: it is no worse than they are", DISTANCE, 7, no_worse_than_positions),
    Claim(
        "About 79 % of digits are right, as 784 pixels",
        DISTANCE,
        7,
        lambda: [reach("mnist-784-published", ACCURACY, None, 0.79, fewest_seeds=1)],
    ),
    Claim("The pixel model has about 250,000 parameters", DISTANCE, 7, published_parameters),
    Claim(
        "It prefers near tokens: it looks less far than the same model without it",
        DISTANCE,
        7,
        lambda: [compare(PIXELS, "attention distance", "distance", "none", relation="lower")],
    ),
    Claim("Yet it can learn to prefer far ones: a slope below 0", DISTANCE, 7, slopes_for_far_tokens),
    Claim("Eight times the trained length makes the loss no worse", "distance bias (ALiBi)", 8, longer_texts),
    Claim(
        "Sinusoidal and learned positions do equally well",
        ADDITIVE,
        9,
        lambda: [
            similar(TWO, LOSS, f"sinusoidal, {score}", f"learned, {score}", PUBLISHED_MARGIN, condition=f"with {score}")
            for score in ("dot", "separable")
        ],
    ),
    Claim(
        "Separable additive attention keeps up with the dot product",
        ADDITIVE,
        9,
        lambda: [
            compare(TWO, LOSS, f"{kind}, separable", f"{kind}, dot", relation="no worse", condition=f"with {kind}")
            for kind in ("sinusoidal", "learned")
        ],
    ),
    Claim("The dot product overfits where the separable form does not", ADDITIVE, 9, overfits),
    Claim(
        "Bahdanau's form is feasible: it learns no worse than the dot product",
        ADDITIVE,
        9,
        lambda: in_bake_offs("additive", "no worse"),
    ),
    Claim("Bahdanau's form needs about 64 times the memory", ADDITIVE, 9, additive_memory),
    Claim(
        "The separable form takes less time than the dot product",
        ADDITIVE,
        9,
        lambda: in_bake_offs("separable", "better", STEP_TIME),
    ),
    Claim("A higher α makes attention more local", WELL, 10, sharper_is_more_local),
    Claim("The Lorentzian well favours other clusters", WELL, 10, lambda: favours_other_clusters("lorentzian")),
    Claim(
        "The softmax-exponential well favours other clusters",
        WELL,
        10,
        lambda: favours_other_clusters("softmax_exponential"),
    ),
    Claim("The softmax-exponential well, over all keys, leaks the future", WELL, 10, leaking_divisor),
    Claim(
        "Self-attention reaches no more than 10.7 % of MNIST",
        WELL,
        10,
        lambda: [stays_at("energy-wells", ACCURACY, "dot", 0.107)],
    ),
    Claim(
        "Wells, as stated, are more accurate than the dot product",
        WELL,
        10,
        lambda: (
            wells_on("energy-wells", ACCURACY, "gradient", "on images")
            + wells_on("energy-wells-text", LOSS, "gradient", "on text")
        ),
    ),
    Claim(
        "Wells, as fields, are more accurate than the dot product",
        WELL,
        10,
        lambda: (
            wells_on("energy-wells", ACCURACY, "field", "on images")
            + wells_on("energy-wells-text", LOSS, "field", "on text")
        ),
    ),
    Claim(
        "Wells cost less time than the dot product",
        WELL,
        10,
        wells_in_time,
    ),
    Claim(
        "It turns sequences into sequences: every test string is reversed",
        COUPLED,
        11,
        lambda: [
            reach("reversal", MATCH, "sinusoidal", 1.0, condition="at the trained lengths"),
            reach(
                "reversal", f"{MATCH} at ten times the length", "sinusoidal", 1.0, condition="at ten times the length"
            ),
        ],
    ),
    Claim(
        "It writes dates in one form, as well as the 96 % of an LSTM with attention",
        COUPLED,
        11,
        lambda: [
            reach("dates", f"{MATCH}{test}", None, 0.96, condition=condition)
            for test, condition in (("", "on new days"), (" on new forms", "on new forms"))
        ],
    ),
    Claim(
        "Restoring hidden patches teaches an encoder without labels: a linear probe reads more",
        "masked images",
        12,
        lambda: [
            compare("masked-images", "probe accuracy", None, None, other_metric=other, condition=condition)
            for other, condition in (
                ("probe accuracy untrained", "against the untrained encoder"),
                ("probe accuracy of pixels", "against pixels"),
            )
        ],
    ),
    Claim(
        "Accuracy rises with heads, head dimension and sequence length, in that order",
        "random search",
        14,
        rises_with_sizes,
    ),
    Claim("More blocks always help", "random search", 14, every_doubling_of_blocks),
]


# ---------------------------------------------------------------------------- the tables


def row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def claims_table() -> str:
    """One row a claim: what was claimed, our setting, what was measured, the verdict, the notebook that shows why."""
    lines = [row(["claim", "whose", "our setting", "measured", "verdict", "notebook"]), "|---|---|---|---|---|---|"]
    for claim in CLAIMS:
        found = list(claim.findings())
        settings = "<br>".join(dict.fromkeys(finding.setting for finding in found))
        measured = "<br>".join(f"{f.condition}: {f.measured}" if f.condition else f.measured for f in found)
        if all(finding.holds is None for finding in found):
            measured = NOT_RECORDED
        cells = [claim.claimed, claim.system, settings, measured, verdict(found), f"{claim.notebook:02}"]
        lines.append(row(cells))
    return "\n".join(lines)


def bake_off_table(profile: Profile | None = None) -> str:
    """Every score on every task: how good, how long a step takes, and how much memory.

    Args:
        profile: of the records; the largest one that is recorded if not given.
    """
    profiles = get_args(Profile)[::-1] if profile is None else (profile,)
    contents = {task: best_record(f"bake-off-{task}", profiles) for task in BAKE_OFFS}
    heads = [
        f"{task}, {metric}" + (f" ({content['profile']}, {len(content['seeds'])} seeds)" if content else "")
        for (task, metric), content in zip(BAKE_OFFS.items(), contents.values(), strict=True)
    ]
    lines = [row(["score", *heads]), "|---|" + "---|" * len(heads)]
    for score in SCORES:
        cells = [f"`{score}`"]
        for task, content in contents.items():
            if content is None:
                cells.append(NOT_RECORDED)
                continue
            shown = (BAKE_OFFS[task], STEP_TIME, PEAK)
            cells.append(
                "<br>".join(known_metric(metric).describe(figures(content, metric, score)) for metric in shown)
            )
        lines.append(row(cells))
    return "\n".join(lines)


#: What the table of records quotes of each experiment; the bake-off has a table of its own.
QUOTED: dict[str, tuple[str, ...]] = {
    "mnist-image-transformer": (ACCURACY,),
    PIXELS: (ACCURACY,),
    "mnist-784": (ACCURACY, f"{ACCURACY} enlarged", f"{ACCURACY} on small digits"),
    "mnist-784-published": (ACCURACY,),
    "shakespeare": (LOSS,),
    TWO: (LOSS,),
    LITTLE_TEXT: (LOSS, f"lowest {LOSS}"),
    LENGTHS: ("validation loss at 64", "validation loss at 512", "validation loss at 2048"),
    "energy-wells": (ACCURACY,),
    "energy-wells-text": (LOSS,),
    SEARCHED: (VALIDATION,),
    "masked-images": ("probe accuracy", "probe accuracy untrained", "probe accuracy of pixels"),
    "reversal": (MATCH, f"{MATCH} at ten times the length"),
    "dates": (MATCH, f"{MATCH} on new forms", f"{MATCH} on new days and forms"),
}


def records_table() -> str:
    """What every record says, in each profile."""
    heads: dict[Profile, str] = {
        "quick": "quick profile, two CPU cores",
        "long": "long profile, CPU",
        "full": "full profile, GPU",
    }
    lines = [row(["recorded", *heads.values()]), "|---|" + "---|" * len(heads)]
    for name, quoted in QUOTED.items():
        arms = dict.fromkeys(arm for profile in EXPERIMENTS[name].settings for arm in EXPERIMENTS[name].arms(profile))
        for arm in arms:
            for metric in quoted:
                title = f"`{name}`, {metric}" if arm is None else f"`{name}`, {arm}, {metric}"
                lines.append(row([title, *(recorded_cell(name, arm, metric, profile) for profile in heads)]))
    return "\n".join(lines)


def recorded_cell(name: str, arm: str | None, metric: str, profile: Profile) -> str:
    """A metric with its seeds, parameters and seconds; "–" where the experiment has no such profile, arm or metric."""
    what = EXPERIMENTS[name]
    if profile not in what.settings or arm not in what.arms(profile):
        return "–"
    content = load_record(name, profile)
    if content is None:
        return NOT_RECORDED
    runs = [run for run in content["runs"] if run.get("arm") == arm and metric in run["figures"]]
    if not runs:  # the longest text of the quick profile is not the full one's
        return "–"
    return f"{known_metric(metric).describe([run['figures'][metric] for run in runs])} ({describe_runs(runs)})"


#: The tables of the READMEs by the name between whose marks each stands.
TABLES: dict[str, Callable[[], str]] = {"claims": claims_table, "bake-off": bake_off_table, "records": records_table}


def with_tables(text: str) -> str:
    """A text with its tables made anew, each between its marks.

    Raises:
        InputError: if there are marks of no table, or only one of the two.
    """
    here = [name for name in TABLES if f"<!-- {name} -->" in text or f"<!-- end of {name} -->" in text]
    if not here:
        raise InputError(f"no table has a place here: there are no marks of {', '.join(TABLES)}")
    for name in here:
        text = between_marks(text, name, TABLES[name]())
    return text


def between_marks(text: str, name: str, made: str) -> str:
    """A text with what stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` replaced.

    Raises:
        InputError: if the marks are missing.
    """
    start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, opened, rest = text.partition(start)
    _, closed, rest = f"\n{rest}".partition(end)
    if not opened or not closed:
        raise InputError(f"there is no place for the table of {name}: it stands between {start!r} and {end!r}")
    return f"{before}{start}\n{made}\n{end}{rest}"
