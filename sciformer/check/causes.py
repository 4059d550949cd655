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


def find_cause(exercise: Suspects, agrees: Callable[[Callable[..., Any]], bool], *, singly: bool) -> Cause | None:
    """The simplest mistake with the answer's numbers on every case.

    Args:
        agrees: whether a wrong answer gives the numbers of the student's.
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
    for pair in _pairs(exercise.faults, generated):
        if time.thread_time() > end:
            return None
        first, second = pair
        answer = (
            exercise.wrong_answer(first, second)
            if isinstance(second, Fault)
            else exercise.wrong_answer(first, of=second.answer)
        )
        if agrees(answer):
            names = tuple(one.name for one in pair if isinstance(one, Fault))
            kind = "known mistake" if len(names) == 2 else "likely mistake"
            return Cause(kind, f"There are two mistakes. {first.says} Also: {second.says}", names, first.see)
    return None


def _pairs(faults: tuple[Fault, ...], generated: tuple[Mutant, ...]) -> Iterator[tuple[Fault, Fault | Mutant]]:
    """Two written mistakes that change different steps, then a written one with a generated one."""
    for one, two in combinations(faults, 2):
        if not one.steps.keys() & two.steps.keys():
            yield one, two
    yield from product(faults, generated)
