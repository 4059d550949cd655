"""Exercises of notebook 10: energy wells.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_WELLS = "Four wells"
_STATED = "The stated score"
_MOAT = "The moat"
_FIELD = "The field form"
_FLAT = "How far apart can weights be?"
_CLASS = "The class"
_LEAK = "Optional: the softmax-exponential well under a mask"


def lorentzian_moat(
    weight: Tensor,
    alpha: Tensor,
    *,
    radius: Callable[..., Tensor] = lambda weight, alpha: alpha**-0.5,
    energy: Callable[..., Tensor] = lambda distance, weight, alpha: weight / (1 + alpha * distance**2),
    score: Callable[..., Tensor] = lambda distance, energy: -distance * energy,
    finish: Callable[..., Tensor] = torch.exp,
) -> tuple[Tensor, Tensor]:
    """Where the weight exp(−d · E) of a Lorentzian is lowest, and how low."""
    distance = radius(weight, alpha)
    return distance, finish(score(distance, energy(distance, weight, alpha)))


def _any_two_numbers(answer: Callable[..., Any], weight: Tensor, alpha: Tensor) -> Any:
    """Python's numbers are as good as tensors."""
    result = answer(weight, alpha)
    if not isinstance(result, list | tuple):
        return result
    return [torch.as_tensor(x).double() if isinstance(x, float | int | Tensor) else x for x in result]


def _lorentzian_moat_cases(draw: Draw) -> Iterator[Case]:
    for name, wide in (("a narrow well", 1), ("a wide well", 4), ("a well as wide as a room", 4000)):
        weight, alpha = (start + draw.integers(0, 9).to(draw.dtype) / 10 for start in (2.3, 1.3))
        yield Case(name, {"weight": weight, "alpha": alpha / wide})
    weight, alpha = (draw.integers(low, low + 3).to(draw.dtype) / 100 for low in (45, 1))
    yield Case("a wide well of low energy", {"weight": weight, "alpha": alpha})


_LORENTZIAN_MOAT_FAULTS = (
    Fault(
        "the Gaussian's radius",
        "The radius is 1/√(2α), the Gaussian's. Differentiate d · w/(1 + αd²) instead.",
        radius=lambda weight, alpha: (2 * alpha) ** -0.5,
    ),
    Fault(
        "root missing",
        "The radius is 1/α. The derivative of d · E is 0 where αd² = 1, so there is a root to take.",
        radius=lambda weight, alpha: 1 / alpha,
    ),
    Fault(
        "upside down",
        "The radius is √α, so that a sharper well has a wider moat. It is the other way round: αd² = 1.",
        radius=lambda weight, alpha: alpha**0.5,
    ),
    Fault(
        "the Gaussian's, upside down",
        "The radius is √(2α): it grows with α, and its 2 belongs to the Gaussian. Here αd² = 1.",
        radius=lambda weight, alpha: (2 * alpha) ** 0.5,
    ),
    Fault(
        "half of one over α",
        "The radius is 1/(2α). Set the derivative of d · w/(1 + αd²) to 0 and solve for d², then take the root.",
        radius=lambda weight, alpha: 1 / (2 * alpha),
    ),
    Fault(
        "weight in the radius",
        "The radius is √(w/α). A factor in front of d · E makes the moat deeper, and moves it nowhere.",
        radius=lambda weight, alpha: (weight / alpha).sqrt(),
    ),
    Fault(
        "divided by the root",
        "The radius is w/√α. A factor in front of d · E makes the moat deeper, and moves it nowhere: leave w out.",
        radius=lambda weight, alpha: weight * alpha**-0.5,
    ),
    Fault(
        "where the field is steepest",
        "The radius is 1/√(3α), where the field itself is steepest. The moat is where d · E is largest.",
        radius=lambda weight, alpha: (3 * alpha) ** -0.5,
    ),
    Fault(
        "score in place of the weight",
        "The second number is the score −d · E; the softmax makes exp(−d · E) of it.",
        see=_STATED,
        finish=lambda score: score,
    ),
    Fault(
        "exponent without its sign",
        "The second number is d · E. The score is −d · E, and the softmax makes exp(−d · E) of it.",
        see=_STATED,
        score=lambda distance, energy: distance * energy,
        finish=lambda score: score,
    ),
    Fault(
        "no minus",
        "The minus of exp(−d · E) is missing in the second number.",
        see=_STATED,
        score=lambda distance, energy: distance * energy,
    ),
    Fault(
        "energy in place of the weight",
        "The second number is the energy E itself. The weight there is exp(−d · E).",
        see=_STATED,
        score=lambda distance, energy: energy,
        finish=lambda score: score,
    ),
    Fault(
        "energy without its distance",
        "The second number is exp(−E); the stated score multiplies E by d.",
        see=_STATED,
        score=lambda distance, energy: -energy,
    ),
    Fault(
        "distance squared outside",
        "The second number is exp(−d² · E); the square belongs inside E, and d stands outside.",
        see=_STATED,
        score=lambda distance, energy: -(distance**2) * energy,
    ),
    Fault(
        "weight forgotten",
        "The second number takes w for 1: an important token has a deeper moat.",
        see=_WELLS,
        energy=lambda distance, weight, alpha: 1 / (1 + alpha * distance**2),
    ),
    Fault(
        "distance not squared",
        "In the second number E is w/(1 + αd); the distance in it is squared.",
        see=_WELLS,
        energy=lambda distance, weight, alpha: weight / (1 + alpha * distance),
    ),
    Fault(
        "α inside the square",
        "In the second number E is w/(1 + (αd)²); only the distance is squared.",
        see=_WELLS,
        energy=lambda distance, weight, alpha: weight / (1 + (alpha * distance) ** 2),
    ),
    Fault(
        "share beside a key at 0",
        "It is the share of the weight beside a key at distance 0. What is wanted is the weight before it is "
        "normalised: exp(−d · E).",
        finish=torch.sigmoid,
    ),
)


