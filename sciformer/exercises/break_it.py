"""Exercises of notebooks 02, 03, 08 and 16 in which the reader writes the test, which faulty versions have to fail.

More than 500 lines, since each exercise stands beside all that a test for it can lack.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.values import same
from sciformer.check.written_tests import Lack, WrittenTest
from sciformer.exercises import bake_off, character_model, multi_head, scaled_dot_product

Version = Callable[..., Any]
Judge = Callable[[Any, Tensor], object]


def _equal_shape(got: Any, expected: Tensor) -> None:
    assert got.shape == expected.shape


def _equal_bits(got: Any, expected: Tensor) -> None:
    assert torch.equal(got, expected)


def _equal_rows(got: Any, expected: Tensor) -> None:
    torch.testing.assert_close(got.sum(dim=-1), expected.sum(dim=-1))


def _is_one_number(x: Tensor) -> bool:
    return same(x, x.flatten()[0].expand(x.shape))


def _are_small(query: Tensor, key: Tensor) -> bool:
    return bool((query.abs().amax() * key.abs().amax() < 0.05) & (key.abs().amax() > 0))


def _is_one_row(x: Tensor) -> bool:
    return same(x, x[:1].expand(x.shape))


def _is_causal(attn_mask: Tensor) -> bool:
    return torch.equal(attn_mask, torch.ones_like(attn_mask).tril())


#: What inputs of every attention can lack.
_TOO_SMALL = (
    "Its queries and keys are so small that all scores are nearly 0 and the weights nearly equal. Then a mistake in "
    "the scores does not show. Take them as torch.randn draws them."
)
_SAME_VALUES = (
    "Its values are the same at every position. Weights that sum to 1 then give that same value, whatever they are, so "
    "a mistake in the scores does not show. Draw a value for each position."
)

# Ways to judge a result that find too little, or too much: the same in every test.
_NOTHING_ASSERTED = Fault(
    "nothing asserted",
    "Nothing is asserted about the numbers, so every version passes. Write `assert` before a comparison, or use "
    "torch.testing.assert_close.",
    judge=lambda got, expected: None,
)
_SHAPE_ONLY = Fault(
    "shape only",
    "It looks at the shape only, and wrong numbers have the right shape. Compare the numbers.",
    judge=_equal_shape,
)
_EQUAL_BITS = Fault(
    "equal to the last bit",
    "It asks for numbers that are equal to the last bit. A right version that adds in another order rounds "
    "otherwise: compare with a tolerance, as torch.testing.assert_close does.",
    judge=_equal_bits,
)


def _one_query_at_a_time(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    rows = []
    for i in range(len(query)):
        seen = slice(None) if attn_mask is None else attn_mask[i]
        weights = (key[seen] @ query[i] / math.sqrt(query.shape[-1])).softmax(dim=0)
        rows.append((weights[:, None] * value[seen]).sum(dim=0))
    return torch.stack(rows)


def _in_float64(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return _one_query_at_a_time(query.double(), key.double(), value.double(), attn_mask).to(query)


def _some_hidden(length: int, key_length: int) -> Tensor:
    """Hides some keys from each query, and never all of them or its own."""
    keep = torch.rand(length, key_length) > 0.5
    positions = torch.arange(length)
    keep[positions, positions % key_length] = True
    keep[positions, (positions + 1) % key_length] = False
    return keep


def test_attention(
    attention: Version,
    *,
    sizes: tuple[tuple[int, int, int], ...] = ((5, 7, 3), (4, 4, 2)),
    inputs: Callable[..., Any] = lambda L, S, D: (torch.randn(L, D), torch.randn(S, D), torch.randn(S, D)),
    masks: Callable[..., Any] = lambda L, S: (None, _some_hidden(L, S)),
    judge: Judge = torch.testing.assert_close,
) -> None:
    """Compare a version of scaled dot-product attention with torch's, with a mask and without."""
    for L, S, D in sizes:
        query, key, value = inputs(L, S, D)
        for attn_mask in masks(L, S):
            expected = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
            judge(attention(query, key, value, attn_mask), expected)


