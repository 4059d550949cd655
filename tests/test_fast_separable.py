"""Separable attention in linear memory: prefix sums that are exact, under any mask that all queries share."""

import math

import pytest
import torch
from scoring import largest_made
from torch import nn
from torch.testing import assert_close

from sciformer import (
    SeparableAdditiveScore,
    fast,
)
from sciformer.fast import attention
from sciformer.teach.properties import B, D, H, L, built, random_qkv


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
def test_separable_attention_does_not_look_at_a_query(is_causal):
    """The tanh of ∞ is 1, so an infinite query has a row like any other; so has one with a NaN, on the fast path."""
    score, (query, key, value) = built(SeparableAdditiveScore), random_qkv(B, H, L, L, D)
    finite, _ = attention(score, query, key, value, is_causal=is_causal)
    for extreme in (math.inf, math.nan):
        broken = query.index_fill(2, torch.tensor(0), extreme).requires_grad_()
        output, _ = attention(score, broken, key, value, is_causal=is_causal)
        assert_close(output, finite)
        assert not torch.autograd.grad(output.square().sum(), broken)[0].any()
        readable, _ = attention(score, broken, key, value, is_causal=is_causal, need_weights=True)
        assert readable[:, :, 0].isfinite().all() == (extreme == math.inf)


@pytest.mark.parametrize("is_causal", [False, True])
def test_separable_attention_is_linear_in_memory(is_causal):
    score = SeparableAdditiveScore(H, D).double()
    mask = torch.arange(512) < 500
    for attn_mask in (None, mask):
        inputs = random_qkv(B, H, 512, 512, D, requires_grad=True)
        assert largest_made(score, inputs, is_causal=is_causal, attn_mask=attn_mask) <= B * H * 512 * fast.RUN


def test_separable_attention_has_one_output_for_all_queries():
    query, key, value = random_qkv(B, H, L, L, D, requires_grad=True)
    output, _ = attention(SeparableAdditiveScore(H, D).double(), query, key, value)
    assert output.shape == (B, H, L, D)
    assert output.stride(2) == 0
    (gradient,) = torch.autograd.grad(output.square().sum(), query)
    assert not gradient.any()


@pytest.mark.parametrize("mask", [torch.arange(9) > 3, (torch.arange(9) > 3)[None], torch.tensor([True])], ids=str)
def test_separable_attention_takes_any_mask_that_is_the_same_for_all_queries(mask):
    """More keys than queries, and masks of few dimensions; queries 0 and 1 of the last 7 see nothing."""
    score = SeparableAdditiveScore(H, D).double()
    inputs = random_qkv(B, H, 7, 9, D)
    for is_causal in (False, True):
        options = {"attn_mask": mask, "is_causal": is_causal}
        assert_close(
            attention(score, *inputs, **options)[0], attention(score, *inputs, **options, need_weights=True)[0]
        )
        half = SeparableAdditiveScore(H, D).bfloat16(), *(x.bfloat16() for x in inputs)
        assert attention(*half, **options)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize(
    ("mask", "message"), [(torch.zeros(7), "boolean .*float32"), (torch.ones(8, dtype=torch.bool), r"\(8,\)")]
)
def test_separable_attention_refuses_a_wrong_mask_that_is_the_same_for_all_queries(mask, message, is_causal):
    with pytest.raises(ValueError, match=message):
        attention(
            SeparableAdditiveScore(H, D).double(), *random_qkv(B, H, L, L, D), attn_mask=mask, is_causal=is_causal
        )


@pytest.mark.parametrize("spread", [20.0, 200.0])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_causal_separable_is_exact_in_float32(spread, padded):
    """Where scores spread by 200, the exponentials are past float32's range. A score itself is off by its rounding."""
    inputs = random_qkv(1, 2, 2048, 2048, 16, dtype=torch.float32)
    inputs[1].mul_(3).add_(4 * torch.linspace(-1, 1, 2048)[:, None].sin())  # away from 0, to both ends
    mask = torch.arange(2048) % 3 > 0 if padded else None
    results = []
    for dtype, need_weights in ((torch.float32, False), (torch.float64, True)):
        score = SeparableAdditiveScore(2, 16).to(dtype)
        nn.init.constant_(score.weight, spread / 32)
        query, key, value = (x.detach().to(dtype).requires_grad_() for x in inputs)
        output, _ = attention(score, query, key, value, attn_mask=mask, is_causal=True, need_weights=need_weights)
        gradients = torch.autograd.grad(output.square().mean(), [key, value, score.weight])
        results.append([output, *(g / g.abs().max() for g in gradients)])
    for fast_result, exact in zip(*results, strict=True):
        assert_close(fast_result.double(), exact, rtol=0, atol=spread * 2**-21)


@pytest.mark.parametrize("autocast", [False, True])
def test_causal_separable_sums_in_float32_where_inputs_have_fewer_bits(autocast):
    """Values of 1 + x, whose mean goes to 1: with the 8 bits of bfloat16 a sum of 4,096 would stand still at 256."""
    score = SeparableAdditiveScore(2, 16)
    inputs = [x.bfloat16() for x in random_qkv(1, 2, 4096, 4096, 16, dtype=torch.float32)]
    inputs[2] += 1
    with torch.autocast("cpu", enabled=autocast):
        fast_output, _ = attention(score if autocast else score.bfloat16(), *inputs, is_causal=True)
    tail = inputs[0][:, :, -64:], *inputs[1:]
    exact, _ = attention(score.double(), *(x.double() for x in tail), is_causal=True, need_weights=True)
    assert fast_output.dtype == torch.bfloat16
    assert_close(fast_output[:, :, -64:].double(), exact, rtol=0, atol=0.008)  # bfloat16 rounds 1 by up to 0.004
