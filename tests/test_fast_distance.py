"""The distance bias on the fused kernel: as one more number in queries and keys, along a sequence and on a grid."""

import pytest
import torch
from scoring import RECIPES, largest_made, long_inputs
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from sciformer import (
    DistanceBiasedScore,
    fast,
)
from sciformer.fast import attention
from sciformer.teach.properties import B, D, H, L, random_qkv


@pytest.mark.parametrize("name", ["distance", "distance to each side"])
def test_causal_distance_takes_the_flash_kernel(name):
    inputs = random_qkv(B, H, L, L, D, dtype=torch.float32, requires_grad=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        output, _ = attention(RECIPES[name](H, D), *inputs, is_causal=True)
        output.sum().backward()


@pytest.mark.parametrize("name", ["distance on a grid", "distance to each side on a grid"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_large_grids_take_the_flash_kernel_and_hold_no_scores(name, is_causal, monkeypatch):
    tokens = 192  # 64 rows of 3
    inputs = random_qkv(B, H, tokens, tokens, D, dtype=torch.float32, requires_grad=True)
    score = RECIPES[name](H, D)
    in_one_block = largest_made(score, inputs, is_causal=is_causal)
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", B * H * tokens**2 - 1)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        assert largest_made(score, inputs, is_causal=is_causal) <= B * H * tokens * (D + 2 + 63 + 8)
    assert in_one_block == B * H * tokens**2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_grid_is_exact(dtype, monkeypatch):
    """Down to the rounding of what goes in: half precision is widened, with autocast or without."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score = DistanceBiasedScore(2, 16, width=28, each_side=True, start=[[3.0, 0.3, 1.0, 1.0], [0.1, 0.0, -0.01, 0.2]])
    inputs = random_qkv(1, 2, 784, 784, 16, dtype=dtype)
    exact, _ = attention(score, *(x.double() for x in inputs), need_weights=True)
    for mixed in (False, True):
        with torch.autocast("cpu", enabled=mixed):
            output, _ = attention(score, *inputs)
        assert output.dtype == dtype
        assert_close(output.double(), exact, rtol=torch.finfo(dtype).eps, atol=2e-5)


def test_where_a_grid_takes_the_blocks(monkeypatch):
    """Where weights are dropped, and where it is so long and thin that it has more borders than are worth it."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    inputs = random_qkv(1, 1, 300, 300, 2)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):  # which no CPU has
        for width, dropout in ((20, 0.5), (1, 0.0)):
            assert attention(DistanceBiasedScore(1, 2, width=width), *inputs, dropout_p=dropout)[0].isfinite().all()


@pytest.mark.parametrize("strength", [0.5, 0.004, -0.01])
def test_causal_distance_is_exact_at_length_8192(strength):
    """A score is off by up to a rounding of the largest λj, 4096 |λ| · 2⁻²⁴, and a weight by twice that share."""
    score = DistanceBiasedScore(2, 16, start=strength)
    inputs = long_inputs(8192, torch.float32)
    fast, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score, *(x.double() for x in inputs), is_causal=True, need_weights=True)
    largest = inputs[2].abs().max().item()
    assert (fast - exact).abs().max() < 2 * abs(strength) * 4096 * 2**-24 * largest


def test_causal_distance_in_bfloat16_knows_its_place():
    """Position 2,000 is the same number as 2,001 in bfloat16; split into parts, λj keeps them apart."""
    score = DistanceBiasedScore(2, 16, start=0.5)
    inputs = long_inputs(2048, torch.bfloat16)
    fast, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score, *(x.double() for x in inputs), is_causal=True, need_weights=True)
    assert fast.dtype == torch.bfloat16
    assert_close(fast.double(), exact, rtol=0, atol=0.02)  # bfloat16 rounds an output of 3 by up to 0.008


def test_a_bias_in_bfloat16_is_held_as_float32_holds_it():
    """In two parts 30,000.3 would be off by up to a quarter."""
    nothing, value = torch.zeros(1, 1, 2, 8, dtype=torch.bfloat16), torch.eye(2, 8, dtype=torch.bfloat16)[None, None]
    bias = torch.tensor([[30_000.3, 30_000.0]])
    output = fast.key_biased_attention(nothing[:, :, :1], nothing, value, bias, scale=1.0)
    assert_close(output[0, 0, :, :2].float(), bias.double().softmax(-1).float(), rtol=0, atol=0.004)


def test_float16_takes_the_blocks():
    """λj√D would be past float16's largest number, 65,504."""
    score = DistanceBiasedScore(2, 16, start=40.0)
    inputs = [x.half() for x in random_qkv(1, 2, 1024, 1024, 16)]
    assert attention(score, *inputs, is_causal=True)[0].isfinite().all()


@pytest.mark.parametrize("strength", [4.0, 0.5, 0.004, -0.01, -0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_causal_distance_keeps_its_bound_at_20000_tokens(dtype, strength):
    """A score is off by |λ| S · 2⁻²⁵, and an output by twice that share of the largest value, and by its rounding."""
    score, S = DistanceBiasedScore(2, 16, start=strength), 20_000
    inputs = [x.to(dtype) for x in long_inputs(S, torch.float64)]
    output, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score.double(), *(x.double() for x in inputs), is_causal=True, need_weights=True)
    rounding = torch.finfo(dtype).eps / 2 + 1e-5
    bound = inputs[2].abs().max().item() * (2 * abs(strength) * S * 2**-25 + rounding)
    assert_close(output.double(), exact, rtol=0, atol=bound)
