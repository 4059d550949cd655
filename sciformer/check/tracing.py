"""Where an answer goes wrong: the line up to which its numbers are the solution's, and after which they are not.

A line counts as right only if its values are those of a step of the solution on every input, and a line is blamed only
if the result comes right once its value is replaced by one of the solution's, again on every input. Values that
coincide on one input prove nothing, and neither do lines that take another way to the result.
"""

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from sciformer.check.values import same

Inputs = dict[str, Any]
#: File and number of a line.
Place = tuple[str, int]

#: Intermediate results of one call; nothing is said of a loop that makes more.
KEPT = 400


@dataclass(frozen=True)
class _Value:
    """A tensor that a line of some code has made."""

    place: Place
    value: Tensor


@dataclass(frozen=True)
class _Trace:
    """What an answer did with one case.

    Args:
        steps: of the student's lines, without the values that stand in the inputs.
        numbers: of these steps among all values of the call.
        known: where each value stands among those of the solution, None where it does not.
        right: the values of the solution, each once.
        expected: the right result.
    """

    inputs: Inputs
    steps: list[_Value]
    numbers: list[int]
    known: list[int | None]
    right: list[Tensor]
    expected: Any

    @property
    def first(self) -> int:
        """The number of the first step that is unknown to the solution; of all steps where none is."""
        return next((n for n, known in enumerate(self.known) if known is None), len(self.steps))

    @property
    def blamed(self) -> Place:
        """The line of this step."""
        return self.steps[self.first].place


def first_wrong_line(
    run: Callable[[Inputs], Any],
    reference: Callable[[Inputs], Any],
    cases: list[Inputs],
    is_own: Callable[[CodeType], bool],
    *,
    plain_numbers: bool = True,
) -> str | None:
    """A sentence about the student's lines, or None where nothing is certain.

    Args:
        run: the student's answer as a function of a case's inputs; plain values.
        reference: the right one, likewise.
        cases: on which the two are compared; the more, the fewer coincidences.
        is_own: whether code is the student's own.
        plain_numbers: whether those in the blamed line are told, too, since nothing is known of them; otherwise such a
            line is not blamed.
    """
    if _is_yes_or_no(reference(cases[0])):
        return None  # a right yes or no may come from anywhere
    compared = [(inputs, reference(inputs), run(inputs)) for inputs in cases]
    wrong = [(inputs, expected) for inputs, expected, got in compared if not same(expected, got)]
    right = [(inputs, expected) for inputs, expected, got in compared if same(expected, got)]
    if not wrong:
        return None
    traces: list[_Trace] = []
    for inputs, expected in wrong:  # these first, since most answers are given up at one of them
        traces.append(trace := _traced(run, reference, inputs, expected, is_own))
        if trace.first == len(trace.steps) or trace.blamed != traces[0].blamed:
            return None
    blamed = traces[0].blamed
    before = [x.place for x in traces[0].steps[: traces[0].first] if x.place != blamed]
    if not before or not _in_order(traces) or not _text(blamed):
        return None
    for trace in (*traces, *(_traced(run, reference, *case, is_own) for case in right)):
        if any(known is None and x.place in before for known, x in zip(trace.known, trace.steps, strict=True)):
            return None
    replaced = [(trace, _comes_right(run, trace, trace.first, is_own)) for trace in traces]
    if not all(by for _, by in replaced):
        return None
    later = {place for trace, by in replaced for place in _as_well(run, trace, by, is_own)}
    if len(later) > 1:
        return None
    lines = [f"`{_text(place)}`" for place in (blamed, *later)]
    blame = f"your line {lines[0]}" if len(lines) == 1 else f"one of your lines {lines[0]} and {lines[1]}"
    names = _plain_numbers(blamed, {x.place for x in traces[0].steps})
    if names and not plain_numbers:
        return None  # one of them may be what is wrong
    plain = " and ".join(f"`{name}`" for name in names)
    what, more = ("tensors", f" Look at {plain}, too, which this line uses.") if plain else ("numbers", "")
    return f"Up to your line `{_text(before[-1])}` the {what} are right; {blame} makes them wrong.{more}"


def _traced(
    run: Callable[[Inputs], Any],
    reference: Callable[[Inputs], Any],
    inputs: Inputs,
    expected: Any,
    is_own: Callable[[CodeType], bool],
) -> _Trace:
    given = [x for x in inputs.values() if isinstance(x, Tensor)]
    right: list[Tensor] = []
    for x in _results(lambda: reference(inputs), lambda code: "sciformer" in code.co_filename):
        if _where(x.value, right) is None:
            right.append(x.value)
    found = list(enumerate(_results(lambda: run(inputs), is_own)))
    kept = [(n, x) for n, x in found if _where(x.value, given) is None]
    known = [_where(x.value, right) for _, x in kept]
    return _Trace(inputs, [x for _, x in kept], [n for n, _ in kept], known, right, expected)


def _where(value: Tensor, among: list[Tensor]) -> int | None:
    return next((n for n, x in enumerate(among) if x.numel() == value.numel() and _alike(value, x)), None)


