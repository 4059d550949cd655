"""Diagrams of attention heads: one head as data flow, heads as coloured bricks."""

from collections.abc import Mapping, Sequence
from functools import partial

from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from sciformer.teach.diagrams.sheet import Sheet

_CELL = 0.38  # inches
_BRICK = 0.34
_FILL_OF_HEAD = ("query", "key", "value", "weight", "output")


def _named(name: str, tensor: Tensor) -> str:
    return f"{name} {tuple(tensor.shape)}"


def attention_head(
    words: Sequence[str],
    x: Float[Tensor, "L E"],
    query: Float[Tensor, "L D"],
    key: Float[Tensor, "L D"],
    value: Float[Tensor, "L D"],
    scores: Float[Tensor, "L L"],
    weights: Float[Tensor, "L L"],
    output: Float[Tensor, "L D"],
    *,
    features: Mapping[str, Sequence[str]],
    follow: int | None = None,
) -> Figure:
    """One head from the words to the output, with every number in it.

    The keys stand above the scores and the values above the output, as factors stand around a product of matrices: an
    entry belongs to the row on its left and the column above it.

    Args:
        features: names of the columns of ``x``, ``query`` (the keys have the same) and ``value`` (so has the output).
        follow: the word whose rows are framed, from its features to its output.
    """
    (L, E), D, cell = x.shape, query.shape[1], _CELL
    margin, gap, names = 0.75, 1.0, 0.8  # room for the words on the left, for an arrow, for upright names
    low, top = names, names + L * cell + 1.0  # the lower edge of both rows of tensors
    at_scores = margin + max(E, D) * cell + gap
    at_weights = at_scores + L * cell + gap
    at_output = at_weights + L * cell + 0.75
    sheet = Sheet(
        at_output + D * cell + 0.25, top + L * cell + names + 0.65, "One head: every word asks, answers, hands over"
    )
    tensor = partial(sheet.tensor, cell=cell)

    def upright(x: float, y: float, words: Sequence[str], side: str) -> None:
        for j, word in enumerate(words):
            sheet.ax.text(x + (j + 0.5) * cell, y, word, rotation=90, ha="center", va=side, fontsize=8)

    inputs = tensor(margin, top, x, rows=words)
    hands = tensor(at_output, top, value, fill="value")
    for at, name, matrix in ((margin, "x", x), (at_output, "value", value)):
        upright(at, top + L * cell + 0.07, features[name], "bottom")
        sheet.text(at + matrix.shape[1] * cell / 2, top + L * cell + names + 0.07, _named(name, matrix))
    asks = tensor(margin, low, query, name=_named("query", query), fill="query", rows=words)
    answers = tensor(at_scores, top, key.T, fill="key")
    upright(at_scores, top + D * cell + 0.07, words, "bottom")
    sheet.text(at_scores + L * cell / 2, top + D * cell + 0.65, _named("keyᵀ", key.T))
    products = tensor(at_scores, low, scores, name=_named("scores", scores))
    shares = tensor(at_weights, low, weights, name=_named("weights", weights), fill="weight", shade=True, digits=2)
    result = tensor(at_output, low, output, name=_named("output", output), fill="output")
    for at, below in (
        (margin, features["query"]),
        (at_scores, words),
        (at_weights, words),
        (at_output, features["value"]),
    ):
        upright(at, low - 0.07, below, "top")
    for d, name in enumerate(features["query"]):
        sheet.text(at_scores + L * cell + 0.07, top + (D - 0.5 - d) * cell, name, size=8, align="left")
    sheet.arrow(inputs["bottom"], (inputs["bottom"][0], asks["top"][1] + 0.28), "× $W_q$")
    # A line along all of x, so that an arrow from it does not seem to come from a single word.
    side, level, above = inputs["right"][0] + 0.08, answers["left"][1], top + (L - 0.5) * cell
    sheet.ax.plot([side, side], [top, top + L * cell], color="0.2", lw=1.3)
    sheet.arrow((side, level), answers["left"], "× $W_k$")
    sheet.arrow((side, above), (hands["left"][0], above), "× $W_v$")
    sheet.arrow((asks["right"][0] + 0.05, products["left"][1]), products["left"], "q · k / √D")
    sheet.arrow(products["right"], shares["left"], "softmax")
    sheet.arrow(shares["right"], result["left"], "average")
    sheet.arrow(answers["bottom"], (products["top"][0], products["top"][1] + 0.28))
    sheet.arrow(hands["bottom"], (result["top"][0], result["top"][1] + 0.28))
    if follow is not None:
        for at, row, columns in (
            (margin, top, E),
            (margin, low, D),
            (at_scores, low, L),
            (at_weights, low, L),
            (at_output, low, D),
        ):
            corner = (at, row + (L - 1 - follow) * cell)
            sheet.ax.add_patch(Rectangle(corner, columns * cell, cell, fill=False, ec="#D55E00", lw=2))
    return sheet.done()


