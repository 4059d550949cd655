"""Grade submitted notebooks and programs.

Each submission runs in a process of its own, with a copy of the package of its own, and can only return numbers. The
inputs are drawn and the numbers judged here, so that nothing a submission does to the checker changes a grade. It is a
guard against accidents and mischief, not a sandbox: to run code that may attack the machine, use a container as well.
"""

import base64
import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from sciformer.check import EXERCISES
from sciformer.check.assignment import checked, read_notebook, source
from sciformer.check.exercise import Exercise, Observation, Problem
from sciformer.data.files import written_whole
from sciformer.functional import InputError

_PACKAGE = Path(__file__).parents[1]
_WELL = "exit status 0"
_STARTS = 10  # how often a submission that ends its process is started


@dataclass(frozen=True)
class Result:
    """One exercise of one submission."""

    exercise: str
    points: int
    out_of: int
    kind: str
    says: str
    message: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Grade:
    """One submission.

    Args:
        notes: what went wrong outside the exercises.
    """

    file: str
    results: tuple[Result, ...]
    notes: tuple[str, ...]

    @property
    def points(self) -> int:
        """Points reached."""
        return sum(result.points for result in self.results)

    @property
    def out_of(self) -> int:
        """Points that could be reached."""
        return sum(result.out_of for result in self.results)


