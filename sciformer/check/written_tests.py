"""Exercises in which the reader writes the test: it has to accept every right version and reject every faulty one.

This is mutation testing turned round (DeMillo, Lipton & Sayward 1978): the versions are known, and the test is judged.
"""

import ast
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Diagnosis, Draw, Exercise, Observation, Problem, WrongType
from sciformer.check.mutants import UNREADABLE, Names, Slip, programs
from sciformer.check.observing import copied, own_line, own_names
from sciformer.check.repairing import in_vain
from sciformer.check.telling import message
from sciformer.check.values import kind_of, plain, same

#: Of so many survivors the mistake is told in full; of the others, the name.
IN_FULL = 2
#: Of so many things that a test lacks the sentence is told.
MOST_LACKS = 3

#: The inputs that a test gives to a version, at each of its calls.
Calls = list[dict[str, Any]]


class Lack(Fault):
    """Something that the inputs of a test lack, and that can be seen in them.

    Args:
        every: whether the inputs of one call lack it; a test lacks it if those of every call do.
        options: as for every mistake.
    """

    def __init__(self, name: str, says: str, *, every: Callable[..., bool], **options: Any):
        super().__init__(name, says, **options)
        self.every = every

    def holds(self, calls: Calls) -> bool:
        """Whether a test with these calls lacks it."""
        return all(self.every(**inputs) for inputs in calls)


