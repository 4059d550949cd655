"""Blocks of queries: exact, with no whole matrix held, and the same dropout in the backward pass."""

import pytest
import torch
from torch.testing import assert_close

from sciformer import (
    DistanceBiasedScore,
    EnergyWellScore,
    fast,
)
from sciformer.fast import attention, blocks_of_queries, query_blocks
from sciformer.teach.properties import PROPERTIES, B, D, H, L, random_qkv

#: The properties that take the fast path.
IN_BLOCKS = ("hides the future", "empty rows give 0", "decoding is the whole pass", "fast path is exact")


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", IN_BLOCKS)
def test_every_score_keeps_its_promises_in_blocks(recipe, name):
    PROPERTIES[name].test(recipe)


@pytest.mark.parametrize("recipe", [DistanceBiasedScore, EnergyWellScore])
def test_blocks_keep_no_scores_for_the_way_back(recipe, monkeypatch):
    kept = []
    inputs = random_qkv(B, H, 32, 32, D, requires_grad=True)
    score = recipe(H, D).double()

    def largest_kept():
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            attention(score, *inputs)
        return max(kept)

    assert largest_kept() == B * H * 32 * 32
    for queries in (32, 4):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", queries * H * 32)
        assert largest_kept() <= B * H * 32 * D


def test_blocks_draw_the_same_dropout_on_the_way_back(monkeypatch):
    """With values of one, an output is the sum of the weights that were kept, and so is the gradient of its values."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 3 * H * L)
    query, key, value = random_qkv(B, H, L, L, 1, requires_grad=True)
    ones = torch.ones_like(value).requires_grad_()
    torch.manual_seed(0)
    output, _ = attention(DistanceBiasedScore(H, 1).double(), query, key, ones, dropout_p=0.5)
    (gradient,) = torch.autograd.grad(output.sum(), ones)
    assert_close(gradient.sum(), output.sum())
    assert not torch.allclose(output, torch.ones_like(output))


def test_an_error_in_a_block_is_over_once_it_is_raised(monkeypatch):
    """Up to torch 2.11, one that leaves its `checkpoint` stays in every later backward pass while somebody holds it."""
    monkeypatch.setitem(blocks_of_queries.BLOCK_NUMBERS, "cpu", 5)
    query, key, value = (torch.randn(1, 1, length, 4, requires_grad=True) for length in (7, 5, 5))
    with pytest.raises(ValueError, match="reach past 5 keys") as held:
        query_blocks(DistanceBiasedScore(1, 4), query, key, value)
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert held.value
