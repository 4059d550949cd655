"""Exercises of notebook 17: a score of one's own."""

import math
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_TEMPERATURE = "Why a temperature"
_TRY = "Scores to try"
_BROKEN = "Three broken scores"


def largest_share(
    temperature: Tensor,
    keys: int,
    *,
    best: Callable[..., Tensor] = lambda temperature: 1 / temperature,
    rest: Callable[..., Tensor] = lambda temperature: -1 / temperature,
    others: Callable[..., int] = lambda keys: keys - 1,
    itself: float = 1.0,
) -> Tensor:
    """1 / (1 + (S − 1) exp(−2/τ)): one key at the cosine 1, all others at −1."""
    return 1 / (itself + others(keys) * (rest(temperature) - best(temperature)).exp())


def _any_number(answer: Callable[..., Any], temperature: Tensor, keys: int) -> Any:
    """A number of Python's is as good as a tensor."""
    result = answer(temperature, keys)
    return torch.as_tensor(result).to(temperature) if isinstance(result, float | int | Tensor) else result


def _largest_share_cases(draw: Draw) -> Iterator[Case]:
    for name, keys, start in (("3 keys", 3, 0.7), ("7 keys", 7, 0.6), ("50 keys, sharper", 50, 0.3), ("1 key", 1, 0.5)):
        temperature = start + draw.integers(0, 3).to(draw.dtype) / 20
        yield Case(name, {"temperature": temperature, "keys": keys})


_LARGEST_SHARE_FAULTS = (
    Fault(
        "others at 0",
        "The other keys are taken to be at right angles, cosine 0. They can be further off: cosines go down to -1.",
        rest=lambda temperature: 0 * temperature,
    ),
    Fault(
        "counts itself among the others",
        "The best key is counted among its own rivals: there are keys - 1 others.",
        others=lambda keys: keys,
    ),
    Fault(
        "leaves itself out",
        "The best key's own exponential is missing below. A softmax divides by the sum over all keys, itself included.",
        itself=0.0,
    ),
    Fault(
        "one rival",
        "There is only one rival. Each of the other keys - 1 has its own exponential in the sum.",
        others=lambda keys: 1,
    ),
    Fault(
        "multiplied by the temperature",
        "The cosines are multiplied by the temperature. It should divide them: a low temperature is sharp.",
        best=lambda temperature: temperature,
        rest=lambda temperature: -temperature,
    ),
    Fault(
        "no temperature",
        "The temperature does not enter: the scores are cos/τ, so they run from -1/τ to 1/τ.",
        best=lambda temperature: torch.ones_like(temperature),
        rest=lambda temperature: -torch.ones_like(temperature),
    ),
    Fault(
        "the smallest share",
        "This is the smallest share, of the key that lies opposite while all others agree with the query.",
        best=lambda temperature: -1 / temperature,
        rest=lambda temperature: 1 / temperature,
    ),
    Fault(
        "all alike",
        "All keys are taken to have the same cosine, which gives 1/S. For the largest share, the others lie opposite.",
        rest=lambda temperature: 1 / temperature,
    ),
)


def low_rank_scores(
    query: Tensor,
    key: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    matrices: Callable[..., tuple[Tensor, Tensor]] = lambda left, right: (left, right),
    product: Callable[..., Tensor] = lambda query, key: query @ key.mT,
    scale: Callable[..., float] = lambda query, left: math.sqrt(left.shape[-1]),
    finish: Callable[..., Tensor] = lambda scores: scores,
) -> Tensor:
    """(q A_h) · (k C_h) / √R, (B, H, L, S)."""
    for_query, for_key = matrices(left, right)
    return finish(product(query @ for_query, key @ for_key) / scale(query, left))


def _low_rank_scores_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, B: int, H: int, L: int, S: int, D: int, R: int) -> Case:
        query, key = draw.normal(B, H, L, D), draw.normal(B, H, S, D)
        # None near 0, and left unlike right: an exchange has to show.
        left = draw.normal(H, D, R) + 1.5
        right = draw.normal(H, D, R) - 1.5
        return Case(name, {"query": query, "key": key, "left": left, "right": right})

    yield case("1 head, 2 tokens of size 2, rank 1", 1, 1, 2, 2, 2, 1)
    yield case("2 heads, 2 queries, 3 keys, rank 3", 1, 2, 2, 3, 5, 3)
    yield case("3 heads, 7 queries, 5 keys, rank 4", 2, 3, 7, 5, 11, 4)


