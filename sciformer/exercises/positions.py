"""Exercises of notebook 04: positions.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_SINUSOIDAL = "A vector for each position: sinusoidal"
_CLOCKS = "A row of clocks"
_ROTATION = "Moving every position on"
_ADDED = "Tell the words where they stand"
_AFTERWARDS = "Break it: before or after?"
_ROTARY = "Rotary: turn the queries and the keys"


def attend_in_order(
    x: Tensor,
    table: Tensor,
    attention: Callable[[Tensor], Tensor],
    *,
    positions: Callable[[Tensor, Tensor], Tensor] = lambda x, table: table[: x.shape[1]],
    combine: Callable[[Tensor, Tensor], Tensor] = lambda x, p: x + p,
    attend: Callable[..., Tensor] = lambda attention, x: attention(x),
    after: Callable[..., Tensor] = lambda y, p, attention: y,
) -> Tensor:
    """Attention over tokens (B, L, E) plus their positions, rows of a table (max_length, E)."""
    p = positions(x, table)
    return after(attend(attention, combine(x, p)), p, attention)


def _attend_in_order_cases(draw: Draw) -> Iterator[Case]:
    def attention(x: Tensor) -> Tensor:
        return (x @ x.mT).softmax(dim=-1) @ x / x.shape[1]  # L, if there is a batch

    for B, L, E, rows in ((1, 2, 2, 3), (2, 3, 2, 7), (3, 5, 4, 17)):
        name = f"{B} sentence{'s' * (B > 1)} of {L} words, a table of {rows} positions"
        yield Case(name, {"x": draw.normal(B, L, E), "table": draw.normal(rows, E), "attention": attention})


_ATTEND_IN_ORDER_FAULTS = (
    Fault(
        "batch and words exchanged",
        "The axes of batch and words are exchanged, so that words of different sentences look at one another.",
        attend=lambda attention, x: attention(x.transpose(0, 1)).transpose(0, 1),
    ),
    Fault(
        "not added",
        "The positions have no effect: the numbers are those of attention over the bare words.",
        combine=lambda x, p: x,
    ),
    Fault(
        "added afterwards",
        "The positions are added after the attention, which has looked around without knowing them.",
        see=_AFTERWARDS,
        combine=lambda x, p: x,
        after=lambda y, p, attention: y + p,
    ),
    Fault(
        "added twice",
        "The positions are added in front and again behind the attention. Once, in front, is enough.",
        see=_AFTERWARDS,
        after=lambda y, p, attention: y + p,
    ),
    Fault(
        "attended apart",
        "Words and positions attend separately, and their outputs are added. Add them first: then a word's score "
        "depends on its position.",
        combine=lambda x, p: x,
        after=lambda y, p, attention: y + attention(p[None]),
    ),
    Fault(
        "attended apart, without a batch",
        "The rows of the table attend by themselves, and the outputs are added. Add the rows to the words first: then "
        "a word's score depends on its position.",
        combine=lambda x, p: x,
        after=lambda y, p, attention: y + attention(p),
    ),
    Fault(
        "sentence by sentence",
        "Each sentence is given to `attention` by itself, (L, E). It takes a batch of them, (B, L, E), all at once.",
        attend=lambda attention, x: torch.stack([attention(sentence) for sentence in x]),
    ),
    Fault(
        "no attention",
        "These are the words with their positions. They still have to look at each other: call attention on all of "
        "them at once.",
        attend=lambda attention, x: x,
    ),
    Fault(
        "input added",
        "The attention's input is added to its output. That is a residual connection, which notebook 05 is about; "
        "here the output alone is wanted.",
        attend=lambda attention, x: x + attention(x),
    ),
    Fault(
        "side by side",
        "The positions stand beside the words, which doubles the width. Here they are added.",
        combine=lambda x, p: torch.cat([x, p.expand_as(x)], dim=-1),
    ),
    Fault(
        "multiplied",
        "The words are multiplied by the positions; they are to be added.",
        combine=lambda x, p: x * p,
    ),
    Fault(
        "subtracted",
        "The positions are subtracted from the words; they are to be added.",
        combine=lambda x, p: x - p,
    ),
    Fault(
        "words scaled",
        "The words are multiplied by √E first. The paper's section 3.4 does so, but here x is taken as it comes.",
        combine=lambda x, p: x * math.sqrt(x.shape[-1]) + p,
    ),
    Fault(
        "over the batch",
        "The rows of the table are counted by the batch: as many as there are sentences, len(x), or one vector for all "
        "words of a sentence. A word's row is its place in the sentence: the first L rows, L = x.shape[1].",
        positions=lambda x, table: table[: len(x), None],
    ),
    Fault(
        "counted through the batch",
        "The positions are counted on from one sentence to the next. Each sentence starts at position 0.",
        positions=lambda x, table: table[torch.arange(x.shape[0] * x.shape[1]) % len(table)].view_as(x),
    ),
    Fault(
        "one row for all",
        "All words get the same vector, row L of the table. The words take its first L rows: a slice, table[:L].",
        positions=lambda x, table: table[x.shape[1]],
    ),
    Fault(
        "last rows",
        "The words get the last rows of the table; position 0 is its first row.",
        positions=lambda x, table: table[-x.shape[1] :],
    ),
    Fault(
        "counted from 1",
        "The positions are counted from 1: the first word should get row 0.",
        positions=lambda x, table: table[1 : x.shape[1] + 1],
    ),
    Fault(
        "turned round",
        "The first word gets the position of the last, and the last that of the first.",
        positions=lambda x, table: table[: x.shape[1]].flip(0),
    ),
)


# In both exercises that follow, the frequency of pair i is 10000 to the power of minus its exponent.
_EXPONENT_FAULTS = (
    Fault(
        "exponent halved",
        "The exponent is i/E. With i counting the pairs it has to be 2i/E, so that the slowest comes near 1/10000.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: pair / E,
    ),
    Fault(
        "exponent doubled",
        "The exponent is 4i/E, twice what it should be. Note that arange(0, E, 2) is 2i already.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: 4 * pair / E,
    ),
    Fault(
        "exponent of the wrong sign",
        "The frequencies grow from pair to pair, up to nearly 10000: it should be 10000 to the power of minus 2i/E.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: -2 * pair / E,
    ),
    Fault(
        "frequencies in the wrong order",
        "The slowest pair comes first. Pair 0 is the fastest, with frequency 1.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: (E - 2 - 2 * pair) / E,
    ),
    Fault(
        "one frequency for all",
        "All pairs turn at frequency 1; pair i has a frequency of its own.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: 0 * pair,
    ),
    Fault(
        "1000",
        "The base is 1000; it is 10000.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: 2 * pair / E * 0.75,
    ),
    Fault(
        "10000 forgotten",
        "The 10000 is missing: exp(−2i/E) only falls from 1 to about 1/e.",
        see=_SINUSOIDAL,
        exponent=lambda pair, E: 2 * pair / E / math.log(10000.0),
    ),
)


def sinusoidal_table(
    length: int,
    embed_dim: int,
    *,
    position: Callable[[int], Tensor] = lambda length: torch.arange(length),
    exponent: Callable[[Tensor, int], Tensor] = lambda pair, E: 2 * pair / E,
    pair: Callable[[Tensor], Tensor] = lambda column: column // 2,
    wave: Callable[[Tensor, Tensor], Tensor] = lambda angle, odd: torch.where(odd, angle.cos(), angle.sin()),
    layout: Callable[[Tensor], Tensor] = lambda table: table,
) -> Tensor:
    """Sinusoidal positions, (L, E)."""
    column = torch.arange(embed_dim)
    frequency = 10000.0 ** -exponent(pair(column), embed_dim)  # (E,): each twice
    return layout(wave(position(length)[:, None] * frequency, column % 2 == 1))


def _sinusoidal_table_cases(draw: Draw) -> Iterator[Case]:
    for length, embed_dim in ((2, 2), (3, 4), (5, 6), (11, 4), (7, 10)):
        yield Case(f"{length} positions, {embed_dim} wide", {"length": length, "embed_dim": embed_dim})


_SINUSOIDAL_TABLE_FAULTS = (
    Fault(
        "two slashes",
        "The factor in the exponent is rounded to a whole number: in `a / b // 2` the `//` is worked off last. Put "
        "parentheses around `embed_dim // 2`.",
        exponent=lambda pair, E: -pair * ((-math.log(10000.0) / E) // 2) / math.log(10000.0),
    ),
    Fault(
        "sine and cosine exchanged",
        "Sines and cosines are exchanged: even columns hold the sine, odd ones the cosine.",
        wave=lambda angle, odd: torch.where(odd, angle.sin(), angle.cos()),
    ),
    Fault(
        "sines only",
        "All columns are sines. The second feature of each pair is the cosine.",
        wave=lambda angle, odd: angle.sin(),
    ),
    Fault(
        "by rows",
        "Your sines and cosines take turns from row to row. They should take turns from column to column.",
        wave=lambda angle, odd: torch.where(torch.arange(len(angle))[:, None] % 2 == 1, angle.cos(), angle.sin()),
    ),
    Fault(
        "halves side by side",
        "All sines come first, then all cosines. Here they take turns: sin, cos, sin, cos.",
        layout=lambda table: torch.cat([table[:, 0::2], table[:, 1::2]], dim=-1),
    ),
    Fault(
        "not flattened",
        "Sine and cosine stand on an axis of their own. Flatten the last two axes: (L, E/2, 2) to (L, E).",
        layout=lambda table: table.unflatten(-1, (-1, 2)),
    ),
    Fault(
        "transposed",
        "The table lies on its side: positions are rows, features are columns.",
        layout=lambda table: table.T,
    ),
    Fault(
        "counted from 1",
        "The positions are counted from 1. The first row is position 0: sin 0 = 0, cos 0 = 1.",
        position=lambda length: torch.arange(1, length + 1),
    ),
    Fault(
        "a frequency for each column",
        "Sine and cosine of a pair have different frequencies: the exponent uses the column's own index. "
        "Columns 2i and 2i + 1 share 2i/E.",
        see=_CLOCKS,
        pair=lambda column: column / 2,
    ),
    Fault(
        "column in place of pair",
        "The exponent is 2c/E with c the index of the column. In 2i/E, i is the index of the pair: "
        "columns 2i and 2i + 1 share it.",
        pair=lambda column: column,
    ),
    Fault(
        "whole turns",
        "The angles are multiplied by 2π. The frequencies are in radians per step already.",
        position=lambda length: 2 * math.pi * torch.arange(length),
    ),
    Fault(
        "scaled positions",
        "The positions are divided by the length. They stay whole numbers, so that position 2 is the same at any "
        "length.",
        position=lambda length: torch.arange(length) / length,
    ),
    *_EXPONENT_FAULTS,
)


def shift_matrix(
    embed_dim: int,
    shift: int,
    *,
    exponent: Callable[[Tensor, int], Tensor] = lambda pair, E: 2 * pair / E,
    angle: Callable[[Tensor, int], Tensor] = lambda frequency, shift: frequency * shift,
    block: Callable[[Tensor, Tensor], list[list[Tensor]]] = lambda sin, cos: [[cos, -sin], [sin, cos]],
    repeat: Callable[[Tensor, int], Tensor] = lambda matrix, shift: matrix,
    layout: Callable[[Tensor], Tensor] = lambda matrix: matrix,
) -> Tensor:
    """The matrix M with waves[t] @ M = waves[t + shift] for every position t, (E, E)."""
    turned = angle(10000.0 ** -exponent(torch.arange(embed_dim // 2), embed_dim), shift)  # (E/2,)
    matrix = torch.block_diag(*(torch.tensor(block(b.sin(), b.cos())) for b in turned))
    return layout(repeat(matrix, shift))


def _shift_matrix_cases(draw: Draw) -> Iterator[Case]:
    for embed_dim in (2, 4, 6, 8):
        shift = int(draw.integers(2, 10, 1))
        yield Case(f"{embed_dim} wide, shift {shift}", {"embed_dim": embed_dim, "shift": shift})
    for shift in (0, 1):
        yield Case(f"4 wide, shift {shift}", {"embed_dim": 4, "shift": shift})


def _in_halves(matrix: Tensor) -> Tensor:
    columns = torch.arange(len(matrix))
    order = torch.cat([columns[0::2], columns[1::2]])
    return matrix[order][:, order]


_SHIFT_MATRIX_FAULTS = (
    Fault(
        "shifts back",
        "It turns the hands back: waves[t] @ M is position t − shift. Exchange the signs of the sines, or transpose; "
        "the matrix stands on the right of a row.",
        block=lambda sin, cos: [[cos, sin], [-sin, cos]],
    ),
    Fault(
        "no minus",
        "Both sines have the same sign. cos(a + b) = cos a cos b − sin a sin b has a minus.",
        block=lambda sin, cos: [[cos, sin], [sin, cos]],
    ),
    Fault(
        "minus on the wrong entry",
        "The minus stands on a cosine. It belongs to one of the sines.",
        block=lambda sin, cos: [[cos, sin], [sin, -cos]],
    ),
    Fault(
        "sine and cosine exchanged",
        "Sines and cosines are exchanged. A shift by 0 should change nothing: cos 0 = 1 is on the diagonal.",
        block=lambda sin, cos: [[sin, -cos], [cos, sin]],
    ),
    Fault(
        "cosines only",
        "Only the diagonal is filled. To turn a hand, its sine and its cosine have to mix.",
        block=lambda sin, cos: [[cos, 0 * sin], [0 * sin, cos]],
    ),
    Fault(
        "halves side by side",
        "It mixes column i with column i + E/2, as if all sines came first. Here each sine stands beside its cosine: "
        "columns 2i and 2i + 1.",
        layout=_in_halves,
    ),
    Fault(
        "blocks by themselves",
        "These are the blocks, (E/2, 2, 2). They belong along the diagonal of one matrix, with 0 everywhere else.",
        layout=lambda matrix: matrix.view(len(matrix) // 2, 2, -1, 2).diagonal(dim1=0, dim2=2).movedim(-1, 0),
    ),
    Fault(
        "identity",
        "Nothing moves: this is the identity. Each pair has to turn by its frequency times the shift.",
        angle=lambda frequency, shift: 0 * frequency,
    ),
    Fault(
        "frequency to a power",
        "The frequencies are raised to the power of the shift. k steps turn by k times the angle: multiply.",
        angle=lambda frequency, shift: frequency**shift,
    ),
    Fault(
        "shift forgotten",
        "It shifts by one position: the angle of pair i is its frequency times the shift.",
        angle=lambda frequency, shift: frequency,
    ),
    Fault(
        "entries times the shift",
        "The matrix of one step is multiplied by the shift, so that its entries grow. A shift turns further: multiply "
        "the angle by it, before the sine and the cosine.",
        angle=lambda frequency, shift: frequency,
        repeat=lambda matrix, shift: shift * matrix,
    ),
    Fault(
        "each entry to a power",
        "Each entry of the matrix of one step is raised to the power of the shift. Repeated steps are products of "
        "matrices: torch.linalg.matrix_power, or the angle times the shift.",
        angle=lambda frequency, shift: frequency,
        repeat=lambda matrix, shift: matrix**shift,
    ),
    Fault(
        "divided by the shift",
        "The angle is divided by the shift; a shift twice as long turns twice as far.",
        angle=lambda frequency, shift: frequency / shift,
    ),
    Fault(
        "degrees",
        "The angles are turned into degrees, but sin and cos take radians.",
        angle=lambda frequency, shift: torch.rad2deg(frequency * shift),
    ),
    *_EXPONENT_FAULTS,
    Fault(
        "one step at least",
        "For a shift of 0 it is the matrix of a shift of 1. A product of no steps is the identity: begin with that.",
        angle=lambda frequency, shift: frequency * max(shift, 1),
    ),
)


def rotary_scores(
    query: Tensor,
    key: Tensor,
    turns: Tensor,
    *,
    of_queries: Callable[[Tensor, int, int], Tensor] = lambda turns, L, S: turns[:L],
    of_keys: Callable[[Tensor, int, int], Tensor] = lambda turns, L, S: turns[:S],
    turn: Callable[[Tensor, Tensor], Tensor] = lambda x, turns: (x[..., None, :] @ turns).squeeze(-2),
    dots: Callable[..., Tensor] = lambda turned, query, key, turns: turned[0] @ turned[1].mT,
    scale: Callable[[int, int], float] = lambda head_dim, key_length: head_dim**-0.5,
    finish: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Tensor:
    """Scaled dot products of turned queries and keys, (B, H, L, S): row t of each is multiplied by ``turns[t]``."""
    L, S, D = query.shape[-2], key.shape[-2], query.shape[-1]
    turned = turn(query, of_queries(turns, L, S)), turn(key, of_keys(turns, L, S))
    return finish(dots(turned, query, key, turns) * scale(D, S))


def _rotary_scores_cases(draw: Draw) -> Iterator[Case]:
    for B, H, L, S, D, length in ((1, 1, 2, 2, 2, 3), (1, 2, 3, 3, 4, 3), (2, 3, 4, 5, 6, 8), (2, 2, 5, 3, 4, 6)):
        query, key = draw.normal(B, H, L, D), draw.normal(B, H, S, D)
        turns = torch.stack([shift_matrix(D, t) for t in range(length)]).to(query)
        name = f"{B} × {H} heads of size {D}, {L} queries, {S} keys, {length} matrices"
        yield Case(name, {"query": query, "key": key, "turns": turns})


def _unturned(turns: Tensor, L: int, S: int) -> Tensor:
    return turns[:1]  # the matrix of position 0, which leaves everything as it is


def _relative(step: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Dot products of each query, turned by a matrix for the step from its key, with that key."""

    def dots(_: tuple[Tensor, Tensor], query: Tensor, key: Tensor, turns: Tensor) -> Tensor:
        steps = torch.arange(query.shape[-2])[:, None] - torch.arange(key.shape[-2])  # (L, S)
        return torch.einsum("bhtd,tude,bhue->bhtu", query, turns[step(steps, len(turns))], key)

    return dots


