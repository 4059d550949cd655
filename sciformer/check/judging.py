"""What an answer's plain values say about it, compared with the right ones and with those of every known mistake."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sciformer.check.causes import Comparison, Fault, find_cause
from sciformer.check.gradients import agree, gradients
from sciformer.check.observing import Case, Observation, Problem
from sciformer.check.symptoms import RIGHT_CASES, UNKNOWN, symptom
from sciformer.check.telling import Diagnosis, counterexample, listed, message, message_of_a_stop
from sciformer.check.values import plain, same, table
from sciformer.check.variants import one_less

if TYPE_CHECKING:
    from sciformer.check.exercise import Exercise

#: What is said of a lost gradient before the program is looked at.
CUT = (
    "Something takes numbers out of the graph: .item(), .tolist(), .detach(), .data, torch.tensor(…), nn.Parameter(…), "
    "torch.no_grad()."
)


def judge(exercise: "Exercise", cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
    """Compare what an answer gave with the right numbers, then with those of every known mistake."""
    expected = [exercise.numbers(exercise.reference, case, seed) for case in cases]
    got, problem = _regular(cases, seen)
    wrong = [n for n, output in enumerate(got) if not same(output, expected[n])]
    if not wrong:
        if (
            problem
            and problem.kind == "wrong type"
            and (known := _refused_likewise(exercise, cases, got, problem, seed))
        ):
            return known
        return _without_difference(
            exercise, len(got) == len(cases), problem or _of_gradients(exercise, cases, seen, seed)
        )
    kind, says, shown = exercise.evidence(cases, expected, got, wrong)
    told = message(exercise, says, shown)
    compared = Comparison(
        agrees=lambda suspect: _agrees(exercise, suspect, cases, got, wrong[0], seed),
        shows=lambda suspect: _shows(exercise, suspect, cases, expected, got, seed),
        alike=lambda one, two: _alike(exercise, one, two, seed),
        stops=lambda suspect: len(got) < len(cases) and _stops(exercise, suspect, cases[len(got)], seed),
    )
    cause = find_cause(exercise, compared, singly=all(isinstance(output, bool) for output in expected))
    if cause is None:
        return Diagnosis(exercise.name, kind, says, told, symptom=told)
    told = message(exercise, says.replace(UNKNOWN, ""), shown)
    says = message(exercise, cause.says, shown, see=cause.see)
    return Diagnosis(exercise.name, cause.kind, cause.says, says, cause.faults, told)


def evidence(
    exercise: "Exercise", cases: list[Case], expected: list[Any], got: list[Any], wrong: list[int]
) -> tuple[str, str, str]:
    """Kind and sentences of what is wrong with the outputs, and the smallest input that shows it."""
    kind, says = symptom([case.inputs for case in cases], expected, got, exercise.returns)
    case = cases[wrong[0]]
    shown = counterexample(exercise, case.name, case.inputs, expected[wrong[0]], got[wrong[0]])
    right = [case.name for n, case in enumerate(cases[: len(got)]) if n not in wrong]
    if kind == "wrong numbers" and right and "right only" not in says:
        says += f"{RIGHT_CASES}{listed(right)}."
    return kind, says, shown


def _refused_likewise(
    exercise: "Exercise", cases: list[Case], got: list[Any], problem: Problem, seed: int
) -> Diagnosis | None:
    """The diagnosis of an answer that is refused as that of a known mistake is: on the same case, in the same words."""

    def does_the_same(fault: Fault) -> bool:
        seen = exercise.observe(exercise.wrong_answer(fault), cases, seed)
        return seen.problem == problem and same([call.output for call in seen.calls], got)

    known = [fault for fault in exercise.faults if does_the_same(fault)]
    if len(known) != 1:
        return None
    told = message_of_a_stop(exercise, known[0].says, problem.says, see=known[0].see)
    symptom = message(exercise, problem.says)
    return Diagnosis(exercise.name, "known mistake", known[0].says, told, (known[0].name,), symptom)


def _without_difference(exercise: "Exercise", finished: bool, problem: Problem | None) -> Diagnosis:
    if finished and problem is None:
        return Diagnosis(exercise.name, "correct", "correct", f"{exercise.name}: correct")
    problem = problem or Problem("incomplete", "The answer did not finish on all its inputs.")
    if problem.kind == "not attempted":
        return Diagnosis(exercise.name, problem.kind, problem.says, f"{exercise.name}: {problem.says}")
    says = message(exercise, problem.says)
    return Diagnosis(exercise.name, problem.kind, problem.says, says, symptom=says)


def _of_gradients(exercise: "Exercise", cases: list[Case], seen: Observation, seed: int) -> Problem | None:
    """What is wrong with the gradients of an answer whose outputs are right.

    Two right answers may differ in their gradients where they are never asked: that of a matrix which is always
    symmetric, for instance. They agree along every direction that leads to other inputs of the same kind.
    """
    if not exercise.differentiable or len(seen.calls) < len(cases):
        return None
    with torch.random.fork_rng(devices=[]):
        wanted = gradients(*exercise.run(exercise.reference, cases[-1], seed, True), seed)
    wanted = {name: gradient for name, gradient in wanted.items() if gradient is not None}
    inputs, found = cases[-1].inputs, seen.gradients
    lost = sorted(name for name in wanted if not isinstance(found.get(name), Tensor))
    if lost:
        return Problem("no gradient", f"The numbers are right, but no gradient flows back to {', '.join(lost)}. {CUT}")
    others = [exercise.draw(seed + n)[-1].inputs for n in range(1, 5)]
    for name in sorted(wanted):
        here = inputs[name].cpu()
        ways = [other[name] - here for other in others if other[name].shape == here.shape]
        if not agree(found[name], wanted[name], ways):
            says = f"The numbers are right, but the gradient that flows back to {name} is not. {CUT}"
            return Problem("no gradient", says)
    return None


def _agrees(
    exercise: "Exercise", suspect: Callable[..., Any], cases: list[Case], got: list[Any], first: int, seed: int
) -> bool:
    """Whether a wrong answer gives the same numbers, everywhere; most do not on the first wrong case."""
    try:
        return all(same(got[n], exercise.numbers(suspect, cases[n], seed)) for n in (first, *range(len(got))))
    except Exception:
        return False  # the mistake raises where the answer does not, or two mistakes cannot be combined


def _stops(exercise: "Exercise", suspect: Callable[..., Any], case: Case, seed: int) -> bool:
    try:
        exercise.numbers(suspect, case, seed)
    except Exception:
        return True
    return False


def _shows(
    exercise: "Exercise", suspect: Callable[..., Any], cases: list[Case], expected: list[Any], got: list[Any], seed: int
) -> bool:
    """Whether each of several results that a wrong answer gets wrong is wrong in the student's as well."""
    several = all(isinstance(x, list) and len(x) == len(exercise.returns) > 1 for x in (*expected, *got))
    if not several:
        return True
    try:
        theirs = [exercise.numbers(suspect, case, seed) for case in cases[: len(got)]]
        wrong, wrong_of_student = (
            {n for x, e in zip(results, expected, strict=False) for n in range(len(e)) if not same(x[n], e[n])}
            for results in (theirs, got)
        )
    except Exception:
        return False
    return wrong <= wrong_of_student


