"""One change of the student's own program that makes it right: which line it is in, and what should stand there.

What is generated from the right answer to find a mistake is generated here from the wrong one to find a repair, as
programs are repaired automatically (Le Goues, Pradel & Roychoudhury 2019, "Automated program repair").
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from textwrap import fill, indent
from typing import Any

from torch import Tensor

from sciformer.check.mutants import UNREADABLE
from sciformer.check.programs import made, program_of, scope_of
from sciformer.check.repairs import EQUATION, compares, repairs

#: A line that is longer says too much at once.
LONGEST_LINE = 110
#: So many lines of which a change makes no use are quoted.
_QUOTED = 4
#: What follows a condition is not repaired by never doing it, unless the answer returns there.
_NO_REPAIR = ("if True", "if False", "elif True", "elif False")
_NO_BRANCH = "if False:"
#: A tensor without entries mends nothing, and given one as values torch 2.11's fused attention ends the whole process.
_EMPTY = re.compile(r"\.(repeat|expand|tile)\(([^()]*,)? *0 *[,)]")
#: A comparison that says True, in a way that nobody would write.
_ALWAYS = re.compile(r"(?<![\w.])(\w+) == \1\b")
#: A condition that only asks whether something is 0 or nothing.
_TRUTH = re.compile(r"^(el)?if (?!True|False)[\w.]+:$")
#: Two names are given at once; where they are exchanged, another line may be to blame.
_PAIR = re.compile(r"\w+(, \w+)+ = ")


@dataclass(frozen=True)
class Change:
    """A line of the student's, and what should stand there; nothing where the line, or its branch, is one too many.

    Args:
        old: the line; where the same has to be changed in several, all of them, one below the other.
        answer: the program with the change.
        where: of a line that should stand elsewhere: before or behind which other line or loop of the student's.
        is_stable: whether that is right for extreme inputs as well.
        part: what is exchanged in a line that would become too long to be shown, and for what.
        idle: the lines of the student's that the changed program does not need any more.
        copied: of a loop, what it should read from a copy made before it.
    """

    old: str
    new: str
    answer: Callable[..., Any]
    is_stable: bool = True
    where: tuple[str, str] | None = None
    part: tuple[str, str] | None = None
    idle: tuple[str, ...] = ()
    copied: str = ""

    def told(self) -> str:
        """The change, indented as a message is."""
        if self.copied:
            both = f"Your loop `{self.old}` writes into `{self.copied}` and reads from it again"
            later = "so later steps see what earlier ones have written"
            return "\n" + _filled(f"{both}, {later}. Keep a copy from before the loop, and read from that.")
        right = "it would be right" if self.is_stable else "it would be right, though not for very large numbers"
        if self.where:
            side, other = self.where
            part = "all that begins with your line" if self.old.endswith(":") else "your line"
            return f"\n  With one change {right}. Move {part}\n    {self.old}\n  {side}\n    {other}"
        if not self.new:
            part = "branch" if self.old.startswith("if ") else "line"
            return f"\n  Without this {part} of yours {right}:\n    {self.old}"
        lines = "lines" if "\n" in self.old else "line"
        old, new = (indent(text, "    ") for text in (self.old, self.new))
        how = f"In place of your {lines}\n{old}\n  write\n{new}"
        if self.part:
            one, other = self.part
            how = f"In your {lines}\n{old}\n  write ({other}) in place of {one}."
        if self.idle:
            more = len(self.idle) - _QUOTED
            which = ", ".join(f"`{line}`" for line in self.idle[:_QUOTED]) + (f" and {more} more" if more > 0 else "")
            says = f"lines {which} are" if len(self.idle) > 1 else f"line {which} is"
            how += "\n" + _filled(f"Then your {says} no longer needed.")
        return f"\n  With one change {right}. {how}"


def _filled(says: str) -> str:
    """A sentence in a message, indented as one."""
    return fill(says, 96, initial_indent="  ", subsequent_indent="  ")


def one_change(
    answer: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool], *, in_one_line: bool = False
) -> Change | None:
    """The one line to change, or None where no single small change helps.

    Args:
        is_right: whether a changed program is right on every input.
        in_one_line: None also where a change of another line would help as well, so that either may hold the mistake.
    """
    found: Change | None = None
    try:
        before = ast.unparse(program_of(answer)).splitlines()
        programs = repairs(answer)
    except UNREADABLE:
        return None  # no function or class with a source of its own
    for mutant in programs:
        changed = [
            lines for lines in zip_longest(before, mutant.text.splitlines(), fillvalue="") if lines[0] != lines[1]
        ]
        if not changed or max(len(line) for lines in changed for line in lines) > LONGEST_LINE:
            continue
        if len(changed) != 1 and (len(before) != mutant.text.count("\n") + 1 or in_one_line):
            continue
        old, new = ("\n".join(line.strip() for line in lines) for lines in zip(*changed, strict=True))
        if any(pattern.search(new) for pattern in (_EMPTY, _ALWAYS, _TRUTH)) or ("\n" in new and "pass" in new.split()):
            continue
        can_make_up = mutant.says.startswith(EQUATION) or _PAIR.match(old)  # for what is wrong in another line
        if (found and old == found.old) or (in_one_line and can_make_up):
            continue
        returns = new == _NO_BRANCH and before[before.index(changed[0][0]) + 1].lstrip().startswith("return")
        if (returns or not new.startswith(_NO_REPAIR)) and is_right(mutant.answer):
            if found:
                return None
            found = Change(old, "" if new in ("pass", _NO_BRANCH) else new, mutant.answer)
            if not in_one_line:
                break
    return found


def one_move(answer: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool]) -> Change | None:
    """The one line that should stand elsewhere, behind the next one, out of a loop or in it; None where none should."""
    try:
        program, scope = program_of(answer), scope_of(answer)
    except UNREADABLE:
        return None
    for text, statement, side, other in _moves(program):
        line, anchor = (ast.unparse(one).splitlines()[0] for one in (statement, other))
        if max(len(line), len(anchor)) > LONGEST_LINE:
            continue
        with suppress(Exception):
            candidate = made(text, answer.__name__, scope)
            if is_right(candidate):
                return Change(line, line, candidate, where=(side, anchor))
    return None


def _moves(program: ast.Module) -> Iterator[tuple[str, ast.stmt, str, ast.stmt]]:
    """Every text with one statement elsewhere: which, to what side, and of which other statement."""

    def text(*changed: tuple[list[ast.stmt], list[ast.stmt]]) -> str:
        before = [[*block] for block, _ in changed]
        for block, after in changed:
            block[:] = after
        try:
            return ast.unparse(program)
        finally:
            for (block, _), statements in zip(changed, before, strict=True):
                block[:] = statements

    with_lines = ast.FunctionDef | ast.For | ast.If | ast.With
    for block in [node.body for node in ast.walk(program) if isinstance(node, with_lines)]:
        for n, (one, two) in enumerate(pairwise(block)):
            side = "behind all that begins with" if hasattr(two, "body") else "behind your line"
            yield text((block, [*block[:n], two, one, *block[n + 2 :]])), one, side, two
        for n, loop in enumerate(block):
            if not isinstance(loop, ast.For):
                continue
            before, after, inner = block[:n], block[n + 1 :], loop.body
            for k, one in enumerate(inner if len(inner) > 1 else ()):
                left = inner, [*inner[:k], *inner[k + 1 :]]
                yield text(left, (block, [*before, one, loop, *after])), one, "out of the loop, before", loop
                yield text(left, (block, [*before, loop, one, *after])), one, "out of the loop, behind", loop
            if before:
                whole = block, [*before[:-1], loop, *after]
                yield text(whole, (inner, [before[-1], *inner])), before[-1], "into the loop, to its beginning:", loop
            if after:
                whole = block, [*before, loop, *after[1:]]
                yield text(whole, (inner, [*inner, after[0]])), after[0], "into the loop, to its end:", loop


def read_from_a_copy(answer: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool]) -> Change | None:
    """The loop that writes into what it reads, if it should read what was there before it; None where none should."""
    try:
        program, scope = program_of(answer), scope_of(answer)
    except UNREADABLE:
        return None
    for block, n, loop in _loops(program):
        line = ast.unparse(loop).splitlines()[0]
        written = [_base(target) for node in ast.walk(loop) for target in _places_written(node)]
        names = [node for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        for name in sorted({base.id for base in written}):
            read = [node for node in names if node.id == name and node not in written]
            if not read or len(line) > LONGEST_LINE:
                continue
            for node in read:
                node.id = _COPY
            block.insert(n, ast.parse(f"{_COPY} = {_COPIES}({name})").body[0])
            text = ast.unparse(program)
            del block[n]
            for node in read:
                node.id = name
            with suppress(Exception):
                candidate = made(text, answer.__name__, scope | {_COPIES: _copied})
                if is_right(candidate):
                    return Change(line, line, candidate, copied=name)
    return None


#: How a copy and the function that makes it are called in a changed program.
_COPY, _COPIES = "_before_the_loop", "_copy_of"


def _copied(values: Any) -> Any:
    """A tensor or a list, in which nothing is the same any more when something is written into the old one."""
    if isinstance(values, list | tuple):
        return type(values)(map(_copied, values))
    return values.clone() if isinstance(values, Tensor) else copy.copy(values)


def _loops(program: ast.Module) -> Iterator[tuple[list[ast.stmt], int, ast.For | ast.While]]:
    """Every loop, an outer one before those in it, with its place in its block."""
    for node in ast.walk(program):
        for block in (getattr(node, name, None) for name in ("body", "orelse")):
            if isinstance(block, list):
                yield from ((block, n, one) for n, one in enumerate(block) if isinstance(one, ast.For | ast.While))


def _places_written(node: ast.AST) -> list[ast.Subscript]:
    """What an assignment writes into at a place, as `x[i]` or `x[i][j]`, where x is a name."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    parts = [part for one in targets if one for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return [part for part in parts if isinstance(part, ast.Subscript) and isinstance(_base(part), ast.Name)]


