"""An exercise that knows the mistakes people make in it.

The right answer is written with its steps as keyword arguments. A fault is one of these steps, done wrong. Whoever
makes the mistake computes the same wrong numbers, so the fault whose numbers agree with an answer's names what happened
to it.

An answer is observed, then judged: :meth:`Exercise.observe` calls it and keeps what it did as plain tensors, and
:meth:`Exercise.judge` decides everything from them. A grader does the first in a process that it does not trust.

More than 500 lines, since observing and judging share the forms that an answer can take.
"""

import linecache
import secrets
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from sciformer.check import progress, settings
from sciformer.check.causes import Fault, find_cause
from sciformer.check.closer_look import is_finite, line_that_writes, look_closer
from sciformer.check.gradients import agree, gradients
from sciformer.check.limits import TimeUp, limited
from sciformer.check.repairing import Change, one_change
from sciformer.check.spelling import spelled
from sciformer.check.symptoms import symptom
from sciformer.check.tracing import first_wrong_line
from sciformer.check.values import kind_of, plain, same, table

Level = Literal["easy", "middle", "hard"]
T = TypeVar("T")
POINTS: dict[Level, int] = {"easy": 1, "middle": 2, "hard": 3}

#: Files whose lines are not the student's own.
_NOT_THEIRS = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parents[1]), sysconfig.get_paths()["stdlib"])

#: Lines of a message, so that it can be taken in at a glance.
LONGEST = 15
_SMALLEST = "\n  the smallest input"
#: Kinds of what is wrong with a result.
_OF_NUMBERS = ("wrong numbers", "wrong shape", "NaN", "likely mistake", "known mistake")
_OUT = "Something takes them out of the graph: .item(), .detach(), .data, torch.tensor(...), torch.no_grad()."

#: What to tell the student when the backward pass stops with one of torch's own messages.
_WITHOUT_GRADIENT = {
    "inplace operation": "The numbers are right, but an in-place operation (`/=`, `*=`, `w[...] = ...`) overwrites "
    "what the backward pass still needs. Make a new tensor: `w = w / w.sum()`.",
    "Can't call numpy()": "The numbers are right, but no gradient flows back: NumPy does not record the "
    "computation. Use torch's functions throughout.",
}


#: A guess at so many questions of yes or no is right once in four billion times.
_YES_OR_NO_CASES = 32


class Draw:
    """Random inputs with few digits, so that they can be shown as they are."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device | str):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, rounded to one decimal."""
        return (
            torch.randn(shape, generator=self.generator, dtype=torch.float32)
            .round(decimals=1)
            .to(self.device, self.dtype)
        )

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from ``low`` to ``high - 1``."""
        return torch.randint(low, high, shape, generator=self.generator).to(self.device)

    def permutation(self, n: int) -> Tensor:
        """The numbers from 0 to ``n - 1`` in random order."""
        return torch.randperm(n, generator=self.generator).to(self.device)


@dataclass(frozen=True)
class Case:
    """One call of an answer.

    Args:
        name: the case in a few words, "two tokens, causal mask".
        inputs: by name, in the order of the answer's parameters.
    """

    name: str
    inputs: dict[str, Any]


class WrongType(TypeError):
    """Raised by an exercise's ``call`` for an answer that it cannot go on with; the message is for the student."""


@dataclass(frozen=True)
class Problem:
    """Why an answer gave no result: the kind of problem, and a sentence about it."""

    kind: str
    says: str


@dataclass(frozen=True)
class Call:
    """What an answer did with one case, as :func:`plain` leaves it.

    Args:
        again: the output of a second call.
        inputs: by name, as they were after the second call.
    """

    output: Any
    again: Any
    inputs: dict[str, Any]


