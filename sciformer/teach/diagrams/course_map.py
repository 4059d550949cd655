"""The map of the course: its notebooks, their parts, and which one builds on which."""

from collections.abc import Mapping

from matplotlib.patches import FancyBboxPatch

from sciformer.teach.diagrams.sheet import Sheet
from sciformer.teach.plotting.style import COLORS

#: What each notebook is about, in as many words as fit into its box.
NAMES = (
    "welcome", "weighted\nsums", "scaled dot\nproduct", "multi-head", "positions", "transformer\nblock",
    "image\ntransformer", "distance\nbias", "character\nmodel", "additive\nattention", "energy\nwells",
    "encoder and\ndecoder", "masked\nimages", "time\nseries", "random\nsearch", "fast\nattention", "bake-off",
    "your own\nscore", "heads\nthat copy",
)  # fmt: skip
#: The notebooks that each one needs, as its head says.
NEEDS: Mapping[int, set[int]] = {
    1: {0}, 2: {1}, 3: {2}, 4: {3}, 5: {3}, 6: {5}, 7: {4, 6}, 8: {5, 7}, 9: {3, 8}, 10: {6, 8}, 11: {5, 8}, 12: {6},
    13: {3, 4}, 14: {6}, 15: {7, 9}, 16: {6, 7, 8, 9, 10}, 17: {3, 6, 8}, 18: {4, 8, 9},
}  # fmt: skip
#: The parts of the course, each with its colour and the number of its first notebook.
PARTS = {
    "from a weighted sum to a transformer": ("query", 0),
    "put to work": ("value", 6),
    "other ways to compare": ("weight", 9),
    "other shapes of the task": ("key", 11),
    "measured, searched, made fast": ("output", 14),
    "taken apart": ("quiet", 18),
}
#: Column and row of each notebook's box, counted from the upper left corner.
_PLACES = (
    (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (3, 1), (4, 1), (5, 1), (6, 1), (6, 2), (5, 2), (6, 0), (4, 2), (5, 0),
    (3, 2), (7, 2), (6, 3), (7, 1), (7, 3),
)  # fmt: skip


def course_map(here: int | None = None, *, small: bool = False) -> Sheet:
    """Every notebook as a box, with an arrow from each notebook to those that build on it.

    What follows from two other arrows has no arrow of its own: 08 needs 05, but it needs 07 as well, which needs 06,
    which needs 05.

    Args:
        here: the number of a notebook, which is then marked.
        small: numbers only, for the head of a notebook.
    """
    (dx, dy), (width, height) = ((0.6, 0.5), (0.44, 0.3)) if small else ((1.32, 0.95), (1.1, 0.58))
    low = 0.3 if small else 0.25
    sheet = Sheet(7 * dx + width + 0.3, 3 * dy + height + low + 0.3)
    boxes = []
    for number, (column, row) in enumerate(_PLACES):
        at = 0.15 + column * dx, low + (3 - row) * dy
        words = f"{number:02}" if small else f"{number:02} {NAMES[number]}"
        boxes.append(sheet.box(*at, width, height, words, fill=_fill(number), size=8 if small else 8.5))
        if number == here:
            _mark(sheet, at, width, height, small=small)
    for number, needed in arrows().items():
        for other in needed:
            sheet.arrow(*_between(boxes[other], boxes[number], other, number), color="0.45")
    if not small:
        for n, (part, (fill, _)) in enumerate(PARTS.items()):
            y = 1.75 - 0.32 * n
            sheet.box(0.15, y, 0.3, 0.2, fill=fill)
            sheet.text(0.55, y + 0.1, part, size=8.5, align="left")
    return sheet


def arrows() -> dict[int, set[int]]:
    """What each notebook needs, without what its other needs have needed already."""

    def all_before(number: int) -> set[int]:
        return set().union(*({other} | all_before(other) for other in NEEDS.get(number, set())))

    return {n: {m for m in needed if not any(m in all_before(k) for k in needed)} for n, needed in NEEDS.items()}


def _fill(number: int) -> str:
    """The colour of the part that a notebook belongs to."""
    return next(fill for fill, first in reversed(PARTS.values()) if number >= first)


def _between(
    start: Mapping[str, tuple[float, float]], end: Mapping[str, tuple[float, float]], a: int, b: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow from box a to box b begins and ends: at the sides that face each other."""
    row_a, row_b = _PLACES[a][1], _PLACES[b][1]
    if row_a == row_b:
        return start["right"], end["left"]
    return (start["bottom"], end["top"]) if row_b > row_a else (start["top"], end["bottom"])


def _mark(sheet: Sheet, at: tuple[float, float], width: float, height: float, *, small: bool) -> None:
    """A thick frame around a box, and what it means."""
    style = "round,pad=0.03,rounding_size=0.1"
    frame = FancyBboxPatch(at, width, height, boxstyle=style, fill=False, ec=COLORS[1], lw=2.2)
    sheet.ax.add_patch(frame)
    y = at[1] - 0.12 if small else at[1] + height + 0.13
    sheet.text(at[0] + width / 2, y, "you are here", size=7 if small else 8, color=COLORS[1], weight="bold")
