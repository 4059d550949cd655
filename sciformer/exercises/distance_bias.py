"""Exercises of notebook 07: distance-biased attention.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, pair, parameter
from sciformer.check.modules import scores_of

_FORMULA = "The formula"
_BREAK = "Break it: three slips in the penalty"
_CLASS = "The class"
_IMAGE = "Distance in an image"
_CURE = "Mend it"
_GRID = "Four sides on the grid"
_CAUSAL = "Under a causal mask"


def distance_scores(
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    query_offset: int = 0,
    *,
    product: Callable[..., Tensor] = lambda query, key: query @ key.transpose(-2, -1),
    scale: Callable[..., float] = lambda head_dim: head_dim**-0.5,
    first: Callable[..., int] = lambda offset, length, key_length: offset,
    steps: Callable[..., Tensor] = lambda ahead: ahead.abs(),
    unit: Callable[..., float] = lambda key_length: 1.0,
    slope: Callable[..., Tensor] = lambda strength: strength,
    align: Callable[..., Tensor] = lambda strength: strength[:, None, None],
    combine: Callable[..., Tensor] = lambda scores, penalty: scores - penalty,
    finish: Callable[..., Tensor] = lambda scores, head_dim: scores,
) -> Tensor:
    """Scaled dot product minus λ |i - j|, (B, H, L, S)."""
    L, S, D = query.shape[-2], key.shape[-2], query.shape[-1]
    scores = product(query, key) * scale(D)
    i = torch.arange(L, device=query.device)[:, None] + first(query_offset, L, S)  # (L, 1)
    ahead = torch.arange(S, device=query.device) - i  # (L, S)
    penalty = align(slope(strength)) * steps(ahead) / unit(S)
    return finish(combine(scores, penalty), D)


def _placed(draw: Draw) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """For each case of a score along a line: its name, queries, keys, and the position of the first query."""
    for name, batch, num_heads, length, key_length, head_dim, query_offset in (
        ("2 tokens, 2 heads of size 2", 1, 2, 2, 2, 2, 0),
        ("4 tokens, 1 head of size 3", 1, 1, 4, 4, 3, 0),
        ("1 query at position 2 of 4 keys, 1 head of size 3", 1, 1, 1, 4, 3, 2),
        ("2 sentences, 3 heads of size 5, 4 queries from position 2 of 7 keys", 2, 3, 4, 7, 5, 2),
    ):
        query, key = (draw.normal(batch, num_heads, n, head_dim) for n in (length, key_length))
        yield name, query, key, query_offset


def _distance_scores_cases(draw: Draw) -> Iterator[Case]:
    for name, query, key, query_offset in _placed(draw):
        # Never 0, and never the same twice: else a slope on the wrong axis might not show. One is negative.
        strength = 0.3 * draw.permutation(query.shape[1]).to(query) - 0.2  # (H,)
        yield Case(name, {"query": query, "key": key, "strength": strength, "query_offset": query_offset})


_DISTANCE_SCORES_FAULTS = (
    Fault(
        "right side free",
        "Keys on the right of the query cost nothing, as if their distance were 0. Take |i − j|, on both sides.",
        steps=lambda ahead: (-ahead).clamp(min=0),
    ),
    Fault(
        "left side free",
        "Keys on the left of the query cost nothing, as if their distance were 0. Take |i − j|, on both sides.",
        steps=lambda ahead: ahead.clamp(min=0),
    ),
    Fault(
        "wrong sign",
        "The penalty is added, so that far tokens are favoured. Subtract it.",
        see=_BREAK,
        combine=lambda scores, penalty: scores + penalty,
    ),
    Fault(
        "no bars",
        "The distance keeps its sign: keys on one side are rewarded for being far. Take |i − j|.",
        see=_BREAK,
        steps=lambda ahead: -ahead,
    ),
    Fault(
        "no bars, j − i",
        "The distance is j − i, with its sign: keys on the left are rewarded for being far. Take |i − j|.",
        see=_BREAK,
        steps=lambda ahead: ahead,
    ),
    Fault(
        "distance squared",
        "The distance is squared. The penalty grows by the same λ with every step.",
        see=_BREAK,
        steps=lambda ahead: ahead**2,
    ),
    Fault(
        "counted from 1",
        "A token is taken to be one step away from itself. |i − i| is 0, and a neighbour is one step away.",
        steps=lambda ahead: ahead.abs() + 1,
    ),
    Fault(
        "once, however far",
        "The price is charged once, however far away a key is. Each step costs it: multiply by |i − j|.",
        steps=lambda ahead: ahead != 0,
    ),
    Fault(
        "divided by the length",
        "The distance is divided by the number of keys. One step costs λ, however long the sequence is.",
        unit=lambda key_length: key_length,
    ),
    Fault(
        "no penalty",
        "The scores do not depend on `strength`: this is the plain scaled dot product.",
        combine=lambda scores, penalty: scores,
    ),
    Fault(
        "multiplied",
        "The scores are multiplied by e^(−penalty). Subtract the penalty; the softmax makes a factor of it.",
        combine=lambda scores, penalty: scores * (-penalty).exp(),
    ),
    Fault(
        "one slope for all heads",
        "All heads use the price of head 0. Head h has its own, strength[h].",
        slope=lambda strength: strength[:1].expand_as(strength),
    ),
    Fault(
        "absolute slopes",
        "The prices lose their sign. A negative one means that the head favours what is far.",
        slope=lambda strength: strength.abs(),
    ),
    Fault(
        "along the keys",
        "Broadcasting begins at the last axis, so the prices land on the keys. Shape (H, 1, 1) meets the heads.",
        align=lambda strength: strength,
    ),
    Fault(
        "along the queries",
        "The prices run along the queries, as those of shape (H, 1) do. Shape (H, 1, 1) meets the heads.",
        align=lambda strength: strength[:, None],
    ),
    Fault(
        "penalty scaled too",
        "The penalty is divided by √D as well. Only the dot product is: q · k / √D − λ|i − j|.",
        scale=lambda head_dim: 1.0,
        finish=lambda scores, head_dim: scores / math.sqrt(head_dim),
    ),
    Fault(
        "no scale",
        "The dot product is not divided by √D. The penalty comes on top of that.",
        scale=lambda head_dim: 1.0,
    ),
    Fault("divided by D", "The dot product is divided by D; it is √D.", scale=lambda head_dim: 1 / head_dim),
    Fault(
        "offset ignored",
        "Distances are as if the first query stood at position 0. Queries stand at query_offset, query_offset + 1, …, "
        "and keys at 0, 1, …: the offset belongs to the queries, and to them alone.",
        first=lambda offset, length, key_length: 0,
    ),
    Fault(
        "offset on the keys",
        "The keys' positions have query_offset added. It moves the queries: i starts there, j at 0.",
        first=lambda offset, length, key_length: -offset,
    ),
    Fault(
        "queries at the end",
        "The queries are taken to be the last ones. They start at position query_offset, which the caller gives.",
        first=lambda offset, length, key_length: key_length - length,
    ),
    Fault(
        "softmax inside",
        "Your result has been through a softmax, so it holds weights. It should hold the scores: the layer takes the "
        "softmax itself.",
        finish=lambda scores, head_dim: scores.softmax(dim=-1),
    ),
    Fault(
        "queries and keys exchanged",
        "Queries and keys are exchanged: row i has to hold query i against every key.",
        product=lambda query, key: key @ query.transpose(-2, -1),
    ),
)


def grid_distance(
    rows: int,
    width: int,
    *,
    locate: Callable[..., tuple[Tensor, Tensor]] = lambda token, rows, width: (token // width, token % width),
    measure: Callable[..., Tensor] = lambda down, right: down.abs() + right.abs(),
    split: Callable[..., Tensor] = lambda distance, width: distance,
    layout: Callable[..., Tensor] = lambda distance, rows, width: distance,
) -> Tensor:
    """Rows plus columns between every two tokens of an image, (L, L)."""
    row, column = locate(torch.arange(rows * width), rows, width)  # (L,) each
    distance = measure(row - row[:, None], column - column[:, None])  # (L, L)
    return layout(split(distance, width), rows, width)


def _any_number(answer: Callable[..., Any], rows: int, width: int) -> Any:
    """Whole numbers are as good as real ones."""
    distance = answer(rows, width)
    return distance.double() if isinstance(distance, Tensor) and distance.dtype != torch.bool else distance


def _grid_distance_cases(draw: Draw) -> Iterator[Case]:
    for rows, width in ((2, 2), (2, 3), (5, 3), (3, 7)):
        yield Case(f"{rows} rows of {width}", {"rows": rows, "width": width})


_GRID_DISTANCE_FAULTS = (
    Fault(
        "along the sequence",
        "It counts the steps from token to token, |i − j|. In the image, the token a row below is one step away.",
        locate=lambda token, rows, width: (0 * token, token),
    ),
    Fault(
        "divided by the rows",
        "The tokens are numbered as if a row were full after `rows` of them, or column by column. They are numbered "
        "row by row, and a row is full after `width` tokens.",
        locate=lambda token, rows, width: (token // rows, token % rows),
    ),
    Fault(
        "no whole rows",
        "The division leaves fractions of a row. // gives the whole rows: token 30 of rows of 28 is in row 1.",
        locate=lambda token, rows, width: (token / width, token % width),
    ),
    Fault(
        "difference split",
        "The steps along the sequence are split into rows and columns. From the last token of a row to the first of "
        "the next it is one step there, but `width` steps in the image: split the positions first.",
        locate=lambda token, rows, width: (token, 0 * token),
        measure=lambda down, right: down.abs(),
        split=lambda distance, width: distance // width + distance % width,
    ),
    Fault(
        "rows only",
        "Only rows are counted; neighbours in one row have distance 0. Add the columns.",
        measure=lambda down, right: down.abs(),
    ),
    Fault(
        "columns only",
        "Only columns are counted; neighbours in one column have distance 0. Add the rows.",
        measure=lambda down, right: right.abs(),
    ),
    Fault(
        "straight line",
        "This is the straight line, √(rows² + columns²). The distance wanted is the number of steps along the grid.",
        measure=lambda down, right: (down**2 + right**2).sqrt(),
    ),
    Fault(
        "squares added",
        "The squares of rows and columns are added. Add the two as they are.",
        measure=lambda down, right: down**2 + right**2,
    ),
    Fault(
        "the larger one",
        "It takes the larger of rows and columns, as a king moves in chess. Add the two.",
        measure=lambda down, right: torch.maximum(down.abs(), right.abs()),
    ),
    Fault(
        "multiplied",
        "Rows and columns are multiplied, so that a whole row has distance 0. Add them.",
        measure=lambda down, right: down.abs() * right.abs(),
    ),
    Fault(
        "signed",
        "Some distances are negative: left and right, or above and below, can cancel. Take absolute values.",
        measure=lambda down, right: down + right,
    ),
    Fault(
        "absolute value too late",
        "The absolute value comes after the sum: one row down and one column left cancel. Take it of each, then add.",
        measure=lambda down, right: (down + right).abs(),
    ),
    Fault(
        "four axes",
        "The distances stand in (rows, width, rows, width). Tokens are counted in one go: (L, L), L = rows · width.",
        layout=lambda distance, rows, width: distance.view(rows, width, rows, width),
    ),
)


class TwoSidedScore(nn.Module):
    r"""Scaled dot product minus :math:`\lambda^{left}` or :math:`\lambda^{right}` times the distance."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        register: Callable[..., Tensor] = nn.Parameter,
        shape: Callable[..., tuple[int, ...]] = lambda num_heads: (num_heads, 2),
        start: float = 0.1,
        product: Callable[..., Tensor] = lambda query, key: query @ key.transpose(-2, -1),
        scale: Callable[..., float] = lambda head_dim: head_dim**-0.5,
        first: Callable[..., int] = lambda offset, length, key_length: offset,
        sides: Callable[..., tuple[Tensor, Tensor]] = lambda ahead: (-ahead.clamp(max=0), ahead.clamp(min=0)),
        unit: Callable[..., float] = lambda key_length: 1.0,
        slopes: Callable[..., tuple[Tensor, Tensor]] = lambda strength: (strength[:, 0], strength[:, 1]),
        align: Callable[..., Tensor] = lambda slope: slope[:, None, None],
        combine: Callable[..., Tensor] = lambda scores, penalty: scores - penalty,
        finish: Callable[..., Tensor] = lambda scores, head_dim: scores,
        hide: Callable[..., Tensor] = lambda scores, mask: scores,
    ):
        super().__init__()
        self.strength = register(torch.full(shape(num_heads), start))
        self.head_dim = head_dim
        self.product, self.scale, self.first, self.sides, self.unit = product, scale(head_dim), first, sides, unit
        self.slopes, self.align, self.combine, self.finish, self.hide = slopes, align, combine, finish, hide

    def forward(self, query: Tensor, key: Tensor, *, attn_mask: Tensor | None = None, query_offset: int = 0) -> Tensor:
        """Scores (B, H, L, S)."""
        scores = self.product(query, key) * self.scale
        L, S = query.shape[-2], key.shape[-2]
        i = torch.arange(L, device=query.device)[:, None] + self.first(query_offset, L, S)  # (L, 1)
        ahead = torch.arange(S, device=query.device) - i  # (L, S)
        pairs = zip(self.slopes(self.strength), self.sides(ahead), strict=True)
        penalty = sum(self.align(slope) * side / self.unit(S) for slope, side in pairs)
        return self.hide(self.finish(self.combine(scores, penalty), self.head_dim), attn_mask)


