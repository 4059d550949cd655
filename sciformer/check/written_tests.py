"""Exercises in which the reader writes the test: it has to accept every right version and reject every faulty one.

This is mutation testing turned round (DeMillo, Lipton & Sayward 1978): the versions are known, and the test is judged.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

from torch import Tensor

from sciformer.check.exercise import Case, Diagnosis, Draw, Exercise, Observation, Problem, WrongType
from sciformer.check.observing import own_line, own_names
from sciformer.check.values import kind_of, plain

#: Of so many survivors the mistake is told in full; of the others, the name.
IN_FULL = 2


class WrittenTest(Exercise):
    """An exercise whose answer is a test: ``answer(version)`` raises an AssertionError where a version is faulty.

    The faulty versions are the known mistakes of another exercise, which are there with a name and a sentence each.

    Args:
        reference: a good test, with each part that a test can lack as a keyword argument.
        of: the exercise whose mistakes are to be found; its answer has to be a function.
        spared: names of mistakes of the other exercise that a good test may let pass.
        right: versions that are right, by what they do otherwise.
        options: as for every exercise.
    """

    def __init__(
        self,
        reference: Callable[..., None],
        *,
        of: Exercise,
        right: Mapping[str, Callable[..., Any]],
        spared: tuple[str, ...] = (),
        **options: Any,
    ):
        self.of, self.right = of, dict(right)
        self.faulty = {fault.name: of.wrong_answer(fault) for fault in of.faults if fault.name not in spared}
        self.sentences = {fault.name: fault.says for fault in of.faults}
        super().__init__(reference, cases=self._versions, call=self._accepts, differentiable=False, **options)

    def _versions(self, draw: Draw) -> Iterator[Case]:
        for name, version in (self.right | self.faulty).items():
            yield Case(name, {"version": version})

    def _accepts(self, answer: Callable[..., Any], version: Callable[..., Any]) -> bool:
        """Whether a test accepts a version. Whatever a faulty one makes a test raise counts as a rejection."""
        try:
            returned = answer(version)
        except AssertionError:
            return False
        except NotImplementedError as error:
            if str(error):
                return False
            raise
        except Exception:
            if version in self.right.values():
                raise
            return False
        if returned is not None:
            says = f"A test rejects with `assert` and returns nothing. This one returns {kind_of(plain(returned))}."
            raise WrongType(says)
        return True

    def evidence(
        self, cases: list[Case], expected: list[Any], got: list[Any], wrong: list[int]
    ) -> tuple[str, str, str]:
        """Kind, sentences and list of the versions that are misjudged; a version may stand in several cases."""
        misjudged = {cases[n].name for n in wrong}
        survivors = [name for name in self.faulty if name in misjudged]
        rejected = [name for name in self.right if name in misjudged]
        says, shown = [], ""
        if survivors:
            says.append(f"{len(survivors)} of {len(self.faulty)} faulty versions survive your test.")
            if len(survivors) == len(self.faulty):
                says.append("Nothing is asserted about the numbers: write `assert` before a comparison.")
            shown += "\n  faulty versions that it accepts:"
            told = [f"{name}: {self.sentences[name]}" for name in survivors[:IN_FULL]]
            others = survivors[IN_FULL:]
            for line in [*told, *(["also: " + "; ".join(others)] if others else [])]:
                shown += "\n" + fill(line, 96, initial_indent="    ", subsequent_indent="      ")
        if rejected:
            says.append(f"It rejects {len(rejected)} of {len(self.right)} right versions.")
            says.append(self._why_rejected(rejected, survivors))
            names = "; ".join(rejected)
            shown += "\n" + fill(
                f"right versions that it rejects: {names}", 96, initial_indent="  ", subsequent_indent="    "
            )
        return ("false alarm" if rejected else "survivors"), " ".join(says), shown

    def _why_rejected(self, rejected: list[str], survivors: list[str]) -> str:
        """What may be wrong with a test that rejects right versions, from those that it accepts."""
        if len(rejected) < len(self.right):
            return (
                "Right versions differ in their last digits, so it probably asks for more digits than rounding leaves: "
                "compare with a tolerance, as torch.testing.assert_close does."
            )
        if len(survivors) == 1:
            return "Only this faulty version passes, so what your test expects has its mistake."
        if 1 < len(survivors) <= IN_FULL + 1:
            return "Only these faulty versions pass, so what your test expects has their mistake."
        return "Is a number that it expects wrong, or does it ask for more digits than rounding leaves?"

    def _explain(self, error: BaseException, case: Case) -> Problem:
        """As for every exercise; where a right version stops, also what it takes."""
        problem = super()._explain(error, case)
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if problem.kind != "raises" or not any("exercises" in Path(file).parts for file in files):
            return problem
        inputs = self.of.draw(0)[-1].inputs.items()
        takes = ", ".join(f"{name} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else name for name, x in inputs)
        why = "This version is right: it stops because of what your test gives it."
        says = f"{why} {self.of.name} takes {takes}, for instance."
        says = fill(says, 96, initial_indent="  ", subsequent_indent="  ")
        return Problem("raises", f"{problem.says}\n{says}")

    def closer(self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
        """The diagnosis with the line by which a test rejects a right version, and the NaN that it compares with."""
        if diagnosis.kind != "false alarm":
            return diagnosis
        rejected = next(n for n, case in enumerate(cases) if case.name in self.right and not seen.calls[n].output)
        try:
            answer(cases[rejected].inputs["version"])
        except Exception as error:
            line, known = own_line(error), own_names(error)
            mark = "\n  right versions that it rejects"
            more = f"\n  by your line: {line}"
            if without := [name for name, x in known.items() if isinstance(x, Tensor) and bool(x.isnan().any())]:
                says = (
                    f"There is NaN in your `{without[0]}`, and NaN equals nothing. Does a row of a mask allow no key?"
                )
                more += "\n" + fill(says, 96, initial_indent="  ", subsequent_indent="  ")
            told = diagnosis.message.replace(mark, more + mark, 1)
            return replace(diagnosis, message=told, symptom=told) if line else diagnosis
        return diagnosis
