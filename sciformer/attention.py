"""Multi-head attention over any score.

``sciformer.fast.attention`` asks the score with the right ``query_offset``, masks, and computes softmax and average as
``attend`` in ``functional.py`` does, or gets the same output sooner by the score's fast path. A model that writes a
text keeps a ``Cache`` of the keys and values of all earlier tokens, so that each step projects only the new token.
"""

from functools import partial
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.fast import attention
from sciformer.fast.cache import Cache, SourceMemory, memory_for
from sciformer.functional import InputError, check_alike, check_sizes
from sciformer.scores import DotProductScore, ScoreRecipe


class MultiHeadAttention(nn.Module):
    r"""Several attentions side by side: each head sees the whole embedding through projections of its own.

    .. math:: \text{head}_h = \text{attention}(x W^Q_h, x W^K_h, x W^V_h), \qquad
              y = [\text{head}_1, \dots, \text{head}_H] W^O

    Each head's queries, keys and values have D = E / H features. One product computes those of all heads. Source:
    Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.

    Args:
        score: recipe for the score, called as ``score(num_heads, head_dim)``.
        dropout: probability with which an attention weight is dropped in training.
        bias: whether the four projections have a bias.
        shared_qk: one projection for queries and keys, so that a score that measures distances does so in one space and
            a token is at distance 0 from itself.

    Raises:
        ValueError: if ``embed_dim`` is below 1, ``num_heads`` does not divide it, or ``dropout`` is no probability.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        score: ScoreRecipe = DotProductScore,
        dropout: float = 0.0,
        bias: bool = True,
        shared_qk: bool = False,
    ):
        super().__init__()
        check_sizes(embed_dim=embed_dim)
        if num_heads < 1 or embed_dim % num_heads:
            raise InputError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if not 0.0 <= dropout < 1.0:
            raise InputError(f"dropout must lie in [0, 1), got {dropout}")
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = self.q_proj if shared_qk else nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.score = score(num_heads, embed_dim // num_heads)

    def forward(
        self,
        query: Float[Tensor, "B L E"],
        key: Float[Tensor, "B S E"] | None = None,
        value: Float[Tensor, "B S E"] | None = None,
        *,
        attn_mask: Bool[Tensor, "#L #S"] | Bool[Tensor, "#B #H #L #S"] | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "B L E"], Float[Tensor, "B H L S"] | None]:
        """Attend from ``query`` to ``key`` and ``value``; without them it is self-attention.

        A query with a NaN, as in a model that has diverged, need not show: a fast path may give its row the output 0.
        With ``need_weights`` the row is NaN. A derivative of second order holds (L, S) weights, as ``need_weights``.

        Args:
            key: defaults to ``query``.
            value: defaults to ``key``.
            attn_mask: (L, S), or (B, H, L, S) with size 1 where it broadcasts; True where a query may attend.
            is_causal: no query attends to a position after its own; an ``attn_mask`` beside it holds as well.
            need_weights: also return the weights. Since fast paths never hold them, ``attend(score(q, k), v)`` is then
                computed as it stands.
            cache: what was remembered in earlier calls; not in training with dropout. With ``is_causal`` the inputs are
                the next tokens of a text, and each attends to itself and to all before it. Without ``is_causal``,
                ``key`` and ``value`` are a source, the same in every call, which only the first call projects.

        Returns:
            The output, and the weights or None.

        Raises:
            ValueError: if an input is not (B, L, embed_dim), batches, lengths, dtypes or devices differ or the mask
                does not fit. With a cache also if self-attention is not causal, if causal attention is given a mask or
                asked for weights, if the source or the batch is not the one that the cache was filled with, or in
                training with dropout.
        """
        source = key
        key = query if key is None else key
        value = key if value is None else value
        self._check_inputs(query, key, value, attn_mask)
        if cache is not None:
            self._check_cached(query, source, attn_mask, is_causal, need_weights)
        q = self._heads(self.q_proj, query)  # (B, H, L, D)
        project = partial(self._keys_and_values, key, value)  # k and v, (B, H, S, D) each
        if cache is not None and is_causal:  # the next tokens of a text, whose keys and values join those before
            memory = cache.memory(self, partial(memory_for, self.score), len(query))  # this layer's own, of B texts
            output, weights = memory.attend(self.score, q, *project()), None
        else:
            if cache is None:
                k, v = project()
            else:  # a source, which only the first call projects
                k, v = cache.memory(self, SourceMemory, len(key)).recall(key, value, project)
            options: dict[str, Any] = {"attn_mask": attn_mask, "is_causal": is_causal, "need_weights": need_weights}
            output, weights = attention(
                self.score, q, k, v, dropout_p=self.dropout if self.training else 0.0, **options
            )
        return self.out_proj(output.transpose(1, 2).flatten(-2)), weights  # (B, L, E)

    def _heads(self, projection: nn.Module, x: Float[Tensor, "B L E"]) -> Float[Tensor, "B H L D"]:
        return projection(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _keys_and_values(
        self, key: Float[Tensor, "B S E"], value: Float[Tensor, "B S E"]
    ) -> tuple[Float[Tensor, "B H S D"], Float[Tensor, "B H S D"]]:
        return self._heads(self.k_proj, key), self._heads(self.v_proj, value)

    def _check_cached(
        self, query: Tensor, source: Tensor | None, attn_mask: Tensor | None, is_causal: bool, need_weights: bool
    ) -> None:
        if self.training and self.dropout:
            raise InputError(
                f"a cache cannot serve training with dropout {self.dropout}, which drops other weights in each call; "
                "call model.eval() first"
            )
        if source is None and not is_causal:
            raise InputError("with a cache self-attention is causal; pass is_causal=True, or the source as key")
        if is_causal and (attn_mask is not None or need_weights):
            raise InputError("with a cache causal attention has no attn_mask and no need_weights beside it")
        if is_causal and source is not None and source.shape[1] != query.shape[1]:
            raise InputError(
                f"with a cache and is_causal, queries and keys are the same new tokens, got {query.shape[1]} queries "
                f"and {source.shape[1]} keys"
            )

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
        embed_dim = self.q_proj.in_features
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.dim() != 3 or x.shape[-1] != embed_dim:
                raise InputError(f"{name} must be (B, length, {embed_dim}), got {tuple(x.shape)}")
            if x.shape[0] != query.shape[0]:
                raise InputError(f"query has batch {query.shape[0]}, but {name} has batch {x.shape[0]}")
        check_alike(query=query, key=key, value=value)
        if key.shape[1] != value.shape[1]:
            raise InputError(f"there are {key.shape[1]} keys, but {value.shape[1]} values")
        # Three dimensions would silently put the batch where the heads belong.
        if attn_mask is not None and attn_mask.dim() not in (2, 4):
            raise InputError(f"attn_mask must be (L, S) or (B, H, L, S), got {tuple(attn_mask.shape)}")
