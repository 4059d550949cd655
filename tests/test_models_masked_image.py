"""Masked images: what is hidden stays hidden, what is visible keeps its position, and what is refused."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from sciformer import (
    DistanceBiasedScore,
    EnergyWellScore,
    MaskedImageModel,
    NoPositions,
    NormalizedScore,
    RotaryScore,
    experiments,
    metrics,
    random_visible,
)
from sciformer.lab.settings import masked_batches
from sciformer.training import TrainConfig, fit

B, P, E, H = 3, 2, 10, 2  # images of 10×10 pixels in 25 patches of 2×2


def model(channels=1, **options):
    torch.manual_seed(0)
    return MaskedImageModel(10, P, channels, E, H, 2, decoder_dim=6, **options).double()


def images(channels=1):
    torch.manual_seed(1)
    return torch.rand(B, channels, 10, 10, dtype=torch.float64)


def visible(count=B, num_tokens=25, seed=2, **options):
    return random_visible(count, num_tokens, generator=torch.Generator().manual_seed(seed), **options)


def on_pixels(mask):
    """A mask of patches as one of pixels, (B, 1, 10, 10)."""
    return mask.view(-1, 1, 5, 5).repeat_interleave(P, dim=2).repeat_interleave(P, dim=3)


def test_every_image_has_a_mask_of_its_own_that_hides_as_many():
    mask = visible(200)
    assert mask.dtype == torch.bool
    assert (mask.sum(dim=1) == 25 - round(0.75 * 25)).all()
    assert len(mask.unique(dim=0)) > 190
    assert_close(mask.double().mean(dim=0), torch.full((25,), 6 / 25, dtype=torch.float64), rtol=0, atol=0.13)


def test_a_seed_gives_the_same_masks_and_leaves_torchs_own_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    assert torch.equal(visible(seed=5), visible(seed=5))
    assert not torch.equal(visible(seed=5), visible(seed=6))
    assert_close(torch.rand(2), expected)


@pytest.mark.parametrize("share", [0.04, 0.5, 0.96])
def test_the_share_is_that_of_the_hidden(share):
    assert (~visible(hidden_share=share)).sum(dim=1).tolist() == [round(share * 25)] * B


@pytest.mark.parametrize("channels", [1, 3])
def test_hidden_pixels_influence_nothing_but_the_target(channels):
    network, x, mask = model(channels), images(channels), visible()
    other = torch.where(on_pixels(mask), x, torch.rand_like(x))
    assert_close(network.encode(other, mask), network.encode(x, mask), rtol=0, atol=0)
    assert_close(network(other, mask), network(x, mask), rtol=0, atol=0)
    assert not torch.allclose(network.hidden_pixels(other, mask), network.hidden_pixels(x, mask))
    assert_close(network.restore(other, mask), network.restore(x, mask), rtol=0, atol=0)


def test_no_gradient_reaches_hidden_pixels_and_one_reaches_each_visible():
    network, x, mask = model(), images().requires_grad_(), visible()
    (gradient,) = torch.autograd.grad(network(x, mask).square().sum(), x)
    assert torch.equal(gradient != 0, on_pixels(mask))


def test_the_encoder_sees_visible_patches_only_each_with_its_own_position():
    """By hand: one image, its visible patches one by one, embedded and placed, through the blocks."""
    network, x, mask = model(), images(), visible()
    for n in range(B):
        tokens = []
        for position in mask[n].nonzero().flatten().tolist():
            row, column = divmod(position, 5)
            patch = x[n, 0, P * row : P * row + P, P * column : P * column + P]
            weight = network.to_sequence.projection.weight[:, 0]  # (E, 2, 2)
            token = (weight * patch).sum(dim=(1, 2)) + network.to_sequence.projection.bias
            tokens.append(token + network.positions.table[position])
        expected = torch.stack(tokens)[None]
        for block in network.blocks:
            expected, _ = block(expected)
        assert_close(network.encode(x, mask)[n], network.norm(expected)[0])


def test_the_decoder_finds_each_token_at_its_place():
    """By hand: encoded tokens and mask tokens in reading order, positions, blocks; read out where hidden."""
    network, x, mask = model(), images(), visible()
    seen = network.to_decoder(network.encode(x, mask))
    for n in range(B):
        waiting = iter(seen[n])
        tokens = torch.stack([next(waiting) if is_seen else network.mask_token for is_seen in mask[n].tolist()])
        tokens = (tokens + network.decoder_positions.table)[None]
        for block in network.decoder_blocks:
            tokens, _ = block(tokens)
        pixels = network.to_pixels(network.decoder_norm(tokens))[0, ~mask[n]]
        assert_close(network(x, mask)[n], pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_restored_are_the_hidden_patches_and_they_alone(channels, monkeypatch):
    network, x, mask = model(channels), images(channels), visible()
    restored = network.restore(x, mask)
    assert_close(torch.where(on_pixels(mask), restored, 0), torch.where(on_pixels(mask), x, 0), rtol=0, atol=0)
    assert_close(network.hidden_pixels(restored, mask), network(x, mask))
    assert not restored.requires_grad
    # A model that is always right gives the image back: pixels and patches are in one order.
    blank = torch.where(on_pixels(mask), x, 0)
    monkeypatch.setattr(network, "forward", lambda *_: network.hidden_pixels(x, mask))
    assert_close(network.restore(blank, mask), x, rtol=0, atol=0)


def test_pixels_of_a_patch_are_channel_by_channel_and_row_by_row():
    network, x, mask = model(3), images(3), visible()
    first = int((~mask[1]).nonzero()[0])
    row, column = divmod(first, 5)
    patch = x[1, :, P * row : P * row + P, P * column : P * column + P]
    assert_close(network.hidden_pixels(x, mask)[1, 0], patch.flatten())


def test_every_parameter_is_trained_the_mask_token_too():
    network, x, mask = model(), images(), visible()
    F.mse_loss(network(x, mask), network.hidden_pixels(x, mask)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_features_are_the_tokens_of_the_whole_image_side_by_side():
    network, x = model(), images()
    assert_close(network.features(x), torch.cat(network.encode(x).unbind(dim=1), dim=1))
    assert network.encode(x).shape == (B, 25, E)
    almost = torch.ones(B, 25, dtype=torch.bool)
    almost[:, 7] = False
    assert network.encode(x, almost).shape == (B, 24, E)


def test_without_positions_it_is_blind_to_places():
    """All hidden patches of an image are then restored alike, and the order of the visible does not matter."""
    network, x, mask = model(positions=NoPositions), images(), visible()
    pixels = network(x, mask)
    assert_close(pixels, pixels[:, :1].expand_as(pixels))
    assert not torch.allclose(*model()(x, mask)[0, :2])


@pytest.mark.parametrize("score", [EnergyWellScore, partial(NormalizedScore, score=EnergyWellScore)])
def test_scores_are_recipes(score):
    network = model(score=score)
    blocks = [*network.blocks, *network.decoder_blocks]
    assert len({id(block.attention.score) for block in blocks}) == 3
    assert network(images(), visible()).shape == (B, 19, 4)


def test_blocks_of_encoder_and_decoder_have_the_width_that_was_asked_for():
    network = model(expansion=2, decoder_layers=3)
    widths = [block.feed_forward.up.out_features for block in (*network.blocks, *network.decoder_blocks)]
    assert widths == [2 * E] * 2 + [2 * 6] * 3


@pytest.mark.parametrize("score", [DistanceBiasedScore, RotaryScore, partial(NormalizedScore, score=RotaryScore)])
def test_a_score_of_distances_between_tokens_is_refused(score):
    with pytest.raises(ValueError, match=r"(DistanceBiased|Rotary)Score counts tokens from one to the next"):
        model(score=score)


def test_a_token_shift_is_refused():
    with pytest.raises(ValueError, match="TokenShift counts tokens from one to the next"):
        model(token_shift=1)


def test_it_learns_what_hidden_patches_have_in_common_with_visible_ones():
    """Each image is one grey, but for its right part, which is the negative of it."""
    grey = torch.rand(64, 1, 1, 1, generator=torch.Generator().manual_seed(0)).expand(-1, 1, 10, 10)
    pictures = torch.cat([grey[..., :6], 1 - grey[..., 6:]], dim=-1)
    network = model().float()
    stream = masked_batches(network, [pictures] * 200, seed=0)
    history = fit(network, stream, F.mse_loss, TrainConfig(steps=200, lr=1e-2), progress=False)
    assert history.loss[-1] < 0.2 * pictures.var().item()


def test_masked_batches_can_be_repeated():
    network, x = model(), images()
    runs = [list(masked_batches(network, [x, x], seed)) for seed in (0, 0, 1)]
    for (a, visible_a, pixels_a), (_, visible_b, pixels_b) in zip(*runs[:2], strict=True):
        assert torch.equal(visible_a, visible_b)
        assert torch.equal(pixels_a, pixels_b)
        assert torch.equal(pixels_a, network.hidden_pixels(a, visible_a))
    assert not torch.equal(runs[0][0][1], runs[0][1][1])
    assert not torch.equal(runs[0][0][1], runs[2][0][1])


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_settings_build_a_decoder_that_is_the_smaller_part(profile):
    network = experiments.MASKED_IMAGES[profile].model()
    encoder, decoder = (sum(p.numel() for p in part.parameters()) for part in (network.blocks, network.decoder_blocks))
    assert network.num_tokens == 49
    assert decoder < encoder / 10


def test_half_precision_in_training_is_no_obstacle():
    network, x, mask = model().float(), images().float(), visible()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.mse_loss(network(x, mask), network.hidden_pixels(x, mask))
        restored = network.restore(x, mask)
    assert loss.dtype == restored.dtype == torch.float32
    assert_close(restored, network.restore(x, mask), rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MaskedImageModel(28, 5, 1, 8, 2, 1, decoder_dim=4), "image_size 28 is not divisible by patch_size 5"),
        (lambda: MaskedImageModel(28, 7, 1, 8, 2, 1, decoder_dim=5), "embed_dim 5 is not divisible by num_heads 2"),
        (lambda: random_visible(2, 16, hidden_share=0.0), "must lie between 0 and 1, got 0.0"),
        (lambda: random_visible(2, 16, hidden_share=1.0), "must lie between 0 and 1, got 1.0"),
        (lambda: random_visible(2, 16, hidden_share=75), "must lie between 0 and 1, got 75"),
        (lambda: random_visible(2, 16, hidden_share=0.99), "hidden_share of 0.99 leaves 0 of 16 patches visible"),
        (lambda: random_visible(2, 16, hidden_share=0.01), "hidden_share of 0.01 leaves 16 of 16 patches visible"),
        (lambda: model()(images(3), visible()), r"\(B, 1, 10, 10\), got \(3, 3, 10, 10\)"),
        (lambda: model()(images(), visible(2)), r"\(3, 25\) booleans, got torch.bool of \(2, 25\)"),
        (lambda: model()(images(), visible(num_tokens=16)), r"\(3, 25\) booleans, got torch.bool of \(3, 16\)"),
        (lambda: model()(images(), visible().long()), r"\(3, 25\) booleans, got torch.int64 of \(3, 25\)"),
        (lambda: model()(images(), torch.ones(B, 25).bool()), "25 of 25 patches are visible"),
        (lambda: model()(images(), torch.zeros(B, 25).bool()), "0 of 25 patches are visible"),
        (lambda: model()(images(), torch.ones(25, 25).tril()[2:5].bool()), "got 3 in one and 5 in another"),
        (lambda: model().hidden_pixels(images(), visible(2)), r"got torch.bool of \(2, 25\)"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def clouds(count, seed):
    """Three clouds of points of very different scales, one number that never changes, and one that says nothing."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    points = torch.randn(count, 4, generator=generator)
    points[:, 0] = 1000 * (points[:, 0] + 4 * (labels == 1))
    points[:, 1] = 0.001 * (points[:, 1] + 4 * (labels == 2)) + 7
    points[:, 2] = 5
    return points, labels


