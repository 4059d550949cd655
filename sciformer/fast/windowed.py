"""Attention with a window, in blocks that never compute what is cut off."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sciformer.fast.blocks_of_queries import BLOCK_NUMBERS, computed_again
from sciformer.fast.distance import fast_distance_biased
from sciformer.fast.fused import fast_dot_product
from sciformer.fast.readable import readable_attention
from sciformer.functional import Mask, check_mask, window_mask
from sciformer.scores import (
    AdditiveScore,
    DistanceBiasedScore,
    DotProductScore,
    PreparedScore,
    Score,
    WindowedScore,
    comparing_positions,
)

#: A block has at least so many queries, so that a narrow window does not make many small ones.
FEWEST_QUERIES = 32
#: Scores whose blocks torch's fused kernels serve; those with distances only where all keys lie before the query.
FUSED: dict[type[torch.nn.Module], Callable[..., Tensor]] = {
    DotProductScore: fast_dot_product,
    DistanceBiasedScore: fast_distance_biased,
}


def fast_windowed(
    score: WindowedScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Mask | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L D"]:
    r"""Blocks of queries, each with the keys that lie within the window of one of them: O(L · w) time and memory.

    A block of n queries sees n + 2w keys (causally n + w). All blocks are one batch of short sequences. Where torch has
    no fused kernel for the score, they take the readable path a few at a time: of each group only the output is kept,
    and the backward pass computes the rest once more. Where a score needs more than the distance between two tokens (on
    a grid, or one of your own with positions), or a block would see nearly all keys, the readable path serves.

    Raises:
        ValueError: if shapes, dtypes or the mask do not fit each other.
    """
    whole = query, key, value
    inner, window, first = score.score, score.window, key.shape[-2] - query.shape[-2] if is_causal else 0
    while isinstance(inner, PreparedScore):  # it changes queries and keys by their positions in the whole sequence
        query, key = inner.prepare(query, key, first)
        inner = inner.score
    (B, H, L, D), S = query.shape, key.shape[-2]
    n = max(window // 2, FEWEST_QUERIES)
    K = n + window * (1 if is_causal else 2)
    if needs_the_whole_sequence(inner) or L > S or K >= S:
        return readable_attention(score, *whole, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p)[0]
    N = math.ceil(L / n)  # blocks
    queries = F.pad(query, (0, 0, 0, N * n - L)).unflatten(2, (N, n)).transpose(1, 2).flatten(0, 1)  # (B·N, H, n, D)
    # Block m begins with the key at first + m·n - w. What lies outside the sequence is padded, and hidden by the mask.
    outside = (0, 0, window - first, first - window + (N - 1) * n + K - S)
    keys, values = (  # (B·N, H, K, D)
        F.pad(x, outside).unfold(2, K, n).permute(0, 2, 1, 4, 3).flatten(0, 1) for x in (key, value)
    )
    masks = block_masks(attn_mask, (B, H, L, S), (N, n, K), first, window, is_causal, query.device)  # (B·N, _, n, K)
    fused = FUSED.get(type(inner))
    if fused is not None and (is_causal or type(inner) is DotProductScore):
        output = fused(inner, queries, keys, values, attn_mask=masks, is_causal=is_causal, dropout_p=dropout_p)
    else:
        numbers = H * n * K * (D if isinstance(inner, AdditiveScore) else 1)
        at_once = max(1, BLOCK_NUMBERS[query.device.type] // numbers)
        groups = zip(*(x.split(at_once) for x in (queries, keys, values, masks)), strict=True)

        def block(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            return readable_attention(inner, q, k, v, attn_mask=mask, dropout_p=dropout_p, query_offset=window)[0]

        again = partial(computed_again, block, draws=dropout_p > 0)
        output = torch.cat([again(*group) for group in groups])
    return output.unflatten(0, (B, N)).transpose(1, 2).flatten(2, 3)[:, :, :L]


def needs_the_whole_sequence(score: torch.nn.Module) -> bool:
    """Whether a score asks for more than how far apart two tokens are, so that no stretch of the sequence serves."""
    if type(score) is DistanceBiasedScore:
        return score.width is not None  # on a grid it matters where a row begins
    return not isinstance(score, Score) or bool(comparing_positions(score))


def block_masks(
    attn_mask: Mask | None,
    shape: tuple[int, int, int, int],
    blocks: tuple[int, int, int],
    first: int,
    window: int,
    is_causal: bool,
    device: torch.device,
) -> Bool[Tensor, "M _ n K"]:
    """For each block which of its K keys each of its n queries may attend to, inside window, sequence and mask.

    Args:
        shape: B, H, L and S.
        blocks: how many there are in a sequence, and the n and K of each.
        first: position of the first query among the S keys.
    """
    (B, _, L, S), (N, n, K) = shape, blocks
    band = window_mask(n, K, window=window, query_offset=window, device=device)
    if is_causal:
        band = band.tril(diagonal=window)
    rows = torch.arange(N * n, device=device).view(N, n)
    keys = first - window + n * torch.arange(N, device=device)[:, None] + torch.arange(K, device=device)  # (N, K)
    visible = (band & ((keys >= 0) & (keys < S))[:, None])[None, :, None]  # (1, N, 1, n, K)
    if attn_mask is not None:
        check_mask(attn_mask, shape, device)
        mask = attn_mask.expand(*attn_mask.shape[:-2], L, S)[(None,) * (4 - attn_mask.dim())]  # (B or 1, H or 1, L, S)
        rows, keys = rows.clamp(max=L - 1), keys.clamp(0, S - 1)
        visible = visible & mask[:, :, rows[:, :, None], keys[:, None]].transpose(1, 2)
    return visible.expand(B, *visible.shape[1:]).flatten(0, 1)
