"""What is wrong with a result, where nothing says why: how it relates to the right one, and on which inputs."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

from sciformer.check.conditions import separating
from sciformer.check.values import family, kind_of, number, same

Inputs = dict[str, Any]
#: What is said as long as nothing better is known.
UNKNOWN = ", and the checker does not recognize why"
RIGHT_CASES = " In these cases they are right: "
RIGHT_ONLY = "Of the inputs tried, it is right {}."


def symptom(
    inputs: Sequence[Inputs], expected: Sequence[Any], got: Sequence[Any], names: tuple[str, ...]
) -> tuple[str, str]:
    """Kind and sentences of what is wrong with the results of an answer, and where they are right.

    Args:
        inputs: those of each case that was run.
        names: of the outputs.
    """
    wrong = [n for n, result in enumerate(got) if not same(result, expected[n])]
    kind, says = difference([expected[n] for n in wrong], [got[n] for n in wrong], [inputs[n] for n in wrong], names)
    right = [inputs[n] for n in range(len(got)) if n not in wrong]
    of_values = kind != "wrong shape"
    where = separating(right, [inputs[n] for n in wrong], of_values=of_values) if right else None
    return kind, f"{says.replace(UNKNOWN, '')} {RIGHT_ONLY.format(where)}" if where else says


def difference(expected: list[Any], got: list[Any], inputs: list[Inputs], names: tuple[str, ...]) -> tuple[str, str]:
    """Kind and sentence of the difference, over all cases with one; sentences fit one result and several."""
    e, g = expected[0], got[0]
    if isinstance(e, list) and isinstance(g, list) and len(e) == len(g):
        return _difference_of_lists(expected, got, inputs, names)
    name = names[0] if len(names) == 1 else "result"
    if g is None:
        return "wrong type", "It returns None. Is the return missing?"
    if not isinstance(e, Tensor) or not isinstance(g, Tensor):
        if kind_of(e) != kind_of(g):
            return "wrong type", f"The {name} should be {kind_of(e)}, not {kind_of(g)}."
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in (*expected, *got)):
            right, mine = ([torch.tensor([float(x)]) for x in values] for values in (expected, got))
            return "wrong numbers", _told(name, _relation(right, mine, inputs) or _close(right, mine))
        return "wrong numbers", _told(name, None)
    if e.shape != g.shape:
        shape = f"The {name} should have shape {tuple(e.shape)}, not {tuple(g.shape)}."
        return "wrong shape", shape + _shapes(e, g)
    if family(e) != family(g):
        return "wrong type", f"The {name} should be a tensor of {e.dtype}, not of {g.dtype}."
    if g.is_floating_point() and g.isnan().any() and not e.isnan().any():
        why = "It comes from 0/0, from ∞/∞ or ∞ − ∞ where an exponential overflows, or from the softmax of a row of −∞."
        return "NaN", f"There is NaN in the {name}{_rows(g.isnan())}. {why}"
    if e.dtype == torch.bool:
        return "wrong numbers", _told(name, of_truth_values(expected, got) or _places(expected, got))
    relation = _relation(expected, got, inputs) or _close(expected, got, _places(expected, got))
    return "wrong numbers", _told(name, relation)


def _difference_of_lists(
    expected: list[list[Any]], got: list[Any], inputs: list[Inputs], names: tuple[str, ...]
) -> tuple[str, str]:
    """The same for several results: which are exchanged, or which is wrong and how."""
    e, g = expected[0], got[0]
    several = len(names) == len(e) > 1
    for one, two in combinations(range(len(e)), 2) if several else ():
        turned = list(g)
        turned[one], turned[two] = g[two], g[one]
        if same(e, turned):
            return "wrong numbers", f"Two results are exchanged: {names[one]} and {names[two]}."
    at = next(n for n in range(len(e)) if not same(e[n], g[n]))
    alike = [
        n
        for n, result in enumerate(got)
        if isinstance(result, list) and len(result) == len(expected[n]) > at and not same(expected[n][at], result[at])
    ]
    right_ones, mine = ([values[n][at] for n in alike] for values in (expected, got))
    kind, says = difference(right_ones, mine, [inputs[n] for n in alike], (names[at],) if several else names)
    if not several or kind != "wrong numbers":
        return kind, says
    lists = [case for case, result in enumerate(got) if isinstance(result, list) and len(result) == len(names)]
    right = [name for n, name in enumerate(names) if all(same(expected[case][n], got[case][n]) for case in lists)]
    return kind, says + (f" Right: {', '.join(right)}." if right else "")


def of_truth_values(expected: list[Tensor], got: list[Tensor]) -> str | None:
    """What two masks have to do with each other on every case."""
    pairs = [(e, g) for e, g in zip(expected, got, strict=True) if e.shape == g.shape]
    for value in (True, False):
        if all(bool((g == value).all()) for _, g in pairs):
            return f"all of them are {value}"
    if all(torch.equal(e, ~g) for e, g in pairs):
        return "True and False are exchanged"
    if all(bool((g | e).equal(e)) for e, g in pairs):
        return "too few are True, and none that should not be"
    return "too many are True, and none is missing" if all(bool((g | e).equal(g)) for e, g in pairs) else None


def _told(name: str, relation: str | None) -> str:
    known = f"Some numbers of the {name} are wrong"
    end = "?" if relation and "Is something" in relation else "."
    return f"{known}: {relation}{end}" if relation else f"{known}{UNKNOWN}."


def _shapes(e: Tensor, g: Tensor) -> str:
    """What a result of a wrong shape has to do with the right one."""
    if e.shape == g.squeeze().shape or e.squeeze().shape == g.shape:
        more = "too many" if g.dim() > e.dim() else "too few"
        return f" The numbers are right; there is an axis of size 1 {more}." if _near(e.flatten(), g.flatten()) else ""
    for order in permutations(range(g.dim())) if g.dim() == e.dim() <= 4 else ():
        if g.permute(order).shape == e.shape and _near(e, g.permute(order)):
            return " The numbers are right, but the axes stand in another order."
    if e.numel() == g.numel():
        if _near(e.flatten(), g.flatten()):
            return " The numbers are right and in the right order; only the shape is not."
        return ""
    if counted := _counted(e, g):
        return counted
    for axis in range(g.dim()):
        if g.dim() == e.dim() + 1:
            for word, less in (("the sum", g.sum(axis)), ("the mean", g.double().mean(axis))):
                if less.shape == e.shape and _near(e, less):
                    return f" {word.capitalize()} over axis {axis} would be right."
    return ""


def _counted(e: Tensor, g: Tensor) -> str:
    """Which entries along one axis are missing or too many, if all others are right."""
    axes = [n for n, (a, b) in enumerate(zip(e.shape, g.shape, strict=False)) if a != b]
    if g.dim() != e.dim() or len(axes) != 1:
        return ""
    (axis,) = axes
    long, short = (e, g) if e.shape[axis] > g.shape[axis] else (g, e)
    count, verb = long.shape[axis] - short.shape[axis], "missing" if long is e else "too many"
    for word, start in (("last", 0), ("first", count)):
        if _near(short, long.narrow(axis, start, short.shape[axis])):
            which = f"the {word} one is" if count == 1 else f"the {word} {count} are"
            return f" Along axis {axis}, {which} {verb}; the others are right."
    parts = [list(x.movedim(axis, 0)) for x in (short, long)]
    if short.shape[axis] and all(any(_near(one, other) for other in parts[1]) for one in parts[0]):
        return f" Along axis {axis}, {count} {'is' if count == 1 else 'are'} {verb}; the others are right."
    return ""


def _near(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and torch.allclose(one.double(), two.double(), rtol=1e-3, atol=1e-5, equal_nan=True)


def _relation(expected: list[Tensor], got: list[Tensor], inputs: list[Inputs]) -> str | None:
    """A relation between right and wrong numbers that holds on every case."""
    if any(not isinstance(g, Tensor) or e.shape != g.shape for e, g in zip(expected, got, strict=True)):
        return None
    pairs = [(e.double(), g.double()) for e, g in zip(expected, got, strict=True)]
    if sum(e.numel() for e, _ in pairs) < 3:
        return None
    if factor := _factor(pairs, inputs):
        return factor
    for says, relation in _RELATIONS:
        if all(_near(relation(e), g) for e, g in pairs):
            return says
    for says, relation in _movements(min(e.dim() for e, _ in pairs)):
        moved = [(relation(e), g, e) for e, g in pairs]
        if all(_near(m, g) for m, g, _ in moved) and any(m.shape != e.shape or not _near(m, e) for m, _, e in moved):
            return says
    if all(e.dim() and e.shape[-1] > 1 and _near(e, g.softmax(dim=-1)) for e, g in pairs):
        return "after a softmax along axis -1 they would be right"
    if all(_near(e.flatten().sort().values, g.flatten().sort().values) for e, g in pairs):
        return _order(pairs)
    return _row_sums(pairs) or _not_hidden(pairs) or _row_by_row(pairs)


_RELATIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("all of them are 0", torch.zeros_like),
    ("the signs are gone, as after `abs`", torch.abs),
    ("they are 1 minus the right ones", lambda e: 1 - e),
    ("they are one divided by the right ones", lambda e: 1 / e),
    ("they are the logarithms of the right ones", lambda e: e.log()),
    ("the right ones are their logarithms, so one `exp` is too many or a `log` is missing", lambda e: e.exp()),
    ("they are the squares of the right ones", lambda e: e.square()),
    ("they are the roots of the right ones", lambda e: e.sqrt()),
    ("a softmax along axis -1 is too many", lambda e: e.softmax(dim=-1) if e.dim() else e.exp()),
)


def _order(pairs: list[tuple[Tensor, Tensor]]) -> str:
    """How right numbers stand in another order: as whole slices, if they do so along the same axis in every case."""
    for axis in range(-min(4, *(e.dim() for e, _ in pairs)), 0):
        slices = [
            (sorted(e.movedim(axis, 0).flatten(1).tolist()), sorted(g.movedim(axis, 0).flatten(1).tolist()))
            for e, g in pairs
            if e.dim() > 1
        ]
        if slices and len(slices) == len(pairs) and all(_near(torch.tensor(e), torch.tensor(g)) for e, g in slices):
            return f"they are the right numbers, but the slices along axis {axis} stand in another order"
    return "they are the right numbers in another order"


def _row_by_row(pairs: list[tuple[Tensor, Tensor]]) -> str | None:
    """Whether each row or column is right up to a factor, or an added number, of its own."""
    if any(e.dim() < 2 or min(e.shape[-2:]) < 2 or not bool(g.isfinite().all()) for e, g in pairs):
        return None
    for axis, word in ((-1, "row"), (-2, "column")):
        if all(_near(g, (g * e).sum(axis, keepdim=True) / e.square().sum(axis, keepdim=True) * e) for e, g in pairs):
            return f"each {word} is right up to a factor of its own"
        if all(_near(g, e + (g - e).mean(axis, keepdim=True)) for e, g in pairs):
            return f"each {word} is right up to a number of its own that is added"
    return None


def _movements(dim: int) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Ways in which right numbers stand in the wrong positions; axes are counted from the end."""
    axes = range(-min(dim, 4), 0)
    for one, two in combinations(axes, 2):
        yield f"axes {one} and {two} are exchanged", partial(torch.transpose, dim0=one, dim1=two)
    for axis in axes:
        yield f"they run backwards along axis {axis}", partial(torch.flip, dims=(axis,))
        for shift in (1, -1):
            yield f"they are shifted by one along axis {axis}", partial(torch.roll, shifts=shift, dims=axis)
        yield f"they are summed up along axis {axis}", partial(torch.cumsum, dim=axis)
        yield f"all are the mean along axis {axis}", partial(_mean_everywhere, axis=axis)


