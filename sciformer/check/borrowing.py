"""An expression of a right answer in place of one of a wrong answer: the line that the student could have written.

Right answers compute the same values on their way, under other names. Where a line of the student's knows all the
values that an expression of a right answer is made of, that expression can be written in the student's names. If the
program is right with it, the mistake stood in its place. Programs have been repaired in this way from those of other
students (Wang, Singh & Su 2018, "Search, align, and repair"; Gulwani, Radiček & Zuleger 2018, "Automated clustering and
program repair for introductory programming assignments").
"""

import ast
import builtins
import copy
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor

from sciformer.check.mutants import MOST_PLACES, UNREADABLE
from sciformer.check.programs import made, program_of, scope_of, text_with
from sciformer.check.repairing import LONGEST_LINE, Change
from sciformer.check.values import same

#: The names and values that a line knows.
Names = dict[str, Any]
Watch = Callable[[Callable[..., Any]], object]

#: Processor time to spend on one answer.
SEARCH_SECONDS = 3.0
#: So many words and signs may differ between an expression and what stands in its place; more only in a long program,
#: so that what is offered is a change and not the whole answer.
_FEW, _SHARE, _MOST = 16, 4, 30
#: As much as so many more words counts what leaves another line of the student's without use.
_UNUSED = 8
#: So often a line of a loop is looked at, in each call.
_VISITS = 3
#: So many definitions are put into one another.
_DEPTH = 5
#: Calls that do more than give a value.
_ACTS = {
    "append",
    "backward",
    "extend",
    "insert",
    "manual_seed",
    "next",
    "pop",
    "print",
    "remove",
    "set",
    "super",
}


@dataclass
class _Line:
    """A line of a program, and what it knew whenever it was reached.

    Args:
        function: in which it stands.
        known: for each call of the program, the names of every visit.
    """

    statement: ast.stmt
    function: ast.FunctionDef
    known: list[list[Names]] = field(default_factory=list)

    @property
    def value(self) -> ast.expr | None:
        """What the line computes; None where that is nothing that could be said elsewhere."""
        match self.statement:
            case ast.For(_, value) | ast.If(value) | ast.While(value):
                return value
            case ast.Assign(_, value) | ast.AugAssign(_, _, value) | ast.Expr(value) | ast.Return(value):
                return value
        return None

    @property
    def visits(self) -> list[Names]:
        return [names for call in self.known for names in call]


@dataclass(frozen=True)
class _Part:
    """An expression in a program, and where it stands there."""

    node: ast.expr
    parent: ast.AST
    name: str
    index: int | None


class _Program:
    """An answer with a line for each statement, watched at work."""

    def __init__(self, answer: Callable[..., Any], file: str, calls: Sequence[Watch]):
        self.text = ast.unparse(program_of(answer))
        self.tree, self.file, self.name = ast.parse(self.text), file, answer.__name__
        self.scope = dict(scope_of(answer))
        exec(compile(self.tree, file, "exec"), self.scope)
        self.lines = {statement.lineno: _Line(statement, function) for statement, function in _statements(self.tree)}
        self._kinds: dict[tuple[int, str], str | None] = {}
        self._values: dict[tuple[int, str], list[list[Any]]] = {}
        for call in calls:
            self._watch(call)

    def _watch(self, call: Watch) -> None:
        for line in self.lines.values():
            line.known.append([])

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            line = self.lines.get(frame.f_lineno)
            if event == "line" and line and len(line.known[-1]) < _VISITS:
                line.known[-1].append({name: _kept(value) for name, value in frame.f_locals.items()})
            return local

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            own = frame.f_code.co_filename == self.file and not frame.f_code.co_name.startswith("<")
            return local if own else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with suppress(Exception):  # what it knew before it stopped is what we want
                call(self.scope[self.name])
        finally:
            sys.settrace(before)

    def kind(self, number: int, node: ast.expr) -> str | None:
        """What sort of value an expression has at a line; None where it has none, or one number everywhere."""
        key = number, ast.unparse(node)
        if key not in self._kinds:
            self._kinds[key] = None
            visits = self.lines[number].visits
            with suppress(Exception):
                values = self._evaluated(node, [visits[0], visits[-1]])
                self._kinds[key] = (
                    None if all(map(_is_level, values)) or isinstance(values[0], ModuleType) else _kind(values[0])
                )
        return self._kinds[key]

    def values(self, number: int, node: ast.expr) -> list[list[Any]]:
        """What an expression is at every visit of a line, for each call; nothing where it cannot be said."""
        key = number, ast.unparse(node)
        if key not in self._values:
            self._values[key] = []
            with suppress(Exception):
                self._values[key] = [self._evaluated(node, call) for call in self.lines[number].known]
        return self._values[key]

    def _evaluated(self, node: ast.expr, visits: list[Names]) -> list[Any]:
        code = compile(ast.fix_missing_locations(ast.Expression(copy.deepcopy(node))), "<a part>", "eval")
        with torch.no_grad():
            return [eval(code, self.scope | names) for names in visits]


