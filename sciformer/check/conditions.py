"""Properties that the inputs of a case may have, in words: equal lengths, a batch of 1, a mask that hides nothing.

An answer that is right on exactly the cases that have such a property is told so, unless it stays wrong on other inputs
that are given the property. An answer that is right only there is noticed if some cases of the exercise lack it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

from sciformer.check.variants import cut

Inputs = dict[str, Any]

#: Numbers from here on are large for an exponential: e⁵⁰ times e⁵⁰ is more than float32 holds.
_LARGE = 50.0


@dataclass(frozen=True)
class Condition:
    """A property of the inputs of a case.

    Args:
        says: "only where `attn_mask` hides nothing".
        quantity: what of the inputs it is about.
        wanted: whether it holds for such a quantity.
        plain: whether it is about a shape, a mask or a missing input, which is believed before what is about values.
        axes: the axes of inputs that it is about.
        explains: whether a student is told so. A size below 4 separates few cases by chance, and so does the lack of
            ties in one tensor of several.
        fewest: in how many cases an answer has to be right before a student is told so; one of them may be chance.
        given: inputs without the property as they are once they have it; None where that is not known.
    """

    says: str
    quantity: Callable[[Inputs], Any]
    wanted: Callable[[Any], bool] = bool
    plain: bool = True
    axes: tuple[tuple[str, int], ...] = ()
    explains: bool = True
    fewest: int = 1
    given: Callable[[Inputs], Inputs] | None = None

    def holds(self, inputs: Inputs) -> bool | None:
        """Whether these inputs have the property; None where it makes no sense for them."""
        try:
            return self.wanted(self.quantity(inputs))
        except (AttributeError, IndexError, TypeError, KeyError):
            return None


def conditions(inputs: Inputs) -> Iterator[Condition]:
    """The properties that make sense for the inputs of a case, and for those of the other cases of an exercise."""
    alone = sum(isinstance(x, Tensor) for x in inputs.values()) == 1
    for name, x in inputs.items():
        yield from _of_one(name, x, alone=alone)
    tensors = [name for name, x in inputs.items() if isinstance(x, Tensor) and x.dim() >= 2]
    for one, two in combinations(tensors, 2):
        yield _equally_long(one, two)
    whole = [name for name, x in inputs.items() if isinstance(x, int) and not isinstance(x, bool)]
    for one, two in permutations(whole, 2):
        yield _at_most(one, two)


def separating(
    right: Sequence[Inputs],
    wrong: Sequence[Inputs],
    is_right: Callable[[Inputs], bool | None] = lambda inputs: None,
    *,
    of_values: bool = True,
) -> str | None:
    """What tells inputs on which an answer is right from those on which it is wrong, in words.

    None where two different quantities would tell them apart, since it may be either.

    Args:
        is_right: whether the answer is right on other inputs, those of ``wrong`` with the property; None: not known.
        of_values: whether a property of values is believed where none of shapes, masks or missing inputs is found.
    """
    for plain in (True, False) if of_values else (True,):
        found: dict[tuple[Any, ...], str] = {}
        for condition in conditions(right[0]):
            if condition.plain is not plain or not condition.explains or len(right) < condition.fewest:
                continue
            separates = all(condition.holds(x) for x in right) and all(condition.holds(x) is False for x in wrong)
            if separates and not (condition.given and any(is_right(condition.given(x)) is False for x in wrong)):
                values = tuple(_hashable(condition.quantity(x)) for x in (*right, *wrong))
                found.setdefault(values, condition.says)
        if found:
            return next(iter(found.values())) if len(found) == 1 else None
    return None


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _of_one(name: str, x: Any, *, alone: bool) -> Iterator[Condition]:
    yield Condition(
        f"only where `{name}` is None", lambda case: case[name] is None, given=lambda case: case | {name: None}
    )
    yield Condition(f"only where `{name}` is given", lambda case: case[name] is not None)
    if isinstance(x, bool | int | str):
        fewest = 1 if isinstance(x, bool | str) or x in (0, 1) else 2
        yield Condition(
            f"only where `{name}` is {x}",
            lambda case: case[name],
            lambda value: bool(value == x),
            False,
            fewest=fewest,
            given=lambda case: case | {name: x},
        )
    if isinstance(x, float) or (isinstance(x, Tensor) and x.dim() == 0 and x.is_floating_point()):
        yield Condition(
            f"only where `{name}` is 1",
            lambda case: float(case[name]),
            lambda value: value == 1,
            False,
            given=lambda case: case | {name: case[name] ** 0},
        )
        says = f"only where `{name}` is at least 1"
        yield Condition(says, lambda case: float(case[name]), lambda value: value >= 1, False)
    if isinstance(x, list) or (isinstance(x, Tensor) and x.dim() == 1):
        yield Condition(
            f"only where `{name}` has a single entry", lambda case: _count(case[name]), lambda n: n == 1, False
        )
    if not isinstance(x, Tensor):
        return
    if x.dtype == torch.bool and x.dim() >= 1:
        yield from _of_a_mask(name, x)
    if x.dim() >= 3:
        says = f"only where the first axis of `{name}` has size 1"
        yield Condition(
            says, lambda case: case[name].shape[0], lambda size: size == 1, given=lambda case: _first_alone(case, name)
        )
    if x.dim() >= 2:
        shape = f"only where the last two sizes of `{name}` are equal"
        yield Condition(
            shape,
            lambda case: tuple(sorted(case[name].shape[-2:])),
            _all_equal,
            axes=((name, -1), (name, -2)),
            fewest=2,
        )
        says = f"only where the last axis of `{name}` is shorter than 4"
        yield Condition(
            says, lambda case: case[name].shape[-1], lambda size: size < 4, axes=((name, -1),), explains=False
        )
    if x.is_floating_point() and x.dim() >= 1:
        says = f"only where no two numbers along the last axis of `{name}` are equal"
        yield Condition(says, lambda case: _ties(case[name]), lambda ties: ties == 0, False, explains=alone, fewest=3)
        says = f"only where the numbers of `{name}` lie between −{_LARGE:g} and {_LARGE:g}"
        yield Condition(says, lambda case: _largest(case[name]), lambda size: size < _LARGE, False)


def _of_a_mask(name: str, x: Tensor) -> Iterator[Condition]:
    yield Condition(
        f"only where `{name}` hides nothing",
        lambda case: bool(case[name].all()),
        given=lambda case: case | {name: torch.ones_like(case[name])},
    )
    yield Condition(f"only where `{name}` is nowhere True", lambda case: not bool(case[name].any()), plain=False)
    if x.dim() >= 2:
        says = f"only where each row of `{name}` leaves something"
        yield Condition(says, lambda case: bool(case[name].any(dim=-1).all()), plain=False)
        says = f"only where `{name}` is a triangle"
        yield Condition(says, lambda case: bool(torch.equal(case[name], case[name].tril())), plain=False)
        says = f"only where each row of `{name}` hides equally many"
        yield Condition(says, lambda case: len(set(case[name].sum(dim=-1).flatten().tolist())), lambda n: n == 1)


def _equally_long(one: str, two: str) -> Condition:
    says = f"only where `{one}` and `{two}` are equally long"
    axes = ((one, -2), (two, -2))

    def given(case: Inputs) -> Inputs:
        shorter, longer = sorted((case[one].shape[-2], case[two].shape[-2]))
        return {name: cut(x, longer, shorter) for name, x in case.items()}

    return Condition(
        says, lambda case: tuple(sorted((case[one].shape[-2], case[two].shape[-2]))), _all_equal, axes=axes, given=given
    )


def _at_most(one: str, two: str) -> Condition:
    says = f"only where `{one}` is at most `{two}`"
    return Condition(says, lambda case: (case[one], case[two]), lambda pair: pair[0] <= pair[1], False)


def _first_alone(case: Inputs, name: str) -> Inputs:
    """Inputs with the first example of a batch alone: of all tensors with as many as this one."""
    size = case[name].shape[0]
    return {
        other: x[:1] if isinstance(x, Tensor) and x.dim() >= 3 and len(x) == size else x for other, x in case.items()
    }


def _count(x: list[Any] | Tensor) -> int:
    """How many entries there are in a list or in a tensor of one axis."""
    if isinstance(x, Tensor) and x.dim() != 1:
        raise TypeError(f"{x.dim()} axes")
    return len(x)


def _largest(x: Tensor) -> float:
    finite = x[x.isfinite()].double().abs()
    return finite.max().item() if finite.numel() else 0.0


def _ties(x: Tensor) -> int:
    """How many numbers along the last axis equal one before them."""
    rows = x.flatten(0, -2) if x.dim() > 1 else x[None]
    return sum(row.numel() - row.unique().numel() for row in rows)


def _all_equal(sizes: tuple[int, ...]) -> bool:
    return len(set(sizes)) == 1
