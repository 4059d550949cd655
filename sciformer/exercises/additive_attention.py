"""Exercises of notebook 09: additive attention.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, pair

_BAHDANAU = "Bahdanau's score"
_FORMULA = "The formula"
_BREAK = "Break it: without the tanh"
_MOVES = "The sum moves out of the tanh"
_PROOF = "The proof"
_CAUSAL = "With a causal mask"
_LOUD = "Optional: large and small weights"
_MEMORY = "Writing token by token"


def bahdanau(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weight: Tensor,
    *,
    hidden: Callable[..., Tensor] = lambda query, key, weight: (query[:, None] + key).tanh(),
    read: Callable[..., Tensor] = lambda hidden, weight: hidden @ weight,
    scale: Callable[..., Tensor] = lambda scores, D: scores,
    normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
    mix: Callable[..., Tensor] = lambda weights, key, value: weights @ value,
) -> Tensor:
    """softmax(w · tanh(q_i + k_j)) v, (L, D)."""
    scores = scale(read(hidden(query, key, weight), weight), query.shape[-1])
    return mix(normalize(scores), key, value)


def _bahdanau_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, length: int, key_length: int, head_dim: int) -> Case:
        query, key, value = (draw.normal(n, head_dim) for n in (length, key_length, key_length))
        # Never near 0, and none like another: a forgotten or misplaced weight has to show.
        weight = 1.5 + draw.permutation(head_dim).to(query) / 2
        weight = weight * (1 - 2 * (draw.permutation(head_dim).to(query) % 2))
        return Case(name, {"query": query, "key": key, "value": value, "weight": weight})

    yield case("2 tokens, size 3", 2, 2, 3)
    yield case("3 queries, 5 keys, size 4", 3, 5, 4)
    yield case("5 queries, 7 keys, size 3", 5, 7, 3)
    yield case("1 query, 3 keys, size 2", 1, 3, 2)
    yield case("3 queries, 1 key, size 2", 3, 1, 2)


_BAHDANAU_FAULTS = (
    Fault(
        "tanh before the sum",
        "The query does not count: all queries get the same weights. Is the tanh taken of query and key apart, or is "
        "the query left out? Add query and key first, then take the tanh: what is added to a whole row of scores "
        "cancels in the softmax.",
        see=_MOVES,
        hidden=lambda query, key, weight: query.tanh()[:, None] + key.tanh(),
    ),
    Fault(
        "no tanh",
        "The tanh is missing. Then w · (q + k) = w · q + w · k, and the softmax cancels the query.",
        see=_BREAK,
        hidden=lambda query, key, weight: query[:, None] + key,
    ),
    Fault(
        "tanh outside",
        "The tanh is taken of the score, tanh(w · (q + k)). It belongs on each of the D hidden features, before w.",
        see=_FORMULA,
        hidden=lambda query, key, weight: query[:, None] + key,
        read=lambda hidden, weight: (hidden @ weight).tanh(),
    ),
    Fault(
        "w inside the tanh",
        "The weight multiplies q + k inside the tanh. It weights the hidden features, after the tanh.",
        see=_FORMULA,
        hidden=lambda query, key, weight: ((query[:, None] + key) * weight).tanh(),
        read=lambda hidden, weight: hidden.sum(dim=-1),
    ),
    Fault(
        "sigmoid",
        "The hidden layer goes through a sigmoid. Bahdanau's is a tanh.",
        see=_FORMULA,
        hidden=lambda query, key, weight: (query[:, None] + key).sigmoid(),
    ),
    Fault(
        "relu",
        "The hidden layer goes through a ReLU. Bahdanau's is a tanh.",
        see=_FORMULA,
        hidden=lambda query, key, weight: (query[:, None] + key).relu(),
    ),
    Fault(
        "difference",
        "The key is subtracted from the query. The hidden layer sees their sum.",
        see=_FORMULA,
        hidden=lambda query, key, weight: (query[:, None] - key).tanh(),
    ),
    Fault(
        "product",
        "Query and key are multiplied inside the tanh. The score is additive: add them.",
        see=_FORMULA,
        hidden=lambda query, key, weight: (query[:, None] * key).tanh(),
    ),
    Fault(
        "dot product",
        "It takes the tanh of q · k. Here query and key are added, and w makes one score of the D features.",
        see=_FORMULA,
        hidden=lambda query, key, weight: (query @ key.T).tanh(),
        read=lambda hidden, weight: hidden,
    ),
    Fault(
        "w missing",
        "The hidden features are added up as they are: `weight` is missing.",
        see=_FORMULA,
        read=lambda hidden, weight: hidden.sum(dim=-1),
    ),
    Fault(
        "mean over D",
        "The mean of the D hidden features stands in for w · hidden: `weight` is missing.",
        see=_FORMULA,
        read=lambda hidden, weight: hidden.mean(dim=-1),
    ),
    Fault(
        "weighted mean",
        "The weighted hidden features are averaged. The score is their sum, w · hidden.",
        see=_FORMULA,
        read=lambda hidden, weight: (hidden * weight).mean(dim=-1),
    ),
    Fault(
        "divided by √D",
        "The scores are divided by √D. That is for dot products; here tanh keeps them small, and w sets their size.",
        see=_FORMULA,
        scale=lambda scores, D: scores / D**0.5,
    ),
    Fault(
        "softmax over the queries",
        "The softmax runs over the queries. Each query shares out one unit among the keys: dim=-1 of (L, S).",
        see=_FORMULA,
        normalize=lambda scores: scores.softmax(dim=-2),
    ),
    Fault(
        "keys in the rows",
        "The hidden layer is (S, L, D): keys stand in the rows, and queries in the columns. Row i belongs to query i.",
        see=_FORMULA,
        hidden=lambda query, key, weight: (key[:, None] + query).tanh(),
    ),
    Fault(
        "not divided",
        "The exponentials are not divided by their sum, so that the rows do not sum to 1.",
        normalize=lambda scores: scores.exp(),
    ),
    Fault(
        "weights transposed",
        "The weights are transposed before they meet the values: output i has to use row i.",
        mix=lambda weights, key, value: weights.T @ value,
    ),
    Fault(
        "no softmax",
        "The scores themselves are taken as weights. The softmax over the keys is missing.",
        normalize=lambda scores: scores,
    ),
    Fault(
        "keys mixed",
        "The weights average the keys. They should average the values.",
        mix=lambda weights, key, value: weights @ key,
    ),
    Fault(
        "no values",
        "It ends with the weights, (L, S). They still have to average the values.",
        mix=lambda weights, key, value: weights,
    ),
)


def causal_aft(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    weigh: Callable[..., Tensor] = lambda key, query: key.exp(),
    gather: Callable[..., Tensor] = lambda x: x.cumsum(dim=0),
    top: Callable[..., Tensor] = lambda weight, value, query: weight * value,
    below: Callable[..., Tensor] = lambda gather, weight, key: gather(weight),
    divide: Callable[..., Tensor] = lambda top, bottom, count: top / bottom,
    gate: Callable[..., Tensor] = lambda query: query.sigmoid(),
    join: Callable[..., Tensor] = lambda gate, mean: gate * mean,
) -> Tensor:
    """AFT-simple: a running mean for each feature, gated by the query, (L, D)."""
    weight = weigh(key, query)
    count = torch.arange(1, len(key) + 1, device=key.device).to(key)[:, None]
    return join(gate(query), divide(gather(top(weight, value, query)), below(gather, weight, key), count))


def _causal_aft_cases(draw: Draw) -> Iterator[Case]:
    for name, length, head_dim in (
        ("2 tokens, size 2", 2, 2),
        ("5 tokens, size 3", 5, 3),
        ("7 tokens, size 5", 7, 5),
    ):
        query, key, value = (draw.normal(length, head_dim) for _ in range(3))
        value = value + 0.3 * (value.abs() < 0.3).to(value)  # a value of 0 would hide what its weight is
        yield Case(name, {"query": query, "key": key, "value": value})


_CAUSAL_AFT_FAULTS = (
    Fault(
        "sums over the features",
        "The prefix sums run along the features. Tokens lie along the first axis: cumsum(dim=0).",
        gather=lambda x: x.cumsum(dim=1),
    ),
    Fault(
        "forgets itself",
        "A token's own value is left out: the sums are to go up to j = i.",
        gather=lambda x: x.cumsum(dim=0) - x,
    ),
    Fault(
        "each term its own denominator",
        "Each weight is divided by the sum up to its own token, and only then are they added up. All terms of token i "
        "have the same denominator, the sum up to i: take both sums, then divide one by the other.",
        top=lambda weight, value, query: weight / weight.cumsum(dim=0) * value,
        divide=lambda top, bottom, count: top,
    ),
    Fault(
        "forgets itself, and 0 for the first",
        "A token's own value is left out, and the first output is 0 since nothing is left to sum. The sums are to go "
        "up to j = i, so that the first token sees itself.",
        gather=lambda x: x.cumsum(dim=0) - x,
        divide=lambda top, bottom, count: (top / bottom).nan_to_num(0.0),
    ),
    Fault(
        "sees the future",
        "The sums run over all tokens. In causal attention, position i sums over j ≤ i.",
        gather=lambda x: x.sum(dim=0, keepdim=True).expand_as(x),
    ),
    Fault(
        "from the end",
        "The sums run from the end of the text backwards. Position i sums over j ≤ i.",
        gather=lambda x: x.flip(0).cumsum(dim=0).flip(0),
    ),
    Fault(
        "no sums",
        "Nothing is summed over the tokens: each token sees only itself.",
        gather=lambda x: x,
    ),
    Fault(
        "denominator missing",
        "The sum of the weighted values is not divided by the sum of the weights, so it grows along the text.",
        divide=lambda top, bottom, count: top,
    ),
    Fault(
        "divided by the count",
        "The sum is divided by the number of tokens so far. Divide by the sum of their weights.",
        divide=lambda top, bottom, count: top / count,
    ),
    Fault(
        "divided by the last",
        "The sum is divided by the weights of all tokens. At position i, divide by those of j ≤ i.",
        divide=lambda top, bottom, count: top / bottom[-1:],
    ),
    Fault(
        "exponential of the sum",
        "The denominator is the exponential of the keys' sum. It is the sum of their exponentials.",
        below=lambda gather, weight, key: gather(key).exp(),
    ),
    Fault(
        "no exponential",
        "The keys themselves are taken as weights, and can be negative. Take their exponential.",
        weigh=lambda key, query: key,
    ),
    Fault(
        "softmax over the features",
        "A softmax over the features makes them compete. Each feature has its own mean over the tokens.",
        weigh=lambda key, query: key.softmax(dim=-1),
    ),
    Fault(
        "equal weights",
        "All tokens have the same weight: the keys have no effect.",
        weigh=lambda key, query: torch.ones_like(key),
    ),
    Fault(
        "one weight for all features",
        "The exponential is taken of the keys' sum over the features. Here each feature has a weight of its own.",
        weigh=lambda key, query: key.sum(dim=-1, keepdim=True).exp().expand_as(key),
    ),
    Fault(
        "query inside",
        "The query stands in the exponent, beside each key. It belongs outside, as a gate.",
        see=_PROOF,
        weigh=lambda key, query: (query + key).exp(),
    ),
    Fault(
        "values not weighted",
        "The values are summed without their weights.",
        top=lambda weight, value, query: value,
    ),
    Fault(
        "values exponentiated",
        "The values are exponentiated. They are averaged as they are.",
        top=lambda weight, value, query: weight * value.exp(),
    ),
    Fault(
        "gate inside the sum",
        "The gate stands inside the sum, so that each value is multiplied by the gate of its own token, σ(q_j). It "
        "stands in front of the mean: one gate for output i, σ(q_i).",
        top=lambda weight, value, query: query.sigmoid() * weight * value,
        gate=lambda query: torch.ones_like(query),
    ),
    Fault(
        "gate in both sums",
        "The gate is part of the weights, in both sums. It stands in front of the mean: σ(q_i) times the mean under "
        "the weights exp(k_j).",
        weigh=lambda key, query: key.exp() * query.sigmoid(),
        gate=lambda query: torch.ones_like(query),
    ),
    Fault(
        "no gate",
        "The gate is missing: multiply by the sigmoid of the query.",
        gate=lambda query: torch.ones_like(query),
    ),
    Fault(
        "no sigmoid",
        "The query multiplies as it is. A gate is its sigmoid, between 0 and 1.",
        gate=lambda query: query,
    ),
    Fault(
        "tanh gate",
        "The gate is a tanh, which can turn signs around. AFT's is a sigmoid.",
        gate=lambda query: query.tanh(),
    ),
    Fault(
        "softmax gate",
        "The gate is a softmax over the features. Each feature has its own gate, a sigmoid.",
        gate=lambda query: query.softmax(dim=-1),
    ),
    Fault(
        "exponential gate",
        "The gate is the exponential of the query, which has no upper limit. AFT's is a sigmoid.",
        gate=lambda query: query.exp(),
    ),
    Fault(
        "sigmoid of everything",
        "The sigmoid is taken of the product. It belongs to the query alone; the mean is left as it is.",
        gate=lambda query: query,
        join=lambda gate, mean: (gate * mean).sigmoid(),
    ),
    Fault(
        "gate added",
        "The gate is added to the mean. Multiply.",
        join=lambda gate, mean: gate + mean,
    ),
)


_State = tuple[Tensor, Tensor, Tensor]


def read_token(
    past: _State | None,
    score: Tensor,
    value: Tensor,
    *,
    peak: Callable[..., Tensor] = torch.maximum,
    weigh: Callable[..., Tensor] = lambda score, peak: (score - peak).exp(),
    fade_top: Callable[..., Tensor] = lambda old, peak: (old - peak).exp(),
    fade_bottom: Callable[..., Tensor] = lambda old, peak: (old - peak).exp(),
    first: Callable[..., _State] = lambda score, value: (score, value, torch.ones_like(score)),
    add: Callable[..., Tensor] = lambda old, new: old + new,
    say: Callable[..., Tensor] = lambda top, bottom, past, value: top / bottom,
    keep: Callable[..., Any] = lambda new, past, score: new,
) -> tuple[Any, Tensor]:
    """What to keep, and the mean of the values so far under the weights exp(score)."""
    if past is None:
        new = first(score, value)
    else:
        largest, top, bottom = past[:3]
        new_largest = peak(largest, score)
        weight = weigh(score, new_largest)
        new = (
            new_largest,
            add(fade_top(largest, new_largest) * top, weight * value),
            add(fade_bottom(largest, new_largest) * bottom, weight),
        )
    return keep(new, past, score), say(new[1], new[2], past, value)


def _count(state: Any) -> int:
    """How many numbers there are in whatever a student keeps."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, dict):
        return _count(list(state.values()))
    if isinstance(state, Iterable) and not isinstance(state, str):
        return sum(map(_count, state))
    if hasattr(state, "__dict__"):
        return _count(vars(state))
    return 0 if state is None else 1