@dataclass
class Observation:
    """What an answer did, call by call, until a problem stopped it.

    Args:
        calls: one for each case.
        gradients: of the last case, by the name of the input; None where no gradient arrives.
    """

    calls: list[Call] = field(default_factory=list)
    gradients: dict[str, Any] = field(default_factory=dict)
    problem: Problem | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The judgement of one answer.

    Args:
        kind: "correct", "unstable", "not attempted", "known mistake", "likely mistake", or what else went wrong.
        says: the judgement in words.
        message: all that a student can read: the judgement, the smallest input, the section to read again.
        faults: names of the mistakes that were recognised.
        symptom: the message without the cause: what is wrong with the result.
    """

    exercise: str
    kind: str
    says: str
    message: str
    faults: tuple[str, ...] = ()
    symptom: str = ""

    @property
    def correct(self) -> bool:
        """Whether the answer is right, if only for inputs of a usual size."""
        return self.kind in ("correct", "unstable")


class Exercise:
    """A checker: ``exercise(mine)`` prints what it thinks of an answer, and never raises.

    Args:
        reference: the right answer, with each step that can go wrong as a keyword argument; named like the exercise.
        notebook: number of the notebook, "02".
        section: heading in that notebook where the idea is explained.
        cases: ``cases(draw)`` yields the calls to make, the smallest first.
        call: ``call(answer, **inputs)`` gives the outputs; by default the answer is a function of the inputs.
        returns: names of the outputs, if there are several or they are no single tensor.
        differentiable: whether gradients must flow from the output to the inputs.
        seconds: how long all calls together may take.
        solution: what :meth:`use` goes on with where there is no right answer yet; by default ``reference``.
        hints: for :meth:`hint`, the gentlest first.
        large: inputs that may be a thousand times as large as in the cases; a right answer whose exponentials then
            overflow is told so.
        small: inputs that may be a thousand times as small, likewise.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        *,
        notebook: str,
        section: str,
        level: Level,
        minutes: int,
        cases: Callable[[Draw], Iterable[Case]],
        faults: Iterable[Fault],
        call: Callable[..., Any] | None = None,
        returns: tuple[str, ...] = ("result",),
        differentiable: bool = True,
        seconds: float = 5.0,
        solution: Callable[..., Any] | None = None,
        hints: tuple[str, ...] = (),
        large: tuple[str, ...] = (),
        small: tuple[str, ...] = (),
    ):
        self.name = reference.__name__
        self.reference, self.notebook, self.section, self.level = reference, notebook, section, level
        self.minutes, self.cases, self.call, self.returns = minutes, cases, call, returns
        self.faults = tuple(faults)
        self.differentiable, self.seconds = differentiable, seconds
        self.solution, self.hints = solution or reference, hints
        self._hinted, self.large, self.small = 0, large, small

    @property
    def points(self) -> int:
        """1 for an easy exercise, 2 for a middle one, 3 for a hard one."""
        return POINTS[self.level]

    def __call__(
        self,
        answer: Any,
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Print the diagnosis of an answer, as much of it as :mod:`sciformer.check.settings` lets it tell.

        Args:
            seed: of the inputs, which are fresh at every call without it. With one, everything is told at once.
        """
        diagnosis = self.diagnose(answer, seed=seed, dtype=dtype, device=device)
        print(diagnosis.message if seed is not None else self._told(diagnosis))

    def _told(self, diagnosis: Diagnosis) -> str:
        """The part of a message that it is time for."""
        runs = progress.keep(diagnosis)
        if settings.tell == "verdict" and diagnosis.kind not in ("correct", "not attempted"):
            return f"{self.name}: not right yet."
        hidden = settings.tell == "symptom" or (settings.tell == "ladder" and runs == 1)
        if not hidden or not diagnosis.symptom or diagnosis.symptom == diagnosis.message:
            return diagnosis.message
        more = f"run it once more to be told the mistake, or check.{self.name}.hint()"
        return diagnosis.symptom + (f"\n  {more}" if settings.tell == "ladder" else "")

    def use(self, answer: Any) -> Any:
        """The answer if it is right, and the solution otherwise; prints which, so that a notebook can go on with it."""
        diagnosis = self.diagnose(answer)
        said = self._told(diagnosis)
        separator = "; " if diagnosis.kind in ("correct", "not attempted") else "\n"
        print(f"{said}{separator}the notebook goes on with {'yours' if diagnosis.correct else 'the solution'}")
        return answer if diagnosis.correct else self.solution

    def hint(self) -> None:
        """Print the next hint; after the last, where the solution is."""
        if self._hinted < len(self.hints):
            print(f"hint {self._hinted + 1} of {len(self.hints)}: {spelled(self.hints[self._hinted])}")
        else:
            print(f"no more hints; a solution is folded away below the exercise in notebook {self.notebook}")
        self._hinted += 1

    def diagnose(
        self,
        answer: Any,
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Diagnosis:
        """The diagnosis of an answer."""
        seed = secrets.randbits(32) if seed is None else seed
        cases = self.draw(seed, dtype, device)
        seen = self.observe(answer, cases, seed)
        diagnosis = self.judge(cases, seen, seed)
        if diagnosis.correct:
            return self._if_stable(diagnosis, answer, cases, seed)
        if diagnosis.kind in _OF_NUMBERS or diagnosis.kind == "raises":
            change = self._change(answer, cases, seed)
            told = _told(change, known=diagnosis.kind in ("known mistake", "likely mistake"))
            if diagnosis.kind in _OF_NUMBERS and _SMALLEST in diagnosis.message:
                return self._located(diagnosis, answer, cases, seen, seed, told)
            at = diagnosis.message.rindex("\n  read again")
            return replace(diagnosis, message=diagnosis.message[:at] + told + diagnosis.message[at:])
        if diagnosis.kind == "changes its input":
            return self._with_the_line_that_writes(diagnosis, answer, cases, seed)
        return diagnosis

    def _if_stable(self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int) -> Diagnosis:
        """The diagnosis of a right answer, which says so if large inputs make its exponentials overflow."""
        factors = dict.fromkeys(self.large, 1000) | dict.fromkeys(self.small, 0.001)
        for case in cases if factors else ():
            inputs = case.inputs | {name: factor * case.inputs[name] for name, factor in factors.items()}
            wanted = self._plainly(self.reference, inputs, seed=seed)
            got = self._safely(partial(self._plainly, answer, inputs, seed=seed))
            if not is_finite(wanted) or (is_finite(got) and not _far(got, wanted)):
                continue
            size = "large" if self.large else "small"
            says, advice = _of_extremes(f"With `{'` and `'.join(factors)}` 1000 times as {size}", finite=is_finite(got))
            rows = table({name: plain(x) for name, x in inputs.items()} | {"expected": wanted, "got": got}, 8)
            more = fill(f"{says} {advice}", 96, initial_indent="  ", subsequent_indent="  ")
            changed = "enlarged" if self.large else "made smaller"
            message = f"{diagnosis.message}, but unstable\n{more}\n  {case.name}, {changed}:{rows}"
            return replace(diagnosis, kind="unstable", says=says, message=message, symptom=message)
        return diagnosis

    def _change(self, answer: Any, cases: list[Case], seed: int) -> Change | None:
        """The one change of the student's own program that makes it right, if there is one."""
        expected = [self._numbers(self.reference, case, seed) for case in cases]

        def is_right(candidate: Any) -> bool:
            try:
                numbers = (self._numbers(candidate, case, seed) for case in cases)
                return all(same(got, right) for got, right in zip(numbers, expected, strict=True))
            except Exception:
                return False

        return self._safely(lambda: one_change(answer, is_right))

    def _located(
        self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seen: Observation, seed: int, change: str
    ) -> Diagnosis:
        """The same diagnosis with what only further calls of the answer can tell: a smaller input, and a line.

        Args:
            change: the line that has the mistake, as it is told, or nothing.
        """
        wrong = [
            n
            for n, call in enumerate(seen.calls)
            if not same(call.output, self._numbers(self.reference, cases[n], seed))
        ]
        case, last = cases[wrong[0]], cases[wrong[-1]]
        look = self._safely(
            lambda: look_closer(
                partial(self._plainly, answer, seed=seed),
                partial(self._plainly, self.reference, seed=seed),
                case.inputs,
                last.inputs if diagnosis.kind == "wrong numbers" else None,
            )
        )
        if look is None:
            return diagnosis
        name = case.name if look.inputs is case.inputs else f"cut from {case.name}"
        line = "" if change else self._first_wrong_line(answer, cases, seed)
        told = [sentence for sentence in (look.probe, line) if sentence]
        sentences = "".join(f"\n{fill(s, 96, initial_indent='  ', subsequent_indent='  ')}" for s in told)

        def inserted(message: str, more: str) -> str:
            first, rest = message.split(_SMALLEST, 1)
            last = rest[rest.rindex("\n  read again") :]
            most = LONGEST - 1 - sum(part.count("\n") for part in (first, more, last, _SMALLEST))
            return f"{first}{more}{self._shown(name, look.inputs, look.expected, look.got, most)}{last}"

        message = inserted(diagnosis.message, sentences + change)
        return replace(diagnosis, message=message, symptom=inserted(diagnosis.symptom, sentences))

    def _first_wrong_line(self, answer: Any, cases: list[Case], seed: int) -> str | None:
        """A sentence about the line that has the mistake, tried on more inputs than these cases'."""
        inputs = [case.inputs for case in (*cases, *self.draw(seed + 1))]
        run, reference = (partial(self._plainly, one, seed=seed) for one in (answer, self.reference))
        return self._safely(lambda: first_wrong_line(run, reference, inputs, lambda code: _is_own(code.co_filename)))

    def _with_the_line_that_writes(self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int) -> Diagnosis:
        def run(inputs: dict[str, Any]) -> Any:
            return self._call(answer, inputs)  # not a copy, for once

        def look() -> str | None:
            for case in cases:
                inputs = {name: _copy(x, False) for name, x in case.inputs.items()}
                if line := line_that_writes(run, inputs, lambda code: _is_own(code.co_filename)):
                    return line
            return None

        line = self._safely(look)
        if line is None:
            return diagnosis
        message = diagnosis.message.replace("\n    before", f"\n  in your line: {line}\n    before", 1)
        return replace(diagnosis, message=message, symptom=message)

    def _safely(self, look: Callable[[], T]) -> T | None:
        """What a closer look finds; None where the answer does not bear being called so."""
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return limited(look, self.seconds)
        except BaseException:
            return None

    def _plainly(self, one: Any, inputs: dict[str, Any], *, seed: int) -> Any:
        return plain(self._run(one, Case("", inputs), seed)[1])

    def _shown(self, name: str, inputs: dict[str, Any], expected: Any, got: Any, most: int = 8) -> str:
        """The smallest input, with what is right and what the answer gives, in so many lines at most.

        Of several results the first that is wrong is shown.
        """
        several = (
            isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got) == len(self.returns)
        )
        wrong = [n for n in range(len(expected)) if not same(expected[n], got[n])] if several else []
        if wrong and len(expected) > 1:
            name = f"{name} ({self.returns[wrong[0]]})"
            expected, got = expected[wrong[0]], got[wrong[0]]
        rows = {given: plain(x) for given, x in inputs.items()} | {"expected": expected, "got": got}
        return f"{_SMALLEST} that shows it: {name}{table(rows, most)}"

    def draw(self, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> list[Case]:
        """The cases of a seed.

        Where yes or no is the answer there are enough cases that nobody guesses them all, in a random order, so that a
        memorized list of answers fails.
        """
        draw = Draw(seed, dtype, device)
        with _usual_dtype():
            cases = list(self.cases(draw))
            if cases and isinstance(self._numbers(self.reference, cases[0], seed), bool):
                while len(cases) < _YES_OR_NO_CASES:
                    cases += self.cases(draw)
                cases = [cases[n] for n in draw.permutation(len(cases)).tolist()]
        return cases

    def observe(self, answer: Any, cases: list[Case], seed: int) -> Observation:
        """Call an answer on every case, for ``seconds`` at most, and keep what it does."""
        seen = Observation()
        if not callable(answer):
            says = f"A function or a class is wanted, but this is {kind_of(plain(answer))}."
            return Observation(problem=Problem("wrong type", says))
        try:
            with torch.random.fork_rng(devices=[]):
                limited(partial(self._observe, answer, cases, seed, seen), self.seconds)
        except BaseException as error:
            seen.problem = self._explain(error, cases[min(len(seen.calls), len(cases) - 1)])
        return seen

    def _observe(self, answer: Any, cases: list[Case], seed: int, seen: Observation) -> None:
        for case in cases:
            _, first = self._run(answer, case, seed)
            inputs, again = self._run(answer, case, seed)
            seen.calls.append(Call(plain(first), plain(again), {name: plain(x) for name, x in inputs.items()}))
        if self.differentiable:
            try:
                seen.gradients = gradients(*self._run(answer, cases[-1], seed, True), seed)
            except RuntimeError as error:
                reasons = [says for words, says in _WITHOUT_GRADIENT.items() if words in _message(error)]
                if not reasons:
                    raise
                line = _own_line(error)
                says = reasons[0] + (f"\n  in your line: {line}" if line else "")
                seen.problem = Problem("no gradient", says)

    def _run(self, answer: Any, case: Case, seed: int, requires_grad: bool = False) -> tuple[dict[str, Any], Any]:
        inputs = {name: _copy(x, requires_grad) for name, x in case.inputs.items()}
        with _usual_dtype():
            torch.default_generator.manual_seed(seed)  # for the first weights of a module
            return inputs, self._call(answer, inputs)

    def _call(self, answer: Any, inputs: dict[str, Any]) -> Any:
        if self.call is None:
            return answer(*inputs.values())
        returned: list[Any] = []

        def watched(*args: Any, **options: Any) -> Any:
            returned[:] = [answer(*args, **options)]
            return returned[0]

        try:
            return self.call(watched, **inputs)
        except Exception:
            if any(x is None for x in returned):
                return None  # `call` tripped over a missing return, and that is what the student should read
            raise

    def _explain(self, error: BaseException, case: Case) -> Problem:
        if isinstance(error, NotImplementedError) and not _message(error):  # torch's own have a message
            return Problem("not attempted", "not attempted yet")
        if isinstance(error, TimeUp):
            says = f"The answer is not done after {self.seconds:g} seconds. Does one of its loops never end?"
            return Problem("too slow", f"{says}\n  on this input: {case.name}")
        if isinstance(error, WrongType):
            return Problem("wrong type", f"{_message(error)}\n  on this input: {case.name}")
        line = _own_line(error)
        says = f"The answer stops with {type(error).__name__}: {_message(error)}"
        if line:
            says += f"\n  in your line: {line}"
        elif self.call is None:
            says += f"\n  it is called with {', '.join(case.inputs)}"
        return Problem("raises", f"{says}\n  on this input: {case.name}")

    def judge(self, cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
        """Compare what an answer gave with the right numbers, then with those of every known mistake."""
        expected = [self._numbers(self.reference, case, seed) for case in cases]
        got, problem = _regular(cases, seen)
        wrong = [n for n, output in enumerate(got) if not same(output, expected[n])]
        if not wrong:
            return self._without_difference(len(got) == len(cases), problem or self._of_gradients(cases, seen, seed))
        first = wrong[0]
        kind, says, shown = self._evidence(cases, expected, got, wrong)
        told = self._message(says, shown)
        cause = find_cause(
            self,
            lambda suspect: self._agrees(suspect, cases, got, first, seed),
            lambda suspect: self._shows(suspect, cases, expected, got, seed),
            singly=all(isinstance(output, bool) for output in expected),
        )
        if cause is None:
            return Diagnosis(self.name, kind, says, told, symptom=told)
        message = self._message(cause.says, shown, see=cause.see)
        return Diagnosis(self.name, cause.kind, cause.says, message, cause.faults, told)

    def _evidence(
        self, cases: list[Case], expected: list[Any], got: list[Any], wrong: list[int]
    ) -> tuple[str, str, str]:
        """Kind and sentences of what is wrong with the outputs, and the smallest input that shows it."""
        kind, says = symptom([case.inputs for case in cases], expected, got, self.returns)
        case = cases[wrong[0]]
        shown = self._shown(case.name, case.inputs, expected[wrong[0]], got[wrong[0]])
        right = [case.name for n, case in enumerate(cases[: len(got)]) if n not in wrong]
        if kind == "wrong numbers" and right and "right only" not in says:
            says += f" They are right for: {'; '.join(right)}."
        return kind, says, shown

    def _without_difference(self, finished: bool, problem: Problem | None) -> Diagnosis:
        if finished and problem is None:
            return Diagnosis(self.name, "correct", "correct", f"{self.name}: correct")
        problem = problem or Problem("incomplete", "The answer did not finish on all its inputs.")
        if problem.kind == "not attempted":
            return Diagnosis(self.name, problem.kind, problem.says, f"{self.name}: {problem.says}")
        message = self._message(problem.says)
        return Diagnosis(self.name, problem.kind, problem.says, message, symptom=message)

    def _of_gradients(self, cases: list[Case], seen: Observation, seed: int) -> Problem | None:
        """What is wrong with the gradients of an answer whose outputs are right.

        Two right answers may differ in their gradients where they are never asked: that of a matrix which is always
        symmetric, for instance. They agree along every direction that leads to other inputs of the same kind.
        """
        if not self.differentiable or len(seen.calls) < len(cases):
            return None
        with torch.random.fork_rng(devices=[]):
            wanted = gradients(*self._run(self.reference, cases[-1], seed, True), seed)
        wanted = {name: gradient for name, gradient in wanted.items() if gradient is not None}
        inputs, found = cases[-1].inputs, seen.gradients
        lost = sorted(name for name in wanted if not isinstance(found.get(name), Tensor))
        if lost:
            return Problem(
                "no gradient", f"The numbers are right, but no gradient flows back to {', '.join(lost)}. {_OUT}"
            )
        others = [self.draw(seed + n)[-1].inputs for n in range(1, 5)]
        for name in sorted(wanted):
            here = inputs[name].cpu()
            ways = [other[name] - here for other in others if other[name].shape == here.shape]
            if not agree(found[name], wanted[name], ways):
                says = f"The numbers are right, but the gradient that flows back to {name} is not. {_OUT}"
                return Problem("no gradient", says)
        return None

    def wrong_answer(self, *faults: Fault, of: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """The answer of somebody who makes these mistakes, in the right answer or in another one."""
        steps = {name: step for fault in faults for name, step in fault.steps.items()}
        return partial(of or self.reference, **steps)

    def shown(self, fault: Fault, seed: int) -> str:
        """What a mistake does to the smallest input on which it shows, without its name."""
        cases = self.draw(seed)
        seen = self.observe(self.wrong_answer(fault), cases, seed)
        return self.judge(cases, seen, seed).symptom.rsplit("\n  read again", 1)[0]

    def _numbers(self, answer: Callable[..., Any], case: Case, seed: int) -> Any:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a mistake that we try may well deserve one
            return plain(self._run(answer, case, seed)[1])

    def _agrees(self, suspect: Callable[..., Any], cases: list[Case], got: list[Any], first: int, seed: int) -> bool:
        """Whether a wrong answer gives the same numbers, everywhere; most do not on the first wrong case."""
        try:
            return all(same(got[n], self._numbers(suspect, cases[n], seed)) for n in (first, *range(len(got))))
        except Exception:
            return False  # the mistake raises where the answer does not, or two mistakes cannot be combined

    def _shows(
        self, suspect: Callable[..., Any], cases: list[Case], expected: list[Any], got: list[Any], seed: int
    ) -> bool:
        """Whether each of several results that a wrong answer gets wrong is wrong in the student's as well."""
        several = all(isinstance(x, list) and len(x) == len(self.returns) > 1 for x in (*expected, *got))
        if not several:
            return True
        try:
            theirs = [self._numbers(suspect, case, seed) for case in cases[: len(got)]]
            wrong, wrong_of_student = (
                {n for x, e in zip(results, expected, strict=False) for n in range(len(e)) if not same(x[n], e[n])}
                for results in (theirs, got)
            )
        except Exception:
            return False
        return wrong <= wrong_of_student

    def _message(self, says: str, shown: str = "", *, see: str | None = None) -> str:
        sentence, *more = says.split("\n")
        # JupyterLab shows about 100 characters in a line and breaks longer ones within words.
        lines = [fill(f"{self.name}: not right yet. {sentence}", 96, subsequent_indent="  "), *more]
        section = spelled(see or self.section)
        return "\n".join(lines) + f"{shown}\n  read again: notebook {self.notebook}, '{section}'"


def _far(got: Any, wanted: Any) -> bool:
    """Whether a result is wrong by more than rounding can do to large numbers."""
    both_tensors = isinstance(got, Tensor) and isinstance(wanted, Tensor) and got.shape == wanted.shape
    return both_tensors and bool(((got.double() - wanted.double()).abs() > 0.1 * (1 + wanted.double().abs())).any())


def _of_extremes(condition: str, *, finite: bool) -> tuple[str, str]:
    """What happens to an answer at extreme inputs, and what to do about it."""
    if finite:
        return f"{condition}, the numbers are wrong.", "Is a finite number, as −100, taken for minus infinity?"
    return (
        f"{condition}, an exponential overflows or all round to 0.",
        "Subtract the largest score of a row before you take exponentials, as torch's softmax does.",
    )


def _told(change: Change | None, *, known: bool) -> str:
    """A change in a message: only its line where the mistake is known, so that something is left to do."""
    if change is None:
        return ""
    return f"\n  in your line: {change.old}" if known else change.told()


def parameter(module: Any, name: str) -> Tensor:
    """What a module keeps under a name to train.

    Raises:
        WrongType: if that is no tensor.
    """
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise WrongType(f"`{name}` should be an nn.Parameter, but it is {kind_of(plain(value))}.")
    return value


def pair(result: Any, first: str, second: str) -> tuple[Any, Any]:
    """The two results of an answer; their names, "a longer query", are for the message.

    Raises:
        WrongType: if there are not two.
    """
    if not isinstance(result, list | tuple) or len(result) != 2:
        raise WrongType(f"Two results are wanted: {first}, and {second}. This is {kind_of(plain(result))}.")
    return result[0], result[1]


def _copy(x: Any, requires_grad: bool) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.clone().requires_grad_(requires_grad and x.is_floating_point())


@contextmanager
def _usual_dtype() -> Iterator[None]:
    """Answers are called with torch's own default dtype, whatever a notebook has made of it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _regular(cases: list[Case], seen: Observation) -> tuple[list[Any], Problem | None]:
    """The outputs up to the first call that changed its input or could not be repeated, and the problem."""
    outputs: list[Any] = []
    for case, call in zip(cases, seen.calls, strict=False):
        changed = [name for name, x in case.inputs.items() if not same(plain(x), call.inputs.get(name))]
        if changed:
            says = f"The answer changes its input `{changed[0]}`. Work on a copy, or do not assign into it."
            rows = {"before": plain(case.inputs[changed[0]]), "after": call.inputs.get(changed[0])}
            return outputs, Problem("changes its input", says + table(rows))
        if not same(call.output, call.again):
            says = "Called twice with the same input, the answer gives different results. Is something kept, or drawn?"
            return outputs, Problem("not repeatable", says)
        outputs.append(call.output)
    return outputs, seen.problem


def _message(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except Exception:  # an exception of the student's own making
        return "(no message)"


def _is_own(file: str) -> bool:
    """Whether a file's lines are the student's."""
    return not file.startswith(("<frozen", "<mutant", *_NOT_THEIRS))


def _own_line(error: BaseException) -> str | None:
    """The last line of the student's own code that an exception passed through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _is_own(file):
            text = linecache.getline(file, trace.tb_lineno).strip()
            line = text or f"number {trace.tb_lineno} of {trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    return line
