"""The fastest exact path of each score, with the readable path as the one that always works.

A fast path computes ``attend(score(query, key), value)`` without holding the (L, S) weights. It is found by the
score's exact class: a subclass with a formula of its own is never served by its parent's shortcut.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.functional import attend, causal_mask, check_mask, check_query_key
from sciformer.scores import DotProductScore


def combined_mask(
    length: int, key_length: int, attn_mask: Tensor | None, is_causal: bool, device: torch.device
) -> Tensor | None:
    """``attn_mask`` and the causal mask together mean both."""
    if not is_causal:
        return attn_mask
    causal = causal_mask(length, key_length, device=device)
    return causal if attn_mask is None else attn_mask & causal


def fast_dot_product(
    score: DotProductScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
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
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=plainly_causal, dropout_p=dropout_p, scale=score.scale
    )


#: Exact class of a score -> its fast path, which takes the arguments of :func:`fast_dot_product`.
FAST: dict[type[nn.Module], Callable[..., Tensor]] = {DotProductScore: fast_dot_product}


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
    fast = FAST.get(type(score))
    if fast is not None and not need_weights:
        output = fast(score, query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p)
        return output, None
    L, S = query.shape[-2], key.shape[-2]
    attn_mask = combined_mask(L, S, attn_mask, is_causal, query.device)
    scores = score(query, key, attn_mask=attn_mask, query_offset=S - L if is_causal else 0)
    output, weights = attend(scores, value, attn_mask=attn_mask, dropout_p=dropout_p)
    return output, weights if need_weights else None
