"""A sheet to draw diagrams on: boxes, arrows, and tensors whose cells show their numbers."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from torch import Tensor

#: What a colour means in every diagram: light ones to fill, so that black text on them is legible.
FILLS = {
    "plain": "#F2F2F2",
    "query": "#CFE6F5",
    "key": "#FBE3C8",
    "value": "#CDEBDD",
    "weight": "#F6D6E6",
    "output": "#E3DDF3",
    "quiet": "#FFFFFF",
}
_DEEP = {"weight": "#DB8FB9"}  # where the fill is graded by the number in the cell, a pale one would hide the grades
CELL = 0.46  # inches, the side of a tensor's cell


class Sheet:
    """A figure measured in inches from its lower left corner, in which parts are placed by hand.

    Every part returns the point in the middle of each of its sides, by name: ``left``, ``right``, ``top``, ``bottom``,
    and ``middle``, for :meth:`arrow` to start from and end at.

    Args:
        width: of the figure, in inches.
        height: of the figure, in inches.
    """

    def __init__(self, width: float, height: float, title: str = ""):
        self.figure, self.ax = plt.subplots(figsize=(width, height))
        self.figure.subplots_adjust(0, 0, 1, 1)
        self.ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
        self.ax.axis("off")
        if title:
            self.text(width / 2, height - 0.2, title, size=12, weight="bold")

    def text(
        self, x: float, y: float, words: str, *, size: float = 9, align: str = "center", color: str = "black",
        weight: str = "normal",
    ) -> None:  # fmt: skip
        """Words centred on a height; ``align`` says which end of them, or their middle, is at x."""
        self.ax.text(x, y, words, ha=align, va="center", fontsize=size, color=color, fontweight=weight)

    def box(
        self, x: float, y: float, width: float, height: float, words: str = "", *, fill: str = "plain", size: float = 9,
    ) -> dict[str, tuple[float, float]]:  # fmt: skip
        """A rounded box with its lower left corner at (x, y), for something that is done: a layer, a function."""
        style = "round,pad=0,rounding_size=0.08"
        patch = FancyBboxPatch((x, y), width, height, boxstyle=style, fc=FILLS[fill], ec="0.35", lw=1.0)
        self.ax.add_patch(patch)
        self.text(x + width / 2, y + height / 2, words, size=size)
        return _sides(x, y, width, height)

    def tensor(
        self, x: float, y: float, values: Float[Tensor, "R C"], *, name: str = "", fill: str = "plain",
        rows: Sequence[str] = (), columns: Sequence[str] = (), cell: float = CELL, digits: int | None = 1,
        size: float | None = None, shade: bool = False,
    ) -> dict[str, tuple[float, float]]:  # fmt: skip
        """A matrix with its lower left corner at (x, y), one square for each entry, its name above.

        Args:
            rows: names written on the left, one for each row.
            columns: names written above, one for each column.
            digits: decimals of the numbers in the cells; None leaves the cells without numbers.
            size: of these numbers, in points; by default it goes with the cells'.
            shade: fill each cell the more strongly, the larger its entry (for weights, from 0 to 1).
        """
        numbers = values.detach().float().cpu()
        R, C = numbers.shape
        color = _DEEP.get(fill, FILLS[fill]) if shade else FILLS[fill]
        for i in range(R):
            for j in range(C):
                value, at = float(numbers[i, j]), (x + j * cell, y + (R - 1 - i) * cell)
                strength = 0.15 + 0.85 * min(1.0, max(0.0, value)) if shade else 1.0
                self.ax.add_patch(Rectangle(at, cell, cell, fc=color, alpha=strength, ec="none"))
                self.ax.add_patch(Rectangle(at, cell, cell, fill=False, ec="0.35", lw=0.7))
                if digits is not None:
                    shown = f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # never −0.0
                    self.text(at[0] + cell / 2, at[1] + cell / 2, shown, size=size or 17 * cell)
        for i, words in enumerate(rows):
            self.text(x - 0.07, y + (R - 0.5 - i) * cell, words, size=8, align="right")
        for j, words in enumerate(columns):
            self.text(x + (j + 0.5) * cell, y + R * cell + 0.11, words, size=8)
        self.text(x + C * cell / 2, y + R * cell + (0.33 if columns else 0.14), name)
        return _sides(x, y, C * cell, R * cell)

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], words: str = "", *, bend: float = 0.0,
        color: str = "0.2", dashed: bool = False,
    ) -> None:  # fmt: skip
        """An arrow between two points, with words beside its middle; ``bend`` curves it to one side or the other."""
        arc, line = f"arc3,rad={bend}", "--" if dashed else "-"
        shape = FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=11, lw=1.3, color=color, connectionstyle=arc, ls=line,
            shrinkA=2, shrinkB=2,
        )  # fmt: skip
        self.ax.add_patch(shape)
        if words:
            x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            steep = abs(end[1] - start[1]) > abs(end[0] - start[0])
            self.text(
                x + (0.07 if steep else 0),
                y + (0 if steep else 0.13),
                words,
                size=8,
                align="left" if steep else "center",
            )

    def done(self) -> Figure:
        """The figure, to show it."""
        return self.figure


def _sides(x: float, y: float, width: float, height: float) -> dict[str, tuple[float, float]]:
    middle, centre = y + height / 2, x + width / 2
    return {
        "left": (x, middle),
        "right": (x + width, middle),
        "top": (centre, y + height),
        "bottom": (centre, y),
        "middle": (centre, middle),
    }