def _base(node: ast.expr) -> Any:
    """What stands before all the brackets: the x of `x[i][j]`."""
    return _base(node.value) if isinstance(node, ast.Subscript) else node


def loop_that_ends_at_once(answer: Callable[..., Any]) -> str | None:
    """A sentence about a loop whose first pass is its last, whatever happens in it; None where there is none."""
    for loop in _parts(answer):
        if not isinstance(loop, ast.For) or not _leaves(loop.body) or _goes_on(loop):
            continue
        first = ast.unparse(loop).splitlines()[0]
        if len(first) > LONGEST_LINE:
            continue
        return f"Your loop `{first}` ends in its first pass: whatever happens there, a `return` or `break` follows."
    return None


def in_vain(answer: Callable[..., Any]) -> str | None:
    """A sentence about a comparison that notices little: no `assert` or `abs`, in a tuple, of any number, sorted."""
    results = _results_in(answer)
    for node in _parts(answer):
        match node:
            case ast.Assert(test) if wide := next(filter(_lets_small_ones_pass, ast.walk(test)), None):
                return (
                    f"Your comparison `{ast.unparse(wide)}` holds for every number that is too small, by however much. "
                    "Take the absolute value of the difference."
                )
            case ast.Call(ast.Attribute(sorted_one, "sort")) if _names_in(node) & results:
                return _SORTED
            case ast.Call(ast.Name("sorted"), [sorted_one]) if _names_in(sorted_one) & results:
                return _SORTED
            case ast.Expr(value) if compares(value) and len(line := ast.unparse(node)) <= LONGEST_LINE:
                return f"Your line `{line}` compares, and nothing is done with the result. Write `assert` before it."
            case ast.Assert(ast.Tuple([_, *_])):
                return (
                    "In one of your assertions brackets make a tuple of condition and text, and a tuple is always "
                    "true. Leave them out: `assert condition, text`."
                )
            case ast.Assert(ast.Call(ast.Attribute(_, "any") | ast.Name("any"))):
                return "One of your assertions ends with `any`, so a single right number is enough. Ask for `all`."
    return None


