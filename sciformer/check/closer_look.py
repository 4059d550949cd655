"""What only further calls of an answer can tell: a smaller input, an input without effect, a line, extreme inputs."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import fill
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sciformer.check.causes import TWO_MISTAKES, UNDECIDED
from sciformer.check.changing import is_finite, larger_change, small_change, stable_change, where_unstable
from sciformer.check.conditions import separating
from sciformer.check.judging import CUT
from sciformer.check.observing import Case, Observation, copied, is_own, own_line
from sciformer.check.probing import probes
from sciformer.check.programs import program_of
from sciformer.check.repairing import Change, drops_axes, loop_that_ends_at_once
from sciformer.check.shrinking import shrunk
from sciformer.check.symptoms import RIGHT_CASES, RIGHT_ONLY, UNKNOWN, difference, of_truth_values
from sciformer.check.telling import LONGEST, SMALLEST, Diagnosis, counterexample, message, message_of_a_stop
from sciformer.check.tracing import first_wrong_line, line_that_changes
from sciformer.check.values import plain, same, table
from sciformer.check.variants import not_contiguous

if TYPE_CHECKING:
    from sciformer.check.exercise import Exercise

Inputs = dict[str, Any]
#: Kinds of what is wrong with a result.
_OF_NUMBERS = ("wrong numbers", "wrong shape", "NaN", "likely mistake", "known mistake")


def seen_closer(
    exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], seen: Observation, seed: int
) -> Diagnosis:
    """A diagnosis with all that further calls of the answer can tell."""
    if diagnosis.correct:
        return _if_stable(exercise, diagnosis, answer, cases, seed) or (
            _if_contiguous(exercise, diagnosis, answer, cases, seed) or diagnosis
        )
    if diagnosis.kind == "raises":
        diagnosis = _named_by_other_cases(exercise, diagnosis, answer, cases, seed) or diagnosis
    if diagnosis.kind == "likely mistake" and exercise.safely(lambda: _quotes_another(diagnosis, answer)):
        diagnosis = replace(diagnosis, kind="wrong numbers", message=diagnosis.symptom)
    if diagnosis.kind in _OF_NUMBERS or diagnosis.kind == "raises":
        known = diagnosis.kind == "known mistake" and not _is_a_guess(diagnosis)
        change = small_change(exercise, answer, cases, seed, known=known)
        if change is None and not _is_one_slip(diagnosis):
            change = larger_change(exercise, answer, cases, seed, known=known)
        if diagnosis.kind in _OF_NUMBERS and SMALLEST in diagnosis.message:
            return _located(exercise, diagnosis, answer, cases, seen, seed, change)
        at, told = diagnosis.message.rindex("\n  read again"), _told(change, known=known)
        return replace(diagnosis, message=diagnosis.message[:at] + told + diagnosis.message[at:])
    if diagnosis.kind == "changes its input":
        return _with_the_line_that_writes(exercise, diagnosis, answer, cases, seed)
    if diagnosis.kind == "no gradient":
        return exercise.safely(lambda: _with_what_cuts(exercise, diagnosis, answer)) or diagnosis
    return diagnosis


def _if_stable(
    exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int
) -> Diagnosis | None:
    """The diagnosis of a right answer whose exponentials overflow for large inputs; None where none does."""
    unstable = next(where_unstable(exercise, answer, cases, seed), None)
    if unstable is None:
        return None
    case, condition, inputs, wanted, got = unstable
    program = exercise.safely(lambda: ast.unparse(program_of(answer))) or ""
    says, advice = _of_extremes(condition, inputs, program, finite=is_finite(got))
    rows = table({name: plain(x) for name, x in inputs.items()} | {"expected": wanted, "got": got}, 8)
    more = fill(f"{says} {advice}", 96, initial_indent="  ", subsequent_indent="  ")
    changed = "made smaller" if exercise.small else "enlarged"
    change = stable_change(exercise, answer, cases, seed)
    told = "" if change is None else change.told().replace("it would be right", "it would be stable")
    says_all = f"{diagnosis.message}, but unstable\n{more}{told}\n  {case.name}, {changed}:{rows}"
    return replace(diagnosis, kind="unstable", says=says, message=says_all, symptom=says_all)


def _if_contiguous(
    exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int
) -> Diagnosis | None:
    """The diagnosis of a right answer that is not right for the same numbers in another order of memory."""
    for case in cases:
        inputs = not_contiguous(case.inputs)
        wanted, problem = exercise.plainly(exercise.reference, inputs, seed=seed), None
        try:
            got = exercise.plainly(answer, inputs, seed=seed)
        except Exception as error:
            got, problem = None, own_line(error)
        if same(got, wanted):
            continue
        says = "For inputs that are not contiguous in memory, as after a transpose, it is not right."
        line = f"\n  in your line: {problem}" if problem else ""
        advice = fill(f"{says} Take `reshape` in place of `view`.", 96, initial_indent="  ", subsequent_indent="  ")
        told = f"{diagnosis.message}, but only for contiguous inputs\n{advice}{line}\n  on this input: {case.name}"
        return replace(diagnosis, kind="unstable", says=says, message=told, symptom=told)
    return None


def _named_by_other_cases(
    exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int
) -> Diagnosis | None:
    """The diagnosis of an answer that stops, if it has the numbers of one known mistake wherever it does not."""

    def results(one: Any) -> list[Any]:
        return [exercise.safely(partial(exercise.plainly, one, case.inputs, seed=seed)) for case in cases]

    wanted, got = results(exercise.reference), results(answer)
    survived = [n for n, output in enumerate(got) if output is not None]
    if all(same(got[n], wanted[n]) for n in survived):
        return None
    known = []
    for fault in exercise.faults:
        theirs = results(exercise.wrong_answer(fault))
        if all(theirs[n] is not None and same(theirs[n], got[n]) for n in survived):
            known.append(fault)
    if len(known) != 1:
        return None
    told = message_of_a_stop(exercise, known[0].says, diagnosis.says, see=known[0].see)
    return replace(diagnosis, kind="known mistake", says=known[0].says, message=told, faults=(known[0].name,))


def _quotes_another(diagnosis: Diagnosis, answer: Any) -> bool:
    """Whether a generated mistake is told with a part of the right answer that is no part of the student's."""
    program = re.sub(r"\s", "", ast.unparse(program_of(answer)))
    quoted = re.findall(r"`([^`]*[(\[][^`]*)`", diagnosis.says)
    return any(re.sub(r"\s", "", part) not in program for part in quoted)


