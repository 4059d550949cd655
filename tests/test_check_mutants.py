"""Mistakes that are generated: each changes something, reads as a sentence, and is recognized in a student's words."""

import math

import pytest

from sciformer import check
from sciformer.check import EXERCISES, causes
from sciformer.check.mutants import mutants
from sciformer.check.values import same
from sciformer.check.written_tests import WrittenTest

NAMED = {"ids": lambda exercise: exercise.name}
#: Of a test only yes and no is seen, and that is never explained by a generated mistake.
EXPLAINED = [exercise for exercise in EXERCISES.values() if not isinstance(exercise, WrittenTest)]


@pytest.fixture(autouse=True)
def all_the_time_in_the_world(monkeypatch):
    """Other tests on the same machine shall not decide what is found."""
    monkeypatch.setattr(causes, "SEARCH_SECONDS", 600)


@pytest.mark.parametrize("exercise", EXPLAINED, **NAMED)
def test_every_exercise_has_mutants_that_read_as_sentences(exercise):
    found = mutants(exercise.reference)
    assert len(found) >= 10
    for mutant in found:
        assert mutant.says.endswith("."), mutant.says
        assert mutant.says[0].isupper() or mutant.says[0] in "`*", mutant.says
        assert "``" not in mutant.says


@pytest.mark.parametrize("exercise", EXPLAINED, **NAMED)
def test_mutants_are_noticed_and_none_breaks_the_checker(exercise):
    """A mutant that is not noticed is as right as the right answer; few exercises have many."""
    cases = exercise.draw(0)
    expected = [exercise.numbers(exercise.reference, case, 0) for case in cases]
    noticed = 0
    for mutant in mutants(exercise.reference):
        seen = exercise.observe(mutant.answer, cases, 0)
        outputs = list(zip([call.output for call in seen.calls], expected, strict=False))
        noticed += seen.problem is not None or any(not same(got, right) for got, right in outputs)
    assert noticed >= 0.6 * len(mutants(exercise.reference))


def test_a_slip_that_nobody_wrote_down_is_named():
    def mine(query, key, value, attn_mask=None):
        scores = query @ key.T / math.exp(query.shape[-1])
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        return scores.softmax(dim=-1) @ value

    diagnosis = check.scaled_dot_product.diagnose(mine, seed=0)
    assert diagnosis.kind == "likely mistake"
    assert "`exp` where `sqrt` is meant" in diagnosis.says


@pytest.mark.parametrize("free", [0, 1])
def test_a_deviation_from_zero_is_named(free):
    def mine(ours, theirs):
        d = ours - theirs
        deviation = (sum(d * d) / (len(d) - free)) ** 0.5
        return d.mean(), deviation / math.sqrt(len(d))

    diagnosis = check.paired_gain.diagnose(mine, seed=0)
    assert diagnosis.kind == "likely mistake"
    assert "without subtracting the mean first" in diagnosis.says


def test_a_written_mistake_and_a_generated_one_are_both_named():
    def mine(query, key, value, attn_mask=None):
        scores = key @ query.T / math.exp(query.shape[-1])  # exchanged, and no root
        if attn_mask is not None and scores.shape == attn_mask.shape:
            scores = scores.masked_fill(attn_mask, -math.inf)
        return scores.softmax(dim=-1) @ value if scores.shape == (len(query), len(value)) else scores @ query

    square = [case for case in check.scaled_dot_product.draw(0) if len(case.inputs["query"]) == len(case.inputs["key"])]
    seen = check.scaled_dot_product.observe(mine, square[:1], 0)
    diagnosis = check.scaled_dot_product.judge(square[:1], seen, 0)
    assert diagnosis.kind == "likely mistake"
    assert diagnosis.faults == ("query and key exchanged",)


def test_a_row_of_yes_and_no_is_not_explained_by_a_generated_mistake():
    diagnosis = check.future_leaks.diagnose(lambda attention, x: len(attention(x)) > 3, seed=0)
    assert diagnosis.kind == "wrong numbers"


def test_an_answer_without_a_source_has_no_mutants():
    scope = {"__name__": "nowhere"}
    exec("def twice(x): return 2 * x", scope)
    assert mutants(scope["twice"]) == ()
