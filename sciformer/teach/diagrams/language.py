"""Diagrams of a language model: what it learns from, how it is put together, how it writes, what its cache keeps."""

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from sciformer.teach.diagrams.sheet import CELL, FILLS, Sheet

#: The frame of what is new, and the line of what is only kept.
_NEW = "#D55E00"


def visible(character: str) -> str:
    """A character as it can be seen: a space and the end of a line have signs."""
    return {" ": "␣", "\n": "↵"}.get(character, character)


def shifted_by_one(tokens: Sequence[str], *, answers: bool = True) -> Figure:
    """What a model that predicts the next token reads, and what it should say: the same tokens, one position apart.

    Args:
        tokens: words, or the characters of a text; the inputs lack the last of them, the targets the first.
        answers: say where each target stands among the inputs, and draw a dashed arrow to it.
    """
    inputs, targets = tokens[:-1], tokens[1:]
    width, size = (0.5, 12) if max(map(len, tokens)) == 1 else (1.05, 9)
    left, step = 1.0, width + 0.3
    title = "Each target is the next input" if answers else "What the model reads, and what it should say"
    sheet = Sheet(left + step * len(inputs) + 0.3, 2.55, title)
    sheet.text(left - 0.15, 0.55, "input", align="right")
    sheet.text(left - 0.15, 1.65, "target", align="right")

    def row(y: float, shown: Sequence[str], fill: str) -> list[dict[str, tuple[float, float]]]:
        at = enumerate(map(visible, shown))
        return [sheet.box(left + n * step, y, width, 0.4, token, fill=fill, size=size) for n, token in at]

    boxes, goals = row(0.35, inputs, "query"), row(1.45, targets, "output")
    for box, goal in zip(boxes, goals, strict=True):
        sheet.arrow(box["top"], goal["bottom"])
    if not answers:
        return sheet.done()
    for goal, box in zip(goals, boxes[1:], strict=False):
        sheet.arrow((goal["right"][0] - 0.1, goal["bottom"][1]), box["top"], dashed=True, color=_NEW)
    sheet.text(left, 0.13, "dashed: the answer already stands in the input, one position to the right", align="left",
               color=_NEW, size=8)  # fmt: skip
    return sheet.done()


def model(vocab_size: int, length: int, embed_dim: int, num_layers: int) -> Figure:
    """The parts of a GPT from the characters to the logits, with the shape on every arrow."""
    L, E, V = length, embed_dim, vocab_size
    gap, wide = 0.66, 0.7  # inches between two parts, and of a block
    sheet = Sheet(6.7 + 4 * gap + num_layers * (gap + wide), 2.3)
    parts = [
        (f"embedding\n{V} rows of {E}", "query", 1.3),
        ("add the\npositions", "key", 1.0),
        *[("block", "plain", wide)] * num_layers,
        ("norm", "value", 0.75),
        ("read-out\nthe embedding\nonce more", "query", 1.3),
    ]
    before, x = (0.62, 1.15), 1.2 - gap
    shapes = [f"({L},)"] + [f"({L}, {E})"] * (len(parts) - 1)
    sheet.text(0.36, 1.15, "text")
    for (words, fill, width), shape in zip(parts, shapes, strict=True):
        x += gap
        box = sheet.box(x, 0.65, width, 1.0, words, fill=fill)
        sheet.arrow(before, box["left"])
        sheet.text((before[0] + box["left"][0]) / 2, 0.9, shape, size=8.5)
        before, x = box["right"], x + width
    sheet.arrow(before, (before[0] + gap, before[1]))
    sheet.text(before[0] + gap / 2, 0.9, f"({L}, {V})", size=8.5)
    sheet.text(before[0] + gap + 0.3, 1.15, "logits")
    first = 1.2 + 1.3 + gap + 1.0 + gap
    last = first + num_layers * (gap + wide) - gap
    sheet.text((first + last) / 2, 2.0, f"{num_layers} causal blocks, one after the other", size=9)
    sheet.ax.plot([first, first, last, last], [1.75, 1.82, 1.82, 1.75], color="0.35", lw=1)
    return sheet.done()