def _generate(answer: Callable[..., Any], scores: Tensor, values: Tensor) -> tuple[Tensor, str]:
    """All outputs of a text, token by token, and whether what is kept stays small."""
    past, outputs, most = None, [], 0
    for score, value in zip(scores, values, strict=True):
        past, output = pair(answer(past, score, value), "what to keep", "the output")
        outputs.append(output)
        most = max(most, _count(past))
    D = values.shape[-1]
    return torch.stack(outputs), f"at most {D + 2} numbers" if most <= D + 2 else f"more than {D + 2} numbers"


def _read_token_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, length: int, head_dim: int, scores: Tensor) -> Case:
        values = draw.normal(length, head_dim)
        # Far from 0 and from one another, so that no mean hides which of them it is made of.
        values = values + 2 * draw.permutation(length).to(values)[:, None] + 1
        return Case(name, {"scores": scores.to(values), "values": values})

    def tame(length: int) -> Tensor:
        return (draw.permutation(length) + 1.0) * 0.375 - 0.75  # no two alike, and exact also far from 0

    rising, falling = tame(3).sort().values, tame(3).sort(descending=True).values
    yield case("3 tokens, rising scores", 3, 2, rising)
    yield case("3 tokens, falling scores", 3, 2, falling)
    yield case("7 tokens, size 5", 7, 5, tame(7))
    yield case("3 tokens, scores around 120", 3, 2, 120 + tame(3))
    yield case("4 tokens, scores around −120", 4, 2, -120 + tame(4))
    yield case("3 tokens, one score too large for float64", 3, 2, torch.tensor([0.25, 800.0, 3.5]))
    yield case("4 tokens, one score far larger", 4, 2, torch.tensor([0.25, 120.125, -0.5, 119.5]))
    yield case("4 tokens, the first score far larger", 4, 2, torch.tensor([120.25, -0.75, 0.5, 119.875]))


