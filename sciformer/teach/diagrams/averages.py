"""Attention without parameters as data flow: one word asks, all words answer, and their average is the new word."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from sciformer.teach.diagrams.sheet import Sheet


def weighted_average(
    words: Sequence[str],
    x: Float[Tensor, "L E"],
    asks: int,
    scores: Float[Tensor, "L"],
    weights: Float[Tensor, "L"],
    output: Float[Tensor, "E"],
) -> Sheet:
    """How one word gets its new vector, from left to right: vectors, scores, weights, average.

    Args:
        words: the names of the rows of x.
        asks: which word gets a new vector.
        scores, weights, output: what was computed for it; the diagram shows them and computes nothing.
    """
    cell = 0.42
    (L, E), low = x.shape, 0.75
    height, middle = L * cell, low + L * cell / 2
    sheet = Sheet(4.75 + (2 * E + 4) * cell, low + height + 1.25)
    vectors = sheet.tensor(
        0.75, low, x, name="keys and values: all words", rows=words, fill="value", cell=cell, digits=0
    )
    at = vectors["right"][0] + 1.45
    query = sheet.tensor(
        0.75, low + height + 0.55, x[asks : asks + 1], name="query: the word that asks", rows=[words[asks]],
        fill="query", cell=cell, digits=0,
    )  # fmt: skip
    column = sheet.tensor(at, low, scores[:, None], name="scores", fill="key", cell=cell, digits=0)
    shares = sheet.tensor(
        at + cell + 1.15, low, weights[:, None], name="weights", fill="weight", cell=cell, digits=2, shade=True
    )
    result = sheet.tensor(
        shares["right"][0] + 1.45, middle - cell / 2, output[None], name=f"the new “{words[asks]}”", fill="output",
        cell=cell, digits=2,
    )  # fmt: skip
    sheet.arrow(query["right"], (column["top"][0], column["top"][1] + 0.25), bend=-0.25)
    sheet.arrow(vectors["right"], column["left"], "dot products")
    sheet.arrow(column["right"], shares["left"], "softmax")
    sheet.arrow(shares["right"], result["left"], "weighted sum")
    (left, bottom), right = vectors["bottom"], result["bottom"][0]
    sheet.ax.plot([left, left, right], [bottom, 0.4, 0.4], color="0.2", lw=1.3)
    sheet.arrow((right, 0.4), result["bottom"])
    sheet.text((left + right) / 2, 0.22, "the values: the same vectors are averaged", size=8)
    return sheet
