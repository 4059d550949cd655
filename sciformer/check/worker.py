"""The process that runs one submission: ``python -m sciformer.check.worker``.

It is not trusted. It reads the job from its standard input, runs the submission's statements one by one, calls the
answers, and says what they did, as plain values; the grader judges, and keeps the time.
"""

import __future__

import ast
import json
import linecache
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from sciformer.check.assignment import UNREADABLE, check_in, parsed
from sciformer.check.exercise import Exercise, Observation, Problem
from sciformer.check.grading import known_exercises
from sciformer.check.limits import TimeUp, end_with_the_parent, limited
from sciformer.check.sandbox import PROCESSES, SPACE
from sciformer.check.wire import LINE, encode_observation

_FILE = "submission.py"


def main() -> None:
    """Do one job; say on the standard output, line by line, what is happening."""
    end_with_the_parent()
    known_exercises()  # imported before the clock starts
    say = _own_stdout()
    say(ready=True)
    job = json.loads(sys.stdin.buffer.readline())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    exercises = known_exercises(Path(job["module"]) if job["module"] else None)
    _limit(job["memory"], alone=job["sandboxed"])
    Exercise.use = lambda self, answer: answer  # type: ignore[method-assign]  # the student's own is what is graded

    module = sys.modules["submission"] = ModuleType("submission")
    program = Program(job["cells"])
    _run(program, vars(module), job, say, exercises)
    for name, variable in job["exercises"].items():
        say(exercise=name)
        exercise = exercises[name]
        if variable in vars(module):
            seen = exercise.observe(vars(module)[variable], exercise.draw(job["seed"]), job["seed"])
        else:
            seen = Observation(problem=Problem("missing", f"Nothing called {variable} is defined."))
        _tell(say, name, seen)
    os._exit(0)  # whatever threads were left behind


@dataclass
class Program:
    """The statements of all cells, as one file that tracebacks, ``inspect`` and TorchScript can read.

    Args:
        unread: why there are no statements of some cells.
    """

    cells: list[str]
    statements: list[ast.stmt] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, cell in enumerate(self.cells, start=1):
            text = cell
            try:
                text, tree = parsed(cell)
                self.statements += [ast.increment_lineno(statement, len(self.lines)) for statement in tree.body]
            except UNREADABLE as error:
                self.unread.append(f"cell {number}: {type(error).__name__}: {str(error)[:200]}")
            self.lines += text.splitlines()

    def flags(self) -> int:
        """Those of every ``from __future__ import …``, which hold for the whole program."""
        named = [s for s in self.statements if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
        features = [getattr(__future__, name.name, None) for statement in named for name in statement.names]
        return sum({feature.compiler_flag for feature in features if feature})


class _NoShell:
    """Stands in for IPython, whose magic does nothing here."""

    def __getattr__(self, name: str) -> Callable[..., list[str]]:
        return lambda *args, **options: []


def _run(
    program: Program,
    scope: dict[str, Any],
    job: dict[str, Any],
    say: Callable[..., None],
    exercises: dict[str, Exercise],
) -> None:
    """Run the statements, each for half of the time that is left: whatever loops, something remains for the rest."""
    scope |= {"__file__": _FILE, "get_ipython": _NoShell, "display": lambda *args, **options: None}
    linecache.cache[_FILE] = (0, None, [f"{line}\n" for line in program.lines], _FILE)
    end, flags = time.monotonic() + job["seconds"], program.flags()
    for reason in program.unread:
        say(failed=reason)
    for number, statement in enumerate(program.statements):
        if number in job["skip"] or check_in(statement, exercises):
            continue
        begin = program.lines[statement.lineno - 1].strip()[:60]
        say(statement=number, begin=begin)
        try:
            limited(partial(_execute, statement, scope, flags), (end - time.monotonic()) / 2)
        except TimeUp:
            say(failed=f"{begin}: cut off, it took too long")
        except BaseException as error:
            say(failed=f"{begin}: {type(error).__name__}: {_text(error)}")


def _execute(statement: ast.stmt, scope: dict[str, Any], flags: int) -> None:
    exec(compile(ast.Module([statement], []), _FILE, "exec", flags=flags, dont_inherit=True), scope)


def _text(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:  # of the student's own making
        return "(no message)"


def _tell(say: Callable[..., None], name: str, seen: Observation) -> None:
    """Say what an answer did; of one that returns too much, only this."""
    content = encode_observation(seen)
    if len(json.dumps(content)) > LINE - 1000:
        says = f"The answer returns far more numbers than are wanted, more than {LINE // 2**20} MB."
        content = encode_observation(Observation(problem=Problem("wrong type", says)))
    say(seen=name, **content)


def _own_stdout() -> Callable[..., None]:
    """A way to speak to the grader, after which whatever is printed goes nowhere."""
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    return lambda **entry: print(json.dumps(entry), file=channel)


def _limit(megabytes: int, *, alone: bool) -> None:
    """Limit the address space to what is in use now and so much more, and files; only Linux can.

    Args:
        alone: limit processes as well, which the system counts for the whole user, but in a sandbox for the sandbox.
    """
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        limit = pages * resource.getpagesize() + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_FSIZE, (SPACE * 2**20, SPACE * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if alone:
            resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))


if __name__ == "__main__":
    main()
