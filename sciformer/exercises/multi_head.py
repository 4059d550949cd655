"""Exercises of notebook 03: multi-head attention.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, parameter
from sciformer.check.modules import run_module, scores_of
from sciformer.functional import causal_mask

_FORMULA = "The formula and its shapes"
_BATCHED = "All heads at once"
_VIEW = "Break it: a view without the transpose"
_TORCH = "Optional: equal to torch's, and a bias that never learns"
_TRAP = "Optional: the head-size trap"
_BIAS = "Optional: a bias from the activations"


def _split(x: Tensor, head_dim: int) -> Tensor:
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # (B, H, L, D)


# Mistakes in splitting into heads: the same in all exercises that split.
_SPLIT_FAULTS = (
    Fault(
        "split without transpose",
        "A view to (B, H, L, D) has the right shape, but each head is then a few whole tokens. View as (B, L, H, D), "
        "then transpose(1, 2).",
        see=_VIEW,
        split=lambda x, head_dim: x.reshape(len(x), -1, x.shape[1], head_dim),
    ),
    Fault(
        "heads interleaved",
        "Each head takes every H-th feature, as after a view to (…, D, H). Its features lie side by side: (…, H, D).",
        see=_BATCHED,
        split=lambda x, head_dim: x.unflatten(-1, (head_dim, -1)).permute(0, 3, 1, 2),
    ),
)


# Mistakes in what a split returns: the same in both exercises that ask for the heads themselves.
_HEADS_FAULTS = (
    Fault(
        "heads behind the tokens",
        "The heads stand behind the tokens, (B, L, H, D). They belong in front, beside the batch: transpose(1, 2).",
        split=lambda x, head_dim: x.unflatten(-1, (-1, head_dim)),
    ),
    Fault(
        "size before the tokens",
        "Tokens and features are exchanged: (B, H, D, L). Only axes 1 and 2 are to be exchanged.",
        split=lambda x, head_dim: _split(x, head_dim).transpose(-2, -1),
    ),
)


def split_heads(x: Tensor, num_heads: int, *, split: Callable[..., Tensor] = _split) -> Tensor:
    """The heads of every token, (B, H, L, D)."""
    return split(x, x.shape[-1] // num_heads)


def _numbered(draw: Draw, *shape: int) -> Tensor:
    """Each entry has a number of its own, so that it shows where it comes from."""
    numbers = torch.arange(math.prod(shape)).view(shape)
    return numbers.to(draw.device, draw.dtype)


def _split_heads_cases(draw: Draw) -> Iterator[Case]:
    yield Case("2 tokens, 2 heads of size 3", {"x": _numbered(draw, 1, 2, 6), "num_heads": 2})
    yield Case("3 tokens, 1 head", {"x": _numbered(draw, 1, 3, 4), "num_heads": 1})
    yield Case("1 token, 1 head", {"x": _numbered(draw, 1, 1, 4), "num_heads": 1})
    yield Case("2 sentences of 5 tokens, 3 heads of size 7", {"x": draw.normal(2, 5, 21), "num_heads": 3})


_SPLIT_HEADS_FAULTS = (
    *_SPLIT_FAULTS,
    *_HEADS_FAULTS,
    Fault(
        "heads before the batch",
        "The heads stand before the batch, (H, B, L, D). The batch comes first: (B, H, L, D).",
        split=lambda x, head_dim: x.unflatten(-1, (-1, head_dim)).permute(2, 0, 1, 3),
    ),
    Fault(
        "num_heads taken for the size",
        "The number of heads is taken for the size of a head. There are num_heads heads, each of size E / num_heads.",
        split=lambda x, head_dim: _split(x, x.shape[-1] // head_dim),
    ),
    Fault(
        "reshaped with the features in front",
        "After `transpose(1, 2)` the features stand before the tokens, and a reshape to (B, H, L, D) mixes the two. "
        "Cut the features into heads and head size first, then move the axes.",
        split=lambda x, head_dim: x.transpose(1, 2).reshape(len(x), -1, x.shape[1], head_dim),
    ),
)


def merge_heads(
    x: Tensor, *, join: Callable[..., Tensor] = lambda heads: heads.transpose(1, 2).flatten(start_dim=2, end_dim=3)
) -> Tensor:
    """The heads of a token side by side, (B, L, H·D)."""
    return join(x)


def _merge_heads_cases(draw: Draw) -> Iterator[Case]:
    yield Case("2 heads, 2 tokens, size 3", {"x": _numbered(draw, 1, 2, 2, 3)})
    yield Case("1 head, 3 tokens, size 4", {"x": _numbered(draw, 1, 1, 3, 4)})
    yield Case("2 sentences, 3 heads, 5 tokens, size 7", {"x": draw.normal(2, 3, 5, 7)})


# Mistakes in joining the heads: the same in both exercises that join them and nothing else.
_MERGE_FAULTS = (
    Fault(
        "merge without transpose",
        "To join the heads, they are reshaped to (B, L, E) as they stand, which mixes up tokens. First "
        "transpose(1, 2), so that a token's heads stand together.",
        see=_VIEW,
        join=lambda heads: heads.reshape(len(heads), heads.shape[2], -1),
    ),
    Fault(
        "merge interleaved",
        "In the joined heads, the heads' features alternate: (…, D, H) was flattened. Flatten (…, H, D), head beside "
        "head.",
        see=_BATCHED,
        join=lambda heads: heads.permute(0, 2, 3, 1).flatten(-2),
    ),
)
_MERGE_HEADS_FAULTS = (
    *_MERGE_FAULTS,
    Fault(
        "not joined",
        "The heads of a token are still apart, (B, L, H, D). Flatten the last two axes.",
        join=lambda heads: heads.transpose(1, 2),
    ),
    Fault(
        "joined along the tokens",
        "The heads follow one another along the tokens, (B, H·L, D). They belong side by side in the last axis.",
        join=lambda heads: heads.flatten(1, 2),
    ),
    Fault(
        "sentences joined",
        "It goes through the first axis, which is the batch, and lays the sentences side by side. The heads are axis "
        "1: x.unbind(dim=1).",
        join=lambda heads: torch.cat(list(heads), dim=-1),
    ),
    Fault(
        "heads added",
        "The heads are added up to D features for each token. Lay them side by side, H·D = E.",
        join=lambda heads: heads.sum(dim=1),
    ),
    Fault(
        "heads averaged",
        "The heads are averaged to D features for each token. Lay them side by side, H·D = E.",
        join=lambda heads: heads.mean(dim=1),
    ),
)


class MultiHead(nn.Module):
    """Several heads side by side: (B, L, E) and (B, S, E) to (B, L, E) and weights (B, H, L, S)."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        split: Callable[..., Tensor] = _split,
        sources: Callable[..., tuple[Tensor, ...]] = lambda x, context: (x, context, context),
        scale: Callable[..., float] = lambda num_heads, head_dim: head_dim**-0.5,
        mask: Callable[..., Tensor] = lambda scores, mask: scores.masked_fill(~mask, -math.inf),
        normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
        hide: Callable[..., Tensor] = lambda weights, mask: weights,
        join: Callable[..., Tensor] = lambda heads: heads.transpose(1, 2).flatten(-2),
        project: Callable[..., Tensor] = lambda out_proj, joined: out_proj(joined),
        finish: Callable[..., Any] = lambda output, weights: (output, weights),
    ):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.v_proj, self.out_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.head_dim, self.scale = embed_dim // num_heads, scale(num_heads, embed_dim // num_heads)
        self.split, self.sources, self.mask, self.normalize = split, sources, mask, normalize
        self.hide, self.join, self.project, self.finish = hide, join, project, finish

    def forward(self, x: Tensor, context: Tensor | None = None, *, attn_mask: Tensor | None = None) -> Any:
        """The output and the weights."""
        layers, sources = (self.q_proj, self.k_proj, self.v_proj), self.sources(x, x if context is None else context)
        q, k, v = (self.split(layer(source), self.head_dim) for layer, source in zip(layers, sources, strict=True))
        scores = q @ k.transpose(-2, -1) * self.scale  # (B, H, L, S)
        weights = self.normalize(scores if attn_mask is None else self.mask(scores, attn_mask))
        weights = weights if attn_mask is None else self.hide(weights, attn_mask)
        return self.finish(self.project(self.out_proj, self.join(weights @ v)), weights)