_ATTENTION_FAULTS = (
    _NOTHING_ASSERTED,
    _SHAPE_ONLY,
    _EQUAL_BITS,
    Lack(
        "no mask",
        "It never gives a mask, so whatever is wrong with the mask survives.",
        every=lambda attn_mask, **_: attn_mask is None,
        masks=lambda L, S: (None,),
    ),
    Lack(
        "nothing hidden",
        "Its mask hides nothing, and then a mask without any effect is right, too. Let some entries be False.",
        every=lambda attn_mask, **_: attn_mask is None or bool(attn_mask.all()),
        masks=lambda L, S: (None, torch.ones(L, S, dtype=torch.bool)),
    ),
    Lack(
        "rows of the mask alike",
        "Its masks hide the same keys from every query, as for padding. Then a version that takes one row of the mask "
        "for all is right, too. Hide other keys from other queries.",
        every=lambda attn_mask, **_: attn_mask is None or bool((attn_mask == attn_mask[:1]).all()),
        masks=lambda L, S: (None, (torch.arange(S) < S - 1).expand(L, S)),
    ),
    Lack(
        "every mask causal",
        "Each of its masks is the causal one, so a version that always takes that one, whatever mask it is given, is "
        "right. Give it another mask as well: a random one, for instance.",
        every=lambda attn_mask, **_: attn_mask is None or _is_causal(attn_mask),
        sizes=((5, 5, 3), (4, 4, 2)),
        masks=lambda L, S: (None, torch.ones(L, S).tril() > 0),
    ),
    Lack(
        "head size 1",
        "Its head size is 1. √1 is 1, so no mistake in the scale shows. Let D be 3, or any number that is not 1.",
        every=lambda query, **_: query.shape[-1] == 1,
        sizes=((5, 7, 1), (4, 4, 1)),
    ),
    Lack(
        "as many tokens as features",
        "L, S and D are the same number, so a scale of √L or √S is √D as well, and lengths that are "
        "taken for each other do not show. Take three different ones.",
        every=lambda query, key, **_: len(query) == len(key) == query.shape[-1],
        sizes=((4, 4, 4), (2, 2, 2)),
    ),
    Lack(
        "one tensor three times",
        "Query, key and value are the same tensor, so a version that takes one for another is not noticed.",
        every=lambda query, key, value, **_: same(query, key) and same(key, value),
        sizes=((5, 5, 3), (4, 4, 2)),
        inputs=lambda L, S, D: (torch.randn(L, D),) * 3,
    ),
    Lack(
        "every value the same",
        _SAME_VALUES,
        every=lambda value, **_: _is_one_row(value),
        inputs=lambda L, S, D: (torch.randn(L, D), torch.randn(S, D), torch.randn(D).expand(S, D)),
    ),
    Lack(
        "inputs too small",
        _TOO_SMALL,
        every=lambda query, key, **_: _are_small(query, key),
        inputs=lambda L, S, D: (0.01 * torch.randn(L, D), 0.01 * torch.randn(S, D), 0.01 * torch.randn(S, D)),
    ),
    Lack(
        "all inputs equal",
        "All queries and all keys are equal, so all scores are, and a mistake in them does not show. Draw them: "
        "torch.randn.",
        every=lambda query, key, **_: _is_one_row(query) and _is_one_row(key),
        inputs=lambda L, S, D: (torch.ones(L, D), torch.ones(S, D), torch.randn(S, D)),
    ),
    Lack(
        "one query",
        "There is one query only. What rows have to do with one another shows with two at least.",
        every=lambda query, **_: len(query) == 1,
        sizes=((1, 7, 3), (1, 4, 2)),
    ),
)


