"""The verdict does not depend on the seed: known mistakes stay apart from the right answer and from one another.

An answer is given the name of a mistake if it has that mistake's numbers on every case and no other mistake has them.
So it is enough to compute the numbers of all mistakes once for each seed, and 100 seeds take minutes, not hours.
"""

from itertools import combinations

import pytest

from sciformer.check import EXERCISES
from sciformer.check.exercise import WrongType
from sciformer.check.judging import judge
from sciformer.check.values import same
from sciformer.check.written_tests import Lack
from sciformer.exercises.ways import ways_of

NAMED = {"ids": lambda thing: getattr(thing, "name", None)}
SEEDS = [
    pytest.param(range(5), id="5 seeds"),
    pytest.param(range(100), id="100 seeds", marks=pytest.mark.seeds),
]


def numbers(exercise, answer, cases, seed):
    """The results of an answer of ours on every case, up to the one on which it stops, or is refused with a reason."""
    found = []
    for case in cases:
        try:
            found.append(exercise.numbers(answer, case, seed))
        except WrongType as refused:
            return [*found, str(refused)]
        except Exception:
            break
    return found


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_every_mistake_is_noticed_and_taken_for_no_other(exercise, seeds):
    for seed in seeds:
        cases = exercise.draw(seed)
        right = numbers(exercise, exercise.reference, cases, seed)
        assert len(right) == len(cases)
        wrong = {fault.name: numbers(exercise, exercise.wrong_answer(fault), cases, seed) for fault in exercise.faults}
        for name, found in wrong.items():
            assert not same(found, right[: len(found)]), (seed, name)
        seen = {fault.name for fault in exercise.faults if isinstance(fault, Lack)}  # in the inputs of a test
        for (one, first), (two, second) in combinations(wrong.items(), 2):
            assert {one, two} <= seen or not same(first, second), (seed, one, two)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("exercise", EXERCISES.values(), **NAMED)
def test_every_solution_has_the_right_numbers_and_gradients(exercise, seeds):
    for seed in seeds:
        cases = exercise.draw(seed)
        right = numbers(exercise, exercise.reference, cases, seed)
        for name, answer in ways_of(exercise).items():
            assert same(numbers(exercise, answer, cases, seed), right), (seed, name)
            if exercise.differentiable:
                seen = exercise.observe(answer, cases[-1:], seed)
                assert judge(exercise, cases[-1:], seen, seed).correct, (seed, name)
