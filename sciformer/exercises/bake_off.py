"""Exercises of notebook 16: the bake-off.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_ERROR = "Mean and standard error"
_PAIRS = "Pairs"
_MANY = "Break it: many comparisons"
_RULES = "Rules before results"


def seed_spread(
    values: Tensor,
    *,
    axis: int = 1,
    centre: Callable[..., Tensor] = lambda values, axis: values.mean(axis),
    square: Callable[..., Tensor] = lambda values, axis: values.var(axis),
    root: Callable[..., Tensor] = lambda variance: variance.sqrt(),
    over: Callable[..., float] = lambda values, axis: math.sqrt(values.shape[axis]),
) -> tuple[Tensor, Tensor]:
    """Mean over the seeds and its standard error, (A,) each."""
    return centre(values, axis), root(square(values, axis)) / over(values, axis)


def _seed_spread_cases(draw: Draw) -> Iterator[Case]:
    for arms, seeds in ((2, 3), (3, 5), (5, 7)):
        yield Case(f"{arms} scores, {seeds} seeds", {"values": draw.normal(arms, seeds)})
    # Such as accuracies in percent: so near to each other that their squares no longer differ as they should.
    close = 97 + (8 * draw.normal(2, 4)).round() / 256
    yield Case("2 scores, 4 seeds that lie close together", {"values": close})


_SEED_SPREAD_FAULTS = (
    Fault(
        "squares subtracted",
        "The square of the mean is subtracted from the mean of the squares. Where the seeds lie close together these "
        "two nearly cancel, and few digits are left. Square how far each seed lies from the mean.",
        square=lambda values, axis: (
            (values.square().mean(axis) - values.mean(axis).square()).clamp(min=0)
            * values.shape[axis]
            / (values.shape[axis] - 1)
        ),
    ),
    Fault(
        "standard deviation",
        "This is the standard deviation: how far one seed lies from the mean. Averaging n seeds divides it by √n.",
        over=lambda values, axis: 1.0,
    ),
    Fault(
        "divided by n",
        "The standard deviation is divided by n. Variances of independent seeds add up, so the mean's standard error "
        "falls with √n.",
        over=lambda values, axis: values.shape[axis],
    ),
    Fault(
        "divided by √(n − 1)",
        "The deviation is divided by √(n − 1). The n − 1 belongs in the variance; the mean is over n seeds: √n.",
        over=lambda values, axis: math.sqrt(values.shape[axis] - 1),
    ),
    Fault(
        "divided by the root of the number of scores",
        "The deviation is divided by √len(values), and that counts the scores. The mean is over n seeds: "
        "values.shape[1].",
        over=lambda values, axis: math.sqrt(len(values)),
    ),
    Fault(
        "divided by the root of all",
        "The deviation is divided by the root of the number of all values. Each score has n seeds: values.shape[1].",
        over=lambda values, axis: math.sqrt(values.numel()),
    ),
    Fault(
        "n in the variance",
        "The variance divides by n. The mean was taken from the same seeds, which makes it too close to them, so "
        "divide by n − 1, as torch's `std` does.",
        over=lambda values, axis: values.shape[axis] / math.sqrt(values.shape[axis] - 1),
    ),
    Fault(
        "variance",
        "It is the variance over √n. The standard deviation is its root.",
        root=lambda variance: variance,
    ),
    Fault(
        "variance of the mean",
        "It is the variance over n, the square of the standard error. Take its root.",
        root=lambda variance: variance,
        over=lambda values, axis: values.shape[axis],
    ),
    Fault(
        "no mean in the deviations",
        "It takes the root mean square of the values themselves. Subtract their mean first.",
        square=lambda values, axis: values.square().sum(axis) / (values.shape[axis] - 1),
    ),
    Fault(
        "over the scores",
        "Mean and error run over the scores. Each score has its own: over the seeds, dim=1.",
        axis=0,
    ),
    Fault(
        "median",
        "It is the median; the standard error belongs to the mean.",
        centre=lambda values, axis: values.median(axis).values,
    ),
    Fault(
        "sum",
        "The seeds are added up and not divided by their number.",
        centre=lambda values, axis: values.sum(axis),
    ),
)


def paired_gain(
    ours: Tensor,
    theirs: Tensor,
    *,
    differences: Callable[..., Tensor] = lambda ours, theirs: ours - theirs,
    mean: Callable[..., Tensor] = lambda d: d.mean(),
    error: Callable[..., Tensor] = lambda d, ours, theirs: d.std() / math.sqrt(len(d)),
) -> tuple[Tensor, Tensor]:
    """Mean of the differences seed by seed, and its standard error."""
    d = differences(ours, theirs)
    return mean(d), error(d, ours, theirs)


def _error(values: Tensor) -> Tensor:
    return values.std() / math.sqrt(len(values))


def _any_two_numbers(answer: Callable[..., Any], ours: Tensor, theirs: Tensor) -> Any:
    """Python's numbers, as those of `mean_and_error`, are as good as tensors."""
    result = answer(ours, theirs)
    if not isinstance(result, list | tuple):
        return result
    return [torch.tensor(x).to(ours) if isinstance(x, float) else x for x in result]


