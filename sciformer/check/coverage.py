"""What the cases of an exercise cover, seen in the drawn cases themselves: nobody has to keep a list by hand.

A case lies beyond a condition if its inputs do not have the property: an answer that is right only where a mask hides
nothing is noticed if a case hides something.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sciformer.check.conditions import Condition, conditions

if TYPE_CHECKING:
    from sciformer.check.exercise import Exercise


@dataclass(frozen=True)
class Edge:
    """A condition on the inputs of an exercise.

    Args:
        within: how many cases fulfil it.
        beyond: how many do not; an answer that is right only under this condition is noticed by these.
    """

    condition: Condition
    within: int
    beyond: int


def edges(exercise: "Exercise", seed: int) -> list[Edge]:
    """All conditions that make sense for the inputs of an exercise, each with what its cases do about it."""
    drawn = [case.inputs for case in exercise.draw(seed)]
    found = {condition.says: condition for inputs in drawn for condition in conditions(inputs)}
    counted = []
    for condition in found.values():
        holds = [condition.holds(inputs) for inputs in drawn]
        edge = Edge(condition, holds.count(True), holds.count(False))
        if not condition.says.endswith(("is None", "is given")) or (edge.within and edge.beyond):
            counted.append(edge)
    return counted


def is_bound(exercise: "Exercise", condition: Condition, seed: int) -> bool:
    """Whether the inputs of an exercise have to fulfil a condition: none of its axes can be shortened on its own.

    The keys are as many as the values, and a state of E × E numbers is square: without it the right answer stops.
    """
    for case in exercise.draw(seed):
        makes_sense = condition.holds(case.inputs) is not None
        shorter = [_shorter(case.inputs, name, axis) for name, axis in condition.axes] if makes_sense else []
        if shorter and all(exercise.safely(partial(_result, exercise, inputs, seed)) is None for inputs in shorter):
            return True
    return False


def _shorter(inputs: dict[str, Any], name: str, axis: int) -> dict[str, Any]:
    x = inputs[name]
    return inputs | {name: x.narrow(axis, 0, x.shape[axis] - 1)}


def _result(exercise: "Exercise", inputs: dict[str, Any], seed: int) -> Any:
    return exercise.plainly(exercise.reference, inputs, seed=seed)
