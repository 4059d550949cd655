"""MultiHeadAttention against torch's, weight by weight."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import (
    DotProductScore,
    EnergyWellScore,
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    pairwise_distances,
)
from sciformer.fast import readable_attention
from sciformer.teach.properties import random_mask

B, L, S, E, H = 2, 5, 7, 33, 3


def pair(bias=True):
    """Ours and torch's, with the same random weights, in float64."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(E, H, bias=bias).double()
    torchs = nn.MultiheadAttention(E, H, bias=bias, batch_first=True).double()
    projections = ours.q_proj, ours.k_proj, ours.v_proj
    with torch.no_grad():
        for p in torchs.parameters():
            p.copy_(torch.randn_like(p) / E**0.5)
        for projection, part in zip(projections, torchs.in_proj_weight.chunk(3), strict=True):
            projection.weight.copy_(part)
        if bias:
            for projection, part in zip(projections, torchs.in_proj_bias.chunk(3), strict=True):
                projection.bias.copy_(part)
        ours.out_proj.load_state_dict(torchs.out_proj.state_dict())
    return ours, torchs


def gathered(module, attribute):
    """Gradients of ours in the order and shape of torch's packed parameters."""
    parts = [getattr(getattr(module, name), attribute).grad for name in ("q_proj", "k_proj", "v_proj")]
    return torch.cat(parts)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masking", ["none", "causal", "mask", "padding"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_parity_with_torch(bias, masking, need_weights):
    ours, torchs = pair(bias)
    x = torch.randn(B, S, E, dtype=torch.float64)
    x_ours, x_torchs = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours_options, torch_options = {}, {}
    if masking == "causal":  # torch's masks are the other way round: True hides
        ours_options = {"is_causal": True}
        torch_options = {"attn_mask": ~causal_mask(S)}
    elif masking == "mask":
        mask = random_mask(B, H, S, S, empty_row=False)
        ours_options, torch_options = {"attn_mask": mask}, {"attn_mask": ~mask.flatten(0, 1)}
    elif masking == "padding":
        mask = padding_mask([S, 3], S)
        ours_options, torch_options = {"attn_mask": mask}, {"key_padding_mask": ~mask[:, 0, 0]}
    output, weights = ours(x_ours, need_weights=need_weights, **ours_options)
    expected, torch_weights = torchs(x_torchs, x_torchs, x_torchs, average_attn_weights=False, **torch_options)
    assert_close(output, expected)
    if need_weights:
        assert_close(weights, torch_weights)
    else:
        assert weights is None
    probe = torch.randn_like(output)
    (output * probe).sum().backward()
    (expected * probe).sum().backward()
    assert_close(x_ours.grad, x_torchs.grad)
    assert_close(gathered(ours, "weight"), torchs.in_proj_weight.grad)
    assert_close(ours.out_proj.weight.grad, torchs.out_proj.weight.grad)
    if bias:
        assert_close(gathered(ours, "bias"), torchs.in_proj_bias.grad)


@pytest.mark.parametrize("need_weights", [False, True])
def test_cross_attention_parity_with_torch(need_weights):
    ours, torchs = pair()
    query, key, value = (torch.randn(B, n, E, dtype=torch.float64) for n in (L, S, S))
    output, _ = ours(query, key, value, need_weights=need_weights)
    assert_close(output, torchs(query, key, value)[0])
    assert_close(ours(query, key)[0], torchs(query, key, key)[0])


def test_mask_and_causal_mean_both():
    layer = MultiHeadAttention(E, H)
    x, mask = torch.randn(B, S, E), random_mask(S, S)
    together = layer(x, attn_mask=mask, is_causal=True)[0]
    assert_close(together, layer(x, attn_mask=mask & causal_mask(S))[0])


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(E, H, dropout=0.5), torch.randn(B, S, E)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert_close(layer(x)[0], layer(x)[0], rtol=0, atol=0)
    assert_close(layer(x)[0], layer(x, need_weights=True)[0])


