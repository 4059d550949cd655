"""Blocks: by hand, and against torch's own layers."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import (
    DecoderBlock,
    FeedForward,
    MultiHeadAttention,
    TokenShift,
    TransformerBlock,
    causal_mask,
)

B, L, E, H = 2, 5, 6, 3


def test_feed_forward_is_the_formula():
    layer, x = FeedForward(E, 11), torch.randn(B, L, E)
    hidden = nn.functional.gelu(x @ layer.up.weight.T + layer.up.bias)
    assert_close(layer(x), hidden @ layer.down.weight.T + layer.down.bias)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", [nn.GELU, nn.ReLU])
@pytest.mark.parametrize("causal", [True, False])
def test_block_parity_with_torch(norm_first, activation, causal):
    torch.manual_seed(0)
    ours = TransformerBlock(E, H, expansion=2.5, norm_first=norm_first, activation=activation).double()
    name = activation.__name__.lower()
    torchs = nn.TransformerEncoderLayer(E, H, 15, 0.0, name, batch_first=True, norm_first=norm_first).double()
    with torch.no_grad():
        for p in ours.parameters():
            p.add_(0.1 * torch.randn_like(p))
        attention, ff = ours.attention, ours.feed_forward
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        torchs.self_attn.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        torchs.self_attn.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        torchs.self_attn.out_proj.load_state_dict(attention.out_proj.state_dict())
        pairs = (torchs.linear1, ff.up), (torchs.linear2, ff.down), (torchs.norm1, ours.attention_norm)
        for target, source in (*pairs, (torchs.norm2, ours.feed_forward_norm)):
            target.load_state_dict(source.state_dict())
    x = torch.randn(B, L, E, dtype=torch.float64, requires_grad=True)
    output, weights = ours(x, is_causal=causal)
    expected = torchs(x, ~causal_mask(L) if causal else None)
    assert weights is None
    assert_close(output, expected)
    probe = torch.randn_like(output)
    gradients = [torch.autograd.grad((y * probe).sum(), x)[0] for y in (output, expected)]
    assert_close(*gradients)


@pytest.mark.parametrize("chosen", ["attention", "feed_forward.dropout", "dropout", "cross_attention"])
def test_dropout_acts_in_training_at_each_of_its_positions_alone(chosen):
    torch.manual_seed(0)
    block, x = DecoderBlock(E, H, dropout=0.5), torch.randn(B, L, E)
    for name, module in block.named_modules():
        if name != chosen and isinstance(module, MultiHeadAttention):
            module.dropout = 0.0
        if name != chosen and isinstance(module, nn.Dropout):
            module.p = 0.0
    outputs = [block(x, x)[0] for _ in range(2)]
    assert not torch.equal(*outputs)
    block.eval()
    assert_close(block(x, x)[0], block(x, x)[0], rtol=0, atol=0)


def test_attention_and_feed_forward_read_what_was_shifted():
    block, x = TransformerBlock(E, H, token_shift=2), torch.randn(B, L, E)
    with torch.no_grad():
        for shift in (block.attention_shift, block.feed_forward_shift):
            shift.weight.copy_(torch.randn(2, E))
    looked = x + block.attention(block.attention_shift(block.attention_norm(x)), is_causal=True)[0]
    expected = looked + block.feed_forward(block.feed_forward_shift(block.feed_forward_norm(looked)))
    assert_close(block(x, is_causal=True)[0], expected)


def test_the_hidden_width_is_rounded():
    assert TransformerBlock(100, 4, expansion=1.15).feed_forward.up.out_features == 115  # 100 * 1.15 is below it


@pytest.mark.parametrize(("block", "count"), [(TransformerBlock, 2), (DecoderBlock, 3)])
def test_the_recipe_makes_every_norm(block, count):
    modules = block(E, H, norm=nn.RMSNorm).modules()
    assert [type(m) for m in modules if "Norm" in type(m).__name__] == [nn.RMSNorm] * count


def test_a_block_without_biases_has_none():
    for block in (TransformerBlock(E, H, bias=False), DecoderBlock(E, H, bias=False)):
        assert not [name for name, _ in block.named_parameters() if "bias" in name]


def test_a_decoder_block_shifts_what_attention_to_itself_and_feed_forward_read():
    torch.manual_seed(0)
    block, x, source = DecoderBlock(E, H, token_shift=2), torch.randn(B, L, E), torch.randn(B, 4, E)
    with torch.no_grad():
        for shift in (block.attention_shift, block.feed_forward_shift):
            shift.weight.copy_(torch.randn(2, E))
    looked = x + block.attention(block.attention_shift(block.attention_norm(x)), is_causal=True)[0]
    looked = looked + block.cross_attention(block.cross_attention_norm(looked), source)[0]
    expected = looked + block.feed_forward(block.feed_forward_shift(block.feed_forward_norm(looked)))
    assert_close(block(x, source)[0], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FeedForward(0, 5), "embed_dim must be at least 1, got 0"),
        (lambda: FeedForward(6, -1), "hidden_dim must be at least 0, got -1"),
        (lambda: FeedForward(6, 8, dropout=math.nan), r"dropout must lie in \[0, 1\], got nan"),
        (lambda: TokenShift(6, 1.5), "reach must be a whole number, got 1.5"),
        (lambda: TokenShift(6, 1)(torch.zeros(2, 5, 1)), "must have 6 features, got 1"),
        (lambda: TransformerBlock(6, 3, dropout=math.nan), "got nan"),
        (lambda: TransformerBlock(6, 3, expansion=-1), "hidden_dim must be at least 0, got -6"),
    ],
)
def test_parts_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()