def test_a_probe_reads_classes_whatever_the_scale():
    probe = metrics.linear_probe(*clouds(400, 0))
    points, labels = clouds(1000, 1)
    assert metrics.accuracy(probe(points), labels) > 0.93
    assert not any(p.requires_grad for p in probe.parameters())


def test_a_probe_is_where_the_gradient_vanishes():
    """The penalty is on the weights of standardised features, and not on the bias."""
    points, labels = (tensor.double() if tensor.is_floating_point() else tensor for tensor in clouds(200, 0))
    probe = metrics.linear_probe(points, labels, penalties=[0.1])
    mean, deviation = points.mean(dim=0), points.std(dim=0)
    deviation[2] = 1  # the one that never changes
    weight = (probe.weight * deviation).requires_grad_()
    bias = (probe.bias + probe.weight @ mean).requires_grad_()
    loss = F.cross_entropy((points - mean) / deviation @ weight.T + bias, labels) + 0.05 * weight.square().sum()
    for gradient in torch.autograd.grad(loss, [weight, bias]):
        assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-5)


def test_a_probe_takes_the_penalty_that_its_held_out_examples_like():
    points, labels = clouds(100, 0)
    labels[:80] = labels[:80][torch.randperm(80, generator=torch.Generator().manual_seed(0))]  # nothing to learn there
    points[:, 3] = 0
    noise = torch.randn(100, 60, generator=torch.Generator().manual_seed(1))
    points = torch.cat([points, noise], dim=1)
    strong, weak = (metrics.linear_probe(points, labels, penalties=[p]) for p in (1e2, 1e-4))
    assert strong.weight.norm() < weak.weight.norm()
    chosen = metrics.linear_probe(points, labels, penalties=[1e2, 1e-4])
    accuracies = []
    for penalty in (1e2, 1e-4):
        probe = metrics.linear_probe(points[:80], labels[:80], penalties=[penalty])
        accuracies.append(metrics.accuracy(probe(points[80:]), labels[80:]).item())
    best = strong if accuracies[0] >= accuracies[1] else weak
    assert_close(chosen.weight, best.weight)


