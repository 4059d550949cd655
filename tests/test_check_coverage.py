"""What the cases of every exercise cover, and that an answer which is right only on one side of an edge is noticed."""

import pytest
import torch
from torch import Tensor

from sciformer.check import EXERCISES, Case, Exercise, Fault
from sciformer.check.coverage import edges, is_bound
from sciformer.check.observing import Call, Observation
from sciformer.check.values import plain
from sciformer.check.written_tests import WrittenTest

NAMED = {"ids": lambda exercise: exercise.name}
WITH_INPUTS = [exercise for exercise in EXERCISES.values() if not isinstance(exercise, WrittenTest)]
#: What the cases of an exercise do not vary, although its right answer could: with the reason.
NOT_VARIED = {
    ("mask_afterwards", "the last two sizes of `weights` are equal"): "words look at words: its prompt says (L, L)",
    ("mask_afterwards", "the last two sizes of `attn_mask` are equal"): "likewise",
    ("grouped_attention", "the last two sizes of `w_o` are equal"): "the layer gives as many features as it takes",
    ("future_leaks", "the last axis of `x` is shorter than 4"): "its attentions leak from one of two features",
    ("rotary_scores", "the last two sizes of `turns` are equal"): "a matrix turns D numbers into D",
    ("embed_patches", "the last two sizes of `weight` are equal"): "patches are square: its prompt says (E, C, P, P)",
    ("write_on", "the last two sizes of `table` are equal"): "a row of logits for each character of the vocabulary",
    ("previous_token_score", "the last two sizes of `weights` are equal"): "a sequence looks at itself: (B, H, L, L)",
    ("prefix_matching_score", "the last two sizes of `weights` are equal"): "likewise",
}


def halfway(exercise, cases, condition, seed):
    """What an answer does that is right only where a condition holds: elsewhere all its results are one too large."""
    seen = Observation()
    for case in cases:
        right = exercise.numbers(exercise.reference, case, seed)
        output = right if condition.holds(case.inputs) is not False else changed(right)
        seen.calls.append(Call(output, output, {name: plain(x) for name, x in case.inputs.items()}))
    return seen


def changed(result):
    if isinstance(result, list):
        return [changed(x) for x in result]
    if isinstance(result, Tensor):
        return ~result if result.dtype == torch.bool else result + 1
    if isinstance(result, str):
        return f"not {result}"
    return not result if isinstance(result, bool) else result + 1


@pytest.mark.parametrize("exercise", WITH_INPUTS, **NAMED)
def test_an_answer_that_is_right_on_one_side_of_an_edge_is_not_called_correct(exercise, monkeypatch):
    monkeypatch.setattr("sciformer.check.judging.find_cause", lambda *_, **__: None)
    for seed in range(3):
        cases = exercise.draw(seed)
        tried = [edge.condition for edge in edges(exercise, seed) if edge.beyond]
        for condition in tried:
            diagnosis = exercise.judge(cases, halfway(exercise, cases, condition, seed), seed)
            assert not diagnosis.correct, condition.says


@pytest.mark.parametrize("exercise", WITH_INPUTS, **NAMED)
def test_every_axis_that_may_vary_does(exercise):
    for seed in range(3):
        kept = [edge.condition for edge in edges(exercise, seed) if edge.condition.plain and not edge.beyond]
        free = {c.says.removeprefix("only where ") for c in kept if not is_bound(exercise, c, seed)}
        assert not {says for says in free if (exercise.name, says) not in NOT_VARIED}


def test_nearly_all_exercises_have_edges():
    without = [e.name for e in WITH_INPUTS if not any(edge.beyond for edge in edges(e, 0))]
    assert len(without) <= 1, without


def toy(*sizes):
    def add(x, y, *, sign=1):
        return x + sign * y

    def cases(draw):
        for rows, columns in sizes:
            yield Case(f"{rows} × {columns}", {"x": draw.normal(rows, columns), "y": draw.normal(rows, columns)})

    faults = [Fault("subtracted", "It is subtracted.", sign=-1)]
    return Exercise(add, notebook="99", section="Sums", level="easy", minutes=1, cases=cases, faults=faults)


def test_an_edge_that_no_case_crosses_is_noticed():
    found = {edge.condition.says: (edge.within, edge.beyond) for edge in edges(toy((3, 3), (5, 5)), 0)}
    assert found["only where the last two sizes of `x` are equal"] == (2, 0)
    assert found["only where `x` and `y` are equally long"] == (2, 0)
    assert found["only where the last axis of `x` is shorter than 4"] == (1, 1)


def test_what_the_right_answer_cannot_do_without_is_no_edge():
    exercise = toy((3, 3), (5, 5))
    found = {edge.condition.says: edge.condition for edge in edges(exercise, 0)}
    assert is_bound(exercise, found["only where `x` and `y` are equally long"], 0)
    assert not is_bound(exercise, found["only where the numbers of `x` lie between −50 and 50"], 0)
