"""The image transformer: by hand, end to end, and what it refuses."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import (
    Classifier,
    DistanceBiasedScore,
    ImageToSequence,
    ImageTransformer,
    NoPositions,
)
from sciformer.data import mnist
from sciformer.positions import POSITIONS
from sciformer.scores import WRAPPERS

B, L, E, H = 2, 5, 6, 3


def test_patches_are_cut_row_by_row_and_mapped_linearly():
    layer = ImageToSequence(6, 2, 3, 5).double()
    images = torch.randn(B, 3, 6, 6, dtype=torch.float64)
    tokens = layer(images)
    assert tokens.shape == (B, 9, 5)
    patch = images[1, :, 2:4, 4:6]  # second row of patches, last column: patch number 5
    expected = torch.einsum("ecij,cij->e", layer.projection.weight, patch) + layer.projection.bias
    assert_close(tokens[1, 5], expected)


def test_images_and_patches_need_not_be_square():
    layer = ImageToSequence((6, 8), (3, 2), 3, 5).double()
    images = torch.randn(B, 3, 6, 8, dtype=torch.float64)
    tokens = layer(images)
    assert tokens.shape == (B, layer.num_tokens, 5) == (B, 8, 5)
    patch = images[1, :, 3:6, 4:6]  # second row of patches, third of four columns: patch number 6
    assert_close(layer.patches(images)[1, 6], patch.flatten())
    assert_close(tokens[1, 6], layer.projection.weight.flatten(1) @ patch.flatten() + layer.projection.bias)
    assert_close(tokens, layer.projection(images).flatten(2).mT)


def test_a_wide_picture_is_read_by_a_model_with_a_distance_on_its_grid():
    score = partial(DistanceBiasedScore, width=12)
    network = ImageTransformer((8, 24), (4, 2), 1, 10, 12, 2, 1, positions=NoPositions, score=score).double()
    images = torch.randn(B, 1, 8, 24, dtype=torch.float64)
    logits = network(images)
    assert logits.shape == (B, 10)
    assert not torch.allclose(network(images.roll(4, dims=3)), logits)  # two columns over: other distances


def test_distances_between_oblong_patches_are_rows_plus_columns():
    """8 × 24 pixels in patches of 4 × 2: two rows of twelve patches. Each weight is the bias's, where q and k are 0."""
    score = partial(DistanceBiasedScore, width=12, start=0.5)
    network = ImageTransformer((8, 24), (4, 2), 1, 10, 12, 2, 1, positions=NoPositions, score=score).double()
    for parameter in network.blocks[0].attention.q_proj.parameters():
        nn.init.zeros_(parameter)
    (weights,) = network.attention_weights(torch.randn(B, 1, 8, 24, dtype=torch.float64))
    corners = [(row, column) for row in range(0, 8, 4) for column in range(0, 24, 2)]
    steps = [[abs(r - i) / 4 + abs(c - j) / 2 for i, j in corners] for r, c in corners]
    expected = (-0.5 * torch.tensor(steps, dtype=torch.float64)).softmax(dim=-1)
    assert_close(weights, expected.expand(B, 2, 24, 24), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_tall_picture_is_read_with_every_position_and_every_change_of_a_score(name, positions):
    options = {"max_length": 8, "is_causal": False} if name.endswith("mask") else {}
    network = ImageTransformer(
        (12, 4), (3, 2), 1, 10, 12, 2, 1, positions=positions, score=partial(WRAPPERS[name], **options)
    )
    images = torch.randn(B, 1, 12, 4)
    network(images).square().sum().backward()
    assert network.to_sequence.num_tokens == 8
    assert [m.shape for m in network.attention_weights(images)] == [(B, 2, 8, 8)]
    assert all(p.grad.isfinite().all() for p in network.parameters())


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
    with pytest.raises(ValueError, match="image_size 28 is not divisible by patch_size 5"):
        ImageTransformer(28, 5, 1, 10, 64, 4, 1)
    with pytest.raises(ValueError, match="patch_size must be at least 1, got 0"):
        ImageTransformer(28, 0, 1, 10, 64, 4, 1)
    with pytest.raises(ValueError, match=r"image_size \(28, 84\) is not divisible by patch_size \(7, 5\)"):
        ImageTransformer((28, 84), (7, 5), 1, 10, 64, 4, 1)
    with pytest.raises(ValueError, match="the width in image_size must be at least 1, got 0"):
        ImageTransformer((28, 0), 7, 1, 10, 64, 4, 1)
    with pytest.raises(ValueError, match=r"a number or a pair \(height, width\), got \(1, 28, 28\)"):
        ImageTransformer((1, 28, 28), 7, 1, 10, 64, 4, 1)
    with pytest.raises(ValueError, match="embed_dim 64 is not divisible by num_heads 3"):
        ImageTransformer(28, 7, 1, 10, 64, 3, 1)
    with pytest.raises(ValueError, match=r"\(B, 1, 6, 6\), got \(2, 3, 6, 6\)"):
        model()(torch.zeros(B, 3, 6, 6))
    with pytest.raises(ValueError, match=r"got \(1, 6, 6\)"):
        model()(torch.zeros(1, 6, 6))