def _try_slopes(
    answer: Callable[..., Any], query: Tensor, key: Tensor, query_offset: int, strength: Tensor
) -> tuple[Tensor, Tensor]:
    """What there is to train, and the scores when the training has ended at these slopes."""
    module = answer(query.shape[1], query.shape[-1]).to(query)
    start = parameter(module, "strength")
    trained = isinstance(start, nn.Parameter) and start.requires_grad
    # The input itself stands in for the parameter, so that gradients show whether the scores really depend on it.
    del module.strength
    module.strength = strength.flatten()[: start.numel()].view(start.shape)
    with torch.no_grad():
        scores_of(module, query, key, query_offset=max(query_offset - 1, 0))  # what it keeps must not reach the next
    scores = scores_of(module, query, key, query_offset=query_offset)
    return start.detach().clone() if trained else query.new_zeros(0), scores


def _two_sided_score_cases(draw: Draw) -> Iterator[Case]:
    for name, query, key, query_offset in _placed(draw):
        num_heads = query.shape[1]
        strength = (0.3 * draw.permutation(2 * num_heads).to(query) - 0.2).view(num_heads, 2)  # as in distance_scores
        yield Case(name, {"query": query, "key": key, "query_offset": query_offset, "strength": strength})


_TWO_SIDED_SCORE_FAULTS = (
    Fault(
        "one position early",
        "The steps are those for a query_offset that is smaller by 1. Either the queries are counted from one position "
        "too early, or the steps of an earlier call, with that offset, are kept in the module and used again.",
        see=_CLASS,
        first=lambda offset, length, key_length: max(offset - 1, 0),
    ),
    Fault(
        "hides keys",
        "The score hides keys by itself. It should leave the mask alone: attention applies it to the scores later.",
        see=_CLASS,
        hide=lambda scores, mask: scores.masked_fill(~mask, -math.inf),
    ),
    Fault(
        "hides the visible keys",
        "The score hides keys by itself, and those that may be seen: True in a mask means visible. It should leave the "
        "mask alone: attention applies it to the scores later.",
        see=_CLASS,
        hide=lambda scores, mask: scores.masked_fill(mask, -math.inf),
    ),
    Fault(
        "no price below 0",
        "A price below 0, which would draw attention to its side, counts as 0. Does a relu or a clamp cut it off, or "
        "the larger of two terms, one of which is always 0? Prices may have any sign, and the two terms are added.",
        see=_CLASS,
        combine=lambda scores, penalty: scores - penalty.clamp(min=0),
    ),
    Fault(
        "not a parameter",
        "No optimiser finds `strength`: a plain tensor or a buffer is no nn.Parameter, and one with "
        "requires_grad=False does not learn.",
        see=_CLASS,
        register=lambda x: x,
    ),
    Fault(
        "one pair for all heads",
        "All heads share two prices. Each head should have its own pair: shape (num_heads, 2).",
        see=_CLASS,
        shape=lambda num_heads: (2,),
        slopes=lambda strength: (strength[:1], strength[1:]),
    ),
    Fault(
        "one slope for both sides",
        "Each head has one price, and treats left and right alike. It needs two: shape (num_heads, 2).",
        shape=lambda num_heads: (num_heads,),
        slopes=lambda strength: (strength, strength),
    ),
    Fault(
        "second slope unused",
        "The left price serves both sides. Keys with j > i have a price of their own, strength[:, 1].",
        slopes=lambda strength: (strength[:, 0], strength[:, 0]),
    ),
    Fault(
        "one head's slopes for all",
        "All heads use the prices of head 0. Head h has its own, strength[h].",
        see=_CLASS,
        slopes=lambda strength: (strength[:1, 0], strength[:1, 1]),
    ),
    Fault(
        "both slopes on both sides",
        "Each side pays both prices. Steps to the left cost strength[:, 0], steps to the right strength[:, 1].",
        slopes=lambda strength: (strength.sum(dim=-1), strength.sum(dim=-1)),
    ),
    Fault(
        "slopes averaged",
        "Both sides pay the mean of the two prices, which makes left and right alike again.",
        slopes=lambda strength: (strength.mean(dim=-1), strength.mean(dim=-1)),
    ),
    Fault(
        "absolute slopes",
        "Your prices lose their sign. They should keep it: training may make a price negative, and that side then "
        "favours what is far.",
        see="Can gradient descent find a price?",
        slopes=lambda strength: (strength[:, 0].abs(), strength[:, 1].abs()),
    ),
    Fault(
        "sides in front",
        "Rows of `strength` are taken as sides, (2, H). They are heads: left prices are strength[:, 0], right ones "
        "strength[:, 1].",
        shape=lambda num_heads: (2, num_heads),
        slopes=lambda strength: (strength[0], strength[1]),
    ),
    Fault("starts at 0", "The prices start at 0. They are to start at 0.1.", see=_CLASS, start=0.0),
    Fault("starts at 1", "The prices start at 1. They are to start at 0.1.", see=_CLASS, start=1.0),
    Fault(
        "left and right exchanged",
        "Left and right are exchanged: a key with j < i is to the left and takes strength[:, 0].",
        sides=lambda ahead: (ahead.clamp(min=0), -ahead.clamp(max=0)),
    ),
    Fault(
        "sides by the diagonal",
        "The sides are separated by tril and triu, which know nothing of query_offset. Compare j with i.",
        sides=lambda ahead: (ahead.abs().tril(), ahead.abs().triu()),
    ),
    Fault(
        "penalty transposed",
        "The penalty lies on its side: queries are rows, (L, 1), and keys are columns, (S,).",
        see=_CLASS,
        combine=lambda scores, penalty: scores - penalty.transpose(-2, -1),
    ),
    Fault(
        "left only",
        "Keys on the right cost nothing. They have a price of their own, strength[:, 1].",
        sides=lambda ahead: (-ahead.clamp(max=0), 0 * ahead),
    ),
    Fault(
        "right only",
        "Keys on the left cost nothing. They have a price of their own, strength[:, 0].",
        sides=lambda ahead: (0 * ahead, ahead.clamp(min=0)),
    ),
    Fault(
        "wrong sign",
        "The penalty is added, so that far tokens are favoured. Subtract it.",
        see=_BREAK,
        combine=lambda scores, penalty: scores + penalty,
    ),
    Fault(
        "multiplied",
        "The scores are multiplied by e^(−penalty). Subtract the penalty; the softmax makes a factor of it.",
        see=_FORMULA,
        combine=lambda scores, penalty: scores * (-penalty).exp(),
    ),
    Fault(
        "no penalty",
        "The scores do not depend on `strength`: it is not used, or it was used once, in __init__. Training changes it "
        "later, so take it in forward.",
        see=_CLASS,
        combine=lambda scores, penalty: scores,
    ),
    Fault(
        "signed distance",
        "The distances are not cut at 0: what is behind counts negatively for the other side. Clamp each side.",
        sides=lambda ahead: (-ahead, ahead),
    ),
    Fault(
        "signed distance to the right",
        "The price is chosen for the side, but the distance keeps its sign: on the right i − j is negative, which "
        "rewards distance. Take |i − j|.",
        see=_BREAK,
        sides=lambda ahead: (-ahead.clamp(max=0), -ahead.clamp(min=0)),
    ),
    Fault(
        "signed distance to the left",
        "The price is chosen for the side, but the distance keeps its sign: on the left j − i is negative, which "
        "rewards distance. Take |i − j|.",
        see=_BREAK,
        sides=lambda ahead: (ahead.clamp(max=0), ahead.clamp(min=0)),
    ),
    Fault(
        "distance squared",
        "The distances are squared. The penalty grows by the same λ with every step.",
        see=_BREAK,
        sides=lambda ahead: (ahead.clamp(max=0) ** 2, ahead.clamp(min=0) ** 2),
    ),
    Fault(
        "counted from 1",
        "A neighbour is taken to be two steps away. Left of position i, key j is i − j steps away.",
        sides=lambda ahead: ((1 - ahead) * (ahead < 0), (1 + ahead) * (ahead > 0)),
    ),
    Fault(
        "once, however far",
        "The price is charged once, however far away a key is. Each step costs it: multiply by |i − j|.",
        sides=lambda ahead: (ahead < 0, ahead > 0),
    ),
    Fault(
        "once, the own place on the right",
        "The price is charged once, however far away a key is, and the query's own place, j = i, pays that of the "
        "right. Each step costs it: multiply by |i − j|, which is 0 there.",
        sides=lambda ahead: (ahead < 0, ahead >= 0),
    ),
    Fault(
        "once, the own place on the left",
        "The price is charged once, however far away a key is, and the query's own place, j = i, pays that of the "
        "left. Each step costs it: multiply by |i − j|, which is 0 there.",
        sides=lambda ahead: (ahead <= 0, ahead > 0),
    ),
    Fault(
        "divided by the length",
        "The distances are divided by the number of keys. One step costs λ, however long the sequence is.",
        see=_FORMULA,
        unit=lambda key_length: key_length,
    ),
    Fault(
        "penalty scaled too",
        "The penalty is divided by √D as well. Only the dot product is: q · k / √D − λ|i − j|.",
        see=_FORMULA,
        scale=lambda head_dim: 1.0,
        finish=lambda scores, head_dim: scores / math.sqrt(head_dim),
    ),
    Fault(
        "no scale",
        "The dot product is not divided by √D. The penalty comes on top of that.",
        see=_FORMULA,
        scale=lambda head_dim: 1.0,
    ),
    Fault(
        "divided by D",
        "The dot product is divided by D; it is √D.",
        see=_FORMULA,
        scale=lambda head_dim: 1 / head_dim,
    ),
    Fault(
        "offset ignored",
        "Distances are as if the first query stood at position 0. Queries stand at query_offset, query_offset + 1, …, "
        "and keys at 0, 1, …: the offset belongs to the queries, and to them alone.",
        see=_CLASS,
        first=lambda offset, length, key_length: 0,
    ),
    Fault(
        "offset on the keys",
        "The keys' positions have query_offset added. It moves the queries: i starts there, j at 0.",
        see=_CLASS,
        first=lambda offset, length, key_length: -offset,
    ),
    Fault(
        "queries at the end",
        "The queries are taken to be the last ones. They start at position query_offset, which the caller gives.",
        see=_CLASS,
        first=lambda offset, length, key_length: key_length - length,
    ),
    Fault(
        "along the keys",
        "Broadcasting begins at the last axis, so the prices land on the keys. Shape (H, 1, 1) meets the heads.",
        see=_CLASS,
        align=lambda slope: slope,
    ),
    Fault(
        "along the queries",
        "The prices run along the queries, as those of shape (H, 1) do. Shape (H, 1, 1) meets the heads.",
        see=_CLASS,
        align=lambda slope: slope[:, None],
    ),
    Fault(
        "softmax inside",
        "Your result has been through a softmax, so it holds weights. It should hold the scores: the layer takes the "
        "softmax itself.",
        see=_CLASS,
        finish=lambda scores, head_dim: scores.softmax(dim=-1),
    ),
    Fault(
        "queries and keys exchanged",
        "Queries and keys are exchanged: row i has to hold query i against every key.",
        see=_FORMULA,
        product=lambda query, key: key @ query.transpose(-2, -1),
    ),
)


