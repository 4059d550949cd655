"""The learnable scores. Each is ``Score(num_heads, head_dim)`` and maps queries and keys to scores.

A score owns everything up to the softmax's input, the scale included, so that no mechanism copies another's forward.
Models take the recipe, not an instance (``score=DotProductScore`` or ``functools.partial(...)``), so that layers never
share a parameter by accident.
"""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.functional import dot_product_scores


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


#: Every mechanism by name. Each entry is a recipe: ``SCORES[name](num_heads, head_dim)``.
SCORES: dict[str, Callable[[int, int], nn.Module]] = {"dot": DotProductScore}