def far_field(
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    alpha: Tensor,
    *,
    measure: Callable[..., Tensor] = lambda query, key: (query[:, :, None] - key[:, None]).square().sum(dim=-1),
    align: Callable[..., Tensor] = lambda alpha: alpha[:, None, None],
    exponent: Callable[..., Tensor] = lambda squared, alpha: -alpha * squared,
    importance: Callable[..., Tensor] = lambda log_energy, weight: log_energy + weight.log(),
    finish: Callable[..., Tensor] = lambda log_energy, squared: log_energy.softmax(dim=-1),
) -> Tensor:
    """Weights in proportion to w_j exp(−α d²), also where that rounds to 0 for every key: (H, L, S)."""
    squared = measure(query, key)  # (H, L, S)
    return finish(importance(exponent(squared, align(alpha)), weight), squared)


def _far_field_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, query: Tensor, key: Tensor, alpha: Tensor) -> Case:
        weight = 0.6 * (draw.permutation(key.shape[1]).to(key) + 1)
        return Case(name, {"query": query, "key": key, "weight": weight, "alpha": alpha})

    query, key = draw.normal(1, 2, 2), draw.normal(1, 2, 2)
    yield case("1 head, 2 queries, 2 keys of size 2", query, key, (draw.integers(3, 8, 1) / 10).to(query))
    query, key = draw.normal(3, 3, 4) / 2, draw.normal(3, 3, 4) / 2
    yield case("3 heads, 3 queries, 3 keys of size 4", query, key, 0.2 * (draw.permutation(3).to(query) + 1))
    # Quarters, whose squares and sums are exact: the comparison is free of rounding. With 7 the energies round to 0
    # in float32, with 16 in float64, too.
    for far in (7, 16):
        query, key = ((draw.integers(-4, 5, 1, n, 2) / 4).to(query) for n in (2, 3))
        key[..., 0] = query[0, 0, 0] + far
        query[0, 1, 0] = key[0, 0, 0]
        name = f"2 queries, the first of them {far} or more away from all 3 keys, α = 3"
        yield case(name, query, key, query.new_full((1,), 3.0))
    # The last, whose gradients are compared: far away they are differences of large numbers.
    query, key = draw.normal(2, 3, 3) / 2, draw.normal(2, 5, 3) / 2
    yield case("2 heads, 3 queries, 5 keys of size 3", query, key, 0.2 * (draw.permutation(2).to(query) + 1))