_LOW_RANK_SCORES_FAULTS = (
    Fault(
        "scaled by the head size",
        "The scores are divided by √D. After the maps the vectors have R features, so their products grow with √R.",
        see=_TRY,
        scale=lambda query, left: math.sqrt(query.shape[-1]),
    ),
    Fault(
        "no scale",
        "The scores are not divided by √R, the root of the rank.",
        see=_TRY,
        scale=lambda query, left: 1.0,
    ),
    Fault(
        "divided by R",
        "The scores are divided by R, or twice by √R. Once is enough.",
        see=_TRY,
        scale=lambda query, left: left.shape[-1],
    ),
    Fault(
        "multiplied by √R",
        "The scores are multiplied by √R instead of divided.",
        see=_TRY,
        scale=lambda query, left: left.shape[-1] ** -0.5,
    ),
    Fault(
        "one matrix for both",
        "Queries and keys both go through left. Keys have a matrix of their own, right.",
        see=_TRY,
        matrices=lambda left, right: (left, left),
    ),
    Fault(
        "the other matrix for both",
        "Queries and keys both go through right. Queries have a matrix of their own, left.",
        see=_TRY,
        matrices=lambda left, right: (right, right),
    ),
    Fault(
        "matrices exchanged",
        "The matrices are exchanged: left is for the queries, right for the keys.",
        see=_TRY,
        matrices=lambda left, right: (right, left),
    ),
    Fault(
        "first head for all",
        "Every head uses the matrices of the first. Each has its own: query @ left takes them head by head.",
        see="The module",
        matrices=lambda left, right: (left[:1], right[:1]),
    ),
    Fault(
        "heads averaged",
        "The matrices are averaged over the heads first. Each head has its own.",
        see="The module",
        matrices=lambda left, right: (left.mean(dim=0), right.mean(dim=0)),
    ),
    Fault(
        "heads summed",
        "The matrices are summed over the heads, but each head has its own. In einsum, their axis of heads needs the "
        "letter that it has in the queries, and has to stand behind the arrow.",
        see="The module",
        matrices=lambda left, right: (left.sum(dim=0), right.sum(dim=0)),
    ),
    Fault(
        "query and key exchanged",
        "Queries and keys are exchanged: row i has to hold query i against every key.",
        see="By hand",
        product=lambda query, key: key @ query.mT,
    ),
    Fault(
        "softmax too soon",
        "Your result has been through a softmax, so it holds weights. It should hold the scores: attention takes the "
        "softmax, after the mask.",
        see="The module",
        finish=lambda scores: scores.softmax(dim=-1),
    ),
)


