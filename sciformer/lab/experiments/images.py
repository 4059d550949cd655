"""Settings of the experiments on MNIST."""

from dataclasses import fields, replace
from typing import Any

from sciformer.lab.experiments.arms import every_score, recipe_arms, well_arms
from sciformer.lab.settings import (
    SMALL_MOVES,
    ConvolutionSetting,
    CroppedSetting,
    ImageSetting,
    MaskedImageSetting,
    PixelSetting,
    Profile,
    WholeImageSetting,
)
from sciformer.positions import POSITIONS
from sciformer.training import TrainConfig

# Chosen by the accuracy on 10,000 other digits of MNIST's training set; the test digits took no part in it.
_SMALL_IMAGES = ImageSetting(
    size="small",
    patch_size=7,
    embed_dim=64,
    num_heads=4,
    num_layers=3,
    expansion=2,
    num_queries=8,
    batch_size=128,
    train=TrainConfig(steps=1500, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=100),
    augmentation=SMALL_MOVES,
)
MNIST_IMAGE_TRANSFORMER: dict[Profile, ImageSetting] = {
    "quick": _SMALL_IMAGES,
    "long": replace(_SMALL_IMAGES, size="full", train=_SMALL_IMAGES.train.with_steps(7500)),
    "full": ImageSetting(
        size="full",
        patch_size=4,
        embed_dim=64,
        num_heads=4,
        num_layers=6,
        expansion=2,
        num_queries=4,
        batch_size=256,
        train=TrainConfig(steps=24_000, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=500),
        augmentation=SMALL_MOVES,
    ),
}


# Slopes to left, right, above and below before training. Each head faces one side: only there does it look far.
# Heads that start alike take long to part.
_FACING = ((0.3, 3.0, 1.0, 1.0), (3.0, 0.3, 1.0, 1.0), (1.0, 1.0, 0.3, 3.0), (1.0, 1.0, 3.0, 0.3))


def _pixel_arms(distance: PixelSetting, published: PixelSetting) -> dict[str, PixelSetting]:
    """The distance bias, the same model with each kind of positions instead, and the published model."""
    arms = {kind: replace(distance, score="dot", score_options={}, positions=kind) for kind in POSITIONS}
    return {"distance": distance, **arms, "published": published}


_PUBLISHED_PIXELS = PixelSetting(
    size="full",
    patch_size=1,
    embed_dim=64,
    num_heads=1,
    num_layers=2,
    expansion=2,
    batch_size=128,
    train=TrainConfig(steps=4690, lr=1e-3, weight_decay=0.0, betas=(0.9, 0.999)),
    score="distance",
    positions="none",
    as_published=True,
)
_DISTANCE_PIXELS = PixelSetting(
    size="full",
    patch_size=1,
    embed_dim=40,
    num_heads=4,
    num_layers=4,
    expansion=2,
    batch_size=128,
    train=TrainConfig(steps=4690, lr=2e-2, optimizer="muon", weight_decay=0.01, warmup_steps=200),
    score="distance",
    positions="none",
    augmentation=SMALL_MOVES,
    score_options={"each_side": True, "start": _FACING, "width": 28},
)

# Chosen by the accuracy on 2,000 other digits of MNIST's training set, at 14×14 pixels; the test digits took no part in
# it. Full is ten epochs; the published run kept its learning rate where ours falls to 0.
_SMALL_PIXELS = replace(
    _DISTANCE_PIXELS,
    pooling=2,
    embed_dim=32,
    num_layers=3,
    batch_size=24,
    score_options={"each_side": True, "start": _FACING, "width": 14},
)
_SMALL_PUBLISHED_PIXELS = replace(_PUBLISHED_PIXELS, pooling=2, batch_size=24)
MNIST_PIXELS: dict[Profile, dict[str, PixelSetting]] = {
    "quick": _pixel_arms(
        replace(
            _SMALL_PIXELS,
            size="small",
            train=replace(_SMALL_PIXELS.train, steps=400, warmup_steps=50),
            augmentation={},
        ),
        replace(_SMALL_PUBLISHED_PIXELS, size="small", train=_PUBLISHED_PIXELS.train.with_steps(400)),
    ),
    "long": _pixel_arms(
        replace(_SMALL_PIXELS, train=_SMALL_PIXELS.train.with_steps(3000)),
        replace(_SMALL_PUBLISHED_PIXELS, train=_PUBLISHED_PIXELS.train.with_steps(3000)),
    ),
    "full": _pixel_arms(_DISTANCE_PIXELS, _PUBLISHED_PIXELS),
}

