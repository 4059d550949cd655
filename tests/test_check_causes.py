"""Which mistake is told: one of several that fit, two that nothing tells apart, one reason for two of them."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch

from sciformer import check
from sciformer.check import Case, Exercise, Fault, causes
from sciformer.check.causes import TWO_MISTAKES, Comparison, find_cause
from sciformer.check.mutants import Mutant


def scaled(x, *, by=2.0, then=lambda y: y):
    return then(x * by)


@dataclass
class Known:
    """An exercise as far as looking for a cause is concerned."""

    faults: tuple = ()
    reference: object = scaled
    names: dict = field(default_factory=dict)

    def wrong_answer(self, *faults, of=None):
        return tuple(fault.name for fault in faults)


def compared(*fitting, shows=lambda answer: True, alike=lambda one, two: False, stops=lambda answer: False):
    return Comparison(agrees=lambda answer: answer in fitting, shows=shows, alike=alike, stops=stops)


@pytest.fixture(autouse=True)
def only_written(monkeypatch):
    monkeypatch.setattr(causes, "mutants", lambda reference: ())


ONE, TWO, THREE = (Fault(name, f"It is {name}.", **{name: True}) for name in ("one", "two", "three"))


def test_a_single_written_mistake_is_told():
    cause = find_cause(Known((ONE, TWO)), compared(("two",)), singly=False)
    assert (cause.kind, cause.says, cause.faults) == ("known mistake", "It is two.", ("two",))


def test_a_mistake_that_is_made_in_another_way_has_the_same_name():
    class BySteps(Known):
        def wrong_answer(self, *faults, of=None):
            return [fault.steps["by"] for fault in faults]

    known = BySteps((Fault("more", "Too much.", also=({"by": 4.0}, {"by": 5.0}), by=3.0),))
    for by in (3.0, 4.0, 5.0):
        assert find_cause(known, compared([by]), singly=True).faults == ("more",)
    assert find_cause(known, compared([6.0]), singly=True) is None


def test_of_two_that_fit_neither_is_believed():
    cause = find_cause(Known((ONE, TWO, THREE)), compared(("one",), ("three",)), singly=False)
    assert cause.kind == "likely mistake"
    assert cause.says == "The numbers do not decide between two mistakes. Perhaps: It is one. Or: It is three."
    assert cause.faults == ()


def test_of_many_that_fit_two_are_named_and_all_are_counted():
    cause = find_cause(Known((ONE, TWO, THREE)), compared(("one",), ("two",), ("three",)), singly=False)
    assert cause.says == "The numbers do not decide between 3 mistakes. Perhaps: It is one. Or: It is two."


def test_two_that_fit_and_have_one_reason_are_told_as_one():
    first = Fault("first", "The first is off.", reason="The factor is missing in both.", first=True)
    second = Fault("second", "The second is off.", reason="The factor is missing in both.", second=True)
    for fitting in ((("first",), ("second",)), (("first", "second"),)):
        cause = find_cause(Known((first, second)), compared(*fitting), singly=False)
        assert cause == causes.Cause("known mistake", "The factor is missing in both.", ("first", "second"))


def test_two_mistakes_without_a_common_reason_are_told_one_after_the_other():
    cause = find_cause(Known((ONE, TWO)), compared(("one", "two")), singly=False)
    assert cause.says == f"{TWO_MISTAKES} It is one. Also: It is two."


def test_a_mistake_that_is_in_every_pair_is_certain():
    cause = find_cause(Known((ONE, TWO, THREE)), compared(("one", "two"), ("one", "three")), singly=False)
    assert cause.faults == ("one",)
    assert cause.says == f"{TWO_MISTAKES} It is one. The other one is one of these: It is two. It is three."


def test_pairs_that_have_nothing_in_common_explain_nothing():
    four = Fault("four", "It is four.", four=True)
    cause = find_cause(Known((ONE, TWO, THREE, four)), compared(("one", "two"), ("three", "four")), singly=False)
    assert cause is None


def test_two_mistakes_that_undo_each_other_in_one_result_explain_nothing():
    known = Known((ONE, TWO))
    assert find_cause(known, compared(("one", "two"), shows=lambda answer: answer != ("two",)), singly=False) is None


def generated(monkeypatch, *names):
    """Slips that stand for themselves as wrong answers."""
    monkeypatch.setattr(causes, "mutants", lambda reference: tuple(Mutant(f"It is `{n}`.", n, n) for n in names))
    monkeypatch.setattr(
        Known, "wrong_answer", lambda self, *faults, of=None: (*(f.name for f in faults), *([of] if of else []))
    )


def test_a_written_mistake_with_a_generated_one(monkeypatch):
    generated(monkeypatch, "slip", "trip")
    cause = find_cause(Known((ONE, TWO)), compared(("two", "trip")), singly=False)
    assert (cause.kind, cause.faults) == ("likely mistake", ("two",))
    assert cause.says == f"{TWO_MISTAKES} It is two. Also: It is `trip`."


def test_two_written_mistakes_are_believed_before_a_written_and_a_generated_one(monkeypatch):
    generated(monkeypatch, "slip")
    cause = find_cause(Known((ONE, TWO)), compared(("one", "two"), ("one", "slip")), singly=False)
    assert (cause.kind, cause.faults) == ("known mistake", ("one", "two"))


def test_one_generated_mistake_is_believed_before_two_of_any_kind(monkeypatch):
    generated(monkeypatch, "slip")
    cause = find_cause(Known((ONE, TWO)), compared("slip", ("one", "two")), singly=False)
    assert cause.says == "It is `slip`."


def test_of_a_slip_that_quotes_nothing_it_is_told_what_is_known(monkeypatch):
    monkeypatch.setattr(causes, "mutants", lambda reference: (Mutant("A factor is missing.", "slip", ""),))
    cause = find_cause(Known(), compared("slip"), singly=False)
    assert cause.says == "The numbers are those of the right answer with one slip. A factor is missing."


def test_the_search_for_two_ends(monkeypatch):
    monkeypatch.setattr(causes, "SEARCH_SECONDS", -1)
    assert find_cause(Known((ONE, TWO)), compared(("one", "two")), singly=False) is None


def test_mistakes_that_change_the_same_step_are_no_pair():
    other = Fault("other", "It is other.", one=False)
    assert find_cause(Known((ONE, other)), compared(("one", "other")), singly=False) is None


def test_a_row_of_yes_and_no_is_explained_by_one_written_mistake_alone():
    assert find_cause(Known((ONE, TWO)), compared(("one", "two")), singly=True) is None
    assert find_cause(Known((ONE, TWO)), compared(("one",)), singly=True).faults == ("one",)


@pytest.mark.parametrize("exercise", ["merge_halves", "gradients_by_hand"])
def test_in_the_exercises_a_reason_is_shared(exercise):
    reasons = [fault.reason for fault in check.EXERCISES[exercise].faults if fault.reason]
    assert reasons
    assert set(Counter(reasons).values()) == {2}


# Generated mistakes, which `only_written` leaves out above.


def summed(x):
    return 2 * x.sum(dim=-1)


def squared(x, y):
    return x**2 + y


def exercise(reference, *cases):
    return Exercise(
        reference,
        notebook="99",
        section="Sums",
        level="easy",
        minutes=1,
        cases=lambda draw: [
            Case(f"of size {sizes}", {n: draw.normal(*sizes) for n in "xy"[:count]}) for sizes, count in cases
        ],
        faults=(),
    )


def told(exercise, answer, monkeypatch):
    monkeypatch.undo()
    return exercise.diagnose(answer, seed=0)


def test_slips_that_are_the_same_program_are_one_mistake(monkeypatch):
    diagnosis = told(exercise(squared, ((3, 5), 2)), lambda x, y: x + y, monkeypatch)
    assert diagnosis.kind == "likely mistake"
    assert diagnosis.says == "The power `** 2` is missing.", "and not also that the exponent is 1"


def test_slips_that_only_other_sizes_tell_apart_are_both_named(monkeypatch):
    """Of two numbers the sum is twice the mean, so a missing factor and a mean look the same."""
    diagnosis = told(exercise(summed, ((3, 2), 1)), lambda x: x.sum(dim=-1), monkeypatch)
    assert diagnosis.says.startswith("The numbers do not decide between two mistakes. Perhaps: ")
    assert "It takes `mean` where `sum` is meant." in diagnosis.says
    assert "The factor `2` is missing" in diagnosis.says
    diagnosis = exercise(summed, ((3, 5), 1)).diagnose(lambda x: x.sum(dim=-1), seed=0)
    assert "do not decide" not in diagnosis.says
    torch.testing.assert_close(summed(torch.ones(2, 3)), torch.full((2,), 6.0))