def test_the_probe_sees_moved_copies_of_each_digit_beside_it():
    setting = replace(experiments.MASKED_IMAGES["quick"], probe_copies=2)
    (plain, its_labels), (digits, labels) = (replace(setting, probe_copies=n).probe_digits(0) for n in (0, 2))
    assert_close(digits[::3], plain)
    assert torch.equal(labels, its_labels.repeat_interleave(3))
    moved = digits.unflatten(0, (-1, 3))[:, 1:]
    assert ((moved - plain[:, None]).flatten(2).abs().amax(dim=2) > 0.1).float().mean() > 0.99
    assert_close(moved.mean(dim=(1, 2, 3, 4)), plain.mean(dim=(1, 2, 3)), rtol=0.3, atol=0)  # as much ink
    assert not torch.equal(setting.probe_digits(1)[0], digits)


def test_a_probe_leaves_the_encoder_frozen():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    nn.init.eye_(encoder[1].weight)  # mixed, the numbers of one scale would drown the others
    before = [p.clone() for p in encoder.parameters()]
    train, test = ((x.view(-1, 1, 2, 2), y) for x, y in (clouds(100, 0), clouds(1100, 1)))
    value = metrics.probe_accuracy(encoder, train, test)
    probe = metrics.linear_probe(encoder(train[0]), train[1])
    assert value == pytest.approx(metrics.accuracy(probe(encoder(test[0])), test[1]).item())
    assert value > 0.9
    assert metrics.probe_accuracy(encoder, train, test, penalties=(1e6,)) < 0.4  # of three classes, nothing learned
    assert_close(list(encoder.parameters()), before)
    assert all(p.grad is None for p in encoder.parameters())


