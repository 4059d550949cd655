"""The Gaussian field on the fused kernel."""

import copy

import pytest
import torch
from scoring import RECIPES, long_inputs
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from sciformer import (
    EnergyWellScore,
)
from sciformer.fast import attention
from sciformer.teach.properties import B, D, H, L, random_qkv


def test_a_copied_gaussian_field_takes_the_flash_kernel():
    inputs = random_qkv(B, H, L, L, D, dtype=torch.float32)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        attention(copy.deepcopy(RECIPES["gaussian field"](H, D)), *inputs)


@pytest.mark.parametrize("is_causal", [True, False])
def test_gaussian_field_takes_the_flash_kernel(is_causal):
    inputs = random_qkv(B, H, L, L, D, dtype=torch.float32, requires_grad=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        output, _ = attention(RECIPES["gaussian field"](H, D), *inputs, is_causal=is_causal)
        output.sum().backward()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("start", [1 / 32, 0.5])
def test_gaussian_field_is_exact_at_length_4096(start, dtype, tolerance):
    score = EnergyWellScore(2, 16, form="field", start=start)
    inputs = long_inputs(4096, dtype)
    fast, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score, *(x.double() for x in inputs), is_causal=True, need_weights=True)
    assert fast.dtype == dtype
    assert_close(fast.double(), exact, rtol=0, atol=tolerance)


def test_gaussian_field_in_float16_takes_the_blocks():
    """α ‖k‖² is past float16's largest number, 65,504, where α d² is not."""
    score = EnergyWellScore(2, 16, form="field", start=10.0)
    inputs = [x.half() + 30 for x in random_qkv(1, 2, 64, 64, 16)]
    assert attention(score, *inputs)[0].isfinite().all()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("far", [0, 10, 100])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.008), (torch.float16, 0.004)], ids=str)
def test_gaussian_field_in_half_precision_is_exact_far_from_0(dtype, tolerance, far, is_causal, autocast):
    """In bfloat16 2 α q·k would be off by 9 at 100, and the output by 0.24; what is left is the output's rounding.

    At 100 float32 adds an error of its own, since ‖q‖² is 160,000 there: 0.003 in the output.
    """
    score = EnergyWellScore(2, 16, form="field")
    query, key, value = random_qkv(1, 2, 512, 512, 16)
    inputs = [x.to(dtype) for x in (query + far, key + far, value)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output, _ = attention(score, *inputs, is_causal=is_causal)
    exact, _ = attention(score.double(), *(x.double() for x in inputs), is_causal=is_causal, need_weights=True)
    assert output.dtype == dtype
    assert_close(output.double(), exact, rtol=0, atol=tolerance)