def _results_in(test: Callable[..., Any]) -> set[str]:
    """The version that a test is given, and the names of what that returns."""
    found: set[str] = set()
    for node in _parts(test):
        match node:
            case ast.FunctionDef(name, ast.arguments(args=[ast.arg(version), *_])) if name == test.__name__:
                found = {version}
            case ast.Assign([target], value) if found & _names_in(value) and not isinstance(value, ast.BinOp):
                found |= _names_in(target)
    return found


_SORTED = "Your test sorts the results, so right numbers in a wrong order pass. Compare them where they stand."


def _names_in(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _lets_small_ones_pass(node: ast.AST) -> bool:
    """Whether this compares a difference, with its sign, with a small number."""
    match node:
        case ast.Compare(left, [ast.Lt() | ast.LtE()], [ast.Name() | ast.Constant(float())]):
            differs = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) for part in ast.walk(left))
            return differs and not re.search(r"abs|square|pow|\*\*|norm|isclose", ast.unparse(left))
    return False


def drops_axes(answer: Callable[..., Any]) -> str | None:
    """A sentence about a step that drops every axis of size 1."""
    for node in _parts(answer):
        match node:
            case ast.Call(ast.Attribute(_, "squeeze"), [], []):
                dropped = f"Your `{ast.unparse(node)}` drops every axis of size 1, whatever it stands for."
                return f"{dropped} Name the axis that is to go."
    return None


def _parts(answer: Callable[..., Any]) -> Iterator[ast.AST]:
    """Every part of an answer's program; none where its source cannot be read."""
    try:
        program = program_of(answer)
    except (OSError, TypeError, SyntaxError):
        return
    yield from ast.walk(program)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a loop with this at its end has no second pass."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Break)


def _goes_on(loop: ast.For) -> bool:
    """Whether some pass can end before its last line without ending the loop."""
    return any(isinstance(node, ast.Continue) for node in ast.walk(loop))
