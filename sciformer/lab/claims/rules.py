"""When a measurement counts: findings, the smallest effect that matters, and verdicts.

The rules are the same for every claim and were fixed when its records had three seeds, before any with five: the arms
of an experiment are compared seed by seed, with Student's t. The smallest effects that matter stand in
:data:`SMALLEST`, the tests in :mod:`~sciformer.lab.claims.inference`.

There are three verdicts. **Shown**: the 95 % interval lies wholly on the claimed side of 0. **Refuted**: the interval
excludes an effect of δ on the claimed side. **Undecided**: neither, or fewer than five seeds. For "no worse" and
"equally well" the intervals are held against −δ and δ, so that more noise never helps a claim.

A claim speaks of all conditions under which it was measured: it is shown if it is under each of them, refuted if it is
under any, and else undecided. What is computed exactly is no statistical finding; its verdict says "by computation".
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sciformer.functional import InputError
from sciformer.lab.claims.inference import FEWEST_SEEDS, Effect, Goal, decide, one_sample, p_values_of, paired_or_welch
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.metrics import Metric, known_metric
from sciformer.lab.records import load_record, recorded_by_seed
from sciformer.lab.settings import Profile

NOT_RECORDED: Final = "not recorded yet"
#: "Higher", "lower" and "no higher" say themselves which side is claimed, whichever the metric calls better.
Relation = Literal["better", "no worse", "equal", "higher", "lower", "no higher"]
Outcome = Literal["shown", "refuted", "undecided", "not recorded yet"]


class Margin(NamedTuple):
    """The smallest effect that matters, in the unit of the record, in words, and why."""

    value: float
    said: str
    reason: str


#: δ, by the unit of the metric. Stated once, here, and before the first record with seeds enough to be judged by it.
SMALLEST: dict[str, Margin] = {
    "%": Margin(
        0.01,
        "1 point",
        "20 of 2,000 test digits: about twice the sampling error of an accuracy of 95 % on so many, ±0.49 points",
    ),
    "": Margin(
        0.03,
        "0.03 nats",
        "3 % of the perplexity; the published two by two calls positions alike whose losses differ by up to 0.028",
    ),
    "times": Margin(
        0.1,
        "0.1 times",
        "a tenth: the dot product, timed against itself, came out as far from 1 as 1.11",
    ),
    "tokens": Margin(0.5, "half a token", "heads that differ by less look, on average, at the same neighbour"),
    "per token": Margin(
        0.1, "0.1 per token", "the slope at which the published model starts: it divides a weight by e every ten tokens"
    ),
}
SMALLEST["points"] = SMALLEST["%"]


def smallest_effect(metric: Metric) -> Margin:
    """The δ of a metric.

    Raises:
        InputError: if none was stated for its unit.
    """
    if metric.unit not in SMALLEST:
        raise InputError(f"no smallest effect that matters was stated for {metric.name}, in {metric.unit}")
    return SMALLEST[metric.unit]


@dataclass(frozen=True)
class Finding:
    """One measurement of a claim.

    Args:
        measured: in words, with its numbers.
        setting: which record, or what was computed.
        condition: under what it was measured. Needed where a claim has several findings.
        computed: whether the claim holds, where that is mathematics and no statistics.
        effect: what was measured over seeds, where it was.
        missing: what the record lacks, such as an arm; then nothing is decided.
    """

    measured: str
    setting: str
    condition: str = ""
    computed: bool | None = None
    effect: Effect | None = None
    missing: str = ""


class Decision(NamedTuple):
    """What a finding comes to, and what is to be said beside it."""

    outcome: Outcome
    note: str = ""

    def __str__(self) -> str:
        note = f"({self.note})" if self.outcome == "undecided" and self.note else self.note
        return f"{self.outcome} {note}".rstrip()


def decisions(findings: Sequence[Finding]) -> list[Decision]:
    """The decision on each finding of one claim, their p-values corrected for each other by Holm's method."""
    judged = [finding.effect for finding in findings if can_decide(finding)]
    shown, refuted = decide([p_values_of(effect) for effect in judged if effect])
    statistical = iter(zip(shown.tolist(), refuted.tolist(), strict=True))
    return [_decision(finding, statistical) for finding in findings]


