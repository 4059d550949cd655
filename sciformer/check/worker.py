"""The process that runs one submission: ``python -m sciformer.check.worker FOLDER``.

It is not trusted. It runs the submission's statements one by one, calls the answers, and leaves behind what they
returned, as plain tensors; the grader judges. ``FOLDER/job.json`` says what to do.
"""

import ast
import base64
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sciformer.check.assignment import UNREADABLE, check_in
from sciformer.check.exercise import Observation, Problem
from sciformer.check.grading import known_exercises
from sciformer.check.limits import TimeUp, limited

#: Lines that are IPython's: magic, help, or what a command of the shell prints.
_MAGIC = re.compile(r"[%!?]|[\w.]+\?\??\s*$|\w+ = [%!]")
#: Magic above a cell that is Python all the same.
_STILL_PYTHON = re.compile(r"%%(time|timeit|capture|prun)\b")


def main(folder: Path) -> None:
    """Run the job in a folder; say on the standard output, line by line, what is happening."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    exercises = known_exercises(folder / job["module"] if job["module"] else None)
    say = _own_stdout()
    say(ready=True)
    _limit_memory(job["memory"])

    scope: dict[str, Any] = {"__name__": "submission"}
    end = time.monotonic() + job["seconds"]
    found, unread = statements(job["cells"])
    for reason in unread:
        say(failed=reason)
    for number, statement in enumerate(found):
        if number in job["skip"] or check_in(statement, exercises):
            continue
        say(statement=number)
        try:
            # Half of what is left: whatever loops, something remains for the rest.
            limited(partial(_execute, statement, scope), (end - time.monotonic()) / 2)
        except TimeUp:
            say(failed=f"{_begin(statement)}: cut off, it took too long")
        except BaseException as error:
            say(failed=f"{_begin(statement)}: {type(error).__name__}: {str(error)[:200]}")
    for name, variable in job["exercises"].items():
        say(exercise=name)
        exercise = exercises[name]
        if variable in scope:
            seen = exercise.observe(scope[variable], exercise.draw(job["seed"]), job["seed"])
        else:
            seen = Observation(problem=Problem("missing", f"Nothing called {variable} is defined."))
        kept = io.BytesIO()
        torch.save({"outputs": seen.outputs, "problem": seen.problem and asdict(seen.problem)}, kept)
        say(seen=name, content=base64.b64encode(kept.getvalue()).decode())
    os._exit(0)  # whatever threads were left behind


def _own_stdout() -> Callable[..., None]:
    """A way to speak to the grader, after which whatever is printed goes nowhere."""
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    return lambda **entry: print(json.dumps(entry), file=channel)


def _execute(statement: ast.stmt, scope: dict[str, Any]) -> None:
    exec(compile(ast.Module([statement], []), f"<line {statement.lineno}>", "exec"), scope)


def statements(cells: list[str]) -> tuple[list[ast.stmt], list[str]]:
    """The top-level statements of all cells, and why there are none of some; IPython's magic is left out."""
    found: list[ast.stmt] = []
    unread: list[str] = []
    for number, cell in enumerate(cells, start=1):
        if cell.startswith("%%") and not _STILL_PYTHON.match(cell):
            continue
        lines = ["" if _MAGIC.match(line) else line for line in cell.splitlines()]
        try:
            found += ast.parse("\n".join(lines)).body
        except UNREADABLE as error:
            unread.append(f"cell {number}: {type(error).__name__}: {str(error)[:200]}")
    return found, unread


def _begin(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0][:60]


def _limit_memory(megabytes: int) -> None:
    """Limit the address space to what is in use now and so much more; only Linux can."""
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