def _paired_gain_cases(draw: Draw) -> Iterator[Case]:
    for seeds in (3, 5, 11):
        luck, gain = draw.normal(seeds), torch.tensor(3.0)
        if seeds == 11:  # with so many some seeds speak for theirs
            gain = 3 - 4 * (torch.arange(seeds) % 2)
        ours = luck + draw.normal(seeds) / 5 + gain.to(luck)
        yield Case(f"{seeds} seeds", {"ours": ours, "theirs": luck + draw.normal(seeds) / 5})


_PAIRED_GAIN_FAULTS = (
    Fault(
        "sign lost",
        "Absolute differences are averaged. A seed that speaks for theirs has to count against ours.",
        differences=lambda ours, theirs: (ours - theirs).abs(),
    ),
    Fault(
        "pairs forgotten",
        "The two errors are added as for independent runs: √(a² + b²). The runs are pairs with the same seed: take the "
        "differences first, then their own error.",
        error=lambda d, ours, theirs: (_error(ours).square() + _error(theirs).square()).sqrt(),
    ),
    Fault(
        "errors added",
        "The two errors are added. Take the differences seed by seed, and their own error.",
        error=lambda d, ours, theirs: _error(ours) + _error(theirs),
    ),
    Fault(
        "errors subtracted",
        "It is the difference of the two errors. An error of differences comes from the differences.",
        error=lambda d, ours, theirs: _error(ours) - _error(theirs),
    ),
    Fault(
        "one error only",
        "The error is that of `ours` alone, as if the other score had been measured without any.",
        error=lambda d, ours, theirs: _error(ours),
    ),
    Fault(
        "the other error only",
        "The error is that of `theirs` alone, as if ours had been measured without any.",
        error=lambda d, ours, theirs: _error(theirs),
    ),
    Fault(
        "standard deviation of the differences",
        "This is how far one difference lies from the mean. Divide by √n for the mean of n.",
        error=lambda d, ours, theirs: d.std(),
    ),
    Fault(
        "divided by n",
        "The deviation is divided by n. It is √n.",
        error=lambda d, ours, theirs: d.std() / len(d),
    ),
    Fault(
        "divided by √(n − 1)",
        "Your deviation is divided by √(n − 1), although the variance has its n − 1 already. It should be divided by "
        "√n: the mean is over n differences.",
        error=lambda d, ours, theirs: d.std() / math.sqrt(len(d) - 1),
    ),
    Fault(
        "n in the variance",
        "The variance divides by n. Of n differences n − 1 are free: divide by n − 1, as torch's `std` does.",
        error=lambda d, ours, theirs: d.std(correction=0) / math.sqrt(len(d)),
    ),
    Fault(
        "wrong way round",
        "The sign is reversed: a gain is ours minus theirs.",
        differences=lambda ours, theirs: theirs - ours,
    ),
    Fault(
        "seeds out of order",
        "The values were sorted before they were subtracted. A pair shares its seed, so leave them where they stand.",
        differences=lambda ours, theirs: ours.sort().values - theirs.sort().values,
    ),
    Fault(
        "relative",
        "The differences are divided by theirs. They are wanted as they are.",
        differences=lambda ours, theirs: (ours - theirs) / theirs,
    ),
    Fault(
        "squared",
        "The differences are squared. A gain has a sign.",
        differences=lambda ours, theirs: (ours - theirs).square(),
    ),
    Fault(
        "in units of the error",
        "The mean is divided by its error. That is t; the mean itself is wanted.",
        mean=lambda d: d.mean() / _error(d),
    ),
    Fault("sum", "The differences are added up and not divided by their number.", mean=lambda d: d.sum()),
    Fault(
        "covariance once",
        "The covariance is subtracted once. The variance of a difference is the sum of the two variances minus twice "
        "their covariance.",
        error=lambda d, ours, theirs: (
            (ours.var() + theirs.var() - ((ours - ours.mean()) * (theirs - theirs.mean())).sum() / (len(ours) - 1))
            / len(ours)
        ).sqrt(),
    ),
)