# How a model of pixels comes to know where they stand: a learned distance, along the line of pixels as it was published
# or on the grid, or positions, of which the last know the grid, too; and convolutions, which have it built in. All but
# these are the quick model above. The last 2,000 training digits are held out: on them, each arm and seed chooses its
# rate among RATES.
_PLACED_PIXELS = replace(MNIST_PIXELS["quick"]["distance"], held_out=2000, score_options={"start": 0.1})
_UNPLACED_PIXELS = replace(_PLACED_PIXELS, score="dot", score_options={})


def _with_slopes(**options: Any) -> PixelSetting:
    return replace(_PLACED_PIXELS, score_options=_PLACED_PIXELS.score_options | options)


MNIST_PIXELS_POSITIONS: dict[Profile, dict[str, PixelSetting]] = {
    "quick": {
        "line, one slope": _with_slopes(shared=True),
        "line, one slope a head": _with_slopes(),
        "line, two slopes a head": _with_slopes(each_side=True),
        "grid, four slopes a head": _with_slopes(each_side=True, width=14),
        "grid, set by hand": _with_slopes(each_side=True, width=14, start=_FACING),
        **{kind: replace(_UNPLACED_PIXELS, positions=kind) for kind in (*POSITIONS, "sinusoidal grid")},
        "convolutions": ConvolutionSetting(
            **{each.name: getattr(_UNPLACED_PIXELS, each.name) for each in fields(_UNPLACED_PIXELS)}
            | {"train": replace(_UNPLACED_PIXELS.train, optimizer="adamw")}
        ),
    }
}

# What one CPU core does on all 784 pixels in an hour: 3.6 epochs of small digits, then 2,400 large ones.
MNIST_784: dict[Profile, PixelSetting] = {
    "long": replace(
        _DISTANCE_PIXELS,
        batch_size=24,
        train=replace(_DISTANCE_PIXELS.train, steps=100, lr=2e-3, warmup_steps=10),
        coarse_steps=90,
        coarse_lr=_DISTANCE_PIXELS.train.lr,
    ),
}

# As published: ten epochs at one learning rate.
MNIST_784_PUBLISHED: dict[Profile, PixelSetting] = {
    "long": replace(_PUBLISHED_PIXELS, train=replace(_PUBLISHED_PIXELS.train, schedule="constant")),
}


WELL_IMAGES: dict[Profile, ImageSetting] = {
    "quick": ImageSetting(
        size="small",
        patch_size=4,
        embed_dim=64,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=64,
        train=TrainConfig(steps=400, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=50),
    ),
    "long": MNIST_IMAGE_TRANSFORMER["long"],
    "full": MNIST_IMAGE_TRANSFORMER["full"],
}
ENERGY_WELLS: dict[Profile, dict[str, ImageSetting]] = {
    profile: well_arms(plain) for profile, plain in WELL_IMAGES.items()
}