def drawing(
    text: str,
    labels: Sequence[str],
    before: Float[Tensor, "K"],
    after: Float[Tensor, "K"],
    drawn: int,
    temperature: float,
) -> Figure:
    """One step of writing: the probabilities before and after the temperature, the one that was drawn, the text.

    Args:
        before: probabilities of K characters at temperature 1.
        after: the same at the temperature.
        drawn: which of the K was drawn.
    """
    sheet = Sheet(8.6, 3.3)
    sheet.text(0.3, 2.98, "text so far", size=8, align="left", color="0.4")
    sheet.text(1.3, 2.98, "".join(map(visible, text)), size=11, align="left")
    panels = (("temperature 1", before, 0.35), (f"temperature {temperature:g}", after, 4.2))
    tall = 1.5 / max(before.max().item(), after.max().item())  # inches for a probability of 1
    for n, (title, values, left) in enumerate(panels):
        sheet.text(left + 1.5, 2.5, f"{n + 1}. probabilities, {title}" if n == 0 else f"2. {title}", size=9)
        for k, (label, p) in enumerate(zip(labels, values.tolist(), strict=True)):
            x, new = left + 0.38 * k, n == 1 and k == drawn
            sheet.ax.add_patch(
                Rectangle((x, 0.55), 0.28, tall * p, fc=_NEW if new else FILLS["query"], ec="0.35", lw=0.7)
            )
            sheet.text(x + 0.14, 0.4, visible(label), size=10, color=_NEW if new else "black")
            sheet.text(x + 0.14, 0.64 + tall * p, f"{p:.2f}", size=6.5)
    sheet.arrow((3.5, 1.3), (4.1, 1.3))
    sheet.text(0.35, 0.13, "the likeliest eight characters", size=8, align="left", color="0.4")
    sheet.text(4.2, 0.13, f"3. drawn and appended: {visible(labels[drawn])}", size=9, align="left", color=_NEW)
    return sheet.done()


def kv_cache(
    text: str,
    query: Float[Tensor, "D"],
    keys: Float[Tensor, "S D"],
    values: Float[Tensor, "S D"],
    weights: Float[Tensor, "S"],
    *,
    longest: int,
    features: int = 4,
) -> Figure:
    """What one head computes for the newest character (framed), and what it takes from its cache.

    Args:
        text: the S characters that have been read; the last is the new one.
        longest: for how many characters there is room, so that all frames of an animation have one size.
        features: how many of the D features are shown.
    """
    S, x = len(text), 2.3
    signs, right = list(map(visible, text)), 2.3 + longest * CELL
    sheet = Sheet(right + 1.9, 5.6)
    stored = f"{S - 1} kept, 1 new" if S > 1 else "1 new"
    sheet.text(0.2, 5.35, f"reading {signs[-1]!r}: {stored}", size=11, align="left", weight="bold")
    few = slice(0, features)
    q = sheet.tensor(0.75, 3.0, query[few, None], fill="query", name="query")
    k = sheet.tensor(x, 3.0, keys[:, few].T, fill="key", columns=signs)
    w = sheet.tensor(x, 2.25, weights[None], fill="weight", shade=True, digits=2)
    v = sheet.tensor(x, 0.15, values[:, few].T, fill="value")
    out = sheet.tensor(right + 0.75, 0.15, (weights @ values)[few, None], fill="output", name="output")
    for words, side in (("keys", k), ("weights", w), ("values", v)):
        sheet.text(x - 0.12, side["left"][1], words, align="right")
    if len(query) > features:
        sheet.text(right + 1.7, 5.35, f"drawn: {features} of {len(query)} features", align="right")
    for part in (k, v):
        bottom, height = part["bottom"][1], features * CELL
        sheet.ax.add_patch(Rectangle((x + (S - 1) * CELL, bottom), CELL, height, fill=False, ec=_NEW, lw=2.5))
    sheet.arrow((q["right"][0], q["right"][1] - 0.6), (x - 0.03, k["left"][1] - 0.6))
    sheet.arrow((w["right"][0], w["right"][1]), (out["top"][0], out["top"][1] + 0.3), bend=-0.25)
    sheet.arrow(v["right"], out["left"])
    return sheet.done()
