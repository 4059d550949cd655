"""The readable path and every fast one side by side: the same results, and the same refusals."""

import math

import pytest
import torch
from scoring import RECIPES
from torch.testing import assert_close

from sciformer import (
    SCORES,
    DistanceBiasedScore,
    DotProductScore,
    PreparedScore,
    attend,
    fast,
)
from sciformer.fast import FAST, attention
from sciformer.fast.cache import memory_for
from sciformer.teach.properties import B, D, H, L, built, random_mask, random_qkv


def test_readable_path_is_the_four_lines(score):
    query, key, value = random_qkv(B, H, L, L, D)
    mask = random_mask(B, H, L, L)
    output, weights = attention(score, query, key, value, attn_mask=mask, need_weights=True)
    expected = attend(score(query, key, attn_mask=mask), value, attn_mask=mask)
    assert_close((output, weights), expected)


@pytest.mark.parametrize("in_a_block", [None, 1], ids=["whole", "query by query"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("extreme", [math.inf, math.nan], ids=str)
def test_a_query_that_is_not_finite_touches_no_other_row(score, extreme, is_causal, in_a_block, monkeypatch):
    if in_a_block:
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", in_a_block)
    query, key, value = random_qkv(B, H, L, L, D)
    finite, _ = attention(score, query, key, value, is_causal=is_causal)
    for row in (0, 3):
        broken, others = query.clone(), torch.arange(L) != row
        broken[:, :, row, 1] = extreme
        for need_weights in (False, True):
            output, _ = attention(score, broken, key, value, is_causal=is_causal, need_weights=need_weights)
            assert_close(output[:, :, others], finite[:, :, others])
        if is_causal:  # and decoded token by token
            memory = memory_for(score)
            output = [memory.attend(score, *(x[:, :, i : i + 1] for x in (broken, key, value))) for i in range(L)]
            assert_close(torch.cat(output, dim=2)[:, :, others], finite[:, :, others])


def test_a_subclass_is_never_served_by_its_parents_shortcut():
    class Doubled(DotProductScore):
        def forward(self, query, key, **options):
            return 2 * super().forward(query, key, **options)

    inputs = random_qkv(B, H, L, L, D)
    doubled, _ = attention(Doubled(H, D), *inputs)
    assert_close(doubled, attention(DotProductScore(H, D, scale=2 * D**-0.5), *inputs)[0])


def test_every_fast_path_belongs_to_a_score():
    scores = {getattr(recipe, "func", recipe) for recipe in SCORES.values()}
    assert set(FAST) <= {*scores, *PreparedScore.__subclasses__()}


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(L, L), "boolean .*float32"),
        (torch.ones(L, L + 1, dtype=torch.bool), r"\(7, 8\) .* \(2, 3, 7, 7\)"),
        (torch.ones(5, 1, L, L, dtype=torch.bool), r"\(5, 1, 7, 7\)"),
    ],
)
def test_both_paths_refuse_a_wrong_mask(score, mask, message, need_weights, is_causal, monkeypatch):
    options = {"attn_mask": mask, "need_weights": need_weights, "is_causal": is_causal}
    for in_a_block in (fast.BLOCK_NUMBERS["cpu"], 1):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", in_a_block)
        with pytest.raises(ValueError, match=message):
            attention(score, *random_qkv(B, H, L, L, D), **options)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_both_paths_refuse_values_and_batches_that_do_not_fit(score, need_weights):
    query, key, value = random_qkv(B, H, L, L, D)
    for unfit in ((query, key, value[:, :, 1:]), (query, key[:, :, 1:], value), (query, key[:1], value[:1])):
        with pytest.raises(ValueError, match=r"must share batch and heads, and key and value a length"):
            attention(score, *unfit, need_weights=need_weights)


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("name", ["dot", "distance", "distance on a grid", "additive", "separable", "gaussian field"])
def test_both_paths_refuse_queries_and_keys_that_do_not_fit(name, is_causal, monkeypatch):
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score, (query, key, value) = built(RECIPES[name]), random_qkv(B, H, L, L, D)
    for need_weights in (False, True):
        options = {"is_causal": is_causal, "need_weights": need_weights}
        with pytest.raises(ValueError, match="query has head_dim 6, but key has head_dim 4"):
            attention(score, query, key[..., :4], value, **options)
        with pytest.raises(ValueError, match=r"float64 and torch\.float32"):
            attention(score, query, key.float(), value, **options)


@pytest.mark.parametrize(("heads", "width"), [(1, None), (8, 3)], ids=["sequence", "grid"])
def test_both_paths_refuse_slopes_of_other_heads(heads, width, monkeypatch):
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score = DistanceBiasedScore(heads, D, width=width).double()
    for need_weights in (False, True):
        with pytest.raises(ValueError, match=rf"for 2 heads and . sides, got \({heads},\)"):
            attention(score, *random_qkv(1, 2, L, L, D), is_causal=True, need_weights=need_weights)


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
def test_every_score_drops_weights_on_the_fast_path(score, is_causal):
    """With values of one, an output is the sum of the weights that were kept, each twice as large."""
    query, key, value = random_qkv(B, H, L, L, D)
    torch.manual_seed(0)
    output, _ = attention(score, query, key, torch.ones_like(value), is_causal=is_causal, dropout_p=0.5)
    assert not torch.allclose(output, torch.ones_like(output))
    assert output.mean().item() == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize("is_causal", [True, False])
def test_both_paths_refuse_what_has_no_distance(score, is_causal, monkeypatch):
    """More queries than keys: causal, no score can serve them."""
    query, key, value = random_qkv(B, H, L, L, D)
    for need_weights, in_a_block in ((False, fast.BLOCK_NUMBERS["cpu"]), (False, 1), (True, 1)):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", in_a_block)
        if is_causal:
            with pytest.raises(ValueError, match="7 queries and 5 keys"):
                attention(score, query, key[:, :, :5], value[:, :, :5], is_causal=True, need_weights=need_weights)
        elif isinstance(score, DistanceBiasedScore):
            with pytest.raises(ValueError, match=r"queries from position \d reach past 5 keys"):
                attention(score, query, key[:, :, :5], value[:, :, :5], need_weights=need_weights)
