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
