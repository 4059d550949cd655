"""Exercises that tell you what is wrong: ``check.scaled_dot_product(mine)``.

Every exercise of the course stands here by name. A checker prints one line when the answer is right. When it is wrong
it names the likeliest mistake, shows the smallest input on which the numbers differ, and points to the section to read
again. It never raises.
"""

import importlib

from sciformer.check import progress, settings
from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Diagnosis, Draw, Exercise
from sciformer.check.graded_later import GradedLater

__all__ = [
    "EXERCISES",
    "Case",
    "Diagnosis",
    "Draw",
    "Exercise",
    "Fault",
    "GradedLater",
    "progress",
    "review",
    "settings",
]

#: Every exercise of the course by name, in the order of the notebooks.
EXERCISES: dict[str, Exercise]


def __getattr__(name: str) -> object:
    # The exercises are written with what stands in this room, so they are looked up only when one is asked for.
    exercises: dict[str, Exercise] = importlib.import_module("sciformer.exercises").EXERCISES
    if name == "EXERCISES":
        return exercises
    if name in exercises:
        return exercises[name]
    raise AttributeError(f"there is no exercise {name!r}; there are {', '.join(exercises)}")


def review(answers: str | None = None) -> None:
    """Three questions about mistakes that were named before; ``review("bca")`` judges the answers of the day."""
    print(progress.review(importlib.import_module("sciformer.exercises").EXERCISES, answers))


def __dir__() -> list[str]:
    return [*__all__, *importlib.import_module("sciformer.exercises").EXERCISES]
