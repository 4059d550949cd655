"""Exercises of notebook 15: fast attention.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_FLEX = "FlexAttention"
_ONE_PASS = "A softmax in one pass"
_BACK = "The backward pass"

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def two_slopes_mod(
    left: Tensor,
    right: Tensor,
    *,
    sides: Callable[..., tuple[Tensor, Tensor]] = lambda left, right: (left, right),
    own: Callable[..., Tensor] = lambda slopes, b, h: slopes[h],
    steps: Callable[..., Tensor] = lambda far, near: (far - near).clamp(min=0),
    join: Callable[..., Tensor] = lambda score, penalty: score - penalty,
) -> ScoreMod:
    """A score_mod with a slope for the keys on either side."""
    left, right = sides(left, right)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return join(score, own(left, b, h) * steps(i, j) + own(right, b, h) * steps(j, i))

    return score_mod


def _modified(answer: Callable[..., ScoreMod], scores: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The scores after the answer's score_mod, with all indices at once instead of one after the other."""
    indices = torch.meshgrid(*(torch.arange(n, device=scores.device) for n in scores.shape), indexing="ij")
    return answer(left, right)(scores, *indices)


def _two_slopes_mod_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, *shape: int) -> Case:
        heads = shape[1]
        slopes = (draw.permutation(4 * heads)[: 2 * heads] + 2).to(draw.dtype) / 10  # all different
        return Case(name, {"scores": draw.normal(*shape), "left": slopes[:heads], "right": slopes[heads:]})

    yield case("1 head, 3 tokens", 1, 1, 3, 3)
    yield case("2 texts, 3 heads, 5 queries, 7 keys", 2, 3, 5, 7)


_TWO_SLOPES_MOD_FAULTS = (
    Fault(
        "tokens between",
        "It counts the tokens that lie between query and key, so that a neighbour pays nothing. A neighbour is one "
        "step away: i − j, without − 1.",
        steps=lambda far, near: (far - near - 1).clamp(min=0),
    ),
    Fault(
        "sides exchanged",
        "The slopes are exchanged. A key is on the left if it comes before the query, j < i.",
        sides=lambda left, right: (right, left),
    ),
    Fault(
        "one slope",
        "The left slope is taken on both sides. Keys after the query, j > i, pay the right one.",
        sides=lambda left, right: (left, left),
    ),
    Fault(
        "right side forgotten",
        "Keys after the query, j > i, pay nothing. They pay the right slope for each step.",
        sides=lambda left, right: (left, torch.zeros_like(right)),
    ),
    Fault(
        "left side forgotten",
        "Keys before the query, j < i, pay nothing. They pay the left slope for each step.",
        sides=lambda left, right: (torch.zeros_like(left), right),
    ),
    Fault(
        "both slopes on both sides",
        "Every key pays both slopes. A key lies on one side of the query and pays that side's alone.",
        sides=lambda left, right: (left + right, left + right),
    ),
    Fault(
        "distance with its sign",
        "On each side, the steps of the other side count below 0 and reduce the penalty. Cut them off at 0: "
        "clamp(min=0).",
        steps=lambda far, near: far - near,
    ),
    Fault(
        "no absolute value",
        "Keys after the query, j > i, gain where they should pay: i − j is negative there. The penalty is the slope "
        "times |i − j|.",
        sides=lambda left, right: (left, -right),
    ),
    Fault(
        "side without distance",
        "Every key of a side pays the same. The penalty grows with each step between query and key.",
        steps=lambda far, near: (far > near).float(),
    ),
    Fault(
        "distance squared",
        "The steps are squared. The penalty is the slope times the steps.",
        steps=lambda far, near: (far - near).clamp(min=0).square(),
    ),
    Fault(
        "a reward",
        "The penalty is added, so that far tokens gain. It is subtracted from the score.",
        join=lambda score, penalty: score + penalty,
    ),
    Fault(
        "score forgotten",
        "It returns the penalty alone. A score_mod is given a score and returns the score that takes its place.",
        join=lambda score, penalty: -penalty,
    ),
    Fault(
        "a factor",
        "Your result is the score times e^(−penalty). It should be the score minus the penalty: the softmax makes "
        "that factor of it.",
        join=lambda score, penalty: score * (-penalty).exp(),
    ),
    Fault(
        "first head for all",
        "All heads pay the slopes of head 0. Each has its own: left[h], right[h].",
        own=lambda slopes, b, h: slopes[0],
    ),
    Fault(
        "batch for head",
        "The slope is chosen by b, the index in the batch. The head is h.",
        own=lambda slopes, b, h: slopes[b],
    ),
)


