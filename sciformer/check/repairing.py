"""One change of the student's own program that makes it right: which line it is in, and what should stand there.

What is generated from the right answer to find a mistake is generated here from the wrong one to find a repair, as
programs are repaired automatically (Le Goues, Pradel & Roychoudhury 2019, "Automated program repair").
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from sciformer.check.mutants import UNREADABLE
from sciformer.check.programs import program_of
from sciformer.check.repairs import EQUATION, compares, repairs

#: A line that is longer says too much at once.
_LONGEST_LINE = 92
#: What follows a condition is not repaired by never doing it, unless the answer returns there.
_NO_REPAIR = ("if True", "if False", "elif True", "elif False")
_NO_BRANCH = "if False:"
#: A tensor without entries mends nothing, and given one as values torch 2.11's fused attention ends the whole process.
_EMPTY = re.compile(r"\.(repeat|expand|tile)\(([^()]*,)? *0 *[,)]")


@dataclass(frozen=True)
class Change:
    """A line of the student's, and what should stand there; nothing where the line, or its branch, is one too many.

    Args:
        answer: the program with the change.
        is_stable: whether that is right for extreme inputs as well.
    """

    old: str
    new: str
    answer: Callable[..., Any]
    is_stable: bool = True

    def told(self) -> str:
        """The change, indented as a message is."""
        right = "it would be right" if self.is_stable else "it would be right, though not for very large numbers"
        if not self.new:
            part = "branch" if self.old.startswith("if ") else "line"
            return f"\n  Without this {part} of yours {right}:\n    {self.old}"
        return f"\n  With one change {right}. In place of your line\n    {self.old}\n  write\n    {self.new}"


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
        if len(changed) != 1 or max(map(len, changed[0])) > _LONGEST_LINE:
            continue
        old, new = (line.strip() for line in changed[0])
        if _EMPTY.search(new):
            continue
        if (found and old == found.old) or (in_one_line and mutant.says.startswith(EQUATION)):
            continue  # an equation can make up for what is wrong in another line
        returns = new == _NO_BRANCH and before[before.index(changed[0][0]) + 1].lstrip().startswith("return")
        if (returns or not new.startswith(_NO_REPAIR)) and is_right(mutant.answer):
            if found:
                return None
            found = Change(old, "" if new in ("pass", _NO_BRANCH) else new, mutant.answer)
            if not in_one_line:
                break
    return found


def loop_that_ends_at_once(answer: Callable[..., Any]) -> str | None:
    """A sentence about a loop whose first pass is its last, whatever happens in it; None where there is none."""
    for loop in _parts(answer):
        if not isinstance(loop, ast.For) or not _leaves(loop.body) or _goes_on(loop):
            continue
        first = ast.unparse(loop).splitlines()[0]
        if len(first) > _LONGEST_LINE:
            continue
        return f"Your loop `{first}` ends in its first pass: whatever happens there, a `return` or `break` follows."
    return None


def in_vain(answer: Callable[..., Any]) -> str | None:
    """A sentence about a comparison that cannot fail, or hardly: without `assert`, in a tuple, or of any number."""
    for node in _parts(answer):
        match node:
            case ast.Expr(value) if compares(value) and len(line := ast.unparse(node)) <= _LONGEST_LINE:
                return f"Your line `{line}` compares, and nothing is done with the result. Write `assert` before it."
            case ast.Assert(ast.Tuple([_, *_])):
                return (
                    "In one of your assertions brackets make a tuple of condition and text, and a tuple is always "
                    "true. Leave them out: `assert condition, text`."
                )
            case ast.Assert(ast.Call(ast.Attribute(_, "any") | ast.Name("any"))):
                return "One of your assertions ends with `any`, so a single right number is enough. Ask for `all`."
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
