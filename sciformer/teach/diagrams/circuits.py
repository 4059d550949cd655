"""The diagram of notebook 18: two heads in two layers that continue a pattern."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from sciformer.teach.diagrams.sheet import Sheet

_STEP, _WIDTH = 1.55, 1.1  # inches, from one token to the next, and of its box


def two_heads(tokens: Sequence[str]) -> Figure:
    """What each token carries after each of two layers, and how the last one finds what followed its earlier copy.

    Args:
        tokens: distinct but for the last, which has stood there before; not as the last but one.
    """
    last, found = len(tokens) - 1, tokens.index(tokens[-1]) + 1
    left, heights = 1.75, (0.35, 1.45, 2.75)
    sheet = Sheet(left + _STEP * len(tokens), 4.05)
    for y, words in zip(heights, ("tokens", "after layer 1", "after layer 2"), strict=True):
        sheet.text(left - 0.2, y + 0.22, words, align="right")
    read = [sheet.box(left + _STEP * n, heights[0], _WIDTH, 0.44, one, size=12) for n, one in enumerate(tokens)]
    noted = []
    for n, token in enumerate(tokens):
        note = f"{token}, after {tokens[n - 1]}" if n else token
        fill = "key" if n == found else "query" if n == last else "plain"
        noted.append(sheet.box(left + _STEP * n, heights[1], _WIDTH, 0.44, note, fill=fill))
        sheet.arrow(read[n]["top"], noted[n]["bottom"], color="0.7")
        if n:
            sheet.arrow(read[n - 1]["top"], noted[n]["bottom"], color="#0072B2")
    answer = sheet.box(
        left + _STEP * last - 0.15, heights[2], _WIDTH + 0.3, 0.44, f"next: {tokens[found]}", fill="output", size=10
    )
    sheet.arrow(noted[last]["top"], answer["bottom"], color="0.7")
    sheet.arrow(noted[found]["top"], answer["left"], bend=-0.2, color="#D55E00")
    sheet.text(left, 3.75, "blue: the previous-token head notes what stood before", align="left", color="#0072B2")
    sheet.text(
        left, 3.5, f"orange: the induction head asks who stands after {tokens[-1]}, and copies it", align="left",
        color="#D55E00",
    )  # fmt: skip
    return sheet.done()