def is_pairwise(
    score: Callable[[Tensor, Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    *,
    cut_query: Callable[..., Tensor] = lambda query, i: query[i : i + 1],
    cut_key: Callable[..., Tensor] = lambda key, j: key[j : j + 1],
    pairs: Callable[..., list[tuple[int, int]]] = lambda L, S: list(product(range(L), range(S))),
    compared: Callable[..., Tensor] = lambda differences, score, query, key: differences,
    off: Callable[..., Tensor] = lambda differences: differences.abs().max(),
    verdict: Callable[..., bool] = lambda off: bool(off < 1e-4),
) -> bool:
    """Whether each score is that of its query and its key alone."""
    whole, differences = score(query, key), []
    for i, j in pairs(*whole.shape):
        alone = score(cut_query(query, i), cut_key(key, j))
        differences.append(alone[min(i, len(alone) - 1), min(j, alone.shape[1] - 1)] - whole[i, j])
    return verdict(off(compared(torch.stack(differences), score, query, key)))


def _moved_along(score: Callable[..., Tensor], query: Tensor, key: Tensor, one: Tensor, two: Tensor) -> Tensor:
    return (score(query[one], key[two]) - score(query, key)[one][:, two]).abs()


def _in_another_order(differences: Tensor, score: Callable[..., Tensor], query: Tensor, key: Tensor) -> Tensor:
    return _moved_along(score, query, key, torch.randperm(len(query)), torch.randperm(len(key)))


def _in_all_orders(differences: Tensor, score: Callable[..., Tensor], query: Tensor, key: Tensor) -> Tensor:
    orders = product(*(map(torch.tensor, permutations(range(len(x)))) for x in (query, key)))
    return torch.stack([_moved_along(score, query, key, one, two) for one, two in orders])


def _with_others_around(differences: Tensor, score: Callable[..., Tensor], query: Tensor, key: Tensor) -> Tensor:
    """All the others are replaced, and the pair stays where it stands."""
    whole, found = score(query, key), []
    for i, j in product(range(len(query)), range(len(key))):
        others, other_keys = 1.7 - 0.6 * query.flip(0, 1), 0.9 - 1.3 * key.flip(0, 1)
        others[i], other_keys[j] = query[i], key[j]
        found.append(score(others, other_keys)[i, j] - whole[i, j])
    return torch.stack(found)


def _with_other_last_tokens(differences: Tensor, score: Callable[..., Tensor], query: Tensor, key: Tensor) -> Tensor:
    others = (torch.cat([x[:-1], x[-1:] + 1]) for x in (query, key))
    return (score(*others) - score(query, key))[:-1, :-1]


def _distance(query: Tensor, key: Tensor) -> Tensor:
    """How many places a key stands behind a query, (L, S)."""
    return torch.arange(len(key)).to(key) - torch.arange(len(query)).to(query)[:, None]


def _scores() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Scores of (L, D) queries and (S, D) keys, pairwise and not."""

    def unit(x: Tensor) -> Tensor:
        return x / x.norm(dim=-1, keepdim=True)

    def standardized(query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.T
        return (scores - scores.mean(dim=1, keepdim=True)) / (1 + scores.std(dim=1, keepdim=True, correction=0))

    def over_queries(query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.T
        return scores / scores.abs().amax(dim=0)

    def over_everything(query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.T
        return scores / scores.abs().amax()

    def with_the_key_before(query: Tensor, key: Tensor) -> Tensor:
        return query @ torch.cat([key[:1], key[1:] + key[:-1]]).T

    def one_pair(query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.T
        if len(key) < 3:
            return scores
        first = torch.cat([scores[0, :2], (scores[0, 2] + scores[0, 1] ** 2 + 1)[None], scores[0, 3:]])
        return torch.cat([first[None], scores[1:]])

    def from_the_mean(query: Tensor, key: Tensor) -> Tensor:
        """The squared distance once more: the mean of the keys drops out, but for rounding."""
        query, key = query - key.mean(dim=0), key - key.mean(dim=0)
        return 2 * query @ key.T - query.square().sum(dim=-1)[:, None] - key.square().sum(dim=-1)

    return {
        "dot product": lambda query, key: query @ key.T,
        "cosine": lambda query, key: unit(query) @ unit(key).T,
        "each row standardised": standardized,
        "divided by the largest of the column": over_queries,
        "a key and the one before it": with_the_key_before,
        "one pair that looks at a third token": one_pair,
        "plus the last query": lambda query, key: query @ key.T + query[-1].sum(),
        "plus the last key": lambda query, key: query @ key.T + key[-1].sum(),
        "plus the lengths of all keys": lambda query, key: query @ key.T + key.norm(dim=-1).sum(),
        "minus the lengths of all queries": lambda query, key: query @ key.T - query.norm(dim=-1).sum(),
        "keys minus their mean": lambda query, key: query @ (key - key.mean(dim=0)).T,
        "divided by the largest of all": over_everything,
        "squared distance": lambda query, key: -(query[:, None] - key).square().sum(dim=-1),
        "all alike": lambda query, key: 0 * query @ key.T,
        "squared distance, measured from the mean of the keys": from_the_mean,
        "dot product, rounded more with more keys": lambda query, key: query @ key.T + 3e-6 * len(key),
        "minus the distance": lambda query, key: query @ key.T - _distance(query, key).abs(),
        "plus a number for each position": lambda query, key: query @ key.T + _distance(query[:1], key),
        "divided by the number of keys": lambda query, key: query @ key.T / len(key),
        "plus the key in the middle": lambda query, key: query @ key.T + key[len(key) // 2].sum(),
    }


def _is_pairwise_cases(draw: Draw) -> Iterator[Case]:
    for n, (name, score) in enumerate(_scores().items()):
        keys, size = 3 + n % 2, 2 + 2 * (n % 3 == 0)
        # Off the grid of tenths: no product happens to be 0.
        query, key = draw.normal(3, size) + 0.137, draw.normal(keys, size) - 0.211
        yield Case(name, {"score": score, "query": query, "key": key})


_IS_PAIRWISE_FAULTS = (
    Fault(
        "keys not cut",
        "Each query is taken alone, but always with all the keys. Then what a score does across the keys stays hidden.",
        cut_key=lambda key, j: key,
    ),
    Fault(
        "queries not cut",
        "Each key is taken alone, but always with all the queries. Then what a score does across the queries stays "
        "hidden.",
        cut_query=lambda query, i: query,
    ),
    Fault(
        "nothing cut",
        "The score is compared with itself on the same tokens. Take one query and one key out, and ask again.",
        cut_query=lambda query, i: query,
        cut_key=lambda key, j: key,
    ),
    Fault(
        "first pair only",
        "Only the first query and the first key are tried alone. Another pair may look around.",
        pairs=lambda L, S: [(0, 0)],
    ),
    Fault(
        "diagonal only",
        "Only pairs with i = j are tried alone. Every query meets every key.",
        pairs=lambda L, S: [(i, i) for i in range(min(L, S))],
    ),
    Fault(
        "one is enough",
        "It says yes as soon as one pair has the same score alone. All of them have to.",
        off=lambda differences: differences.abs().min(),
    ),
    Fault(
        "signed sum",
        "The differences are added with their signs, and they can cancel. Take absolute values, or allclose.",
        off=lambda differences: differences.sum().abs(),
    ),
    Fault(
        "only falls count",
        "Only scores that are smaller alone count, since the difference keeps its sign. Scores that are larger alone "
        "are not those of their pair either: take absolute values, or allclose.",
        off=lambda differences: (-differences).max(),
    ),
    Fault(
        "only rises count",
        "Only scores that are larger alone count, since the difference keeps its sign. Scores that are smaller alone "
        "are not those of their pair either: take absolute values, or allclose.",
        off=lambda differences: differences.max(),
    ),
    Fault(
        "put in another order",
        "It puts queries and keys in another order. All are still there, and a score that subtracts the mean of the "
        "keys moves along with them. Take one query and one key out, and ask again.",
        also=({"compared": _in_all_orders},),
        compared=_in_another_order,
    ),
    Fault(
        "left where it stands",
        "Your function only changes the other queries and keys, so a score passes that depends on positions or on how "
        "many keys there are. It should take one query and one key out, and ask again.",
        compared=_with_others_around,
    ),
    Fault(
        "only the last tokens changed",
        "It changes the last query and the last key, and looks at the scores before them: a test for causality. A pair "
        "may look at a token before it as well. Take one query and one key out, and ask again.",
        compared=_with_other_last_tokens,
    ),
    Fault(
        "equal to the last bit",
        "It asks for scores that are equal to the last bit, or nearly so. A score that is computed another way for one "
        "pair than for many is rounded otherwise: allow differences below 1e-4, torch.allclose(…, atol=1e-4).",
        off=lambda differences: 1.0 * bool(differences.any()),
    ),
    Fault(
        "answer turned round",
        "It says the opposite: True has to mean that each score is that of its pair alone.",
        verdict=lambda off: not bool(off < 1e-4),
    ),
)

EXERCISES = (
    Exercise(
        largest_share,
        notebook="17",
        section=_TEMPERATURE,
        level="easy",
        minutes=5,
        hints=(
            "Which cosine should the best key have, and which should all the others have?",
            "Write out the softmax: one exponential over itself plus `keys - 1` others. Divide above and below "
            "by the largest.",
        ),
        cases=_largest_share_cases,
        faults=_LARGEST_SHARE_FAULTS,
        call=_any_number,
        differentiable=False,
        small=("temperature",),
    ),
    Exercise(
        low_rank_scores,
        notebook="17",
        section=_TRY,
        level="middle",
        minutes=8,
        hints=(
            "`query @ left` multiplies the last two dimensions, head by head. What is its shape?",
            "The vectors that are compared have R features now, so the scale is √R.",
        ),
        cases=_low_rank_scores_cases,
        faults=_LOW_RANK_SCORES_FAULTS,
    ),
    Exercise(
        is_pairwise,
        notebook="17",
        section=_BROKEN,
        level="hard",
        minutes=15,
        hints=(
            "Ask the score about one query and one key, with nothing else there.",
            "`score(query[i : i + 1], key[j : j + 1])` is (1, 1). For which pairs has it to agree with the "
            "whole matrix? Numbers are rounded: `torch.allclose` with `atol=1e-4`.",
        ),
        cases=_is_pairwise_cases,
        faults=_IS_PAIRWISE_FAULTS,
        differentiable=False,
    ),
)