def _mean_everywhere(e: Tensor, axis: int) -> Tensor:
    return e.mean(axis, keepdim=True).expand_as(e)


def _factor(pairs: list[tuple[Tensor, Tensor]], inputs: list[Inputs]) -> str | None:
    """A constant factor or offset; where it differs between cases, the size that it follows."""
    factors, offsets = [], []
    for e, g in pairs:
        large = e.abs() > 1e-3
        if not large.any() or not bool(g[large].isfinite().all()):
            return None
        factors.append((g[large] / e[large]).median().item())
        offsets.append((g - e).median().item())
    if all(_near(c * e, g) for c, (e, g) in zip(factors, pairs, strict=True)) and all(abs(c) > 1e-6 for c in factors):
        if max(factors) - min(factors) < 1e-3 * abs(factors[0]):
            if abs(factors[0] - 1) < 1e-3:
                return None  # as good as right, so the factor is not what is wrong
            return (
                "the sign is wrong"
                if abs(factors[0] + 1) < 1e-3
                else f"each is {number(factors[0])} times the right one"
            )
        size = _size_behind(factors, inputs)
        if not size and any(e.numel() < 2 for e, _ in pairs):
            return None  # a single number is always the right one times something
        listed = ", ".join(number(c) for c in factors[:3])
        return f"each is the right one times a factor that depends on the input ({listed}){size}"
    if all(_near(e + c, g) for c, (e, g) in zip(offsets, pairs, strict=True)):
        if max(offsets) - min(offsets) < 1e-3:
            return f"each is the right one plus {number(offsets[0])}"
        if all(e.numel() > 1 for e, _ in pairs):
            return "each is the right one plus an amount that depends on the input"
    return None


