"""Run submissions, each in a worker of its own, and hear what their answers do.

A worker is not trusted: it is heard for so long and so many bytes, by the grader's own clock, and whatever it says is
read as plain values. It runs in a sandbox, or without one in a copy of the package.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sciformer.check.exercise import Exercise, Observation, Problem
from sciformer.check.limits import PATIENCE
from sciformer.check.sandbox import LIBRARIES, inside, memory_group, refused_calls
from sciformer.check.wire import LINE, decode_observation

_PACKAGE = Path(__file__).parents[1]
_COMMAND = ["-P", "-m", "sciformer.check.worker"]
#: How often a submission that ends its process is started.
_STARTS = 10
#: Seconds for a worker to import what it needs, on a busy machine.
_STARTING = 180.0
#: Seconds beyond its time after which a worker is killed. It stops by itself before, unless something holds it.
_GRACE = 2.0
#: Bytes that one worker may say in all.
_HEARD = 4 * LINE
_NOTES, _LONGEST_NOTE = 20, 300


class StoppedError(Exception):
    """Raised for a submission that is not run, since grading was stopped."""


class Worker:
    """A process, and the lines that it says."""

    def __init__(self, command: list[str], **options: Any):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, **options
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue(maxsize=2)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        heard = 0
        assert self.process.stdout is not None
        while heard < _HEARD and (line := self.process.stdout.readline(LINE)):
            heard += len(line)
            self._lines.put(line)
        self._lines.put(None)

    def hear(self, until: float) -> dict[str, Any]:
        """The next line.

        Raises:
            TimeoutError: if none comes until then.
            EOFError: if none will come.
            ValueError: if it is none that our worker says.
        """
        try:
            line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty as error:
            raise TimeoutError from error
        if line is None:
            raise EOFError
        try:
            entry = json.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(entry, dict):
            raise ValueError("no dictionary")
        return entry

    def tell(self, job: dict[str, Any]) -> None:
        """Give the worker its job.

        Raises:
            OSError: if it has ended.
        """
        assert self.process.stdin is not None
        with self.process.stdin as pipe:
            pipe.write(json.dumps(job).encode() + b"\n")

    def ended(self) -> str:
        """How the process ended, in words."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed the connection to the grader, or said too much"
        number = -code if code < 0 else code - 128  # in a sandbox, a signal comes as an exit status above 128
        if number == 9:  # SIGKILL, by its number, since Windows does not know the name
            return "killed, as a process is that takes too much memory"
        return f"signal {number}" if number > 0 else f"exit status {code}"

    def complaint(self) -> str:
        """The last line of its standard error, after it has ended."""
        assert self.process.stderr is not None
        lines = os.read(self.process.stderr.fileno(), 10_000).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def kill(self) -> None:
        """Kill it, with what it has left running."""
        with suppress(ProcessLookupError, PermissionError, AttributeError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def stop(self) -> None:
        """Kill it and wait for its end."""
        self.kill()
        self.process.wait()
        with suppress(queue.Empty):  # a process outside of a sandbox may have survived, and hold the pipe
            while self._lines.get(timeout=1) is not None:
                pass


@dataclass
class _Turn:
    """What came of one start of a submission.

    Args:
        doing: the statement or the exercise that it did not come back from; None if all was done.
        begin: of that statement.
        used: seconds that the statements took.
    """

    notes: dict[str, None] = field(default_factory=dict)  # each once
    doing: int | str | None = None
    begin: str = ""
    ended: str = ""
    late: bool = False
    used: float = 0.0


@dataclass
class Runner:
    """Runs submissions, several at a time if asked from several threads.

    Args:
        module: a file with exercises of one's own.
        seconds: for the statements of one submission; each answer has its exercise's own few seconds besides.
        memory: MB that a submission may use beside the libraries; only Linux can limit it.
        seed: of the inputs.
        threads: of torch, in one worker.
    """

    module: Path | None
    seconds: float
    memory: int
    seed: int
    threads: int
    sandboxed: bool
    _live: set[Worker] = field(default_factory=set)
    _stopped: bool = False

    def __post_init__(self) -> None:
        # Everything is in memory before the first submission runs, so that none can change the package of another.
        self._package: dict[Path, bytes] = {}
        if not self.sandboxed:
            files = (path for path in _PACKAGE.rglob("*") if path.is_file())
            self._package = {"sciformer" / path.relative_to(_PACKAGE): path.read_bytes() for path in files}
            if self.module:
                self._package[Path(self.module.name)] = self.module.read_bytes()

    def check(self) -> None:
        """Start a worker and stop it again.

        Raises:
            ChildProcessError: if it does not start.
        """
        with self._worker() as worker:
            try:
                worker.hear(time.monotonic() + _STARTING)
            except (TimeoutError, EOFError, ValueError) as error:
                worker.kill()
                says = "it did not answer" if isinstance(error, TimeoutError) else worker.ended()
                hint = " (a sandbox may be forbidden here: see --unsandboxed)" if self.sandboxed else ""
                says = f"the process that runs submissions does not start: {says} {worker.complaint()}"
                raise ChildProcessError(f"{says.strip()}{hint}") from error

    def stop(self) -> None:
        """Kill every worker; those that wait for one raise :class:`StoppedError`."""
        self._stopped = True
        for worker in list(self._live):
            worker.kill()

    def observe(
        self, cells: list[str], answers: Mapping[str, str], exercises: Mapping[str, Exercise]
    ) -> tuple[dict[str, Observation], list[str]]:
        """What a submission's answers do, and notes on what went wrong outside of them.

        After a statement or an answer that ends the process, or holds it beyond its time, it starts again without. The
        statements have the time that is left by those that did so.

        Args:
            answers: the variable that holds the answer to each exercise.
        """
        seen: dict[str, Observation] = {}
        skip: list[int] = []
        skipped: list[str] = []
        left, turn = self.seconds, _Turn()
        for _ in range(_STARTS):
            before = len(seen)
            todo = {name: variable for name, variable in answers.items() if name not in seen}
            job = {"cells": cells, "exercises": todo, "skip": skip, "seconds": left}
            turn = self._turn(job, exercises, seen)
            if isinstance(turn.doing, str):
                seen[turn.doing] = _unfinished(exercises[turn.doing], turn)
            elif isinstance(turn.doing, int):
                left -= turn.used
                skip.append(turn.doing)
                why = "cut off, it took too long" if turn.late else f"it ended its process: {turn.ended}"
                skipped.append(f"{turn.begin}: {why}")
            if len(seen) == len(answers) or (turn.doing is None and len(seen) == before):
                break
        lost = Observation(problem=Problem("crashed", f"The submission did not run to its end: {turn.ended}."))
        notes = [note[:_LONGEST_NOTE] for note in [*skipped, *turn.notes]]
        if len(notes) > _NOTES:
            notes = [*notes[:_NOTES], f"and {len(notes) - _NOTES} more"]
        return {name: seen.get(name, lost) for name in answers}, notes

    def _turn(self, job: dict[str, Any], exercises: Mapping[str, Exercise], seen: dict[str, Observation]) -> _Turn:
        turn = _Turn()
        limits = {"memory": self.memory, "seed": self.seed, "sandboxed": self.sandboxed}
        with self._worker() as worker:
            start = time.monotonic()
            try:
                worker.hear(start + _STARTING)
                start = time.monotonic()
                worker.tell(job | limits | {"module": self.module and f"{self._folder}{self.module.name}"})
                _follow(worker, turn, job, exercises, seen)
            except TimeoutError:
                turn.late, turn.ended = True, "it took too long"
            except EOFError:
                turn.ended = worker.ended()
            except (ValueError, OSError):
                turn.ended = "it wrote to the grader in the place of the worker"
            if not turn.used:  # it did not get as far as the answers
                turn.used = max(0.0, time.monotonic() - start - _GRACE * turn.late)
        return turn

    @property
    def _folder(self) -> str:
        """Where a worker finds the package and the exercises of one's own; without a sandbox, where it starts."""
        return "/grader/" if self.sandboxed else ""

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        environment = {"MPLBACKEND": "agg", "SCIFORMER_PROFILE": "quick", "OMP_NUM_THREADS": str(self.threads)}
        command = [sys.executable, *_COMMAND]
        with ExitStack() as stack:
            start = stack.enter_context(memory_group(self.memory + LIBRARIES))
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            if self.sandboxed:
                shown = {"/grader/sciformer": _PACKAGE}
                shown |= {f"/grader/{path.name}": path.resolve() for path in [self.module] if path}
                refusing = stack.enter_context(refused_calls())
                environment |= {"PYTHONPATH": "/grader"}
                command = inside(command, shown=shown, environment=environment, refusing=refusing)
                options: dict[str, Any] = {"env": {}, "pass_fds": [refusing]}
            else:
                for name, content in self._package.items():
                    (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(folder) / name).write_bytes(content)
                options = {"env": {**os.environ, **environment, "PYTHONPATH": folder}}
            if self._stopped:
                raise StoppedError
            worker = Worker([*start, *command], cwd=folder, **options)
            self._live.add(worker)
            try:
                yield worker
            finally:
                worker.stop()
                self._live.discard(worker)


def _follow(
    worker: Worker,
    turn: _Turn,
    job: Mapping[str, Any],
    exercises: Mapping[str, Exercise],
    seen: dict[str, Observation],
) -> None:
    """Hear a worker out: first about its statements, then about one answer after the other, each within its time."""
    start = time.monotonic()
    end = start + job["seconds"]
    deadline, left = end + _GRACE, list(job["exercises"])
    while left:
        entry = worker.hear(deadline)
        now = time.monotonic()
        match entry:
            case {"failed": str(note)}:
                turn.notes[note[:_LONGEST_NOTE]] = None
            case {"statement": int(number), "begin": str(begin)} if not turn.used:
                turn.doing, turn.begin = number, begin[:60]
                deadline = min((now + end) / 2, end) + _GRACE
            case {"exercise": str(name)} if name == left[0] and turn.doing != name:
                turn.used = turn.used or now - start
                turn.doing, deadline = name, now + PATIENCE * exercises[name].seconds + _GRACE
            case {"seen": str(name)} if name == left[0] == turn.doing:
                seen[left.pop(0)] = decode_observation(entry)
                turn.doing, deadline = None, now + _GRACE
            case _:
                raise ValueError("our worker does not say so")


def _unfinished(exercise: Exercise, turn: _Turn) -> Observation:
    """What is known of an answer that never came back."""
    if turn.late:
        says = f"The answer is not done after {exercise.seconds:g} seconds, and nothing could interrupt it."
        return Observation(problem=Problem("too slow", says))
    return Observation(problem=Problem("crashed", f"The answer ended its process: {turn.ended}."))