def _added_up(turns: Tensor) -> Tensor:
    together = [turns[0]]
    for matrix in turns[1:]:
        together.append(together[-1] @ matrix)
    return torch.stack(together)


def _as_the_first_pair(turns: Tensor) -> Tensor:
    return torch.stack([torch.block_diag(*[matrix[:2, :2]] * (matrix.shape[0] // 2)) for matrix in turns])


def _as_far_as_both(turns: Tensor, length: int, other: int) -> Tensor:
    return torch.cat([turns[: min(length, other)], turns[:1].expand(max(length - other, 0), -1, -1)])


_FORGOTTEN = (
    "The positions have no effect: these are the plain scaled dot products, as if nothing were turned, or the query "
    "and its keys by one matrix."
)

_ROTARY_SCORES_FAULTS = (
    Fault("nothing turned", _FORGOTTEN, of_queries=_unturned, of_keys=_unturned),
    Fault(
        "keys not turned",
        "Only the queries are turned, so that a score depends on the query's own position. Turn the keys by theirs.",
        of_keys=_unturned,
    ),
    Fault(
        "queries not turned",
        "Only the keys are turned, so that a score depends on the key's own position. Turn the queries by theirs.",
        of_queries=_unturned,
    ),
    Fault(
        "turned back",
        "Queries and keys are turned back, by the transposed matrices. A row stands on the left of its matrix: q @ R. "
        "R @ q turns the other way.",
        of_queries=lambda turns, L, S: turns[:L].mT,
        of_keys=lambda turns, L, S: turns[:S].mT,
    ),
    Fault(
        "keys turned back",
        "The keys are turned back, and the queries forward, so that the score depends on the sum of both positions. "
        "Turn both forward: the dot product makes the difference.",
        of_keys=lambda turns, L, S: turns[:S].mT,
    ),
    Fault(
        "queries turned back",
        "The queries are turned back, and the keys forward, so that the score depends on the sum of both positions. "
        "Turn both forward: the dot product makes the difference.",
        of_queries=lambda turns, L, S: turns[:L].mT,
    ),
    Fault(
        "counted from the end",
        "The positions are counted from the end of `turns`: the last query is turned by its last matrix. The first "
        "query and the first key stand at position 0.",
        of_queries=lambda turns, L, S: turns[-L:],
        of_keys=lambda turns, L, S: turns[-S:],
    ),
    Fault(
        "queries last",
        "The queries are taken for the last of the keys, as when a text is continued. Here both begin at position 0.",
        of_queries=lambda turns, L, S: turns[[max(S - L, 0) + t for t in range(L) if max(S - L, 0) + t < len(turns)]],
    ),
    Fault(
        "queries in reverse",
        "The queries are turned in reverse order, the last one by the matrix of position 0.",
        of_queries=lambda turns, L, S: turns[:L].flip(0),
    ),
    Fault(
        "keys in reverse",
        "The keys are turned in reverse order, the last one by the matrix of position 0.",
        of_keys=lambda turns, L, S: turns[:S].flip(0),
    ),
    Fault(
        "queries one further",
        "The queries are turned one position too far. The first query stands at position 0, as does the first key.",
        of_queries=lambda turns, L, S: turns[:L] @ turns[1],
    ),
    Fault(
        "keys one further",
        "The keys are turned one position too far. The first key stands at position 0, as does the first query.",
        of_keys=lambda turns, L, S: turns[:S] @ turns[1],
    ),
    Fault(
        "turned twice",
        "Every query and every key is turned twice, so that each step counts as two.",
        of_queries=lambda turns, L, S: turns[:L] @ turns[:L],
        of_keys=lambda turns, L, S: turns[:S] @ turns[:S],
    ),
    Fault(
        "distance without its sign",
        "Your turn goes forward above the diagonal, too. It should go back there, where t − u is negative: take the "
        "transposed matrix.",
        dots=_relative(lambda steps, length: steps.abs()),
    ),
    Fault(
        "negative index",
        "Your index t − u is negative above the diagonal, and Python counts it from the end of `turns`. It should be "
        "u − t there, and the matrix transposed, so that it turns back.",
        dots=_relative(lambda steps, length: steps % length),
    ),
    Fault(
        "turns added up",
        "The matrices are multiplied up along the text, as if each were a single step: row t is turned by 0 + 1 + … + "
        "t. `turns[t]` is the whole turn by t steps.",
        of_queries=lambda turns, L, S: _added_up(turns[:L]),
        of_keys=lambda turns, L, S: _added_up(turns[:S]),
    ),
    Fault(
        "one matrix for all",
        "Every query and every key is multiplied by the sum of the matrices, the same at each position. In an einsum, "
        "the position of the row and that of the matrix need the same letter.",
        of_queries=lambda turns, L, S: turns[:L].sum(dim=0, keepdim=True),
        of_keys=lambda turns, L, S: turns[:S].sum(dim=0, keepdim=True),
    ),
    Fault(
        "all pairs as the first",
        "All pairs of features turn as fast as the first one. Each pair has a block of its own: use the whole matrix.",
        of_queries=lambda turns, L, S: _as_the_first_pair(turns[:L]),
        of_keys=lambda turns, L, S: _as_the_first_pair(turns[:S]),
    ),
    Fault(
        "as far as both go",
        "Where L and S differ, the rows of the longer one are turned only as far as the shorter one goes.",
        of_queries=_as_far_as_both,
        of_keys=lambda turns, L, S: _as_far_as_both(turns, S, L),
    ),
    Fault(
        "not scaled",
        "The scores are not divided by √D.",
        scale=lambda head_dim, key_length: 1.0,
    ),
    Fault(
        "divided by D",
        "The scores are divided by D. It should be √D.",
        scale=lambda head_dim, key_length: 1 / head_dim,
    ),
    Fault(
        "multiplied by √D",
        "The scores are multiplied by √D. Divide by it.",
        scale=lambda head_dim, key_length: head_dim**0.5,
    ),
    Fault(
        "root of the number of keys",
        "The scores are divided by the root of the number of keys. It should be that of the head's size, D.",
        scale=lambda head_dim, key_length: key_length**-0.5,
    ),
    Fault(
        "softmax",
        "These are weights: a softmax has been taken. The layer does that; return the scores.",
        finish=lambda scores: scores.softmax(dim=-1),
    ),
    Fault(
        "keys in rows",
        "Queries and keys are exchanged: the scores have a row for each key. They should be (B, H, L, S).",
        finish=lambda scores: scores.mT,
    ),
)

EXERCISES = (
    Exercise(
        attend_in_order,
        notebook="04",
        section=_ADDED,
        level="easy",
        minutes=4,
        hints=(
            "Attention can only use what its input already knows.",
            "The words are axis 1 of `x`. A tensor of shape (L, E) broadcasts over the batch.",
        ),
        cases=_attend_in_order_cases,
        faults=_ATTEND_IN_ORDER_FAULTS,
    ),
    Exercise(
        sinusoidal_table,
        notebook="04",
        section=_SINUSOIDAL,
        level="middle",
        minutes=8,
        hints=(
            "There are `embed_dim // 2` clocks. The first turns by 1 a step, each next one slower by the factor"
            " $10000^{-2/E}$.",
            "Angles first: (L, 1) times (E/2,) gives (L, E/2). Then `torch.stack` on a new last axis and "
            "`flatten`, or write into `table[:, 0::2]` and `table[:, 1::2]`.",
        ),
        cases=_sinusoidal_table_cases,
        faults=_SINUSOIDAL_TABLE_FAULTS,
    ),
    Exercise(
        shift_matrix,
        notebook="04",
        section=_ROTATION,
        level="hard",
        minutes=12,
        hints=(
            "Each clock turns by itself: the numbers of pair $i$ depend on pair $i$ alone, so nearly all "
            "entries are 0.",
            "For one clock you need a 2 × 2 matrix $M$ with $(\\sin a, \\cos a)\\, M = (\\sin(a + b), \\cos(a + b))$: "
            "read its columns off the addition theorems. `torch.block_diag(*blocks)` sets such blocks along the "
            "diagonal.",
        ),
        cases=_shift_matrix_cases,
        faults=_SHIFT_MATRIX_FAULTS,
    ),
    Exercise(
        rotary_scores,
        notebook="04",
        section=_ROTARY,
        level="middle",
        minutes=8,
        hints=(
            "One query, a row of D numbers, is turned by `row @ turns[t]`. All that is left is to do it for every "
            "position, and for the keys as well.",
            "A batch of products: `x[..., None, :]` is (B, H, L, 1, D), and `turns[:L]` is (L, D, D). Or an einsum in "
            "which the position of the row and that of the matrix have the same letter.",
        ),
        cases=_rotary_scores_cases,
        faults=_ROTARY_SCORES_FAULTS,
    ),
)
