"""Diagrams of how pictures go through a transformer."""

import math

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from sciformer.teach.diagrams.sheet import Sheet

_PITCH, _LEFT = 0.6, 1.55  # inches from one token to the next, and to the left of the first


def _picture(sheet: Sheet, x: float, y: float, side: float, pixels: Float[Tensor, "height width"]) -> None:
    """A grey picture with its lower left corner at (x, y)."""
    extent = (x, x + side, y, y + side)
    sheet.ax.imshow(pixels.detach().float().cpu().numpy(), cmap="gray_r", vmin=0, vmax=1, extent=extent)
    sheet.ax.add_patch(Rectangle((x, y), side, side, fill=False, ec="0.35", lw=0.7))


def image_pipeline(
    digit: Float[Tensor, "1 height width"],
    tokens: Float[Tensor, "L E"],
    positions: Float[Tensor, "L E"],
    logits: Float[Tensor, "K"],
    *,
    num_blocks: int,
) -> Figure:
    """An image transformer from left to right and from above: the digit, its patches, their tokens, the logits.

    The digit and its patches are squares.

    Args:
        tokens: embedded patches, row by row.
        positions: what is added to them.
    """
    L, E = tokens.shape
    grid = math.isqrt(L)
    side = digit.shape[-1] // grid
    patches = digit[0].unfold(0, side, side).unfold(1, side, side).flatten(0, 1)  # (L, side, side)
    right = _LEFT + L * _PITCH
    sheet = Sheet(right + 0.1, 6.9)
    _picture(sheet, 0.1, 5.45, 1.15, digit[0])
    for n in range(1, grid):
        at = 1.15 * n / grid
        sheet.ax.plot([0.1 + at, 0.1 + at], [5.45, 6.6], color="#D55E00", lw=0.8)
        sheet.ax.plot([0.1, 1.25], [5.45 + at, 5.45 + at], color="#D55E00", lw=0.8)
    sheet.text(0.68, 6.73, f"digit {tuple(digit.shape)}", size=8)
    sheet.text((_LEFT + right) / 2, 6.73, f"cut into {L} patches of {side}×{side} pixels, read row by row")
    for n in range(L):
        x = _LEFT + n * _PITCH
        _picture(sheet, x, 5.7, 0.5, patches[n])
        sheet.text(x + 0.25, 6.33, str(n), size=8)
        column = sheet.tensor(x + 0.04, 3.85, tokens[n, :3, None], cell=0.42, digits=2)
        sheet.arrow((x + 0.25, 5.68), column["top"])
        sheet.tensor(x + 0.04, 2.2, positions[n, :3, None], cell=0.42, digits=2, fill="weight")
    for y, words in (
        (5.2, "one linear map\nfor all patches"),
        (4.5, f"tokens ({L}, {E}),\n3 of {E} features"),
        (3.64, "+"),
        (2.85, "positions, one\nlearned vector\nfor each place"),
    ):
        sheet.text(0.68, y - 0.1, words, size=8)
    stack = sheet.box(
        _LEFT - 0.1, 1.2, right - _LEFT + 0.1, 0.55,
        f"{num_blocks} transformer blocks: the {L} tokens look at each other, then each one is transformed",
    )  # fmt: skip
    for n in range(L):
        x = _LEFT + n * _PITCH + 0.25
        sheet.arrow((x, 2.18), (x, stack["top"][1]))
    mean = sheet.box(_LEFT - 0.1, 0.2, 2.9, 0.5, f"norm, then the mean over {L} tokens")
    sheet.arrow((mean["top"][0], 1.18), mean["top"])
    linear = sheet.box(_LEFT + 3.4, 0.2, 1.2, 0.5, "linear map")
    sheet.arrow(mean["right"], linear["left"], f"({E},)")
    names = [str(k) for k in range(len(logits))]
    out = sheet.tensor(
        right - 0.44 * len(logits),
        0.22,
        logits[None],
        columns=names,
        cell=0.44,
        fill="output",
        name="one logit a class",
    )
    sheet.arrow(linear["right"], out["left"])
    return sheet.done()


