"""Pictures of what was measured, for the site, docs/ and results/: bake-off, losses, the claims as a forest plot."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sciformer.lab.claims import CLAIMS
from sciformer.lab.claims.inference import Effect
from sciformer.lab.claims.measured import BAKE_OFFS
from sciformer.lab.claims.rules import best_record, decisions, overall
from sciformer.lab.metrics import known_metric, mean_and_error
from sciformer.lab.records import recorded_curves, recorded_metric
from sciformer.scores import SCORES

#: The colour of each outcome.
COLORS = {"shown": "#0072B2", "refuted": "#B34A00", "undecided": "#6E6E6E", "not recorded yet": "#6E6E6E"}
#: The losses of a text model, as a record names them, and how they are drawn.
LOSSES = {"loss": ("training batches", "#0072B2", ""), "validation loss": ("validation text", "#B34A00", "o")}
#: Effects larger than so many times δ are drawn at the edge.
EDGE = 8


def bake_off(path: Path) -> None:
    """Every score on every task, mean and standard error, with the dot product's mean as a line."""
    figure, axes = plt.subplots(1, len(BAKE_OFFS), figsize=(11, 3.6), sharey=True, layout="constrained")
    names = list(SCORES)
    for axis, (task, metric) in zip(axes, BAKE_OFFS.items(), strict=True):
        content = best_record(f"bake-off-{task}")
        if content is None:
            axis.set_title(f"{task}: not recorded yet")
            continue
        percent = 100 if known_metric(metric).unit == known_metric("test accuracy").unit else 1
        for n, score in enumerate(names):
            mean, error = (percent * x for x in mean_and_error(recorded_metric(content, metric, score)))
            axis.errorbar(mean, n, xerr=error, fmt="o", color=COLORS["shown"], capsize=3)
            if score == "dot":
                axis.axvline(mean, color="gray", linewidth=1)
        axis.set_title(f"{task}: {metric}{', %' if percent == 100 else ''}")
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    figure.savefig(path)
    plt.close(figure)


def losses(folder: Path, content: dict[str, Any]) -> list[Path]:
    """One file for each arm of a record on text: the losses of all its seeds, on training batches and on validation.

    All share one scale, so that they can be compared.

    Args:
        content: a record, as ``load_record`` gives it.

    Returns:
        The files, named after the record and the arm.
    """
    curves = {metric: recorded_curves(content, metric) for metric in LOSSES}
    lowest = min(rows.min().item() for _, arms in curves.values() for rows in arms.values())
    paths = []
    for arm in content["arms"]:
        figure, axis = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
        for metric, (label, color, marker) in LOSSES.items():
            steps, arms = curves[metric]
            axis.plot(steps, arms[arm].T, color=color, alpha=0.25, linewidth=0.8)
            axis.plot(
                steps,
                arms[arm].mean(dim=0),
                color=color,
                marker=marker,
                label=f"{label}, mean of {len(arms[arm])} seeds",
            )
        axis.set(title=arm, xlabel="step", ylabel="loss, nats", ylim=(lowest - 0.05, math.log(65)))  # 65 characters
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        paths.append(folder / f"{content['name']}-{arm.replace(', ', '-')}.png")
        figure.savefig(paths[-1], metadata={"Description": described_record(content)})
        plt.close(figure)
    return paths


def described_record(content: dict[str, Any]) -> str:
    """Which record a picture shows; kept in the picture, it tells whether that is out of date."""
    return f"{content['name']}, {content['profile']} profile, {content['date']}, commit {content['commit']}"


@dataclass(frozen=True)
class Row:
    """A row of the forest plot: a claim with its verdict, or one of the conditions under which it was measured."""

    label: str
    verdict: str | None
    outcome: str
    effect: Effect | None


def rows_of_claims() -> Iterator[Row]:
    """Every claim with its number in the table, and under it, in the table's words, what has an interval."""
    for number, claim in enumerate(CLAIMS, start=1):
        found = list(claim.findings())
        decided = decisions(found)
        measured = [
            Row(finding.condition, None, decision.outcome, finding.effect)
            for finding, decision in zip(found, decided, strict=True)
            if finding.effect is not None and finding.effect.seeds > 1
        ]
        alone = len(found) == len(measured) == 1 and not measured[0].label
        whole = overall(decided)
        title = fill(f"{number}. {claim.claimed}", 62)
        yield Row(title, whole, whole, measured[0].effect if alone else None)
        if not alone:
            yield from measured