def _size_behind(factors: list[float], inputs: list[Inputs]) -> str:
    """The size of an input that explains a factor in every case, in words."""
    powers = ((0.5, "the root of {}"), (-0.5, "1 divided by the root of {}"), (1, "{}"), (-1, "1 divided by {}"))
    for name, first in inputs[0].items():
        for axis in range(-first.dim(), 0) if isinstance(first, Tensor) else ():
            sizes = [case[name].shape[axis] if case[name].dim() >= -axis else 0 for case in inputs]
            for power, words in powers:
                if all(s > 1 and math.isclose(s**power, c, rel_tol=1e-3) for s, c in zip(sizes, factors, strict=True)):
                    return ", " + words.format(f"`{name}.shape[{axis}]`")
    return ""


#: A result is nearly right if it is wrong by less than this share of its size on every case.
_NEAR = 0.02
#: The same if it is so on half the cases only: less can be chance.
_NEAR_ON_SOME = 0.01


def _close(expected: list[Tensor], got: list[Tensor], otherwise: str | None = None) -> str | None:
    """How far a result is off that comes close on every case, or on half of them if there is nothing else to tell."""
    shares = []
    for e, g in zip(expected, got, strict=True):
        if not isinstance(g, Tensor) or e.shape != g.shape or not bool(g.isfinite().all() and e.isfinite().all()):
            return otherwise
        shares.append(((g.double() - e.double()).abs().max() / e.double().abs().max().clamp(min=1e-9)).item())
    if not shares:
        return otherwise
    if max(shares) <= _NEAR:
        return (
            f"they come close, off by {100 * max(shares):.2g} % of the largest at most. "
            "Is something rounded or approximated, or is a small term left out"
        )
    close = [share for share in shares if share <= _NEAR_ON_SOME]
    if otherwise or 2 * len(close) < len(shares):
        return otherwise
    return (
        f"on {len(close)} of {len(shares)} inputs they come close, off by {100 * max(close):.2g} % of the largest at "
        "most. Is something approximated, as on a grid that is too coarse and ends too early"
    )


