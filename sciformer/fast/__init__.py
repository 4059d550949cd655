"""The fastest exact path of each score, with the readable path as the one that always works.

A fast path computes ``attend(score(query, key), value)`` without holding the (L, S) weights. It is found by the
score's exact class: a subclass with a formula of its own is never served by its parent's shortcut.

Where a score has no kernel of its own, :func:`query_blocks` takes the readable path for a few queries at a time.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sciformer.functional import GaussianWell, attend, causal_mask, check_mask, check_query_key, check_strength
from sciformer.scores import (
    AdditiveScore,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    NormalizedScore,
    PreparedScore,
    RotaryScore,
    SeparableAdditiveScore,
)

#: How many numbers :func:`query_blocks` holds at a time. On a CPU 16 MB in float32: beyond 32 MB the allocator maps
#: every tensor anew, which costs more than the arithmetic. Elsewhere 256 MB, enough to keep a GPU busy.
BLOCK_NUMBERS = defaultdict(lambda: 2**26, cpu=2**22)

#: How many keys :func:`running_mean` takes at once.
RUN = 16

#: Up to how many columns and rows together :func:`grid_biased_attention` serves a grid.
GRID_SIDES = 256


def combined_mask(
    length: int, key_length: int, attn_mask: Tensor | None, is_causal: bool, device: torch.device
) -> Tensor | None:
    """``attn_mask`` and the causal mask together mean both."""
    if not is_causal:
        return attn_mask
    causal = causal_mask(length, key_length, device=device)
    return causal if attn_mask is None else attn_mask & causal


def fused_attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    scale: float,
    attn_mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L D"]:
    """Dot-product attention through torch's fused kernels."""
    check_query_key(query, key)
    L, S = query.shape[-2], key.shape[-2]
    if attn_mask is not None:
        check_mask(attn_mask, (*query.shape[:-1], S))
    # torch's own causal flag counts from the first key, not from the last, so it serves L = S only.
    plainly_causal = is_causal and attn_mask is None and L == S
    if not plainly_causal:
        attn_mask = combined_mask(L, S, attn_mask, is_causal, query.device)
    elif scale <= 0:  # torch's causal flag hides with -inf before it scales: times 0 or less that hides nothing
        query, scale = scale * query, 1.0
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=plainly_causal, dropout_p=dropout_p, scale=scale
    )


def readable_attention(
    score: nn.Module,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    query_offset: int = 0,
) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H L S"]]:
    """The path that always works: every score at once.

    Args:
        query_offset: place of the first query among the keys; causal queries are the last ones whatever it says.

    Returns:
        The output and the weights.
    """
    L, S = query.shape[-2], key.shape[-2]
    if attn_mask is not None:
        check_mask(attn_mask, (*query.shape[:-1], S))
    mask = combined_mask(L, S, attn_mask, is_causal, query.device)
    scores = score(query, key, attn_mask=mask, query_offset=S - L if is_causal else query_offset)
    if mask is not None and attn_mask is None:  # causal alone leaves every query a key, so that one sum hides the rest
        scores, mask = scores + torch.where(mask, scores.new_zeros(()), -math.inf), None
    return attend(scores, value, attn_mask=mask, dropout_p=dropout_p)