def holm(
    p: Tensor,
    *,
    order: Callable[..., Tensor] = lambda p: p.argsort(),
    factor: Callable[..., Tensor] = lambda count, rank: count - rank,
    weigh: Callable[..., Tensor] = lambda factor, p: factor * p,
    run: Callable[..., Tensor] = lambda x: x.cummax(0).values,
    clip: Callable[..., Tensor] = lambda x: x.clamp(max=1),
    back: Callable[..., Tensor] = lambda x, order: x[order.argsort()],
) -> Tensor:
    """Each p-value, corrected for the number of comparisons, (M,)."""
    ascending = order(p)
    rank = torch.arange(len(p), device=p.device)
    return back(clip(run(weigh(factor(len(p), rank), p[ascending]))), ascending)


def _holm_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, *thousandths: int) -> Case:
        p = torch.tensor(thousandths, device=draw.device) + draw.integers(0, 5, len(thousandths))
        return Case(name, {"p": p.to(draw.dtype) / 1000})

    yield case("3 comparisons", 600, 700, 300)
    yield case("4 comparisons", 200, 10, 600, 15)
    yield case("4 comparisons, three nearly alike", 210, 600, 200, 220)  # the first exceeds the third's product, too
    yield case("7 comparisons", 80, 300, 10, 15, 900, 60, 20)
    twice = torch.tensor([40, 10, 300, 10], device=draw.device)[draw.permutation(4)]
    yield Case("4 comparisons, two of them equal", {"p": twice.to(draw.dtype) / 1000})