def grid_scores(
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    width: int,
    *,
    locate: Callable[..., tuple[Tensor, Tensor]] = lambda token, width: (token // width, token % width),
    down: Callable[..., Tensor] = lambda row, column: row - row[:, None],
    right: Callable[..., Tensor] = lambda row, column: column - column[:, None],
    part: Callable[..., tuple[Tensor, Tensor]] = lambda ahead: ((-ahead).clamp(min=0), ahead.clamp(min=0)),
    order: tuple[int, ...] = (0, 1, 2, 3),
    slopes: Callable[..., Tensor] = lambda strength: strength,
    combine: Callable[..., Tensor] = lambda scores, penalty: scores - penalty,
    scale: Callable[..., float] = lambda head_dim: head_dim**-0.5,
    finish: Callable[..., Tensor] = lambda scores, head_dim: scores,
) -> Tensor:
    """Scaled dot product minus a slope of its own for each step left, right, above and below, (B, H, L, L)."""
    L, D = query.shape[-2:]
    row, column = locate(torch.arange(L, device=query.device), width)  # (L,) each
    sides = [*part(right(row, column)), *part(down(row, column))]  # left, right, above, below: (L, L) each
    costs = zip(slopes(strength).unbind(dim=-1), (sides[n] for n in order), strict=True)
    penalty = sum(slope[:, None, None] * side for slope, side in costs)  # (H, L, L)
    return finish(combine(query @ key.transpose(-2, -1) * scale(D), penalty), D)


def _grid_scores_cases(draw: Draw) -> Iterator[Case]:
    for name, batch, num_heads, rows, width, head_dim in (
        ("2 rows of 2 tokens, 1 head of size 2", 1, 1, 2, 2, 2),
        ("2 rows of 3 tokens, 2 heads of size 3", 1, 2, 2, 3, 3),
        ("5 rows of 3 tokens, 3 heads of size 2", 2, 3, 5, 3, 2),
    ):
        query, key = (draw.normal(batch, num_heads, rows * width, head_dim) for _ in range(2))
        # Never 0, and never the same twice: else a slope on the wrong side might not show. One is negative.
        strength = (0.3 * draw.permutation(4 * num_heads).to(query) - 0.2).view(num_heads, 4)
        yield Case(name, {"query": query, "key": key, "strength": strength, "width": width})


def _columns_by_order(row: Tensor, column: Tensor) -> Tensor:
    """How many columns lie between two tokens, positive where the key comes later in the sequence."""
    token = torch.arange(len(column), device=column.device)
    return (column - column[:, None]).abs() * (token - token[:, None]).sign()


_SIDES = ("left", "right", "above", "below")


def _of_the_difference() -> Iterator[Fault]:
    """Rows and columns of how far a token is ahead or behind, for both or for one of them."""
    for ahead, says in ((1, "j − i"), (-1, "i − j")):

        def steps(row: Tensor, column: Tensor, ahead: int = ahead) -> dict[str, Tensor]:
            width = int(column.max()) + 1
            token = row * width + column
            difference = ahead * (token - token[:, None])
            return {"down": ahead * (difference // width), "right": ahead * (difference % width)}

        taken: dict[str, Any] = {
            way: lambda row, column, way=way, steps=steps: steps(row, column)[way] for way in ("down", "right")
        }
        for name, ways, wrong in (
            ("rows and columns", ("down", "right"), "Rows and columns are"),
            ("rows", ("down",), "The steps up and down are"),
            ("columns", ("right",), "The steps to the left and right are"),
        ):
            yield Fault(
                f"{name} of {says}",
                f"{wrong} taken from {says} by // and %. A remainder is never negative, and // rounds down, so the "
                "result is not the difference of two rows or columns. Take each token's own row and column first, and "
                "subtract those.",
                see=_IMAGE,
                **{way: taken[way] for way in ways},
            )


_GRID_SCORES_FAULTS = (
    Fault(
        "columns only within the row",
        "Steps to the left and right cost something only for keys in the query's own row. A key in another row and "
        "another column pays for both.",
        right=lambda row, column: (column - column[:, None]) * (row == row[:, None]),
    ),
    Fault(
        "rows only within the column",
        "Steps up and down cost something only for keys in the query's own column. A key in another row and another "
        "column pays for both.",
        down=lambda row, column: (row - row[:, None]) * (column == column[:, None]),
    ),
    Fault(
        "left and right exchanged",
        "Left and right are exchanged: a key in an earlier column is to the left and costs strength[:, 0] a step.",
        order=(1, 0, 2, 3),
    ),
    Fault(
        "above and below exchanged",
        "Above and below are exchanged: a key in an earlier row is above and costs strength[:, 2] a step.",
        order=(0, 1, 3, 2),
    ),
    Fault(
        "rows before columns",
        "Steps between rows cost the prices of left and right, and steps between columns those of above and below. "
        "The order is left, right, above, below; the row is token // width, and the column token % width.",
        order=(2, 3, 0, 1),
    ),
    Fault(
        "from the key to the query",
        "All sides are turned round: keys on the left cost the price of the right, and keys above that of below. Seen "
        "from the query, a key in an earlier column is on the left: its column minus the query's is negative.",
        order=(1, 0, 3, 2),
    ),
    *(
        Fault(
            f"in the order {order}",
            f"The four prices are taken in the order {order}. It is left, right, above, below: strength[:, 1] is the "
            "price of a step to the right, strength[:, 2] that of a step up.",
            order=tuple(_SIDES.index(side) for side in order.split(", ")),
        )
        for order in (
            "left, above, right, below",
            "left, below, right, above",
            "above, left, below, right",
            "above, left, right, below",
            "above, right, below, left",
            "right, above, left, below",
        )
    ),
    *_of_the_difference(),
    Fault(
        "along the sequence",
        "Left and right count the steps along the sequence, |i − j|. They count columns: token % width.",
        see=_IMAGE,
        locate=lambda token, width: (token // width, token),
    ),
    Fault(
        "left is earlier in the sequence",
        "Left and right are decided by j < i, the order in the sequence. A key in an earlier row can stand in a later "
        "column: compare the columns.",
        see=_IMAGE,
        right=_columns_by_order,
    ),
    Fault(
        "once, however far",
        "Each side's price is charged once, however many columns or rows lie between. Each step costs it: multiply by "
        "the number of steps to that side.",
        see=_FORMULA,
        part=lambda ahead: (ahead < 0, ahead > 0),
    ),
    Fault(
        "no whole rows",
        "The division leaves fractions of a row. // gives the whole rows.",
        see=_IMAGE,
        locate=lambda token, width: (token / width, token % width),
    ),
    Fault(
        "columns only",
        "Steps up and down cost nothing. Above and below have prices of their own, strength[:, 2] and strength[:, 3].",
        down=lambda row, column: torch.zeros_like(row - row[:, None]),
    ),
    Fault(
        "rows only",
        "Steps to the left and right cost nothing. They have prices of their own, strength[:, 0] and strength[:, 1].",
        right=lambda row, column: torch.zeros_like(column - column[:, None]),
    ),
    Fault(
        "signed steps",
        "The steps are not cut at 0: what lies on one side counts negatively for the other. Clamp each side at 0.",
        part=lambda ahead: (-ahead, ahead),
    ),
    Fault(
        "both sides pay both",
        "A step to the left costs both the left and the right price, and so it is with above and below. Clamp at 0, so "
        "that a key lies on one side only.",
        part=lambda ahead: (ahead.abs(), ahead.abs()),
    ),
    Fault(
        "steps squared",
        "The steps are squared. The penalty grows by the same price with every step.",
        see=_BREAK,
        part=lambda ahead: ((-ahead).clamp(min=0) ** 2, ahead.clamp(min=0) ** 2),
    ),
    Fault(
        "one slope for all sides",
        "All four sides cost strength[:, 0]. Each side has a price of its own.",
        slopes=lambda strength: strength[:, :1].expand_as(strength),
    ),
    Fault(
        "one head's slopes for all",
        "All heads use the prices of head 0. Head h has its own, strength[h].",
        slopes=lambda strength: strength[:1].expand_as(strength),
    ),
    Fault(
        "wrong sign",
        "The penalty is added, so that far tokens are favoured. Subtract it.",
        see=_BREAK,
        combine=lambda scores, penalty: scores + penalty,
    ),
    Fault(
        "no penalty",
        "The scores do not depend on `strength`: this is the plain scaled dot product.",
        combine=lambda scores, penalty: scores,
    ),
    Fault(
        "no scale",
        "The dot product is not divided by √D. The penalty comes on top of that.",
        see=_FORMULA,
        scale=lambda head_dim: 1.0,
    ),
    Fault(
        "penalty scaled too",
        "The penalty is divided by √D as well. Only the dot product is.",
        see=_FORMULA,
        scale=lambda head_dim: 1.0,
        finish=lambda scores, head_dim: scores / math.sqrt(head_dim),
    ),
    Fault(
        "softmax inside",
        "Your result has been through a softmax, so it holds weights. It should hold the scores: the layer takes the "
        "softmax itself.",
        see=_CLASS,
        finish=lambda scores, head_dim: scores.softmax(dim=-1),
    ),
    Fault(
        "steps left and above negative",
        "The steps to the left and above are negative numbers, so that these two prices are paid out. Turn their sign "
        "round before you multiply.",
        part=lambda ahead: (ahead.clamp(max=0), ahead.clamp(min=0)),
    ),
)


def with_time(
    query: Tensor,
    key: Tensor,
    times: Tensor,
    strength: Tensor,
    *,
    contents: Callable[..., Tensor] = lambda query, D: query * math.sqrt((D + 1) / D),
    ask: Callable[..., Tensor] = lambda one, times: one,
    clock: Callable[..., Tensor] = lambda times: times,
    slope: Callable[..., Tensor] = lambda strength: strength,
    factor: Callable[..., float] = lambda D: math.sqrt(D + 1),
) -> tuple[Tensor, Tensor]:
    """Queries and keys with one more feature, so that plain causal attention subtracts λ times the time between."""
    D = query.shape[-1]
    asked = ask(torch.ones_like(query[..., :1]), times)  # (B, H, L, 1)
    mark = factor(D) * slope(strength)[:, None] * clock(times)  # (H, L)
    mark = mark.expand(query.shape[:-1])[..., None]  # (B, H, L, 1)
    return torch.cat([contents(query, D), asked], dim=-1), torch.cat([key, mark], dim=-1)


def _attend_in_time(
    answer: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, times: Tensor, strength: Tensor
) -> Tensor:
    """What counts is what torch makes of the longer vectors: there are many ways to share out the factors."""
    longer = answer(query, key, times, strength)
    longer_query, longer_key = pair(longer, "the longer query", "the longer key")
    return F.scaled_dot_product_attention(longer_query, longer_key, value.to(longer_query), is_causal=True)


def _with_time_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, batch: int, num_heads: int, length: int, head_dim: int) -> Case:
        query, key, value = (draw.normal(batch, num_heads, length, head_dim) for _ in range(3))
        times = (
            2 + draw.integers(4, 9, length).cumsum(dim=0).to(query) / 4
        )  # unlike positions: no start at 0, no even pace
        strength = (draw.permutation(num_heads).to(query) + 1) / 5
        return Case(name, {"query": query, "key": key, "value": value, "times": times, "strength": strength})

    yield case("2 tokens, 1 head of size 2", 1, 1, 2, 2)
    yield case("2 tokens, 2 heads of size 2", 1, 2, 2, 2)
    yield case("2 sequences of 7 tokens, 3 heads of size 5", 2, 3, 7, 5)


_WITH_TIME_FAULTS = (
    Fault(
        "wrong sign",
        "The score gets −λ t_j, so that the oldest keys are favoured most. "
        "−λ(t_i − t_j) = −λt_i + λt_j: a later key gets more.",
        factor=lambda D: -math.sqrt(D + 1),
    ),
    Fault(
        "cancelled",
        "The penalty has no effect. What belongs to the query alone, −λt_i, adds the same to its whole row, and the "
        "softmax cancels it. The keys have to carry λt_j, and the queries 1.",
        factor=lambda D: 0.0,
    ),
    Fault(
        "time on both",
        "The new features of query and key both hold the time, so that the score gets λ t_i t_j. In the query, 1 "
        "should stand in place of the time: λ alone.",
        ask=lambda one, times: one * times[:, None],
    ),
    Fault(
        "λ on both",
        "Both the query's new feature and the key's hold λ: the score gets λ². One of them should hold it.",
        slope=lambda strength: strength**2,
    ),
    Fault(
        "λ forgotten",
        "The prices are missing: every head subtracts 1 for each unit of time, where it should be λ.",
        slope=lambda strength: torch.ones_like(strength),
    ),
    Fault(
        "one slope for all heads",
        "All heads use the first price. Head h has strength[h].",
        slope=lambda strength: strength[:1].expand_as(strength),
    ),
    Fault(
        "positions in place of times",
        "The keys carry their positions, 0, 1, 2, … These tokens come at `times`, which are not evenly spaced.",
        clock=lambda times: torch.arange(len(times), device=times.device).to(times),
    ),
    Fault(
        "steps between neighbours",
        "The keys carry the time since the key before. The times themselves are enough: the softmax sees only their "
        "differences.",
        clock=lambda times: torch.cat([times[:1] * 0, times.diff()]),
    ),
    Fault(
        "times squared",
        "The times are squared; the penalty is λ times the time itself.",
        clock=lambda times: times**2,
    ),
    Fault(
        "scale of the shorter vectors",
        "Both factors are those for D features. torch sees D + 1 and divides by √(D + 1): the contents need the factor "
        "√(D + 1)/√D, and one of the new features, the query's or the key's, √(D + 1).",
        contents=lambda query, D: query,
        factor=lambda D: math.sqrt(D),
    ),
    Fault(
        "two features more, factors for D + 1",
        "Two features are appended, and the factors are those for one. torch sees D + 2 and divides by √(D + 2): "
        "multiply by that, or append one feature only.",
        contents=lambda query, D: query * (D + 1) / math.sqrt(D * (D + 2)),
        factor=lambda D: (D + 1) / math.sqrt(D + 2),
    ),
    Fault(
        "two features more, factors for D",
        "Two features are appended, and the factors are those for none. torch sees D + 2 and divides by √(D + 2): "
        "multiply by that, or append one feature only.",
        contents=lambda query, D: query * math.sqrt((D + 1) / (D + 2)),
        factor=lambda D: math.sqrt(D * (D + 1) / (D + 2)),
    ),
    Fault(
        "contents not rescaled",
        "The penalty is right, but q · k is now divided by √(D + 1) in place of √D. "
        "Multiply the queries by √(D + 1)/√D.",
        contents=lambda query, D: query,
    ),
    Fault(
        "contents rescaled the wrong way",
        "The factor of the queries is upside down: √D/√(D + 1) in place of √(D + 1)/√D.",
        contents=lambda query, D: query * math.sqrt(D / (D + 1)),
    ),
    Fault(
        "contents rescaled twice",
        "The contents are rescaled in the query and in the key. Once is enough.",
        contents=lambda query, D: query * (D + 1) / D,
    ),
    Fault(
        "contents scaled already",
        "The queries are divided by √D, and torch divides once more. Multiply them by √(D + 1)/√D.",
        contents=lambda query, D: query / math.sqrt(D),
    ),
    Fault(
        "contents not divided by √D",
        "The queries are multiplied by √(D + 1), which undoes torch's scale. Then 1/√D is missing.",
        contents=lambda query, D: query * math.sqrt(D + 1),
    ),
    Fault(
        "√D in the new feature",
        "The new feature has the factor √D. torch divides by the root of the longer size, √(D + 1).",
        factor=lambda D: math.sqrt(D),
    ),
    Fault(
        "no root in the new feature",
        "The new features give λt as it is, and torch divides it by √(D + 1). Multiply one of them by that first.",
        factor=lambda D: 1.0,
    ),
    Fault(
        "nothing rescaled",
        "Neither part is rescaled: q · k and λt are both divided by √(D + 1). Multiply the queries by √(D + 1)/√D, "
        "and one of the new features by √(D + 1).",
        contents=lambda query, D: query,
        factor=lambda D: 1.0,
    ),
    Fault(
        "one of two new features not rescaled",
        "With two new features torch divides by √(D + 2), and λt of the key is not multiplied by that first. It is "
        "what counts, since λt of the query is the same for all keys: rescale both.",
        factor=lambda D: math.sqrt((D + 1) / (D + 2)),
    ),
    Fault(
        "rescaled with the queries",
        "The new feature is appended to the queries before they are rescaled, so that it grows by √(D + 1)/√D as well. "
        "Append it afterwards.",
        factor=lambda D: (D + 1) / math.sqrt(D),
    ),
    Fault(
        "D + 1 in the new feature",
        "The new feature has the factor D + 1; torch divides by the root of that, so it takes the root.",
        factor=lambda D: D + 1.0,
    ),
)

EXERCISES = (
    Exercise(
        distance_scores,
        notebook="07",
        section=_FORMULA,
        level="middle",
        minutes=8,
        hints=(
            "`i` is a column of L positions that starts at `query_offset`, (L, 1), and `j` a row of S positions, (S,). "
            "Then `(i - j).abs()` is (L, S).",
            "`strength` holds H numbers. Which shape puts them over (H, L, S)? The penalty is not divided by √D.",
        ),
        cases=_distance_scores_cases,
        faults=_DISTANCE_SCORES_FAULTS,
    ),
    Exercise(
        TwoSidedScore,
        notebook="07",
        section=_CURE,
        level="middle",
        minutes=10,
        hints=(
            "Your `distance_scores` and `MyDistanceBiased` together have nearly all of it. Only one distance becomes "
            "two, each of which is 0 on the other side.",
            "`(i - j).clamp(min=0)` counts the steps to the left, (L, S). `self.strength[:, 0]` are H numbers; "
            "which shape puts them over (H, L, S)?",
        ),
        cases=_two_sided_score_cases,
        faults=_TWO_SIDED_SCORE_FAULTS,
        call=_try_slopes,
        returns=("strength at the start", "scores"),
    ),
    Exercise(
        grid_distance,
        notebook="07",
        section=_IMAGE,
        level="easy",
        minutes=5,
        hints=(
            "In which row does token 30 stand, if a row has 28? In which column?",
            "`token // width` and `token % width` are rows and columns, (L,) each. (L, 1) minus (L,) gives (L, L).",
        ),
        cases=_grid_distance_cases,
        faults=_GRID_DISTANCE_FAULTS,
        call=_any_number,
    ),
    Exercise(
        grid_scores,
        notebook="07",
        section=_GRID,
        level="middle",
        minutes=10,
        hints=(
            "`right = column - column[:, None]` says how many columns a key lies to the right of a query, negative if "
            "it lies to the left. `right.clamp(min=0)` keeps the right side alone; what keeps the left one?",
            "Stack the four sides, (4, L, L), in the order of the prices. "
            '`torch.einsum("ha,aij->hij", strength, sides)` multiplies and adds; whole numbers need '
            "`.to(strength.dtype)` first.",
        ),
        cases=_grid_scores_cases,
        faults=_GRID_SCORES_FAULTS,
    ),
    Exercise(
        with_time,
        notebook="07",
        section=_CAUSAL,
        level="hard",
        minutes=12,
        hints=(
            "As in *Under a causal mask*: what belongs to the query alone cancels. Which part of "
            "$-\\lambda(t_i - t_j)$ is left?",
            "torch divides everything by $\\sqrt{D + 1}$. Undo that for the new number; the contents are to be "
            "divided by $\\sqrt D$ instead.",
        ),
        cases=_with_time_cases,
        faults=_WITH_TIME_FAULTS,
        call=_attend_in_time,
        returns=("output",),
    ),
)
