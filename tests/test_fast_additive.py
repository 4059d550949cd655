"""Additive attention with its hidden layer in chunks: exact to the bounds of its numbers, and never held whole."""

import pytest
import torch
from scoring import largest_made
from torch.testing import assert_close

from sciformer import AdditiveScore, fast
from sciformer.fast import attention
from sciformer.fast.additive import LARGEST, AdditiveScores
from sciformer.functional import additive_scores
from sciformer.teach.properties import B, D, H, L, random_qkv


def both(query, key, weight):
    """Scores and gradients by the formula and by the chunks."""
    results = []
    for scores in (additive_scores, AdditiveScores.apply):
        made = scores(query, key, weight)
        torch.manual_seed(0)
        results.append((made, *torch.autograd.grad(made, (query, key, weight), torch.randn_like(made))))
    return results


@pytest.mark.parametrize("numbers", [1, 2 * L * D, 2 * L * L * D, 2**20], ids=["query", "queries", "heads", "whole"])
def test_chunks_of_every_size_are_exact(numbers, monkeypatch):
    monkeypatch.setattr(fast.additive, "HIDDEN_NUMBERS", numbers)
    query, key, _ = random_qkv(B, H, 5, L, D, requires_grad=True)
    plain, chunked = both(query, key, torch.randn(H, D, dtype=torch.float64, requires_grad=True))
    assert_close(chunked, plain)


@pytest.mark.parametrize("spread", [0.01, 1.0, 12.0])
def test_float32_is_as_exact_as_the_formula(spread):
    """1 - 2 r is off by a rounding of 1, as a tanh near 1 is; w adds up head_dim of them."""
    torch.manual_seed(0)
    query, key, _ = (spread * x for x in random_qkv(1, 2, 64, 64, 32))
    weight = torch.randn(2, 32, dtype=torch.float64)
    exact = additive_scores(query, key, weight)
    quick = AdditiveScores.apply(query.float(), key.float(), weight.float())
    plain = additive_scores(query.float(), key.float(), weight.float())
    assert (quick - exact).abs().max() < 4 * max((plain - exact).abs().max(), 2**-24 * weight.abs().sum(-1).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_bounds_the_chunks_are_exact(dtype):
    edge = torch.tensor([-LARGEST, LARGEST, 0.5 - LARGEST, LARGEST - 0.5], dtype=dtype).view(1, 1, 4, 1)
    query, key = edge.clone().requires_grad_(), edge.clone().requires_grad_()
    plain, chunked = both(query, key, torch.ones(1, 1, dtype=dtype, requires_grad=True))
    assert_close(chunked, plain)


@pytest.mark.parametrize("size", [60.0, 400.0])
def test_past_the_bounds_it_is_the_formula(size):
    """Two large numbers that cancel: alone, neither has an exponential that float32 can hold."""
    query, key, value = random_qkv(1, H, L, L, D, dtype=torch.float32)
    score = AdditiveScore(H, D)
    fast_output, _ = attention(score, query + size, key - size, value)
    assert_close(fast_output, attention(score, query + size, key - size, value, need_weights=True)[0])


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_hidden_layer_is_never_held_whole(is_causal, monkeypatch):
    inputs = random_qkv(B, H, 32, 32, D, requires_grad=True)
    score = AdditiveScore(H, D).double()
    monkeypatch.setattr(fast.additive, "HIDDEN_NUMBERS", 4 * 32 * D)  # four queries of a head
    assert largest_made(score, inputs, is_causal=is_causal) == B * H * 32 * 32  # the scores
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 4 * H * 32)
    assert largest_made(score, inputs, is_causal=is_causal) == max(4 * H * 32, 4 * 32 * D, B * H * 32 * D)
