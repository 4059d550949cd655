"""The readable path and every fast one side by side: the same results, and the same refusals."""

import math
from functools import partial
from itertools import product

import pytest
import torch
from scoring import RECIPES
from torch.testing import assert_close

from sciformer import (
    SCORES,
    DistanceBiasedScore,
    DotProductScore,
    PreparedScore,
    WindowedScore,
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
    assert set(FAST) <= {*scores, *PreparedScore.__subclasses__(), WindowedScore}


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
@pytest.mark.parametrize(
    "name", ["dot", "distance", "distance on a grid", "additive", "separable", "gaussian field", "lorentzian_well"]
)
def test_both_paths_refuse_queries_and_keys_that_do_not_fit(name, is_causal, monkeypatch):
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score, (query, key, value) = built(RECIPES[name]), random_qkv(B, H, L, L, D)
    for need_weights in (False, True):
        options = {"is_causal": is_causal, "need_weights": need_weights}
        with pytest.raises(ValueError, match="query has head_dim 6, but key has head_dim 4"):
            attention(score, query, key[..., :4], value, **options)
        with pytest.raises(ValueError, match=r"float64 and torch\.float32"):
            attention(score, query, key.float(), value, **options)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, D), (H, 1), (H, D - 2), (H + 1, D), (D, H)])
def test_both_paths_refuse_queries_of_other_heads(recipe, heads, head_dim, monkeypatch):
    """A scale, a slope or a sharpness made for other heads would give weights that look right."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score, (query, key, value) = built(recipe), random_qkv(B, heads, L, L, head_dim)
    message = rf"the score has 3 heads of head_dim 6, got a query of \(2, {heads}, 7, {head_dim}\)"
    with pytest.raises(ValueError, match=message):
        score(query, key)
    for need_weights, is_causal in product((False, True), repeat=2):
        with pytest.raises(ValueError, match=message):
            attention(score, query, key, value, is_causal=is_causal, need_weights=need_weights)


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


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("shape", [(1,), (L,), (L, L), (1, L), (H, L, L), (H, 1, L), (B, 1, 1, L)], ids=str)
def test_every_mask_that_broadcasts_is_served(score, shape, is_causal):
    """On both paths alike, from one number for all to one for each pair."""
    inputs = random_qkv(B, H, L, L, D)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    fast_output, readable = (
        attention(score, *inputs, attn_mask=mask, is_causal=is_causal, need_weights=weights)[0]
        for weights in (False, True)
    )
    assert_close(fast_output, readable)


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_a_mask_on_another_device_is_refused(score, is_causal, need_weights):
    """Torch's fused kernel would read what stands at the mask's address, if anything does."""
    mask = torch.ones(L, L, dtype=torch.bool, device="meta")
    with pytest.raises(ValueError, match="attn_mask is on meta, but queries and keys are on cpu"):
        attention(score, *random_qkv(B, H, L, L, D), attn_mask=mask, is_causal=is_causal, need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize("moved", [1, 2], ids=["key", "value"])
def test_inputs_on_two_devices_are_refused(score, moved, need_weights):
    inputs = list(random_qkv(B, H, L, L, D))
    inputs[moved] = inputs[moved].to("meta")
    with pytest.raises(ValueError, match="must be on one device, got cpu and meta"):
        attention(score, *inputs, need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize("dropout", [math.nan, -0.1, 1.5])
def test_a_dropout_that_is_no_probability_is_refused(score, dropout, need_weights):
    with pytest.raises(ValueError, match=rf"dropout must lie in \[0, 1\], got {dropout}"):
        attention(score, *random_qkv(B, H, L, L, D), dropout_p=dropout, need_weights=need_weights)


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 5, 5), (2, 0, 5), (2, 5, 0), (2, 0, 0)])
def test_nothing_is_served_as_well(score, batch, queries, keys, masked, is_causal):
    """A query without a key gets 0, as where all are hidden; what needs a key for each query says so."""
    inputs = random_qkv(batch, H, queries, keys, D, requires_grad=True)
    mask = torch.ones(queries, keys, dtype=torch.bool) if masked else None
    for need_weights in (False, True):
        options = {"attn_mask": mask, "is_causal": is_causal, "need_weights": need_weights}
        if queries > keys and (is_causal or any(isinstance(part, DistanceBiasedScore) for part in score.modules())):
            with pytest.raises(ValueError, match=r"5 queries .* 0 keys"):
                attention(score, *inputs, **options)
            continue
        output, _ = attention(score, *inputs, **options)
        assert output.shape == (batch, H, queries, D)
        assert not output.any() or keys
        gradients = torch.autograd.grad(output.sum(), inputs, allow_unused=True)
        assert all(g is None or g.isfinite().all() for g in gradients)


def with_second_derivatives(score, inputs, **options):
    """Output, gradients, and the gradients of those, of everything that learns."""
    learned = [*inputs, *score.parameters()]
    output, _ = attention(score, *inputs, **options)
    first = torch.autograd.grad(
        (output * torch.linspace(-1, 1, D)).square().sum(), learned, create_graph=True, allow_unused=True
    )
    total = sum(g.square().sum() for g in first if g is not None)
    second = torch.autograd.grad(total, learned, allow_unused=True)
    return [torch.zeros(()) if x is None else x for x in (output, *first, *second)]


@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "mask and causal", "query by query"])
def test_every_fast_path_has_the_second_derivative_of_the_readable(score, kind, monkeypatch):
    """Torch's fused kernels have none, and so gradients that are to be differentiated take the readable form."""
    if kind == "query by query":
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    inputs = random_qkv(B, H, L, L, D, requires_grad=True)
    options = {"attn_mask": random_mask(L, L) if "mask" in kind else None, "is_causal": "causal" in kind}
    assert_close(
        with_second_derivatives(score, inputs, **options),
        with_second_derivatives(score, inputs, **options, need_weights=True),
        rtol=1e-6,
        atol=1e-8,
    )


def test_a_second_derivative_where_only_some_inputs_learn():
    score, (query, key, value) = DotProductScore(H, D), random_qkv(B, H, L, L, D)
    query.requires_grad_()
    results = []
    for need_weights in (False, True):
        output, _ = attention(score, query, key, value, is_causal=True, need_weights=need_weights)
        (first,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
        results.append((first, *torch.autograd.grad(first.square().sum(), query)))
    assert_close(*results)


def test_the_transforms_of_torch_func_go_through_the_fast_path():
    score, (query, key, value) = DotProductScore(H, D), random_qkv(B, H, L, L, D)

    def total(need_weights, query):
        return attention(score, query, key, value, need_weights=need_weights)[0].square().sum()

    assert_close(*(torch.func.grad(partial(total, weights))(query) for weights in (False, True)))