_HOLM_FAULTS = (
    Fault(
        "not corrected",
        "The p-values are not corrected. Among M comparisons there are M opportunities for a small p-value.",
        factor=lambda count, rank: torch.ones_like(rank),
        run=lambda x: x,
    ),
    Fault(
        "Bonferroni",
        "All are multiplied by M. That is Bonferroni: right, and stricter than needed. Here the smallest is multiplied "
        "by M, the next by M − 1, and so on.",
        factor=lambda count, rank: torch.full_like(rank, count),
    ),
    Fault(
        "Holm–Šidák",
        "The results are those of Holm and Šidák, 1 − (1 − p)^k, which is the default of statsmodels' multipletests. "
        "Holm's own are k · p.",
        weigh=lambda factor, p: 1 - (1 - p) ** factor,
    ),
    Fault(
        "Benjamini–Hochberg's factors",
        "The factors are M divided by the rank, as in Benjamini and Hochberg, who bound the share of false "
        "discoveries; Holm's are M, M − 1, …, 1.",
        factor=lambda count, rank: count / (rank + 1),
    ),
    Fault(
        "Benjamini and Hochberg",
        "This is Benjamini and Hochberg's correction. It bounds the share of false discoveries, not the probability of "
        "any.",
        factor=lambda count, rank: count / (rank + 1),
        run=lambda x: x.flip(0).cummin(0).values.flip(0),
    ),
    Fault(
        "Hochberg",
        "The minimum runs from the largest down. That is Hochberg's step up; Holm steps down, with a maximum from the "
        "smallest on.",
        run=lambda x: x.flip(0).cummin(0).values.flip(0),
    ),
    Fault(
        "factors the wrong way round",
        "The smallest is multiplied by 1 and the largest by M. The smallest needs the largest factor.",
        factor=lambda count, rank: rank + 1,
    ),
    Fault(
        "one factor too small",
        "The factors begin with M − 1. The smallest is multiplied by M.",
        factor=lambda count, rank: count - rank - 1,
    ),
    Fault(
        "one factor too large",
        "The factors begin with M + 1. The smallest is multiplied by M.",
        factor=lambda count, rank: count - rank + 1,
    ),
    Fault(
        "not rising",
        "A larger p-value may come out below a smaller one. Once one comparison fails, so do all with larger p-values: "
        "take the running maximum.",
        run=lambda x: x,
    ),
    Fault(
        "maximum in the given order",
        "The running maximum goes along the p-values as they were given. It goes from the smallest up: sort first, and "
        "put the results back last.",
        run=lambda x: x,
        back=lambda x, order: x[order.argsort()].cummax(0).values,
    ),
    Fault(
        "compared with the one before",
        "Each product is compared with the product just before it only, and that may itself lie below an earlier one. "
        "Compare with the largest so far: cummax.",
        run=lambda x: torch.cat([x[:1], torch.maximum(x[1:], x[:-1])]),
    ),
    Fault("running sum", "It adds up what came before. It is the running maximum.", run=lambda x: x.cumsum(0)),
    Fault("above 1", "A corrected p-value is above 1: cut it off there.", clip=lambda x: x),
    Fault(
        "left in order of size",
        "The results stand in order of size. Put each back where its comparison stands.",
        back=lambda x, order: x,
    ),
    Fault(
        "ordered twice",
        "The order of sorting was applied once more. To go back, use its inverse: order.argsort().",
        back=lambda x, order: x[order],
    ),
    Fault(
        "not sorted",
        "The factors go to the comparisons as they stand. Sort by size first.",
        order=lambda p: torch.arange(len(p), device=p.device),
    ),
    Fault(
        "largest first",
        "The largest comes first. The smallest does: it gets the factor M.",
        order=lambda p: p.argsort(descending=True),
    ),
    Fault(
        "stops at 0.05",
        "Your corrected p-values are 1 from the first one above 0.05 on. They should go on as before: it is Holm's "
        "decision that stops there.",
        run=lambda x: torch.where((x.cummax(0).values > 0.05).cumsum(0) > 1, 1.0, x.cummax(0).values),
    ),
)


def verdict_rule(
    gains: Tensor,
    delta: float,
    t: float,
    *,
    enough: Callable[..., bool] = lambda gains: gains.shape[1] >= 5,
    error: Callable[..., Tensor] = lambda gains: gains.std(1) / math.sqrt(gains.shape[1]),
    reach: Callable[..., Tensor] = lambda error, t: t * error,
    shown: Callable[..., Tensor] = lambda low, mean, high, delta: low > 0,
    refuted: Callable[..., Tensor] = lambda low, mean, high, delta: high < delta,
    both: Callable[..., Tensor] = lambda shown, refuted: refuted & ~shown,
    counted: Callable[..., Tensor] = lambda verdicts, decided: verdicts,
    alarms: Callable[..., Tensor] = lambda verdicts: (verdicts == 1).double().mean(),
) -> tuple[Tensor, Tensor]:
    """1 where a gain is shown, −1 where it is refuted, else 0, (A,); and the share of 1s, ()."""
    mean, half = gains.mean(1), reach(error(gains), t)
    ends = mean - half, mean, mean + half, delta
    is_shown = shown(*ends)
    decided = is_shown.int() - both(is_shown, refuted(*ends)).int()
    verdicts = decided if enough(gains) else torch.zeros_like(decided)
    return verdicts.to(gains), alarms(counted(verdicts, decided)).to(gains)


