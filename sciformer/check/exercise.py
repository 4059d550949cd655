"""An exercise that knows the mistakes people make in it.

The right answer is written with its steps as keyword arguments. A fault is one of these steps, done wrong. Whoever
makes the mistake computes the same wrong numbers, so the fault whose numbers agree with an answer's names what happened
to it.

An answer is observed, then judged: :meth:`Exercise.observe` calls it and keeps what it did as plain tensors, and
:meth:`Exercise.judge` decides everything from them. A grader does the first in a process that it does not trust.
"""

import secrets
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from sciformer.check import progress, settings
from sciformer.check.causes import Fault
from sciformer.check.closer_look import seen_closer
from sciformer.check.judging import evidence, judge
from sciformer.check.observing import Call, Case, Draw, Observation, Problem, Task, WrongType, pair, parameter
from sciformer.check.spelling import spelled
from sciformer.check.telling import LONGEST, Diagnosis

__all__ = [
    "LONGEST",
    "POINTS",
    "Call",
    "Case",
    "Diagnosis",
    "Draw",
    "Exercise",
    "Observation",
    "Problem",
    "WrongType",
    "pair",
    "parameter",
]

Level = Literal["easy", "middle", "hard"]
POINTS: dict[Level, int] = {"easy": 1, "middle": 2, "hard": 3}


class Exercise(Task):
    """A checker: ``exercise(mine)`` prints what it thinks of an answer, and never raises.

    Args:
        reference: the right answer, with each step that can go wrong as a keyword argument; named like the exercise.
        notebook: number of the notebook, "02".
        section: heading in that notebook where the idea is explained.
        cases: ``cases(draw)`` yields the calls to make, the smallest first.
        call: ``call(answer, **inputs)`` gives the outputs; by default the answer is a function of the inputs.
        returns: names of the outputs, if there are several or they are no single tensor.
        differentiable: whether gradients must flow from the output to the inputs.
        seconds: how long all calls together may work; on the clock it may take ``limits.PATIENCE`` times as long.
        solution: what :meth:`use` goes on with where there is no right answer yet; by default the way of the exercise's
            own name, or else ``reference``.
        hints: for :meth:`hint`, the gentlest first.
        large: inputs that may be much larger than in the cases; a right answer whose exponentials then overflow is
            told so.
        times: how many times as large.
        small: inputs that may be a thousand times as small, likewise.
        ways: gives right answers by name, each written in another way; a line of theirs may mend a wrong one.
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
        times: int = 1000,
        small: tuple[str, ...] = (),
        ways: Callable[[], dict[str, Callable[..., Any]]] = dict,
    ):
        super().__init__(reference, cases=cases, call=call, differentiable=differentiable, seconds=seconds)
        self.notebook, self.section, self.level, self.minutes = notebook, section, level, minutes
        self.faults, self.returns = tuple(faults), returns
        self._solution, self.hints = solution, hints
        self._hinted, self.large, self.times, self.small = 0, large, times, small
        self.ways = ways

    @property
    def points(self) -> int:
        """1 for an easy exercise, 2 for a middle one, 3 for a hard one."""
        return POINTS[self.level]

    @property
    def solution(self) -> Callable[..., Any]:
        """What :meth:`use` goes on with where there is no right answer yet."""
        return self._solution or self.ways().get(self.name, self.reference)

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
        return self.closer(self.judge(cases, seen, seed), answer, cases, seen, seed)

    def judge(self, cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
        """Compare what an answer gave with the right numbers, then with those of every known mistake."""
        return judge(self, cases, seen, seed)

    def evidence(
        self, cases: list[Case], expected: list[Any], got: list[Any], wrong: list[int]
    ) -> tuple[str, str, str]:
        """Kind and sentences of what is wrong with the outputs, and the smallest input that shows it."""
        return evidence(self, cases, expected, got, wrong)

    def closer(self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
        """The diagnosis with what only further calls of the answer can tell."""
        return seen_closer(self, diagnosis, answer, cases, seen, seed)

    def shown(self, fault: Fault, seed: int) -> str:
        """What a mistake does to the smallest input on which it shows, without its name."""
        cases = self.draw(seed)
        seen = self.observe(self.wrong_answer(fault), cases, seed)
        return self.judge(cases, seen, seed).symptom.rsplit("\n  read again", 1)[0]