def _from_0(score: Tensor, value: Tensor) -> _State:
    largest = score.clamp(min=0)
    weight = (score - largest).exp()
    return largest, weight * value, weight


_READ_TOKEN_FAULTS = (
    Fault(
        "no maximum",
        "Small scores come out right, but e^120 overflows float32. Measure scores against the largest so far.",
        see=_LOUD,
        first=lambda score, value: (torch.zeros_like(score), score.exp() * value, score.exp()),
        peak=lambda largest, score: largest,
    ),
    Fault(
        "first as maximum",
        "All scores are measured against the first one. A later one can be far larger: take the largest so far.",
        see=_LOUD,
        peak=lambda largest, score: largest,
    ),
    Fault(
        "last as maximum",
        "Scores are measured against the newest one. When that is small, the past overflows: take the largest.",
        see=_LOUD,
        peak=lambda largest, score: score,
    ),
    Fault(
        "smallest",
        "The smallest score is kept, so that the others overflow. Take the largest.",
        see=_LOUD,
        peak=torch.minimum,
    ),
    Fault(
        "scores clamped",
        "The scores are clamped, so that their exponentials stay finite. But all scores beyond the clamp then count as "
        "equal. Measure them against the largest so far.",
        see=_LOUD,
        first=lambda score, value: (0 * score, score.clamp(-80, 80).exp() * value, score.clamp(-80, 80).exp()),
        peak=lambda largest, score: largest,
        weigh=lambda score, peak: score.clamp(-80, 80).exp(),
    ),
    Fault(
        "maximum not kept",
        "The new maximum is used, but the old one is kept: the next token measures the sums against the wrong one.",
        keep=lambda new, past, score: new if past is None else (past[0], *new[1:]),
    ),
    Fault(
        "past counted as one token",
        "The mean and the largest score are kept, but not the sum of the weights: however long, the past counts as one "
        "token.",
        keep=lambda new, past, score: (new[0], new[1] / new[2], torch.ones_like(score)),
    ),
    Fault(
        "first token with its exponential",
        "The first token joins the sums with weight e^score, though its score is the largest so far: its weight is e⁰ "
        "= 1.",
        first=lambda score, value: (score, score.exp() * value, score.exp()),
        say=lambda top, bottom, past, value: value if past is None else top / bottom,
    ),
    Fault(
        "maximum starts at 0",
        "The maximum starts at 0, although the first token has weight 1. It should start at that token's score.",
        first=lambda score, value: (torch.zeros_like(score), value, torch.ones_like(score)),
    ),
    Fault(
        "maximum starts at 0, sums at 0",
        "The maximum starts at 0 and not at the first score. Where all scores are far below 0, every exponential "
        "rounds to 0, and 0/0 is left. Start it at the first score, or at −∞.",
        first=_from_0,
    ),
    Fault(
        "past not rescaled",
        "The maximum grows, but both old sums are still measured against the old one. Multiply them by "
        "e^(old − new maximum).",
        fade_top=lambda old, peak: torch.ones_like(old),
        fade_bottom=lambda old, peak: torch.ones_like(old),
    ),
    Fault(
        "denominator not rescaled",
        "The sum of the values is rescaled when the maximum grows; the denominator is forgotten. Both are sums over "
        "the same exponentials.",
        fade_bottom=lambda old, peak: torch.ones_like(old),
    ),
    Fault(
        "values not rescaled",
        "The denominator is rescaled when the maximum grows; the sum of the values is forgotten.",
        fade_top=lambda old, peak: torch.ones_like(old),
    ),
    Fault(
        "rescaled the wrong way",
        "The past is multiplied by e^(new − old maximum), which makes it grow. It has to shrink: e^(old − new "
        "maximum).",
        fade_top=lambda old, peak: (peak - old).exp(),
        fade_bottom=lambda old, peak: (peak - old).exp(),
    ),
    Fault(
        "new token always 1",
        "The new token joins with weight 1, as if it had the largest score. Its weight is e^(score − maximum).",
        weigh=lambda score, peak: torch.ones_like(score),
    ),
    Fault(
        "maximum not subtracted from the new",
        "The past is measured against the maximum, the new token is not: its weight is e^(score − maximum).",
        weigh=lambda score, peak: score.exp(),
    ),
    Fault(
        "plain mean",
        "Every token counts the same: the scores have no effect.",
        weigh=lambda score, peak: torch.ones_like(score),
        fade_top=lambda old, peak: torch.ones_like(old),
        fade_bottom=lambda old, peak: torch.ones_like(old),
    ),
    Fault(
        "denominator missing",
        "The output is the sum of the weighted values. Divide it by the sum of the weights.",
        say=lambda top, bottom, past, value: top,
    ),
    Fault(
        "forgets itself",
        "The output is the mean of the earlier tokens. A token attends to itself as well: add it first.",
        say=lambda top, bottom, past, value: top / bottom if past is None else past[1] / past[2],
    ),
    Fault(
        "forgets the past",
        "The output is the new value alone. Add to what is kept; do not replace it.",
        add=lambda old, new: new,
    ),
    Fault(
        "keeps every score",
        "The outputs are right, but more is kept than is needed, or even more with each token. D + 2 numbers are "
        "enough: a sum of weights is one number, and the weighted sum of values has D.",
        see=_MEMORY,
        keep=lambda new, past, score: (*new, score.expand(1) if past is None else torch.cat([past[3], score[None]])),
    ),
)