def split_and_merge(
    words: Sequence[str],
    numbered: Int[Tensor, "L E"],
    split: Int[Tensor, "H L D"],
    merged: Int[Tensor, "L E"],
    wrong_split: Int[Tensor, "H L D"],
    wrong_merge: Int[Tensor, "L E"],
) -> Figure:
    """Where every number goes when tokens are split into heads and merged again, done right and done wrong.

    A brick shows the token that its number comes from, and has the colour of the head to which its feature belongs.

    Args:
        numbered: the features of all tokens; feature e of token i is i · E + e, so that a number tells its origin.
        wrong_split: the same as ``split`` by a view without a transpose.
        wrong_merge: of the right heads, by a reshape without a transpose.
    """
    (L, E), (H, _, D), cell = numbered.shape, split.shape, _BRICK
    width, beside, gap, left = E * cell, D * cell + 0.2, 1.25, 0.85
    heads, joined, low, high = left + width + gap, left + width + gap + H * beside + gap, 0.25, L * cell + 1.25
    sheet = Sheet(joined + width + 0.3, high + L * cell + 0.95)

    def bricks(x: float, y: float, ids: Tensor) -> None:
        for i, row in enumerate(ids.tolist()):
            for j, number in enumerate(row):
                token, feature = number // E, number % E
                at = (x + j * cell, y + (len(ids) - 1 - i) * cell)
                fill = _FILL_OF_HEAD[feature // D % len(_FILL_OF_HEAD)]
                sheet.tensor(*at, numbered.new_full((1, 1), token).float(), fill=fill, cell=cell, digits=0, size=9)

    def all_heads(y: float, parts: Tensor, title: str) -> None:
        for h, part in enumerate(parts):
            bricks(heads + h * beside, y, part)
            sheet.text(heads + h * beside + D * cell / 2, y + L * cell + 0.13, f"head {h}", size=8)
        sheet.text(heads + (H * beside - 0.2) / 2, y + L * cell + 0.38, title, weight="bold")

    def whole(x: float, y: float, ids: Tensor, title: str) -> None:
        bricks(x, y, ids)
        sheet.text(x + width / 2, y + L * cell + 0.2, title, weight="bold")

    whole(left, high, numbered, f"tokens {tuple(numbered.shape)}")
    for i, word in enumerate(words):
        sheet.text(left - 0.08, high + (L - 0.5 - i) * cell, f"{word} {i}", size=8, align="right")
    all_heads(high, split, "right split: view, transpose")
    whole(joined, high, merged, "right merge: transpose, flatten")
    all_heads(low, wrong_split, "wrong split: view alone")
    whole(joined, low, wrong_merge, "wrong merge: reshape alone")
    middle, end = high + L * cell / 2, heads + H * beside - 0.2
    sheet.arrow((left + width, middle), (heads, middle), "split")
    sheet.arrow((left + width, high), (heads, low + L * cell / 2), "split", color="#D55E00", dashed=True)
    sheet.arrow((end, middle), (joined, middle), "merge")
    sheet.arrow((end, high), (joined, low + L * cell / 2), "merge", color="#D55E00", dashed=True)
    for n, line in enumerate(("number: the token", "colour: the head that", "the feature belongs to")):
        sheet.text(left, low + 0.75 - 0.22 * n, line, size=8, align="left")
    return sheet.done()