def test_parameter_count_is_pinned():
    assert sum(p.numel() for p in MultiHeadAttention(64, 4).parameters()) == 4 * (64 * 64 + 64)
    assert sum(p.numel() for p in MultiHeadAttention(64, 4, bias=False).parameters()) == 4 * 64 * 64


def test_a_shared_projection_puts_queries_and_keys_in_one_space():
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 4, score=partial(EnergyWellScore, well="lorentzian", form="field"), shared_qk=True)
    assert sum(p.numel() for p in layer.parameters()) == 3 * (64 * 64 + 64) + 4 + 64
    seen = []
    layer.score.register_forward_pre_hook(lambda module, inputs: seen.extend(inputs))
    x = torch.randn(B, S, 64)
    _, weights = layer(x, need_weights=True)
    query, key = seen
    assert (pairwise_distances(query, key).diagonal(dim1=-2, dim2=-1) == 0).all()
    assert (weights.argmax(-1) == torch.arange(S)).all()
    assert "k_proj.weight" in layer.state_dict()
    apart = MultiHeadAttention(64, 4, score=partial(EnergyWellScore, well="lorentzian", form="field"))
    apart.load_state_dict(layer.state_dict())
    assert_close(apart(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3), "embed_dim 10 is not divisible by num_heads 3"),
        ((10, 0), "embed_dim 10 is not divisible by num_heads 0"),
        ((0, 2), "embed_dim must be at least 1, got 0"),
    ],
)
def test_refuses_heads(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*arguments)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_refuses_a_dropout_that_is_no_probability_or_leaves_nothing(dropout):
    with pytest.raises(ValueError, match=f"got {dropout}"):
        MultiHeadAttention(10, 2, dropout=dropout)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((B, L, 32),), r"query must be \(B, length, 33\), got \(2, 5, 32\)"),
        (((L, E),), r"got \(5, 33\)"),
        (((B, L, E), (3, S, E)), "query has batch 2, but key has batch 3"),
        (((B, L, E), (B, S, E), (B, L, E)), "there are 7 keys, but 5 values"),
    ],
)
def test_refuses_shapes(shapes, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(E, H)(*(torch.zeros(shape) for shape in shapes))


def test_refuses_dtypes_and_masks():
    layer, x = MultiHeadAttention(E, H), torch.zeros(B, L, E)
    with pytest.raises(ValueError, match=r"query and key must share .* torch\.float32 and torch\.float64"):
        layer(x, x.double())
    with pytest.raises(ValueError, match=r"int64"):
        layer(x.long())
    with pytest.raises(ValueError, match=r"\(L, S\) or \(B, H, L, S\), got \(2, 5, 5\)"):
        layer(x, attn_mask=torch.ones(B, L, L, dtype=torch.bool))
    with pytest.raises(ValueError, match="boolean"):
        layer(x, attn_mask=torch.zeros(L, L))
    with pytest.raises(ValueError, match="7 queries and 5 keys"):
        layer(torch.zeros(B, S, E), x, is_causal=True)


@pytest.mark.parametrize("L", [1, 5, 7])
def test_causal_alone_is_the_causal_mask(L):
    """The readable path hides by a sum where only the causal mask is asked for, and by choice where there is a mask."""
    score = DotProductScore(3, 5)
    inputs = [torch.randn(2, 3, n, 5, dtype=torch.float64, requires_grad=True) for n in (L, 7, 7)]
    summed = readable_attention(score, *inputs, is_causal=True)
    chosen = readable_attention(score, *inputs, attn_mask=causal_mask(L, 7))
    assert_close(summed, chosen)
    assert (summed[1][..., ~causal_mask(L, 7)] == 0).all()
    gradients = (torch.autograd.grad(sum(x.square().sum() for x in both), inputs) for both in (summed, chosen))
    assert_close(*gradients)
