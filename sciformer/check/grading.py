"""Grade submitted notebooks and programs.

Each submission runs in a sandbox of its own, and can only say what its answers did. The inputs are drawn, the numbers
judged and the time kept here, so that nothing a submission does to the checker changes a grade.
"""

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from sciformer.check import EXERCISES
from sciformer.check.exercise import Exercise, Observation, Problem
from sciformer.check.graded_later import GradedLater
from sciformer.check.running import Runner
from sciformer.check.sandbox import is_shown
from sciformer.check.submission import Submission, read
from sciformer.functional import InputError

#: The random numbers that expected results are drawn with belong to the whole process.
_JUDGING = threading.Lock()
NOT_GRADED = "not graded"
_LONGEST_MESSAGE = 4000


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
        results: none if it is not graded yet.
        notes: what went wrong outside the exercises.
        digest: SHA-256 of the file.
    """

    file: str
    results: tuple[Result, ...]
    notes: tuple[str, ...]
    digest: str = ""

    @property
    def graded(self) -> bool:
        """Whether it is graded."""
        return bool(self.results)

    @property
    def points(self) -> int:
        """Points reached."""
        return sum(result.points for result in self.results)

    @property
    def out_of(self) -> int:
        """Points that could be reached."""
        return sum(result.out_of for result in self.results)


def known_exercises(module: Path | None = None, answers: Path | None = None) -> dict[str, Exercise]:
    """The course's exercises, and those of a module of one's own.

    Args:
        answers: a module with the right answers to those that are graded later; it imports the other one by its name.

    Raises:
        InputError: if a module cannot be imported or has no exercise, or the answers are not kept from submissions.
    """
    own: dict[str, Exercise] = {}
    if answers is not None:
        if module is None:
            raise InputError(f"{answers} answers the exercises of --exercises, which is not given")
        if is_shown(answers):
            raise InputError(
                f"every submission can read {answers}, which lies among the files of Python or of the system; "
                "keep the answers in a folder of your own"
            )
    for path in filter(None, (module, answers)):
        own |= _exercises_of(path)
    return EXERCISES | own


def _exercises_of(module: Path) -> dict[str, Exercise]:
    """The exercises of a module, which can be imported by its name from now on."""
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
    return own


def grade(
    files: Sequence[Path],
    seed: int,
    *,
    module: Path | None = None,
    answers: Path | None = None,
    seconds: float = 120.0,
    memory: int = 4096,
    jobs: int = 1,
    unsandboxed: bool = False,
    known: Sequence[Grade] = (),
    report: Callable[[list[Grade]], None] = lambda grades: None,
) -> list[Grade]:
    """Grade submissions, notebooks or .py files, on the same inputs.

    The exercises are those that any of the files checks, defines by name or was handed out with; a submission
    without one gets no points for it.

    Args:
        seed: of the inputs.
        module: a file with exercises of one's own, which submissions can read.
        answers: a file with the right answers to those that are graded later, which they cannot.
        seconds: for the statements of one submission; each answer has its exercise's own few seconds besides.
        memory: MB that a submission may use beside the libraries; only Linux can limit it.
        jobs: how many submissions run at a time.
        unsandboxed: run them with all rights that you have.
        known: grades from before. Those of unchanged files with the same exercises stand.
        report: told all grades before the first submission is run, and after each.

    Raises:
        ValueError: if no file has an exercise, a module cannot be used, a right answer is missing, or there is no
            sandbox.
        ChildProcessError: if the process that runs submissions does not start.
    """
    exercises = known_exercises(module, answers)
    submissions = [read(path) for path in files]
    variables = [submission.variables(exercises) for submission in submissions]
    wanted = set().union(*variables, *(submission.announced for submission in submissions))
    names = [name for name in exercises if name in wanted]
    if not names:
        raise InputError(f"there is no exercise in {', '.join(visible(str(path)) for path in files)}")
    if unanswered := [name for name in names if isinstance(exercises[name], GradedLater)]:
        raise InputError(f"there is no right answer to {', '.join(unanswered)}; name the file that has it by --answers")
    before = {(one.file, one.digest): one for one in known if [r.exercise for r in one.results] == names}
    grades = [before.get((one.file, one.digest), Grade(one.file, (), (NOT_GRADED,), one.digest)) for one in submissions]
    report(grades)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    runner = Runner(module, seconds, memory, seed, threads, sandboxed=not unsandboxed)
    runner.check()

    def one(n: int) -> int:
        held_by = {name: variables[n].get(name, name) for name in names}
        grades[n] = _grade(submissions[n], held_by, exercises, runner)
        return n

    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(partial(one, n)) for n, grade in enumerate(grades) if not grade.graded]
        try:
            for done in tqdm(as_completed(waiting), total=len(waiting), disable=None):
                done.result()
                report(grades)
        except BaseException:  # an interruption, or a report that cannot be written
            pool.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise
    return grades


def _grade(
    submission: Submission, answers: Mapping[str, str], exercises: Mapping[str, Exercise], runner: Runner
) -> Grade:
    if submission.unread is None:
        seen, notes = runner.observe(submission.cells, answers, exercises)
    else:
        missing = {
            name: Problem("missing", f"Nothing called {variable} is defined.") for name, variable in answers.items()
        }
        seen, notes = {name: Observation(problem=problem) for name, problem in missing.items()}, [submission.unread]
    with _JUDGING:
        results = tuple(_result(exercises[name], seen[name], runner.seed) for name in answers)
    return Grade(submission.file, results, tuple(map(visible, notes)), submission.digest)


def _result(exercise: Exercise, seen: Observation, seed: int) -> Result:
    try:
        diagnosis = exercise.judge(exercise.draw(seed), seen, seed)
    except Exception:  # outputs made up by hand, which no answer returns
        seen = Observation(problem=Problem("incomplete", "What the answer returned cannot be compared."))
        diagnosis = exercise.judge(exercise.draw(seed), seen, seed)
    points = exercise.points if diagnosis.correct else 0
    told = {name: value for name, value in asdict(diagnosis).items() if name != "symptom"}
    told |= {name: visible(told[name])[:_LONGEST_MESSAGE] for name in ("says", "message")}
    return Result(points=points, out_of=exercise.points, **told)


def visible(text: str) -> str:
    r"""A text whose control characters, and those that change its direction, are written out: ``\x1b``, ``\u202e``."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