def _row_sums(pairs: list[tuple[Tensor, Tensor]]) -> str | None:
    if any(e.dim() < 1 or not _near(e.sum(dim=-1), torch.ones_like(e.sum(dim=-1))) for e, _ in pairs):
        return None
    if not any(bool(((e != 0).sum(dim=-1) > 1).any()) for e, _ in pairs):
        return None  # rows with a single 1 may be those of another matrix than one of weights
    for _, g in pairs:
        sums = g.sum(dim=-1).flatten()
        off = (sums - 1).abs() > 1e-3
        if off.any():
            return f"a row sums to {number(sums[off][0].item())}, and each should sum to 1"
    return None


def _not_hidden(pairs: list[tuple[Tensor, Tensor]]) -> str | None:
    """Whether weights that should be 0 are small, on half of the cases at least."""
    if any(e.dim() < 1 or not _near(e.sum(dim=-1), torch.ones_like(e.sum(dim=-1))) for e, _ in pairs):
        return None
    left = [g[e == 0].max().item() for e, g in pairs if bool((e == 0).any())]
    small = [share for share in left if 0 < share <= _NEAR]
    if len(left) < len(pairs) or 2 * len(small) < len(pairs):
        return None
    return (
        f"weights that should be exactly 0 are not, {max(small):.2g} for instance. Is something finite, as −10, taken "
        "for minus infinity"
    )