_SHARPNESS_ALONG_AN_AXIS = (
    Fault(
        "along the keys",
        "Broadcasting begins at the last axis, so the sharpness lands on the keys. Shape (H, 1, 1) meets the heads.",
        see=_CLASS,
        align=lambda alpha: alpha,
    ),
    Fault(
        "along the queries",
        "The sharpness runs along the queries, as that of shape (H, 1) does. Shape (H, 1, 1) meets the heads.",
        see=_CLASS,
        align=lambda alpha: alpha[:, None],
    ),
)

_FAR_FIELD_FAULTS = (
    Fault(
        "importance after the softmax",
        "The importance multiplies the weights after the softmax, so the rows no longer sum to 1. It counts in the "
        "divisor, too: add its logarithm before the softmax, or divide by the new sum.",
        importance=lambda log_energy, weight: log_energy.softmax(dim=-1) * weight,
        finish=lambda weights, squared: weights,
    ),
    Fault(
        "energies that round to 0",
        "Near by it is right. Far away every energy rounds to 0, and 0/0, or the logarithm of 0, leaves NaN. "
        "The logarithm, log w − αd², is known without taking exp: softmax that. If you subtract a maximum first, it "
        "has to be that of each row.",
        finish=lambda log_energy, squared: log_energy.exp() / log_energy.exp().sum(dim=-1, keepdim=True),
    ),
    Fault(
        "energies in float64",
        "In float64, too, every energy rounds to 0, only further away, and 0/0 or the logarithm of 0 leaves NaN. "
        "Softmax the logarithms, log w − αd², instead, which need no more digits.",
        finish=lambda log_energy, squared: (
            log_energy.double().exp() / log_energy.double().exp().sum(dim=-1, keepdim=True)
        ).to(squared),
    ),
    Fault(
        "a little in the divisor",
        "Near by it is right. Far away every energy rounds to 0, and the small number in the divisor only makes all "
        "weights 0. Softmax the logarithms, log w − αd², instead.",
        finish=lambda log_energy, squared: log_energy.exp() / (log_energy.exp().sum(dim=-1, keepdim=True) + 1e-9),
    ),
    Fault(
        "energies held above 0",
        "Near by it is right. Far away every energy is held at the same small number, so that only the importance is "
        "left. Softmax the logarithms, log w − αd², instead, which need no floor.",
        exponent=lambda squared, alpha: ((-alpha * squared).exp() + 1e-12).log(),
    ),
    Fault(
        "uniform far away",
        "Near by it is right. Far away the energies of a row round to 0, and what is left in their place, such as a "
        "small number that is added, makes the weights equal. Softmax the logarithms, log w − αd², instead.",
        finish=lambda log_energy, squared: (log_energy.exp() + 1e-12).log().softmax(dim=-1),
    ),
    Fault(
        "softmax of energies",
        "The softmax is taken of the energies. They lie close together, and exp makes them more alike; softmax the "
        "logarithms, and exp gives the energies back.",
        see=_FLAT,
        finish=lambda log_energy, squared: log_energy.exp().softmax(dim=-1),
    ),
    Fault(
        "stated form",
        "This is the stated form, softmax(−d · E). The field form takes weights in proportion to E.",
        finish=lambda log_energy, squared: (-squared.sqrt() * log_energy.exp()).softmax(dim=-1),
    ),
    Fault(
        "over the queries",
        "The weights of a column sum to 1. It is each query, each row, that has a weight of 1 to share out: dim=-1.",
        finish=lambda log_energy, squared: log_energy.softmax(dim=-2),
    ),
    Fault(
        "over the heads",
        "The weights are shared out among the heads. Each row of each head has a weight of 1 for its keys: dim=-1.",
        finish=lambda log_energy, squared: log_energy.softmax(dim=0),
    ),
    Fault(
        "logarithm of the weights",
        "These are the logarithms of the weights, as log_softmax gives them.",
        finish=lambda log_energy, squared: log_energy.log_softmax(dim=-1),
    ),
    Fault(
        "not normalised",
        "These are the energies themselves. Weights are their shares: each row sums to 1.",
        finish=lambda log_energy, squared: log_energy.exp(),
    ),
    Fault(
        "logarithms",
        "These are the logarithms of the energies, the scores. The weights are their softmax.",
        finish=lambda log_energy, squared: log_energy,
    ),
    Fault(
        "distance not squared",
        "The exponent is −αd, the Laplace kernel. The Gaussian has −αd².",
        see=_WELLS,
        exponent=lambda squared, alpha: -alpha * squared.sqrt(),
    ),
    Fault(
        "α inside the square",
        "The exponent is −(αd)². Only the distance is squared: −αd².",
        see=_WELLS,
        exponent=lambda squared, alpha: -(alpha**2) * squared,
    ),
    Fault(
        "half of α",
        "The exponent is −αd²/2, as with a variance. This well has −αd².",
        see=_WELLS,
        exponent=lambda squared, alpha: -alpha * squared / 2,
    ),
    Fault(
        "divided by α",
        "The exponent is −d²/α, so that a larger α makes a wider well. α is a sharpness: −αd².",
        see=_WELLS,
        exponent=lambda squared, alpha: -squared / alpha,
    ),
    Fault(
        "α forgotten",
        "The exponent is −d²: α is missing.",
        see=_WELLS,
        exponent=lambda squared, alpha: -squared + 0 * alpha,
    ),
    Fault(
        "plus sign",
        "The exponent is +αd², so that the farthest key has the most. It is −αd².",
        see=_WELLS,
        exponent=lambda squared, alpha: alpha * squared,
    ),
    *_SHARPNESS_ALONG_AN_AXIS,
    Fault(
        "weights without effect",
        "The importance has no effect. It is missing, or it is w_i, which the softmax cancels: it is one number for a "
        "whole row. The key in the well's middle has it, w_j.",
        importance=lambda log_energy, weight: log_energy,
    ),
    Fault(
        "no logarithm of the weight",
        "The importance w is added to the logarithm of E. The logarithm of w · E is log w + log E.",
        importance=lambda log_energy, weight: log_energy + weight,
    ),
    Fault(
        "weight times the logarithm",
        "The importance w multiplies the logarithm of E, which makes it a sharpness. "
        "The logarithm of w · E is log w + log E.",
        importance=lambda log_energy, weight: log_energy * weight,
    ),
    Fault(
        "divided by the weight",
        "The importance w divides: log w is subtracted. An important key has the higher weight.",
        importance=lambda log_energy, weight: log_energy - weight.log(),
    ),
    Fault(
        "mean over the features",
        "The distance takes the mean over the features. It is the sum, so that d² = ‖q − k‖².",
        see=_STATED,
        measure=lambda query, key: (query[:, :, None] - key[:, None]).square().mean(dim=-1),
    ),
    Fault(
        "sum of absolute values",
        "The distance is the sum of |q − k| over the features. The squares are summed: d² = ‖q − k‖².",
        see=_STATED,
        measure=lambda query, key: (query[:, :, None] - key[:, None]).abs().sum(dim=-1) ** 2,
    ),
    Fault(
        "queries and keys exchanged",
        "Queries and keys are exchanged: row i has to hold query i against every key.",
        see=_STATED,
        measure=lambda query, key: (key[:, :, None] - query[:, None]).square().sum(dim=-1),
    ),
)