def _heads_by_loop(query: Tensor, key: Tensor, value: Tensor, w_o: Tensor, num_heads: int) -> Tensor:
    D = query.shape[-1] // num_heads
    shared = query.shape[-1] // key.shape[-1]
    heads = []
    for h in range(num_heads):
        mine, theirs = slice(h * D, (h + 1) * D), slice(h // shared * D, (h // shared + 1) * D)
        scores = query[..., mine] @ key[..., theirs].mT / math.sqrt(D)
        heads.append(scores.softmax(dim=-1) @ value[..., theirs])
    return torch.cat(heads, dim=-1) @ w_o


def _heads_in_float64(query: Tensor, key: Tensor, value: Tensor, w_o: Tensor, num_heads: int) -> Tensor:
    return _heads_by_loop(query.double(), key.double(), value.double(), w_o.double(), num_heads).to(query)


def _heads_by_torch(query: Tensor, key: Tensor, value: Tensor, w_o: Tensor, num_heads: int) -> Tensor:
    D = query.shape[-1] // num_heads
    q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(-2) @ w_o


def test_heads(
    attention: Version,
    *,
    sizes: tuple[tuple[int, ...], ...] = ((2, 5, 7, 6, 2, 4), (3, 4, 4, 4, 2, 3)),
    project: Callable[..., Tensor] = lambda E: torch.randn(E, E),
    inputs: Callable[..., Tensor] = torch.randn,
    values: Callable[..., Tensor] = torch.randn,
    judge: Judge = torch.testing.assert_close,
) -> None:
    """Compare a version of attention with shared key heads with one head after the other."""
    for B, L, S, H, G, D in sizes:
        query, key, value = inputs(B, L, H * D), inputs(B, S, G * D), values(B, S, G * D)
        w_o = project(H * D)
        judge(attention(query, key, value, w_o, H), _heads_by_loop(query, key, value, w_o, H))


_HEADS_FAULTS = (
    _NOTHING_ASSERTED,
    _SHAPE_ONLY,
    _EQUAL_BITS,
    Lack(
        "inputs too small",
        _TOO_SMALL,
        every=lambda query, key, **_: _are_small(query, key),
        inputs=lambda *shape: 0.01 * torch.randn(*shape),
        values=lambda *shape: 0.01 * torch.randn(*shape),
    ),
    Lack(
        "every value the same",
        _SAME_VALUES,
        every=lambda value, **_: same(value, value[:, :1].expand(value.shape)),
        values=lambda *shape: torch.randn(shape[0], 1, shape[2]).expand(shape),
    ),
    Lack(
        "one head",
        "There is one head only, so nothing that can go wrong between heads shows. Take several, and fewer key heads.",
        every=lambda num_heads, **_: num_heads == 1,
        sizes=((2, 5, 7, 1, 1, 3), (3, 4, 4, 1, 1, 2)),
    ),
    Lack(
        "as many key heads",
        "There are as many key heads as query heads, so none is shared. Take fewer key heads, and more than one: six "
        "and two, for instance.",
        every=lambda query, key, **_: query.shape[-1] == key.shape[-1],
        sizes=((2, 5, 7, 6, 6, 3), (3, 4, 4, 2, 2, 2)),
    ),
    Lack(
        "one key head",
        "There is one key head for all query heads, and then it does not matter which head gets which. Take two or "
        "three.",
        every=lambda query, key, num_heads, **_: query.shape[-1] == num_heads * key.shape[-1],
        sizes=((2, 5, 7, 6, 1, 3), (3, 4, 4, 2, 1, 2)),
    ),
    Lack(
        "one key head, or as many",
        "There is one key head, or there are as many as query heads. In both cases it does not matter in which order "
        "the heads share. Take a number between: six query heads and two key heads, for instance.",
        every=lambda query, key, num_heads, **_: query.shape[-1] in (key.shape[-1], num_heads * key.shape[-1]),
        sizes=((2, 5, 7, 6, 1, 3), (3, 4, 4, 2, 2, 2)),
    ),
    Lack(
        "heads of size 1",
        "The heads have one feature each. √1 is 1, so a missing scale does not show.",
        every=lambda query, num_heads, **_: query.shape[-1] == num_heads,
        sizes=((2, 5, 7, 6, 2, 1), (3, 4, 4, 4, 2, 1)),
    ),
    Lack(
        "identity as projection",
        "The output projection is the identity, so a version without it, or with its transpose, is not noticed.",
        every=lambda w_o, **_: same(w_o, torch.eye(len(w_o)).to(w_o)),
        project=torch.eye,
    ),
    Lack(
        "projection of 1",
        "All entries of the output projection are 1. It adds up the features, in whatever order they stand.",
        every=lambda w_o, **_: _is_one_number(w_o),
        project=lambda E: torch.ones(E, E),
    ),
)


def _whole_vocabulary(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """A character is kept if all that are likelier have less than ``top_p`` together."""
    p = (logits.double() / temperature).softmax(dim=-1)
    likelier = (p[:, None, :] > p[:, :, None]) * p[:, None, :]
    kept = p * (likelier.sum(dim=-1) < top_p)
    return (kept / kept.sum(dim=-1, keepdim=True)).to(logits)


def _one_text_at_a_time(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    rows = []
    for p in (logits / temperature).softmax(dim=-1):
        kept, total = torch.zeros_like(p), 0.0
        for v in p.argsort(descending=True).tolist():
            if total < top_p:
                kept[v] = p[v]
                total += p[v].item()
        rows.append(kept / kept.sum())
    return torch.stack(rows)


#: One row is nearly even, in the other one character has nearly everything.
_LOGITS = ((0.3, 1.2, -0.9, 0.6, 0.0), (-1.0, 0.2, 4.0, -0.3, 0.5), (1.5, -0.6, 0.9, 0.1, -1.2))


def _sorted_rows(logits: Tensor) -> Tensor:
    return logits.sort(dim=-1, descending=True).values


def _what_must_be_kept(got: Any, expected: Tensor) -> None:
    """What holds of more than the right result: sums, signs, the likeliest, and none missing that belongs there."""
    _equal_rows(got, expected)
    assert bool((got >= 0).all())
    assert torch.equal(got.argmax(dim=-1), expected.argmax(dim=-1))
    assert bool((got > 0)[expected > 0].all())


def _with_all(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """The probabilities of all characters, and the right ones, (2, B, V)."""
    return torch.stack([(logits / temperature).softmax(dim=-1), _whole_vocabulary(logits, temperature, top_p)])


def _enough_is_kept(got: Any, expected: Tensor) -> None:
    """What holds of the likeliest that reach top_p and of more of them: sums, ratios, and that none is left out."""
    for row, p, right in zip(got, *expected, strict=True):
        kept = row > 0
        assert bool(kept[right > 0].all())
        assert bool(kept.all()) or p[kept].min() > p[~kept].max()
        torch.testing.assert_close(row[kept], p[kept] / p[kept].sum())


def test_nucleus(
    nucleus: Version,
    *,
    change: Callable[[Tensor], Tensor] = lambda logits: logits,
    settings: tuple[tuple[float, float], ...] = ((0.5, 0.7), (2.0, 0.5), (1.0, 0.9)),
    wanted: Callable[[Tensor, float, float], Tensor] = _whole_vocabulary,
    judge: Judge = torch.testing.assert_close,
) -> None:
    """Compare a version of nucleus sampling's probabilities with the definition, applied to each character."""
    logits = change(torch.tensor(_LOGITS))
    for temperature, top_p in settings:
        judge(nucleus(logits, temperature, top_p), wanted(logits, temperature, top_p))


_NUCLEUS_FAULTS = (
    _NOTHING_ASSERTED,
    _EQUAL_BITS,
    Fault(
        "sums only",
        "It looks only whether the probabilities of each text sum to 1. Which characters have them matters more.",
        judge=_equal_rows,
    ),
    Fault(
        "too many allowed",
        "It looks whether the characters that have to be kept are kept, and not whether others are, nor at their "
        "probabilities: a plain softmax passes. Compute what is right for some logits, and compare every number.",
        change=lambda logits: logits.flip(0),  # the first text needs fewer than another
        judge=_what_must_be_kept,
    ),
    Fault(
        "not as few as possible",
        "It looks whether the likeliest are kept and reach `top_p`, and not whether they are as few as possible: "
        "versions pass that keep more. Without the least likely of those that are kept, the sum has to be below "
        "`top_p`.",
        change=lambda logits: logits.flip(0),
        wanted=_with_all,
        judge=_enough_is_kept,
    ),
    Lack(
        "temperature 1",
        "Your test's temperature is always 1, and with 1 a version passes that forgets it. It should be another one "
        "in some call.",
        every=lambda temperature, **_: temperature == 1,
        settings=((1.0, 0.7), (1.0, 0.5)),
    ),
    Lack(
        "nothing cut off",
        "Its `top_p` is always 1, so no character is cut off.",
        every=lambda top_p, **_: top_p >= 1,
        settings=((0.5, 1.0), (2.0, 1.0)),
    ),
    Lack(
        "one text",
        "There is one text only. A version that mixes up texts, or treats them alike, needs two to be noticed.",
        every=lambda logits, **_: len(logits) == 1,
        change=lambda logits: logits[:1],
    ),
    Lack(
        "sorted logits",
        "The logits are sorted already, so a version that leaves them in sorted order is right. Shuffle them.",
        every=lambda logits, **_: same(logits, _sorted_rows(logits)),
        change=_sorted_rows,
    ),
)


def _holm_by_loop(p: Tensor) -> Tensor:
    result, highest = torch.zeros_like(p), 0.0
    for rank, index in enumerate(p.argsort().tolist()):
        highest = max(highest, (len(p) - rank) * p[index].item())
        result[index] = min(1.0, highest)
    return result


def _holm_in_float64(p: Tensor) -> Tensor:
    """The largest of what all p-values that are no larger get, each times how many are no smaller."""
    wide = p.double()
    times = wide * (wide[None, :] >= wide[:, None]).sum(dim=1)
    below = wide[None, :] <= wide[:, None]
    return torch.where(below, times[None, :], 0.0).amax(dim=1).clamp(max=1).to(p)


def _holm_by_levels(p: Tensor) -> Tensor:
    """Each p-value over the part of the level that it is compared with: 1 by how many are left."""
    order = p.argsort()
    parts = 1 / torch.arange(len(p), 0, -1, dtype=p.dtype, device=p.device)
    return torch.empty_like(p).scatter(0, order, (p[order] / parts).cummax(dim=0).values.clamp(max=1))


#: By hand: p-values, and what Holm's correction makes of them.
_BY_HAND = (
    ((0.02, 0.01, 0.30, 0.04), (0.06, 0.04, 0.30, 0.08)),
    ((0.90, 0.011, 0.35, 0.010, 0.02), (0.90, 0.05, 0.70, 0.05, 0.06)),
    ((0.7, 0.6, 0.4), (1.0, 1.0, 1.0)),
)


def test_holm(
    holm: Version,
    *,
    examples: tuple[Any, ...] = _BY_HAND,
    judge: Judge = torch.testing.assert_close,
) -> None:
    """Compare a version of Holm's correction with examples that were worked out by hand."""
    for p, corrected in examples:
        judge(holm(torch.tensor(p)), torch.tensor(corrected))


def _products(p: Tensor) -> Tensor:
    """What the running maximum is taken of, with the smallest p-value first."""
    return p.sort().values * torch.arange(len(p), 0, -1)


def _none_smaller(got: Any, expected: Tensor) -> None:
    assert bool((got > 0).all())
    assert bool((got <= 1).all())


_HOLM_FAULTS = (
    _NOTHING_ASSERTED,
    Fault(
        "range only",
        "It looks only whether the results lie between 0 and 1. Work out an example by hand and compare with it.",
        judge=_none_smaller,
    ),
    Lack(
        "sorted p-values",
        "The p-values are sorted already, so a version that leaves the results in sorted order is not noticed.",
        every=lambda p: same(p, p.sort().values),
        examples=(((0.01, 0.02, 0.04, 0.30), (0.04, 0.06, 0.08, 0.30)), ((0.4, 0.6, 0.7), (1.0, 1.0, 1.0))),
    ),
    Lack(
        "one p-value",
        "There is one p-value only, and one needs no correction. Take three or more.",
        every=lambda p: len(p) == 1,
        examples=(((0.03,), (0.03,)), ((0.7,), (0.7,))),
    ),
    Lack(
        "far apart",
        "Its p-values are so far apart that the products rise by themselves, and none is above 1: a version without "
        "the running maximum is right, and one that does not cut off at 1. Put two p-values close together, and one "
        "near 1 beside them.",
        every=lambda p: bool((_products(p).diff() >= 0).all()),
        examples=(((0.03, 0.001, 0.40, 0.005), (0.06, 0.004, 0.40, 0.015)),),
    ),
    Lack(
        "order its own inverse",
        "The order that sorts its p-values is its own inverse, as for p-values that rise or fall. So a version that "
        "puts the results back by the order itself gives the right numbers. Let the second one be the smallest, the "
        "third the next, and the first the largest.",
        every=lambda p: bool((p.argsort()[p.argsort()] == torch.arange(len(p))).all()),
        examples=(((0.7, 0.6, 0.4), (1.0, 1.0, 1.0)), ((0.04, 0.03, 0.022, 0.01), (0.066, 0.066, 0.066, 0.04))),
    ),
    Lack(
        "never above 1",
        "In its examples no product is above 1, so a version that does not cut off at 1 is right.",
        every=lambda p: bool((_products(p) <= 1).all()),
        examples=_BY_HAND[:2],
    ),
)


EXERCISES = (
    WrittenTest(
        test_attention,
        of=scaled_dot_product.EXERCISES[1],
        right={
            "all at once": scaled_dot_product.scaled_dot_product,
            "torch's own": lambda q, k, v, attn_mask=None: F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask),
            "one query at a time": _one_query_at_a_time,
            "one query at a time, in float64": _in_float64,
        },
        notebook="02",
        section="Break it: three classic mistakes",
        level="hard",
        minutes=12,
        hints=(
            "A result to compare with can come from torch: `F.scaled_dot_product_attention(query, key, value, "
            "attn_mask=mask)` has our masks.",
            "For each step of the formula, ask on which inputs nobody would notice that it is missing. Take others: "
            "L, S and D all different, a mask that hides something.",
        ),
        faults=_ATTENTION_FAULTS,
        seconds=20.0,
    ),
    WrittenTest(
        test_heads,
        of=multi_head.EXERCISES[5],
        spared=("divided by the number of key heads",),  # which is right for as many heads as key heads, squared
        right={
            "all heads at once": multi_head.grouped_attention,
            "torch's own": _heads_by_torch,
            "one head at a time": _heads_by_loop,
            "one head at a time, in float64": _heads_in_float64,
        },
        notebook="03",
        section="All heads at once",
        level="hard",
        minutes=15,
        hints=(
            "A loop over the heads is slow and hard to get wrong. Compare with it: it takes slices of the features, "
            "and no `view` or `transpose`.",
            "With one head, with one key head or with heads of one feature, some mistakes cannot be seen. Let B, L, S, "
            "H, G and D all differ, and D from H/G, too.",
        ),
        faults=_HEADS_FAULTS,
        seconds=20.0,
    ),
    WrittenTest(
        test_nucleus,
        of=character_model.EXERCISES[1],
        right={
            "sorted": character_model.nucleus,
            "character by character": _one_text_at_a_time,
            "by the definition, in float64": _whole_vocabulary,
        },
        notebook="08",
        section="Only the likeliest",
        level="hard",
        minutes=12,
        hints=(
            "The definition is short for a single character: it is kept if all likelier ones have less than `top_p` "
            "together.",
            "Two texts at least, one of them with a character that alone reaches `top_p`; logits in no order; a "
            "temperature below 1 and one above.",
        ),
        faults=_NUCLEUS_FAULTS,
        seconds=20.0,
    ),
    WrittenTest(
        test_holm,
        of=bake_off.EXERCISES[2],
        spared=("compared with the one before", "Holm–Šidák"),  # shown by three that are nearly alike, by large ones
        right={
            "sorted": bake_off.holm,
            "one comparison at a time": _holm_by_loop,
            "from pairs, in float64": _holm_in_float64,
            "divided by parts of the level": _holm_by_levels,
        },
        notebook="16",
        section="Break it: many comparisons",
        level="hard",
        minutes=12,
        hints=(
            "Three or four p-values can be corrected with pencil and paper. Two such examples are a test.",
            "What does each step do: sort, multiply, running maximum, cut off at 1, put back? Find an example for each "
            "in which leaving it out changes the result.",
        ),
        faults=_HOLM_FAULTS,
        seconds=20.0,
    ),
)
