"""Where an answer goes wrong: the first of its lines whose numbers do not occur in the solution."""

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from sciformer.check.values import same

#: How many intermediate results are kept of one call; a loop may make very many.
KEPT = 400


def first_wrong_line(
    mine: Callable[[], Any], solution: Callable[[], Any], inputs: list[Any], is_own: Callable[[CodeType], bool]
) -> str | None:
    """A sentence about the student's lines, or None where nothing can be said.

    Args:
        mine: calls the student's answer.
        solution: calls the right one, on the same inputs.
        inputs: whose numbers stand in both and say nothing.
        is_own: whether code is the student's own.
    """
    given = [x for x in inputs if isinstance(x, Tensor)]
    right = [x for _, x in _results(solution, lambda code: "sciformer" in code.co_filename)]
    found = [(line, x) for line, x in _results(mine, is_own) if line and not any(_alike(x, y) for y in given)]
    known = [any(_alike(x, y) for y in right) for _, x in found]
    if True not in known:
        return None
    last = len(known) - 1 - known[::-1].index(True)
    wrong = next((line for line, _ in found[last + 1 :] if line != found[last][0]), None)
    if False in known[:last] or wrong is None:
        return None  # another way to the result, or everything right up to the end
    return f"Up to your line `{found[last][0]}` the numbers are right; those of `{wrong}` are not."


def _alike(one: Tensor, two: Tensor) -> bool:
    """The same numbers, in this shape, transposed, or laid out otherwise in the same order."""
    if one.numel() != two.numel() or one.numel() < 2 or one.is_floating_point() != two.is_floating_point():
        return False
    one, two = one.float(), two.float()
    if one.dim() >= 2 and one.mT.shape == two.shape and same(one.mT, two):
        return True
    return same(one.flatten(), two.flatten())


def _results(call: Callable[[], Any], is_own: Callable[[CodeType], bool]) -> list[tuple[str, Tensor]]:
    """Line and value of every tensor that the local names of some code get, and that it returns, in order."""
    found: list[tuple[str, Tensor]] = []
    with _tracing(found, is_own), suppress(Exception):  # what it made before it stopped is what we want to see
        call()
    return found


@contextmanager
def _tracing(found: list[tuple[str, Tensor]], is_own: Callable[[CodeType], bool]) -> Iterator[None]:
    seen: dict[tuple[int, str], Tensor] = {}
    lines: dict[int, int] = {}

    def keep(frame: FrameType, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and seen.get((id(frame), name)) is not value and len(found) < KEPT:
            seen[id(frame), name] = value  # held, so that no other tensor gets its identity
            line = linecache.getline(frame.f_code.co_filename, lines.get(id(frame), frame.f_lineno)).strip()
            found.append((line, value.detach().clone()))

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        for name, value in frame.f_locals.items():
            keep(frame, name, value)
        if event == "return":
            lines[id(frame)] = frame.f_lineno
            keep(frame, "return", argument)
        lines[id(frame)] = frame.f_lineno
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return local if is_own(frame.f_code) else None

    with _hooked(trace):
        yield


@contextmanager
def _hooked(trace: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Python calls ``trace`` at every new function, and afterwards whatever it called before: a debugger."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with torch.no_grad():
            yield
    finally:
        sys.settrace(before)


def line_that_changes(call: Callable[[], Any], tensor: Tensor, is_own: Callable[[CodeType], bool]) -> str | None:
    """The student's line that writes into a tensor; torch counts what is written into each."""
    found: list[str] = []
    before: list[tuple[str, int]] = []

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if before and not found and tensor._version != version:
            found.append(linecache.getline(*before[-1]).strip())
        before.append((frame.f_code.co_filename, frame.f_lineno))
        return local

    version = tensor._version
    with _hooked(lambda frame, event, argument: local if is_own(frame.f_code) else None), suppress(Exception):
        call()
    if before and not found and tensor._version != version:
        found.append(linecache.getline(*before[-1]).strip())
    return found[0] if found and found[0] else None
