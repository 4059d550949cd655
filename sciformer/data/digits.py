"""MNIST, handwritten digits: the small set that is part of the package, and the full set."""

from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sciformer.data._choice import check_choice
from sciformer.data.fetching import MNIST_SMALL_FILES, embedded, full_mnist


def mnist(
    split: Literal["train", "test"] = "train",
    *,
    size: Literal["small", "full"] = "small",
    root: str | Path | None = None,
) -> tuple[Float[Tensor, "N 1 28 28"], Int[Tensor, "N"]]:
    """Handwritten digits: images with values in [0, 1], white (1) on black (0), and their labels.

    ``"small"`` is part of the package: 10,000 training and 2,000 test digits, sampled from all of MNIST.
    ``"full"`` is all 60,000 and 10,000, fetched on first use (11.6 MB) with ``torchvision.datasets.MNIST``.

    Source: MNIST, Yann LeCun and Corinna Cortes, CC BY-SA 3.0.

    Args:
        root: the folder of the full set, see ``data_root``; the small set ignores it.

    Returns:
        Images (N, 1, 28, 28) float32 and labels (N,) int64.

    Raises:
        ValueError: if ``split`` or ``size`` is none of the above.
        DataError: if a file is missing or damaged and cannot be fetched.
    """
    check_choice("split", split, ("train", "test"))
    check_choice("size", size, ("small", "full"))
    if size == "small":
        content = embedded(MNIST_SMALL_FILES[split])
        count = len(content) // (1 + 28 * 28)
        labels, pixels = content[:count], content[count:]
    else:
        # These are the very bytes that were checked; reading the files a second time could return other ones.
        files = full_mnist(root)
        prefix = {"train": "train", "test": "t10k"}[split]
        pixels = files[f"MNIST/raw/{prefix}-images-idx3-ubyte"][16:]  # after the header: magic number and 3 sizes
        labels = files[f"MNIST/raw/{prefix}-labels-idx1-ubyte"][8:]  # after the header: magic number and 1 size
    # torch shares the buffer's memory and warns about read-only bytes, hence a bytearray.
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 1, 28, 28).float() / 255
    return images, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
