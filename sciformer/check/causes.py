"""Which mistake explains an answer's numbers: a written one, a generated one, or two of them at once."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Protocol

from sciformer.check.mutants import Mutant, mutants

#: Processor time to spend on looking for two mistakes at once; single ones are all tried. The clock would make a busy
#: machine find less.
SEARCH_SECONDS = 3.0


class Fault:
    """One mistake: steps of the right answer, done wrong.

    Args:
        name: in a few words; no two faults of an exercise share it.
        says: the sentence that a student reads.
        see: section of the notebook to read again, where it is not the exercise's.
        steps: what stands in place of the right steps.
    """

    def __init__(self, name: str, says: str, *, see: str | None = None, **steps: Any):
        self.name, self.says, self.see, self.steps = name, says, see, steps


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


class Suspects(Protocol):
    """What is known about an exercise: its right answer and the mistakes that are written down."""

    reference: Callable[..., Any]
    faults: tuple[Fault, ...]

    def wrong_answer(self, *faults: Fault, of: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """The answer of somebody who makes these mistakes."""
        ...


def find_cause(
    exercise: Suspects,
    agrees: Callable[[Callable[..., Any]], bool],
    shows: Callable[[Callable[..., Any]], bool],
    *,
    singly: bool,
) -> Cause | None:
    """The simplest mistake with the answer's numbers on every case.

    Args:
        agrees: whether a wrong answer gives the numbers of the student's.
        shows: whether every result that a wrong answer gets wrong is wrong in the student's as well. Two mistakes that
            undo each other there explain an answer that has neither.
        singly: whether only single written mistakes are believed: almost anything explains a row of yes and no.
    """
    for fault in exercise.faults:
        if agrees(exercise.wrong_answer(fault)):
            return Cause("known mistake", fault.says, (fault.name,), fault.see)
    if singly:
        return None
    generated = mutants(exercise.reference)
    for mutant in generated:
        if agrees(mutant.answer):
            return Cause("likely mistake", mutant.says)
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
        if not agrees(answer) or not shows(exercise.wrong_answer(first)) or not shows(alone):
            continue
        if not isinstance(second, Fault):
            return Cause("likely mistake", _both(first.says, second.says), (first.name,), first.see)
        two.append((first, second))
    return _common(two)


def _both(first: str, second: str) -> str:
    return f"There are two mistakes. {first} Also: {second}"


def _common(pairs: list[tuple[Fault, Fault]]) -> Cause | None:
    """Two mistakes, if only these two explain the answer; the one that is certain, if several others go with it."""
    if len(pairs) == 1:
        one, two = pairs[0]
        return Cause("known mistake", _both(one.says, two.says), (one.name, two.name), one.see)
    certain = [fault for fault in pairs[0] if all(fault in pair for pair in pairs)] if pairs else []
    if not certain:
        return None
    others = [fault for pair in pairs for fault in pair if fault is not certain[0]]
    other = f"The other one is one of these: {' '.join(one.says for one in others)}" if len(others) == 2 else ""
    says = f"There are two mistakes. {certain[0].says} {other or 'The checker is not certain of the other one.'}"
    return Cause("known mistake", says, (certain[0].name,), certain[0].see)


def _pairs(faults: tuple[Fault, ...], generated: tuple[Mutant, ...]) -> Iterator[tuple[Fault, Fault | Mutant]]:
    """Two written mistakes that change different steps, then a written one with a generated one."""
    for one, two in combinations(faults, 2):
        if not one.steps.keys() & two.steps.keys():
            yield one, two
    yield from product(faults, generated)
