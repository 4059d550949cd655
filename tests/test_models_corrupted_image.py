"""Corrupted images: what is wrong and what stays, and a model that is not told which is which."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from sciformer import CorruptedImageModel, MaskedImageModel, corrupted, experiments, random_visible
from sciformer.training import TrainConfig, fit

B, P, E, H = 3, 2, 10, 2  # images of 10×10 pixels in 25 patches of 2×2, 19 of them wrong


def model(channels=1, **options):
    torch.manual_seed(0)
    return CorruptedImageModel(10, P, channels, E, H, 2, decoder_dim=6, **options).double()


def images(channels=1):
    return torch.rand(B, channels, 10, 10, dtype=torch.float64, generator=seeded(1))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def visible():
    return random_visible(B, 25, generator=seeded(2))


def in_patches(pictures):
    return F.unfold(pictures, P, stride=P).mT  # (B, L, P)


@pytest.mark.parametrize("how", ["noise", "swapped"])
@pytest.mark.parametrize("channels", [1, 3])
def test_only_hidden_patches_are_wrong_and_all_of_them_are(how, channels):
    x, mask = images(channels), visible()
    before, after = in_patches(x), in_patches(corrupted(x, mask, P, how=how, generator=seeded()))
    assert torch.equal((before != after).any(dim=-1), ~mask)


def test_swapped_patches_are_those_of_the_same_image():
    x, mask = images(3), visible()
    after = in_patches(corrupted(x, mask, P, how="swapped", generator=seeded()))
    for row, patches, seen in zip(after, in_patches(x), mask, strict=True):
        assert_close(row[~seen].sort(dim=0).values, patches[~seen].sort(dim=0).values)
        assert {tuple(p) for p in row[~seen].tolist()} == {tuple(p) for p in patches[~seen].tolist()}


def test_noise_is_uniform():
    mask = random_visible(400, 25, generator=seeded(2))
    noise = in_patches(corrupted(torch.full((400, 1, 10, 10), 7.0), mask, P, how="noise", generator=seeded()))[~mask]
    assert 0 <= noise.min() < 0.001 < 0.999 < noise.max() < 1
    counts = noise.histc(10, 0, 1) / noise.numel()
    assert_close(counts, torch.full((10,), 0.1), rtol=0, atol=0.006)  # 30,400 draws: 3.5 standard deviations


@pytest.mark.parametrize("how", ["noise", "swapped"])
def test_a_generator_decides_and_every_image_has_its_own(how):
    x, mask = images()[:1].expand(2, -1, -1, -1), visible()[:1].expand(2, -1)
    first, again, other = (corrupted(x, mask, P, how=how, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


def test_by_hand_from_its_parts():
    network, x, mask = model(), images(), visible()
    tokens = network.decoder_positions(network.to_decoder(network.encode(x)))
    for block in network.decoder_blocks:
        tokens = block(tokens)[0]
    expected = network.to_pixels(network.decoder_norm(tokens[~mask].view(B, 19, 6)))
    assert_close(network(x, mask), expected)


def test_the_encoder_is_not_told_what_is_wrong():
    """The mask only chooses among the predictions: another mask gives the same numbers for the same patch."""
    network, x, mask = model(), images(), visible()
    other = mask.roll(1, 1)
    everywhere = [torch.full((B, 25, P * P), torch.nan, dtype=torch.float64) for _ in range(2)]
    for pixels, chosen in zip(everywhere, (mask, other), strict=True):
        pixels[~chosen] = network(x, chosen).flatten(0, 1)
    both = ~mask & ~other
    assert both.any()
    assert_close(everywhere[0][both], everywhere[1][both])
    changed = x.clone()
    changed[:, :, :P, :P] += 1
    assert (network(changed, mask) != network(x, mask)).any(-1).all()  # every patch is seen


def test_it_has_no_mask_token_and_everything_else_of_the_masked_model():
    torch.manual_seed(0)
    masked = MaskedImageModel(10, P, 1, E, H, 2, decoder_dim=6).double()
    ours = dict(model().named_parameters())
    theirs = dict(masked.named_parameters())
    assert theirs.keys() - ours.keys() == {"mask_token"}
    assert all(torch.equal(p, theirs[name]) for name, p in ours.items())
    F.mse_loss(model()(images(), visible()), masked.hidden_pixels(images(), visible())).backward()


def test_it_learns_to_put_right_what_is_wrong():
    """Each image is one grey, and the wrong patches are noise."""
    greys = torch.rand(64, 1, 1, 1, generator=seeded()).expand(-1, 1, 10, 10).contiguous()
    network, generator = model().float(), seeded()

    def stream():
        while True:
            mask = random_visible(64, 25, generator=generator)
            yield corrupted(greys, mask, P, how="noise", generator=generator), mask, network.hidden_pixels(greys, mask)

    history = fit(network, stream(), F.mse_loss, TrainConfig(steps=200, lr=1e-2), progress=False)
    assert history.loss[-1] < 0.3 * greys.var().item()


@pytest.mark.parametrize(
    ("mask", "how", "message"),
    [
        (torch.ones(3, 25, dtype=torch.bool), "blur", "how must be 'noise' or 'swapped', got 'blur'"),
        (torch.ones(3, 24, dtype=torch.bool), "noise", r"visible \(3, 24\) is no mask of images \(3, 1, 10, 10\)"),
        (torch.ones(3, 25, dtype=torch.bool).triu(), "swapped", "as many patches must be wrong in every image, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(mask, how, message):
    with pytest.raises(ValueError, match=message):
        corrupted(images(), mask, P, how=how, generator=seeded())


def test_all_arms_hide_the_same_patches_and_want_the_same_pixels():
    arms = experiments.CORRUPTED_IMAGES["quick"]
    batches = {}
    for how, setting in arms.items():
        assert replace(setting, hidden_as="missing") == experiments.MASKED_IMAGES["quick"]
        torch.manual_seed(0)
        batches[how] = next(replace(setting, batch_size=7).training_batches(setting.model(), 0))
    images, visible, pixels = batches["missing"]
    for how in ("noise", "swapped"):
        assert torch.equal(batches[how][1], visible)
        assert torch.equal(batches[how][2], pixels)
        assert not torch.equal(batches[how][0], images)
