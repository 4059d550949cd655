"""The fast path of the distance-biased dot product, in a sequence and on a grid."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sciformer.fast.blocks_of_queries import block_size, query_blocks
from sciformer.fast.fused import attention_with_features, key_biased_attention
from sciformer.functional import check_query_key, check_strength
from sciformer.scores import DistanceBiasedScore

#: Up to how many columns and rows together :func:`grid_biased_attention` serves a grid.
GRID_SIDES = 256


def grid_biased_attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    strength: Float[Tensor, "H"] | Float[Tensor, "H 4"],
    *,
    width: int,
    is_causal: bool = False,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    r"""Dot-product attention with a price on distance on a grid: one feature for each border between two columns.

    A key at column x' lies behind the borders t < x'. Each of them that lies right of the query's column x, t ≥ x,
    costs λ to the right; each other gives λ to the left back:

    .. math:: \sum_{t < x'} \big(\lambda_\text{left} [t < x] - \lambda_\text{right} [t \ge x]\big) =
              \lambda_\text{left}\, x - \begin{cases} \lambda_\text{right} (x' - x) & x' \ge x \\
                                                     \lambda_\text{left} (x - x') & x' < x \end{cases}

    That is minus the price and a term of the query, which the softmax cancels. Rows likewise. Half precision has too
    few digits for such sums, so all is done in float32 at least.

    Args:
        strength: λ, as for :func:`~sciformer.functional.distance_biased_scores` on a grid.
        width: tokens in a row.

    Raises:
        ValueError: if shapes, dtypes, the mask or ``strength`` do not fit each other.
    """
    (H, L, D), S = query.shape[-3:], key.shape[-2]
    check_strength(strength, query, 4)
    slopes = strength.reshape(H, -1).expand(H, 4)[..., None, None].unbind(dim=1)  # (H, 1, 1) each
    positions, first = torch.arange(S, device=key.device), S - L if is_causal else 0
    prices, behind = [], []
    for position, last, (before, after) in (
        (positions % width, min(width, S) - 1, slopes[:2]),
        (positions // width, (S - 1) // width, slopes[2:]),
    ):
        borders = position[:, None] > torch.arange(last, device=key.device)  # (S, N): which ones a token lies behind
        prices.append(torch.where(borders[first : first + L], before, -after))  # (H, L, N)
        behind.append(borders)
    wide = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        output = attention_with_features(
            query.to(wide),
            key.to(wide),
            value.to(wide),
            D**0.5 * torch.cat(prices, dim=-1).to(wide),
            torch.cat(behind, dim=-1).to(wide) - 0.5,  # counted from the middle, so that sums stay small
            scale=D**-0.5,
            is_causal=is_causal,
            **options,
        )
    return output.to(query.dtype)


def fast_distance_biased(
    score: DistanceBiasedScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    r"""Causal sequences and large grids through torch's fused kernels, everything else in :func:`query_blocks`.

    For j ≤ i the penalty is a term of the query, which the softmax cancels, and a term of the key:

    .. math:: -\lambda |i - j| = -\lambda i + \lambda j

    With j counted from the middle, float32 rounds such a score by about ``|λ|`` S · 2⁻²⁵ at most. Float16 cannot hold
    λj√D and takes the blocks. A grid whose scores fit in one block needs no fused kernel, and where weights are dropped
    torch's on the CPU would hold them all.
    """
    L, (S, D) = query.shape[-2], key.shape[-2:]
    options |= {"is_causal": is_causal, "dropout_p": dropout_p}
    if score.width is None:
        fused = is_causal and query.dtype != torch.float16
    else:
        in_one_block = block_size(query, key) == (L, len(query))
        fused = not in_one_block and not dropout_p and L <= S and score.width + S // score.width <= GRID_SIDES
    if not fused:
        return query_blocks(score, query, key, value, **options)
    check_query_key(query, key)
    slopes = score.slopes
    if score.width is not None:
        return grid_biased_attention(query, key, value, slopes, width=score.width, **options)
    check_strength(slopes, query, 2)
    left = slopes if slopes.dim() == 1 else slopes[:, 0]
    bias = left[:, None] * torch.arange(-(S // 2), S - S // 2, dtype=torch.float32, device=key.device)  # (H, S)
    return key_biased_attention(query, key, value, bias, scale=D**-0.5, **options)
