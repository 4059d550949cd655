"""MNIST, handwritten digits: the small set that is part of the package, and the full set."""

from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor

from sciformer.data._choice import check_choice
from sciformer.data.fetching import MNIST_SMALL_FILES, embedded, full_mnist
from sciformer.data.files import check_regular
from sciformer.functional import InputError


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


def digit_from_picture(path: str | Path) -> Float[Tensor, "1 28 28"]:
    """A picture of one digit as those of MNIST are: white on black, values in [0, 1].

    A picture that is 28 × 28 and dark at its border is taken as it is. In any other the ink is what differs from the
    border, be it darker or lighter; it is scaled until it fits into 20 × 20 pixels, and its centre of mass is put into
    the middle of 28 × 28, as MNIST's authors did. Source: LeCun et al. 1998, doi:10.1109/5.726791, section III A.

    Args:
        path: a file that Pillow reads, such as a PNG or a JPEG. What is transparent counts as white.

    Raises:
        ValueError: if the file is no such picture, or nothing is drawn on it.
        OSError: if the file cannot be read.
    """
    check_regular(Path(path))
    with Path(path).open("rb") as file:
        try:
            clear = Image.open(file).convert("RGBA")
        except (OSError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
            raise InputError(f"{path} is no picture that can be read") from error
    grey = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("L")
    height, width = grey.height, grey.width
    pixels = torch.frombuffer(bytearray(grey.tobytes()), dtype=torch.uint8).view(height, width).float() / 255
    border = torch.cat((pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])).median()
    if (height, width) == (28, 28) and border < 0.5:
        return pixels[None]
    ink = (pixels - border).abs()
    if ink.max() < 0.1:
        raise InputError(f"{path} shows nothing: all of it is about as bright as its border")
    ink = (ink / ink.max()).where(ink > 0.1 * ink.max(), torch.zeros(()))  # the paper is not evenly bright
    rows, columns = (ink.amax(dim=axis).nonzero().flatten() for axis in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = 20 / max(ink.shape)
    size = [max(1, round(scale * side)) for side in ink.shape]
    small = F.interpolate(ink[None, None], size, mode="bilinear", antialias=True)[0, 0].clamp(0, 1)
    # The centre of mass lands on (14, 14), where those of MNIST are, as far as the ink stays inside.
    h, w = size
    y = round(14 - float((small.sum(dim=1) * torch.arange(h)).sum() / small.sum()))
    x = round(14 - float((small.sum(dim=0) * torch.arange(w)).sum() / small.sum()))
    y, x = min(max(y, 0), 28 - h), min(max(x, 0), 28 - w)
    return F.pad(small, (x, 28 - w - x, y, 28 - h - y))[None]