def can_decide(finding: Finding) -> bool:
    """Whether a finding is a statistical one with seeds enough."""
    return finding.effect is not None and finding.effect.seeds >= FEWEST_SEEDS


def _decision(finding: Finding, statistical: Any) -> Decision:
    if finding.computed is not None:
        return Decision("shown" if finding.computed else "refuted", "by computation")
    if finding.missing:
        return Decision("undecided", f"{finding.missing} is missing")
    if finding.effect is None:
        return Decision(NOT_RECORDED)
    if not can_decide(finding):
        return Decision("undecided", counted_seeds(finding.effect.seeds))
    is_shown, is_refuted = next(statistical)
    if is_shown:
        return Decision("shown", "but smaller than δ" if is_refuted else "")
    return Decision("refuted" if is_refuted else "undecided")


def counted_seeds(count: int) -> str:
    """ "1 seed", "5 seeds"."""
    return f"{count} seed{'s' * (count != 1)}"


def overall(outcomes: Sequence[Decision]) -> Outcome:
    """What a claim comes to that speaks of all these conditions."""
    kinds = {decision.outcome for decision in outcomes}
    if kinds == {NOT_RECORDED}:
        return NOT_RECORDED
    return "refuted" if "refuted" in kinds else "shown" if kinds == {"shown"} else "undecided"


def verdict(findings: Sequence[Finding]) -> str:
    """The verdict on a claim, and under which conditions it is that one or another."""
    found = decisions(findings)
    whole = overall(found)
    groups: dict[str, list[str]] = {}
    for decision, finding in sorted(zip(found, findings, strict=True), key=lambda pair: pair[0].outcome != whole):
        groups.setdefault(str(decision), []).append(finding.condition)
    said = {text.replace(whole, f"**{whole}**", 1): where for text, where in groups.items()}
    if len(said) == 1:
        return next(iter(said))
    lead = [] if any(decision.outcome == whole for decision in found) else [f"**{whole}**"]  # some shown, others open
    return " · ".join([*lead, *(f"{text}: {'; '.join(where)}" for text, where in said.items())])


def short_verdict(findings: Sequence[Finding]) -> str:
    """The verdict on a claim in a few words: how many of its conditions came to it, or to another."""
    found = decisions(findings)
    whole = overall(found)
    alike = [decision.note for decision in found if decision.outcome == whole]
    notes = [
        note if count == len(alike) else f"{note} under {count} of {len(found)} conditions"
        for note, count in Counter(filter(None, alike)).items()
    ]
    said = str(Decision(whole, "; ".join(notes))).replace(whole, f"**{whole}**", 1)
    counts = Counter(decision.outcome for decision in found)
    if len(counts) == 1:
        return said
    if whole == "refuted":
        return f"{said} under {counts[whole]} of {len(found)} conditions"
    others = ", ".join(f"{outcome} under {count}" for outcome, count in counts.items() if outcome != whole)
    return f"{said}; {others} of {len(found)} conditions"


def best_record(name: str, profiles: Sequence[Profile] = ("full", "long", "quick")) -> dict[str, Any] | None:
    """The record of the first of these profiles with seeds enough; if none has, the one with the most seeds."""
    contents = [load_record(name, profile) for profile in profiles if profile in EXPERIMENTS[name].settings]
    known = [content for content in contents if content is not None]
    enough = [content for content in known if len(content["seeds"]) >= FEWEST_SEEDS]
    return enough[0] if enough else max(known, key=lambda content: len(content["seeds"]), default=None)


def described(content: dict[str, Any]) -> str:
    """A record as the column of settings names it."""
    return f"`{content['name']}`, {content['profile']}, {counted_seeds(len(content['seeds']))}"


def is_better_low(metric: str) -> bool:
    """Whether lower values of this metric are better.

    Raises:
        InputError: if there is no such metric.
    """
    return known_metric(metric).better == "lower"