@dataclass(frozen=True)
class _Submission:
    file: str
    cells: list[str]
    announced: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def known_exercises(module: Path | None = None) -> dict[str, Exercise]:
    """The course's exercises, and those of a module of one's own.

    Raises:
        ValueError: if the module cannot be imported or has no exercise.
    """
    if module is None:
        return EXERCISES
    spec = importlib.util.spec_from_file_location(module.stem, module)
    if spec is None or spec.loader is None or not module.is_file():
        raise InputError(f"{module} is no Python file")
    loaded = sys.modules[module.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
    except Exception as error:
        raise InputError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    own = {thing.name: thing for thing in vars(loaded).values() if isinstance(thing, Exercise)}
    if not own:
        raise InputError(f"{module} has no Exercise")
    return EXERCISES | own


def grade(
    files: Sequence[Path], seed: int, *, module: Path | None = None, seconds: float = 120.0, memory: int = 4096
) -> list[Grade]:
    """Grade submissions, notebooks or .py files, on the same inputs.

    The exercises are those that any of the files checks, defines by name or was handed out with; a submission
    without one gets no points for it.

    Args:
        seed: of the inputs.
        module: a file with exercises of one's own.
        seconds: for the statements of one submission; each answer has its exercise's own few seconds besides.
        memory: MB that a submission may use beside the libraries; only Linux can limit it.

    Raises:
        ValueError: if no file has an exercise, or the module cannot be used.
        ChildProcessError: if the process that runs submissions does not start.
    """
    exercises = known_exercises(module)
    # Everything is in memory before the first submission runs, so that none can change another, or the package.
    submissions = [_read(path) for path in files]
    package = {Path("sciformer") / p.relative_to(_PACKAGE): p.read_bytes() for p in _PACKAGE.rglob("*") if p.is_file()}
    if module:
        package[Path(module.name)] = module.read_bytes()
    variables = [_variables(submission, exercises) for submission in submissions]
    wanted = set().union(*variables, *(submission.announced for submission in submissions))
    names = [name for name in exercises if name in wanted]
    if not names:
        raise InputError(f"there is no exercise in {', '.join(map(str, files))}")
    limits = {"module": module and module.name, "seconds": seconds, "memory": memory, "seed": seed}
    _, ended = _start({"cells": [], "exercises": {}, "skip": [], **limits}, package)
    if ended != _WELL:
        raise ChildProcessError(f"the process that runs submissions does not start: {ended}")
    grades = []
    for submission, found in zip(tqdm(submissions, disable=None), variables, strict=True):
        answers = {name: found.get(name, name) for name in names}
        seen, notes = _run({"cells": submission.cells, "exercises": answers, **limits}, package)
        results = tuple(_result(exercises[name], seen[name], seed) for name in names)
        grades.append(Grade(submission.file, results, (*submission.notes, *notes)))
    return grades


def _read(path: Path) -> _Submission:
    try:
        if path.suffix != ".ipynb":
            return _Submission(str(path), [path.read_text(encoding="utf-8")])
        notebook = read_notebook(path)
    except (OSError, ValueError) as error:
        return _Submission(str(path), [], notes=(f"cannot be read: {error}",))
    cells = [source(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    mark = notebook["metadata"].get("sciformer")
    names = mark.get("exercises") if isinstance(mark, dict) else None
    return _Submission(str(path), cells, frozenset(map(str, names)) if isinstance(names, list) else frozenset())


def _variables(submission: _Submission, exercises: Mapping[str, Exercise]) -> dict[str, str]:
    """Each exercise that a submission checks or defines, and the variable that holds its answer."""
    program = "\n".join(submission.cells)
    found = {name: name for name in re.findall(r"^(?:def|class) (\w+)", program, flags=re.M) if name in exercises}
    for cell in submission.cells:
        found |= checked(cell, exercises)
    return found


def _run(job: dict[str, Any], package: dict[Path, bytes]) -> tuple[dict[str, Observation], list[str]]:
    """What a submission's answers do; after a statement or an answer that ends the process, it starts again without."""
    seen: dict[str, Observation] = {}
    notes: list[str] = []
    skip: list[int] = []
    for _ in range(_STARTS):
        left = {name: variable for name, variable in job["exercises"].items() if name not in seen}
        entries, ended = _start(job | {"exercises": left, "skip": skip}, package)
        notes = [str(entry["failed"]) for entry in entries if "failed" in entry]
        seen |= {entry["seen"]: _load(entry) for entry in entries if entry.get("seen") in left}
        if len(seen) == len(job["exercises"]):
            return seen, notes
        last = [entry for entry in entries if "statement" in entry or entry.get("exercise") in left][-1:]
        for entry in last:
            if "statement" in entry:
                skip.append(entry["statement"])
            else:
                says = f"The answer ended its process: {ended}."
                seen[entry["exercise"]] = Observation(problem=Problem("crashed", says))
    lost = Observation(problem=Problem("crashed", f"The submission ended its process {_STARTS} times: {ended}."))
    return {name: seen.get(name, lost) for name in job["exercises"]}, notes


def _start(job: dict[str, Any], package: dict[Path, bytes]) -> tuple[list[dict[str, Any]], str]:
    """Run the worker; what it said, and how it ended."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as said,  # files without a name, which nobody else can delete
        tempfile.TemporaryFile() as errors,
    ):
        for name, content in package.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        (Path(folder) / "job.json").write_text(json.dumps(job), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "sciformer.check.worker", folder],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder, "MPLBACKEND": "agg", "SCIFORMER_PROFILE": "quick"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(job["seconds"] + 10 * len(job["exercises"]) + 60)
            ended = f"signal {-code}" if code < 0 else f"exit status {code}"
            if code > 0:  # the worker's own trouble; a submission's errors go nowhere
                errors.seek(0)
                ended = " ".join([ended, *errors.read(10_000).decode(errors="replace").strip().splitlines()[-1:]])
        except subprocess.TimeoutExpired:
            ended = "it did not come to an end"
        finally:
            with contextlib.suppress(ProcessLookupError, AttributeError):  # with what it has left running
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        said.seek(0)
        return [entry for line in said if (entry := _entry(line))], ended


def _entry(line: bytes) -> dict[str, Any] | None:
    """One line from the worker, or from a submission that found out how to write to the grader."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    hashable = isinstance(entry, dict) and all(isinstance(x, str | int) for x in entry.values())
    return entry if hashable else None


def _load(entry: dict[str, Any]) -> Observation:
    """What an answer did. Only plain tensors, numbers and texts are let in."""
    try:
        content = torch.load(io.BytesIO(base64.b64decode(entry["content"])), weights_only=True)
        problem = content["problem"] and Problem(str(content["problem"]["kind"]), str(content["problem"]["says"]))
        if problem and problem.kind == "correct":
            raise ValueError("only the judge says so")
        return Observation(list(content["outputs"]), problem)
    except Exception:  # it may hold anything
        return Observation(problem=Problem("incomplete", "What the answer returned cannot be read."))


def _result(exercise: Exercise, seen: Observation, seed: int) -> Result:
    try:
        diagnosis = exercise.judge(exercise.draw(seed), seen, seed)
    except Exception:  # outputs made up by hand, which no answer returns
        seen = Observation(problem=Problem("incomplete", "What the answer returned cannot be compared."))
        diagnosis = exercise.judge(exercise.draw(seed), seen, seed)
    points = exercise.points if diagnosis.correct else 0
    told = {name: value for name, value in asdict(diagnosis).items() if name != "symptom"}
    return Result(points=points, out_of=exercise.points, **told)


def table(grades: Sequence[Grade]) -> str:
    """One line for each exercise of each submission, and its sum."""
    rows = []
    for one in grades:
        for result in one.results:
            points = f"{result.points}/{result.out_of}"
            rows.append((one.file, result.exercise, points, result.says.split("\n")[0]))
        rows.append((one.file, "total", f"{one.points}/{one.out_of}", "; ".join(one.notes)))
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    lines = ["  ".join([*(word.ljust(w) for word, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line).rstrip()[:240] for line in lines)


def write_report(grades: Sequence[Grade], seed: int, path: Path) -> None:
    """The grades as JSON."""
    content = [asdict(one) | {"points": one.points, "out_of": one.out_of} for one in grades]
    with written_whole(path) as beside:
        report = json.dumps({"seed": seed, "submissions": content}, indent=1, ensure_ascii=False) + "\n"
        beside.write_bytes(report.encode("utf-8", "replace"))  # a submission's messages may hold lone surrogates
