"""The site's pictures of what was measured: the bake-off, and the claims as a forest plot."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sciformer.lab.claims import CLAIMS
from sciformer.lab.claims.measured import BAKE_OFFS
from sciformer.lab.claims.rules import ERRORS, Finding, best_record, verdict
from sciformer.lab.metrics import known_metric, mean_and_error
from sciformer.lab.records import recorded_metric
from sciformer.scores import SCORES

HOLDS, FAILS, PARTLY = "#0072B2", "#B34A00", "#6A4C93"
#: Differences of more standard errors than this are drawn at the edge.
EDGE = 12
#: What the verdicts of the table come to, each with its colour and what it says.
VERDICTS = {
    "holds": (HOLDS, "holds: under every condition"),
    "holds only": (PARTLY, "holds only, holds except: under some of them"),
    "holds except": (PARTLY, "holds only, holds except: under some of them"),
    "does not hold": (FAILS, "does not hold: under none"),
}


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
            axis.errorbar(mean, n, xerr=error, fmt="o", color=HOLDS, capsize=3)
            if score == "dot":
                axis.axvline(mean, color="gray", linewidth=1)
        axis.set_title(f"{task}: {metric}{', %' if percent == 100 else ''}")
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    figure.savefig(path)
    plt.close(figure)


@dataclass(frozen=True)
class Row:
    """A row of the forest plot: a claim with its verdict, or one of the conditions under which it was measured."""

    label: str
    verdict: str | None
    finding: Finding | None


def rows_of_claims() -> Iterator[Row]:
    """Every claim with the number that it has in the table, and under it, in the table's words, what has an error."""
    for number, claim in enumerate(CLAIMS, start=1):
        found = list(claim.findings())
        measured = [finding for finding in found if finding.error]
        alone = measured[0] if len(found) == len(measured) == 1 and not measured[0].condition else None
        said = re.match(r"\*\*(.+?)\*\*", verdict(found))
        yield Row(fill(f"{number}. {claim.claimed}", 62), said[1] if said else "not recorded", alone)
        if alone is None:
            yield from (Row(finding.condition, None, finding) for finding in measured)


def claims(path: Path) -> None:
    """Each measured finding of each claim, in standard errors on the claim's side, and each claim's verdict."""
    rows, heights = list(rows_of_claims()), [0.0]
    for row in rows:
        heights.append(heights[-1] + 1 + 0.75 * row.label.count("\n") + 0.5 * (row.verdict is not None))
    figure, axis = plt.subplots(figsize=(11, 0.2 * heights[-1] + 1.4), layout="constrained")
    middles = [(above + below) / 2 for above, below in pairwise(heights)]
    for above, at, row in zip(heights, middles, rows, strict=False):
        if row.finding is not None:
            _draw_finding(axis, at, row.finding)
        if row.verdict is not None:
            axis.axhline(above, color="lightgray", linewidth=0.8)
            color = VERDICTS.get(row.verdict, ("gray", ""))[0]
            axis.text(EDGE + 2, at, row.verdict, color=color, fontsize=9, fontweight="bold", va="center", clip_on=False)
    axis.axvline(0, color="black", linewidth=1)
    axis.set_xlim(-EDGE - 1.5, EDGE + 1.5)
    axis.set_ylim(heights[-1], 0)
    axis.set_yticks(middles, [row.label for row in rows], fontsize=9)
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.verdict else "normal")
    axis.tick_params(axis="x", top=True, labeltop=True)
    axis.set_xlabel("standard errors on the claim's side of zero")
    axis.grid(axis="x", alpha=0.3)
    figure.legend(handles=_legend(), loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    figure.savefig(path)
    plt.close(figure)


def _draw_finding(axis: Axes, row: float, finding: Finding) -> None:
    """A finding's bar; beyond the edge, an arrow that points outwards."""
    at = finding.gain / finding.error
    color, face = (HOLDS, HOLDS) if finding.holds else (FAILS, "white")
    marker = "o" if abs(at) < EDGE else ">" if at > 0 else "<"
    at = max(-EDGE, min(EDGE, at))
    axis.errorbar(at, row, xerr=ERRORS, fmt=marker, color=color, markerfacecolor=face, markersize=6)


def _legend() -> list[Line2D]:
    """What the three verdicts and the marks mean."""
    verdicts = dict.fromkeys(VERDICTS.values())
    marks = {
        "this finding speaks for the claim": ("o", HOLDS, HOLDS),
        "this finding speaks against it": ("o", FAILS, "white"),
        f"further out than {EDGE} standard errors": (">", "gray", "gray"),
    }
    return [
        *(Line2D([], [], color=color, linewidth=5, label=f"verdict {text}") for color, text in verdicts),
        *(
            Line2D([], [], color=color, marker=marker, markerfacecolor=face, label=text)
            for text, (marker, color, face) in marks.items()
        ),
    ]
