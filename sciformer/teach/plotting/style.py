"""What all pictures share: the palette, the figure behind axes, and how lines are finished."""

from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Okabe and Ito's colour-blind safe palette (Wong 2011, doi:10.1038/nmeth.1618), yellow left out: it fades on white.
#: In an order in which the first few, which most pictures need, look least alike however one sees colours.
COLORS = ("#0072B2", "#D55E00", "#000000", "#56B4E9", "#CC79A7", "#E69F00", "#009E73")


def figure_of(drawn: Figure | Axes) -> Figure:
    """The whole figure that something was drawn on, to save it or close it."""
    return drawn if isinstance(drawn, Figure) else cast(Figure, drawn.figure)


def finish_lines(ax: Axes, *, legend: bool = False, logy: bool = False) -> Axes:
    """Axes of lines as all are: a light grid, no frame above and on the right, and a legend if asked for."""
    if logy:
        ax.set_yscale("log")
    if legend:
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    return ax