def block_size(query: Tensor, key: Tensor, numbers_per_score: int = 1) -> tuple[int, int]:
    """Queries of one example, and examples, whose scores are no more than :data:`BLOCK_NUMBERS`; at least one each."""
    (B, H, L), S = query.shape[:3], key.shape[-2]
    queries_at_once = BLOCK_NUMBERS[query.device.type] // (H * S * numbers_per_score)
    return min(L, max(1, queries_at_once)), min(B, max(1, queries_at_once // L))


def query_blocks(
    score: nn.Module,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    numbers_per_score: int = 1,
) -> Float[Tensor, "B H L D"]:
    """The readable path for a few queries at a time: exact for any score, in memory that does not grow with L · S.

    A block is all queries of some examples or, where one example is already too many, some of its queries. Of each
    block only the output is kept; going back, it is computed once more (Chen et al. 2016, arXiv:1604.06174). What fits
    in one block takes the readable path, and nothing is computed twice.

    Args:
        numbers_per_score: how many numbers the score holds for each pair of a query and a key.

    Raises:
        ValueError: if shapes, dtypes or the mask do not fit each other.
    """
    (B, H, L), S = query.shape[:3], key.shape[-2]
    rows, examples = block_size(query, key, numbers_per_score)
    if (rows, examples) == (L, B) or (is_causal and L > S):  # which the readable path refuses
        return readable_attention(
            score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p
        )[0]
    masks: Iterable[Tensor | None] = repeat(None)
    if attn_mask is not None:
        check_mask(attn_mask, (B, H, L, S))
        masks = attn_mask.expand(B, H, L, S).split(examples)

    def block(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, start: int) -> Tensor:
        stop = start + q.shape[-2]
        seen = S - L + stop if is_causal else S  # no query of this block looks past these keys
        return readable_attention(
            score,
            q,
            k[:, :, :seen],
            v[:, :, :seen],
            attn_mask=None if mask is None else mask[:, :, start:stop, :seen],
            is_causal=is_causal,
            dropout_p=dropout_p,
            query_offset=start,
        )[0]

    again = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=dropout_p > 0)
    outputs = []
    for q, k, v, mask in zip(query.split(examples), key.split(examples), value.split(examples), masks, strict=False):
        parts = [again(part, k, v, mask, n * rows) for n, part in enumerate(q.split(rows, dim=2))]
        outputs.append(torch.cat(parts, dim=2))
    return torch.cat(outputs)


def attention_with_features(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    of_query: Float[Tensor, "*#B #H #L F"],
    of_key: Float[Tensor, "*#B #H S F"],
    *,
    scale: float,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """Dot-product attention with a bias that is itself a dot product, ``scale * (q·k + f·g)``, through fused kernels.

    Queries and keys with F numbers more make it plain dot-product attention, in which no (L, S) bias is held.
    """
    dim, more = query.shape[-1], of_query.shape[-1]
    filling = -(dim + more) % 8  # fused kernels want a head_dim that is a multiple of 8, the same for all three
    nothing = query.new_zeros(filling)

    def with_features(x: Tensor, features: Tensor) -> Tensor:
        return torch.cat((x, features.expand(*x.shape[:-1], -1), nothing.expand(*x.shape[:-1], -1)), dim=-1)

    output = fused_attention(
        with_features(query, of_query),
        with_features(key, of_key),
        F.pad(value, (0, more + filling)),
        scale=scale,
        **options,
    )
    return output[..., : value.shape[-1]]


def key_biased_attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    bias: Float[Tensor, "*#B H S"],
    *,
    scale: float,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """Dot-product attention with a number for each key, ``scale * q·k + bias``: a feature of 1 in each query."""
    rest, parts = bias / scale, []
    # bfloat16 has 8 bits: it takes three of its numbers to hold a bias as float32 does
    count = 1 if torch.promote_types(rest.dtype, key.dtype) == key.dtype else 3
    for _ in range(count - 1):
        parts.append(rest.to(key.dtype))
        rest = rest - parts[-1]
    of_key = torch.stack((*parts, rest.to(key.dtype)), dim=-1)  # ([B,] H, S, count)
    return attention_with_features(query, key, value, query.new_ones(count), of_key, scale=scale, **options)


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
    check_strength(strength, H, 4)
    slopes = strength.reshape(H, -1).expand(H, 4)[..., None, None].unbind(dim=1)  # (H, 1, 1) each
    places, first = torch.arange(S, device=key.device), S - L if is_causal else 0
    prices, behind = [], []
    for place, last, (before, after) in (
        (places % width, min(width, S) - 1, slopes[:2]),
        (places // width, (S - 1) // width, slopes[2:]),
    ):
        borders = place[:, None] > torch.arange(last, device=key.device)  # (S, N): which ones a token lies behind
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


def fast_dot_product(score: DotProductScore, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """:func:`fused_attention` as it is."""
    return fused_attention(query, key, value, scale=score.scale, **options)


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
    if score.width is not None:
        return grid_biased_attention(query, key, value, score.strength, width=score.width, **options)
    check_strength(score.strength, query.shape[-3], 2)
    left = score.strength if score.strength.dim() == 1 else score.strength[:, 0]
    bias = left[:, None] * torch.arange(-(S // 2), S - S // 2, dtype=torch.float32, device=key.device)  # (H, S)
    return key_biased_attention(query, key, value, bias, scale=D**-0.5, **options)


def fast_energy_well(
    score: EnergyWellScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    r"""The Gaussian's field through torch's fused kernels, everything else in :func:`query_blocks`.

    .. math:: -\alpha \|q_i - k_j\|^2 = -\alpha \|q_i\|^2 + 2 \alpha\, q_i \cdot k_j - \alpha \|k_j\|^2

    The query's term is one for a whole row, and the softmax cancels it. Float16 may not hold the key's and takes the
    blocks.
    """
    if type(score.well) is not GaussianWell or score.form != "field" or query.dtype == torch.float16:
        return query_blocks(score, query, key, value, **options)
    check_query_key(query, key)
    alpha = cast(Tensor, score.alpha)[:, None]  # (H, 1)
    bias = -alpha * key.to(torch.promote_types(key.dtype, torch.float32)).square().sum(dim=-1)  # (B, H, S)
    query = (2 * alpha[:, None] * query).to(query.dtype)
    return key_biased_attention(query, key, value, bias, scale=1.0, **options)


def fast_additive(score: AdditiveScore, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """:func:`query_blocks`, where each score takes head_dim numbers, so that (B, H, L, S, D) is never held."""
    return query_blocks(score, query, key, value, numbers_per_score=query.shape[-1], **options)


def running_mean(
    scores: Float[Tensor, "*batch S"], value: Float[Tensor, "*batch S D"]
) -> tuple[Float[Tensor, "*batch S D"], Float[Tensor, "*batch S"]]:
    r"""Causal attention under scores that are the same for every query: at each place, the mean of the values so far.

    .. math:: t_i = \log \sum_{j \le i} e^{s_j}, \qquad y_i = \sum_{j \le i} e^{s_j - t_i} v_j

    Some keys together act like one key, whose score is their t and whose value is their y. So the keys are cut into
    runs, each run is served by a small masked softmax, and what lies before a run is a running mean over one such key
    for each earlier run: the same problem, :data:`RUN` times as short. Time and memory are O(S). No exponential is
    taken of anything above 0, so scores may spread as widely as they like.

    Returns:
        y and t, in float32 where the inputs have fewer bits.
    """
    S = scores.shape[-1]
    wide = torch.promote_types(value.dtype, torch.float32)
    padding = -S % RUN
    scores = F.pad(scores.to(wide), (0, padding)).unflatten(-1, (-1, RUN))  # (..., N, R)
    value = F.pad(value.to(wide), (0, 0, 0, padding)).unflatten(-2, (-1, RUN))  # (..., N, R, D)
    pairs = scores[..., None, :].masked_fill(~causal_mask(RUN, device=scores.device), -math.inf)  # (..., N, R, R)
    with torch.autocast(scores.device.type, enabled=False):
        mean, total = pairs.softmax(dim=-1) @ value, pairs.logsumexp(dim=-1)  # (..., N, R, D), (..., N, R)
    if S > RUN:
        mean_before, total_before = running_mean(total[..., :-1, -1], mean[..., :-1, -1, :])
        mean_before = F.pad(mean_before, (0, 0, 1, 0))[..., None, :]  # (..., N, 1, D), with nothing before the first
        total_before = F.pad(total_before, (1, 0), value=torch.finfo(wide).min)[..., None]  # (..., N, 1)
        mean = torch.lerp(mean_before, mean, (total - total_before).sigmoid()[..., None])
        total = torch.logaddexp(total_before, total)
    return mean.flatten(-3, -2)[..., :S, :], total.flatten(-2)[..., :S]


def fast_separable(
    score: SeparableAdditiveScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L D"]:
    """One softmax over the keys for all queries or, causal, :func:`running_mean`: O(L + S) in time and memory.

    The scores of one query serve them all, since the softmax cancels what tells them apart. A mask that tells queries
    apart, such as (L, S), or dropout needs weights for each of them and takes :func:`query_blocks`.
    """
    L, S = query.shape[-2], key.shape[-2]
    one_for_all = attn_mask is None or attn_mask.dim() < 2 or attn_mask.shape[-2] == 1
    if not one_for_all or dropout_p or (is_causal and L > S):  # the last of which the readable path refuses
        return query_blocks(score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p)
    scores = score(0 * query[:, :, :1], key)  # (B, H, 1, S): the keys' terms alone, since tanh(0) is 0
    if not is_causal:
        return attend(scores, value, attn_mask=attn_mask)[0].expand(-1, -1, L, -1)
    if attn_mask is None:
        return running_mean(scores.squeeze(2), value)[0][:, :, S - L :].to(value.dtype)
    check_mask(attn_mask, scores.shape)
    hidden = ~attn_mask
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)  # far below, yet not -inf: no NaN where all are
    output = running_mean(scores.squeeze(2), value)[0]
    none_so_far = hidden.expand(scores.shape).cumprod(dim=-1).bool().mT  # (B, H, S, 1)
    return output.masked_fill(none_so_far, 0.0)[:, :, S - L :].to(value.dtype)


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
}


def attention(
    score: nn.Module,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H L S"] | None]:
    """Attention under any score: its fast path if it has one, else (and whenever the weights are wanted) the readable.

    With ``is_causal`` the queries are the last L of the S places.

    Returns:
        The output, and the weights if ``need_weights``, else None.

    Raises:
        ValueError: if shapes, dtypes or the mask do not fit each other.
    """
    if query.shape[:-2] != key.shape[:-2] or key.shape[:-1] != value.shape[:-1]:  # torch's kernels do not look
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} must share batch and "
            "heads, and key and value a length"
        )
    fast = FAST.get(type(score))
    if fast is not None and not need_weights:
        output = fast(score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p)
        return output, None
    output, weights = readable_attention(
        score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p
    )
    return output, weights if need_weights else None
