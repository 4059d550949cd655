"""The fast path of additive attention: on a CPU, one exponential for each token in place of one tanh for each pair."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sciformer.fast.blocks_of_queries import query_blocks
from sciformer.functional import additive_scores, check_additive_weight, check_query_key
from sciformer.scores import AdditiveScore

#: Kinds of device on which a tanh takes much longer than a product and a quotient.
SLOW_TANH = {"cpu"}
#: Up to here :math:`e^{2x}` and its inverse are float32 numbers with all their digits.
LARGEST = 40.0
#: How many numbers of the hidden layer are held at a time: 4 MB in float32, near enough to the processor.
HIDDEN_NUMBERS = 2**20


class AdditiveScores(torch.autograd.Function):
    r""":func:`~sciformer.functional.additive_scores` of numbers within ±:data:`LARGEST`, its hidden layer in chunks.

    .. math:: \tanh(q + k) = 1 - 2r, \qquad r = \frac{1}{1 + e^{2q}\, e^{2k}}, \qquad \tanh'(q + k) = 4\, r\, (1 - r)

    A product and a quotient a pair take a tenth of the time of a tanh. Backward, r is computed once more; gradients
    that are to be differentiated again, ``create_graph=True``, are those of the formula.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], weight: Float[Tensor, "H D"]
    ) -> Float[Tensor, "B H L S"]:
        """``weight.sum() - 2 * r @ weight``."""
        ctx.save_for_backward(query, key, weight)
        weights = weight.expand(len(query), -1, -1).flatten(0, 1)  # (B · H, D)
        scores = query.new_empty(len(weights), query.shape[-2], key.shape[-2])
        for heads, rows, r in hidden_chunks(query, key):
            torch.bmm(r.flatten(1, 2), -2 * weights[heads, :, None], out=scores[heads, rows].view(len(r), -1, 1))
        return scores.add_(weights.sum(dim=-1)[:, None, None]).view(*query.shape[:-1], -1)

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "B H L S"]
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"], Float[Tensor, "H D"]]:
        """The gradients of query, key and weight."""
        query, key, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.func.vjp(additive_scores, query, key, weight)[1](gradient)
        g = gradient.flatten(0, 1).contiguous()  # (B · H, L, S)
        to_query, to_key = torch.empty_like(query).flatten(0, 1), torch.zeros_like(key).flatten(0, 1)
        to_weight = torch.zeros_like(to_query[:, 0])  # (B · H, D)
        for heads, rows, r in hidden_chunks(query, key):
            of_chunk = g[heads, rows]  # (heads, rows, S)
            to_weight[heads] += (of_chunk.flatten(1)[:, None] @ r.flatten(1, 2))[:, 0]
            slope = torch.addcmul(r, r, r, value=-1)  # r (1 - r)
            to_query[heads, rows] = (of_chunk[:, :, None] @ slope)[:, :, 0]
            to_key[heads] += slope.mul_(of_chunk[..., None]).sum(dim=1)
        to_weight = (g.sum(dim=(1, 2))[:, None] - 2 * to_weight).view(-1, *weight.shape).sum(dim=0)
        to_query, to_key = (4 * weight[:, None] * x.view_as(y) for x, y in ((to_query, query), (to_key, key)))
        return to_query, to_key, to_weight


def hidden_chunks(
    query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"]
) -> Iterator[tuple[slice, slice, Float[Tensor, "heads rows S D"]]]:
    """Some heads of all examples, some of their queries, and their r: whole heads, or queries of a large one.

    Each r has at most :data:`HIDDEN_NUMBERS` numbers, or is that of one query.
    """
    of_query, of_key = ((2 * x).exp_().flatten(0, 1) for x in (query, key))  # (B · H, L or S, D)
    (L, D), S = of_query.shape[1:], of_key.shape[1]
    rows = min(L, max(1, HIDDEN_NUMBERS // (S * D)))
    heads = max(1, HIDDEN_NUMBERS // (L * S * D))
    one = query.new_ones(())
    for h in range(0, len(of_query), heads):
        for n in range(0, L, rows):
            chunk = slice(h, h + heads), slice(n, n + rows)
            q = of_query[chunk][:, :, None]  # (heads, rows, 1, D)
            yield *chunk, torch.addcmul(one, q, of_key[chunk[0], None]).reciprocal_()


def fast_additive(
    score: AdditiveScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """:func:`query_blocks` with the hidden layer in chunks, so that (B, H, L, S, D) is never held.

    Through :class:`AdditiveScores` on a CPU; on a GPU, whose tanh is quick, compiled, in half precision or where a
    number is past its bounds, each score takes head_dim numbers of a block.
    """
    check_query_key(query, key)
    check_additive_weight(score.weight, query)
    quick = query.device.type in SLOW_TANH and query.dtype in (torch.float32, torch.float64)
    quick = quick and not torch.compiler.is_compiling()
    if not quick or not all((x.abs() <= LARGEST).all() for x in (query, key)):
        return query_blocks(score, query, key, value, numbers_per_score=query.shape[-1], **options)

    def scores(q: Tensor, k: Tensor, **_: Any) -> Tensor:
        return AdditiveScores.apply(q, k, score.weight)

    return query_blocks(scores, query, key, value, **options)
