"""Exercises whose right answers stay with the instructor.

Such an exercise comes in two files. The one with its :class:`GradedLater` is handed out, and is all that the sandbox
shows of it while submissions run: what is asked, and on which inputs an answer is called. The other one makes a whole
exercise of it, with the right answer and the known mistakes, and only the grader's own process reads it.
"""

import secrets
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sciformer.check.causes import Fault
from sciformer.check.exercise import Exercise
from sciformer.check.observing import Case, Observation
from sciformer.check.telling import Diagnosis
from sciformer.functional import InputError


class GradedLater(Exercise):
    """An exercise without its right answer: it says whether an answer runs, and that it is graded later.

    Args:
        stub: the function or class as it is handed out, which raises a NotImplementedError; named like the exercise.
        yes_or_no: whether the right answer is True or False; the cases then repeat, so that guessing does not help.
        about: what an :class:`Exercise` takes beside the right answer and its faults: ``notebook``, ``section``,
            ``level``, ``minutes``, ``cases``, ``call`` and the others.
    """

    def __init__(self, stub: Callable[..., Any], *, yes_or_no: bool = False, **about: Any):
        super().__init__(stub, faults=(), **about)
        self._yes_or_no, self._about = yes_or_no, about

    def answered(self, reference: Callable[..., Any], *, faults: Iterable[Fault]) -> Exercise:
        """The whole exercise, for the file that stays with the instructor.

        Args:
            reference: the right answer, with each step that can go wrong as a keyword argument.
            faults: the mistakes that are known.

        Raises:
            InputError: if the right answer has another name, or answers yes or no where that was not said.
        """
        if reference.__name__ != self.name:
            raise InputError(f"the right answer to {self.name} is called {reference.__name__}; it needs the same name")
        whole = Exercise(reference, faults=faults, **self._about)
        if len(whole.draw(0)) != len(self.draw(0)):
            raise InputError(f"{self.name}: yes_or_no={self._yes_or_no}, but the right answer says otherwise")
        return whole

    def __call__(
        self,
        answer: Any,
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Print whether an answer runs on all inputs; whether it is right, only the grader knows."""
        seed = secrets.randbits(32) if seed is None else seed
        cases = self.draw(seed, dtype, device)
        problem = self.observe(answer, cases, seed).problem
        runs = f"it runs on all {len(cases)} inputs, and is graded after it has been handed in"
        print(f"{self.name}: {problem.says if problem else runs}")

    def use(self, answer: Any) -> Any:
        """The answer, right or wrong, since there is no solution to go on with."""
        self(answer)
        return answer

    def hint(self) -> None:
        """Print the next hint."""
        if self._hinted < len(self.hints):
            super().hint()
        else:
            print("no more hints")

    def judge(self, cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
        """Refused.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"the right answer to {self.name} is not here; `grade` finds it in the file named by --answers"
        )

    def is_yes_or_no(self, first: Case, seed: int) -> bool:
        return self._yes_or_no