EXERCISES = (
    Exercise(
        bahdanau,
        notebook="09",
        section=_BAHDANAU,
        level="easy",
        minutes=5,
        hints=(
            "Every query meets every key: which two shapes broadcast to (L, S, D)?",
            "`query[:, None]` is (L, 1, D). The sum goes into the tanh, `weight` sums over D, and the weights "
            "of each query sum to 1.",
        ),
        cases=_bahdanau_cases,
        faults=_BAHDANAU_FAULTS,
    ),
    Exercise(
        causal_aft,
        notebook="09",
        section=_CAUSAL,
        level="middle",
        minutes=8,
        hints=(
            "As in `with_prefix_sums`, but the weight is (L, D) already. Along which axis do the tokens lie?",
            "Sum `weights * value` and `weights` over the tokens so far, divide, and multiply by the sigmoid "
            "of the query.",
        ),
        cases=_causal_aft_cases,
        faults=_CAUSAL_AFT_FAULTS,
    ),
    Exercise(
        read_token,
        notebook="09",
        section=_MEMORY,
        level="hard",
        minutes=15,
        hints=(
            "Two sums of $e^{b_j - m}$, where $m$ is the largest score **so far**. When $m$ grows to $m'$, what"
            " happens to the old sums?",
            "They were measured against the old $m$: multiply both by $e^{m - m'}$, which is never above 1, "
            "before the new token joins.",
        ),
        cases=_read_token_cases,
        faults=_READ_TOKEN_FAULTS,
        call=_generate,
        returns=("outputs", "how much is kept"),
    ),
)
