"""Attention with a window: the blocks give what the mask gives, and never make what is cut off."""

from functools import partial

import pytest
import torch
from scoring import RECIPES, largest_made
from torch.testing import assert_close

from sciformer import (
    CharTransformer,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    MultiHeadAttention,
    Score,
    WindowedScore,
    attend,
    dot_product_scores,
    window_mask,
)
from sciformer.fast import attention
from sciformer.fast.readable import readable_attention
from sciformer.fast.windowed import FEWEST_QUERIES
from sciformer.functional import InputError
from sciformer.teach.properties import random_qkv

#: Long enough for several blocks, and no multiple of one.
LONG = 3 * FEWEST_QUERIES + 35


def test_a_window_is_a_band():
    one, zero = [True], [False]
    assert window_mask(4, window=1).tolist() == [
        2 * one + 2 * zero,
        3 * one + zero,
        zero + 3 * one,
        2 * zero + 2 * one,
    ]
    assert torch.equal(window_mask(2, 4, window=1, query_offset=2), window_mask(4, window=1)[2:])
    assert torch.equal(window_mask(3, window=0), torch.eye(3, dtype=torch.bool))
    with pytest.raises(InputError, match="2 queries from position 3 reach past 4 keys"):
        window_mask(2, 4, window=1, query_offset=3)
    with pytest.raises(InputError, match="window must be at least 0, got -1"):
        WindowedScore(2, 4, window=-1)


def test_the_score_by_hand():
    query, key = random_qkv(1, 2, 5, 5, 3)[:2]
    scores = WindowedScore(2, 3, window=2)(query, key)
    plain = dot_product_scores(query, key)
    for i in range(5):
        for j in range(5):
            wanted = plain[..., i, j] if abs(i - j) <= 2 else torch.full((1, 2), -torch.inf).double()
            assert_close(scores[..., i, j], wanted)


@pytest.mark.parametrize("masked", ["", "L S", "B 1 L S"])
@pytest.mark.parametrize(
    ("is_causal", "length"),
    [(False, LONG), (True, LONG), (True, 70), (True, 1)],
    ids=["both sides", "causal", "more", "one"],
)
@pytest.mark.parametrize("name", RECIPES)
def test_blocks_give_what_the_mask_gives(name, is_causal, length, masked):
    torch.manual_seed(0)
    query, key, value = (x.requires_grad_() for x in random_qkv(3, 2, length, LONG, 4))
    attn_mask = None
    if masked:  # some rows keep no key inside the window
        attn_mask = torch.rand((length, LONG) if masked == "L S" else (3, 1, length, LONG)) < 0.3
    for window in (0, 5):
        score = WindowedScore(2, 4, window=window, score=RECIPES[name]).double()
        probe, results = torch.randn(3, 2, length, 4).double(), []
        for path in (attention, readable_attention):
            output = path(score, query, key, value, attn_mask=attn_mask, is_causal=is_causal)[0]
            leaves = [query, key, value, *score.parameters()]
            gradients = torch.autograd.grad((output * probe).sum(), leaves, allow_unused=True, materialize_grads=True)
            results.append((output, *gradients))
        assert_close(*results, rtol=1e-8, atol=1e-10)


def test_a_window_as_wide_as_the_text_hides_nothing():
    inputs = random_qkv(2, 2, LONG, LONG, 4)
    for is_causal in (False, True):
        whole = attention(DotProductScore(2, 4), *inputs, is_causal=is_causal)[0]
        assert_close(attention(WindowedScore(2, 4, window=LONG), *inputs, is_causal=is_causal)[0], whole)


@pytest.mark.parametrize("name", ["dot", "distance", "additive", "softmax_exponential_well"])
def test_memory_grows_with_the_length_alone(name):
    made = []
    for length in (1024, 4096):
        inputs = [x.requires_grad_() for x in random_qkv(1, 2, length, length, 4, dtype=torch.float32)]
        score = WindowedScore(2, 4, window=32, score=RECIPES[name])
        made.append(largest_made(score, inputs, is_causal=True))
    assert made[1] <= 4.1 * made[0]
    assert made[1] < 4096 * 4096 / 4


class ByPosition(Score):
    """A score of one's own that counts from the first token."""

    compares_positions = True

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return dot_product_scores(query, key) + torch.arange(key.shape[-2]).sin()


@pytest.mark.parametrize("recipe", [ByPosition, partial(DistanceBiasedScore, width=7)], ids=["own", "grid"])
def test_a_score_that_needs_the_whole_sequence_gets_it(recipe):
    inputs, score = random_qkv(1, 2, LONG, LONG, 4), WindowedScore(2, 4, window=3, score=recipe).double()
    assert_close(attention(score, *inputs)[0], attend(score(inputs[0], inputs[1]), inputs[2])[0])


@pytest.mark.parametrize("inner", [DotProductScore, DistanceBiasedScore, EnergyWellScore])
def test_a_model_with_a_window_writes_the_same_with_a_cache(inner):
    torch.manual_seed(0)
    model = CharTransformer(11, 64, 12, 3, 2, score=partial(WindowedScore, window=4, score=inner)).eval()
    written = model.generate(torch.zeros(2, 1, dtype=torch.int64), 60, temperature=0)
    with torch.no_grad():
        for length in range(1, 61):
            assert torch.equal(model(written[:, :length])[:, -1].argmax(dim=-1), written[:, length])


def test_no_layer_looks_past_its_window():
    torch.manual_seed(0)
    module = MultiHeadAttention(8, 2, score=partial(WindowedScore, window=6)).double()
    x = torch.randn(1, LONG, 8).double()
    jacobian = torch.autograd.functional.jacobian(
        lambda x: module(x, is_causal=True)[0].sum(dim=(0, 2)), x
    )  # (L, 1, L, E)
    reached = jacobian.abs().sum(dim=(1, 3)) > 0
    assert torch.equal(reached, window_mask(LONG, window=6).tril())