def test_a_probe_of_five_examples_leaves_their_graph_alone():
    points, labels = clouds(5, 0)
    points.requires_grad_()
    probe = metrics.linear_probe(2 * points, labels)
    assert probe(points).shape == (5, int(labels.max()) + 1)
    assert points.grad is None


def test_a_probe_refuses():
    with pytest.raises(ValueError, match="five examples or more"):
        metrics.linear_probe(torch.zeros(4, 2), torch.zeros(4).long())
    with pytest.raises(ValueError, match=r"got 6 examples, labels of \(5,\)"):
        metrics.linear_probe(torch.zeros(6, 2), torch.zeros(5).long())


def test_wide_pictures_are_restored_with_what_is_visible_unchanged():
    model = MaskedImageModel((6, 12), (2, 3), 1, 8, 2, 1, decoder_dim=4).double()
    images = torch.randn(3, 1, 6, 12, dtype=torch.float64)
    visible = random_visible(3, model.num_tokens, hidden_share=0.5)
    assert model(images, visible).shape == model.hidden_pixels(images, visible).shape == (3, 6, 6)
    restored = model.restore(images, visible)
    patches = model.to_sequence.patches
    assert_close(patches(restored)[visible], patches(images)[visible])
    assert_close(patches(restored)[~visible].reshape(3, 6, 6), model(images, visible))