#: What a comparison of floating-point numbers may ask for, and how.
_DIGITS = "more digits than rounding leaves: compare with a tolerance, as torch.testing.assert_close does."
_TOO_EXACT = f"Right versions differ in their last digits, so it probably asks for {_DIGITS}"
#: What is said in its place to a test that does allow for rounding.
_WRONG_OR_OPEN = (
    "Your comparison allows for rounding. So a number that it expects is wrong, or right versions may differ by more "
    "on these inputs: because they are much larger than the exercise says, or because rounding decides there."
)
_WRONG_OR_TOO_EXACT = "Is a number that it expects wrong, or does it ask for more digits than rounding leaves?"


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
            return _TOO_EXACT
        if len(survivors) == 1:
            return "Your test accepts this faulty version alone, so the result that it expects has the same mistake."
        if 1 < len(survivors) <= IN_FULL + 1:
            return "Your test accepts these faulty versions alone, so the result that it expects has their mistake."
        return _WRONG_OR_TOO_EXACT

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
        """The diagnosis with what the test does: by which line it rejects a right version, or what it lacks."""
        line, cause, is_tolerant = self._rejecting(answer, cases, seen)
        if "equal to the last bit" in diagnosis.faults and is_tolerant:  # which gives the same verdicts
            diagnosis = self._false_alarm(diagnosis, self._misjudged(cases, seen)[1], cases, seen)
        if diagnosis.kind in ("survivors", "known mistake", "likely mistake"):
            if why := in_vain(answer):
                return self._in_vain(diagnosis, why, cases, seen)
            return self._lacking(diagnosis, answer, cases, seen)
        if diagnosis.kind != "false alarm":
            return diagnosis
        diagnosis = diagnosis if cause else self._too_exact(diagnosis, answer, cases, seen)
        if why := cause or (_WRONG_OR_OPEN if is_tolerant else ""):
            says = diagnosis.says.replace(_WRONG_OR_TOO_EXACT, why).replace(_TOO_EXACT, why)
            diagnosis = self._false_alarm(diagnosis, says, cases, seen)
        if not line:
            return diagnosis
        mark = "\n  right versions that it rejects"
        told = diagnosis.message.replace(mark, f"\n  by your line: {line}{mark}", 1)
        return replace(diagnosis, message=told, symptom=told)

    def _rejecting(
        self, answer: Callable[..., Any], cases: list[Case], seen: Observation
    ) -> tuple[str | None, str, bool]:
        """The student's line that rejects a right version, why none can please it, whether it allows for rounding."""
        rejected = [
            case
            for case, call in zip(cases, seen.calls, strict=False)
            if case.name in self.right and call.output is False
        ]
        if not rejected:
            return None, "", False
        try:
            answer(rejected[0].inputs["version"])
        except Exception as error:
            line, known = own_line(error), own_names(error)
            if "attribute 'dtype'" in str(error):
                says = "It asks for the same type, too, and the numbers that it expects have another one than a right "
                return line, f"{says}version's. Convert one of them, as with `.float()`.", False
            without = [name for name, x in known.items() if isinstance(x, Tensor) and bool(x.isnan().any())]
            nan = f"There is NaN in your `{without[0]}`, and NaN equals nothing. " if without else ""
            if nan or any(map(_hides_all_from_one, known.values())):
                says = "One of your masks hides every key from some query, and there right versions differ."
                return line, f"{nan}{says}", False
            return line, "", _has_a_tolerance(line, str(error))
        return None, "", False

    def _false_alarm(self, diagnosis: Diagnosis, says: str, cases: list[Case], seen: Observation) -> Diagnosis:
        """The diagnosis of a test that rejects right versions, in other words."""
        told = message(self, says, self._misjudged(cases, seen)[2])
        return replace(diagnosis, kind="false alarm", says=says, message=told, symptom=told, faults=())

    def _too_exact(self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seen: Observation) -> Diagnosis:
        """The same diagnosis; where right numbers pass once they are rounded to the digits of a person, with that."""
        says = self._misjudged(cases, seen)[1]
        if _WRONG_OR_TOO_EXACT not in says or not any(
            self.safely(partial(self._accepts, test, partial(_rounded, self.of.reference, dtype)))
            for test in (answer, *_with_a_tolerance(answer))
            for dtype in (torch.float32, torch.float64)
        ):
            return diagnosis
        says = says.replace(_WRONG_OR_TOO_EXACT, f"Its numbers are right, but it asks for {_DIGITS}")
        return self._false_alarm(diagnosis, says, cases, seen)

    def _misjudged(self, cases: list[Case], seen: Observation) -> tuple[str, str, str]:
        """Kind, sentences and list of the versions that are misjudged, from what a test did with all of them."""
        wanted = [case.name in self.right for case in cases]
        got = [call.output for call in seen.calls]
        return self.evidence(cases, wanted, got, [n for n, output in enumerate(got) if output is not wanted[n]])

    def _in_vain(self, diagnosis: Diagnosis, why: str, cases: list[Case], seen: Observation) -> Diagnosis:
        """The diagnosis of a test in which a comparison has no effect: told in place of what follows from it."""
        _, count, versions = self._misjudged(cases, seen)
        says = f"{count} {why}"
        told, symptom = (message(self, text, versions) for text in (says, count))
        return replace(diagnosis, says=says, message=told, symptom=symptom)

    def _lacking(self, diagnosis: Diagnosis, answer: Any, cases: list[Case], seen: Observation) -> Diagnosis:
        """The diagnosis of a test that accepts faulty versions, with what can be seen in what it gives to them.

        Some have the right numbers on the inputs of the test, so the inputs lack something. Others have wrong numbers
        there, and what is asserted does not notice.
        """
        calls = self.safely(partial(self._given, answer))
        if not calls:
            return diagnosis
        given = [fault for fault in self.faults if isinstance(fault, Lack)]
        lacks = [lack for lack in given if self.safely(partial(lack.holds, calls))]
        known = [fault for fault in self.faults if fault.name in diagnosis.faults]
        if known and (known[0] in lacks or not isinstance(known[0], Lack)):
            return diagnosis
        if diagnosis.kind == "likely mistake" and not lacks:  # the inputs do not decide, either
            return diagnosis
        survivors = {
            case.name for case, call in zip(cases, seen.calls, strict=False) if call.output
        } - self.right.keys()
        shown = [name for name in self.faulty if name in survivors and self._differs(self.faulty[name], calls)]
        hidden = survivors.difference(shown)
        lacks = self._largest(lacks, hidden)[:MOST_LACKS]
        says = [fault.says for fault in lacks]
        if shown:
            give = "gives" if len(shown) == 1 else "give"
            which = f"{len(shown)} of them {give}" if hidden else "It gives" if len(shown) == 1 else "All of them give"
            says.insert(
                0,
                f"{which} wrong numbers on the test's own inputs, and your comparison lets them pass."
                f"{self._zeros(shown, calls)} Compare every number with one that you know to be right, and allow no "
                "more than rounding.",
            )
        elif not lacks:
            says.append("On its inputs these versions give the right numbers. Take inputs on which they do not.")
        _, count, versions = self._misjudged(cases, seen)
        if len(says) > 1:
            names = "; ".join(name for name in self.faulty if name in survivors)
            more = fill(f"faulty versions that it accepts: {names}", 96, initial_indent="  ", subsequent_indent="    ")
            versions = f"\n{more}"
        all_told = " ".join([count, *says] if shown or not lacks else says)
        told, symptom = message(self, all_told, versions), message(self, count, versions)
        if shown or not lacks:
            return replace(diagnosis, kind="survivors", says=all_told, message=told, faults=(), symptom=symptom)
        names_of_lacks = tuple(lack.name for lack in lacks)
        return replace(
            diagnosis, kind="known mistake", says=all_told, message=told, faults=names_of_lacks, symptom=symptom
        )

    def _given(self, answer: Callable[..., Any]) -> Calls:
        """The inputs that a test gives to a right version, by name."""
        takes = signature(self.of.reference)
        names = [name for name, x in takes.parameters.items() if x.kind is not Parameter.KEYWORD_ONLY]
        calls: Calls = []

        def version(*args: Any, **options: Any) -> Any:
            given = takes.bind(*args, **options)
            given.apply_defaults()
            calls.append({name: copied(given.arguments[name], False) for name in names})
            return self.of.reference(*args, **options)

        answer(version)
        return calls

    def _differs(self, version: Callable[..., Any], calls: Calls) -> bool:
        """Whether a version gives other numbers than a right one for some of these inputs, or stops."""

        def differs() -> bool:
            return any(not same(plain(version(**x)), plain(self.of.reference(**x))) for x in calls)

        return self.safely(differs) is not False

    def _zeros(self, names: list[str], calls: Calls) -> str:
        """A sentence about zeros that all these versions have too few of, or too many, on these inputs; else ""."""

        def kinds(version: Callable[..., Any]) -> set[str]:
            found = set()
            for x in calls:
                right, got = plain(self.of.reference(**x)), plain(version(**x))
                if isinstance(right, Tensor) and isinstance(got, Tensor) and right.shape == got.shape:
                    found |= {"other numbers where 0 is right"} if bool(((right == 0) & (got != 0)).any()) else set()
                    found |= {"0 where another number is right"} if bool(((right != 0) & (got == 0)).any()) else set()
            return found

        every = [self.safely(partial(kinds, self.faulty[name])) for name in names]
        if every[0] is None or len(every[0]) != 1 or any(found != every[0] for found in every):
            return ""
        return f" They have {every[0].pop()}." if len(every) == 1 else f" Each of them has {every[0].pop()}."

    def _largest(self, lacks: list[Lack], hidden: set[str]) -> list[Lack]:
        """Those that let something pass, but for what is part of another one: no mask is a mask that hides nothing."""
        found: list[tuple[Lack, set[str]]] = []
        for lack in lacks:
            test = self.wrong_answer(lack)
            passes = {name for name, x in self.faulty.items() if self.safely(partial(self._accepts, test, x))}
            found.append((lack, passes))
        found.sort(key=lambda one: -len(one[1]))
        return [
            lack
            for n, (lack, passes) in enumerate(found)
            if passes & hidden and not any(passes <= others for _, others in found[:n])
        ]