# Each digit is one token. As wells were published, with Adam at a rate of 0.01: "linear" is what one token leaves of a
# well, and "exchanged" is torch's attention with the batch where it expects the sequence. Then the same at a tenth of
# the rate, and with the axes in order. The transformer is that of the course, trained as in ENERGY_WELLS. Quick is five
# epochs of the small MNIST; long is ten of 48,000 digits, as published.
_AS_PUBLISHED = WholeImageSetting(
    size="small",
    patch_size=28,
    embed_dim=784,
    num_heads=1,
    num_layers=1,
    expansion=0,
    batch_size=64,
    train=TrainConfig(steps=780, lr=1e-2, weight_decay=0.0, betas=(0.9, 0.999), grad_clip=1e9, schedule="constant"),
)
_EXCHANGED = replace(_AS_PUBLISHED, batch_first=False)
ONE_TOKEN: dict[Profile, dict[str, ImageSetting]] = {
    "quick": {
        "transformer": replace(WELL_IMAGES["quick"], patch_size=28),
        "linear": _AS_PUBLISHED,
        "exchanged": _EXCHANGED,
        "exchanged, rate 0.001": replace(_EXCHANGED, train=replace(_EXCHANGED.train, lr=1e-3)),
        "in order": replace(_AS_PUBLISHED, batch_first=True),
    },
    "long": {
        arm: replace(setting, size="full", held_out=12_000, train=setting.train.with_steps(7500))
        for arm, setting in {"linear": _AS_PUBLISHED, "exchanged": _EXCHANGED}.items()
    },
}


# Quick was chosen by the probe's accuracy on the last 2,000 of its training digits, which were then not trained on; the
# test digits took no part in it. Long is twice as wide, with probes on moved copies: on 10,000 of the 60,000 training
# digits both helped, where more copies, another layer's tokens, a deeper decoder and fewer hidden patches did not. Full
# has more of everything.
_SMALL_MASKED = MaskedImageSetting(
    size="small",
    patch_size=4,
    embed_dim=64,
    num_heads=4,
    num_layers=3,
    decoder_dim=32,
    decoder_layers=1,
    expansion=2,
    batch_size=128,
    train=TrainConfig(steps=600, lr=1e-2, optimizer="muon", weight_decay=0.01, warmup_steps=50),
)
MASKED_IMAGES: dict[Profile, MaskedImageSetting] = {
    "quick": _SMALL_MASKED,
    "long": replace(
        _SMALL_MASKED,
        size="full",
        embed_dim=128,
        train=_SMALL_MASKED.train.with_steps(16_000),
        augmentation=SMALL_MOVES,
        probe_copies=2,
        probe_penalties=(1e-4,),
    ),
    "full": MaskedImageSetting(
        size="full",
        patch_size=4,
        embed_dim=256,
        num_heads=8,
        num_layers=6,
        decoder_dim=128,
        decoder_layers=2,
        expansion=4,
        batch_size=512,
        train=TrainConfig(steps=20_000, lr=3e-3, optimizer="muon", weight_decay=0.05, warmup_steps=500),
        augmentation=SMALL_MOVES,
        probe_copies=2,
    ),
}

# Patches that are missing beside patches that are wrong: noise, or from elsewhere in the same image. All arms train
# alike, with what was chosen for missing ones.
CORRUPTED_IMAGES: dict[Profile, dict[str, MaskedImageSetting]] = {
    "quick": {how: replace(_SMALL_MASKED, hidden_as=how) for how in ("missing", "noise", "swapped")},
}

# Another share of hidden patches beside the 75 % of masked-images. All train alike, with what was chosen for 75 %.
HIDDEN_SHARES: dict[Profile, dict[str, MaskedImageSetting]] = {
    "quick": {f"{share:.0%}": replace(_SMALL_MASKED, hidden_share=share) for share in (0.25, 0.5, 0.9)},
}


_CLAIM_BASE: dict[Profile, ImageSetting] = {
    "quick": ImageSetting(
        size="small",
        patch_size=4,
        embed_dim=32,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=64,
        train=TrainConfig(steps=400, lr=3e-3, warmup_steps=40),
        held_out=2000,
    ),
    "full": ImageSetting(
        size="full",
        patch_size=4,
        embed_dim=32,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=256,
        train=TrainConfig(steps=5000, lr=3e-3, warmup_steps=200),
        held_out=10_000,
    ),
}


