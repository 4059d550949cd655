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
    sheet = Sheet(left + _STEP * len(tokens), 4.65)
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
    above, asked = noted[last]["top"], noted[found]["top"]
    answer = sheet.box(
        left + _STEP * last - 0.15, heights[2], _WIDTH + 0.3, 0.44, f"next: {tokens[found]}", fill="output", size=10
    )
    sheet.arrow(above, answer["bottom"], color="0.7")
    sheet.arrow(asked, answer["left"], bend=-0.2, color="#D55E00")
    sheet.arrow((above[0] - 0.2, above[1]), (asked[0] + 0.2, asked[1]), bend=0.18, dashed=True)
    sheet.text((above[0] + asked[0]) / 2, above[1] + 0.18, f"query: who stands after {tokens[-1]}?")
    for y, words, color in (
        (4.35, "grey: every token keeps what it carries", "0.4"),
        (4.1, "blue: the previous-token head notes what stood before", "#0072B2"),
        (3.85, "dashed: the query of the last token matches the key that carries the note", "0.2"),
        (3.6, f"orange: the induction head copies what it finds, {tokens[found]}", "#D55E00"),
    ):
        sheet.text(left, y, words, align="left", color=color)
    return sheet.done()
