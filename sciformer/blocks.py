"""What stands around attention in a transformer: residuals, norms and a feed-forward network.

A residual connection adds what a part computes to what it was given, x + f(x): the part only has to learn a change, and
the gradient reaches early blocks along the sum. Each such f is a *branch*.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.fast.cache import Cache, RecentTokens
from sciformer.functional import InputError, check_dropout, check_sizes
from sciformer.scores import DotProductScore, ScoreRecipe, check_hides_future, comparing_positions


class FeedForward(nn.Module):
    r"""Two linear maps with a nonlinearity between them, applied to each token by itself.

    .. math:: y = \phi(x W_1 + b_1) W_2 + b_2

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.3, where φ is the ReLU. GELU has been usual since GPT.

    Args:
        hidden_dim: width between the two maps.
        activation: recipe for φ.
        dropout: probability with which a hidden unit is dropped in training.

    Raises:
        ValueError: if ``embed_dim`` is below 1, ``hidden_dim`` is negative, or ``dropout`` is no probability.
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
        check_sizes(embed_dim=embed_dim)
        check_sizes(0, hidden_dim=hidden_dim)
        check_dropout(dropout)
        self.up = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden_dim, embed_dim, bias=bias)

    def forward(self, x: Float[Tensor, "B L E"]) -> Float[Tensor, "B L E"]:
        """Map each token by itself."""
        return self.down(self.dropout(self.activation(self.up(x))))


class SquaredReLU(nn.Module):
    """max(x, 0)². Source: So et al. 2021, arXiv:2109.08668, section 3.1."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Square what is positive."""
        positive = F.relu(x)
        return positive * positive  # quicker than square(), whose gradient is computed as that of a general power


class TokenShift(nn.Module):
    r"""Mix into each token those just before it, feature by feature.

    .. math:: y_t = x_t + \sum_{m=1}^{M} \mu_m \odot x_{t-m}

    Every μ starts at 0, and what would be before the first token is 0. The shift looks back, so it is for causal models
    only. Sources: Peng et al. 2023, arXiv:2305.13048, section 3.1.1, have M = 1 and mix μ x_t + (1 - μ) x_{t-1}, which
    is the same but for a factor of each feature; So et al. 2021, arXiv:2109.08668, section 3.1, call it a short
    convolution.

    Args:
        reach: M, how many tokens before it.

    Raises:
        ValueError: if ``reach`` or ``embed_dim`` is below 1.
    """

    compares_positions = True  # it counts back from a token, as some scores do, so no token before it may be missing

    def __init__(self, embed_dim: int, reach: int = 1):
        super().__init__()
        check_sizes(embed_dim=embed_dim, reach=reach)
        self.weight = nn.Parameter(torch.zeros(reach, embed_dim))

    def forward(self, x: Float[Tensor, "B L E"], *, cache: Cache | None = None) -> Float[Tensor, "B L E"]:
        """Mix; the cache remembers the last M tokens.

        Raises:
            ValueError: if x is not ``embed_dim`` wide.
        """
        (M, E), L = self.weight.shape, x.shape[1]
        if x.shape[-1] != E:
            raise InputError(f"tokens must have {E} features, got {x.shape[-1]}")
        padded = F.pad(x, (0, 0, M, 0))  # (B, M + L, E): M rows of 0, or what a cache remembers in their place
        if cache is not None:
            memory = cache.memory(self, RecentTokens, len(x))
            if memory.tokens is not None:
                padded = torch.cat((memory.tokens, x), dim=1)
            memory.tokens = padded[:, -M:]
        return x + sum(mu * padded[:, M - m : M - m + L] for m, mu in enumerate(self.weight, start=1))