def _is_a_guess(diagnosis: Diagnosis) -> bool:
    """Whether the mistake was guessed from the numbers, so that one change of the program says more."""
    return diagnosis.kind == "likely mistake" or diagnosis.says.startswith(TWO_MISTAKES)


def _is_one_slip(diagnosis: Diagnosis) -> bool:
    """Whether a single generated mistake has been found that explains all numbers."""
    return diagnosis.kind == "likely mistake" and not diagnosis.says.startswith((TWO_MISTAKES, UNDECIDED))


def _located(
    exercise: "Exercise",
    diagnosis: Diagnosis,
    answer: Any,
    cases: list[Case],
    seen: Observation,
    seed: int,
    change: Change | None,
) -> Diagnosis:
    """The same diagnosis with what only further calls of the answer can tell: a smaller input, and a line."""
    dropped = drops_axes(answer) if "axis of size 1 too few" in diagnosis.says else None
    if dropped and change and change.idle:  # what another way does says less than the step that is wrong
        change = None
    if change and _is_a_guess(diagnosis):  # what was guessed from the numbers speaks of another program
        kind = "wrong numbers" if diagnosis.kind == "known mistake" else diagnosis.kind
        diagnosis = replace(diagnosis, kind=kind, message=diagnosis.symptom, faults=())
    known = diagnosis.kind == "known mistake"
    told_change = _told(change, known=known)
    wrong = [
        n
        for n, call in enumerate(seen.calls)
        if not same(call.output, exercise.numbers(exercise.reference, cases[n], seed))
    ]
    case, last = cases[wrong[0]], cases[wrong[-1]]
    look = exercise.safely(
        lambda: look_closer(
            partial(exercise.plainly, answer, seed=seed),
            partial(exercise.plainly, exercise.reference, seed=seed),
            case.inputs,
            last.inputs if diagnosis.kind == "wrong numbers" else None,
            [other.inputs for other in cases if other is not last],
            partial(exercise.plainly, change.answer, seed=seed) if change else None,
        )
    )
    if look is None:
        return diagnosis
    name = case.name if look.inputs is case.inputs else f'cut down from the case "{case.name}"'
    line = loop_that_ends_at_once(answer) if change is None or change.where else None
    if change is None and line is None:
        line = _first_wrong_line(exercise, answer, cases, seed, known=known)
    told = [sentence for sentence in (look.probe, line, None if change else dropped) if sentence]
    sentences = "".join(f"\n{fill(s, 96, initial_indent='  ', subsequent_indent='  ')}" for s in told)

    def inserted(message: str, more: str) -> str:
        first, rest = message.split(SMALLEST, 1)
        last = rest[rest.rindex("\n  read again") :]
        most = LONGEST - 1 - sum(part.count("\n") for part in (first, more, last, SMALLEST))
        return f"{first}{more}{counterexample(exercise, name, look.inputs, look.expected, look.got, most)}{last}"

    diagnosis = diagnosis if known else _on_more_inputs(exercise, diagnosis, answer, cases, seed)
    diagnosis = _without_unknown(exercise, diagnosis) if sentences + told_change else diagnosis
    diagnosis = _without_chance(exercise, diagnosis, answer, cases, wrong, seed)
    full = diagnosis.message
    if change and RIGHT_CASES in diagnosis.says:  # where a line is told, they tell nothing more
        full = _message_of(exercise, diagnosis.says.split(RIGHT_CASES)[0], diagnosis)
    told_all = inserted(full, sentences + told_change)
    return replace(diagnosis, message=told_all, symptom=inserted(diagnosis.symptom, sentences))