def _run_heads(
    answer: Callable[..., Any],
    x: Tensor,
    context: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
    **weights: Tensor,
) -> Any:
    # Not an input: the softmax cancels the keys' bias, so nothing but rounding would flow back to it.
    weights["k_proj.bias"] = weights["v_proj.bias"].detach().flip(0)
    inputs = (x,) if context is None else (x, context)
    return run_module(answer, (x.shape[-1], num_heads), weights, *inputs, attn_mask=attn_mask)


def _multi_head_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, x: Tensor, context: Tensor | None, attn_mask: Tensor | None, num_heads: int) -> Case:
        inputs = {"x": x, "context": context, "attn_mask": attn_mask, "num_heads": num_heads}
        layers = ("q_proj", "k_proj", "v_proj", "out_proj")
        inputs |= {f"{name}.weight": draw.normal(x.shape[-1], x.shape[-1]) for name in layers}
        inputs |= {f"{name}.bias": draw.normal(x.shape[-1]) for name in layers if name != "k_proj"}
        return Case(name, inputs)

    yield case("2 tokens, 2 heads of size 2", draw.normal(1, 2, 4), None, None, 2)
    yield case("2 tokens that look at 2 others, 1 head", draw.normal(1, 2, 2), draw.normal(1, 2, 2), None, 1)
    yield case("4 tokens, 2 heads of size 3, causal", draw.normal(1, 4, 6), None, causal_mask(4, device=draw.device), 2)
    words, others, keep = draw.normal(2, 3, 6), draw.normal(2, 5, 6), draw.integers(0, 3, 3, 5) > 0
    keep[:, 0] = True
    yield case("2 times 3 tokens that look at 5 others, random mask, 3 heads", words, others, keep, 3)


