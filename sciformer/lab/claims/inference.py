r"""The statistics behind a verdict: Student's t over seeds, one-sided tests against a margin, Holm, power.

Every finding is an effect on the claimed side with its standard error. Two one-sided tests are made of each: one for
the claim and one against it. What they ask depends on what is claimed, with δ the smallest effect that matters:

=============  ==========================  =============================
claimed        shown if the effect is      refuted if the effect is
=============  ==========================  =============================
``better``     above 0                     below δ
``no worse``   above −δ                    below −δ
``equal``      between −δ and δ            below −δ or above δ
=============  ==========================  =============================

With a single finding, "is above 0" means that the whole 95 % confidence interval is: its probability under chance is at
most 2.5 %, and so is that of "is below δ". A claim with several findings corrects both families of p-values by Holm's
method at 2.5 % each, so that at most 5 % of the claims get any false verdict. Noise widens the interval, and a wider
one never decides anything, for the claim or against it.

Distributions come from scipy, which ``pip install 'sciformer[course]'`` brings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from sciformer.lab.metrics import LEVEL, scipy_stats

Goal = Literal["better", "no worse", "equal"]
#: With fewer seeds than this nothing is decided: the standard deviation of three differences is hardly known.
FEWEST_SEEDS = 5


@dataclass(frozen=True)
class Effect:
    """How far a measurement lies on the claimed side.

    Args:
        gain: the mean over the seeds, in the unit of the record and positive on the claimed side.
        error: its standard error; NaN for a single seed.
        freedom: the degrees of freedom of the error.
        seeds: how many there are; of two arms without common seeds, in the smaller one.
        delta: the smallest effect that matters, in the same unit.
        goal: what is claimed of the effect.
    """

    gain: float
    error: float
    freedom: float
    seeds: int
    delta: float
    goal: Goal

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval; NaN for a single seed."""
        if self.seeds < 2:
            return float("nan"), float("nan")
        reach = scipy_stats().t.isf(LEVEL, self.freedom) * self.error
        return self.gain - reach, self.gain + reach

    @property
    def power(self) -> float:
        """The :func:`power` of so many seeds against δ, if their spread is what was measured."""
        return power(self.delta, self.error, self.freedom, self.goal)


def paired_or_welch(
    ours: Mapping[int, float], theirs: Mapping[int, float], sign: int, delta: float, goal: Goal
) -> Effect:
    """Compare two arms: by the seeds that both have, or by Welch's test if they have none in common.

    Args:
        ours: the value of each seed.
        theirs: the value of each seed of what it is compared with.
        sign: 1 if a larger value is on the claimed side, −1 if a smaller one is.
    """
    common = sorted(ours.keys() & theirs.keys())
    if common:
        return one_sample([ours[seed] - theirs[seed] for seed in common], sign, delta, goal)
    a, b = np.array(list(ours.values())), np.array(list(theirs.values()))
    gain, fewest = sign * float(a.mean() - b.mean()), min(len(a), len(b))
    if fewest < 2:
        return Effect(gain, float("nan"), 0.0, fewest, delta, goal)
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    split = (parts**2 / np.array([len(a) - 1, len(b) - 1])).sum()
    freedom = float(parts.sum() ** 2 / split) if split > 0 else float(len(a) + len(b) - 2)
    return Effect(gain, float(np.sqrt(parts.sum())), freedom, fewest, delta, goal)


def one_sample(values: Sequence[float], sign: int, delta: float, goal: Goal, *, against: float = 0.0) -> Effect:
    """Compare the mean over the seeds with a number, such as a published one."""
    x, n = sign * (np.array(values, dtype=float) - against), len(values)
    error = float(x.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Effect(float(x.mean()), error, float(n - 1), n, delta, goal)


class Tests(NamedTuple):
    """The p-values of effects, for the claim and against it: numbers, or arrays of one shape."""

    shown: Any
    refuted: Any


def p_values(gain: Any, error: Any, freedom: Any, delta: Any, goal: Goal) -> Tests:
    """The two one-sided p-values of effects; arrays of them as well as one.

    Refuting ``equal`` looks at two sides at once, so its smaller p-value counts twice.
    """
    gain, error, delta = np.asarray(gain, float), np.asarray(error, float), np.asarray(delta, float)

    def certain(distance: Any) -> Any:  # that the distance is above 0
        with np.errstate(divide="ignore", invalid="ignore"):  # seeds that all agree have no error: yes or no
            t = np.where(error > 0, distance / error, np.where(distance > 0, np.inf, -np.inf))
        return scipy_stats().t.sf(t, freedom)

    def above(bound: Any) -> Any:
        return certain(gain - bound)

    def below(bound: Any) -> Any:
        return certain(bound - gain)

    if goal == "better":
        return Tests(above(0.0), below(delta))
    if goal == "no worse":
        return Tests(above(-delta), below(-delta))
    outside = 2 * np.minimum(below(-delta), above(delta))
    return Tests(np.maximum(above(-delta), below(delta)), np.minimum(outside, 1.0))


def holm(p: Any) -> np.ndarray:
    """Holm's correction of the p-values along the last axis, each where it stood.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    p = np.asarray(p, float)
    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)
    corrected = np.maximum.accumulate(factors * np.take_along_axis(p, order, axis=-1), axis=-1)
    back = np.argsort(order, axis=-1)
    return np.minimum(np.take_along_axis(corrected, back, axis=-1), 1.0)


class Decided(NamedTuple):
    """Which effects are shown and which are refuted; the others are undecided.

    An effect that is claimed to be better can be both: surely above 0, and surely below δ.
    """

    shown: np.ndarray
    refuted: np.ndarray


def decide(tests: Sequence[Tests]) -> Decided:
    """What is decided of the effects of one claim; each may be an array, with an entry for each simulated claim."""
    if not tests:
        return Decided(np.empty(0, bool), np.empty(0, bool))
    shown, refuted = (holm(np.stack(side, axis=-1)) <= LEVEL for side in zip(*tests, strict=True))
    return Decided(shown, refuted)


def p_values_of(effect: Effect) -> Tests:
    """The p-values of one effect."""
    return p_values(effect.gain, effect.error, effect.freedom, effect.delta, effect.goal)


def power(delta: float, error: float, freedom: float, goal: Goal) -> float:
    """How likely an effect that matters is found, by one test at 2.5 % and before Holm's correction.

    For ``better`` that is how likely an effect of δ is shown to be above 0, for ``no worse`` how likely no effect is
    shown to be above −δ: both by the noncentral t distribution. Equality has to pass on two sides, and the probability
    is at least 1 − 2 (1 − P) with P that of one side.

    Source: Cohen 1988, Statistical Power Analysis for the Behavioral Sciences, chapter 2.
    """
    if freedom < 1:
        return float("nan")
    if delta > 100 * error:  # certain, and beyond what scipy's noncentral t can compute
        return 1.0
    stats = scipy_stats()
    one_side = float(stats.nct.sf(stats.t.isf(LEVEL, freedom), freedom, delta / error))
    return max(0.0, 2 * one_side - 1) if goal == "equal" else one_side