def _alike(one: Tensor, two: Tensor) -> bool:
    """The same values in the same shape, but for axes of size 1."""
    return same(one.squeeze(), two.squeeze())


def _is_yes_or_no(result: Any) -> bool:
    return isinstance(result, bool) or (isinstance(result, list) and any(isinstance(x, bool) for x in result))


def _in_order(wrong: list[_Trace]) -> bool:
    """Whether right values come in the solution's order, each once: a value in another one's place is no right one."""
    further: dict[tuple[Place, Place], bool] = {}
    for trace in wrong:
        for (one, a), (two, b) in pairwise(list(zip(trace.steps, trace.known, strict=True))[: trace.first]):
            if a is None or b is None or a > b:
                return False
            lines = one.place, two.place
            further[lines] = further.get(lines, False) or a < b
    return all(further.values())


def _comes_right(
    run: Callable[[Inputs], Any], trace: _Trace, n: int, is_own: Callable[[CodeType], bool]
) -> list[Tensor]:
    """The values of the solution that make the result right, in place of this one."""
    value = trace.steps[n].value
    found = []
    for x in trace.right:
        if x.squeeze().shape != value.squeeze().shape or x.dtype != value.dtype:
            continue
        results: list[Any] = []
        replacement = trace.numbers[n], x.reshape(value.shape)
        _results(lambda: results.append(run(trace.inputs)), is_own, replacement)  # noqa: B023
        if results and same(results[0], trace.expected):
            found.append(x)
    return found


def _as_well(
    run: Callable[[Inputs], Any], trace: _Trace, by: list[Tensor], is_own: Callable[[CodeType], bool]
) -> set[Place]:
    """Later lines that come right by the same values: the first may only make what they are to be made of.

    Exponentials that are divided by a wrong sum, for instance, are right up to a factor. The right weights in their
    place stay what they are in the line that divides, and so does the result.
    """
    places, first = set(), trace.steps[trace.first]
    for later, step in enumerate(trace.steps):
        if later > trace.first and step.place != first.place and not _alike(step.value, first.value):
            right = _comes_right(run, trace, later, is_own)
            if all(any(_alike(x, y) for y in right) for x in by):
                places.add(step.place)
    return places


def _plain_numbers(blamed: Place, tensors: set[Place]) -> list[str]:
    """The names in a line that earlier lines gave to plain numbers, of which nothing is known.

    Args:
        tensors: lines that made tensors.
    """
    file, line = blamed
    try:
        program = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # a cell with a command of IPython's
        return []
    around = [n for n in ast.walk(program) if isinstance(n, ast.FunctionDef) and n.lineno < line <= (n.end_lineno or 0)]
    inner = max(around, key=lambda function: function.lineno, default=program)
    given, used = set(), []
    for node in ast.walk(inner):
        if isinstance(node, ast.Assign) and node.lineno < line and (file, node.lineno) not in tensors:
            # a size that is read off an input is what it is
            if not ast.unparse(node.value).endswith((".shape", ".size()")):
                given |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno == line:
            used.append(node.id)
    return [name for name in dict.fromkeys(used) if name in given]


def _text(place: Place) -> str:
    return linecache.getline(*place).strip()


def _results(
    call: Callable[[], Any], is_own: Callable[[CodeType], bool], replacement: tuple[int, Tensor] | None = None
) -> list[_Value]:
    """Line and value of every tensor that the local names of some code get, and that it returns, in order.

    Args:
        replacement: the number of one of these values, and what to write into it.
    """
    found: list[_Value] = []
    with _tracing(found, is_own, replacement), suppress(Exception):  # what it made before it stopped is what we want
        call()
    if len(found) == KEPT:
        raise ValueError(f"more than {KEPT} intermediate results")
    return found


@contextmanager
def _tracing(
    found: list[_Value], is_own: Callable[[CodeType], bool], replacement: tuple[int, Tensor] | None
) -> Iterator[None]:
    seen: dict[int, tuple[Tensor, int]] = {}  # held, so that no other tensor gets its identity; how often written into
    lines: dict[int, int] = {}

    def keep(value: Any, place: Place | None) -> None:
        if not isinstance(value, Tensor) or seen.get(id(value), (None, -1))[1] == value._version:
            return
        if place is not None and len(found) < KEPT:
            if replacement and replacement[0] == len(found):
                value.copy_(replacement[1])
            found.append(_Value(place, value.detach().clone()))
        seen[id(value)] = value, value._version

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        for value in (*frame.f_locals.values(), argument if event == "return" else None):
            keep(value, (frame.f_code.co_filename, lines[id(frame)]))
        lines[id(frame)] = frame.f_lineno
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not is_own(frame.f_code):
            return None
        caller = frame.f_back
        made_by = (caller.f_code.co_filename, caller.f_lineno) if caller and is_own(caller.f_code) else None
        for value in frame.f_locals.values():
            keep(value, made_by)
        lines[id(frame)] = frame.f_lineno
        return local

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
