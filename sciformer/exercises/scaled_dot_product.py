"""Exercises of notebook 02: scaled dot-product attention.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise
from sciformer.check.modules import run_module
from sciformer.functional import causal_mask

_PARTS = "One vector, three parts"
_WHY = r"Why $1/\sqrt d$"
_MASKS = "Masks: True = may attend"
_BREAK = "Break it: three classic mistakes"
_LEAKS = "A test for leaks"


def _random_mask(draw: Draw, length: int, key_length: int) -> Tensor:
    """Hides about a third of the keys and leaves each query its own position, or the last key."""
    keep = draw.integers(0, 3, length, key_length) > 0
    positions = torch.arange(length).clamp(max=key_length - 1)
    keep[torch.arange(length), positions] = True
    return keep


# Faults of the mask and of the softmax: the same in all exercises that have them.
_MASK_FAULTS = (
    Fault(
        "mask inverted",
        "The mask is the wrong way round: True means 'may attend', so hide where it is False.",
        see=_MASKS,
        mask=lambda scores, mask: scores.masked_fill(mask, -math.inf),
    ),
    Fault(
        "mask inverted, with −1e9",
        "The mask is the wrong way round: True means 'may attend', and that is where the −1e9 stands.",
        see=_MASKS,
        mask=lambda scores, mask: scores.masked_fill(mask, -1e9),
    ),
    Fault(
        "mask inverted, empty rows 0",
        "The mask is the wrong way round: True means 'may attend', as it does for torch's "
        "scaled_dot_product_attention. Rows that this leaves without a key are 0.",
        see=_MASKS,
        mask=lambda scores, mask: scores.masked_fill(mask, -math.inf),
        hide=lambda weights, mask: weights.nan_to_num(0.0),
    ),
    Fault(
        "mask ignored",
        "The mask has no effect: the numbers are those of attention without a mask.",
        see=_MASKS,
        mask=lambda scores, mask: scores,
    ),
    Fault(
        "mask after the softmax",
        "The mask acts after the softmax: hidden keys still count in the sum that it divides by, so the rows no longer "
        "sum to 1.",
        see=_BREAK,
        mask=lambda scores, mask: scores,
        hide=lambda weights, mask: weights * mask,
    ),
    Fault(
        "−∞ after the softmax",
        "The mask writes −∞ into the weights. It belongs before the softmax, which makes a weight of 0 of a score of "
        "−∞.",
        see=_BREAK,
        mask=lambda scores, mask: scores,
        hide=lambda weights, mask: weights.masked_fill(~mask, -math.inf),
    ),
    Fault(
        "zero in place of −∞",
        "Hidden scores are set to 0 or nearly 0, but e⁰ = 1 is a weight like any other; it has to be −∞.",
        see=_BREAK,
        mask=lambda scores, mask: scores * mask,
    ),
    Fault(
        "mask added",
        "The mask is added to the scores as 0 and 1, which only favours the visible keys; hidden ones need −∞.",
        see=_MASKS,
        mask=lambda scores, mask: scores + mask,
    ),
    Fault(
        "always causal",
        "The mask is causal whatever attn_mask says. Any other one, for padding for example, has to work as well: use "
        "attn_mask itself.",
        see=_MASKS,
        mask=lambda scores, mask: scores.masked_fill(~torch.ones_like(mask).tril(), -math.inf),
    ),
    Fault(
        "mask hides the diagonal",
        "A query is not allowed to see its own position, although the mask allows it.",
        see=_MASKS,
        mask=lambda scores, mask: scores.masked_fill(
            ~mask | torch.eye(*mask.shape, dtype=torch.bool, device=mask.device), -math.inf
        ),
    ),
)
_SOFTMAX_FAULTS = (
    Fault(
        "softmax over the queries",
        "The softmax runs over the queries (dim=-2). Each query shares out one unit among the keys: dim=-1.",
        see=_BREAK,
        normalize=lambda scores: scores.softmax(dim=-2),
    ),
    Fault(
        "softmax over everything",
        "The softmax runs over the whole matrix at once. Each row has to sum to 1 by itself: dim=-1.",
        see="The formula",
        normalize=lambda scores: scores.flatten().softmax(dim=0).view_as(scores),
    ),
    Fault(
        "no softmax",
        "There is no softmax: the scores themselves are taken as weights.",
        see="The formula",
        normalize=lambda scores: scores,
    ),
    Fault(
        "no exponential",
        "The rows are divided by their sums without the exponential: w = s / Σ s is not a softmax, and can be "
        "negative.",
        see="The formula",
        normalize=lambda scores: scores / scores.sum(dim=-1, keepdim=True),
    ),
    Fault(
        "not divided",
        "The exponentials are not divided by their sum, so the rows do not sum to 1.",
        see="The formula",
        normalize=lambda scores: scores.exp(),
    ),
)


_SCORES_OF_0_HIDDEN = Fault(
    "scores of 0 hidden",
    "Every score that is 0 is hidden, also one that the mask allows. A score can be 0 by itself: let the mask decide, "
    "scores.masked_fill(~attn_mask, −∞).",
    see=_MASKS,
    mask=lambda scores, mask: scores.masked_fill(~mask | (scores == 0), -math.inf),
)


_FINITE_NUMBER = Fault(
    "finite number in place of −∞",
    "Hidden scores get a finite number, as −20. Where the scores that the mask allows lie below it, hidden keys get "
    "the weight. Take −∞, which lies below every score.",
    see=_MASKS,
    mask=lambda scores, mask: scores.masked_fill(~mask, -20.0),
)


def masked_weights(
    scores: Tensor,
    attn_mask: Tensor,
    *,
    mask: Callable[..., Tensor] = lambda scores, mask: scores.masked_fill(~mask, -math.inf),
    normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
    hide: Callable[..., Tensor] = lambda weights, mask: weights,
) -> Tensor:
    """Softmax over the keys that the mask allows, (L, S)."""
    return hide(normalize(mask(scores, attn_mask)), attn_mask)


def _masked_weights_cases(draw: Draw) -> Iterator[Case]:
    yield Case(
        "2 queries, 2 keys, causal mask", {"scores": draw.normal(2, 2), "attn_mask": causal_mask(2, device=draw.device)}
    )
    yield Case("3 queries, 4 keys, random mask", {"scores": draw.normal(3, 4), "attn_mask": _random_mask(draw, 3, 4)})
    scores = draw.normal(7, 5)
    scores[0, 0] = 0.0  # the mask allows it: 0 is a score like any other
    name = "7 queries, 5 keys, random mask, a score of 0"
    far_below = draw.normal(2, 3) - 60  # their exponentials are small, and no number yet is 0
    others = ~torch.eye(2, 3, dtype=torch.bool, device=draw.device)  # hides something for certain
    yield Case("2 queries, 3 keys, scores near −60", {"scores": far_below, "attn_mask": others})
    yield Case(name, {"scores": scores, "attn_mask": _random_mask(draw, 7, 5)})


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    product: Callable[..., Tensor] = lambda query, key: query @ key.T,
    scale: Callable[..., Tensor] = lambda scores, query: scores / math.sqrt(query.shape[-1]),
    mask: Callable[..., Tensor] = lambda scores, mask: scores.masked_fill(~mask, -math.inf),
    normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
    hide: Callable[..., Tensor] = lambda weights, mask: weights,
    mix: Callable[..., Tensor] = lambda weights, key, value: weights @ value,
) -> Tensor:
    """softmax(q kᵀ / √D) v, (L, D)."""
    scores = scale(product(query, key), query)
    weights = normalize(scores) if attn_mask is None else hide(normalize(mask(scores, attn_mask)), attn_mask)
    return mix(weights, key, value)


def _scaled_dot_product_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, length: int, key_length: int, head_dim: int, attn_mask: Tensor | None) -> Case:
        query, key, value = (draw.normal(n, head_dim) for n in (length, key_length, key_length))
        return Case(name, {"query": query, "key": key, "value": value, "attn_mask": attn_mask})

    yield case("2 tokens, no mask", 2, 2, 3, None)
    yield case("2 tokens, causal mask", 2, 2, 3, causal_mask(2, device=draw.device))
    yield case("4 tokens, causal mask", 4, 4, 5, causal_mask(4, device=draw.device))
    yield case("3 queries, 7 keys, no mask", 3, 7, 5, None)
    yield case("3 queries, 7 keys, random mask", 3, 7, 5, _random_mask(draw, 3, 7))


_SCALED_DOT_PRODUCT_FAULTS = (
    Fault(
        "query and key exchanged",
        "Queries and keys are exchanged: row i has to hold query i against every key.",
        see="The formula",
        product=lambda query, key: key @ query.T,
    ),
    Fault(
        "no scale",
        "The scores are not divided by √D, the root of the head size.",
        see=_WHY,
        scale=lambda scores, query: scores,
    ),
    Fault(
        "divided by D",
        "The scores are divided by D, or twice by √D. Their variance is D, so one √D brings it back to 1.",
        see=_WHY,
        scale=lambda scores, query: scores / query.shape[-1],
    ),
    Fault(
        "multiplied by √D",
        "The scores are multiplied by √D instead of divided.",
        see=_WHY,
        scale=lambda scores, query: scores * math.sqrt(query.shape[-1]),
    ),
    Fault(
        "scaled by the length",
        "The scores are divided by the root of the number of keys. It is the root of the head size, query.shape[-1].",
        see=_WHY,
        scale=lambda scores, query: scores / math.sqrt(scores.shape[-1]),
    ),
    Fault(
        "scaled by the number of queries",
        "The scores are divided by the root of len(query), the number of queries. It is the root of query.shape[-1].",
        see=_WHY,
        scale=lambda scores, query: scores / math.sqrt(len(query)),
    ),
    Fault(
        "scaled after the softmax",
        "The division by √D comes after the softmax, where it only makes the rows sum to less than 1.",
        see=_WHY,
        scale=lambda scores, query: scores,
        mix=lambda weights, key, value: weights @ value / math.sqrt(key.shape[-1]),
    ),
    *_MASK_FAULTS,
    *_SOFTMAX_FAULTS,
    Fault(
        "weights transposed",
        "The weights are transposed before they meet the values: output i has to use row i.",
        see="The formula",
        mix=lambda weights, key, value: weights.T @ value,
    ),
    Fault(
        "keys mixed",
        "The weights average the keys. They should average the values.",
        see=_PARTS,
        mix=lambda weights, key, value: weights @ key,
    ),
    Fault(
        "weights returned",
        "These are the weights. The output is their product with the values.",
        see="The formula",
        mix=lambda weights, key, value: weights,
    ),
    Fault(
        "one row of the mask",
        "The mask of the first query is taken for all queries. Each has a row of its own.",
        see=_MASKS,
        mask=lambda scores, mask: scores.masked_fill(~mask[:1], -math.inf),
    ),
)


class AttentionHead(nn.Module):
    """One head with projections of its own: from (B, L, E) and (B, S, E) to (B, L, D) and weights (B, L, S)."""

    def __init__(
        self,
        embed_dim: int,
        head_dim: int,
        *,
        sources: Callable[..., tuple[Tensor, ...]] = lambda x, context: (x, context, context),
        layers: Callable[..., tuple[nn.Module, ...]] = lambda q_proj, k_proj, v_proj: (q_proj, k_proj, v_proj),
        scale: Callable[..., float] = lambda embed_dim, head_dim: head_dim**-0.5,
        allow: Callable[..., Tensor | None] = lambda attn_mask, context: attn_mask,
        mask: Callable[..., Tensor] = lambda scores, mask: scores.masked_fill(~mask, -math.inf),
        normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
        hide: Callable[..., Tensor] = lambda weights, mask: weights,
        finish: Callable[..., Any] = lambda output, weights, scores: (output, weights),
    ):
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, head_dim)
        self.k_proj = nn.Linear(embed_dim, head_dim)
        self.v_proj = nn.Linear(embed_dim, head_dim)
        self.sources, self.layers, self.scale = sources, layers, scale(embed_dim, head_dim)
        self.allow, self.mask, self.normalize, self.hide, self.finish = allow, mask, normalize, hide, finish

    def forward(self, x: Tensor, context: Tensor | None = None, *, attn_mask: Tensor | None = None) -> Any:
        """The output and the weights."""
        layers = self.layers(self.q_proj, self.k_proj, self.v_proj)
        sources = self.sources(x, x if context is None else context)
        q, k, v = (layer(source) for layer, source in zip(layers, sources, strict=True))
        scores = q @ k.transpose(-2, -1) * self.scale
        attn_mask = self.allow(attn_mask, context)
        if attn_mask is None:
            weights = self.normalize(scores)
        else:
            weights = self.hide(self.normalize(self.mask(scores, attn_mask)), attn_mask)
        return self.finish(weights @ v, weights, scores)


def _run_head(
    answer: Callable[..., Any], x: Tensor, context: Tensor | None, attn_mask: Tensor | None, **weights: Tensor
) -> Any:
    """The head of the sizes of its weights, over the words and what they look at."""
    head_dim, embed_dim = weights["q_proj.weight"].shape
    # Not an input: the softmax cancels the keys' bias, so nothing but rounding would flow back to it.
    weights["k_proj.bias"] = weights["v_proj.bias"].detach().flip(0)
    inputs = (x,) if context is None else (x, context)
    return run_module(answer, (embed_dim, head_dim), weights, *inputs, attn_mask=attn_mask)


def _attention_head_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, x: Tensor, context: Tensor | None, attn_mask: Tensor | None, head_dim: int) -> Case:
        inputs: dict[str, Tensor | None] = {"x": x, "context": context, "attn_mask": attn_mask}
        inputs |= {f"{name}.weight": draw.normal(head_dim, x.shape[-1]) for name in ("q_proj", "k_proj", "v_proj")}
        inputs |= {f"{name}.bias": draw.normal(head_dim) for name in ("q_proj", "v_proj")}
        return Case(name, inputs)

    yield case("2 words, no mask", draw.normal(1, 2, 2), None, None, 3)
    yield case("2 words that look at 2 others", draw.normal(1, 2, 2), draw.normal(1, 2, 2), None, 3)
    yield case("4 words, causal mask", draw.normal(1, 4, 5), None, causal_mask(4, device=draw.device), 3)
    words, others = draw.normal(2, 3, 5), draw.normal(2, 7, 5)
    yield case("2 times 3 words that look at 7 others, random mask", words, others, _random_mask(draw, 3, 7), 2)


_ATTENTION_HEAD_FAULTS = (
    Fault(
        "context ignored",
        "Keys and values come from x, and the context is never looked at: k_proj(context), v_proj(context).",
        see=_PARTS,
        sources=lambda x, context: (x, x, x),
    ),
    Fault(
        "query from the context",
        "The queries come from the context. A query belongs to the word that asks: q_proj(x).",
        see=_PARTS,
        sources=lambda x, context: (context, context, context),
    ),
    Fault(
        "keys from x",
        "The keys come from x, but the values from the context. Key j and value j belong to the same word.",
        see=_PARTS,
        sources=lambda x, context: (x, x, context),
    ),
    Fault(
        "values from x",
        "The values come from x, but the keys from the context. Key j and value j belong to the same word.",
        see=_PARTS,
        sources=lambda x, context: (x, context, x),
    ),
    Fault(
        "one projection for queries and keys",
        "The keys pass through q_proj, as the queries do, so the scores are symmetric again. Use k_proj.",
        see=_PARTS,
        layers=lambda q_proj, k_proj, v_proj: (q_proj, q_proj, v_proj),
    ),
    Fault(
        "projections exchanged",
        "The queries pass through k_proj and the keys through q_proj. Each projection has the name of what it makes.",
        see=_PARTS,
        layers=lambda q_proj, k_proj, v_proj: (k_proj, q_proj, v_proj),
    ),
    Fault(
        "keys handed over",
        "The weights average the keys. What is handed over are the values, v_proj(context).",
        see=_PARTS,
        layers=lambda q_proj, k_proj, v_proj: (q_proj, k_proj, k_proj),
    ),
    Fault(
        "no scale",
        "The scores are not divided by √D, the root of the head size.",
        see=_WHY,
        scale=lambda embed_dim, head_dim: 1.0,
    ),
    Fault(
        "scaled by embed_dim",
        "The scores are divided by √E, the root of embed_dim. Query and key have head_dim features: √head_dim.",
        see=_WHY,
        scale=lambda embed_dim, head_dim: embed_dim**-0.5,
    ),
    Fault(
        "divided by D",
        "The scores are divided by D. Their variance is D, so it takes √D to bring it back to 1.",
        see=_WHY,
        scale=lambda embed_dim, head_dim: 1 / head_dim,
    ),
    *_MASK_FAULTS,
    Fault(
        "mask ignored with a context",
        "The mask is used only where there is no context. Words of a context can be hidden, too, padding for example: "
        "use attn_mask in both cases.",
        see=_MASKS,
        allow=lambda attn_mask, context: attn_mask if context is None else None,
    ),
    Fault(
        "mask ignored without a context",
        "The mask is used only where there is a context. Without one, x looks at itself, and the mask says at which "
        "words: use attn_mask in both cases.",
        see=_MASKS,
        allow=lambda attn_mask, context: None if context is None else attn_mask,
    ),
    *_SOFTMAX_FAULTS,
    Fault(
        "scores returned",
        "The second result is the scores. Return the weights, which the softmax makes of them.",
        see="The formula",
        finish=lambda output, weights, scores: (output, scores),
    ),
    Fault(
        "results exchanged",
        "The two results are exchanged: the output comes first, then the weights.",
        finish=lambda output, weights, scores: (weights, output),
    ),
)


def future_leaks(
    attention: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    at: Callable[[Tensor], Tensor] = lambda x: x,
    size: Callable[..., Tensor] = lambda jacobian: jacobian.abs().amax(dim=(1, 3)),
    future: Callable[..., Tensor] = lambda size: size.triu(diagonal=1),
    leaks: Callable[..., bool] = lambda future: bool((future > 1e-6).any()),
) -> bool:
    """Whether some output depends on a later input: |∂y_i/∂x_j| > 10⁻⁶ for some j > i."""
    jacobian = torch.autograd.functional.jacobian(attention, at(x))  # (L, D, L, E)
    return leaks(future(size(jacobian)))


def _attentions() -> dict[str, Callable[[Tensor], Tensor]]:
    """Attentions over (L, E), honest and leaking."""

    def with_mask(recipe: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: recipe(x @ x.T / math.sqrt(x.shape[-1]), causal_mask(len(x), device=x.device)) @ x

    def sum_and_one_more(i: int, j: int) -> Callable[[Tensor], Tensor]:
        def attention(x: Tensor) -> Tensor:
            looks = torch.ones(len(x), len(x)).to(x).tril()
            looks[i : i + 1, j : j + 1] = 1  # output i looks at word j, and that is all
            return looks @ x

        return attention

    return {
        "masked with −∞": with_mask(lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(dim=-1)),
        "masked after the softmax": with_mask(lambda scores, mask: scores.softmax(dim=-1) * mask),
        "no mask": with_mask(lambda scores, mask: scores.softmax(dim=-1)),
        "a running sum": lambda x: x.cumsum(dim=0),
        "a running sum, divided by the number of words": lambda x: x.cumsum(dim=0) / len(x),
        "each word minus the next": lambda x: x - F.pad(x[1:], (0, 0, 0, 1)),
        "a running sum from the end": lambda x: x.flip(0).cumsum(dim=0).flip(0),
        "each word by itself": torch.tanh,
        "a hundred-thousandth of the next word": lambda x: x + 1e-5 * x.roll(-1, 0),
        "ten thousand times the word, and a thousandth of the next": lambda x: 1e4 * x + 1e-3 * x.roll(-1, 0),
        "one output that looks one word ahead": sum_and_one_more(1, 2),
        "one output that looks two words ahead": sum_and_one_more(0, 2),
        "the next word, in two features that cancel": lambda x: x + x.roll(-1, 0)[:, :1] * torch.tensor([1, -1]).to(x),
        "a difference within the next word, in both features": lambda x: (
            x + (x.roll(-1, 0) - x.roll(-1, 0).flip(-1))[:, :1]
        ),
        "a difference within the next word": lambda x: x.roll(-1, 0) - x.roll(-1, 0).flip(-1),
        "the first feature of the next word, in the second": lambda x: x + F.pad(x.roll(-1, 0)[:, :1], (1, 0)),
        "the second feature of the next word, in the first": lambda x: x + F.pad(x.roll(-1, 0)[:, 1:], (0, 1)),
        "the word before": lambda x: torch.cat([x[:1] * 0, x[:-1]]),
        "blind": lambda x: x * 0,
        "the next word, which shows only where a feature is no eighth": lambda x: (
            x + (8 * x.roll(-1, 0) - (8 * x.roll(-1, 0)).round().detach()).square()
        ),
    }


def _beside_the_largest(jacobian: Tensor) -> Tensor:
    size = jacobian.abs().sum(dim=(1, 3))
    return size.where(size > 1e-6 * size.max(), 0)


def _future_leaks_cases(draw: Draw) -> Iterator[Case]:
    for name, attention in _attentions().items():
        # Eighths, so that what cancels leaves no rounding behind.
        x = (draw.integers(-16, 17, 4, 2) / 8).to(draw.dtype)
        yield Case(name, {"attention": attention, "x": x})


_FUTURE_LEAKS_FAULTS = (
    Fault(
        "at another x",
        "It replaces later words or changes them by a step, and compares two outputs. That shows what another x does, "
        "where an output may depend on words on which it does not depend here. Take the derivative at x itself.",
        at=lambda x: x + 1 / 32,
    ),
    Fault(
        "small leaks pass",
        "A derivative of 0.00001 is taken for rounding, and what leaks in this way stays unseen. Only what is "
        "smaller than 0.000001 may be taken for 0.",
        leaks=lambda future: bool((future > 1e-3).any()),
    ),
    Fault(
        "small beside the largest",
        "A derivative is taken for 0 where it is small beside the largest one. A small leak is a leak, however much "
        "the words count that may be seen: compare with 0.000001 itself.",
        size=_beside_the_largest,
    ),
    Fault(
        "looks at the past",
        "It looks below the diagonal, at the past, which every attention may use. The future is j > i, above it.",
        future=lambda size: size.tril(diagonal=-1),
    ),
    Fault(
        "counts the diagonal",
        "It counts the diagonal as the future, but word i itself may be seen: start one above, triu(diagonal=1).",
        future=lambda size: size.triu(),
    ),
    Fault(
        "counts everything",
        "It reports any dependence at all, past included. Only j > i is a leak.",
        future=lambda size: size,
    ),
    Fault(
        "first output only",
        "It tests the first output only; another one may look ahead.",
        future=lambda size: size.triu(diagonal=1)[:1],
    ),
    Fault(
        "last word only",
        "It changes the last word only; an output may look at a later word that is not the last.",
        future=lambda size: size.triu(diagonal=1)[:, -1:],
    ),
    Fault(
        "last word changed by a step",
        "It changes the last word only, and compares two outputs. An output may look at a later word that is not the "
        "last, and may depend on one at another x where it does not here. Take the derivative for every word.",
        at=lambda x: x + 1 / 32,
        future=lambda size: size.triu(diagonal=1)[:, -1:],
    ),
    Fault(
        "last word changed, all its features alike",
        "It changes the last word only, and all its features by the same step. An output may look at a later word that "
        "is not the last, and what two features do to it may cancel. Take the derivative for each feature of every "
        "word.",
        size=lambda jacobian: jacobian.sum(dim=3).abs().sum(dim=1),
        future=lambda size: size.triu(diagonal=1)[:, -1:],
    ),
    Fault(
        "next word only",
        "It looks one word ahead only; an output may see one that comes later still: triu(diagonal=1), all of it.",
        future=lambda size: size.diagonal(1),
    ),
    Fault(
        "first feature of the output",
        "It tests the first feature of each output only; another one may look ahead.",
        size=lambda jacobian: jacobian[:, 0].abs().sum(dim=-1),
    ),
    Fault(
        "first feature of the word",
        "It changes the first feature of each word only; another one may leak.",
        size=lambda jacobian: jacobian[..., 0].abs().sum(dim=1),
    ),
    Fault(
        "same feature only",
        "It tests how a feature depends on the same feature of a later word. Another feature of that word can leak.",
        size=lambda jacobian: jacobian[:, 0, :, 0].abs(),
    ),
    Fault(
        "signed sum",
        "It adds derivatives with their signs, or changes all features of a word alike, and changes of opposite signs "
        "can cancel. Take absolute values or squares first, or change one feature at a time.",
        size=lambda jacobian: jacobian.sum(dim=(1, 3)).abs(),
    ),
    Fault(
        "sum of an output's features",
        "It takes the derivatives of the sum of an output's features. What a later word adds to one feature and takes "
        "from another cancels in that sum. Differentiate each feature by itself.",
        size=lambda jacobian: jacobian.sum(dim=1).abs().sum(dim=-1),
    ),
    Fault(
        "sum over a word's features",
        "It adds up how an output changes with each feature of a word, as where all of them are changed alike, and "
        "changes of opposite signs cancel. Take absolute values first, or change one feature at a time.",
        size=lambda jacobian: jacobian.sum(dim=3).abs().sum(dim=1),
    ),
    Fault(
        "positive derivatives only",
        "It counts positive derivatives only. An output may fall when a later word grows: take absolute values.",
        size=lambda jacobian: jacobian.relu().sum(dim=(1, 3)),
    ),
    Fault(
        "answer turned round",
        "The answer is the opposite: True has to mean that the future leaks.",
        leaks=lambda future: not bool(future.any()),
    ),
    Fault(
        "all of them",
        "It reports a leak only if every later word leaks into every output; one is enough: any, not all.",
        leaks=lambda future: bool(future[torch.ones_like(future).triu(diagonal=1).bool()].all()),
    ),
)

EXERCISES = (
    Exercise(
        masked_weights,
        notebook="02",
        section=_MASKS,
        level="easy",
        minutes=4,
        hints=(
            "A hidden key has to have weight 0, however low the other scores are. Which number in its place does that?",
            "`scores.masked_fill(where, number)` writes where its mask is True. Ours is True at what may be *seen*.",
        ),
        large=("scores",),
        times=20_000,  # in the ten thousands, so that a finite number in place of −∞ is none of the lowest
        cases=_masked_weights_cases,
        faults=(*_MASK_FAULTS, _SCORES_OF_0_HIDDEN, _FINITE_NUMBER, *_SOFTMAX_FAULTS),
    ),
    Exercise(
        scaled_dot_product,
        notebook="02",
        section="The formula",
        level="middle",
        minutes=8,
        hints=(
            "Three lines: scores, weights, output. The head dimension is `query.shape[-1]`.",
            "Scale before the softmax, and hide before the softmax. Afterwards it is too late for both.",
        ),
        large=("query",),
        times=20_000,
        cases=_scaled_dot_product_cases,
        faults=_SCALED_DOT_PRODUCT_FAULTS,
    ),
    Exercise(
        AttentionHead,
        notebook="02",
        section="One head as a class",
        level="middle",
        minutes=10,
        hints=(
            "`__init__` makes three layers, nn.Linear(embed_dim, head_dim) each. `forward` has the lines of exercise 2 "
            "with a batch in front.",
            "`.T` turns all axes round; with a batch it has to be `k.transpose(-2, -1)`. masked_softmax(scores, "
            "attn_mask) takes a mask or None.",
        ),
        cases=_attention_head_cases,
        faults=_ATTENTION_HEAD_FAULTS,
        call=_run_head,
        returns=("output", "weights"),
    ),
    Exercise(
        future_leaks,
        notebook="02",
        section=_LEAKS,
        level="hard",
        minutes=12,
        hints=(
            "`torch.autograd.functional.jacobian(attention, x)` has shape (L, D, L, E). Entry (i, j) of what "
            "you need has i from the first L and j from the second.",
            "Derivatives have signs. Sum them as they are, and +1 and −1 make a leak invisible.",
        ),
        cases=_future_leaks_cases,
        faults=_FUTURE_LEAKS_FAULTS,
        differentiable=False,
    ),
)
