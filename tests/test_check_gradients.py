"""The gradients of right answers agree with the solution's; those that are partly lost do not."""

import pytest
import torch

from sciformer import check
from sciformer.check import EXERCISES
from sciformer.check.gradients import agree, gradients
from sciformer.exercises.ways import ways_of


def test_gradients_are_those_of_a_random_sum():
    x, y, z = (torch.randn(3, 5, requires_grad=True) for _ in range(3))
    found = gradients({"x": x, "y": y, "z": z, "n": 3}, (2 * x, y.detach(), "text"), seed=7)
    weights = torch.randn(3, 5, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(found.pop("x"), 2 * weights)
    assert found == {"y": None, "z": None}


def test_gradients_may_differ_where_no_input_leads():
    symmetric = [torch.tensor([[1.0, 2.0], [2.0, 5.0]]), torch.tensor([[3.0, -1.0], [-1.0, 0.5]])]
    wanted = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    assert agree(wanted.mT, wanted, symmetric)
    assert not agree(wanted.mT, wanted, [*symmetric, torch.tensor([[0.0, 1.0], [0.0, 0.0]])])
    assert not agree(wanted.mT, wanted, [])
    assert not agree(2 * wanted, wanted, symmetric)
    assert not agree(wanted[0], wanted, symmetric)
    assert not agree(wanted * float("nan"), wanted, symmetric)


def test_a_part_that_is_taken_out_of_the_graph_is_noticed():
    def scaled_dot_product(query, key, value, attn_mask=None):
        scores = query @ key.T / query.shape[-1] ** 0.5
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        e = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        return e / e.sum(dim=-1, keepdim=True).detach() @ value

    diagnosis = check.scaled_dot_product.diagnose(scaled_dot_product, seed=3)
    assert diagnosis.kind == "no gradient"
    assert "flows back to key is not" in diagnosis.says
    assert "In your program `.detach()` takes numbers out of the graph." in diagnosis.says
    assert ".item()" in diagnosis.symptom


DIFFERENTIABLE = [exercise for exercise in EXERCISES.values() if exercise.differentiable]


SEEDS = [
    pytest.param(range(100, 105), id="5 seeds"),
    pytest.param(range(100, 120), id="20 seeds", marks=pytest.mark.seeds),
]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("exercise", DIFFERENTIABLE, ids=lambda exercise: exercise.name)
def test_every_right_way_has_gradients_that_agree(exercise, seeds):
    answers = ways_of(exercise).values()
    assert len(answers) > 1
    for seed in seeds:
        for answer in answers:
            diagnosis = exercise.diagnose(answer, seed=seed)
            assert diagnosis.correct, diagnosis.message