def head_windows(
    digit: Float[Tensor, "1 height width"],
    before: Float[Tensor, "H 4"],
    after: Float[Tensor, "H 4"],
    *,
    query: tuple[int, int],
) -> Figure:
    """How strongly the slopes of each head let one pixel look at each other pixel, before and after training.

    Args:
        before: slopes to the left, to the right, above and below, one row for each head; they stand at the windows'
            sides.
        after: the same after training.
        query: row and column of the pixel that looks.
    """
    side, gap, left = 1.5, 0.95, 3.55
    shape = digit.shape[-2], digit.shape[-1]
    width, height = left + len(before) * (side + gap) - 0.25, 2 * (side + 0.95) + 0.85
    sheet = Sheet(width, height)
    middle = 1.0 + side + 0.475  # between the two rows of windows
    _picture(sheet, 0.25, middle - side / 2, side, digit[0])
    _mark(sheet, 0.25, middle - side / 2, side / shape[1], shape[0], query)
    sheet.text(0.25 + side / 2, middle + side / 2 + 0.15, "a digit; the query is orange", size=8)
    for line, (name, slopes) in enumerate((("before\ntraining", before), ("after\ntraining", after))):
        y = 1.0 + (1 - line) * (side + 0.95)
        sheet.text(left - 0.95, y + side / 2, name)
        for h, of_head in enumerate(slopes.detach().float().cpu()):
            x = left + h * (side + gap)
            _window(sheet, x, y, side, shape, of_head, query)
            ends = [f"{slope:.2f}".replace("-", "−") for slope in of_head.tolist()]
            sheet.text(x - 0.06, y + side / 2, ends[0], size=8, align="right")
            sheet.text(x + side + 0.06, y + side / 2, ends[1], size=8, align="left")
            sheet.text(x + side / 2, y + side + 0.12, ends[2], size=8)
            sheet.text(x + side / 2, y - 0.12, ends[3], size=8)
            if not line:
                sheet.text(x + side / 2, y + side + 0.38, f"head {h}", weight="bold")
    middle = (left + width) / 2
    sheet.ax.imshow(
        [[n / 99 for n in range(100)]], cmap="Blues", vmin=0, vmax=1, extent=(middle - 1.5, middle + 1.5, 0.25, 0.4)
    )
    for x, words, align in ((middle - 1.6, "factor on the weight: 0", "right"), (middle + 1.6, "1 or more", "left")):
        sheet.text(x, 0.325, words, size=8, align=align)
    return sheet.done()


def _window(
    sheet: Sheet, x: float, y: float, side: float, shape: tuple[int, int], slopes: Tensor, query: tuple[int, int]
) -> None:
    """The factor e^(-price) of each pixel, at most 1; blue where it is large."""
    height, width = shape
    down = torch.arange(height)[:, None] - query[0]
    right = torch.arange(width) - query[1]
    sides = ((-right).clamp(min=0), right.clamp(min=0), (-down).clamp(min=0), down.clamp(min=0))
    price = sum(slope * steps for slope, steps in zip(slopes, sides, strict=True))
    factor = (-price).exp().clamp(max=1)  # (height, width)
    sheet.ax.imshow(factor.numpy(), cmap="Blues", vmin=0, vmax=1, extent=(x, x + side, y, y + side))
    sheet.ax.add_patch(Rectangle((x, y), side, side, fill=False, ec="0.35", lw=0.7))
    _mark(sheet, x, y, side / width, height, query)


def _mark(sheet: Sheet, x: float, y: float, cell: float, height: int, query: tuple[int, int]) -> None:
    """An orange frame around the pixel that looks, in a picture whose lower left corner is (x, y)."""
    corner = (x + query[1] * cell, y + (height - 1 - query[0]) * cell)
    sheet.ax.add_patch(Rectangle(corner, cell, cell, fill=False, ec="#D55E00", lw=1.8))