def claims(path: Path) -> None:
    """Each measured finding of each claim with its 95 % interval in units of δ, and each claim's verdict."""
    rows, heights = list(rows_of_claims()), [0.0]
    for row in rows:
        heights.append(heights[-1] + 1 + 0.75 * row.label.count("\n") + 0.5 * (row.verdict is not None))
    figure, axis = plt.subplots(figsize=(11, 0.2 * heights[-1] + 1.4), layout="constrained")
    middles = [(above + below) / 2 for above, below in pairwise(heights)]
    for above, at, row in zip(heights, middles, rows, strict=False):
        if row.effect is not None:
            _draw_effect(axis, at, row)
        if row.verdict is not None:
            axis.axhline(above, color="lightgray", linewidth=0.8)
            color = COLORS[row.outcome]
            axis.text(EDGE + 1, at, row.verdict, color=color, fontsize=9, fontweight="bold", va="center", clip_on=False)
    axis.axvline(0, color="black", linewidth=1)
    for margin in (-1, 1):
        axis.axvline(margin, color="black", linewidth=0.9, linestyle=":")
    axis.set_xlim(-EDGE - 0.7, EDGE + 0.7)
    axis.set_ylim(heights[-1], 0)
    axis.set_xticks(range(-EDGE, EDGE + 1, 2))
    axis.set_yticks(middles, [row.label for row in rows], fontsize=9)
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.verdict else "normal")
    axis.tick_params(axis="x", top=True, labeltop=True)
    axis.set_xlabel("effect on the claimed side, in units of δ, the smallest that matters")
    axis.grid(axis="x", alpha=0.3)
    figure.legend(handles=_legend(), loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    figure.savefig(path, metadata={"Description": described_rows(rows)})
    plt.close(figure)


def described_rows(rows: Iterable[Row]) -> str:
    """What a forest plot shows, to a tenth of δ; kept in the picture, it tells whether that is out of date."""
    lines = []
    for row in rows:
        shown = [] if row.effect is None else [f"{x / row.effect.delta:.1f}" for x in _ends(row.effect)]
        lines.append(" | ".join([row.label.replace("\n", " "), row.outcome, *shown]))
    return "\n".join(lines)


def _ends(effect: Effect) -> tuple[float, float, float]:
    return effect.gain, *effect.interval


def _draw_effect(axis: Axes, at: float, row: Row) -> None:
    """The interval of a finding; what lies beyond the edge is cut off, and a mean there is an arrow that points out."""
    effect = row.effect
    gain, low, high = (x / effect.delta for x in _ends(effect))
    color = COLORS[row.outcome]
    axis.plot([max(-EDGE, min(EDGE, x)) for x in (low, high)], [at, at], color=color, linewidth=1.8)
    marker = "o" if abs(gain) < EDGE else ">" if gain > 0 else "<"
    face = {"equal": "white", "no worse": "lightgray", "better": color}[effect.goal]
    axis.plot(max(-EDGE, min(EDGE, gain)), at, marker=marker, color=color, markerfacecolor=face, markersize=6)


def _legend() -> list[Line2D]:
    """What colours, marks and lines mean."""
    meanings = {
        "shown": "shown: above 0 (better), above −δ (no worse), between −δ and δ (equal)",
        "refuted": "refuted: below δ (better), below −δ (no worse), outside −δ to δ (equal)",
        "undecided": "undecided: neither, or fewer than five seeds",
    }
    marks = {"claimed: better": "dimgray", "claimed: no worse": "lightgray", "claimed: equal": "white"}
    return [
        *(Line2D([], [], color=COLORS[outcome], linewidth=5, label=text) for outcome, text in meanings.items()),
        *(
            Line2D([], [], color="dimgray", marker="o", linestyle="", markerfacecolor=face, label=text)
            for text, face in marks.items()
        ),
        Line2D([], [], color="dimgray", marker=">", linestyle="", label=f"further out than {EDGE} δ"),
        Line2D([], [], color="black", linestyle=":", label="−δ and δ"),
    ]
