"""What the notebooks train and what ``results/`` records: one definition for both.

An experiment is a setting for each profile and a function that trains it once for one seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sciformer.functional import InputError
from sciformer.lab.experiments.images import (
    BAKE_OFF_PATCHES,
    BAKE_OFF_PIXELS,
    CORRUPTED_IMAGES,
    ENERGY_WELLS,
    HIDDEN_SHARES,
    MASKED_IMAGES,
    MNIST_784,
    MNIST_784_PUBLISHED,
    MNIST_IMAGE_TRANSFORMER,
    MNIST_PIXELS,
    MNIST_PIXELS_POSITIONS,
    ONE_TOKEN,
    PIXELS_CHOSEN,
    RECIPES_IMAGES,
    SEARCH_CLAIMS,
    WELL_IMAGES,
)
from sciformer.lab.experiments.sequences import (
    ADDITIVE_2X2,
    ADDITIVE_LITTLE_TEXT,
    BAKE_OFF_LOOK_UP,
    BAKE_OFF_TEXT,
    CELL_START,
    DATES,
    DECAY_LITTLE_TEXT,
    DIGIT_NAMES,
    ENERGY_WELLS_TEXT,
    INDUCTION,
    NANOGPT,
    RECIPES_TEXT,
    REVERSAL,
    SHAKESPEARE,
    SHAKESPEARE_CELL,
    SHAKESPEARE_DECAY,
    SHAKESPEARE_LADDER,
    SHAKESPEARE_LENGTHS,
    STORIES,
)
from sciformer.lab.settings import ImageSetting, LanguageSetting, Profile
from sciformer.lab.sharpness import train_equally_sharp
from sciformer.lab.trainers import (
    Run,
    train_and_weigh,
    train_at_best_rate,
    train_digit_names,
    train_growing_pixels,
    train_image_transformer,
    train_induction,
    train_language,
    train_lengths,
    train_masked_images,
    train_pixel_transformer,
    train_pixels_at_best_rate,
    train_sequences,
    train_to_choose,
)
from sciformer.training import TrainConfig

__all__ = [
    "ADDITIVE_2X2",
    "ADDITIVE_LITTLE_TEXT",
    "BAKE_OFF_LOOK_UP",
    "BAKE_OFF_PATCHES",
    "BAKE_OFF_PIXELS",
    "BAKE_OFF_TEXT",
    "CAPSTONE",
    "CORRUPTED_IMAGES",
    "DATES",
    "DECAY_LITTLE_TEXT",
    "DIGIT_NAMES",
    "ENERGY_WELLS",
    "ENERGY_WELLS_TEXT",
    "EXPERIMENTS",
    "GAINS",
    "HIDDEN_SHARES",
    "INDUCTION",
    "MASKED_IMAGES",
    "MNIST_784",
    "MNIST_784_PUBLISHED",
    "MNIST_IMAGE_TRANSFORMER",
    "MNIST_PIXELS",
    "MNIST_PIXELS_POSITIONS",
    "NANOGPT",
    "ONE_TOKEN",
    "PIXELS_CHOSEN",
    "RATES",
    "RECIPES_IMAGES",
    "RECIPES_TEXT",
    "REVERSAL",
    "SEARCH_CLAIMS",
    "SHAKESPEARE",
    "SHAKESPEARE_CELL",
    "SHAKESPEARE_DECAY",
    "SHAKESPEARE_LADDER",
    "SHAKESPEARE_LENGTHS",
    "SHARPNESS",
    "SHARP_START",
    "STORIES",
    "Experiment",
    "experiment",
]

# What a score of one's own is trained on, beside some of SCORES, in notebook 17: small, so that several seeds of
# several scores take a minute. No score was tuned for; the rates are those of the experiments on images and text.
_CAPSTONE_TRAIN = TrainConfig(steps=60, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=10)
_CAPSTONE_TEXT = LanguageSetting(
    length=64,
    embed_dim=64,
    num_heads=4,
    num_layers=2,
    batch_size=8,
    train=replace(_CAPSTONE_TRAIN, weight_decay=0.0),
    positions="sinusoidal",
    **CELL_START,
)
_CAPSTONE_DIGITS: dict[Profile, ImageSetting] = {
    "quick": replace(WELL_IMAGES["quick"], batch_size=16, train=_CAPSTONE_TRAIN),
    "full": replace(WELL_IMAGES["quick"], size="full", train=_CAPSTONE_TRAIN.with_steps(3000)),
}
CAPSTONE: dict[Profile, dict[str, ImageSetting | LanguageSetting]] = {
    "quick": {"digits": _CAPSTONE_DIGITS["quick"], "text": _CAPSTONE_TEXT},
    "full": {
        "digits": _CAPSTONE_DIGITS["full"],
        "text": replace(
            _CAPSTONE_TEXT,
            length=128,
            embed_dim=128,
            num_layers=4,
            batch_size=64,
            train=_CAPSTONE_TEXT.train.with_steps(1000),
        ),
    },
}
# Whether what a sharper start gains on the digits of notebook 17 lasts: the same model, on the quick profile trained
# for longer, and beside it one whose scores are seven times as large, as in that notebook. Nothing else differs.
_LONGER_DIGITS: dict[Profile, ImageSetting] = _CAPSTONE_DIGITS | {
    "quick": replace(_CAPSTONE_DIGITS["quick"], train=_CAPSTONE_TRAIN.with_steps(400))
}
SHARP_START: dict[Profile, dict[str, ImageSetting]] = {
    profile: {
        "dot": plain,
        "dot times 7": replace(plain, score_options={"scale": 7 * (plain.embed_dim // plain.num_heads) ** -0.5}),
    }
    for profile, plain in _LONGER_DIGITS.items()
}


@dataclass(frozen=True)
class Experiment:
    """A name that ``python -m sciformer record`` knows.

    Args:
        settings: the setting of each profile. An experiment that compares has several arms: a dict of them by name.
        run: trains one seed: ``run(setting, seed, device=…, progress=…)``.
        seeds: how many seeds a record has.
        trials: how many models each arm and seed trains, to choose one of them.
    """

    settings: dict[Profile, Any]
    run: Callable[..., Run]
    seeds: int
    trials: int = 1

    def arms(self, profile: Profile) -> dict[str | None, Any]:
        """The setting of each arm; the only arm of an experiment that compares nothing is None.

        Raises:
            InputError: if the experiment has no such profile; names those that it has.
        """
        if profile not in self.settings:
            raise InputError(f"there is no profile {profile!r} of it; there are {', '.join(self.settings)}")
        setting = self.settings[profile]
        return setting if isinstance(setting, dict) else {None: setting}


#: How many seeds a record has, fixed beforehand, by how long one run takes on a CPU core: on average over the
#: arms of the quick profile, or of the long one where there is no quick one. Fewer than five decide nothing.
UP_TO_A_MINUTE, LONGER = 10, 5

#: What the learning rate of each arm is chosen from, seed by seed, on training data held out.
RATES = (3e-3, 1e-2, 3e-2)
#: What the gain of queries and keys at the start is chosen from in a bake-off, together with the rate.
GAINS = (1.0, 3.0)
#: How sharp the attention of every score is before training in the control of the bake-off on patches: the largest
#: weight of a row over the average one. The dot product has less as it is made, and more with vectors three times as
#: long.
SHARPNESS = 3.0
_AT_BEST_RATE = partial(train_at_best_rate, rates=RATES)
_TUNED = partial(train_and_weigh, partial(train_at_best_rate, rates=RATES, gains=GAINS))
_TRIALS = len(RATES) * len(GAINS)


def _weighed(train: Callable[..., Run]) -> Callable[..., Run]:
    """A training that is measured twice on its way, and the cost of one of its steps."""
    return partial(train_and_weigh, partial(train, looks=2))


EXPERIMENTS: dict[str, Experiment] = {
    "mnist-image-transformer": Experiment(MNIST_IMAGE_TRANSFORMER, train_image_transformer, seeds=UP_TO_A_MINUTE),
    "mnist-pixels": Experiment(MNIST_PIXELS, train_pixel_transformer, seeds=LONGER),
    "mnist-pixels-positions": Experiment(
        MNIST_PIXELS_POSITIONS, partial(train_pixels_at_best_rate, rates=RATES), seeds=LONGER, trials=len(RATES)
    ),
    "mnist-784": Experiment(MNIST_784, train_growing_pixels, seeds=LONGER),
    "mnist-784-published": Experiment(MNIST_784_PUBLISHED, train_pixel_transformer, seeds=LONGER),
    "shakespeare": Experiment(SHAKESPEARE, train_language, seeds=LONGER),
    "nanogpt": Experiment(NANOGPT, train_language, seeds=LONGER),
    "additive-2x2": Experiment(ADDITIVE_2X2, train_language, seeds=LONGER),
    "additive-2x2-little-text": Experiment(ADDITIVE_LITTLE_TEXT, partial(train_language, looks=20), seeds=LONGER),
    "shakespeare-ladder": Experiment(SHAKESPEARE_LADDER, train_language, seeds=UP_TO_A_MINUTE),
    "shakespeare-decay": Experiment(SHAKESPEARE_DECAY, partial(train_language, looks=1), seeds=UP_TO_A_MINUTE),
    "shakespeare-decay-little-text": Experiment(
        DECAY_LITTLE_TEXT, partial(train_language, looks=2), seeds=UP_TO_A_MINUTE
    ),
    "shakespeare-lengths": Experiment(SHAKESPEARE_LENGTHS, train_lengths, seeds=LONGER),
    "energy-wells": Experiment(ENERGY_WELLS, train_image_transformer, seeds=UP_TO_A_MINUTE),
    "one-token": Experiment(ONE_TOKEN, partial(train_image_transformer, looks=2), seeds=UP_TO_A_MINUTE),
    "energy-wells-text": Experiment(ENERGY_WELLS_TEXT, train_language, seeds=LONGER),
    "masked-images": Experiment(MASKED_IMAGES, train_masked_images, seeds=LONGER),
    "corrupted-images": Experiment(CORRUPTED_IMAGES, train_masked_images, seeds=LONGER),
    "hidden-shares": Experiment(HIDDEN_SHARES, partial(train_masked_images, looks=2), seeds=LONGER),
    "search-claims": Experiment(SEARCH_CLAIMS, train_to_choose, seeds=UP_TO_A_MINUTE),
    "reversal": Experiment(REVERSAL, train_sequences, seeds=UP_TO_A_MINUTE),
    "dates": Experiment(DATES, train_sequences, seeds=LONGER),
    "stories": Experiment(STORIES, train_sequences, seeds=LONGER),
    "digit-names": Experiment(DIGIT_NAMES, train_digit_names, seeds=LONGER),
    "induction": Experiment(INDUCTION, train_induction, seeds=LONGER),
    "sharp-start": Experiment(SHARP_START, partial(train_image_transformer, looks=20), seeds=UP_TO_A_MINUTE),
    "recipes-images": Experiment(RECIPES_IMAGES, _AT_BEST_RATE, seeds=UP_TO_A_MINUTE, trials=len(RATES)),
    "recipes-text": Experiment(RECIPES_TEXT, _AT_BEST_RATE, seeds=UP_TO_A_MINUTE, trials=len(RATES)),
    "bake-off-look-up": Experiment(BAKE_OFF_LOOK_UP, _TUNED, seeds=UP_TO_A_MINUTE, trials=_TRIALS),
    "bake-off-patches": Experiment(BAKE_OFF_PATCHES, _TUNED, seeds=LONGER, trials=_TRIALS),
    "equally-sharp": Experiment(
        {"quick": BAKE_OFF_PATCHES["quick"]},
        partial(train_equally_sharp, wanted=SHARPNESS, rates=RATES),
        seeds=LONGER,
        trials=len(RATES),
    ),
    "bake-off-pixels": Experiment(BAKE_OFF_PIXELS, _weighed(train_image_transformer), seeds=LONGER),
    "pixels-chosen": Experiment(PIXELS_CHOSEN, partial(_AT_BEST_RATE, gains=GAINS), seeds=LONGER, trials=_TRIALS),
    "bake-off-text": Experiment(BAKE_OFF_TEXT, _TUNED, seeds=LONGER, trials=_TRIALS),
}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        InputError: if there is none; names those that there are.
    """
    if name not in EXPERIMENTS:
        raise InputError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
