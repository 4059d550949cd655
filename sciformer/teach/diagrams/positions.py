"""Where the order of the words gets into attention."""

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from sciformer.teach.diagrams.sheet import CELL, Sheet


def where_positions_enter(
    tokens: Float[Tensor, "L E"], positions: Float[Tensor, "L E"], *, words: Sequence[str]
) -> Figure:
    """One head as data flow, with the three places at which a position can enter marked by dashed boxes.

    The tokens, the position vectors and their sum show their numbers.

    Args:
        words: one for each token.
    """
    (L, E), sheet = tokens.shape, Sheet(10.8, 3.5)
    low = 1.75 - CELL * L / 2
    x = sheet.tensor(0.75, low, tokens, name=f"tokens ({L}, {E})", rows=words)
    sheet.text(x["right"][0] + 0.22, x["right"][1], "+", size=13)
    p = sheet.tensor(x["right"][0] + 0.44, low, positions, name=f"positions ({L}, {E})", fill="weight")
    total = sheet.tensor(p["right"][0] + 0.5, low, tokens + positions, name="sum, with box 1", fill="plain")
    sheet.text(p["right"][0] + 0.25, p["right"][1], "=", size=13)
    left = total["right"][0] + 0.55
    q = sheet.box(left, 2.5, 0.95, 0.5, "queries", fill="query")
    k = sheet.box(left, 1.5, 0.95, 0.5, "keys", fill="key")
    v = sheet.box(left, 0.5, 0.95, 0.5, "values", fill="value")
    for part in (q, k, v):
        sheet.arrow(total["right"], part["left"])
    scores = sheet.box(left + 1.55, 2.0, 0.95, 0.5, "scores", fill="weight")
    sheet.arrow(q["right"], scores["left"])
    sheet.arrow(k["right"], scores["left"])
    output = sheet.box(left + 1.55, 0.5, 0.95, 0.5, "output", fill="output")
    sheet.arrow(scores["bottom"], output["top"], "weights")
    sheet.arrow(v["right"], output["left"])
    _mark(sheet, p["left"][0] - 0.08, low - 0.08, p["right"][0] - p["left"][0] + 0.16, CELL * L + 0.38)
    _mark(sheet, left - 0.08, 1.42, 1.11, 1.66)
    _mark(sheet, left + 1.47, 1.92, 1.11, 0.66)
    sheet.text(p["bottom"][0], low - 0.32, "1 · added to the tokens", weight="bold")
    sheet.text(p["bottom"][0], 3.3, "one of the dashed boxes is used", size=9)
    sheet.text(left + 0.47, 3.3, "2 · turns queries and keys", weight="bold")
    sheet.text(left + 2.03, 2.78, "3 · lowers scores", weight="bold")
    return sheet.done()


def _mark(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    """A dashed frame around what already stands there."""
    sheet.ax.add_patch(Rectangle((x, y), width, height, fill=False, ec="#D55E00", ls="--", lw=1.5))