# What goes wrong alike where each head shares out its weights among the keys.
_SHARING_FAULTS = (
    Fault(
        "softmax over the heads",
        "The softmax runs over the heads, which then compete for a key. Each head shares out its own unit among the "
        "keys: dim=-1.",
        see=_FORMULA,
        normalize=lambda scores: scores.softmax(dim=1),
    ),
    Fault(
        "softmax over the queries",
        "The softmax runs over the queries (dim=-2). Each query shares out one unit among the keys: dim=-1.",
        see=_FORMULA,
        normalize=lambda scores: scores.softmax(dim=-2),
    ),
)

_MULTI_HEAD_FAULTS = (
    *_SPLIT_FAULTS,
    *_MERGE_FAULTS,
    Fault(
        "context ignored",
        "Keys and values come from x, and the context is never looked at: k_proj(context), v_proj(context).",
        sources=lambda x, context: (x, x, x),
    ),
    Fault(
        "query from the context",
        "The queries come from the context. A query belongs to the token that asks: q_proj(x).",
        sources=lambda x, context: (context, context, context),
    ),
    Fault(
        "no scale",
        "The scores are not divided by √D, the root of the head size.",
        see=_TRAP,
        scale=lambda num_heads, head_dim: 1.0,
    ),
    Fault(
        "scaled by embed_dim",
        "The scores are divided by √E, the root of the whole width. A head has D = E/H features, so it is √D.",
        see=_TRAP,
        scale=lambda num_heads, head_dim: (num_heads * head_dim) ** -0.5,
    ),
    Fault(
        "mask ignored",
        "The mask has no effect: the numbers are those of attention without a mask.",
        mask=lambda scores, mask: scores,
    ),
    Fault(
        "mask inverted",
        "The mask is the wrong way round: True means 'may attend', so hide where it is False.",
        see=_TORCH,
        mask=lambda scores, mask: scores.masked_fill(mask, -math.inf),
    ),
    Fault(
        "mask after the softmax",
        "The mask acts after the softmax: hidden keys still count in the sum that it divides by, so the rows no longer "
        "sum to 1.",
        mask=lambda scores, mask: scores,
        hide=lambda weights, mask: weights * mask,
    ),
    *_SHARING_FAULTS,
    Fault(
        "no output projection",
        "The output projection is missing: the heads are joined, but out_proj never mixes them.",
        see=_BATCHED,
        project=lambda out_proj, joined: joined,
    ),
    Fault(
        "weights averaged over the heads",
        "The weights are returned as an average over the heads, as nn.MultiheadAttention does by default. Return those "
        "of each head, (B, H, L, S).",
        see=_TORCH,
        finish=lambda output, weights: (output, weights.mean(dim=1)),
    ),
    Fault(
        "results exchanged",
        "The two results are exchanged: the output comes first, then the weights.",
        finish=lambda output, weights: (weights, output),
    ),
)


