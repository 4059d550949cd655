"""Pictures of measurements: curves with their spread over seeds, bars, points with errors, growth."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sciformer.lab.metrics import mean_and_error, power_law
from sciformer.lab.roofline import Machine
from sciformer.teach.plotting.style import COLORS, finish_lines


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
    return finish_lines(ax, legend=len(series) > 1, logy=logy)


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
    truth: Float[Tensor, "M"] | None = None,
    dots: str = "samples",
    title: str = "",
    xlabel: str = "position",
    ylabel: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """Samples as dots, and lines through them.

    Args:
        at: where the lines have their values; at the samples where it is not given.
        truth: what the samples would be without their noise, where that is known; a dashed grey line.
        dots: what the legend calls the samples.
    """
    at = x if at is None else at
    series = {name: list(zip(at.tolist(), line.tolist(), strict=True)) for name, line in lines.items()}
    ax = curves(series, xlabel=xlabel, ylabel=ylabel, title=title, ax=ax)
    if truth is not None:
        ax.plot(at.numpy(), truth.numpy(), color="0.5", linestyle="--", linewidth=1, zorder=1.5, label="truth")
    ax.scatter(x, y, color="0.35", s=10, zorder=1, label=dots)
    ax.legend(frameon=False)
    return ax


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
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Several runs of each kind as one line: their mean, and a band of one standard error of the mean around it.

    A line of ten points or fewer gets a marker and an error bar at each point instead of the band.

    Args:
        runs: one row for each run (seed), one column for each point.
        x: where the points stand; 1, 2, 3, ... where it is not given.
        smooth: first replace each run by its running mean over this many points.
        styles: label -> options of matplotlib's ``plot``, so that one thing looks alike in several pictures.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    for n, (label, values) in enumerate(runs.items()):
        y = torch.as_tensor(values).detach().double().cpu()
        style = {"color": COLORS[n % len(COLORS)], "label": label} | dict((styles or {}).get(label, {}))
        points = torch.arange(1, y.shape[-1] + 1) if x is None else torch.as_tensor(x)
        if smooth > 1:
            y, points = y.unfold(1, smooth, 1).mean(-1), points[smooth - 1 :]
        mean = y.mean(dim=0)
        error = y.std(dim=0) / math.sqrt(len(y)) if len(y) > 1 else torch.zeros_like(mean)
        if len(points) <= 10:
            ax.errorbar(points.numpy(), mean.numpy(), error.numpy(), marker="o", capsize=3, **style)
        else:
            ax.plot(points.numpy(), mean.numpy(), **style)
            low, high = (mean - error).numpy(), (mean + error).numpy()
            ax.fill_between(points.numpy(), low, high, color=style["color"], alpha=0.2, linewidth=0)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return finish_lines(ax, legend=len(runs) > 1, logy=logy)


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
        finish_lines(ax)
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
        heights = [rows.index(name) + shift for name in values]
        middle, error = zip(*values.values(), strict=True)
        ax.errorbar(middle, heights, xerr=error, fmt="o", color=COLORS[n], capsize=3, markersize=5, label=label)
    if zero:
        ax.axvline(0, color="0.6", linestyle="--", linewidth=1)
    ax.set_yticks(range(len(rows)), labels=rows)
    ax.set(title=title, xlabel=xlabel, ylim=(len(rows) - 0.5, -0.5))
    return finish_lines(ax, legend=len(series) > 1)


def intervals(
    rows: Mapping[str, tuple[float, float]],
    *,
    delta: float | None = None,
    seeds: Mapping[str, Sequence[float]] | None = None,
    colors: Mapping[str, str] | None = None,
    title: str = "",
    xlabel: str = "gain",
    ax: Axes | None = None,
) -> Axes:
    """Confidence intervals, one row for each, with a dot in the middle, beside a dashed line at 0.

    Args:
        rows: name -> (lower end, upper end), in the order in which they stand from top to bottom.
        delta: the smallest gain that matters; a grey band covers what is smaller.
        seeds: name -> one value a seed, which are drawn above the interval.
        colors: name -> colour of its interval. The second colour of the palette, if there are seeds, else the first.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(7.5, 1.2 + 0.32 * len(rows)), layout="constrained")
    if delta is not None:
        ax.axvspan(-delta, delta, color="0.9", zorder=0, label="smaller than δ")
    ax.axvline(0, color="0.3", linestyle="--", linewidth=1)
    shift = 0.15 if seeds else 0.0
    for n, (name, (low, high)) in enumerate(rows.items()):
        color = (colors or {}).get(name, COLORS[1 if seeds else 0])
        if seeds:
            ax.plot(seeds[name], [n - shift] * len(seeds[name]), "o", color=COLORS[0], alpha=0.4)
        ax.errorbar((low + high) / 2, n + shift, xerr=(high - low) / 2, fmt="o", color=color, capsize=4, markersize=5)
    if seeds:
        ax.plot([], [], "o", color=COLORS[0], alpha=0.4, label="one seed")
        ax.errorbar([], [], xerr=[], fmt="o", color=COLORS[1], capsize=4, markersize=5, label="mean, 95 % interval")
    ax.set_yticks(range(len(rows)), labels=list(rows))
    ax.set(title=title, xlabel=xlabel, ylim=(len(rows) - 0.5, -0.5))
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def growth(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    last: int = 4,
    guide: tuple[str, Sequence[tuple[float, float]]] | None = None,
    colors: Sequence[str] = COLORS,
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
        colors: one for each series. Each has dots of its own shape, too, so that none hides another.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
    for n, (label, points) in enumerate(series.items()):
        color, shape = colors[n % len(colors)], "os^dv"[n % 5]
        largest = points[-last:]
        exponent, factor = power_law(largest)
        ax.plot(*zip(*points, strict=True), shape, color=color, markersize=6)
        ends = [largest[0][0], largest[-1][0]]
        ax.plot(ends, [factor * x**exponent for x in ends], color=color, label=f"{label}: slope {exponent:.2f}")
    if guide is not None:
        ax.plot(*zip(*guide[1], strict=True), "--", color="0.4", label=guide[0])
    ax.set_xscale("log", base=2)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    # Below the axes, where there are no dots.
    ax.legend(frameon=False, ncols=2, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return finish_lines(ax, logy=True)


def roofline(
    machine: Machine,
    points: Mapping[str, tuple[float, float, float]],
    *,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """What a machine can do at most, as a roof, and what computations reach of it, on logarithmic axes.

    The roof rises with what can be moved, from the caches (solid) and from the memory (dashed), up to what can be
    computed.

    Args:
        points: name -> operations, bytes moved, seconds.
        styles: name -> options of matplotlib's ``plot``, for a look of one's own.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
    intensities = [flops / moved for flops, moved, _ in points.values()]
    in_caches, from_memory = max(speed for _, speed in machine.copies), machine.copies[-1][1]
    left = min(*intensities, machine.flops / in_caches) / 2
    right = 2 * max(*intensities, machine.flops / from_memory)
    for name, dash, speed in (("caches", "-", in_caches), ("memory", "--", from_memory)):
        x = [left, machine.flops / speed, right]
        ax.plot(x, [min(machine.flops, speed * i) for i in x], dash, color="0.3", linewidth=1.2, label=f"roof, {name}")
    for n, (name, (flops, moved, seconds)) in enumerate(points.items()):
        style = {"marker": "o", "linestyle": "none", "color": COLORS[n % len(COLORS)], "label": name}
        ax.plot([flops / moved], [flops / seconds], **(style | dict((styles or {}).get(name, {}))))
    ax.set_xscale("log")
    ax.set(xlabel="operations for each byte moved", ylabel="operations a second", title=title)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finish_lines(ax, logy=True)
