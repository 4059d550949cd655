"""What generation keeps of the past: token by token and in parts, the outputs are those of the whole causal pass."""

import pytest
import torch
from torch.testing import assert_close

from sciformer import DotProductScore, SeparableAdditiveScore
from sciformer.fast import attention
from sciformer.fast.cache import KeyValueCache, SeparableState, memory_for
from sciformer.teach.properties import random_qkv

B, H, L, D = 2, 3, 41, 5


def in_parts(score, inputs, lengths):
    """Outputs of a sequence that comes in parts of these lengths, and the state at the end."""
    state = SeparableState()
    parts = zip(*(x.split(lengths, dim=2) for x in inputs), strict=True)
    return torch.cat([state.attend(score, *part) for part in parts], dim=2), state


@pytest.mark.parametrize("lengths", [[1] * L, [L], [23, 1, 17], [1, 40]], ids=str)
def test_separable_state_equals_the_whole_pass(lengths):
    torch.manual_seed(0)
    score = SeparableAdditiveScore(H, D).double()
    inputs = random_qkv(B, H, L, L, D)
    whole, _ = attention(score, *inputs, is_causal=True, need_weights=True)
    output, _ = in_parts(score, inputs, lengths)
    assert_close(output, whole, rtol=1e-12, atol=1e-12)


def test_separable_state_does_not_grow():
    score, inputs = SeparableAdditiveScore(H, D).double(), random_qkv(B, H, L, L, D)
    for lengths in ([1] * L, [L]):
        _, state = in_parts(score, inputs, lengths)
        assert sum(x.numel() for x in state.past) == B * H * (D + 1)


def test_the_separable_score_and_no_subclass_of_it_is_remembered_as_a_state():
    class Own(SeparableAdditiveScore):
        """Whose formula may be another."""

    assert isinstance(memory_for(SeparableAdditiveScore(H, D)), SeparableState)
    for score in (Own(H, D), DotProductScore(H, D)):
        assert isinstance(memory_for(score), KeyValueCache)


@pytest.mark.parametrize("lengths", [[1] * L, [23, 18]], ids=str)
def test_separable_state_is_stable_where_scores_spread(lengths):
    """Scores from -100 to 100, which float32 could not hold as exponentials."""
    score = SeparableAdditiveScore(H, D)
    torch.nn.init.constant_(score.weight, 100 / D)
    query, key, value = (x.float() for x in random_qkv(B, H, L, L, D))
    key = 10 * key.sign() * torch.linspace(1, 2, L)[:, None]
    key[:, :, 3], key[:, :, 20] = -20, 20
    whole, _ = attention(score.double(), *(x.double() for x in (query, key, value)), is_causal=True, need_weights=True)
    output, _ = in_parts(score.float(), (query, key, value), lengths)
    assert_close(output, whole.float(), rtol=0, atol=1e-5)


def test_separable_state_keeps_the_dtype_and_sums_in_float32():
    score = SeparableAdditiveScore(H, D).bfloat16()
    output, state = in_parts(score, [x.bfloat16() for x in random_qkv(B, H, L, L, D)], [L - 1, 1])
    assert output.dtype == torch.bfloat16
    assert {x.dtype for x in state.past} == {torch.float32}


def test_separable_state_refuses_what_does_not_fit():
    query, key, value = random_qkv(B, H, 1, 1, D)
    with pytest.raises(ValueError, match=r"head_dim 5.*head_dim 4"):
        SeparableState().attend(SeparableAdditiveScore(H, D).double(), query, key[..., :4], value)
