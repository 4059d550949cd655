"""Settings make the data that they promise."""

from dataclasses import replace

import torch

from sciformer import data
from sciformer.lab import experiments


def test_pixels_are_pooled_and_scaled():
    setting = experiments.MNIST_PIXELS["quick"]["distance"]
    images, labels = next(setting.training_batches(seed=0))
    assert images.shape == (24, 1, 14, 14)
    assert (images.min(), images.max()) == (-1, 1)
    plain, same_labels = next(replace(experiments.WELL_IMAGES["quick"], batch_size=24).training_batches(seed=0))
    torch.testing.assert_close(images[3, 0, 5, 6], plain[3, 0, 10:12, 12:14].mean() * 2 - 1)
    assert torch.equal(labels, same_labels)
    assert setting.test_batches()[0][0].shape == (1000, 1, 14, 14)


def test_a_share_of_the_text_is_its_beginning():
    setting = replace(experiments.SHAKESPEARE_CELL["quick"], text_share=0.001, length=8, batch_size=100)
    tokens, vocabulary = data.shakespeare("train")
    beginning = vocabulary.decode(tokens[: round(len(tokens) / 1000)])
    inputs, _ = next(setting.training_batches(seed=0))  # most of it, in chunks
    starts = [beginning.find(vocabulary.decode(chunk)) for chunk in inputs]
    assert min(starts) >= 0
    assert max(starts) > 0.9 * len(beginning)