def borrowed(
    answer: Callable[..., Any],
    ways: Iterable[Callable[..., Any]],
    calls: Sequence[Watch],
    is_right: Callable[[Callable[..., Any]], bool],
) -> Change | None:
    """The least change of one line that makes a wrong answer right, with an expression of a right one.

    Args:
        ways: right answers, each written in another way.
        calls: each calls an answer, with inputs of its own.
        is_right: whether a changed program is right on every input.
    """
    end = time.process_time() + SEARCH_SECONDS
    try:
        own = _Program(answer, "<borrowing>", calls)
    except UNREADABLE:
        return None
    others = [_Program(way, f"<way {n}>", calls) for n, way in enumerate(ways)]
    before, tried, found = own.text.splitlines(), {own.text}, None
    for _, parts, expression in sorted(_exchanges(own, others), key=lambda exchange: exchange[0]):
        if time.process_time() > end:
            break
        text = text_with(own.tree, [(part.parent, part.name, part.index, expression) for part in parts])
        after = text.splitlines()
        changed = [n for n, line in enumerate(before) if n < len(after) and line != after[n]]
        if text in tried or len(after) != len(before) or max(len(before[n].strip()) for n in changed) > LONGEST_LINE:
            continue
        tried.add(text)
        with suppress(Exception):
            candidate = made(text, own.name, own.scope)
            if not is_right(candidate):
                continue
            old, new = ("\n".join(lines[n].strip() for n in changed) for lines in (before, after))
            is_long = max(map(len, new.splitlines())) > LONGEST_LINE
            part = (ast.unparse(parts[0].node), ast.unparse(expression)) if is_long else None
            change = Change(old, new, candidate, part=part, idle=_idle(text, own, is_right))
            if not change.idle:
                return change
            found = found or change
    return found


def _idle(text: str, own: _Program, is_right: Callable[[Callable[..., Any]], bool]) -> tuple[str, ...]:
    """The lines that a right program does not need, those in a loop or under a condition included."""
    tree, found = ast.parse(text), list[str]()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for statement in function.body[:-1][::-1]:
            whole = function.body[:]
            function.body.remove(statement)
            with suppress(Exception):
                if is_right(made(ast.unparse(tree), own.name, own.scope)):
                    found[:0] = map(str.strip, ast.unparse(statement).splitlines())
                    continue
            function.body[:] = whole
    return tuple(found)