def _places(expected: list[Tensor], got: list[Tensor]) -> str | None:
    """Where in the result wrong numbers stand, if that is the same part on every case."""
    pairs = list(zip(expected, got, strict=True))
    if any(not isinstance(g, Tensor) or e.shape != g.shape or e.dim() < 1 or e.numel() < 2 for e, g in pairs):
        return None
    if len(pairs) == 1 and expected[0].dim() == 1:
        return None  # a single row of numbers shows no pattern
    wrong = [~torch.isclose(e.double(), g.double(), rtol=1e-4, atol=1e-5, equal_nan=True) for e, g in pairs]
    for says, part in _PARTS:
        masks = [part(w) for w in wrong]
        inside = all(m is not None and bool((w <= m).all()) for w, m in zip(wrong, masks, strict=True))
        if inside and not all(bool(m.all()) for m in masks if m is not None):
            return f"only {says}"
    return None


def _along(axis: int, index: int) -> Callable[[Tensor], Tensor | None]:
    """True at one index of an axis."""

    def part(wrong: Tensor) -> Tensor | None:
        if wrong.dim() < -axis:
            return None
        mask = torch.zeros_like(wrong)
        mask.select(axis, index).fill_(True)
        return mask

    return part


def _half(which: int) -> Callable[[Tensor], Tensor | None]:
    """True in one half of the last axis, if its length is even."""

    def part(wrong: Tensor) -> Tensor | None:
        if wrong.shape[-1] % 2:
            return None
        mask = torch.zeros_like(wrong)
        mask.chunk(2, dim=-1)[which].fill_(True)
        return mask

    return part


def _triangle(keep: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor | None]:
    """True in a part of the last two axes, if numbers are wrong in all its rows; a single row has no diagonal."""

    def part(wrong: Tensor) -> Tensor | None:
        rows, columns = wrong.shape[-2:] if wrong.dim() > 1 else (1, 1)
        if min(rows, columns) < 2 or (wrong.dim() == 3 and rows != columns):  # (B, L, E) has tokens and features
            return None
        mask = keep(torch.ones_like(wrong)).bool()
        return mask if bool((wrong.any(dim=-1) | ~mask.any(dim=-1)).all()) else None

    return part


_PARTS: tuple[tuple[str, Callable[[Tensor], Tensor | None]], ...] = (
    ("those of the first row, index 0 of axis -2", _along(-2, 0)),
    ("those of the last row, index -1 of axis -2", _along(-2, -1)),
    ("those at index 0 of the last axis", _along(-1, 0)),
    ("those at index -1 of the last axis", _along(-1, -1)),
    ("those in the first half of the last axis", _half(0)),
    ("those in the second half of the last axis", _half(1)),
    ("those on the diagonal", _triangle(lambda ones: ones.tril().mul(ones.triu()))),
    ("those above the diagonal", _triangle(lambda ones: ones.triu(1))),
    ("those below the diagonal", _triangle(lambda ones: ones.tril(-1))),
    ("those above the diagonal and on it", _triangle(torch.triu)),
    ("those below the diagonal and on it", _triangle(torch.tril)),
    ("those after index 0 of the first axis", lambda w: _not(_along(-w.dim(), 0)(w)) if w.dim() > 1 else None),
)


def _not(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else ~mask


def _rows(bad: Tensor) -> str:
    """Which rows of a matrix are meant, where it is some of them."""
    rows = bad.flatten(0, -2).any(dim=-1) if bad.dim() >= 2 else bad
    if rows.all() or bad.dim() != 2:
        return ""
    return f", in row {', '.join(map(str, rows.nonzero().flatten().tolist()[:4]))}"
