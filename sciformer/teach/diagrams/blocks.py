"""The transformer block as a residual stream."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from sciformer.teach.diagrams.sheet import Sheet

_STREAM = "#0072B2"


def residual_streams(
    pre_norm: Sequence[float], post_norm: Sequence[float], *, shape: Sequence[int], hidden_dim: int
) -> Figure:
    """A pre-norm and a post-norm block side by side, with the stream as a thick line from bottom to top.

    Args:
        pre_norm: size of a feature (root mean square) before the block, after attention and after the feed-forward.
        post_norm: the same of the post-norm block.
        shape: of the tokens, (L, E).
        hidden_dim: width of the feed-forward's hidden layer.
    """
    sheet = Sheet(9.2, 5.7)
    tokens = f"({', '.join(map(str, shape))})"
    for left, name, formula, sizes, first in (
        (0.4, "pre-norm", "x + f(norm(x))", pre_norm, True),
        (5.1, "post-norm", "norm(x + f(x))", post_norm, False),
    ):
        sheet.text(left + 1.9, 5.5, f"{name}: {formula}", size=11, weight="bold")
        sheet.text(left + 0.9, 0.2, f"tokens x {tokens}")
        _stream(sheet, left + 0.9, 0.38, 5.2)
        _size(sheet, left, 0.62, sizes[0])
        for low, words, fill, size in (
            (0.85, f"attention\n{shape[-1]} → {shape[-1]}", "query", sizes[1]),
            (3.0, f"feed-forward\n{shape[-1]} → {hidden_dim} → {shape[-1]}", "value", sizes[2]),
        ):
            (_pre_norm_branch if first else _post_norm_branch)(sheet, left, low, words, fill)
            _size(sheet, left, low + 2.0, size)
    return sheet.done()


def _pre_norm_branch(sheet: Sheet, left: float, low: float, words: str, fill: str) -> None:
    norm = sheet.box(left + 2.0, low, 1.5, 0.32, "norm", fill="key")
    part = sheet.box(left + 2.0, low + 0.6, 1.5, 0.55, words, fill=fill)
    plus = sheet.box(left + 0.75, low + 1.42, 0.3, 0.3, "+", fill="quiet", size=12)
    sheet.arrow((left + 0.9, norm["left"][1]), norm["left"])
    sheet.arrow(norm["top"], part["bottom"])
    sheet.arrow(part["top"], (plus["right"][0], plus["right"][1]), bend=0.25)


def _post_norm_branch(sheet: Sheet, left: float, low: float, words: str, fill: str) -> None:
    part = sheet.box(left + 2.0, low + 0.1, 1.5, 0.55, words, fill=fill)
    plus = sheet.box(left + 0.75, low + 0.92, 0.3, 0.3, "+", fill="quiet", size=12)
    sheet.box(left + 0.4, low + 1.42, 1.0, 0.32, "norm", fill="key")
    sheet.arrow((left + 0.9, part["left"][1]), part["left"])
    sheet.arrow(part["top"], plus["right"], bend=0.25)


def _stream(sheet: Sheet, x: float, low: float, high: float) -> None:
    sheet.ax.plot([x, x], [low, high], color=_STREAM, linewidth=5, solid_capstyle="round", zorder=0)
    sheet.arrow((x, high - 0.1), (x, high + 0.2), color=_STREAM)


def _size(sheet: Sheet, left: float, height: float, size: float) -> None:
    sheet.text(left + 0.78, height, f"size {size:.2f}", size=8, align="right", color=_STREAM)
