"""What stands around attention in a transformer: residuals, norms and a feed-forward network."""

from collections.abc import Callable
from functools import partial
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.scores import DotProductScore


class FeedForward(nn.Module):
    r"""Two linear maps with a nonlinearity between them, applied to each token by itself.

    .. math:: y = \phi(x W_1 + b_1) W_2 + b_2

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.3 (φ = ReLU); GELU is the choice since.

    Args:
        hidden_dim: width between the two maps.
        activation: recipe for φ.
        dropout: probability with which a hidden unit is dropped in training.
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        *,
        activation: Callable[[], nn.Module] = nn.GELU,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        self.up = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden_dim, embed_dim, bias=bias)

    def forward(self, x: Float[Tensor, "B L E"]) -> Float[Tensor, "B L E"]:
        """Map each token by itself."""
        return self.down(self.dropout(self.activation(self.up(x))))


class TransformerBlock(nn.Module):
    r"""Tokens look at each other (attention), then each thinks for itself (feed-forward).

    .. math:: \text{pre-norm: } x + f(\text{norm}(x)), \qquad \text{post-norm: } \text{norm}(x + f(x))

    for f = attention and then for f = feed-forward. Post-norm is Vaswani et al. 2017 (arXiv:1706.03762, section 3.1);
    pre-norm keeps a clean residual path and trains without a delicate warm-up (Xiong et al. 2020, arXiv:2002.04745).

    Args:
        expansion: width of the feed-forward's hidden layer, in multiples of ``embed_dim``.
        norm: recipe for each norm, called as ``norm(embed_dim)``; a layer norm if not given.
        norm_first: pre-norm if True, post-norm if False.
        dropout: in attention weights, in the feed-forward and on both branches.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        expansion: float = 4,
        score: Callable[[int, int], nn.Module] = DotProductScore,
        activation: Callable[[], nn.Module] = nn.GELU,
        norm: Callable[[int], nn.Module] | None = None,
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        norm = norm or partial(nn.LayerNorm, bias=bias)
        self.norm_first = norm_first
        self.attention_norm = norm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads, score=score, dropout=dropout, bias=bias)
        self.feed_forward_norm = norm(embed_dim)
        self.feed_forward = FeedForward(
            embed_dim, round(expansion * embed_dim), activation=activation, dropout=dropout, bias=bias
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B L E"],
        *,
        attn_mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
        cache: dict[nn.Module, Any] | None = None,
    ) -> tuple[Float[Tensor, "B L E"], Float[Tensor, "B H L L"] | None]:
        """One round of looking and thinking; the arguments are those of :class:`MultiHeadAttention`.

        Returns:
            The tokens, and the attention weights or None.
        """
        looked, weights = self.attention(
            self.attention_norm(x) if self.norm_first else x,
            attn_mask=attn_mask,
            is_causal=is_causal,
            need_weights=need_weights,
            cache=cache,
        )
        x = x + self.dropout(looked)
        x = x if self.norm_first else self.attention_norm(x)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x) if self.norm_first else x))
        return x if self.norm_first else self.feed_forward_norm(x), weights