def _numbers(answer: Callable[..., Any], gains: Tensor, delta: float, t: float) -> Any:
    """Verdicts may be whole numbers, and the share a number of Python's."""
    result = answer(gains, delta, t)
    if not isinstance(result, list | tuple):
        return result
    return [torch.as_tensor(x).to(gains) if isinstance(x, Tensor | float | int) else x for x in result]


#: The middle of an interval and its half width, in units of δ: above δ, around δ, far below 0, shown and below δ, below
#: δ alone, around 0 with a mean below it, undecided, and undecided though two standard errors would be enough.
_INTERVALS = (
    (2.5, 1.0),
    (1.2, 0.6),
    (-2.0, 1.0),
    (0.5, 0.3),
    (0.2, 0.5),
    (-0.3, 0.6),
    (0.8, 1.0),
    (1.4, 1.5),
    (1.45, 1.5),
)


def _verdict_rule_cases(draw: Draw) -> Iterator[Case]:
    # The last has fewer comparisons than five, to tell them from the seeds.
    for arms, count, t in ((9, 5, 2.776), (9, 4, 3.182), (9, 10, 2.262), (4, 6, 2.571)):
        delta = 0.25 * count
        middle, half = (delta * torch.tensor(x) for x in zip(*_INTERVALS[:arms], strict=True))
        noise = draw.normal(arms, count)
        noise = (noise - noise.mean(1, keepdim=True)) / noise.std(1, keepdim=True)
        gains = middle.to(noise)[:, None] + noise * (half.to(noise) * math.sqrt(count) / t)[:, None]
        yield Case(f"{arms} comparisons, {count} seeds", {"gains": gains, "delta": delta, "t": t})


_VERDICT_RULE_FAULTS = (
    Fault(
        "mean of the verdicts",
        "The share is the mean of the verdicts, from which each −1 takes away what a 1 has added. Count the 1s alone: "
        "(verdicts == 1).",
        alarms=lambda verdicts: verdicts.double().mean(),
    ),
    Fault(
        "two errors",
        "The interval reaches two standard errors to either side, whatever t is. With five seeds 95 % need 2.776.",
        reach=lambda error, t: 2 * error,
    ),
    Fault(
        "standard deviation",
        "The interval is t standard deviations wide. That of the mean is t standard errors: divide by the root of the "
        "number of seeds.",
        error=lambda gains: gains.std(1),
    ),
    Fault(
        "divided by n",
        "The deviation is divided by the number of seeds. The standard error divides it by the root of that number.",
        error=lambda gains: gains.std(1) / gains.shape[1],
    ),
    Fault(
        "n in the variance",
        "The variance divides by n. Divide by n − 1, as torch's `std` does.",
        error=lambda gains: gains.std(1, correction=0) / math.sqrt(gains.shape[1]),
    ),
    Fault(
        "the mean decides",
        "Shown is what has a mean above 0. So is half of all pure chance: the whole interval has to be above 0.",
        shown=lambda low, mean, high, delta: mean > 0,
    ),
    Fault(
        "the wrong end",
        "Shown is what has the upper end of its interval above 0. Then more noise would show more: take the lower end.",
        shown=lambda low, mean, high, delta: high > 0,
    ),
    Fault(
        "shown from δ on",
        "Your rule shows a gain only where its whole interval lies above δ. It should compare with 0: the claim is "
        "that there is a gain.",
        shown=lambda low, mean, high, delta: low > delta,
    ),
    Fault(
        "refuted below 0",
        "Refuted is only what lies wholly below 0. A gain that is surely smaller than δ is refuted, too.",
        refuted=lambda low, mean, high, delta: high < 0,
    ),
    Fault(
        "refuted by the mean",
        "Refuted is what has a mean below δ. The whole interval has to be below δ, or noise alone refutes.",
        refuted=lambda low, mean, high, delta: mean < delta,
    ),
    Fault(
        "refuted if not shown",
        "What is not shown counts as refuted. Between them lies the undecided: the interval holds both 0 and δ.",
        refuted=lambda low, mean, high, delta: low <= 0,
    ),
    Fault(
        "refuted although shown",
        "A gain that is surely above 0 and surely below δ counts as refuted. It should count as shown, 1, however "
        "small it is.",
        shown=lambda low, mean, high, delta: (low > 0) & ~(high < delta),
    ),
    Fault(
        "both at once",
        "A gain that is surely above 0 and surely below δ gets 1 and −1, together 0. It should count as shown, 1, "
        "however small it is.",
        both=lambda shown, refuted: refuted,
    ),
    Fault(
        "few seeds decide",
        "Fewer than five seeds decide something. Their verdicts are all 0.",
        enough=lambda gains: True,
    ),
    Fault(
        "few seeds count in the share",
        "With fewer than five seeds the verdicts are 0, but the share still counts what would have been shown. Take "
        "the share of the verdicts, after this rule.",
        counted=lambda verdicts, decided: decided,
    ),
    Fault(
        "comparisons counted",
        "The rule of five is applied to the number of comparisons, len(gains). It is about the seeds: gains.shape[1].",
        enough=lambda gains: len(gains) >= 5,
    ),
    Fault(
        "five are too few",
        "Five seeds decide nothing. Only fewer than five are too few.",
        enough=lambda gains: gains.shape[1] > 5,
    ),
    Fault(
        "every decision is an alarm",
        "The share counts the refuted, too. If there is no gain, refuting one is right; false is only what is shown.",
        alarms=lambda verdicts: (verdicts != 0).double().mean(),
    ),
    Fault(
        "share of the decided",
        "Your share is that of the decided comparisons. It should be that of all comparisons.",
        alarms=lambda verdicts: (verdicts == 1).double().sum() / (verdicts != 0).sum().clamp(min=1),
    ),
    Fault(
        "count",
        "It is the number of false alarms. Divide by the number of comparisons.",
        alarms=lambda verdicts: (verdicts == 1).double().sum(),
    ),
)