def fair_shares(
    distance: Tensor,
    alpha: Tensor,
    attn_mask: Tensor,
    *,
    align: Callable[..., Tensor] = lambda alpha: alpha[:, None, None],
    exponent: Callable[..., Tensor] = lambda distance, alpha: -alpha * distance,
    allowed: Callable[..., Tensor] = lambda mask: mask,
    share: Callable[..., Tensor] = lambda logs, allowed: logs.masked_fill(~allowed, -math.inf).softmax(dim=-1),
    score: Callable[..., Tensor] = lambda distance, energy, alpha: -distance * energy,
    finish: Callable[..., Tensor] = lambda scores, mask: scores,
) -> Tensor:
    """Stated scores of the softmax-exponential well, whose divisor sees what the query may see, (H, L, S)."""
    sharpness = align(alpha)
    energy = share(exponent(distance, sharpness), allowed(attn_mask))
    return finish(score(distance, energy, sharpness), attn_mask)


def _where_allowed(answer: Callable[..., Any], distance: Tensor, alpha: Tensor, attn_mask: Tensor) -> Any:
    """The scores of keys that may not be attended to do not count."""
    scores = answer(distance, alpha, attn_mask)
    if not isinstance(scores, Tensor) or scores.shape != distance.shape or not scores.is_floating_point():
        return scores
    return torch.where(attn_mask, scores, 0.0)


