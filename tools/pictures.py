"""The site's pictures of what was measured: the bake-off, and the claims as a forest plot."""

from pathlib import Path

import matplotlib.pyplot as plt

from sciformer.lab.claims import CLAIMS
from sciformer.lab.claims.measured import BAKE_OFFS
from sciformer.lab.claims.rules import ERRORS, best_record
from sciformer.lab.metrics import known_metric, mean_and_error
from sciformer.lab.records import recorded_metric
from sciformer.scores import SCORES

HOLDS, FAILS = "#0072B2", "#D55E00"
#: Differences of more standard errors than this are drawn at the edge.
EDGE = 12


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


def claims(path: Path) -> None:
    """Each measured finding of each claim, in standard errors on the claim's side."""
    rows = []
    for claim in CLAIMS:
        measured = [finding for finding in claim.findings() if finding.error]
        if measured:
            rows.append((claim.claimed, None))
            rows += [(finding.condition, finding) for finding in measured]
    figure, axis = plt.subplots(figsize=(11, 0.24 * len(rows) + 1), layout="constrained")
    for n, (_, finding) in enumerate(rows):
        if finding is not None:
            at = max(-EDGE, min(EDGE, finding.gain / finding.error))
            color = HOLDS if finding.holds else FAILS
            axis.errorbar(at, n, xerr=ERRORS, fmt="o" if abs(at) < EDGE else "D", color=color, markersize=4)
    axis.axvline(0, color="black", linewidth=1)
    axis.set_xlim(-EDGE - 2.5, EDGE + 2.5)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_yticks(range(len(rows)), [shortened(name) for name, _ in rows], fontsize=7)
    for label, (_, finding) in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if finding is None else "normal")
    axis.set_xlabel(
        f"standard errors on the claim's side (diamonds: {EDGE} or more)\nblue: the finding holds, orange: it does not"
    )
    axis.grid(axis="x", alpha=0.3)
    figure.savefig(path)
    plt.close(figure)


def shortened(text: str, length: int = 95) -> str:
    """A text that fits beside a picture."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