def split_packed(
    packed: Tensor,
    num_heads: int,
    *,
    thirds: Callable[..., tuple[Tensor, ...]] = lambda packed, num_heads: packed.chunk(3, dim=-1),
    split: Callable[..., Tensor] = _split,
    order: tuple[int, ...] = (0, 1, 2),
) -> list[Tensor]:
    """Queries, keys and values, (B, H, L, D) each, out of one projection (B, L, 3·E)."""
    parts = thirds(packed, num_heads)
    return [split(parts[n], packed.shape[-1] // 3 // num_heads) for n in order]


def _three(answer: Callable[..., Any], packed: Tensor, num_heads: int) -> Any:
    """One tensor that holds all three unpacks into them, so it is as good."""
    parts = answer(packed, num_heads)
    return list(parts) if isinstance(parts, Tensor) else parts


def _split_packed_cases(draw: Draw) -> Iterator[Case]:
    def numbered(length: int, width: int) -> Tensor:
        """Feature n of token i is 100·i + n, so that each shows where it comes from."""
        token, feature = torch.arange(length)[:, None], torch.arange(width)
        return (100 * token + feature)[None].to(draw.device, draw.dtype)

    yield Case("2 tokens, 2 heads of size 1", {"packed": numbered(2, 6), "num_heads": 2})
    yield Case("2 tokens, 2 heads of size 2", {"packed": numbered(2, 12), "num_heads": 2})
    yield Case("2 sentences of 5 tokens, 3 heads of size 7", {"packed": draw.normal(2, 5, 63), "num_heads": 3})


_SPLIT_PACKED_FAULTS = (
    *_SPLIT_FAULTS,
    Fault(
        "cut at the front",
        "All of `packed` was viewed as (3, B, L, …), which deals out tokens. Cut each token's features into three.",
        see=_VIEW,
        thirds=lambda packed, num_heads: packed.reshape(3, *packed.shape[:2], -1).unbind(),
    ),
    *_HEADS_FAULTS,
    Fault(
        "thirds inside each head",
        "It looks for a head's query, key and value side by side, (…, H, 3, D). Here the queries of all heads come "
        "first, then the keys: (…, 3, H, D).",
        see=_TORCH,
        thirds=lambda packed, num_heads: tuple(
            part.flatten(-2) for part in packed.unflatten(-1, (num_heads, 3, -1)).unbind(dim=-2)
        ),
    ),
    Fault(
        "every third feature",
        "Queries, keys and values are taken as every third feature. They lie one after the other, E features each.",
        see=_TORCH,
        thirds=lambda packed, num_heads: packed.unflatten(-1, (-1, 3)).unbind(dim=-1),
    ),
    Fault(
        "queries and keys exchanged",
        "Queries and keys are exchanged: the first E features are the queries.",
        see=_TORCH,
        order=(1, 0, 2),
    ),
    Fault(
        "keys and values exchanged",
        "Keys and values are exchanged: the last E features are the values.",
        see=_TORCH,
        order=(0, 2, 1),
    ),
    Fault(
        "keys twice",
        "The values are the keys once more. They are the last E features.",
        see=_TORCH,
        order=(0, 1, 1),
    ),
)


class TemperedScore(nn.Module):
    r"""Scaled dot product with a trained temperature for each head, :math:`q_i \cdot k_j / (\sqrt{D}\, e^{t_h})`."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        register: Callable[..., Tensor] = nn.Parameter,
        start: Callable[..., Tensor] = torch.zeros,
        size: Callable[..., int] = lambda num_heads: num_heads,
        product: Callable[..., Tensor] = lambda query, key: query @ key.transpose(-2, -1),
        scale: Callable[..., float] = lambda num_heads, head_dim: head_dim**-0.5,
        align: Callable[..., Tensor] = lambda t: t[:, None, None],
        temper: Callable[..., Tensor] = lambda scores, t: scores / t.exp(),
        finish: Callable[..., Tensor] = lambda scores: scores,
        hide: Callable[..., Tensor] = lambda scores, mask: scores,
    ):
        super().__init__()
        self.log_temperature = register(start(size(num_heads)))
        self.product, self.align, self.temper, self.finish, self.hide = product, align, temper, finish, hide
        self.scale = scale(num_heads, head_dim)

    def forward(self, query: Tensor, key: Tensor, *, attn_mask: Tensor | None = None) -> Tensor:
        """Scores (B, H, L, S)."""
        scores = self.product(query, key) * self.scale
        return self.hide(self.finish(self.temper(scores, self.align(self.log_temperature))), attn_mask)


def _try_temperatures(
    answer: Callable[..., Any], query: Tensor, key: Tensor, log_temperature: Tensor
) -> tuple[Tensor, Tensor]:
    """What there is to train, and the scores when the training has ended at these temperatures."""
    module = answer(query.shape[1], query.shape[-1]).to(query)
    parameters = torch.cat([query.new_zeros(0), *(p.flatten() for p in module.parameters() if p.requires_grad)])
    shape = parameter(module, "log_temperature").shape
    # The input itself stands in for the parameter, so that gradients show whether the scores really depend on it.
    del module.log_temperature
    module.log_temperature = log_temperature.repeat(shape.numel())[: shape.numel()].view(shape)
    return parameters, scores_of(module, query, key)


def _tempered_score_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, batch: int, num_heads: int, length: int, key_length: int, head_dim: int) -> Case:
        query, key = (draw.normal(batch, num_heads, n, head_dim) for n in (length, key_length))
        # Never 0, and never the same twice: else a temperature on the wrong axis might not show.
        log_temperature = 0.7 * draw.permutation(num_heads).to(query) - 0.5
        return Case(name, {"query": query, "key": key, "log_temperature": log_temperature})

    yield case("2 tokens, 2 heads of size 3", 1, 2, 2, 2, 3)
    yield case("2 sentences, 3 heads of size 5, 5 queries, 7 keys", 2, 3, 5, 7, 5)


_TEMPERED_SCORE_FAULTS = (
    Fault(
        "not a parameter",
        "No optimiser finds `log_temperature`: a plain tensor or a buffer is no nn.Parameter, and one with "
        "requires_grad=False does not learn.",
        register=lambda x: x,
    ),
    Fault(
        "hides keys",
        "The score hides keys by itself. It should leave the mask alone: attention applies it to the scores later.",
        hide=lambda scores, mask: scores.masked_fill(~mask, -math.inf),
    ),
    Fault(
        "one for all heads",
        "All heads share one temperature. Each head should have its own: num_heads of them.",
        size=lambda num_heads: 1,
    ),
    Fault(
        "starts at 1",
        "It starts at 1, which is a temperature of e. The temperature should start at e⁰ = 1: `log_temperature` starts "
        "at 0.",
        start=torch.ones,
    ),
    Fault(
        "starts at random",
        "It starts at random numbers. At 0 the layer begins as plain scaled dot-product attention.",
        start=torch.randn,
    ),
    Fault(
        "along the keys",
        "Broadcasting begins at the last axis, so the temperatures land on the keys. Shape (H, 1, 1) meets the heads.",
        see=_FORMULA,
        align=lambda t: t,
    ),
    Fault(
        "along the queries",
        "The temperatures run along the queries, as those of shape (H, 1) do. Shape (H, 1, 1) meets the heads.",
        see=_FORMULA,
        align=lambda t: t[:, None],
    ),
    Fault(
        "multiplied",
        "The scores are multiplied by the temperature. A high temperature makes a head look widely: divide.",
        temper=lambda scores, t: scores * t.exp(),
    ),
    Fault(
        "no exponential",
        "The scores are divided by `log_temperature` itself, which starts at 0 and may be negative. Divide by its "
        "exponential.",
        temper=lambda scores, t: scores / t,
    ),
    Fault(
        "the temperature itself",
        "The parameter `log_temperature` is used as the temperature itself: it starts at 1, and the scores are divided "
        "by it. It is its logarithm: let it start at 0, and divide by its exponential.",
        start=torch.ones,
        temper=lambda scores, t: scores / t,
    ),
    Fault(
        "a factor that starts at 1",
        "The parameter `log_temperature` is used as a factor: it starts at 1, and the scores are multiplied by it. It "
        "is the logarithm of a temperature: let it start at 0, and divide by its exponential.",
        start=torch.ones,
        temper=lambda scores, t: scores * t,
    ),
    Fault(
        "multiplied by the logarithm",
        "The scores are multiplied by `log_temperature` itself: at 0, where it starts, they all vanish. Divide by its "
        "exponential.",
        temper=lambda scores, t: scores * t,
    ),
    Fault(
        "under the root",
        "The temperature stands under the root, beside D, so that only its root divides the scores. Only D is under "
        "the root.",
        see=_FORMULA,
        temper=lambda scores, t: scores / (t / 2).exp(),
    ),
    Fault(
        "subtracted",
        "The scores have `log_temperature` subtracted. That moves a whole row, and the softmax cancels it. "
        "Divide by its exponential.",
        temper=lambda scores, t: scores - t,
    ),
    Fault(
        "no effect",
        "The scores do not depend on `log_temperature`: it is not used, or its exponential was taken once, in "
        "__init__. Training changes it later, so take it in forward.",
        temper=lambda scores, t: scores,
    ),
    Fault(
        "no scale",
        "The scores are divided by the temperature, but not by √D. They need both.",
        see=_TRAP,
        scale=lambda num_heads, head_dim: 1.0,
    ),
    Fault(
        "scaled by embed_dim",
        "The scores are divided by √E = √(H·D). Each head has D features, so it is √D.",
        see=_TRAP,
        scale=lambda num_heads, head_dim: (num_heads * head_dim) ** -0.5,
    ),
    Fault(
        "divided by D",
        "The scores are divided by D; their variance is D, so it takes √D to bring it back to 1.",
        see=_TRAP,
        scale=lambda num_heads, head_dim: 1 / head_dim,
    ),
    Fault(
        "multiplied by √D",
        "The scores are multiplied by √D instead of divided.",
        see=_TRAP,
        scale=lambda num_heads, head_dim: head_dim**0.5,
    ),
    Fault(
        "scaled by the number of heads",
        "The scores are divided by √H, the root of the number of heads. It is the root of a head's size: shape[-1].",
        see=_TRAP,
        scale=lambda num_heads, head_dim: num_heads**-0.5,
    ),
    Fault(
        "softmax inside",
        "Your result has been through a softmax, so it holds weights. It should hold the scores: the layer takes the "
        "softmax itself.",
        finish=lambda scores: scores.softmax(dim=-1),
    ),
    Fault(
        "queries and keys exchanged",
        "Queries and keys are exchanged: row i has to hold query i against every key.",
        see=_FORMULA,
        product=lambda query, key: key @ query.transpose(-2, -1),
    ),
)


def _repeat_features(x: Tensor, shared: int) -> Tensor:
    return _split(x.transpose(1, 2).flatten(-2).repeat_interleave(shared, dim=-1), x.shape[-1])


def grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    w_o: Tensor,
    num_heads: int,
    *,
    split: Callable[..., Tensor] = _split,
    share_keys: Callable[..., Tensor] = lambda k, shared: k.repeat_interleave(shared, dim=1),
    share_values: Callable[..., Tensor] = lambda v, shared: v.repeat_interleave(shared, dim=1),
    scale: Callable[..., float] = lambda query, key, head_dim: head_dim**-0.5,
    normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
    mix: Callable[..., Tensor] = lambda weights, k, v: weights @ v,
    merge: Callable[..., Tensor] = lambda output, shared: output.transpose(1, 2).flatten(-2),
    project: Callable[..., Tensor] = lambda merged, w_o, num_heads: merged @ w_o,
) -> Tensor:
    """Multi-head attention whose query heads share key heads in groups of neighbours, (B, L, E).

    Source: Ainslie et al. 2023, arXiv:2305.13245.
    """
    head_dim = query.shape[-1] // num_heads
    q, k, v = (split(x, head_dim) for x in (query, key, value))  # (B, H, L, D), twice (B, G, S, D)
    shared = num_heads // k.shape[1]
    k, v = share_keys(k, shared), share_values(v, shared)  # (B, H, S, D)
    scores = q @ k.transpose(-2, -1) * scale(query, key, head_dim)  # (B, H, L, S)
    return project(merge(mix(normalize(scores), k, v), shared), w_o, num_heads)


def _by_key_heads(x: Tensor, shared: int) -> Tensor:
    """The key head h // G for query head h, which there need not be."""
    key_heads = x.shape[1]
    return x[:, [head // key_heads for head in range(shared * key_heads)]]


def _grouped_attention_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, batch: int, length: int, key_length: int, num_heads: int, key_heads: int, size: int) -> Case:
        query = draw.normal(batch, length, num_heads * size)
        key, value = (draw.normal(batch, key_length, key_heads * size) for _ in range(2))
        w_o = draw.normal(num_heads * size, num_heads * size)
        return Case(name, {"query": query, "key": key, "value": value, "w_o": w_o, "num_heads": num_heads})

    yield case("2 tokens, 2 heads of size 1, 2 key heads", 1, 2, 2, 2, 2, 1)
    yield case("2 tokens, 2 heads of size 2, 1 key head", 1, 2, 2, 2, 1, 2)
    yield case("2 tokens, 4 heads of size 1, 2 key heads", 1, 2, 2, 4, 2, 1)
    yield case("2 sentences, 4 queries, 7 keys, 6 heads of size 3, 2 key heads", 2, 4, 7, 6, 2, 3)


_GROUPED_ATTENTION_FAULTS = (
    *_SPLIT_FAULTS,
    Fault(
        "merge without transpose",
        "To join the heads, they are reshaped to (B, L, E) as they stand, which mixes up tokens. First "
        "transpose(1, 2), so that a token's heads stand together.",
        see=_VIEW,
        merge=lambda output, shared: output.reshape(len(output), output.shape[2], -1),
    ),
    Fault(
        "merge interleaved",
        "In the joined heads, the heads' features alternate: (…, D, H) was flattened. Flatten (…, H, D), head beside "
        "head.",
        see=_BATCHED,
        merge=lambda output, shared: output.permute(0, 2, 3, 1).flatten(-2),
    ),
    Fault(
        "joined in turn",
        "Your joined heads are the first of each group, then the second of each. They should stand in the order of the "
        "query heads.",
        see=_BATCHED,
        merge=lambda output, shared: output.unflatten(1, (-1, shared)).permute(0, 3, 2, 1, 4).flatten(2),
    ),
    Fault(
        "shared in turn",
        "The key heads are dealt out in turn, 0, 1, 0, 1, as repeat does. Neighbours share: 0, 0, 1, 1.",
        share_keys=lambda k, shared: k.repeat(1, shared, 1, 1),
        share_values=lambda v, shared: v.repeat(1, shared, 1, 1),
    ),
    Fault(
        "values shared in turn",
        "The keys are shared among neighbours, but the values in turn: a head looks with one group's keys and gets "
        "another's values.",
        share_values=lambda v, shared: v.repeat(1, shared, 1, 1),
    ),
    Fault(
        "keys shared in turn",
        "The values are shared among neighbours, but the keys in turn: a head looks with one group's keys and gets "
        "another's values.",
        share_keys=lambda k, shared: k.repeat(1, shared, 1, 1),
    ),
    Fault(
        "features repeated",
        "The features of the unsplit keys and values are repeated one by one. Split first, then repeat whole heads.",
        share_keys=_repeat_features,
        share_values=_repeat_features,
    ),
    Fault(
        "first key head for all",
        "Every query head uses the first key head, and the others are never read.",
        share_keys=lambda k, shared: k[:, :1],
        share_values=lambda v, shared: v[:, :1],
    ),
    Fault(
        "divided by the number of key heads",
        "Query head h takes key head h // G. Each key head serves H // G query heads: take h // (H // G).",
        share_keys=_by_key_heads,
        share_values=_by_key_heads,
    ),
    Fault(
        "key heads averaged",
        "The key heads are averaged into one. Each group of query heads has a key head of its own.",
        share_keys=lambda k, shared: k.mean(dim=1, keepdim=True),
        share_values=lambda v, shared: v.mean(dim=1, keepdim=True),
    ),
    Fault(
        "no scale",
        "The scores are not divided by √D, the root of the head size.",
        see=_TRAP,
        scale=lambda query, key, head_dim: 1.0,
    ),
    Fault(
        "scaled by embed_dim",
        "The scores are divided by √E, the root of the whole width. A head has D = E/H features, so it is √D.",
        see=_TRAP,
        scale=lambda query, key, head_dim: query.shape[-1] ** -0.5,
    ),
    Fault(
        "scaled by the keys' width",
        "The scores are divided by the root of key.shape[-1], which is G·D: all key heads together. One has D "
        "features.",
        see=_TRAP,
        scale=lambda query, key, head_dim: key.shape[-1] ** -0.5,
    ),
    Fault(
        "divided by D",
        "The scores are divided by D; their variance is D, so it takes √D to bring it back to 1.",
        see=_TRAP,
        scale=lambda query, key, head_dim: 1 / head_dim,
    ),
    Fault(
        "multiplied by √D",
        "The scores are multiplied by √D instead of divided.",
        see=_TRAP,
        scale=lambda query, key, head_dim: head_dim**0.5,
    ),
    Fault(
        "scaled by the number of heads",
        "The scores are divided by √H, the root of the number of heads. It is the root of a head's size: shape[-1].",
        see=_TRAP,
        scale=lambda query, key, head_dim: (query.shape[-1] // head_dim) ** -0.5,
    ),
    *_SHARING_FAULTS,
    Fault(
        "no softmax",
        "There is no softmax: the scores themselves are taken as weights.",
        see=_FORMULA,
        normalize=lambda scores: scores,
    ),
    Fault(
        "weights averaged over the heads",
        "The weights are averaged over the heads before they meet the values, so all heads look the same way.",
        see="One head is one weighted average",
        normalize=lambda scores: scores.softmax(dim=-1).mean(dim=1, keepdim=True),
    ),
    Fault(
        "keys mixed",
        "The weights average the keys. They should average the values.",
        see=_FORMULA,
        mix=lambda weights, k, v: weights @ k,
    ),
    Fault(
        "heads averaged",
        "The heads are averaged into D features per token. Lay them side by side, H·D = E; w_o mixes them.",
        see=_FORMULA,
        merge=lambda output, shared: output.mean(dim=1),
        project=lambda merged, w_o, num_heads: merged,
    ),
    Fault(
        "heads added",
        "The heads are added up into D features per token. Lay them side by side, H·D = E; w_o mixes them.",
        see=_FORMULA,
        merge=lambda output, shared: output.sum(dim=1),
        project=lambda merged, w_o, num_heads: merged,
    ),
    Fault(
        "contributions averaged",
        "The result is H times too small: what the heads write through their rows of w_o is added, not averaged.",
        see=_BATCHED,
        project=lambda merged, w_o, num_heads: merged @ w_o / num_heads,
    ),
    Fault(
        "no output projection",
        "The output projection is missing: the heads are joined, but w_o never mixes them.",
        see=_BATCHED,
        project=lambda merged, w_o, num_heads: merged,
    ),
    Fault(
        "output projection transposed",
        "It multiplies by w_oᵀ, as nn.Linear does with its weight. This w_o is the formula's: merged @ w_o.",
        see=_FORMULA,
        project=lambda merged, w_o, num_heads: merged @ w_o.T,
    ),
)

EXERCISES = (
    Exercise(
        split_heads,
        notebook="03",
        section=_BATCHED,
        level="easy",
        minutes=5,
        hints=(
            "`x.view(B, L, H, D)`, or `x.unflatten(-1, (H, D))`, cuts the last axis and moves no number.",
            "`transpose(1, 2)` exchanges the second and the third axis. It is needed after the cut, and only there.",
        ),
        cases=_split_heads_cases,
        faults=_SPLIT_HEADS_FAULTS,
    ),
    Exercise(
        merge_heads,
        notebook="03",
        section=_BATCHED,
        level="easy",
        minutes=3,
        hints=(
            "Undo the steps of `split_heads` in the opposite order: the last one comes first.",
            "`flatten(-2)` joins the last two axes. Before that, the heads of a token have to stand beside each other.",
        ),
        cases=_merge_heads_cases,
        faults=_MERGE_HEADS_FAULTS,
    ),
    Exercise(
        MultiHead,
        notebook="03",
        section="The class",
        level="middle",
        minutes=12,
        hints=(
            "Four layers, nn.Linear(embed_dim, embed_dim). Project, split, attend, merge, project: five steps in "
            "`forward`.",
            "The package's `attend(dot_product_scores(q, k), v, attn_mask=attn_mask)` takes (B, H, L, D) and returns "
            "output and weights.",
        ),
        cases=_multi_head_cases,
        faults=_MULTI_HEAD_FAULTS,
        call=_run_heads,
        returns=("output", "weights"),
    ),
    Exercise(
        split_packed,
        notebook="03",
        section=_BATCHED,
        level="easy",
        minutes=5,
        hints=(
            "A view (or `unflatten`) may cut an axis; only `transpose` and `permute` may move one. Cut first.",
            "Cut the last axis into (3, H, D): whose, which head, which number. Then name the five axes and put"
            " them in order.",
        ),
        cases=_split_packed_cases,
        faults=_SPLIT_PACKED_FAULTS,
        call=_three,
        returns=("query tensor", "key tensor", "value tensor"),
    ),
    Exercise(
        TemperedScore,
        notebook="03",
        section=_BIAS,
        level="middle",
        minutes=8,
        hints=(
            "`KeyBiasScore` above has all the parts: a number that an optimiser finds, of a shape that meets "
            "the heads.",
            "Broadcasting lines shapes up from the right. Which shape puts $H$ numbers over the second axis of "
            "(B, H, L, S)?",
        ),
        cases=_tempered_score_cases,
        faults=_TEMPERED_SCORE_FAULTS,
        call=_try_temperatures,
        returns=("list of parameters", "score"),
    ),
    Exercise(
        grouped_attention,
        notebook="03",
        section=_BATCHED,
        level="hard",
        minutes=15,
        hints=(
            "Queries and keys meet in a dot product, so their heads have the same size. Which of the inputs "
            "tells it, and how does $G$ follow?",
            "Six query heads and two key heads: they need keys 0, 0, 0, 1, 1, 1. `repeat` and "
            "`repeat_interleave` differ; try both on `torch.arange(2)`.",
        ),
        large=("query",),
        cases=_grouped_attention_cases,
        faults=_GROUPED_ATTENTION_FAULTS,
    ),
)
