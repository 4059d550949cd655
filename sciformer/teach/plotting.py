"""Every picture that the notebooks draw. Each function draws and returns what it drew on; the notebook shows it.

Colours: viridis for what is positive, a red-blue map centred on 0 for what is signed, Okabe and Ito's palette for
lines. All three stay legible to colour-blind readers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sciformer.lab.metrics import mean_and_error, power_law

#: Okabe and Ito's colour-blind safe palette (Wong 2011, doi:10.1038/nmeth.1618), yellow left out: it fades on white.
#: In an order in which the first few, which most pictures need, look least alike however one sees colours.
COLORS = ("#0072B2", "#D55E00", "#000000", "#56B4E9", "#CC79A7", "#E69F00", "#009E73")


def figure_of(drawn: Figure | Axes) -> Figure:
    """The whole figure that something was drawn on, to save it or close it."""
    return drawn if isinstance(drawn, Figure) else cast(Figure, drawn.figure)


def heatmap(
    matrix: Float[Tensor, "L S"],
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
    """A matrix as colours; small ones with their numbers written in.

    Args:
        rows: names of the rows; numbers where there are none.
        signed: centre the colours on 0.
        vmax: value of the strongest colour; the matrix's own largest where it is not given.
    """
    matrix = matrix.detach().float().cpu()
    L, S = matrix.shape
    if ax is None:
        cell = min(0.45, 5.5 / S, 4.5 / L)  # inches
        _, ax = plt.subplots(figsize=(2.0 + cell * S, 1.2 + cell * L), layout="constrained")
    finite = matrix[matrix.isfinite()]
    top = vmax if vmax is not None else (float(finite.abs().max() if signed else finite.max()) or 1.0)
    bottom = -top if signed else min(0.0, float(finite.min()))
    top = top if top > bottom else bottom + 1.0
    image = ax.imshow(matrix.numpy(), cmap="RdBu_r" if signed else "viridis", vmin=bottom, vmax=top)
    for axis, names, count in ((ax.xaxis, columns, S), (ax.yaxis, rows, L)):
        if names is not None:
            axis.set_ticks(range(count), labels=list(names))
        elif count <= 12:
            axis.set_ticks(range(count))
    if columns is not None and max(map(len, columns)) > 2:
        ax.tick_params(axis="x", rotation=45)
    if L * S <= 81:
        for i in range(L):
            for j in range(S):
                value = float(matrix[i, j])
                shade = (value - bottom) / (top - bottom) if math.isfinite(value) else 1.0
                dark = abs(shade - 0.5) > 0.3 if signed else shade < 0.6
                text = f"{value:.2f}" if math.isfinite(value) else "–∞"
                ax.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return ax


def heads(
    weights: Float[Tensor, "H L S"],
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
    top = float(weights.detach().abs().max())
    width = min(10.0, max(4.0, panel_width * count))
    height = min(3.1, 1.0 + panel_width * weights.shape[-2] / weights.shape[-1])  # no empty space around wide ones
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
    columns = min(columns, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    height = size * (1.3 if titles is not None else 1.05)
    figure, axes = plt.subplots(
        rows, columns, figsize=(size * columns, height * rows), squeeze=False, layout="constrained"
    )
    top = float(pictures.nan_to_num().abs().max())
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
) -> Figure:
    """Where one patch looks, head by head: a red frame around the patch, and brighter where its weight is larger.

    Args:
        query: number of the patch, counted row by row.
    """
    grid = math.isqrt(weights.shape[-1])
    picture = picture[0].detach().float().cpu()
    side = picture.shape[-1] // grid
    looks = weights[:, query].detach().float().cpu().view(-1, grid, grid)
    looks = looks.repeat_interleave(side, dim=1).repeat_interleave(side, dim=2)
    count = len(looks)
    figure, axes = plt.subplots(1, count + 1, figsize=(1.9 * (count + 1), 2.3), layout="constrained")
    row, column = divmod(query, grid)
    for n, ax in enumerate(axes):
        ax.imshow(picture.numpy(), cmap="gray_r")
        if n:
            shown = ax.imshow(looks[n - 1].numpy(), cmap="viridis", alpha=0.7, vmin=0, vmax=float(looks.max()))
        frame = plt.Rectangle((column * side - 0.5, row * side - 0.5), side, side, fill=False, ec="#D55E00", lw=2)
        ax.add_patch(frame)
        title = "query patch" if n == 0 else titles[n - 1] if titles is not None else f"head {n - 1}"
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    figure.colorbar(shown, ax=axes.tolist(), shrink=0.7, label="weight")
    return figure


def curves(
    series: Mapping[str, Sequence[float] | Sequence[tuple[float, float]]],
    *,
    xlabel: str = "step",
    ylabel: str = "loss",
    title: str = "",
    smooth: int = 1,
    logy: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Lines with a legend. A series is a list of values or of (x, value).

    Args:
        smooth: draw the running mean over this many points, and the raw line faintly behind it.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 3.2), layout="constrained")
    for n, (label, points) in enumerate(series.items()):
        color, data = COLORS[n % len(COLORS)], torch.as_tensor(points, dtype=torch.float64)
        x, y = (data[:, 0], data[:, 1]) if data.dim() == 2 else (torch.arange(1, len(data) + 1), data)
        if smooth > 1 and len(y) > smooth:
            ax.plot(x.numpy(), y.numpy(), color=color, alpha=0.2, linewidth=0.8)
            x, y = x[smooth - 1 :], y.unfold(0, smooth, 1).mean(-1)
        ax.plot(x.numpy(), y.numpy(), color=color, label=label)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return _finish_lines(ax, legend=len(series) > 1, logy=logy)


def _finish_lines(ax: Axes, *, legend: bool = False, logy: bool = False) -> Axes:
    if logy:
        ax.set_yscale("log")
    if legend:
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    return ax


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


def bars(
    values: Float[Tensor, "N"],
    labels: Sequence[str] | None = None,
    *,
    title: str = "",
    xlabel: str = "key",
    ylabel: str = "weight",
    top: float | None = None,
    highlight: int | None = None,
    numbers: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One bar a value; labels may repeat, as the words of a sentence do.

    Args:
        top: upper end of the axis; matplotlib's choice where it is not given.
        highlight: the bar to draw in the second colour.
        numbers: write each value on its bar; many bars have no room for it.
    """
    values = values.detach().float().cpu()
    if ax is None:
        _, ax = plt.subplots(figsize=(min(8.0, 1.5 + 0.7 * len(values)), 3.0), layout="constrained")
    colors = [COLORS[1] if n == highlight else COLORS[0] for n in range(len(values))]
    drawn = ax.bar(range(len(values)), values.tolist(), color=colors)
    if numbers:
        ax.bar_label(drawn, fmt="%.2f", fontsize=8, padding=2)
    if labels is not None or len(values) <= 12:
        ax.set_xticks(range(len(values)), labels=None if labels is None else list(labels))
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if top is not None:
        ax.set_ylim(top=top)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def dots_and_curves(
    x: Float[Tensor, "N"] | Int[Tensor, "N"],
    y: Float[Tensor, "N"],
    lines: Mapping[str, Float[Tensor, "M"]],
    *,
    at: Float[Tensor, "M"] | None = None,
    dots: str = "samples",
    title: str = "",
    xlabel: str = "place",
    ylabel: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """Samples as dots, and lines through them.

    Args:
        at: where the lines have their values; at the samples where it is not given.
        dots: what the legend calls the samples.
    """
    at = x if at is None else at
    series = {name: torch.stack([at.double(), line.double()], dim=-1) for name, line in lines.items()}
    ax = curves(series, xlabel=xlabel, ylabel=ylabel, title=title, ax=ax)  # type: ignore[arg-type]
    ax.scatter(x, y, color="0.35", s=10, zorder=1, label=dots)
    ax.legend(frameon=False)
    return ax


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
    label_moved: bool = False,
    legend: bool = True,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Labelled points in the plane and, where ``moved`` is given, an arrow from each to where it went.

    Points that coincide are drawn once, with one label.

    Args:
        hull: shade the convex hull of the points.
        label_moved: put the labels where the points went, for inputs that lie close together.
    """
    points = points.detach().float().cpu()
    if ax is None:
        _, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
    if hull:
        ax.fill(*convex_hull(points).T, color=COLORS[0], alpha=0.1, label="convex hull of the inputs")
    ax.scatter(*points.T, color=COLORS[0], zorder=3, label="input")
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
    ax.set(title=title, xlabel="first number", ylabel="second number")
    ax.margins(0.15)
    return _finish_lines(ax)


def seeds(
    groups: Mapping[str, Sequence[float]],
    *,
    lines: Mapping[str, float] | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "loss",
    ax: Axes | None = None,
) -> Axes:
    """One measurement, repeated with several seeds, in several groups: a dot a seed, the mean and its standard error.

    Args:
        groups: name of a group -> one value a seed.
        lines: name -> height of a dashed line across, for a bound that theory gives.
    """
    if ax is None:
        longest = max(len(line) for name in groups for line in name.split("\n"))
        width = 2.6 + len(groups) * max(0.8, 0.1 * longest)
        _, ax = plt.subplots(figsize=(min(10.0, width), 3.2), layout="constrained")
    for n, values in enumerate(groups.values()):
        ax.plot([n - 0.12] * len(values), values, "o", color=COLORS[0], alpha=0.5, markersize=5)
        if len(values) > 1:  # a single one says nothing of its error
            mean, error = mean_and_error(values)
            ax.errorbar(n + 0.12, mean, yerr=error, fmt="_", color=COLORS[1], markersize=12, capsize=5)
    for n, (label, height) in enumerate((lines or {}).items()):
        ax.axhline(height, color=COLORS[2 + n % 5], linestyle="--", linewidth=1, label=label)
    ax.plot([], [], "o", color=COLORS[0], alpha=0.5, label="one seed")
    if max(map(len, groups.values())) > 1:
        ax.errorbar([], [], yerr=[], fmt="_", color=COLORS[1], capsize=4, label="mean ± standard error")
    ax.set_xticks(range(len(groups)), labels=list(groups))
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel, xlim=(-0.5, len(groups) - 0.5))
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    return ax


def bands(
    runs: Mapping[str, Float[Tensor, "R T"]],
    *,
    x: Sequence[float] | None = None,
    xlabel: str = "step",
    ylabel: str = "loss",
    title: str = "",
    smooth: int = 1,
    logy: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Several runs of each kind as one line: their mean, and a band of one standard error of the mean around it.

    A line of ten points or fewer gets a marker and an error bar at each point instead of the band.

    Args:
        runs: one row for each run (seed), one column for each point.
        x: where the points stand; 1, 2, 3, ... where it is not given.
        smooth: first replace each run by its running mean over this many points.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    for n, (label, values) in enumerate(runs.items()):
        color, y = COLORS[n % len(COLORS)], torch.as_tensor(values).detach().double().cpu()
        places = torch.arange(1, y.shape[-1] + 1) if x is None else torch.as_tensor(x)
        if smooth > 1:
            y, places = y.unfold(1, smooth, 1).mean(-1), places[smooth - 1 :]
        mean = y.mean(dim=0)
        error = y.std(dim=0) / math.sqrt(len(y)) if len(y) > 1 else torch.zeros_like(mean)
        if len(places) <= 10:
            ax.errorbar(places.numpy(), mean.numpy(), error.numpy(), color=color, label=label, marker="o", capsize=3)
        else:
            ax.plot(places.numpy(), mean.numpy(), color=color, label=label)
            low, high = (mean - error).numpy(), (mean + error).numpy()
            ax.fill_between(places.numpy(), low, high, color=color, alpha=0.2, linewidth=0)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return _finish_lines(ax, legend=len(runs) > 1, logy=logy)


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


def landscapes(
    heights: Float[Tensor, "N G G"],
    side: Float[Tensor, "G"],
    places: Float[Tensor, "T 2"],
    *,
    titles: Sequence[str],
    zlabel: str = "height",
) -> Figure:
    """Surfaces over a square of the plane, side by side, with tokens as dots in them.

    Args:
        heights: of each surface, row by row: ``heights[n, a, b]`` stands at x = side[b], y = side[a].
        side: the grid's places on either axis, evenly spaced.
        places: where the tokens are. Each is drawn at the height of the nearest point of the grid.
    """
    heights, side, places = (x.detach().float().cpu() for x in (heights, side, places))
    x, y = torch.meshgrid(side, side, indexing="xy")
    column, row = ((places - side[0]) / (side[1] - side[0])).round().long().unbind(dim=1)
    figure, axes = plt.subplots(
        1, len(heights), figsize=(min(10.0, 3.0 * len(heights)), 3.1), squeeze=False, subplot_kw={"projection": "3d"}
    )
    figure.subplots_adjust(left=0.0, right=0.96, bottom=0.04, top=0.92, wspace=0.04)
    for ax, height, title in zip(axes[0], heights, titles, strict=True):
        ax.computed_zorder = False  # or the surface would hide the dots
        ax.plot_surface(
            x.numpy(), y.numpy(), height.numpy(), cmap="viridis", rcount=60, ccount=60, linewidth=0, zorder=1
        )
        ax.scatter(*places.T.numpy(), height[row, column].numpy(), color=COLORS[1], s=16, depthshade=False, zorder=2)
        ax.view_init(elev=38, azim=-60)
        ax.set_box_aspect(None, zoom=0.85)  # room for the numbers at the side
        ax.patch.set_visible(False)  # or it would cover the numbers of the surface to its left
        ax.locator_params(axis="z", nbins=4)
        ax.set(title=title, xticks=[], yticks=[])
        ax.set_xlabel("first number", labelpad=-14, fontsize=8)
        ax.set_ylabel("second number", labelpad=-14, fontsize=8)
        ax.tick_params(axis="z", labelsize=7, pad=0)
    axes[0, -1].set_zlabel(zlabel, labelpad=-2, fontsize=8)
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
    ax.set(title=title, xlabel="first number", ylabel="second number", aspect="equal")
    _finish_lines(ax).legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def timeline(
    series: Mapping[str, Float[Tensor, "T"]],
    times: Float[Tensor, "T"],
    *,
    parts: Mapping[str, float] | None = None,
    xlabel: str = "year",
    title: str = "",
) -> Figure:
    """Several signals over the same times, one below the other.

    Args:
        series: what to write beside each signal, its unit for instance -> its values.
        parts: name of a part of the time -> where it ends. Parts follow one another from the first time on, and every
            other one is shaded.
    """
    figure, axes = plt.subplots(
        len(series), 1, figsize=(9.0, 0.8 + 1.6 * len(series)), sharex=True, squeeze=False, layout="constrained"
    )
    x = times.detach().double().cpu().numpy()
    for n, (name, values) in enumerate(series.items()):
        ax = axes[n, 0]
        ax.plot(x, values.detach().double().cpu().numpy(), color=COLORS[n % len(COLORS)], linewidth=1.2)
        ax.set(ylabel=name, xlim=(x[0], x[-1]))
        _finish_lines(ax)
        start = float(x[0])
        for k, (part, end) in enumerate((parts or {}).items()):
            if k % 2:
                ax.axvspan(start, end, color="0.92", zorder=0)
            if n == 0:
                ax.annotate(
                    part, ((start + end) / 2, 1.02), xycoords=("data", "axes fraction"), ha="center", fontsize=9
                )
            start = end
    axes[-1, 0].set_xlabel(xlabel)
    figure.suptitle(title, fontsize="large")
    return figure


def regions(
    picture: Float[Tensor, "3 height width"],
    labels: Int[Tensor, "rows columns"],
    *,
    step: int,
    start: int = 0,
    line: int | None = None,
) -> Figure:
    """A colour picture, and beside it the same under the colours of its regions.

    Args:
        labels: one for each square of ``step`` pixels, row by row.
        start: where in the picture the first square begins, in pixels from the left and from above.
        line: draw a dashed line at this height, in pixels from above.
    """
    pixels, numbers = picture.detach().permute(1, 2, 0).clamp(0, 1).cpu().numpy(), labels.detach().cpu()
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.4), layout="constrained")
    rows, columns = numbers.shape
    edges = (start - 0.5, start + columns * step - 0.5, start + rows * step - 0.5, start - 0.5)
    for ax in axes:
        ax.imshow(pixels)
        ax.set(xlabel="pixels", ylabel="pixels")
    palette = ListedColormap(COLORS[: int(numbers.max()) + 1])
    axes[1].imshow(numbers.numpy(), cmap=palette, extent=edges, alpha=0.5, vmin=0, vmax=palette.N - 1)
    if line is not None:
        for ax in axes:
            ax.axhline(line, color="black", linestyle="--", linewidth=1)
    for ax in axes:
        ax.set(xlim=(-0.5, pixels.shape[1] - 0.5), ylim=(pixels.shape[0] - 0.5, -0.5))
    for n in range(palette.N):
        axes[1].plot([], [], "s", color=COLORS[n], alpha=0.6, label=f"cluster {n}")
    axes[1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _places(values: Sequence[float], log: bool) -> tuple[Float[Tensor, "N"], list[float], list[str]]:
    """Where values stand on an axis from 0 to 1, and its ticks: a few different values evenly, many to scale."""
    different = sorted(set(values))
    if len(different) <= 6:
        at = {value: n / max(1, len(different) - 1) for n, value in enumerate(different)}
        names = [str(value) if isinstance(value, bool) else f"{value:g}" for value in different]
        return torch.tensor([at[value] for value in values]), list(at.values()), names
    x = torch.tensor(values, dtype=torch.float64)
    x = x.log() if log else x
    low, high = float(x.min()), float(x.max())
    ends = [math.exp(end) if log else end for end in (low, (low + high) / 2, high)]
    return ((x - low) / (high - low)).float(), [0.0, 0.5, 1.0], [f"{end:.2g}" for end in ends]


def parallel_coordinates(
    choices: Sequence[Mapping[str, float]],
    values: Sequence[float],
    *,
    log: Sequence[str] = (),
    title: str = "",
    label: str = "validation accuracy",
) -> Axes:
    """One line for each trial, through its hyper-parameters; its colour says how good it was, the best is thick.

    Args:
        choices: hyper-parameters by name, the same names in each.
        log: those with a logarithmic axis.
    """
    names, N = list(choices[0]), len(choices)
    _, ax = plt.subplots(figsize=(9.6, 3.6), layout="constrained")
    low, high = min(values), max(values)
    spread = 0.06 * (torch.arange(N) / max(1, N - 1) - 0.5)  # or lines would hide each other
    columns = []
    for n, name in enumerate(names):
        places, ticks, marks = _places([choice[name] for choice in choices], name in log)
        columns.append(places + spread if len(set(places.tolist())) == len(ticks) else places)
        ax.axvline(n, color="0.7", linewidth=0.8, zorder=0)
        for tick, mark in zip(ticks, marks, strict=True):
            ax.annotate(mark, (n, tick), (3, 0), textcoords="offset points", fontsize=8, va="center", zorder=4)
    lines = torch.stack(columns, dim=1)  # (N, names)
    colors = plt.get_cmap("viridis")
    order = sorted(range(N), key=lambda n: values[n])
    for n in order:
        shade = colors((values[n] - low) / ((high - low) or 1.0))
        ax.plot(range(len(names)), lines[n], color=shade, linewidth=3 if n == order[-1] else 1, alpha=0.8)
    ax.set_xticks(range(len(names)), labels=names)
    ax.set(title=title, yticks=[], xlim=(-0.1, len(names) - 0.6), ylim=(-0.08, 1.08))
    ax.spines[:].set_visible(False)
    scale = plt.cm.ScalarMappable(plt.Normalize(low, high), "viridis")
    ax.figure.colorbar(scale, ax=ax, label=label, shrink=0.9, pad=0.01)
    return ax


def slices(
    choices: Sequence[Mapping[str, float]],
    values: Sequence[float],
    *,
    log: Sequence[str] = (),
    title: str = "",
    ylabel: str = "validation accuracy",
) -> Figure:
    """A panel for each hyper-parameter, a dot for each trial; where values repeat, their mean and its standard error.

    Args:
        choices: hyper-parameters by name, the same names in each.
        log: those with a logarithmic axis.
    """
    names = list(choices[0])
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.4 * columns, 2.1 * rows + 0.3), sharey=True, squeeze=False, layout="constrained"
    )
    for ax in axes.flat[len(names) :]:
        ax.axis("off")
    y = torch.tensor(values, dtype=torch.float64)
    for name, ax in zip(names, axes.flat, strict=False):
        drawn = [choice[name] for choice in choices]
        places, ticks, marks = _places(drawn, name in log)
        ax.plot(places, y, "o", color=COLORS[0], alpha=0.45, markersize=4)
        if len(set(drawn)) <= 6:
            for value in sorted(set(drawn)):
                own = [n for n, one in enumerate(drawn) if one == value]
                mean, error = mean_and_error(y[own].tolist())
                ax.errorbar(float(places[own[0]]) + 0.06, mean, error, fmt="_", color=COLORS[1], capsize=3)
        ax.set_xticks(ticks, labels=marks)
        ax.set(xlabel=name, xlim=(-0.15, 1.15))
        _finish_lines(ax)
    for row in axes:
        row[0].set_ylabel(ylabel)
    figure.suptitle(title, fontsize="large")
    return figure


def trials(
    looks: Sequence[Sequence[tuple[int, float]]],
    pruned: Sequence[bool],
    *,
    title: str = "",
    ylabel: str = "validation accuracy",
) -> Axes:
    """How trials did on their way: one line each; those given up are orange and end in a cross."""
    _, ax = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    for line, stopped in zip(looks, pruned, strict=True):
        steps, values = zip(*line, strict=True) if line else ((), ())
        color = COLORS[1] if stopped else COLORS[0]
        ax.plot(steps, values, color=color, alpha=0.6, marker="x" if stopped else "o", markevery=[-1] if line else None)
    ax.plot([], [], color=COLORS[0], marker="o", label="ran to its end")
    ax.plot([], [], color=COLORS[1], marker="x", label="given up")
    ax.set(xlabel="step", ylabel=ylabel, title=title)
    return _finish_lines(ax, legend=True)


def with_errors(
    series: Mapping[str, Mapping[str, tuple[float, float]]], *, title: str = "", xlabel: str = "", zero: bool = True
) -> Axes:
    """Values with their standard errors, one row for each name, one colour for each series.

    Args:
        series: name of the series -> name of the row -> (value, error). Rows stand in the order of the first series.
        zero: draw a line at 0.
    """
    rows = list(next(iter(series.values())))
    _, ax = plt.subplots(figsize=(6.4, 1.2 + 0.36 * len(rows)), layout="constrained")
    for n, (label, values) in enumerate(series.items()):
        shift = 0.22 * (n - (len(series) - 1) / 2)
        places = [rows.index(name) + shift for name in values]
        middle, error = zip(*values.values(), strict=True)
        ax.errorbar(middle, places, xerr=error, fmt="o", color=COLORS[n], capsize=3, markersize=5, label=label)
    if zero:
        ax.axvline(0, color="0.6", linestyle="--", linewidth=1)
    ax.set_yticks(range(len(rows)), labels=rows)
    ax.set(title=title, xlabel=xlabel, ylim=(len(rows) - 0.5, -0.5))
    return _finish_lines(ax, legend=len(series) > 1)


def growth(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    last: int = 4,
    guide: tuple[str, Sequence[tuple[float, float]]] | None = None,
    xlabel: str = "tokens",
    ylabel: str = "",
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Measurements against size on logarithmic axes, and the power law through the largest ones of each.

    Args:
        series: name -> (size, measurement), from the smallest size on. The legend adds the slope of the line.
        last: through how many of them the line goes.
        guide: name and points of a dashed line to compare with.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
    for n, (label, points) in enumerate(series.items()):
        color = COLORS[n % len(COLORS)]
        largest = points[-last:]
        exponent, factor = power_law(largest)
        ax.plot(*zip(*points, strict=True), "o", color=color, markersize=5)
        ends = [largest[0][0], largest[-1][0]]
        ax.plot(ends, [factor * x**exponent for x in ends], color=color, label=f"{label}: slope {exponent:.2f}")
    if guide is not None:
        ax.plot(*zip(*guide[1], strict=True), "--", color="0.4", label=guide[0])
    ax.set_xscale("log", base=2)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    # Below the axes, where there are no dots.
    ax.legend(frameon=False, ncols=2, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return _finish_lines(ax, logy=True)