def _claim_arms(base: ImageSetting) -> dict[str, ImageSetting]:
    """One hyper-parameter at a time, with the same steps; then heads and blocks again, with the same size of model.

    More heads of the same dimension, or as many of a larger one, make a wider and larger model. Of the same size are
    more heads that share one width, and more blocks that are narrower.
    """
    H, D = base.num_heads, base.embed_dim // base.num_heads
    return {
        "base": base,
        **{f"heads {n}": replace(base, num_heads=n, embed_dim=n * D) for n in (1, 2, 8)},
        **{f"head dimension {n}": replace(base, embed_dim=H * n) for n in (2, 4, 16)},
        **{f"tokens {(28 // side) ** 2}": replace(base, patch_size=side) for side in (28, 14, 7, 2)},
        **{f"blocks {n}": replace(base, num_layers=n) for n in (1, 4, 8)},
        **{f"heads {n}, same size": replace(base, num_heads=n) for n in (1, 2, 8, 16)},
        **{
            f"blocks {n}, same size": replace(base, num_layers=n, embed_dim=width)
            for n, width in ((1, 44), (4, 24), (8, 16))
        },
    }


SEARCH_CLAIMS: dict[Profile, dict[str, ImageSetting]] = {
    profile: _claim_arms(base) for profile, base in _CLAIM_BASE.items()
}


# Positions are sinusoids everywhere: nothing to learn, so only a score's own parameters differ. The rates are
# those of the experiments above, found there for the dot product or the distance bias.
BAKE_OFF_PATCHES: dict[Profile, dict[str, ImageSetting]] = {
    "quick": every_score(
        replace(
            WELL_IMAGES["quick"],
            positions="sinusoidal",
            train=TrainConfig(steps=200, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=30),
            held_out=2000,
        )
    ),
    "full": every_score(
        replace(
            MNIST_IMAGE_TRANSFORMER["full"],
            positions="sinusoidal",
            train=MNIST_IMAGE_TRANSFORMER["full"].train.with_steps(6000),
            held_out=10_000,
        )
    ),
}
_SINUSOIDAL_PIXELS = MNIST_PIXELS["quick"]["sinusoidal"]
BAKE_OFF_PIXELS: dict[Profile, dict[str, PixelSetting]] = {
    "quick": every_score(
        replace(_SINUSOIDAL_PIXELS, num_layers=2, batch_size=16, train=_SINUSOIDAL_PIXELS.train.with_steps(250))
    ),
    "full": every_score(MNIST_PIXELS["full"]["sinusoidal"]),
}
# Does the lead that the separable score has there outlast a choice of rate and start for each arm? And what do these
# pixels ask of attention: would equal weights do? The other scores take too long to be trained six times for each seed.
_CHOSEN_PIXELS = replace(BAKE_OFF_PIXELS["quick"]["dot"], held_out=2000)
PIXELS_CHOSEN: dict[Profile, dict[str, PixelSetting]] = {
    "quick": {
        "dot": _CHOSEN_PIXELS,
        "separable": replace(_CHOSEN_PIXELS, score="separable"),
        "uniform": replace(_CHOSEN_PIXELS, score_options={"scale": 0.0}),
    }
}

# The middle 20 of 28 columns, in 4 × 4 patches of 7 × 5 pixels: neither image nor patch is a square. The last 2,000
# training digits are held out: on them, each arm and seed chooses its rate among RATES.
RECIPES_IMAGES: dict[Profile, dict[str, CroppedSetting]] = {
    "quick": recipe_arms(
        CroppedSetting(
            size="small",
            patch_size=7,
            embed_dim=64,
            num_heads=4,
            num_layers=2,
            expansion=2,
            batch_size=32,
            train=TrainConfig(steps=300, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=30),
            held_out=2000,
        ),
        16,
        is_causal=False,
    )
}
