"""Pictures of a search: its trials, and what each choice is worth."""

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sciformer.lab.metrics import mean_and_error
from sciformer.lab.search import groups_of
from sciformer.teach.plotting.style import COLORS, finish_lines


def _on_axis(values: Sequence[float], log: bool) -> tuple[Float[Tensor, "N"], list[float], list[str]]:
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
        at, ticks, marks = _on_axis([choice[name] for choice in choices], name in log)
        columns.append(at + spread if len(set(at.tolist())) == len(ticks) else at)
        ax.axvline(n, color="0.7", linewidth=0.8, zorder=0)
        for tick, mark in zip(ticks, marks, strict=True):
            ax.annotate(
                mark,
                (n, tick),
                (3, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
                zorder=4,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            )
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
    """A panel for each hyper-parameter, a dot for each trial, and each group's mean with its standard error.

    A group has one value or, where values hardly repeat, a quarter of them, as in ``search.importance``.

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
        at, ticks, marks = _on_axis(drawn, name in log)
        ax.plot(at, y, "o", color=COLORS[0], alpha=0.45, markersize=4)
        groups = groups_of(drawn)
        beside = 0.06 if len(set(groups)) == len(set(drawn)) else 0.0
        for group in sorted(set(groups)):
            own = [n for n, one in enumerate(groups) if one == group]
            mean, error = mean_and_error(y[own].tolist())
            ax.errorbar(float(at[own].mean()) + beside, mean, error, fmt="_", color=COLORS[1], capsize=3)
        ax.set_xticks(ticks, labels=marks)
        ax.set(xlabel=name, xlim=(-0.15, 1.15))
        finish_lines(ax)
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
    return finish_lines(ax, legend=True)
