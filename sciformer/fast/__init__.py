"""The fastest exact path of each score, with the readable path as the one that always works.

A fast path computes ``attend(score(query, key), value)`` without holding the (L, S) weights. It is found by the
score's exact class: a subclass with a formula of its own is never served by its parent's shortcut.

Where a score has no kernel of its own, :func:`query_blocks` takes the readable path for a few queries at a time.

One file for each family: ``readable``, ``blocks_of_queries``, ``fused`` (torch's kernels), and the paths of
``additive``, ``distance``, ``wells``, ``separable`` and ``windowed``; ``cache`` holds what decoding remembers.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from sciformer.fast.additive import fast_additive
from sciformer.fast.blocks_of_queries import BLOCK_NUMBERS, block_size, query_blocks
from sciformer.fast.distance import GRID_SIDES, fast_distance_biased, grid_biased_attention
from sciformer.fast.fused import attention_with_features, fast_dot_product, fused_attention, key_biased_attention
from sciformer.fast.readable import combined_mask, readable_attention
from sciformer.fast.separable import RUN, fast_separable, running_mean
from sciformer.fast.wells import fast_energy_well
from sciformer.fast.windowed import fast_windowed
from sciformer.functional import InputError, Mask, check_alike, check_dropout
from sciformer.scores import (
    AdditiveScore,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    NormalizedScore,
    PreparedScore,
    RotaryScore,
    Score,
    SeparableAdditiveScore,
    WindowedScore,
)

__all__ = [
    "BLOCK_NUMBERS",
    "FAST",
    "GRID_SIDES",
    "RUN",
    "attention",
    "attention_with_features",
    "block_size",
    "combined_mask",
    "fast_additive",
    "fast_distance_biased",
    "fast_dot_product",
    "fast_energy_well",
    "fast_prepared",
    "fast_separable",
    "fast_windowed",
    "fused_attention",
    "grid_biased_attention",
    "key_biased_attention",
    "query_blocks",
    "readable_attention",
    "running_mean",
]


def fast_prepared(
    score: PreparedScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    is_causal: bool = False,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """The fast path of the score that comes after."""
    query, key = score.prepare(query, key, key.shape[-2] - query.shape[-2] if is_causal else 0)
    return attention(score.score, query, key, value, is_causal=is_causal, **options)[0]


#: Exact class of a score -> its fast path, which takes the arguments of :func:`readable_attention` but the last.
FAST: dict[type[nn.Module], Callable[..., Tensor]] = {
    DotProductScore: fast_dot_product,
    DistanceBiasedScore: fast_distance_biased,
    RotaryScore: fast_prepared,
    NormalizedScore: fast_prepared,
    AdditiveScore: fast_additive,
    SeparableAdditiveScore: fast_separable,
    EnergyWellScore: fast_energy_well,
    WindowedScore: fast_windowed,
}


def attention(
    score: nn.Module,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Mask | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H L S"] | None]:
    """Attention under any score: its fast path if it has one, else (and whenever the weights are wanted) the readable.

    With ``is_causal`` the queries are the last L of the S positions. Where a length is 0 the readable path serves, and
    a query without a key gets the output 0.

    A query with a NaN does not always show: torch's fused kernels give its row the output 0, and the fast path of the
    separable score does not look at it. The readable path gives NaN.

    Returns:
        The output, and the weights if ``need_weights``, else None.

    Raises:
        ValueError: if shapes, dtypes, devices or the mask do not fit each other or the score, or ``dropout_p`` is no
            probability.
    """
    check_alike(query=query, key=key, value=value)
    check_dropout(dropout_p)
    # torch's kernels do not look
    if query.dim() != 4 or query.shape[:-2] != key.shape[:-2] or key.shape[:-1] != value.shape[:-1]:
        raise InputError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} must share batch and "
            "heads, and key and value a length"
        )
    if isinstance(score, Score):
        score.check_heads(query)
    fast = FAST.get(type(score))
    if fast is not None and not need_weights and query.numel() and value.numel():
        output = fast(score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p)
        return output, None
    output, weights = readable_attention(
        score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p
    )
    return output, weights if need_weights else None
