"""Two kinds of data in one task: handwritten digits in a row, and their names as text."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sciformer.data.text import Vocabulary
from sciformer.functional import InputError

#: What the digits are called.
DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

#: The vocabulary of the names; padding, start and end come first, then the blank between two names.
NAME_LETTERS = Vocabulary("_<> efghinorstuvwxz")


def digit_rows(
    images: Float[Tensor, "N 1 height width"],
    labels: Int[Tensor, "N"],
    count: int,
    generator: torch.Generator,
    *,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> tuple[Float[Tensor, "B 1 height row_width"], list[str]]:
    """Pictures of two or three digits side by side, and the digits' names: "three one four".

    All is drawn uniformly: how many digits a row has, and each digit among those given. A row is as wide as three
    digits; one of two digits is black at its right end.

    Args:
        images: digits to draw from, white (1) on black (0), such as those of :func:`sciformer.data.mnist`.
        labels: what digits they are, 0 to 9.
        count: number of rows, B.
        generator: on the CPU, whatever the images' device, so that every device gets the same rows.
        augment: called as ``augment(digits, generator)`` on the drawn digits (3 · B, 1, height, width), for example
            ``random_affine``.

    Returns:
        Rows (B, 1, height, 3 · width) and B texts in the characters of :data:`NAME_LETTERS`.

    Raises:
        ValueError: if ``count`` is below 1, there is no digit, or not one label for each image.
    """
    if count < 1 or not len(images) == len(labels) > 0:
        raise InputError(
            f"digit_rows needs 1 row or more, and digits with a label each, got count {count}, {len(images)} images "
            f"and {len(labels)} labels"
        )
    lengths = torch.randint(2, 4, (count,), generator=generator)
    chosen = torch.randint(len(images), (count, 3), generator=generator)
    digits = images[chosen.flatten().to(images.device)]  # (3 B, 1, height, width)
    if augment is not None:
        digits = augment(digits, generator)
    there = torch.arange(3) < lengths[:, None]  # (B, 3)
    digits = digits.unflatten(0, (count, 3)) * there.to(digits)[..., None, None, None]  # (B, 3, 1, height, width)
    rows = digits.permute(0, 2, 3, 1, 4).flatten(3)  # (B, 1, height, 3 * width)
    called = labels[chosen.to(labels.device)].tolist()
    names = [
        " ".join(DIGIT_NAMES[digit] for digit in row[:length])
        for row, length in zip(called, lengths.tolist(), strict=True)
    ]
    return rows, names
