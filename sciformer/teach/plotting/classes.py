"""What a class made of its exercises, and how far one reader is."""

from collections.abc import Mapping, Sequence
from textwrap import shorten

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from sciformer.check.classbook import Tally
from sciformer.teach.plotting.style import COLORS

#: A part of a bar that is narrower has its share written on it, and no name.
_ROOM_FOR_A_NAME = 0.06


def mistakes(tallies: Sequence[Tally], *, most: int = 3) -> Figure:
    """A bar for each exercise: who was right, the most frequent mistakes with their names, and all others.

    Args:
        most: how many mistakes have a part of their own.
    """
    tried = [tally for tally in tallies if tally.attempted]
    figure, ax = plt.subplots(figsize=(11, 1.4 + 0.75 * max(1, len(tried))), layout="constrained")
    for row, tally in enumerate(tried):
        shares = tally.shares(most)
        others = 1 - tally.right / tally.attempted - sum(shares.values())
        parts = [("right", tally.right / tally.attempted, COLORS[6])]
        parts += [(says, share, COLORS[color]) for (says, share), color in zip(shares.items(), (5, 1, 4), strict=False)]
        parts += [("other mistakes", others, "0.8")]
        left = 0.0
        for says, share, color in parts:
            if share > 1e-9:
                ax.barh(row, share, left=left, color=color, edgecolor="white")
                name = shorten(says, int(100 * share), placeholder="…") if share > _ROOM_FOR_A_NAME else ""
                ax.text(left + share / 2, row, f"{name}\n{share:.0%}".strip(), ha="center", va="center", fontsize=8)
            left += share
    ax.set_yticks(range(len(tried)), [f"{tally.exercise}\n{tally.attempted} tried" for tally in tried], fontsize=8)
    ax.set(xlim=(0, 1), xlabel="share of those who tried", title="What became of each exercise")
    ax.invert_yaxis()
    ax.spines[["top", "right", "left"]].set_visible(False)
    return figure


def course(states: Mapping[str, Mapping[str, str]], titles: Mapping[str, str]) -> Figure:
    """A row for each notebook, a square for each exercise: solved, tried or open.

    Args:
        states: by notebook, each exercise's name and state.
        titles: of the notebooks.
    """
    colors = {"solved": COLORS[6], "tried": COLORS[5], "open": "white"}
    figure, ax = plt.subplots(figsize=(10, 0.9 + 0.36 * len(states)), layout="constrained")
    for row, of in enumerate(states.values()):
        for column, (name, state) in enumerate(of.items()):
            ax.barh(row, 0.94, left=column, height=0.84, color=colors[state], edgecolor="0.6")
            ax.text(column + 0.47, row, name, ha="center", va="center", fontsize=7)
        if all(state == "solved" for state in of.values()):
            ax.text(len(of) + 0.05, row, "done", va="center", fontsize=8)
    ax.set_yticks(range(len(states)), [f"{notebook}  {titles[notebook]}" for notebook in states], fontsize=8)
    solved = sum(state == "solved" for of in states.values() for state in of.values())
    ax.set_title(f"{solved} of {sum(map(len, states.values()))} exercises solved", fontsize=10)
    ax.invert_yaxis()
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    return figure