EXERCISES = (
    Exercise(
        seed_spread,
        notebook="16",
        section=_ERROR,
        level="easy",
        minutes=4,
        hints=(
            "Along which axis do the seeds stand?",
            "`values.std(dim=1)` divides by n − 1 inside. What makes the deviation of one seed that of a mean of n?",
        ),
        cases=_seed_spread_cases,
        faults=_SEED_SPREAD_FAULTS,
        returns=("mean", "standard error"),
        differentiable=False,
    ),
    Exercise(
        paired_gain,
        notebook="16",
        section=_PAIRS,
        level="middle",
        minutes=6,
        hints=(
            "What do the two runs of one seed share, and how does it drop out?",
            "Subtract seed by seed; then it is exercise 1 with a single row.",
        ),
        cases=_paired_gain_cases,
        faults=_PAIRED_GAIN_FAULTS,
        call=_any_two_numbers,
        returns=("mean", "standard error"),
        differentiable=False,
    ),
    Exercise(
        holm,
        notebook="16",
        section=_MANY,
        level="hard",
        minutes=15,
        hints=(
            "Sort, multiply, take the running maximum, cut off at 1, put back.",
            "`order = p.argsort()` sorts, `x.cummax(dim=0).values` is the running maximum. `order.argsort()` "
            "says where each one went.",
        ),
        cases=_holm_cases,
        faults=_HOLM_FAULTS,
        returns=("p-values",),
        differentiable=False,
    ),
    Exercise(
        verdict_rule,
        notebook="16",
        section=_RULES,
        level="hard",
        minutes=15,
        hints=(
            "First the interval of each row: its mean, and t standard errors to either side. Then two comparisons, "
            "one for each end.",
            "`torch.where(low > 0, 1, torch.where(high < delta, -1, 0))`, and zeros if there are fewer than five "
            "seeds.",
        ),
        cases=_verdict_rule_cases,
        faults=_VERDICT_RULE_FAULTS,
        call=_numbers,
        returns=("verdicts", "false alarms"),
        differentiable=False,
    ),
)
