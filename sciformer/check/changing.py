"""The change of a student's own program that makes it right, and whether a program is right for extreme inputs, too."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sciformer.check.borrowing import borrowed
from sciformer.check.limits import PATIENCE, TimeUp, limited
from sciformer.check.observing import Case
from sciformer.check.repairing import Change, one_change, one_move, read_from_a_copy
from sciformer.check.values import same

if TYPE_CHECKING:
    from sciformer.check.exercise import Exercise

Inputs = dict[str, Any]
#: A changed program may work for so long: some changes make a loop that never ends.
_SECONDS = 0.5


def small_change(exercise: "Exercise", answer: Any, cases: list[Case], seed: int, *, known: bool) -> Change | None:
    """The one change of the student's own program that makes it right, if any: a copy that it should read, or a line.

    Args:
        known: whether the mistake has its name already, which a line that may be right must not contradict.
    """
    is_right = _rightness(exercise, cases, seed)
    change = None if known else exercise.safely(lambda: read_from_a_copy(answer, is_right))
    change = change or exercise.safely(lambda: one_change(answer, is_right, in_one_line=known))
    if change is None:
        return None
    return replace(change, is_stable=next(where_unstable(exercise, change.answer, cases, seed), None) is None)


def larger_change(exercise: "Exercise", answer: Any, cases: list[Case], seed: int, *, known: bool) -> Change | None:
    """The one line of the student's that should stand elsewhere, or that an expression of a right answer mends.

    Args:
        known: whether the mistake has its name already; then a line is only moved.
    """
    compared = _rightness(exercise, cases, seed)

    def is_right(candidate: Any) -> bool:
        if not compared(candidate) or next(where_unstable(exercise, candidate, cases, seed), None):
            return False
        return exercise.judge(cases, exercise.observe(candidate, cases, seed), seed).correct

    moved = exercise.safely(lambda: one_move(answer, is_right))
    if moved or known:
        return moved
    few = [cases[0], *cases[1:][-2:]]
    calls = [partial(_numbers_of, exercise, case, seed) for case in few]
    return exercise.safely(lambda: borrowed(answer, exercise.ways().values(), calls, is_right))


def stable_change(exercise: "Exercise", answer: Any, cases: list[Case], seed: int) -> Change | None:
    """The one change of the student's own program that makes it right for extreme inputs as well, if any."""
    wanted = [(x, exercise.plainly(exercise.reference, x, seed=seed)) for _, _, _, x in extremes(exercise, cases)]
    compared = [(x, right) for x, right in wanted if is_finite(right)]
    is_right = _rightness(exercise, cases, seed)

    def is_stable(candidate: Any) -> bool:
        try:
            got = ((exercise.plainly(candidate, x, seed=seed), right) for x, right in compared)
            return is_right(candidate) and all(is_finite(mine) and not far(mine, right) for mine, right in got)
        except Exception:
            return False

    return exercise.safely(lambda: one_change(answer, is_stable))


def where_unstable(
    exercise: "Exercise", answer: Any, cases: list[Case], seed: int
) -> Iterator[tuple[Case, str, Inputs, Any, Any]]:
    """Extreme inputs for which an answer is wrong: the case, the condition in words, inputs, right result and got."""
    for case, names, times, inputs in extremes(exercise, cases):
        wanted = exercise.plainly(exercise.reference, inputs, seed=seed)
        got = exercise.safely(partial(exercise.plainly, answer, inputs, seed=seed))
        if is_finite(wanted) and (not is_finite(got) or far(got, wanted)):
            yield case, f"With `{'` and `'.join(names)}` {times}", inputs, wanted, got


def extremes(exercise: "Exercise", cases: list[Case]) -> Iterator[tuple[Case, tuple[str, ...], str, Inputs]]:
    """Inputs of the cases made very large or very small: of which, which ones, by how much in words, and all of them.

    Scores far below 0 are as large as those far above it, so inputs that have both signs are turned round as well.
    """
    large, small = exercise.large, exercise.small
    for case in cases:
        for factor in (exercise.times, -exercise.times) if large else ():
            if factor > 0 or any(bool((case.inputs[name] < 0).any()) for name in large):
                times = f"{factor} times as large".replace("-", "−")
                yield case, large, times, case.inputs | {name: factor * case.inputs[name] for name in large}
        if small:
            shrunken = {name: 0.001 * case.inputs[name] for name in small}
            yield case, small, "1000 times as small", case.inputs | shrunken


def far(got: Any, wanted: Any) -> bool:
    """Whether a result is wrong by more than rounding can do to large numbers."""
    both_tensors = isinstance(got, Tensor) and isinstance(wanted, Tensor) and got.shape == wanted.shape
    return both_tensors and bool(((got.double() - wanted.double()).abs() > 0.1 * (1 + wanted.double().abs())).any())


def is_finite(result: Any) -> bool:
    """Whether a result has numbers, and neither NaN nor ∞ among them."""
    parts = result if isinstance(result, list) else [result]
    tensors = [x for x in parts if isinstance(x, Tensor)]
    return all(x.numel() and bool(torch.isfinite(x.double()).all()) for x in tensors)


def _numbers_of(exercise: "Exercise", case: Case, seed: int, one: Callable[..., Any]) -> Any:
    return exercise.numbers(one, case, seed)


def _rightness(exercise: "Exercise", cases: list[Case], seed: int) -> Callable[[Any], bool]:
    """A function that says whether a program is right, on these cases and on inputs of other seeds."""
    compared = [(case, exercise.numbers(exercise.reference, case, seed)) for case in cases]

    def compare(candidate: Any) -> bool:
        try:
            for n, (case, right) in enumerate(compared):
                if not same(exercise.numbers(candidate, case, seed), right):
                    compared.insert(0, compared.pop(n))  # the next candidate is likely to be wrong there, too
                    return False
            return all(
                same(exercise.numbers(candidate, case, seed), exercise.numbers(exercise.reference, case, seed))
                for n in range(1, 4)
                for case in exercise.draw(seed + n)  # only for a candidate that is right so far
            )
        except Exception:
            return False

    def is_right(candidate: Any) -> bool:
        try:
            return limited(partial(compare, candidate), _SECONDS, PATIENCE)
        except TimeUp:  # a loop over a list that it lengthens, for instance
            return False

    return is_right
