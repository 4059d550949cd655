"""Pictures of vectors in a plane: inputs and outputs, clusters, clocks, regions of an image."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from sciformer.teach.plotting.style import COLORS, finish_lines

#: Colours of regions over a photograph: the first four differ most, no two of them are blue, and none is dark.
_REGIONS = [COLORS[0], COLORS[5], "#FFFFFF", *(COLORS[n] for n in (4, 6, 1, 3))]


def convex_hull(points: Float[Tensor, "N 2"]) -> Float[Tensor, "K 2"]:
    """Corners of the smallest convex shape around points in the plane, counter-clockwise (monotone chain)."""
    ordered = sorted({(float(x), float(y)) for x, y in points})

    def chain(corners: list[tuple[float, float]]) -> list[tuple[float, float]]:
        kept: list[tuple[float, float]] = []
        for x, y in corners:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:  # a left turn at b: b is a corner
                    break
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return torch.tensor((chain(ordered) + chain(ordered[::-1])) or ordered)


def plane(
    points: Float[Tensor, "N 2"],
    labels: Sequence[str],
    *,
    moved: Float[Tensor, "N 2"] | None = None,
    hull: bool = False,
    from_origin: bool = False,
    label_moved: bool = False,
    legend: bool = True,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Labelled points in the plane and, where ``moved`` is given, an arrow from each to where it went.

    Points that coincide are drawn once, with one label.

    Args:
        hull: shade the convex hull of the points.
        from_origin: draw each point as an arrow from the origin, both axes on one scale, so that lengths and angles
            can be compared.
        label_moved: put the labels where the points went, for inputs that lie close together.
    """
    points = points.detach().float().cpu()
    if ax is None:
        _, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
    if hull:
        ax.fill(*convex_hull(points).T, color=COLORS[0], alpha=0.1, label="convex hull of the inputs")
    ax.scatter(*points.T, color=COLORS[0], zorder=3, label="input")
    if from_origin:
        ax.set_aspect("equal")
        ax.scatter(0, 0, color="0.2", marker="+", zorder=3)
        arrow = {"arrowstyle": "->", "color": COLORS[0], "alpha": 0.45, "shrinkA": 0}
        for tip in points.unique(dim=0).tolist():
            ax.annotate("", tip, (0, 0), arrowprops=arrow)
    if moved is not None:
        moved = moved.detach().float().cpu()
        for start, end in zip(points.tolist(), moved.tolist(), strict=True):
            ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.5", "shrinkA": 3, "shrinkB": 3})
        ax.scatter(*moved.T, color=COLORS[1], marker="s", zorder=3, label="output")
        if legend:
            ax.legend(frameon=False, fontsize=8)
    labelled = moved if moved is not None and label_moved else points
    for (x, y), label in {tuple(p): label for p, label in zip(labelled.tolist(), labels, strict=True)}.items():
        ax.annotate(label, (x, y), (5, 5), textcoords="offset points", fontsize=10)
    ax.set(title=title, xlabel="first feature", ylabel="second feature")
    ax.margins(0.15)
    return finish_lines(ax)


def clocks(hands: Mapping[str, Float[Tensor, "E"]], *, titles: Sequence[str] | None = None, columns: int = 8) -> Figure:
    """Sinusoidal position vectors as clocks: one clock for each pair (sin, cos), one hand for each vector.

    A hand at angle 0 points straight up, and a growing angle turns it clockwise.

    Args:
        hands: name -> position vector, all of one even width.
        titles: one for each clock.
    """
    vectors = {name: vector.detach().float().cpu().view(-1, 2) for name, vector in hands.items()}
    count = len(next(iter(vectors.values())))
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(1.25 * columns, 1.7 * rows + 0.4),
        squeeze=False,
        layout=ConstrainedLayoutEngine(h_pad=0.08),
    )
    turn = torch.linspace(0, 2 * math.pi, 100)
    for ax in axes.flat:
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
        ax.axis("off")
    for n in range(count):
        ax = axes.flat[n]
        ax.plot(turn.sin().numpy(), turn.cos().numpy(), color="0.8")
        for color, (name, pairs) in zip(COLORS, vectors.items(), strict=False):
            ax.plot([0, float(pairs[n, 0])], [0, float(pairs[n, 1])], color=color, linewidth=2.5, label=name)
        ax.set_title(titles[n] if titles is not None else f"pair {n}", fontsize=9)
    lines, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def clusters(
    points: Float[Tensor, "L 2"],
    labels: Int[Tensor, "L"],
    importance: Float[Tensor, "L"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Tokens in the plane, a colour for each cluster; the area of a dot grows with its importance."""
    if ax is None:
        _, ax = plt.subplots(figsize=(4.6, 3.6), layout="constrained")
    points, importance = points.detach().cpu(), importance.detach().cpu()
    for cluster in labels.unique().tolist():
        own = (labels == cluster).cpu()
        x, y = points[own].T.numpy()
        weight = float(importance[own][0])
        name = f"cluster {cluster}, importance {weight:g}"
        ax.scatter(x, y, s=(20 * importance[own]).numpy(), color=COLORS[cluster % len(COLORS)], alpha=0.7, label=name)
    ax.set(title=title, xlabel="first feature", ylabel="second feature", aspect="equal")
    finish_lines(ax).legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def regions(
    picture: Float[Tensor, "3 height width"],
    maps: Mapping[str, Int[Tensor, "rows columns"]],
    *,
    step: int,
    start: int = 0,
    line: int | None = None,
) -> Figure:
    """A colour picture, and beside it the same under the colours of its regions, once for each map.

    Args:
        maps: title -> the label of each square of ``step`` pixels, row by row.
        start: where in the picture the first square begins, in pixels from the left and from above.
        line: draw a dashed line at this height, in pixels from above.
    """
    pixels = picture.detach().permute(1, 2, 0).clamp(0, 1).cpu().numpy()
    count = 1 + len(maps)
    figure, axes = plt.subplots(1, count, figsize=(2.6 * count + 1.2, 3.2), squeeze=False, layout="constrained")
    axes[0, 0].set(ylabel="pixels")
    for ax in axes.flat:
        ax.imshow(pixels)
        if line is not None:
            ax.axhline(line, color="black", linestyle="--", linewidth=1)
    palette = ListedColormap(_REGIONS[: max(int(labels.max()) for labels in maps.values()) + 1])
    for ax, (title, labels) in zip(axes[0, 1:], maps.items(), strict=True):
        rows, columns = labels.shape
        edges = (start - 0.5, start + columns * step - 0.5, start + rows * step - 0.5, start - 0.5)
        numbers = labels.detach().cpu().numpy()
        ax.imshow(numbers, cmap=palette, extent=edges, alpha=0.5, vmin=0, vmax=palette.N - 1)
        ax.set_title(title)
    for ax in axes.flat:
        ax.set(xlabel="pixels", xlim=(-0.5, pixels.shape[1] - 0.5), ylim=(pixels.shape[0] - 0.5, -0.5))
    for n in range(palette.N):
        style = {"color": _REGIONS[n], "markeredgecolor": "0.5", "alpha": 0.6}
        axes[0, -1].plot([], [], "s", label=f"cluster {n}", **style)
    axes[0, -1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
