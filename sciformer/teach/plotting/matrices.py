"""Pictures of matrices and images: scores, weights, digits, confusions."""

import itertools
import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sciformer.functional import InputError

#: Colours of what a mask hides and of what it lets through, as in the switches of an explorer.
_MASK = ListedColormap(["white", "#9ECAE1"])


def heatmap(
    matrix: Float[Tensor, "L S"] | Bool[Tensor, "L S"],
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    xlabel: str = "key",
    ylabel: str = "query",
    signed: bool = False,
    vmax: float | None = None,
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """A matrix as colours; small ones with their numbers written in. A mask shows ✓ where it is True; NaN is empty.

    Args:
        rows: names of the rows; numbers where there are none.
        signed: centre the colours on 0.
        vmax: value of the strongest colour; the matrix's own largest where it is not given.
    """
    is_mask = matrix.dtype == torch.bool
    matrix = matrix.detach().float().cpu()
    L, S = matrix.shape
    if ax is None:
        cell = min(0.45, 5.5 / S, 4.5 / L)  # inches
        _, ax = plt.subplots(figsize=(2.0 + cell * S, 1.2 + cell * L), layout="constrained")
    finite = matrix[matrix.isfinite()]
    top = vmax if vmax is not None else (float(finite.abs().max() if signed else finite.max()) or 1.0)
    bottom = -top if signed else min(0.0, float(finite.min()))
    top = top if top > bottom else bottom + 1.0
    colors = _MASK if is_mask else "RdBu_r" if signed else "viridis"
    image = ax.imshow(matrix.numpy(), cmap=colors, vmin=bottom, vmax=top)
    for axis, names, count in ((ax.xaxis, columns, S), (ax.yaxis, rows, L)):
        if names is not None:
            axis.set_ticks(range(count), labels=list(names))
        elif count <= 12:
            axis.set_ticks(range(count))
    if columns is not None and max(map(len, columns)) > 2:
        ax.tick_params(axis="x", rotation=45)
    if is_mask:
        for i, j in matrix.nonzero().tolist():
            ax.text(j, i, "✓", ha="center", va="center", fontsize=min(11, 150 / max(L, S)))
        ax.set_xticks([n - 0.5 for n in range(S + 1)], minor=True)
        ax.set_yticks([n - 0.5 for n in range(L + 1)], minor=True)
        ax.grid(which="minor", color="0.75", linewidth=0.7)
        ax.tick_params(which="minor", length=0)
    elif L * S <= 81:
        for i in range(L):
            for j in range(S):
                value = float(matrix[i, j])
                shade = (value - bottom) / (top - bottom) if math.isfinite(value) else 1.0
                dark = abs(shade - 0.5) > 0.3 if signed else shade < 0.6
                text = f"{value:.2f}" if math.isfinite(value) else "" if math.isnan(value) else "–∞"
                ax.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if colorbar and not is_mask:
        ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return ax


def heads(
    weights: Float[Tensor, "H L S"] | Bool[Tensor, "H L S"],
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    signed: bool = False,
    xlabel: str = "key",
    ylabel: str = "query",
    panel_width: float = 2.9,
) -> Figure:
    """One heatmap a head, side by side on one colour scale.

    Args:
        panel_width: width of one heatmap in inches.
    """
    count = len(weights)
    top = float(weights.detach().float().nan_to_num().abs().max())
    width = min(10.0, max(4.0, panel_width * count))
    height = min(3.5, 1.1 + panel_width * weights.shape[-2] / weights.shape[-1])  # no empty space around wide ones
    figure, axes = plt.subplots(1, count, figsize=(width, height), squeeze=False, layout="constrained")
    for h, ax in enumerate(axes[0]):
        title = titles[h] if titles is not None else f"head {h}"
        heatmap(
            weights[h],
            rows=rows,
            columns=columns,
            title=title,
            xlabel=xlabel,
            ylabel="" if h else ylabel,
            signed=signed,
            vmax=top,
            colorbar=False,
            ax=ax,
        )
    if weights.dtype != torch.bool:
        figure.colorbar(axes[0, -1].images[0], ax=axes[0].tolist(), shrink=0.8)
    return figure


def images(
    pictures: Float[Tensor, "N C height width"],
    titles: Sequence[str] | None = None,
    *,
    columns: int = 10,
    signed: bool = False,
    size: float = 1.0,
) -> Figure:
    """Grey pictures in a grid; signed ones red and blue around 0, all on one scale.

    Those of three channels are drawn in their own colours, from 0 to 1. What is NaN is left out, in pale blue.

    Args:
        size: width of one picture in inches.
    """
    pictures = pictures.detach().float().cpu()
    columns = min(columns, len(pictures)) or 1  # of no pictures an empty figure
    rows = math.ceil(len(pictures) / columns) or 1
    height = size * (1.3 if titles is not None else 1.05)
    figure, axes = plt.subplots(
        rows, columns, figsize=(size * columns, height * rows), squeeze=False, layout="constrained"
    )
    top = max((float(picture.nan_to_num().abs().max()) for picture in pictures), default=0.0)
    left_out = torch.tensor(to_rgb("#B3D9F2"))
    for ax in axes.flat[len(pictures) :]:
        ax.axis("off")
    for n, picture in enumerate(pictures):
        ax = axes.flat[n]
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("0.8")
        ax.set_facecolor(left_out.tolist())
        if len(picture) == 3:
            pixels = picture.permute(1, 2, 0)  # (height, width, 3)
            ax.imshow(torch.where(pixels.isnan(), left_out, pixels.clamp(0, 1)).numpy())
        else:
            colors = "RdBu_r" if signed else "gray_r"
            ax.imshow(picture[0].numpy(), cmap=colors, vmin=-top if signed else 0.0, vmax=top)
        if titles is not None:
            ax.set_title(titles[n], fontsize=9)
    return figure


def attention_on_image(
    picture: Float[Tensor, "1 height width"],
    weights: Float[Tensor, "H L L"],
    query: int,
    *,
    titles: Sequence[str] | None = None,
    grid: tuple[int, int] | None = None,
) -> Figure:
    """Where one patch looks, head by head: a red frame around the patch, and brighter where its weight is larger.

    On the weights the picture is an outline, so that it does not change their colours.

    Args:
        query: number of the patch, counted row by row.
        grid: rows and columns of patches, if they are not as many.

    Raises:
        ValueError: if there are not so many patches, or they do not tile the picture.
    """
    picture, count = picture[0].detach().float().cpu(), weights.shape[-1]
    rows, columns = grid or (math.isqrt(count), math.isqrt(count))
    if rows * columns != count or picture.shape[0] % rows or picture.shape[1] % columns:
        raise InputError(
            f"{rows} × {columns} patches are not the {count} that the weights are of, or do not tile a picture of "
            f"{tuple(picture.shape)}; say with grid=(rows, columns) how they lie"
        )
    height, width = picture.shape[0] // rows, picture.shape[1] // columns
    looks = weights[:, query].detach().float().cpu().view(-1, rows, columns)
    looks = looks.repeat_interleave(height, dim=1).repeat_interleave(width, dim=2)
    count = len(looks)
    figure, axes = plt.subplots(1, count + 1, figsize=(1.9 * (count + 1), 2.3), layout="constrained")
    row, column = divmod(query, columns)
    for n, ax in enumerate(axes):
        if n == 0:
            ax.imshow(picture.numpy(), cmap="gray_r")
        else:
            shown = ax.imshow(looks[n - 1].numpy(), cmap="viridis", vmin=0, vmax=float(looks.max()))
            middle = float(picture.min() + picture.max()) / 2
            ax.contour(picture.numpy(), levels=[middle], colors="white", linewidths=0.8)
        corner = (column * width - 0.5, row * height - 0.5)
        frame = plt.Rectangle(corner, width, height, fill=False, ec="#D55E00", lw=2)
        ax.add_patch(frame)
        title = "query patch" if n == 0 else titles[n - 1] if titles is not None else f"head {n - 1}"
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    figure.colorbar(shown, ax=axes.tolist(), shrink=0.7, label="weight")
    return figure


def letters_on_picture(
    picture: Float[Tensor, "1 height width"],
    weights: Float[Tensor, "L S"],
    text: str,
    patch_size: int,
) -> Figure:
    """Where a model looks in a picture when it writes each letter of a text: brighter where the weight is larger.

    A word is a row of panels, with the blank behind it as its last. All panels have one colour scale.

    Args:
        weights: the weights on the S patches, which are counted row by row, for each of the L letters.
        text: the letters that were written, L of them.
        patch_size: pixels of a patch's side.

    Raises:
        ValueError: if there is not one row of weights for each letter, and one column for each patch.
    """
    height, width = picture.shape[-2:]
    grid = height // patch_size, width // patch_size
    if weights.shape != (len(text), grid[0] * grid[1]):
        raise InputError(
            f"{len(text)} letters on {grid[0]} × {grid[1]} patches need weights of "
            f"{(len(text), grid[0] * grid[1])}, got {tuple(weights.shape)}"
        )
    grey = picture[0].detach().float().cpu()
    looks = weights.detach().float().cpu().unflatten(1, grid)  # (L, rows, columns)
    looks = looks.repeat_interleave(patch_size, dim=1).repeat_interleave(patch_size, dim=2)  # (L, height, width)
    words = text.replace(" ", "␣ ").split(" ")
    columns = max(map(len, words))
    panel = 1.55, 1.55 * height / width + 0.3  # inches
    figure, axes = plt.subplots(
        len(words), columns, figsize=(panel[0] * columns, panel[1] * len(words)), squeeze=False, layout="constrained"
    )
    remaining = iter(looks)
    for word, row in zip(words, axes, strict=True):
        for letter, ax in itertools.zip_longest(word, row):
            ax.axis("off")
            if letter is not None:
                ax.imshow(grey.numpy(), cmap="gray_r")
                shown = ax.imshow(next(remaining).numpy(), cmap="viridis", alpha=0.6, vmin=0, vmax=float(looks.max()))
                ax.set_title(letter, fontsize=11)
    figure.colorbar(shown, ax=axes.ravel().tolist(), shrink=0.7, label="weight")
    return figure


def confusion(matrix: Int[Tensor, "K K"]) -> Axes:
    """Mistakes only: the diagonal is left blank, so that it does not drown the rest."""
    counts = matrix.detach().cpu().clone().fill_diagonal_(0)
    _, ax = plt.subplots(figsize=(4.6, 4.0), layout="constrained")
    image = ax.imshow(counts.numpy(), cmap="viridis")
    for i, j in counts.nonzero().tolist():
        light = counts[i, j] > 0.6 * counts.max()
        ax.text(j, i, str(int(counts[i, j])), ha="center", va="center", fontsize=8, color="black" if light else "white")
    ax.set(xlabel="taken for", ylabel="digit", xticks=range(len(counts)), yticks=range(len(counts)))
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="mistakes", ticks=MaxNLocator(integer=True))
    return ax
