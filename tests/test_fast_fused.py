"""The dot product on the fused kernel."""

import pytest
from scoring import largest_made
from torch.testing import assert_close

from sciformer import (
    DotProductScore,
)
from sciformer.fast import attention
from sciformer.teach.properties import B, D, H, L, random_qkv


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_a_scale_that_is_not_positive_hides_the_future_too(scale):
    inputs = random_qkv(B, H, L, L, D)
    score = DotProductScore(H, D, scale=scale)
    assert_close(score(*inputs[:2]), scale * inputs[0] @ inputs[1].mT)
    fast, readable = (attention(score, *inputs, is_causal=True, need_weights=weights)[0] for weights in (False, True))
    assert_close(fast, readable)


def test_the_causal_dot_product_holds_neither_scores_nor_mask():
    inputs = random_qkv(B, H, 64, 64, D, requires_grad=True)
    assert largest_made(DotProductScore(H, D), inputs, is_causal=True) == B * H * 64 * D