#: Draws of further inputs on which two mistakes that agree so far are compared.
_FURTHER = 2


def _alike(exercise: "Exercise", one: Callable[..., Any], two: Callable[..., Any], seed: int) -> bool:
    """Whether two wrong answers give the same numbers on further inputs, those of other sizes included."""

    def results(answer: Callable[..., Any], inputs: dict[str, Any]) -> Any:
        try:
            return exercise.numbers(answer, Case("", inputs), seed)
        except Exception as error:
            return type(error).__name__  # a mistake may stop the program, too

    further = [case.inputs for n in range(1, _FURTHER + 1) for case in exercise.draw(seed + n)]
    further += [shorter for inputs in further for shorter in one_less(inputs)]
    return all(same(results(one, inputs), results(two, inputs)) for inputs in further)


def _regular(cases: list[Case], seen: Observation) -> tuple[list[Any], Problem | None]:
    """The outputs up to the first call that changed its input or could not be repeated, and the problem."""
    outputs: list[Any] = []
    for case, call in zip(cases, seen.calls, strict=False):
        changed = [name for name, x in case.inputs.items() if not same(plain(x), call.inputs.get(name))]
        if changed:
            says = f"The answer changes its input `{changed[0]}`. Work on a copy, or do not assign into it."
            rows = {"before": plain(case.inputs[changed[0]]), "after": call.inputs.get(changed[0])}
            return outputs, Problem("changes its input", says + table(rows, 8))
        if not same(call.output, call.again):
            says = "Called twice with the same input, the answer gives different results. Is something kept, or drawn?"
            return outputs, Problem("not repeatable", says)
        outputs.append(call.output)
    return outputs, seen.problem
