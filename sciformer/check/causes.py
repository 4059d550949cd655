"""Which mistake explains an answer's numbers: a written one, a generated one, or two of them at once."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Protocol

from sciformer.check.mutants import Mutant, mutants

#: How what is said of two mistakes at once begins.
TWO_MISTAKES = "The numbers are those of two mistakes together."
#: How what is said begins where several mistakes would do.
UNDECIDED = "The numbers do not decide between"

#: Processor time to spend on looking for two mistakes at once; single ones are all tried. The clock would make a busy
#: machine find less.
SEARCH_SECONDS = 3.0


class Fault:
    """One mistake: steps of the right answer, done wrong.

    Args:
        name: in a few words; no two faults of an exercise share it.
        says: the sentence that a student reads.
        see: section of the notebook to read again, where it is not the exercise's.
        reason: what a student reads in place of several faults that share it: one thing forgotten in two places.
        also: other steps with which the same mistake is made, and other numbers: more tries at random, for instance.
        steps: what stands in place of the right steps.
    """

    def __init__(
        self,
        name: str,
        says: str,
        *,
        see: str | None = None,
        reason: str | None = None,
        also: tuple[dict[str, Any], ...] = (),
        **steps: Any,
    ):
        self.name, self.says, self.see, self.reason, self.steps = name, says, see, reason, steps
        self.ways = (self, *(Fault(name, says, see=see, **other) for other in also))


@dataclass(frozen=True)
class Cause:
    """What explains an answer.

    Args:
        faults: names of the written mistakes in it.
        see: section of the notebook to read again, where it is not the exercise's.
    """

    kind: str
    says: str
    faults: tuple[str, ...] = ()
    see: str | None = None


Answer = Callable[..., Any]


@dataclass(frozen=True)
class Comparison:
    """How a wrong answer that we make is compared with the student's.

    Args:
        agrees: whether it gives the numbers of the student's, on every case.
        shows: whether every result that it gets wrong is wrong in the student's as well. Two mistakes that undo each
            other there explain an answer that has neither.
        alike: whether two that we make give the same numbers on further inputs, too: then they are one mistake.
        stops: whether it stops on the same case as the student's, which has stopped; never where that has not.
    """

    agrees: Callable[[Answer], bool]
    shows: Callable[[Answer], bool]
    alike: Callable[[Answer, Answer], bool]
    stops: Callable[[Answer], bool]


class Suspects(Protocol):
    """What is known about an exercise: its right answer and the mistakes that are written down."""

    reference: Callable[..., Any]
    faults: tuple[Fault, ...]

    def wrong_answer(self, *faults: Fault, of: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """The answer of somebody who makes these mistakes."""
        ...


def find_cause(exercise: Suspects, compared: Comparison, *, singly: bool) -> Cause | None:
    """The simplest mistake with the answer's numbers on every case.

    Args:
        singly: whether only single written mistakes are believed: almost anything explains a row of yes and no.
    """

    def those(faults: Iterable[Fault], fits: Callable[[Answer], bool]) -> list[Fault]:
        return [fault for fault in faults if any(fits(exercise.wrong_answer(way)) for way in fault.ways)]

    written = those(exercise.faults, compared.agrees)
    if len(written) > 1:
        written = those(written, compared.stops) or written
    if len(written) == 1 or (written and _share_a_reason(written)):
        return Cause("known mistake", _told(written), tuple(fault.name for fault in written), written[0].see)
    if written:
        return Cause("likely mistake", _undecided([fault.says for fault in written]), see=written[0].see)
    if singly:
        return None
    generated = mutants(exercise.reference)
    if found := _different([mutant for mutant in generated if compared.agrees(mutant.answer)], compared.alike):
        says = _slip(found[0].says) if len(found) == 1 else _undecided([mutant.says for mutant in found])
        return Cause("likely mistake", says)
    return _two_at_once(exercise, compared, generated)


def _different(found: list[Mutant], alike: Callable[[Answer, Answer], bool]) -> list[Mutant]:
    """Of the mutants that are one mistake, the one whose sentence says most: it quotes code, and is short."""
    kept: list[Mutant] = []
    for mutant in sorted(found, key=lambda mutant: ("`" not in mutant.says, len(mutant.says))):
        if not any(mutant.says == other.says or alike(mutant.answer, other.answer) for other in kept):
            kept.append(mutant)
    return kept


def _slip(says: str) -> str:
    """What is said of a slip: where nothing can be quoted, also what is known of it."""
    return says if "`" in says else f"The numbers are those of the right answer with one slip. {says}"


def _undecided(sentences: list[str]) -> str:
    """What is said where several mistakes give the same numbers on every case: two of them."""
    first, second, *others = sentences
    count = "two" if not others else f"{len(sentences)}"
    return f"{UNDECIDED} {count} mistakes. Perhaps: {first} Or: {second}"


def _two_at_once(exercise: Suspects, compared: Comparison, generated: tuple[Mutant, ...]) -> Cause | None:
    """Two written mistakes, or a written one with a generated one."""
    end = time.thread_time() + SEARCH_SECONDS
    two: list[tuple[Fault, Fault]] = []
    for first, second in _pairs(exercise.faults, generated):
        if time.thread_time() > end or (two and not isinstance(second, Fault)):
            break
        answer = (
            exercise.wrong_answer(first, second)
            if isinstance(second, Fault)
            else exercise.wrong_answer(first, of=second.answer)
        )
        alone = exercise.wrong_answer(second) if isinstance(second, Fault) else second.answer
        if not compared.agrees(answer):
            continue
        if not compared.shows(exercise.wrong_answer(first)) or not compared.shows(alone):
            continue
        if not isinstance(second, Fault):
            return Cause("likely mistake", _both(first.says, second.says), (first.name,), first.see)
        two.append((first, second))
    return _common(two)


def _share_a_reason(faults: Sequence[Fault]) -> bool:
    return faults[0].reason is not None and all(fault.reason == faults[0].reason for fault in faults)


def _told(faults: Sequence[Fault]) -> str:
    """What a student reads of mistakes that come together: one sentence where they have one reason."""
    if len(faults) == 1:
        return faults[0].says
    return faults[0].reason if faults[0].reason and _share_a_reason(faults) else _both(*(f.says for f in faults))


def _both(first: str, second: str) -> str:
    return f"{TWO_MISTAKES} {first} Also: {second}"


def _common(pairs: list[tuple[Fault, Fault]]) -> Cause | None:
    """Two mistakes, if only these two explain the answer; the one that is certain, if several others go with it."""
    pairs = [pair for pair in pairs if _share_a_reason(pair)] or pairs
    if len(pairs) == 1:
        one, two = pairs[0]
        return Cause("known mistake", _told(pairs[0]), (one.name, two.name), one.see)
    certain = [fault for fault in pairs[0] if all(fault in pair for pair in pairs)] if pairs else []
    if not certain:
        return None
    others = [fault for pair in pairs for fault in pair if fault is not certain[0]]
    other = f"The other one is one of these: {' '.join(one.says for one in others)}" if len(others) == 2 else ""
    says = f"{TWO_MISTAKES} {certain[0].says} {other or 'The checker is not certain of the other one.'}"
    return Cause("known mistake", says, (certain[0].name,), certain[0].see)


def _pairs(faults: tuple[Fault, ...], generated: tuple[Mutant, ...]) -> Iterator[tuple[Fault, Fault | Mutant]]:
    """Two written mistakes that change different steps, then a written one with a generated one."""
    for one, two in combinations(faults, 2):
        if not one.steps.keys() & two.steps.keys():
            yield one, two
    yield from product(faults, generated)
