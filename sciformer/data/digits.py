"""MNIST: handwritten digits, a small set that the package carries and the full one."""

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
    """Handwritten digits: images in [0, 1], white (1) on black (0), and which digit each one is.

    ``"small"`` is embedded in the package: 10,000 digits to train on and 2,000 to test on, sampled from all of MNIST.
    ``"full"`` is all 60,000 and 10,000, fetched on first use (11.6 MB) with ``torchvision.datasets.MNIST``.

    Source: MNIST, Yann LeCun and Corinna Cortes, CC BY-SA 3.0.

    Args:
        root: the folder of the full set, see ``data_root``; the small set does not look there.

    Returns:
        Images (N, 1, 28, 28) float32 and labels (N,) int64.

    Raises:
        ValueError: if ``split`` or ``size`` is none of the above.
        DataError: if the data cannot be had whole, see there.
    """
    check_choice("split", split, ("train", "test"))
    check_choice("size", size, ("small", "full"))
    if size == "small":
        content = embedded(MNIST_SMALL_FILES[split])
        count = len(content) // (1 + 28 * 28)
        labels, pixels = content[:count], content[count:]
    else:
        # The bytes that were checked are the bytes that are used, so no second reading can bring in other ones.
        files = full_mnist(root)
        prefix = {"train": "train", "test": "t10k"}[split]
        pixels = files[f"MNIST/raw/{prefix}-images-idx3-ubyte"][16:]  # after the header: magic number and 3 sizes
        labels = files[f"MNIST/raw/{prefix}-labels-idx1-ubyte"][8:]  # after the header: magic number and 1 size
    # A bytearray, because torch shares its memory and would warn about bytes, which cannot be written.
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 1, 28, 28).float() / 255
    return images, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