class TransformerBlock(nn.Module):
    r"""Tokens look at each other (attention), then each thinks for itself (feed-forward).

    .. math:: \text{pre-norm: } x + f(\text{norm}(x)), \qquad \text{post-norm: } \text{norm}(x + f(x))

    for f = attention and then for f = feed-forward. Post-norm is Vaswani et al. 2017 (arXiv:1706.03762, section 3.1).
    A norm brings each token's features to a common scale. With pre-norm x itself is never normed, so that it adds up
    from the first block to the last, and training does not depend on a slow start of the learning rate (Xiong et al.
    2020, arXiv:2002.04745).

    Every model in ``sciformer.models`` takes these options too and passes them on to its blocks.

    Args:
        expansion: width of the feed-forward's hidden layer, in multiples of ``embed_dim``.
        score: recipe for the score of the attention, called as ``score(num_heads, head_dim)``.
        activation: recipe for the feed-forward's nonlinearity.
        norm: recipe for each norm, called as ``norm(embed_dim)``; a layer norm if not given.
        norm_first: pre-norm if True, post-norm if False.
        dropout: of attention weights, of the feed-forward's hidden layer, and of what each branch adds to x.
        bias: whether projections, feed-forward and layer norms have a bias.
        token_shift: reach of the :class:`TokenShift` before attention and before the feed-forward; 0 for none.

    Raises:
        ValueError: as :class:`MultiHeadAttention` and :class:`TokenShift`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        expansion: float = 4,
        score: ScoreRecipe = DotProductScore,
        activation: Callable[[], nn.Module] = nn.GELU,
        norm: Callable[[int], nn.Module] | None = None,
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        token_shift: int = 0,
    ):
        super().__init__()
        check_sizes(embed_dim=embed_dim)
        norm = norm or partial(nn.LayerNorm, bias=bias)
        self.norm_first = norm_first
        self.attention_norm = norm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads, score=score, dropout=dropout, bias=bias)
        self.feed_forward_norm = norm(embed_dim)
        self.feed_forward = FeedForward(
            embed_dim, round(expansion * embed_dim), activation=activation, dropout=dropout, bias=bias
        )
        self.dropout = nn.Dropout(dropout)
        self.attention_shift = TokenShift(embed_dim, token_shift) if token_shift else None
        self.feed_forward_shift = TokenShift(embed_dim, token_shift) if token_shift else None

    def forward(
        self,
        x: Float[Tensor, "B L E"],
        *,
        attn_mask: Bool[Tensor, "#L #L"] | Bool[Tensor, "#B #H #L #L"] | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "B L E"], Float[Tensor, "B H L L"] | None]:
        """One round of attention and feed-forward; the arguments are those of :class:`MultiHeadAttention`.

        Returns:
            The tokens, and the attention weights or None.
        """
        options = {"attn_mask": attn_mask, "is_causal": is_causal, "need_weights": need_weights}
        if self.norm_first:
            attended, weights = self._attend(self.attention_norm(x), cache, **options)
            x = x + self.dropout(attended)
            x = x + self.dropout(self._transform(self.feed_forward_norm(x), cache))
        else:
            attended, weights = self._attend(x, cache, **options)
            x = self.attention_norm(x + self.dropout(attended))
            x = self.feed_forward_norm(x + self.dropout(self._transform(x, cache)))
        return x, weights

    def _attend(
        self, x: Float[Tensor, "B L E"], cache: Cache | None, **options: Any
    ) -> tuple[Float[Tensor, "B L E"], Float[Tensor, "B H L L"] | None]:
        """Self-attention, after the token shift if there is one."""
        x = self.attention_shift(x, cache=cache) if self.attention_shift else x
        return self.attention(x, cache=cache, **options)

    def _transform(self, x: Float[Tensor, "B L E"], cache: Cache | None) -> Float[Tensor, "B L E"]:
        """The feed-forward, after the token shift if there is one."""
        x = self.feed_forward_shift(x, cache=cache) if self.feed_forward_shift else x
        return self.feed_forward(x)


class DecoderBlock(TransformerBlock):
    r"""A causal block that also looks at a source, between its own attention and its feed-forward.

    .. math:: x + f(\text{norm}(x)) \ \text{ or } \ \text{norm}(x + f(x)), \qquad
              f = \text{causal self-attention},\ \text{cross-attention},\ \text{feed-forward}

    In cross-attention the queries come from x, the keys and values from the source: what an encoder made of it. Source:
    Vaswani et al. 2017, arXiv:1706.03762, sections 3.1 and 3.2.3.

    Args:
        cross_score: recipe for the score of cross-attention. With a separable additive score, which ignores the query,
            every position sees the same summary of the source.
        norm, dropout, bias: as in :class:`TransformerBlock`, in cross-attention too.
        block: the other options of :class:`TransformerBlock`; ``score`` is that of self-attention.

    Raises:
        ValueError: if ``cross_score`` compares positions, since those of a target and of its source have nothing to do
            with each other; or if ``score`` has a trainable mask that does not hide the future.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        cross_score: ScoreRecipe = DotProductScore,
        norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        **block: Any,
    ):
        norm = norm or partial(nn.LayerNorm, bias=bias)
        super().__init__(embed_dim, num_heads, norm=norm, dropout=dropout, bias=bias, **block)
        check_hides_future(self.attention)
        self.cross_attention_norm = norm(embed_dim)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads, score=cross_score, dropout=dropout, bias=bias)
        if comparing := comparing_positions(self.cross_attention):
            raise InputError(
                f"{comparing[0]} compares positions within one sequence and cannot serve cross-attention, "
                "where queries and keys come from two"
            )

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "B L E"],
        source: Float[Tensor, "B S E"],
        *,
        source_mask: Bool[Tensor, "#B #H #L #S"] | None = None,
        need_weights: bool = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "B L E"], Float[Tensor, "B H L L"] | None, Float[Tensor, "B H L S"] | None]:
        """Self-attention, cross-attention, feed-forward.

        Args:
            source: the encoder's output. With a cache, its keys and values are computed in the first call only.
            source_mask: (B, 1, 1, S), True at the tokens of the source that are not padding.
            need_weights: also return the weights of both attentions; not with a cache.
            cache: as in :class:`MultiHeadAttention`.

        Returns:
            The tokens, the weights of self-attention or None, and those of cross-attention or None.
        """
        options = {"is_causal": True, "need_weights": need_weights}
        cross_options = {"attn_mask": source_mask, "need_weights": need_weights, "cache": cache}
        if self.norm_first:
            attended, weights = self._attend(self.attention_norm(x), cache, **options)
            x = x + self.dropout(attended)
            attended, cross_weights = self.cross_attention(self.cross_attention_norm(x), source, **cross_options)
            x = x + self.dropout(attended)
            x = x + self.dropout(self._transform(self.feed_forward_norm(x), cache))
        else:
            attended, weights = self._attend(x, cache, **options)
            x = self.attention_norm(x + self.dropout(attended))
            attended, cross_weights = self.cross_attention(x, source, **cross_options)
            x = self.cross_attention_norm(x + self.dropout(attended))
            x = self.feed_forward_norm(x + self.dropout(self._transform(x, cache)))
        return x, weights, cross_weights


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off within a ``with`` block; afterwards, also after an error, back to how the model was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
