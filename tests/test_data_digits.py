"""The digits: the small set that is embedded, and what importing it costs."""

import subprocess
import sys

import pytest
import torch

from sciformer import data

# The share of each digit in all of MNIST.
MNIST_SHARES = {
    "train": [0.0987, 0.1124, 0.0993, 0.1022, 0.0974, 0.0904, 0.0986, 0.1044, 0.0975, 0.0992],
    "test": [0.0980, 0.1135, 0.1032, 0.1010, 0.0982, 0.0892, 0.0958, 0.1028, 0.0974, 0.1009],
}


@pytest.mark.parametrize(("split", "count"), [("train", 10_000), ("test", 2_000)])
def test_small_mnist(split, count):
    images, labels = data.mnist(split)
    assert (images.shape, images.dtype) == ((count, 1, 28, 28), torch.float32)
    assert (labels.shape, labels.dtype) == ((count,), torch.int64)
    assert (images.min(), images.max()) == (0, 1)
    counts = labels.bincount(minlength=10)
    expected = count * torch.tensor(MNIST_SHARES[split])
    assert len(counts) == 10
    assert ((counts - expected).abs() < 3 * expected.sqrt()).all()  # three standard deviations of a random sample
    assert 0.12 < images.mean() < 0.14  # MNIST itself: 0.1307
    assert images[:, :, :2].mean() < 0.001  # the margin is black: rows are rows and no pixel is taken for a label


def test_small_mnist_can_be_told_apart():
    """Labels belong to their images: the nearest class mean is right for four digits in five."""
    (images, labels), (test_images, test_labels) = data.mnist("train"), data.mnist("test")
    means = torch.stack([images[labels == digit].flatten(1).mean(dim=0) for digit in range(10)])  # (10, 784)
    nearest = torch.cdist(test_images.flatten(1), means).argmin(dim=1)
    assert 0.78 < (nearest == test_labels).float().mean() < 0.86


def test_wrong_split_and_size():
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'val'"):
        data.mnist("val")
    with pytest.raises(ValueError, match="size must be 'small' or 'full', got 'large'"):
        data.mnist(size="large")
    with pytest.raises(ValueError, match="split must be 'train' or 'val', got 'test'"):
        data.shakespeare("test")


def test_small_data_do_not_import_torchvision():
    code = "import sys; from sciformer import data; data.mnist('test'); assert 'torchvision' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