def _fair_shares_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, num_heads: int, mask: Tensor) -> Case:
        # No two alike: where several are the smallest, a minimum has no gradient.
        distance = (draw.permutation(num_heads * mask.numel()).view(num_heads, *mask.shape) + 2).to(draw.dtype) / 10
        alpha = 0.4 * (draw.permutation(num_heads).to(distance) + 2) - 0.1
        return Case(name, {"distance": distance, "alpha": alpha, "attn_mask": mask})

    i, j = torch.arange(5, device=draw.device)[:, None], torch.arange(5, device=draw.device)
    yield case("2 tokens, causal", 1, (j <= i)[:2, :2])
    yield case("3 heads, 3 tokens, the last of them padding", 3, (j < 2).expand(3, -1)[:, :3].clone())
    yield case("2 heads, 4 queries, 5 keys, any mask", 2, ((i + j + draw.integers(0, 3)) % 3 != 0)[:4])


_FAIR_SHARES_FAULTS = (
    Fault(
        "divisor over all keys",
        "The divisor runs over all keys. A query then learns from it what stands at keys that it may not see, and a "
        "mask on the result comes too late: fill with −∞ before the softmax.",
        allowed=torch.ones_like,
    ),
    Fault(
        "divisor over the queries",
        "The energies of a column sum to 1. They are shares of all that one query feels: dim=-1.",
        share=lambda logs, allowed: logs.masked_fill(~allowed, -math.inf).softmax(dim=-2),
    ),
    Fault(
        "divisor on the wrong axis",
        "The sums lose their axis, so that they meet the keys and not the queries: keep it, keepdim=True.",
        share=lambda logs, allowed: (logs.exp() * allowed) / (logs.exp() * allowed).sum(dim=-1),
    ),
    Fault(
        "one divisor for all",
        "All queries share one divisor. Each query has its own: the sum over its keys, keepdim=True.",
        share=lambda logs, allowed: (logs.exp() * allowed) / (logs.exp() * allowed).sum(dim=(-2, -1), keepdim=True),
    ),
    Fault(
        "no divisor",
        "The energy is exp(−αd) and nothing divides it. It is the share of that in the sum over the keys.",
        see=_WELLS,
        share=lambda logs, allowed: logs.exp(),
    ),
    Fault(
        "divided by the mean",
        "The divisor is the mean of exp(−αd) over the keys; it is their sum.",
        see=_WELLS,
        share=lambda logs, allowed: (
            logs.masked_fill(~allowed, -math.inf).softmax(dim=-1) * allowed.sum(dim=-1, keepdim=True)
        ),
    ),
    Fault(
        "hidden keys at distance 0",
        "Hidden keys are filled with 0, and exp(0) = 1 goes into the divisor. Fill the exponent with −∞.",
        share=lambda logs, allowed: logs.masked_fill(~allowed, 0.0).softmax(dim=-1),
    ),
    Fault(
        "mask inverted",
        "The divisor runs over the keys that may not be attended to. True means 'may attend'.",
        allowed=lambda mask: ~mask,
    ),
    Fault(
        "always causal",
        "The divisor is causal whatever the mask says. Padding, for example, needs another one: use attn_mask.",
        allowed=lambda mask: torch.ones_like(mask).tril(),
    ),
    Fault(
        "distance squared in the well",
        "The exponent is −αd², as in a Gaussian. This well has −αd.",
        see=_WELLS,
        exponent=lambda distance, alpha: -alpha * distance**2,
    ),
    Fault(
        "α forgotten",
        "The exponent is −d: α is missing.",
        see=_WELLS,
        exponent=lambda distance, alpha: -distance + 0 * alpha,
    ),
    Fault(
        "α taken for its logarithm",
        "The exponent is −e^α · d. The sharpness comes as α itself, not as its logarithm.",
        see=_CLASS,
        exponent=lambda distance, alpha: -alpha.exp() * distance,
    ),
    Fault(
        "divided by α",
        "The exponent is −d/α, so that a larger α makes a wider well. α is a sharpness: −αd.",
        see=_WELLS,
        exponent=lambda distance, alpha: -distance / alpha,
    ),
    Fault(
        "plus sign",
        "The exponent is +αd, so that the farthest key has the largest share. It is −αd.",
        see=_WELLS,
        exponent=lambda distance, alpha: alpha * distance,
    ),
    *_SHARPNESS_ALONG_AN_AXIS,
    Fault(
        "no minus",
        "The score is +d · E; the minus is missing.",
        see=_STATED,
        score=lambda distance, energy, alpha: distance * energy,
    ),
    Fault(
        "energy alone",
        "These are the energies, each key's share. The stated score is −d · E.",
        see=_STATED,
        score=lambda distance, energy, alpha: energy,
    ),
    Fault(
        "energy without its distance",
        "The score is −E. The stated score multiplies it by the distance: −d · E.",
        see=_STATED,
        score=lambda distance, energy, alpha: -energy,
    ),
    Fault(
        "field form",
        "The score is log E, that of the field form, where the divisor would not matter. The stated one is −d · E.",
        see=_FIELD,
        score=lambda distance, energy, alpha: energy.log(),
    ),
    Fault(
        "distance squared outside",
        "The score is −d² · E. One distance is enough: −d · E.",
        see=_STATED,
        score=lambda distance, energy, alpha: -(distance**2) * energy,
    ),
    Fault(
        "α outside",
        "Your score is −α · d · E, and −d · E is asked for. The sharpness α belongs in the exponent only.",
        see=_STATED,
        score=lambda distance, energy, alpha: -alpha * distance * energy,
    ),
    Fault(
        "exponential taken",
        "Your result is exp(−d · E). It should be the score, −d · E: the layer takes the softmax itself.",
        see=_STATED,
        finish=lambda scores, mask: scores.exp(),
    ),
    Fault(
        "softmax inside",
        "Your result has been through a softmax, so it holds weights. It should hold the scores: the layer takes the "
        "softmax itself.",
        see=_STATED,
        finish=lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(dim=-1),
    ),
)

