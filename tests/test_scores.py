"""The property suite: every entry of SCORES, those of today and those to come, keeps the same promises."""

import pytest
import torch
from reference import random_mask, random_qkv
from torch import nn
from torch.testing import assert_close

from sciformer import SCORES, DotProductScore, MultiHeadAttention, TransformerBlock, attend, causal_mask
from sciformer.fast import FAST, attention

B, H, L, D = 2, 3, 7, 5
CASES = ["none", "causal", "mask", "mask and causal", "padding"]


@pytest.fixture(params=SCORES)
def score(request):
    """A score whose learnable numbers are away from where they start, so that none is idle by chance."""
    torch.manual_seed(0)
    module = SCORES[request.param](H, D).double()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.rand_like(p))
    return module


def masks(case):
    """Arguments of ``attention`` for one kind of mask."""
    attn_mask = {"mask": random_mask(B, H, L, L), "mask and causal": random_mask(L, L, seed=3)}.get(case)
    if case == "padding":
        attn_mask = (torch.arange(L) < torch.tensor([[L], [3]]))[:, None, None, :]
    return {"attn_mask": attn_mask, "is_causal": "causal" in case}


def allowed(case):
    """What may be attended to, (B, H, L, L)."""
    options = masks(case)
    mask = torch.ones(B, H, L, L, dtype=torch.bool)
    if options["attn_mask"] is not None:
        mask = mask & options["attn_mask"]
    return mask & causal_mask(L) if options["is_causal"] else mask


@pytest.mark.parametrize("case", CASES)
def test_rows_sum_to_one_or_are_empty(score, case):
    _, weights = attention(score, *random_qkv(B, H, L, L, D), need_weights=True, **masks(case))
    assert weights.shape == (B, H, L, L)
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), allowed(case).any(-1).double())
    assert (weights[~allowed(case)] == 0).all()


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_no_gradient_from_the_future(score, need_weights):
    query, key, value = random_qkv(B, H, L, L, D, requires_grad=True)
    output, _ = attention(score, query, key, value, is_causal=True, need_weights=need_weights)
    for i in range(L):
        to_key, to_value = torch.autograd.grad(output[:, :, i].square().sum(), (key, value), retain_graph=True)
        assert not to_key[:, :, i + 1 :].any(), f"query {i} looks ahead at keys"
        assert not to_value[:, :, i + 1 :].any(), f"query {i} looks ahead at values"
        assert to_value[:, :, : i + 1].all()


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_masked_keys_have_no_influence(score, need_weights):
    query, key, value = random_qkv(B, H, L, L, D)
    hidden = (torch.arange(L) >= 4)[:, None]
    outputs = [
        attention(score, query, k, v, attn_mask=~hidden.mT, need_weights=need_weights)[0]
        for k, v in ((key, value), (key + 3.0 * hidden, value - 100.0 * hidden))
    ]
    assert_close(*outputs)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_empty_rows_give_zeros_and_finite_gradients(score, need_weights):
    inputs = random_qkv(B, H, L, L, D, requires_grad=True)
    mask = random_mask(B, H, L, L)
    output, _ = attention(score, *inputs, attn_mask=mask, need_weights=need_weights)
    assert (output[~mask.any(-1)] == 0).all()
    assert (~mask.any(-1)).sum() == B * H
    query_gradient, *others = torch.autograd.grad(output.square().sum(), inputs)
    assert (query_gradient[~mask.any(-1)] == 0).all()
    assert all(gradient.isfinite().all() for gradient in (query_gradient, *others))
    output, _ = attention(score, *inputs, attn_mask=torch.zeros(L, L, dtype=torch.bool), need_weights=need_weights)
    gradients = torch.autograd.grad(output.sum(), [*inputs, *score.parameters()], allow_unused=True)
    assert (output == 0).all()
    assert all(g is None or (g == 0).all() for g in gradients)


