"""When a measurement counts: findings, verdicts, and the comparisons that they come from.

The rules are the same for every claim. Two arms of an experiment are compared seed by seed:

- one is *better* if the mean of the differences is more than two of their standard errors on its side;
- one is *no worse* if it is not more than two standard errors on the other side;
- a mean *reaches* a published value if it is no more than two standard errors short of it.

A claim that is measured under several conditions holds if it does under all of them, does not hold if it does under
none, and otherwise holds only under those that are named, or except under those. A record of one seed has no error, and
so gives no verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.metrics import known_metric, mean_and_error
from sciformer.lab.records import load_record, recorded_metric
from sciformer.lab.settings import Profile

#: How many standard errors a difference must have to count.
ERRORS = 2
NOT_RECORDED = "not recorded yet"
#: "Higher" and "lower" are for a metric of which neither side is the better one.
Relation = Literal["better", "no worse", "higher", "lower"]


@dataclass(frozen=True)
class Finding:
    """One measurement of a claim.

    Args:
        holds: None if it is not recorded yet.
        setting: which record, or what was computed.
        condition: under what it was measured; completes "holds only …". Needed where a claim has several findings.
        gain: by how much two arms differ, positive on the claim's side; None if it is no such comparison.
        error: the standard error of that difference.
    """

    holds: bool | None
    measured: str
    setting: str
    condition: str = ""
    gain: float | None = None
    error: float | None = None


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
    gain, error = gain_and_error(ours, theirs, metric, relation)
    holds = gain >= -ERRORS * error if relation == "no worse" else gain > ERRORS * error
    return holds, f"{known.describe(ours)} against {known.describe(theirs)}: {known.describe_differences(differences)}"


def gain_and_error(
    ours: Sequence[float], theirs: Sequence[float], metric: str, relation: Relation = "better"
) -> tuple[float, float]:
    """The mean of the differences, pair by pair and positive on the side of the relation, and its standard error.

    Raises:
        InputError: if there is no such metric, or it has no better side and the relation needs one.
    """
    mean, error = mean_and_error([a - b for a, b in zip(ours, theirs, strict=True)])
    gain = mean if relation == "higher" else -mean if relation == "lower" else known_metric(metric).gain(mean)
    return gain, error


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
    ours, theirs = recorded_metric(content, metric, arm), recorded_metric(content, other_metric or metric, other)
    difference = gain_and_error(ours, theirs, metric, relation)
    return Finding(*against(ours, theirs, metric, relation), described(content), condition, *difference)


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
    values = recorded_metric(content, metric, arm)
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
    values = recorded_metric(content, metric, arm)
    mean, error = mean_and_error(values)
    holds = mean - ERRORS * error <= published
    return Finding(holds, known_metric(metric).describe(values), described(content), condition)


def similar(name: str, metric: str, arm: str, other: str, margin: float, *, condition: str = "") -> Finding:
    """Whether two arms differ by no more than a margin and two standard errors."""
    content = best_record(name)
    if content is None:
        return Finding(None, NOT_RECORDED, f"`{name}`", condition)
    ours, theirs = recorded_metric(content, metric, arm), recorded_metric(content, metric, other)
    mean, error = mean_and_error([a - b for a, b in zip(ours, theirs, strict=True)])
    return Finding(
        abs(mean) <= margin + ERRORS * error, against(ours, theirs, metric)[1], described(content), condition
    )