def _has_a_tolerance(line: str | None, error: str) -> bool:
    """Whether a comparison allows for rounding, and for more than the last digits of a float32."""
    given = [float(number) for number in re.findall(r"[ra]tol=([\d.e-]*\d)", line or "")]
    near = any(name in (line or "") for name in ("assert_close", "allclose", "isclose")) or "are not close" in error
    return near and (not given or max(given) > 2e-6)


def _hides_all_from_one(x: Any) -> bool:
    """Whether this is a mask with a row without any key."""
    return isinstance(x, Tensor) and x.dtype == torch.bool and x.dim() == 2 and not bool(x.any(dim=-1).all())


def _with_a_tolerance(test: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The test with one `torch.equal` replaced by a comparison with a tolerance, for each that it has."""

    def tolerant(node: ast.AST, names: Names) -> Iterator[Slip]:
        match node:
            case ast.Call(ast.Attribute(torch, "equal"), both, []):
                near = [ast.keyword("atol", ast.Constant(1e-5))]
                yield ast.Call(ast.Attribute(torch, "allclose", ast.Load()), both, near), "A tolerance is missing."

    with suppress(*UNREADABLE):
        return [mutant.answer for mutant in programs(test, tolerant)]
    return []


def _rounded(version: Callable[..., Any], dtype: torch.dtype, *args: Any, **options: Any) -> Any:
    """The result of a version in as many digits as a person writes down."""
    return version(*args, **options).to(dtype).round(decimals=6)
