"""Positions, blocks and the image transformer: by hand, against torch's own layers, and what they refuse."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import (
    POSITIONS,
    CharTransformer,
    Classifier,
    DecoderBlock,
    DistanceBiasedScore,
    FeedForward,
    ImageToSequence,
    ImageTransformer,
    LearnedPositions,
    MaskedImageModel,
    MultiHeadAttention,
    NoPositions,
    SinusoidalPositions,
    Transformer,
    TransformerBlock,
    causal_mask,
)
from sciformer.data import mnist

B, L, E, H = 2, 5, 6, 3


def test_sinusoidal_positions_by_hand():
    table = SinusoidalPositions(4, 3)(torch.zeros(1, 3, 4))[0]
    for t in range(3):
        slow = t / 10000 ** (2 / 4)
        expected = [math.sin(t), math.cos(t), math.sin(slow), math.cos(slow)]
        assert_close(table[t], torch.tensor(expected))


def test_sinusoidal_dot_products_depend_on_the_distance_only():
    table = SinusoidalPositions(64, 50).table
    products = table @ table.T
    for offset in (1, 7):
        diagonal = products.diagonal(offset)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)


def test_positions_are_added_and_trained_where_they_should_be():
    x = torch.randn(B, L, E)
    learned = LearnedPositions(E, 7)
    assert_close(learned(x) - x, learned.table[:L].expand(B, L, E))
    assert LearnedPositions(64, 100).table.std().item() == pytest.approx(0.02, rel=0.1)
    assert_close(NoPositions(E, 7)(x), x)
    assert [len(list(POSITIONS[name](E, 7).parameters())) for name in ("sinusoidal", "learned", "none")] == [0, 1, 0]
    assert list(SinusoidalPositions(E, 7).state_dict()) == []


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_positions_refuse(name):
    positions = POSITIONS[name](E, L)
    with pytest.raises(ValueError, match="up to 5 tokens of width 6, got 7 of width 6"):
        positions(torch.zeros(B, 7, E))
    with pytest.raises(ValueError, match="up to 5 tokens of width 6, got 6 of width 6"):
        positions(torch.zeros(B, 4, E), offset=2)
    with pytest.raises(ValueError, match="got 5 of width 1"):
        positions(torch.zeros(B, L, 1))
    with pytest.raises(ValueError, match="even embed_dim, got 7"):
        SinusoidalPositions(7, L)


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


def test_patches_are_cut_row_by_row_and_mapped_linearly():
    layer = ImageToSequence(6, 2, 3, 5).double()
    images = torch.randn(B, 3, 6, 6, dtype=torch.float64)
    tokens = layer(images)
    assert tokens.shape == (B, 9, 5)
    patch = images[1, :, 2:4, 4:6]  # second row of patches, last column: patch number 5
    expected = torch.einsum("ecij,cij->e", layer.projection.weight, patch) + layer.projection.bias
    assert_close(tokens[1, 5], expected)


def test_one_pixel_is_one_token():
    assert ImageToSequence(6, 1, 1, 5)(torch.zeros(B, 1, 6, 6)).shape == (B, 36, 5)


def test_image_to_sequence_is_a_convolution_whose_tokens_lie_in_one_piece():
    layer, images = ImageToSequence(6, 2, 3, 5).double(), torch.randn(B, 3, 6, 6, dtype=torch.float64)
    images.requires_grad_()
    tokens, expected = layer(images), layer.projection(images).flatten(2).mT
    assert_close(tokens, expected)
    assert tokens.is_contiguous()
    wanted = (images, *layer.parameters())
    gradients = (torch.autograd.grad(output.square().sum(), wanted) for output in (tokens, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


def test_classifier_reads_the_mean_over_tokens():
    layer, tokens = Classifier(E, 3), torch.randn(B, L, E)
    assert_close(layer(tokens), layer.linear(layer.norm(tokens).mean(1)))
    assert_close(layer(tokens[:, torch.randperm(L)]), layer(tokens))


def test_classifier_with_queries_is_attention_by_hand():
    layer, tokens = Classifier(E, 3, num_queries=2), torch.randn(B, L, E)
    summaries = []
    for query in layer.queries.weight:
        weights = (layer.norm(tokens) @ query).softmax(dim=1)  # (B, L)
        summaries.append(torch.einsum("bl,ble->be", weights, layer.norm(tokens)))
    assert_close(layer(tokens), layer.linear(torch.cat(summaries, dim=-1)))
    nn.init.zeros_(layer.queries.weight)
    mean = layer.norm(tokens).mean(1)
    assert_close(layer(tokens), layer.linear(torch.cat([mean, mean], dim=-1)))


def model(**options):
    torch.manual_seed(0)
    return ImageTransformer(6, 2, 1, 10, E, H, 2, **options)


def test_image_transformer_end_to_end():
    images = torch.randn(B, 1, 6, 6)
    network = model()
    assert network(images).shape == (B, 10)
    maps = network.attention_weights(images)
    assert [m.shape for m in maps] == [(B, H, 9, 9)] * 2
    network(images).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_image_transformer_hands_its_options_to_its_parts():
    options = {"activation": nn.ReLU, "norm_first": False, "dropout": 0.25, "bias": False, "score": DistanceBiasedScore}
    blocks = model(expansion=2, **options).blocks
    assert all(isinstance(block.feed_forward.activation, nn.ReLU) and not block.norm_first for block in blocks)
    assert [block.feed_forward.up.out_features for block in blocks] == [2 * E] * 2
    assert [(block.attention.dropout, block.dropout.p) for block in blocks] == [(0.25, 0.25)] * 2
    assert not [name for name, _ in blocks.named_parameters() if "bias" in name]
    assert all(isinstance(block.attention.score, DistanceBiasedScore) for block in blocks)
    assert model(num_queries=2).classifier.queries.weight.shape == (2, E)


MODELS = {
    "images": (partial(ImageTransformer, 6, 2, 1, 10, E, H, 2), 2),
    "characters": (partial(CharTransformer, 7, 5, E, H, 2), 2),
    "masked images": (partial(MaskedImageModel, 6, 2, 1, E, H, 2, decoder_dim=2 * E, decoder_layers=1), 3),
    "encoder-decoder": (partial(Transformer, 7, 7, 5, E, H, 2), 4),
    "decoder block": (partial(DecoderBlock, E, H), 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_hands_every_option_to_each_of_its_blocks(name):
    make, count = MODELS[name]
    options = {"activation": nn.SiLU, "norm": nn.RMSNorm, "norm_first": name == "encoder-decoder"}
    network = make(expansion=3, dropout=0.25, bias=False, **options)
    blocks = [part for part in network.modules() if isinstance(part, TransformerBlock)]
    assert len(blocks) == count
    for block in blocks:
        width = block.feed_forward.up.in_features
        assert block.feed_forward.up.out_features == 3 * width
        assert isinstance(block.feed_forward.activation, nn.SiLU)
        assert {type(norm) for norm in (block.attention_norm, block.feed_forward_norm)} == {nn.RMSNorm}
        assert block.norm_first is options["norm_first"]
        assert (block.attention.dropout, block.feed_forward.dropout.p, block.dropout.p) == (0.25, 0.25, 0.25)
        assert not [p for p, _ in block.named_parameters() if "bias" in p]
    if name != "masked images":  # which refuses it
        shifts = [part.attention_shift for part in make(token_shift=2).modules() if isinstance(part, TransformerBlock)]
        assert [shift.weight.shape for shift in shifts] == [(2, E)] * count


@pytest.mark.parametrize("name", MODELS)
def test_an_unknown_option_is_named(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'expnsion'"):
        MODELS[name][0](expnsion=2)


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


def test_without_positions_the_order_of_patches_does_not_matter():
    images = torch.randn(B, 1, 6, 6)
    mixed = images.unflatten(2, (3, 2))[:, :, torch.tensor([2, 0, 1])].flatten(2, 3)  # rows of patches exchanged
    blind, seeing = model(positions=NoPositions), model()
    assert_close(blind(mixed), blind(images))
    assert not torch.allclose(seeing(mixed), seeing(images))


@pytest.mark.parametrize("width", [None, 14], ids=["sequence", "grid"])
@pytest.mark.parametrize("each_side", [False, True])
def test_a_symmetric_distance_cannot_tell_a_digit_from_its_half_turn(width, each_side):
    """A half turn reverses the sequence of pixels: every distance stays, and the mean over tokens forgets the order."""
    torch.manual_seed(0)
    score = partial(DistanceBiasedScore, each_side=each_side, width=width)
    network = ImageTransformer(14, 1, 1, 10, E, H, 2, score=score, positions=NoPositions).double()
    digits = nn.functional.avg_pool2d(mnist("test")[0][:B], 2).double()
    with torch.no_grad():
        for block in network.blocks:
            block.attention.score.strength.add_(0.3 * torch.rand_like(block.attention.score.strength))
        upright, turned = network(digits), network(digits.rot90(2, dims=(2, 3)))
    assert torch.allclose(upright, turned, rtol=0, atol=1e-12) is not each_side


def test_parameter_count_is_pinned():
    network = ImageTransformer(28, 7, 1, 10, 64, 4, 4, expansion=2)
    block = 4 * (64 * 64 + 64) + (64 * 128 + 128) + (128 * 64 + 64) + 4 * 64
    assert sum(p.numel() for p in network.parameters()) == (49 * 64 + 64) + 16 * 64 + 4 * block + 128 + 650


def test_image_transformer_refuses():
    for patch_size in (5, 0):
        with pytest.raises(ValueError, match=f"image_size 28 is not divisible by patch_size {patch_size}"):
            ImageTransformer(28, patch_size, 1, 10, 64, 4, 1)
    with pytest.raises(ValueError, match="embed_dim 64 is not divisible by num_heads 3"):
        ImageTransformer(28, 7, 1, 10, 64, 3, 1)
    with pytest.raises(ValueError, match=r"\(B, 1, 6, 6\), got \(2, 3, 6, 6\)"):
        model()(torch.zeros(B, 3, 6, 6))
    with pytest.raises(ValueError, match=r"got \(1, 6, 6\)"):
        model()(torch.zeros(1, 6, 6))