EXERCISES = (
    Exercise(
        lorentzian_moat,
        notebook="10",
        section=_MOAT,
        level="easy",
        minutes=6,
        hints=(
            "As for the Gaussian in *The moat*: where is the derivative of $d/(1 + \\alpha d^2)$ zero? The "
            "factor $w$ moves nothing.",
            "The numerator of the derivative is $(1 + \\alpha d^2) - d \\cdot 2\\alpha d$. At that $d$, $1 + "
            "\\alpha d^2$ is a small whole number.",
        ),
        cases=_lorentzian_moat_cases,
        faults=_LORENTZIAN_MOAT_FAULTS,
        call=_any_two_numbers,
        returns=("radius", "weight there"),
        differentiable=False,
    ),
    Exercise(
        far_field,
        notebook="10",
        section=_FIELD,
        level="middle",
        minutes=10,
        hints=(
            "A softmax subtracts the largest score before it takes exp. What is the score whose exp is "
            "$w_j\\,e^{-\\alpha d^2}$?",
            "$\\log w_j - \\alpha_h d^2$, written down without ever taking exp. `alpha[:, None, None]` meets the "
            "heads.",
        ),
        cases=_far_field_cases,
        faults=_FAR_FIELD_FAULTS,
    ),
    Exercise(
        fair_shares,
        notebook="10",
        section=_LEAK,
        level="hard",
        minutes=12,
        hints=(
            "Only the divisor is in question. Which keys may go into a query's sum, and when is it too late to "
            "hide one?",
            "What has to stand in the exponent of a hidden key, so that its exp is 0?",
        ),
        large=("distance",),
        cases=_fair_shares_cases,
        faults=_FAIR_SHARES_FAULTS,
        call=_where_allowed,
        returns=("scores",),
    ),
)
