"""The learnable scores. Each is ``Score(num_heads, head_dim)`` and maps queries and keys to scores.

A score owns everything up to the softmax's input, the scale included, so that no mechanism copies another's forward.
Models take the recipe, not an instance (``score=DotProductScore`` or ``functools.partial(...)``), so that layers never
share a parameter by accident.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.functional import (
    additive_scores,
    distance_biased_scores,
    dot_product_scores,
    rotate,
    separable_additive_scores,
)


class DotProductScore(nn.Module):
    """:func:`~sciformer.functional.dot_product_scores` as a module; it has nothing to learn.

    Args:
        scale: the factor in place of 1/√head_dim.
    """

    def __init__(self, num_heads: int, head_dim: int, *, scale: float | None = None):
        super().__init__()
        self.scale = head_dim**-0.5 if scale is None else scale

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Bool[Tensor, "..."] | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        """Scores of every query against every key.

        Args:
            attn_mask: what a query may attend to. Only a score whose formula runs over the keys looks at it.
            query_offset: place of the first query among the keys. Only a score that measures distances looks at it.
        """
        return dot_product_scores(query, key, scale=self.scale)


class DistanceBiasedScore(nn.Module):
    r""":func:`~sciformer.functional.distance_biased_scores` with a trainable slope λ for each head.

    .. math:: s_{ij} = q_i \cdot k_j / \sqrt{D} - \lambda_h |i - j|

    Nothing holds λ above 0: training may turn a head to far tokens. Watch ``strength``.

    Args:
        each_side: a slope for left and one for right, where it is otherwise one for both; on a grid also for above and
            below. With one for both, tokens in reverse order are attended to just the same.
        start: λ before training: one number, or numbers that broadcast to ``strength``, or ``"geometric"`` for ALiBi's
            slopes, a reach of its own for each head: 2^(-8h/H) for h = 1, ..., H (Press et al. 2022, section 3).
        width: tokens in a row, if the tokens are an image, row by row.

    Raises:
        ValueError: if ``start`` does not broadcast to ``strength``.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        each_side: bool = False,
        start: float | Sequence[Any] | Literal["geometric"] = 0.1,
        width: int | None = None,
    ):
        super().__init__()
        self.width = width
        shape = (num_heads, 2 if width is None else 4) if each_side else (num_heads,)
        if start == "geometric":
            slopes = 2 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
            slopes = slopes[:, None] if each_side else slopes
        else:
            slopes = torch.as_tensor(start, dtype=torch.get_default_dtype())
        try:
            self.strength = nn.Parameter(slopes.expand(shape).clone())
        except RuntimeError as error:
            raise ValueError(f"start of shape {tuple(slopes.shape)} does not broadcast to strength {shape}") from error

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Bool[Tensor, "..."] | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        """Scores of every query against every key; the arguments are those of :class:`DotProductScore`."""
        return distance_biased_scores(query, key, self.strength, query_offset=query_offset, width=self.width)


def additive_weight(num_heads: int, head_dim: int) -> nn.Parameter:
    """A trainable (H, D) weight that gives scores a variance of about 1 at the start.

    The tanh of numbers with variance 1 has variance 0.39, so the weights' standard deviation is 1/√D times torch's
    gain for tanh, 5/3.
    """
    return nn.Parameter(torch.randn(num_heads, head_dim) * nn.init.calculate_gain("tanh") * head_dim**-0.5)


class AdditiveScore(nn.Module):
    r""":func:`~sciformer.functional.additive_scores` with a trainable weight w, (H, D).

    .. math:: s_{ij} = w_h \cdot \tanh(q_i + k_j)

    w starts as in :func:`additive_weight`.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = additive_weight(num_heads, head_dim)

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Bool[Tensor, "..."] | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        """Scores of every query against every key; the arguments are those of :class:`DotProductScore`."""
        return additive_scores(query, key, self.weight)


class SeparableAdditiveScore(nn.Module):
    r""":func:`~sciformer.functional.separable_additive_scores` with a trainable weight w, (H, D).

    .. math:: s_{ij} = w_h \cdot \tanh(q_i) + w_h \cdot \tanh(k_j)

    w starts as in :func:`additive_weight`. The softmax cancels the query's term, so that attention does not depend on
    the query.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = additive_weight(num_heads, head_dim)

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Bool[Tensor, "..."] | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        """Scores of every query against every key; the arguments are those of :class:`DotProductScore`."""
        return separable_additive_scores(query, key, self.weight)


class PreparedScore(nn.Module):
    """Another score, of queries and keys that were changed first. What the change is, ``prepare`` says.

    Args:
        score: recipe for the score that comes after.
    """

    def __init__(self, num_heads: int, head_dim: int, *, score: Callable[[int, int], nn.Module] = DotProductScore):
        super().__init__()
        self.score = score(num_heads, head_dim)

    def prepare(
        self, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], query_offset: int = 0
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"]]:
        """The queries and keys that the score sees."""
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Bool[Tensor, "..."] | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        """Scores of every query against every key; the arguments are those of :class:`DotProductScore`."""
        query, key = self.prepare(query, key, query_offset)
        return self.score(query, key, attn_mask=attn_mask, query_offset=query_offset)


class RotaryScore(PreparedScore):
    r"""Any score of queries and keys that are turned by their places: relative positions without a vector for each.

    .. math:: s_{ij} = \text{score}(R_i q_i, R_j k_j)

    ``R`` is :func:`~sciformer.functional.rotate`. Source: Su et al. 2021, arXiv:2104.09864.
    """

    def prepare(
        self, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], query_offset: int = 0
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"]]:
        """Turn both; the keys count from 0."""
        return rotate(query, offset=query_offset), rotate(key)


class NormalizedScore(PreparedScore):
    r"""Any score of queries and keys that are brought to length √D first ("QK-norm").

    .. math:: s_{ij} = \text{score}\left(\sqrt D \frac{q_i}{|q_i|}, \sqrt D \frac{k_j}{|k_j|}\right)

    A dot product then stays within ±√D however large the weights grow, so that a higher learning rate is safe.
    Source: Henry et al. 2020, arXiv:2010.04245.
    """

    def prepare(
        self, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], query_offset: int = 0
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"]]:
        """Bring both to length √D."""
        return F.rms_norm(query, query.shape[-1:]), F.rms_norm(key, key.shape[-1:])


#: Every mechanism by name. Each entry is a recipe: ``SCORES[name](num_heads, head_dim)``.
SCORES: dict[str, Callable[[int, int], nn.Module]] = {
    "dot": DotProductScore,
    "distance": DistanceBiasedScore,
    "additive": AdditiveScore,
    "separable": SeparableAdditiveScore,
}
