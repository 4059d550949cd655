"""The fast path of separable additive attention, whose scores are the same for every query."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.fast.blocks_of_queries import query_blocks
from sciformer.functional import Mask, attend, causal_mask, check_mask
from sciformer.scores import SeparableAdditiveScore

#: How many keys :func:`running_mean` takes at once.
RUN = 16


def running_mean(
    scores: Float[Tensor, "*batch S"], value: Float[Tensor, "*batch S D"]
) -> tuple[Float[Tensor, "*batch S D"], Float[Tensor, "*batch S"]]:
    r"""Causal attention under scores that all queries share: at each position, the mean of the values so far.

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


def key_scores(
    score: nn.Module, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"]
) -> Float[Tensor, "B H 1 S"]:
    """The keys' terms alone, as the scores of one query of zeros, since tanh(0) is 0.

    The zeros are made of the first query, so that queries have a gradient, 0; ``nan_to_num`` because 0 · ∞ is NaN.
    """
    return score(0 * query[:, :, :1].nan_to_num(), key)


def fast_separable(
    score: SeparableAdditiveScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Mask | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L D"]:
    """One softmax over the keys for all queries or, causal, :func:`running_mean`: O(L + S) in time and memory.

    The scores of one query serve them all, since the softmax cancels what tells them apart. A mask that tells queries
    apart, such as (L, S), or dropout needs weights for each of them and takes :func:`query_blocks`. No query is looked
    at, so that one with a NaN gets the output that its finite neighbors get, where the readable path gives NaN.
    """
    L, S = query.shape[-2], key.shape[-2]
    one_for_all = attn_mask is None or attn_mask.dim() < 2 or attn_mask.shape[-2] == 1
    if not one_for_all or dropout_p or (is_causal and L > S):  # the last of which the readable path refuses
        return query_blocks(score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p)
    scores = key_scores(score, query, key)  # (B, H, 1, S)
    if not is_causal:
        return attend(scores, value, attn_mask=attn_mask)[0].expand(-1, -1, L, -1)
    if attn_mask is None:
        return running_mean(scores.squeeze(2), value)[0][:, :, S - L :].to(value.dtype)
    check_mask(attn_mask, scores.shape, scores.device)
    hidden = ~attn_mask
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)  # far below, yet not -inf: no NaN where all are
    output = running_mean(scores.squeeze(2), value)[0]
    none_so_far = hidden.expand(scores.shape).cumprod(dim=-1).bool().mT  # (B, H, S, 1)
    return output.masked_fill(none_so_far, 0.0)[:, :, S - L :].to(value.dtype)
