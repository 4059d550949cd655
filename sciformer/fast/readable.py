"""The path that always works: every score at once, then the softmax, then the average of the values."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from sciformer.functional import Mask, attend, causal_mask, check_mask, masked_softmax
from sciformer.scores import Score


def combined_mask(
    length: int, key_length: int, attn_mask: Mask | None, is_causal: bool, device: torch.device
) -> Mask | None:
    """``attn_mask`` and the causal mask together mean both."""
    if not is_causal:
        return attn_mask
    causal = causal_mask(length, key_length, device=device)
    return causal if attn_mask is None else attn_mask & causal


def readable_attention(
    score: Callable[..., Tensor],
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Mask | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    query_offset: int = 0,
) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H L S"]]:
    """The path that always works: every score at once.

    Args:
        query_offset: position of the first query among the keys; causal queries are the last ones whatever it says.

    Returns:
        The output and the weights.
    """
    L, S = query.shape[-2], key.shape[-2]
    if attn_mask is not None:
        check_mask(attn_mask, (*query.shape[:-1], S), query.device)
    mask = combined_mask(L, S, attn_mask, is_causal, query.device)
    query_offset = S - L if is_causal else query_offset
    scores = score(query, key, attn_mask=mask, query_offset=query_offset)
    if attn_mask is not None and isinstance(score, Score):  # together they may leave a query no key
        hides = score.own_mask(L, S, query_offset=query_offset, device=query.device)
        mask = mask if mask is None or hides is None else mask & hides
    if mask is not None and attn_mask is None:  # causal alone leaves every query a key, so that one sum hides the rest
        scores, mask = scores + torch.where(mask, scores.new_zeros(()), -math.inf), None
    normalize = getattr(score, "normalize", masked_softmax)
    return attend(scores, value, attn_mask=mask, dropout_p=dropout_p, normalize=normalize)