def _on_more_inputs(exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int) -> Diagnosis:
    """The diagnosis with what holds of the results on inputs of other seeds, too, and not on these cases by chance."""

    def told(inputs: list[Inputs]) -> str:
        wanted = [exercise.plainly(exercise.reference, one, seed=seed) for one in inputs]
        got = [exercise.safely(partial(exercise.plainly, answer, one, seed=seed)) for one in inputs]
        wrong = [n for n, result in enumerate(got) if result is not None and not same(result, wanted[n])]
        of_these = [inputs[n] for n in wrong]
        return difference([wanted[n] for n in wrong], [got[n] for n in wrong], of_these, exercise.returns)[1]

    given = [case.inputs for case in cases]
    few = exercise.safely(partial(told, given)) or ""
    here = few if few in diagnosis.says else few.replace(UNKNOWN, "")
    if not few or here not in diagnosis.says:
        return diagnosis
    further = [case.inputs for n in range(1, 4) for case in exercise.draw(seed + n)]
    many = exercise.safely(partial(told, given + further))
    if many is None or many == few:
        return diagnosis
    says = diagnosis.says.replace(here, many if here == few else many.replace(UNKNOWN, ""))
    text = _message_of(exercise, says, diagnosis)
    return replace(diagnosis, says=says, message=text, symptom=text)


