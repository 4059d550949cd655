"""A score of one's own beside the built-in ones: ``capstone.report(MyScore)``.

Four questions, each of which can be asked by itself: does it keep its promises
(:func:`~sciformer.teach.properties.examine`), what does it cost (:func:`cost`), how does it learn (:func:`learn`), and
where does it look (:func:`looks_at_a_digit`, :func:`looks_at_text`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from sciformer.blocks import evaluating
from sciformer.data import mnist, shakespeare
from sciformer.fast import FAST, attention
from sciformer.lab.experiments import CAPSTONE
from sciformer.lab.measuring import median_seconds_in_turns
from sciformer.lab.metrics import known_metric, mean_and_error
from sciformer.lab.settings import ImageSetting, profile
from sciformer.lab.trainers import Run, train_image_transformer, train_language
from sciformer.scores import SCORES, ScoreRecipe
from sciformer.teach import plotting
from sciformer.teach.properties import Verdict, examine, name_of

#: The scores beside which a score of one's own is trained.
RIVALS = ("dot", "distance", "gaussian_well")

#: Colour and dashes of the lines of a picture, in turn: where lines coincide, each shows through the next one's gaps.
LINES = (("#0072B2", "-"), ("#D55E00", "--"), ("#000000", "-"), ("#CC79A7", ":"))

#: The metric that each task is judged by.
JUDGED_BY = {"digits": known_metric("test accuracy"), "text": known_metric("validation loss")}


@dataclass(frozen=True)
class Cost:
    """What scores cost, in multiples of the dot product's readable path; ``print`` it.

    Args:
        size: what was computed, in words.
        readable: name -> time and memory of the readable path.
        default: name -> time and memory of what runs by default, where that is another path.
    """

    size: str
    readable: dict[str, tuple[float, float]]
    default: dict[str, tuple[float, float]]

    def __str__(self) -> str:
        width = max(map(len, self.readable))
        lines = [
            f"{self.size}; × the dot product's readable path",
            f"{'':{width}}   readable path     what runs by default",
            f"{'':{width}}   time   memory     time   memory",
        ]
        for name, (time, memory) in self.readable.items():
            fast = self.default.get(name)
            other = "   the same" if fast is None else f"{fast[0]:7.2f}  {fast[1]:7.2f}"
            lines.append(f"{name:{width}}{time:7.2f}  {memory:7.2f}  {other}")
        return "\n".join(lines)


def cost(
    recipe: ScoreRecipe,
    *,
    against: Sequence[str] = tuple(SCORES),
    length: int = 256,
    batch: int = 2,
    num_heads: int = 4,
    head_dim: int = 32,
    repeats: int = 5,
    device: torch.device | str = "cpu",
) -> Cost:
    """Time and memory of causal self-attention, forward and backward, under a score and under others.

    All take turns, so that a noisy machine is noisy for all, and ratios of medians are reported. Memory is what
    :func:`kept_bytes` counts. A score of one's own has the readable path only: compare that.

    Raises:
        ValueError: if the score has the name of a built-in one.
    """
    _check_name(recipe)
    torch.manual_seed(0)
    shape = (batch, num_heads, length, head_dim)
    inputs = [torch.randn(shape, device=device, requires_grad=True) for _ in range(3)]
    recipes = {"dot": SCORES["dot"], name_of(recipe): recipe, **{name: SCORES[name] for name in against}}
    scores = {name: make(num_heads, head_dim).to(device) for name, make in recipes.items()}

    def forward(name: str, need_weights: bool) -> Tensor:
        return attention(scores[name], *inputs, is_causal=True, need_weights=need_weights)[0].sum()

    def step(name: str, need_weights: bool) -> None:
        forward(name, need_weights).backward()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()

    which = [(name, True) for name in scores] + [(name, False) for name in scores if type(scores[name]) in FAST]
    medians = median_seconds_in_turns([partial(step, *one) for one in which], repeats)
    seconds = dict(zip(which, medians, strict=True))
    kept = {one: kept_bytes(partial(forward, *one), inputs) for one in which}
    unit = "dot", True
    ratios = {one: (seconds[one] / seconds[unit], kept[one] / kept[unit]) for one in which}
    return Cost(
        f"forward and backward, causal, {batch} × {num_heads} heads × {length} tokens of {head_dim}",
        {name: ratio for (name, readable), ratio in ratios.items() if readable},
        {name: ratio for (name, readable), ratio in ratios.items() if not readable},
    )


def kept_bytes(forward: Callable[[], Tensor], inputs: Sequence[Tensor] = ()) -> int:
    """What a forward pass keeps for the backward pass, beyond its inputs: the memory that adds up layer by layer."""
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()  # two views of one memory count once
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        result = forward()  # held, or its memory might be handed out again
    given = {x.untyped_storage().data_ptr() for x in (*inputs, result)}
    return sum(size for address, size in kept.items() if address not in given)


def _check_name(recipe: ScoreRecipe) -> None:
    if (name := name_of(recipe)) in SCORES:
        raise ValueError(
            f"{name!r} is the name of a built-in score, which would take its place; give yours another name"
        )


#: Task -> name of a score -> one run for each seed.
Runs = dict[str, dict[str, list[Run]]]


def learn(
    recipe: ScoreRecipe,
    *,
    against: Sequence[str] = RIVALS,
    seeds: int = 3,
    steps: int | None = None,
    device: torch.device | str = "cpu",
) -> Runs:
    """Train a score and others on digits and on text: the same model, seeds, batches and steps for all.

    The settings are those of the profile in :data:`sciformer.lab.experiments.CAPSTONE`.

    Args:
        steps: train for that many instead.

    Raises:
        ValueError: if the score has the name of a built-in one.
    """
    _check_name(recipe)
    arms: dict[str, Any] = {name_of(recipe): recipe, **{name: name for name in against}}
    runs: Runs = {}
    for task, setting in CAPSTONE[profile()].items():
        train: Callable[..., Run] = train_image_transformer if isinstance(setting, ImageSetting) else train_language
        config = setting.train if steps is None else setting.train.with_steps(steps)
        runs[task] = {
            name: [
                train(replace(setting, score=score, train=config), seed, device=device, progress=False, looks=1)
                for seed in range(seeds)
            ]
            for name, score in arms.items()
        }
    return runs


def draw_learning(runs: Runs) -> Figure:
    """The training loss on both tasks: for each score the mean of its seeds, in a band of one standard error."""
    figure, axes = plt.subplots(1, len(runs), figsize=(10.0, 3.4), layout="constrained")
    for ax, (task, arms) in zip(axes, runs.items(), strict=True):
        losses = {name: torch.tensor([run.history.loss for run in own]) for name, own in arms.items()}
        smooth = max(1, losses[next(iter(losses))].shape[1] // 10)
        styles = {name: {"color": color, "linestyle": dashes} for name, (color, dashes) in zip(losses, cycle(LINES))}
        plotting.bands(losses, ylabel="training loss", title=task, smooth=smooth, styles=styles, ax=ax)
    return figure


def looks_at_a_digit(runs: Runs, *, number: int = 0, patch: int | None = None) -> Figure:
    """Where one patch of a test digit looks under each score: the first seed's last block, mean over heads.

    Args:
        number: which test digit.
        patch: which patch asks, counted row by row; by default the one in the middle.
    """
    arms = runs["digits"]
    picture = mnist("test")[0][number]
    weights = {name: _last_weights(own[0], picture[None]) for name, own in arms.items()}  # (L, L) each
    stacked = torch.stack(list(weights.values()))
    query = stacked.shape[-1] // 2 if patch is None else patch
    return plotting.attention_on_image(picture, stacked, query, titles=_two_lines(weights))


def looks_at_text(runs: Runs, *, start: int = 0, length: int = 16) -> Figure:
    """Where each character of an excerpt from the validation text looks, in the same way.

    The first character can look only at itself. It is left out, or its weight of 1 would set the colour scale.

    Args:
        start: where in the validation text the excerpt begins.
    """
    text, vocabulary = shakespeare("val")
    tokens = text[start : start + length]
    weights = {name: _last_weights(own[0], tokens[None])[1:] for name, own in runs["text"].items()}  # (L - 1, L) each
    letters = [letter.replace("\n", "↵").replace(" ", "·") for letter in vocabulary.decode(tokens)]
    figure = plotting.heads(
        torch.stack(list(weights.values())), rows=letters[1:], columns=letters, titles=_two_lines(weights)
    )
    for ax in figure.axes:
        ax.tick_params(axis="both", labelsize=7)
    return figure


@torch.no_grad()
def _last_weights(run: Run, inputs: Tensor) -> Tensor:
    model: Any = run.model
    with evaluating(model):
        maps = model.attention_weights(inputs.to(next(model.parameters()).device))
    return maps[-1][0].mean(dim=0).cpu()  # (L, L)


def _two_lines(names: Any) -> list[str]:
    return [name.replace("_", "\n") for name in names]


@dataclass(frozen=True)
class Report:
    """All that was found out about a score; ``print`` it for a summary.

    Args:
        properties: what the property suite says.
        cost: None, as is ``runs``, where a property does not hold: what the training would show is then worth nothing.
    """

    name: str
    properties: Verdict
    cost: Cost | None = None
    runs: Runs | None = None

    def __str__(self) -> str:
        if self.cost is None or self.runs is None:
            return f"{self.properties}" + ("\nnothing was trained: repair this first" * self.properties.attempted)
        time, memory = self.cost.readable[self.name]
        lines = [
            f"{self.name}, beside the built-in scores",
            f"  properties: all {len(self.properties.seen)} hold; {'; '.join(self.properties.notes)}",
            f"  cost: {time:.2f} times the dot product's time, {memory:.2f} times its memory (readable paths)",
        ]
        return "\n".join(lines + [line for task in self.runs for line in compare(self.runs, task)])


def compare(runs: Runs, task: str) -> list[str]:
    """How well the first score of a task did, and its difference from each of the others, paired by seed.

    "Ahead" and "behind" mean that the mean difference is more than two standard errors from 0. With three seeds and few
    steps even that is a hint and no verdict: by the rule of the claims, fewer than five seeds decide nothing.
    """
    arms, metric = runs[task], JUDGED_BY[task]
    values = {name: [run.metrics[metric.name] for run in own] for name, own in arms.items()}
    name, *others = values
    steps, seeds = len(arms[name][0].history.loss), len(values[name])
    count = f"{steps} steps, {seeds} seed{'s' * (seeds > 1)}"
    lines = [f"  {task}, {count}: {metric.name} {metric.describe(values[name])}"]
    for other in others:
        gaps = [one - two for one, two in zip(values[name], values[other], strict=True)]
        gap, error = mean_and_error(gaps)
        clear = abs(gap) > 2 * error  # never for one seed, whose error is NaN
        words = ("ahead" if metric.gain(gap) > 0 else "behind") if clear else "no clear difference"
        lines.append(f"    minus {other}'s: {metric.describe_differences(gaps)}, {words}")
    return lines


def report(
    recipe: ScoreRecipe,
    *,
    against: Sequence[str] = RIVALS,
    seeds: int = 3,
    steps: int | None = None,
    device: torch.device | str = "cpu",
) -> Report:
    """Everything in one call: prints the property suite's verdict and the cost, trains, draws, and prints the verdict.

    Where a property does not hold it stops there: a score that sees the future has a low loss that means nothing.

    Args:
        recipe: the score's class, or what makes one: ``recipe(num_heads, head_dim)``.
        against: names of ``SCORES`` to train beside it; the dot product is the one to begin with.
        seeds: how many runs for each score and task.
        steps: how many steps a run has; the profile's where it is not given.
    """
    name, properties = name_of(recipe), examine(recipe)
    if not properties.holds:
        result = Report(name, properties)
        print(result)
        return result
    print(properties, end="\n\n")
    price = cost(recipe, device=device)
    print(price, end="\n\n")
    runs = learn(recipe, against=against, seeds=seeds, steps=steps, device=device)
    result = Report(name, properties, price, runs)
    drawn = {
        draw_learning: "The training loss of each score on digits and on text, with a band of one standard error.",
        looks_at_a_digit: "A test digit, and under each score the weights of one of its patches on all the others.",
        looks_at_text: "Under each score a triangle of weights, from every character of an excerpt to those before it.",
    }
    for draw, alt in drawn.items():
        draw(runs)
        plotting.show(alt)
    print(result)
    return result