@pytest.mark.parametrize("case", CASES)
def test_fast_path_equals_readable_path(score, case):
    inputs = random_qkv(B, H, L, L, D, requires_grad=True)
    leaves = [*inputs, *score.parameters()]
    results = []
    for need_weights in (False, True):
        output, _ = attention(score, *inputs, need_weights=need_weights, **masks(case))
        probe = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        gradients = torch.autograd.grad((output * probe).sum(), leaves, allow_unused=True)
        results.append(
            [output, *(g if g is not None else torch.zeros_like(p) for g, p in zip(gradients, leaves, strict=True))]
        )
    assert_close(*results, rtol=1e-10, atol=1e-10)


def test_readable_path_is_the_four_lines(score):
    query, key, value = random_qkv(B, H, L, L, D)
    mask = random_mask(B, H, L, L)
    output, weights = attention(score, query, key, value, attn_mask=mask, need_weights=True)
    expected = attend(score(query, key, attn_mask=mask), value, attn_mask=mask)
    assert_close((output, weights), expected)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_decoding_with_a_cache_equals_the_whole_pass(score, need_weights):
    query, key, value = random_qkv(B, H, L, L, D)
    whole, _ = attention(score, query, key, value, is_causal=True, need_weights=need_weights)
    tail, _ = attention(score, query[:, :, 4:], key, value, is_causal=True, need_weights=need_weights)
    assert_close(tail, whole[:, :, 4:])


def test_gradcheck(score):
    inputs = random_qkv(1, H, 3, 3, D, requires_grad=True)

    def output(query, key, value):
        return attention(score, query, key, value, is_causal=True, need_weights=True)[0]

    assert torch.autograd.gradcheck(output, inputs)


def test_layers_do_not_share_parameters(score):
    recipe = type(score)
    layers = [TransformerBlock(H * D, H, score=recipe) for _ in range(2)]
    first, second = ({id(p) for p in layer.parameters()} for layer in layers)
    assert not first & second
    assert layers[0].attention.score is not layers[1].attention.score


@pytest.mark.parametrize("name", ["dot"])
def test_permutation_equivariance(name):
    """Where no score looks at places: shuffled tokens give shuffled outputs. Each later score is listed or is not."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(H * D, H, score=SCORES[name]).double()
    x = torch.randn(B, L, H * D, dtype=torch.float64)
    order = torch.randperm(L)
    assert_close(layer(x[:, order])[0], layer(x)[0][:, order])


def test_a_subclass_is_never_served_by_its_parents_shortcut():
    class Doubled(DotProductScore):
        def forward(self, query, key, **options):
            return 2 * super().forward(query, key, **options)

    inputs = random_qkv(B, H, L, L, D)
    doubled, _ = attention(Doubled(H, D), *inputs)
    assert_close(doubled, attention(DotProductScore(H, D, scale=2 * D**-0.5), *inputs)[0])


def test_every_fast_path_belongs_to_a_score():
    assert set(FAST) <= set(SCORES.values())


def test_a_score_of_ones_own_drops_in():
    class Constant(nn.Module):
        def __init__(self, num_heads, head_dim):
            super().__init__()

        def forward(self, query, key, *, attn_mask=None, query_offset=0):
            return torch.zeros(*query.shape[:-1], key.shape[-2], dtype=query.dtype)

    layer = MultiHeadAttention(6, 2, score=Constant)
    _, weights = layer(torch.randn(2, 4, 6), need_weights=True)
    assert_close(weights, torch.full((2, 2, 4, 4), 0.25))


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(L, L), "boolean .*float32"),
        (torch.ones(L, L + 1, dtype=torch.bool), r"\(7, 8\) .* \(2, 3, 7, 7\)"),
        (torch.ones(5, 1, L, L, dtype=torch.bool), r"\(5, 1, 7, 7\)"),
    ],
)
def test_both_paths_refuse_a_wrong_mask(score, mask, message, need_weights):
    with pytest.raises(ValueError, match=message):
        attention(score, *random_qkv(B, H, L, L, D), attn_mask=mask, need_weights=need_weights)