def _without_unknown(exercise: "Exercise", diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis without the admission that nothing is known, where something is about to be told."""
    if UNKNOWN not in diagnosis.says:
        return diagnosis
    says = diagnosis.says.replace(UNKNOWN, "")
    told = _message_of(exercise, says, diagnosis)
    return replace(diagnosis, says=says, message=told, symptom=told)


def _message_of(exercise: "Exercise", says: str, diagnosis: Diagnosis) -> str:
    """The message of a diagnosis with other sentences, and the same below them."""
    return message(exercise, says, SMALLEST + diagnosis.message.split(SMALLEST, 1)[1].rsplit("\n  read again", 1)[0])


def _without_chance(
    exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], wrong: list[int], seed: int
) -> Diagnosis:
    """The diagnosis without "right only where …", or with another, if the answer stays wrong on inputs made so."""

    def is_right(inputs: Inputs) -> bool | None:
        try:
            wanted = exercise.plainly(exercise.reference, inputs, seed=seed)
        except Exception:  # such inputs make no sense
            return None
        got = exercise.safely(partial(exercise.plainly, answer, inputs, seed=seed))
        return same(got, wanted) if is_finite(wanted) else None

    right = [case.inputs for n, case in enumerate(cases) if n not in wrong]
    separate = partial(separating, right, [cases[n].inputs for n in wrong], of_values=diagnosis.kind != "wrong shape")
    told = separate() if right else None
    holds = separate(is_right) if told else None
    if told == holds:
        return diagnosis
    pattern = re.compile(r"\s*" + r"\s+".join(map(re.escape, RIGHT_ONLY.format(told).split())))
    more = fill(RIGHT_ONLY.format(holds), 96, initial_indent="\n  ", subsequent_indent="  ") if holds else ""
    diagnosis = _without_unknown(exercise, diagnosis) if holds else diagnosis
    return _replaced(diagnosis, pattern, more)


def _replaced(diagnosis: Diagnosis, pattern: re.Pattern[str], by: str) -> Diagnosis:
    """The diagnosis with other words in all that it says."""

    def replaced(text: str) -> str:
        first, mark, rest = pattern.sub(by, text).partition(SMALLEST)
        return fill(" ".join(first.split()), 96, subsequent_indent="  ") + mark + rest

    says, told, seen = pattern.sub(by, diagnosis.says), replaced(diagnosis.message), replaced(diagnosis.symptom)
    return replace(diagnosis, says=says, message=told, symptom=seen)


def _first_wrong_line(exercise: "Exercise", answer: Any, cases: list[Case], seed: int, *, known: bool) -> str | None:
    """A sentence about the line that has the mistake, tried on more inputs than these cases'.

    Args:
        known: whether the mistake has its name; the line's plain numbers, which may be right, are left out then.
    """
    inputs = [case.inputs for case in (*cases, *exercise.draw(seed + 1))]
    run, reference = (partial(exercise.plainly, one, seed=seed) for one in (answer, exercise.reference))
    own = lambda code: is_own(code.co_filename)  # noqa: E731
    return exercise.safely(lambda: first_wrong_line(run, reference, inputs, own, plain_numbers=not known))


def _with_the_line_that_writes(
    exercise: "Exercise", diagnosis: Diagnosis, answer: Any, cases: list[Case], seed: int
) -> Diagnosis:
    def run(inputs: dict[str, Any]) -> Any:
        return exercise.call_with(answer, inputs)  # not a copy, for once

    def look() -> str | None:
        for case in cases:
            inputs = {name: copied(x, False) for name, x in case.inputs.items()}
            if line := line_that_writes(run, inputs, lambda code: is_own(code.co_filename)):
                return line
        return None

    line = exercise.safely(look)
    if line is None:
        return diagnosis
    message = diagnosis.message.replace("\n    before", f"\n  in your line: {line}\n    before", 1)
    return replace(diagnosis, message=message, symptom=message)


#: What takes numbers out of the graph: how it begins in a program, and how it is told.
_CUTS = {
    ".item(": ".item()",
    ".tolist(": ".tolist()",
    "math.exp(": "math.exp(…)",
    ".numpy(": ".numpy()",
    ".detach(": ".detach()",
    ".data": ".data",
    "float(": "float(…)",
    "tensor(": "torch.tensor(…)",
    "Parameter(": "nn.Parameter(…)",
    "no_grad": "torch.no_grad()",
}


def _with_what_cuts(exercise: "Exercise", diagnosis: Diagnosis, answer: Any) -> Diagnosis:
    """The diagnosis of a lost gradient with those of the steps that lose one that stand in the answer."""
    tree = program_of(answer)
    for node in ast.walk(tree):  # a parameter is made where a module is made, and cuts nothing there
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if getattr(part, "name", "") != "__init__"] or [ast.Pass()]
    program = ast.unparse(tree)
    own = [f"`{told}`" for step, told in _CUTS.items() if step in program]
    if not own:
        return diagnosis
    says = diagnosis.says.replace(CUT, f"In your program {' or '.join(own)} takes numbers out of the graph.")
    told = message(exercise, says)
    return replace(diagnosis, says=says, message=told, symptom=diagnosis.message)


#: What may turn extreme numbers into wrong ones that are finite: by what can be seen of it in a program.
_FINITE = {
    r"-\s?(\d+\.?\d*e\+?\d+|\d{2,}\.?\d*)|finfo": "a finite number, as −100, is taken for minus infinity",
    r"clamp|clip|hardtanh|minimum|maximum|\bmin\(|\bmax\(": "large numbers are cut off by a clamp",
    r"exp2?\(|\be \*\*": "a sum of exponentials comes out as 0",
    r"eps|1e-\d": "a small number that is added makes too much of a difference",
}


def _why_finite(program: str) -> str:
    """A guess at what goes wrong, of what the program contains."""
    without = re.sub(r"(clamp|clip)\([^()]*\)", "clamp()", program)  # whose ends are numbers, too
    guesses = [says for pattern, says in _FINITE.items() if re.search(pattern, without)] or list(_FINITE.values())[:3]
    return f"Perhaps {', or '.join(guesses)}."


def _of_extremes(condition: str, inputs: Inputs, program: str, *, finite: bool) -> tuple[str, str]:
    """What happens to an answer at extreme inputs, and what to do about it."""
    if finite:
        return f"{condition}, the numbers are wrong.", _why_finite(program)
    says = f"{condition}, an exponential overflows or all round to 0."
    tensors = [x for x in inputs.values() if isinstance(x, Tensor)]
    if all(x.dim() < 2 for x in tensors):
        advice = "Subtract the largest exponent from all of them before you take exponentials: a share stays the same."
        return says, advice
    if any(x.dtype == torch.bool for x in tensors):
        return says, (
            "Hide keys before the softmax. Where you take exponentials yourself, subtract a row's largest score first: "
            "the largest of those that are not hidden."
        )
    return says, "Where you take exponentials yourself, subtract a row's largest score first."


def _told(change: Change | None, *, known: bool) -> str:
    """A change in a message: only its line where the mistake is known, so that something is left to do."""
    if change is None:
        return ""
    if change.where:
        return change.told()
    thrown_away = ", whose result is thrown away" if change.new.endswith(f"= {change.old}") else ""
    return f"\n  in your line: {change.old}{thrown_away}" if known else change.told()


@dataclass(frozen=True)
class Look:
    """What was found.

    Args:
        probe: what an input has to do with the mistake.
        inputs: the smallest that show the mistake.
        expected: the right result for them.
        got: the student's.
    """

    probe: str | None
    inputs: Inputs
    expected: Any
    got: Any


def look_closer(
    run: Callable[[Inputs], Any],
    reference: Callable[[Inputs], Any],
    first: Inputs,
    last: Inputs | None,
    others: Sequence[Inputs] = (),
    mended: Callable[[Inputs], Any] | None = None,
) -> Look:
    """Call an answer that gives wrong numbers again.

    Args:
        run: the student's answer as a function of a case's inputs; plain values.
        reference: the right one, likewise.
        first: the first inputs on which the two differ.
        last: the last of them, to be probed; None where the mistake is known already.
        others: the inputs of the other cases.
        mended: the student's answer with the one change that makes it right, if there is one.
    """
    found = probes(run, reference, last, others, mended) if last is not None else None
    how = _how_masks_differ(reference(first), run(first))
    inputs = shrunk(first, lambda cut: _still_differs(run, reference, cut, how))
    return Look(found, inputs, reference(inputs), run(inputs))


def _still_differs(
    run: Callable[[Inputs], Any], reference: Callable[[Inputs], Any], inputs: Inputs, how: str | None
) -> bool:
    try:
        wanted, got = reference(inputs), run(inputs)
        return is_finite(wanted) and not same(wanted, got) and _how_masks_differ(wanted, got) == how
    except Exception:
        return False  # the inputs are none of this exercise's any more


def _how_masks_differ(wanted: Any, got: Any) -> str | None:
    """What a message says of two masks, which has to hold of the input that it shows; None of anything else."""
    masks = all(isinstance(x, Tensor) and x.dtype == torch.bool for x in (wanted, got))
    return of_truth_values([wanted], [got]) if masks else None


def line_that_writes(run: Callable[[Inputs], Any], inputs: Inputs, is_own: Callable[[CodeType], bool]) -> str | None:
    """The student's line that writes into an input."""
    watched = [x for x in inputs.values() if isinstance(x, Tensor)]
    lines = (line_that_changes(lambda: run(inputs), x, is_own) for x in watched)
    return next((line for line in lines if line), None)