def _shares(first_log: Tensor, second_log: Tensor) -> tuple[Tensor, Tensor]:
    """How much of all the weight lies on the first half of the keys, and on the second."""
    first, second = torch.stack([first_log, second_log]).softmax(dim=0)
    return first, second


def _from_the_largest(first_log: Tensor, second_log: Tensor) -> tuple[Tensor, Tensor]:
    largest = torch.maximum(first_log, second_log)
    return (first_log - largest).exp(), (second_log - largest).exp()


def _from_one_largest(first_log: Tensor, second_log: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    largest = torch.maximum(first_log, second_log).max()
    first, second = (first_log - largest).exp(), (second_log - largest).exp()
    return first / (first + second), second / (first + second), (first + second).log() + largest


def _relative(first_log: Tensor, second_log: Tensor) -> tuple[Tensor, Tensor]:
    """The shares, if the second half is always measured against the first."""
    ratio = (second_log - first_log).exp()
    return 1 / (1 + ratio), ratio / (1 + ratio)


def _relative_total(first_log: Tensor, second_log: Tensor) -> Tensor:
    return first_log + (1 + (second_log - first_log).exp()).log()


def merge_halves(
    first: Tensor,
    first_log: Tensor,
    second: Tensor,
    second_log: Tensor,
    *,
    shares: Callable[..., tuple[Tensor, Tensor]] = _shares,
    total: Callable[..., Tensor] = torch.logaddexp,
) -> tuple[Tensor, Tensor]:
    """Output (L, D) over both halves of the keys, and the logarithm (L,) of their summed weights."""
    a, b = shares(first_log, second_log)
    return a[:, None] * first + b[:, None] * second, total(first_log, second_log)


def _merge_halves_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, L: int, D: int, size: float = 0.0, apart: float = 0.0) -> Case:
        logs = 0.3 * (draw.permutation(4 * L)[: 2 * L] + 1).to(draw.dtype)  # all different
        signs = torch.tensor([1.0, -1.0, 0.0], device=draw.device, dtype=draw.dtype)[:L]
        logs = logs + torch.cat([(size + apart) * signs, (size - apart) * signs])
        half = {"first": draw.normal(L, D), "first_log": logs[:L]}
        return Case(name, half | {"second": draw.normal(L, D), "second_log": logs[L:]})

    yield case("1 query, 2 features", 1, 2)
    yield case("3 queries, 5 features", 3, 5)
    yield case("scores of about 800, -800 and 0", 3, 2, 800.0)
    yield case("one half far above the other", 2, 2, apart=800.0)