def side(metric: str, relation: Relation) -> tuple[int, Goal]:
    """The sign of a gain on the claimed side, and what is claimed of it.

    Raises:
        InputError: if there is no such metric, or it has no better side and the relation needs one.
    """
    if relation in ("better", "no worse"):
        return int(known_metric(metric).gain(1)), relation
    if relation == "equal":
        return 1, "equal"
    return (1, "better") if relation == "higher" else (-1, "better" if relation == "lower" else "no worse")


def compare_values(
    ours: Mapping[int, float], theirs: Mapping[int, float] | float, metric: str, relation: Relation = "better"
) -> Effect:
    """The effect of one arm over another, each by seed, or over a number.

    Raises:
        InputError: if there is no such metric, or it has no better side and the relation needs one.
    """
    sign, goal = side(metric, relation)
    delta = smallest_effect(known_metric(metric)).value
    if isinstance(theirs, Mapping):
        return paired_or_welch(ours, theirs, sign, delta, goal)
    return one_sample(list(ours.values()), sign, delta, goal, against=theirs)


def describe_comparison(
    effect: Effect, ours: Mapping[int, float], theirs: Mapping[int, float] | float, metric: str, *, of: str = "seeds"
) -> str:
    """Both sides, the gain with its 95 % interval, and the power against δ; of a single seed, the values alone."""
    known, margin = known_metric(metric), smallest_effect(known_metric(metric))
    other = list(theirs.values()) if isinstance(theirs, Mapping) else [theirs]
    values = f"{known.describe(list(ours.values()))} against {known.describe(other)}"
    if effect.seeds < 2:
        return values
    gain, low, high = (known.describe_differences([x]) for x in (effect.gain, *effect.interval))
    word = "difference" if effect.goal == "equal" else "gain"
    return (
        f"{values}; {word} {gain}, 95 % from {low.split()[0]} to {high.split()[0]}; "
        f"power {effect.power:.2f} against {margin.said}, {effect.seeds} {of}"
    )


def sampling_error(metric: str, content: dict[str, Any], arm: str | None, mean: float) -> str:
    """How far a share moves with the choice of the examples it is measured on: the binomial standard error.

    At 0 or 1 it is that of a single error among them. Empty for what is no share of test examples.
    """
    known = known_metric(metric)
    setting = content["config"].get(arm, {}) if arm is not None else content["config"]
    count = known.examples(setting)
    if count is None:
        return ""
    within = min(max(mean, 1 / count), 1 - 1 / count)
    points = 100 * math.sqrt(within * (1 - within) / count)
    return f"±{points:.2f} points by the choice of {count:,} test examples"


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
        return Finding(NOT_RECORDED, f"`{name}`", condition)
    absent = [each for each in (arm, other) if each not in content.get("arms", [None])]
    if absent:
        missing = f"the arm “{absent[0]}”"
        return Finding(f"{missing} is missing", described(content), condition, missing=missing)
    ours = recorded_by_seed(content, metric, arm)
    theirs = recorded_by_seed(content, other_metric or metric, other)
    return found_in(content, metric, ours, theirs, relation, condition, arm=arm)


def reach(
    name: str,
    metric: str,
    arm: str | None,
    published: float,
    *,
    condition: str = "",
    relation: Relation = "no worse",
) -> Finding:
    """An arm beside a published value: by default, whether it is no worse."""
    content = best_record(name)
    if content is None:
        return Finding(NOT_RECORDED, f"`{name}`", condition)
    return found_in(content, metric, recorded_by_seed(content, metric, arm), published, relation, condition, arm=arm)


def found_in(
    content: dict[str, Any],
    metric: str,
    ours: Mapping[int, float],
    theirs: Mapping[int, float] | float,
    relation: Relation,
    condition: str = "",
    *,
    arm: str | None = None,
) -> Finding:
    """A finding from values of a record, by seed, held against others or against a number."""
    effect = compare_values(ours, theirs, metric, relation)
    share = sampling_error(metric, content, arm, sum(ours.values()) / len(ours))
    measured = describe_comparison(effect, ours, theirs, metric) + (f"; {share}" if share else "")
    return Finding(measured, described(content), condition, effect=effect)