def _exchanges(own: _Program, others: list[_Program]) -> Iterator[tuple[tuple[int, int], list[_Part], ast.expr]]:
    """Parts of a program, each with an expression of a right answer to stand there, and how much the two differ.

    A part that is written several times is exchanged alone, and everywhere at once.
    """
    most = min(max(_FEW, _words(own.text).total() // _SHARE), _MOST)
    uses = Counter(node.id for node in ast.walk(own.tree) if isinstance(node, ast.Name) and _is_value(node))
    alike: dict[str, list[_Part]] = {}
    for line in own.lines.values():
        for part in _parts(line.statement, line.value):
            alike.setdefault(ast.unparse(part.node), []).append(part)
    for number, line in own.lines.items():
        if not line.visits:
            continue
        offers = _offers(own, others, number)
        for part in _parts(line.statement, line.value):
            text, kind = ast.unparse(part.node), own.kind(number, part.node)
            words, is_whole = _words(text), part.node is line.value
            here = Counter(node.id for node in ast.walk(part.node) if isinstance(node, ast.Name))
            last = {name for name, count in here.items() if count == uses[name]} & {*line.visits[0]}
            for other_text, (expression, other_kind, theirs) in offers.items():
                differ = (words - theirs).total() + (theirs - words).total()
                fits = kind == other_kind or (kind is None and isinstance(part.node, ast.Call)) or is_whole
                if _is_number(part.node) and not isinstance(expression, ast.Name):
                    continue  # many a term could stand for a number
                is_test = part.node is getattr(part.parent, "test", None)
                if is_test and not isinstance(expression, ast.Compare | ast.BoolOp | ast.UnaryOp):
                    continue  # whatever is no 0 counts as true
                if text != other_text and fits and differ <= most:
                    unused = len(last.difference(_names(expression)))
                    yield (differ + _UNUSED * unused, theirs.total()), [part], expression
                    if 1 < (times := len(alike[text])) <= MOST_PLACES and not _is_number(part.node):
                        yield (differ * times, theirs.total()), alike[text], expression


def _offers(own: _Program, others: list[_Program], number: int) -> dict[str, tuple[ast.expr, str, Counter[str]]]:
    """What right answers compute, in our names at a line: each expression with its kind and words, by its text."""
    found: dict[str, tuple[ast.expr, str, Counter[str]]] = {}
    for other in others:
        speaker = _Speaker(other, own, number)
        for there, line in other.lines.items():
            for part in _parts(line.statement, line.value) if line.visits else ():
                # A number says nothing about where it belongs, and one that is everywhere the same hardly more.
                is_plain = isinstance(part.node, ast.Tuple | ast.List | ast.Dict) or not _names(part.node)
                kind = None if is_plain else other.kind(there, part.node)
                said = None if kind is None else speaker.said(part.node, there)
                if kind and said and len(text := ast.unparse(said)) <= LONGEST_LINE:
                    found.setdefault(text, (said, kind, _words(text)))
    return found


@dataclass(frozen=True)
class _Speaker:
    """Says what stands in a right answer in the names of another program."""

    other: _Program
    own: _Program
    number: int

    def said(self, node: ast.expr, there: int, depth: int = 0) -> ast.expr | None:
        """An expression at a line of the right answer, at our line; None where that cannot be."""
        with suppress(_UnsayableError):
            return _Said(self, node, there, depth).visit(copy.deepcopy(node))
        return None

    def name(self, name: str, there: int, depth: int) -> ast.expr:
        """What a name of the right answer is called here: ours for the same values, or what it stands for.

        Raises:
            _UnsayableError: where it is nothing that is known here.
        """
        line = self.other.lines[there]
        if any(name in names for names in line.visits):
            own = self._own_name([[names.get(name) for names in call] for call in line.known], name)
            value = ast.Name(own, ast.Load()) if own else self._definition(name, there, depth)
            if value is None:
                raise _UnsayableError
            return value
        if self.own.scope.get(name) is not self.other.scope.get(name) and not hasattr(builtins, name):
            raise _UnsayableError
        return ast.Name(name, ast.Load())

    def tensor(self, part: ast.expr, there: int) -> ast.Name | None:
        """Our name for a tensor that the right answer computes on its way."""
        values = self.other.values(there, part)
        if not values or not all(isinstance(x, Tensor) and x.numel() > 1 for call in values for x in call):
            return None
        own = self._own_name(values)
        return ast.Name(own, ast.Load()) if own else None

    def _own_name(self, theirs: list[list[Any]], name: str = "") -> str | None:
        """Our name for the values that something has in the calls that reach our line; the same name, if that has."""
        line = self.own.lines[self.number]
        reached = [(ours, _spread(values, len(ours))) for ours, values in zip(line.known, theirs, strict=True) if ours]
        if any(len(ours) != len(values) for ours, values in reached):
            return None
        for candidate in sorted(reached[0][0][0], key=lambda other: (other != name, other)):
            if name == candidate == "self" or all(
                _equal(names.get(candidate), value)
                for ours, values in reached
                for names, value in zip(ours, values, strict=True)
            ):
                return candidate
        return None

    def _definition(self, name: str, there: int, depth: int) -> ast.expr | None:
        """What a name stands for, if the right answer gives it once."""
        function = self.other.lines[there].function
        given = [
            (number, line.statement)
            for number, line in self.other.lines.items()
            if line.function is function and name in _given(line.statement)
        ]
        if len(given) != 1 or given[0][0] >= there or depth == _DEPTH:
            return None
        number, statement = given[0]
        match statement:
            case ast.Assign([ast.Name()], value):
                return self.said(value, number, depth + 1)
        return None


def _spread(values: list[Any], visits: int) -> list[Any]:
    """The values at every visit of another line, where they are the same throughout a call."""
    return values[:1] * visits if all(_equal(values[0], other) for other in values[1:]) else values


class _UnsayableError(Exception):
    """A part of a right answer has no words in the names of another program."""


class _Said(ast.NodeTransformer):
    """Turns an expression of a right answer into one in another program's names."""

    def __init__(self, speaker: _Speaker, whole: ast.expr, there: int, depth: int):
        self.speaker, self.there, self.depth = speaker, there, depth
        self.outer, self.is_whole = _names(whole), True

    def visit(self, node: ast.AST) -> Any:
        is_whole, self.is_whole = self.is_whole, False
        short = None
        if isinstance(node, ast.BinOp | ast.Call | ast.Subscript) and not is_whole and _is_value(node):
            short = self.speaker.tensor(node, self.there)
        return short or super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.outer or not isinstance(node.ctx, ast.Load):
            return node
        return self.speaker.name(node.id, self.there, self.depth)


def _statements(tree: ast.AST, function: ast.FunctionDef | None = None) -> Iterator[tuple[ast.stmt, ast.FunctionDef]]:
    """Every statement in a function, with the innermost one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield from _statements(node, node)
        elif isinstance(node, ast.stmt):
            if function and not isinstance(node, ast.ClassDef):
                yield node, function
            yield from _statements(node, function)


def _parts(statement: ast.stmt, value: ast.expr | None) -> Iterator[_Part]:
    """Every expression in what a line computes, but those that do more than that."""

    def inside(parent: ast.AST, name: str, child: Any) -> Iterator[_Part]:
        for index, node in enumerate(child) if isinstance(child, list) else [(None, child)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Lambda | ast.JoinedStr):
                continue
            is_function = isinstance(parent, ast.Call) and name == "func"
            if isinstance(node, ast.expr) and not is_function and _is_value(node):
                yield _Part(node, parent, name, index)
            if not (is_function and isinstance(node, ast.Name)):
                for field_name, grandchild in ast.iter_fields(node):
                    yield from inside(node, field_name, grandchild)

    if value is not None:
        name = next(name for name, child in ast.iter_fields(statement) if child is value)
        yield from inside(statement, name, value)


def _is_value(node: ast.expr) -> bool:
    """Whether an expression only gives a value: it neither prints, for instance, nor writes into a tensor."""
    if isinstance(node, ast.Starred | ast.Slice) or isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    names = [getattr(function, "attr", getattr(function, "id", "")) for function in calls]
    return not any(name in _ACTS or (name.endswith("_") and not name.endswith("__")) for name in names)


def _names(node: ast.AST) -> list[str]:
    """The names that an expression takes from around it, each once."""
    inner = {
        name.id
        for part in ast.walk(node)
        if isinstance(part, ast.comprehension)
        for name in ast.walk(part.target)
        if isinstance(name, ast.Name)
    }
    found = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    return [name for name in dict.fromkeys(found) if name not in inner]


def _given(statement: ast.stmt) -> set[str]:
    """The names that a statement gives values to."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return {name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)}


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", text))


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _kind(value: Any) -> str:
    """What sort of value could stand in the same place."""
    if isinstance(value, bool | int | float):
        return "number"
    return "row" if isinstance(value, tuple | list) else type(value).__name__


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def _is_level(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() > 1 and bool((value == value.flatten()[0]).all())


def _equal(one: Any, two: Any) -> bool:
    """Whether two names hold the same value, as far as that can be seen."""
    if isinstance(one, Tensor) or isinstance(two, Tensor):
        return same(one, two)
    if isinstance(one, tuple | list) and isinstance(two, tuple | list):
        return len(one) == len(two) and all(map(_equal, one, two))
    plain = (bool, int, float, str, type(None))
    return (type(one) is type(two) and bool(one == two)) if isinstance(one, plain) else one is two