_OVERFLOWS = (
    "Exponentials are taken of the logarithms as they are, for both results: large ones overflow, small ones leave 0/0 "
    "and log 0. Subtract the larger one first, as torch.logaddexp does."
)
_FROM_THE_FIRST = (
    "Where the second half lies far above the first, it is the first half's logarithm that is subtracted, and the "
    "exponential overflows: subtract the larger of the two, row by row."
)
_FROM_THE_SECOND = (
    "Where the first half lies far above the second, it is the second half's logarithm that is subtracted, and the "
    "exponential overflows: subtract the larger of the two, row by row."
)
_MERGE_HALVES_FAULTS = (
    Fault(
        "plain mean",
        "The two outputs are averaged as if both halves held the same weight. Each counts by its share of all the "
        "weight, which its logarithm gives.",
        shares=lambda a, b: (torch.full_like(a, 0.5), torch.full_like(b, 0.5)),
    ),
    Fault(
        "added up",
        "The two outputs are added. Each is a weighted mean already; means are combined by a mean, not by a sum.",
        shares=lambda a, b: (torch.ones_like(a), torch.ones_like(b)),
    ),
    Fault(
        "logarithms for weights",
        "The outputs are weighted by the logarithms. The weight of a half is e to the power of its logarithm.",
        shares=lambda a, b: (a / (a + b), b / (a + b)),
    ),
    Fault(
        "halves exchanged",
        "Each half is given the share of the other.",
        shares=lambda a, b: _shares(b, a),
    ),
    Fault(
        "not divided",
        "Both halves are measured against the larger one, but the sum is not divided by their summed weight.",
        shares=_from_the_largest,
    ),
    Fault(
        "weights not divided",
        "The outputs are weighted and added, but the sum is not divided by the summed weight.",
        shares=lambda a, b: (a.exp(), b.exp()),
    ),
    Fault(
        "the heavier half alone",
        "It keeps the output of the half that holds more weight. Both halves count, each by its share.",
        shares=lambda a, b: ((a > b).to(a.dtype), (a <= b).to(a.dtype)),
    ),
    Fault(
        "overflow in the output",
        "For the output, exponentials are taken of the logarithms as they are: large ones overflow, small ones leave "
        "0/0. Subtract the larger first.",
        reason=_OVERFLOWS,
        shares=lambda a, b: (a.exp() / (a.exp() + b.exp()), b.exp() / (a.exp() + b.exp())),
    ),
    Fault(
        "overflow in the logarithm",
        "For the logarithm, the exponentials are added as they are, which overflows. torch.logaddexp subtracts the "
        "larger first.",
        reason=_OVERFLOWS,
        total=lambda a, b: (a.exp() + b.exp()).log(),
    ),
    Fault(
        "output measured against the first half",
        "For the output, the first half's logarithm is always subtracted. Where the second one lies far above, the "
        "exponential overflows: subtract the larger of the two, row by row.",
        reason=_FROM_THE_FIRST,
        shares=_relative,
    ),
    Fault(
        "logarithm measured against the first half",
        "For the logarithm, that of the first half is always subtracted. Where the second one lies far above, the "
        "exponential overflows: torch.logaddexp subtracts the larger of the two.",
        reason=_FROM_THE_FIRST,
        total=_relative_total,
    ),
    Fault(
        "output measured against the second half",
        "For the output, the second half's logarithm is always subtracted. Where the first one lies far above, the "
        "exponential overflows: subtract the larger of the two, row by row.",
        reason=_FROM_THE_SECOND,
        shares=lambda a, b: _relative(b, a)[::-1],
    ),
    Fault(
        "logarithm measured against the second half",
        "For the logarithm, that of the second half is always subtracted. Where the first one lies far above, the "
        "exponential overflows: torch.logaddexp subtracts the larger of the two.",
        reason=_FROM_THE_SECOND,
        total=lambda a, b: _relative_total(b, a),
    ),
    Fault(
        "one largest for all",
        "One largest logarithm is subtracted for all queries, so that those far below it are left with 0/0. Each query "
        "has its own.",
        shares=lambda a, b: _from_one_largest(a, b)[:2],
        total=lambda a, b: _from_one_largest(a, b)[2],
    ),
    Fault(
        "largest not added back",
        "The larger logarithm was subtracted before the exponentials, and is missing in the logarithm that is "
        "returned: add it again.",
        total=lambda a, b: torch.logaddexp(a, b) - torch.maximum(a, b),
    ),
    Fault(
        "logarithms added",
        "The logarithms are added, which multiplies the weights. The weights are to be added: torch.logaddexp.",
        total=lambda a, b: a + b,
    ),
    Fault(
        "mean of the logarithms",
        "The second result is the weighted mean of the two logarithms, as the output is that of the two outputs. "
        "The weights themselves are to be added: torch.logaddexp.",
        total=lambda a, b: _shares(a, b)[0] * a + _shares(a, b)[1] * b,
    ),
    Fault(
        "the larger one",
        "The second result is the larger of the two logarithms. Both halves hold weight: torch.logaddexp.",
        total=torch.maximum,
    ),
    Fault(
        "mean of the weights",
        "The second result is the logarithm of the mean of the two weights. The next half needs their sum.",
        total=lambda a, b: torch.logaddexp(a, b) - math.log(2),
    ),
    Fault(
        "no logarithm",
        "The second result is the summed weight itself. Its logarithm is wanted, which cannot overflow.",
        total=lambda a, b: a.exp() + b.exp(),
    ),
)


