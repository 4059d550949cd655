"""The readable path for a few queries at a time: exact for any score, in memory that does not grow with L · S."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sciformer.fast.readable import readable_attention
from sciformer.functional import Mask, check_mask

#: How many numbers :func:`query_blocks` holds at a time. On a CPU 16 MB in float32: beyond 32 MB the allocator maps
#: every tensor anew, which costs more than the arithmetic. Elsewhere 256 MB, enough to keep a GPU busy.
BLOCK_NUMBERS = defaultdict(lambda: 2**26, cpu=2**22)


def block_size(
    query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], numbers_per_score: int = 1
) -> tuple[int, int]:
    """Queries of one example, and examples, whose scores are no more than :data:`BLOCK_NUMBERS`; at least one each."""
    (B, H, L), S = query.shape[:3], key.shape[-2]
    queries_at_once = BLOCK_NUMBERS[query.device.type] // (H * S * numbers_per_score)
    return min(L, max(1, queries_at_once)), min(B, max(1, queries_at_once // L))


def query_blocks(
    score: Callable[..., Tensor],
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    attn_mask: Mask | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    numbers_per_score: int = 1,
) -> Float[Tensor, "B H L D"]:
    """The readable path for a few queries at a time: exact for any score, in memory that does not grow with L · S.

    A block is all queries of some examples or, where one example is already too many, some of its queries. Of each
    block only the output is kept; the backward pass computes the rest once more (Chen et al. 2016, arXiv:1604.06174).
    What fits in one block takes the readable path, and nothing is computed twice.

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
        check_mask(attn_mask, (B, H, L, S), query.device)
        masks = attn_mask.expand(B, H, L, S).split(examples)

    def block(
        q: Float[Tensor, "B H L D"],
        k: Float[Tensor, "B H S D"],
        v: Float[Tensor, "B H S D"],
        mask: Bool[Tensor, "B H _ S"] | None,
        start: int,
    ) -> Float[Tensor, "B H L D"]:
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

    again = partial(computed_again, block, draws=dropout_p > 0)
    outputs = []
    for q, k, v, mask in zip(query.split(examples), key.split(examples), value.split(examples), masks, strict=False):
        parts = [again(part, k, v, mask, n * rows) for n, part in enumerate(q.split(rows, dim=2))]
        outputs.append(torch.cat(parts, dim=2))
    return torch.cat(outputs)


def computed_again(block: Callable[..., Tensor], *inputs: Any, draws: bool) -> Tensor:
    """The output of a block, of which the backward pass computes the rest once more.

    An error of the block is raised behind torch's ``checkpoint``, not through it. Up to torch 2.11 that would leave its
    hooks on saved tensors behind for as long as anybody holds the error, as Python's prompt does: every later backward
    pass would compute this block, and stop with its error.

    Args:
        draws: whether the block draws random numbers, which have to be the same again.

    Raises:
        Exception: whatever the block raises.
    """
    errors: list[Exception] = []
    is_first = True

    def careful(*given: Any) -> Tensor | None:
        try:
            return block(*given)
        except Exception as error:
            if not is_first:  # torch itself stops the second time by an exception of its own
                raise
            errors.append(error)
            return None

    output = checkpoint(careful, *inputs, use_reentrant=False, preserve_rng_state=draws)
    is_first = False
    if errors:
        raise errors[0]
    assert isinstance(output, Tensor)
    return output