def gradients_by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    log_total: Tensor,
    gradient: Tensor,
    *,
    scaled: Callable[..., Tensor] = lambda scores, scale: scale * scores,
    again: Callable[..., Tensor] = lambda scores, log_total: (scores - log_total[:, None]).exp(),
    row: Callable[..., Tensor] = lambda gradient, output, weights, to_weights: (gradient * output).sum(dim=-1),
    softmax: Callable[..., Tensor] = lambda weights, to_weights, row: weights * (to_weights - row[:, None]),
    to_value: Callable[..., Tensor] = lambda weights, to_scores, gradient: weights.T @ gradient,
    to_query: Callable[..., Tensor] = lambda to_scores, key, scale: scale * to_scores @ key,
    to_key: Callable[..., Tensor] = lambda to_scores, query, scale: scale * to_scores.T @ query,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query (L, D), key (S, D) and value (S, D); the weights are computed again."""
    scale = query.shape[-1] ** -0.5
    weights = again(scaled(query @ key.T, scale), log_total)  # (L, S)
    to_weights = gradient @ value.T  # (L, S)
    to_scores = softmax(weights, to_weights, row(gradient, output, weights, to_weights))
    return to_query(to_scores, key, scale), to_key(to_scores, query, scale), to_value(weights, to_scores, gradient)


def _gradients_by_hand_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, L: int, S: int, D: int, sized: Callable[[Tensor], Tensor] = lambda x: x) -> Case:
        query, key, value = sized(draw.normal(L, D)), sized(draw.normal(S, D)), draw.normal(S, D)
        scores = query @ key.T / math.sqrt(D)
        inputs: dict[str, Any] = {"query": query, "key": key, "value": value, "output": scores.softmax(dim=-1) @ value}
        return Case(name, inputs | {"log_total": scores.logsumexp(dim=-1), "gradient": draw.normal(L, D)})

    yield case("1 query, 2 keys, 2 features", 1, 2, 2)
    yield case("2 queries, 3 keys, 2 features", 2, 3, 2)
    yield case("5 queries, 7 keys, 4 features", 5, 7, 4)
    # Whole numbers, whose scores have no rounding: all are above 200, and a float32 has no exponential of them.
    yield case("2 queries, 3 keys, 4 features, large scores", 2, 3, 4, lambda x: 10 + (20 * x.abs()).round())


_WITHOUT_SCALE = (
    "The gradients of query and key are too large by a factor of √D: the scores are the product over √D, so both "
    "are divided by √D."
)
_GRADIENTS_BY_HAND_FAULTS = (
    Fault(
        "not weights",
        "The exponentials of the scores are not weights yet: they do not sum to 1. Subtract the kept logarithm from "
        "the scores first.",
        again=lambda scores, log_total: scores.exp(),
    ),
    Fault(
        "exponentials divided",
        "It divides the exponential of a score by that of the kept logarithm. Where scores are large both are "
        "infinite. Subtract the logarithm from the scores first, and take one exponential.",
        again=lambda scores, log_total: scores.exp() / log_total.exp()[:, None],
    ),
    Fault(
        "logarithm subtracted too late",
        "The kept logarithm is subtracted from the exponentials. Subtract it from the scores, before the exponential: "
        "that divides.",
        again=lambda scores, log_total: scores.exp() - log_total[:, None],
    ),
    Fault(
        "weights without √D",
        "The weights are not those of the forward pass: there the scores were divided by √D.",
        scaled=lambda scores, scale: scores,
    ),
    Fault(
        "row term missing",
        "The gradient of a score is its weight times the gradient of its weight. That leaves out that the weights of a "
        "row sum to 1: what one gains the others lose.",
        row=lambda gradient, output, weights, to_weights: torch.zeros_like(output[:, 0]),
    ),
    Fault(
        "row term added",
        "The row's term is added. It is subtracted: a row's gradients of the scores sum to 0.",
        softmax=lambda weights, to_weights, row: weights * (to_weights + row[:, None]),
    ),
    Fault(
        "row term unweighted",
        "The row's term is subtracted after the weight has been multiplied in. It belongs inside the parentheses.",
        softmax=lambda weights, to_weights, row: weights * to_weights - row[:, None],
    ),
    Fault(
        "row term over the queries",
        "The weighted sum of the weights' gradients runs over the queries. Each query has a row of weights of its own: "
        "sum over its keys.",
        softmax=lambda weights, to_weights, row: weights * (to_weights - (weights * to_weights).sum(dim=0)),
    ),
    Fault(
        "plain mean of the row",
        "The plain mean over the keys is subtracted. The row's term is the mean under the weights, gradient · output.",
        row=lambda gradient, output, weights, to_weights: to_weights.mean(dim=-1),
    ),
    Fault(
        "plain sum of the row",
        "The plain sum over the keys is subtracted. The row's term is the mean under the weights, gradient · output.",
        row=lambda gradient, output, weights, to_weights: to_weights.sum(dim=-1),
    ),
    Fault(
        "mean for sum",
        "The row's term is the mean of gradient times output. It is the dot product, a sum over the features.",
        row=lambda gradient, output, weights, to_weights: (gradient * output).mean(dim=-1),
    ),
    Fault(
        "row term over all rows",
        "Gradient times output is summed over all queries, into one number. Each row of weights has its own: "
        "sum over the features alone, dim=-1.",
        row=lambda gradient, output, weights, to_weights: (gradient * output).sum().expand(len(output)),
    ),
    Fault(
        "weight forgotten",
        "The weight is missing before the parentheses: a token that nobody looks at has no gradient.",
        softmax=lambda weights, to_weights, row: to_weights - row[:, None],
    ),
    Fault(
        "each score alone",
        "It takes w(1 − w) for the softmax's derivative, as if it were a sigmoid. A score also moves the other weights "
        "of its row.",
        softmax=lambda weights, to_weights, row: weights * (1 - weights) * to_weights,
    ),
    Fault(
        "query without √D",
        "The gradient of the query is too large by a factor of √D. The scores are the product over √D, so it has to be "
        "divided by √D as well.",
        reason=_WITHOUT_SCALE,
        to_query=lambda to_scores, key, scale: to_scores @ key,
    ),
    Fault(
        "key without √D",
        "The gradient of the key is too large by a factor of √D. The scores are the product over √D, so it has to be "
        "divided by √D as well.",
        reason=_WITHOUT_SCALE,
        to_key=lambda to_scores, query, scale: to_scores.T @ query,
    ),
    Fault(
        "scaled twice",
        "The gradients of query and key are divided by √D twice. Once is right.",
        to_query=lambda to_scores, key, scale: scale**2 * to_scores @ key,
        to_key=lambda to_scores, query, scale: scale**2 * to_scores.T @ query,
    ),
    Fault(
        "value from the scores' gradient",
        "The gradient of the value is made of the scores' gradients. Values are averaged with the weights, so it is "
        "the weights, transposed, times the gradient.",
        to_value=lambda weights, to_scores, gradient: to_scores.T @ gradient,
    ),
)

EXERCISES = (
    Exercise(
        two_slopes_mod,
        notebook="15",
        section=_FLEX,
        level="easy",
        minutes=5,
        hints=(
            "A key before the query lies `i - j` steps to its left. For a key after it, `i - j` is negative; how many "
            "steps to the left should be counted then?",
            "`(i - j).clamp(min=0)` counts the steps to the left and is 0 on the right. Each side times its own"
            " head's slope.",
        ),
        cases=_two_slopes_mod_cases,
        faults=_TWO_SLOPES_MOD_FAULTS,
        call=_modified,
        returns=("scores",),
    ),
    Exercise(
        merge_halves,
        notebook="15",
        section=_ONE_PASS,
        level="middle",
        minutes=8,
        hints=(
            "All keys of a half act like a single key: its value is the half's output. What is its score?",
            "`torch.logaddexp` adds weights whose logarithms are given. A half's share is $e^{t_1 - t}$, which "
            "never overflows.",
        ),
        cases=_merge_halves_cases,
        faults=_MERGE_HALVES_FAULTS,
        returns=("output", "logarithm"),
    ),
    Exercise(
        gradients_by_hand,
        notebook="15",
        section=_BACK,
        level="hard",
        minutes=15,
        hints=(
            "Weights first: $w_{ij} = e^{s_{ij} - t_i}$. Then the gradient of the scores, by the formula of "
            "'The backward pass'. Then each of the three is one product of matrices.",
            "Values were averaged with the weights: `weights.T @ gradient`. Scores were $q k^\\top / \\sqrt D$: "
            "the scale stands in both gradients. Row term: `(gradient * output).sum(dim=-1)`.",
        ),
        cases=_gradients_by_hand_cases,
        faults=_GRADIENTS_BY_HAND_FAULTS,
        returns=("gradient of query", "gradient of key", "gradient of value"),
        differentiable=False,
    ),
)
