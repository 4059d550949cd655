"""Exercises that tell you what is wrong: ``check.scaled_dot_product(mine)``.

Every exercise of the course stands here by name. A checker prints one line when the answer is right. When it is wrong
it names the likeliest mistake, shows the smallest input on which the numbers differ, and points to the section to read
again. It never raises.
"""

from sciformer.check import (
    notebook_00,
    notebook_01,
    notebook_02,
    notebook_03,
    notebook_04,
    notebook_05,
    notebook_06,
    notebook_07,
    notebook_08,
    notebook_09,
    notebook_10,
    notebook_11,
    notebook_12,
    notebook_13,
    notebook_14,
    notebook_15,
    notebook_16,
    notebook_17,
)
from sciformer.check.exercise import Case, Diagnosis, Draw, Exercise, Fault

#: Every exercise of the course by name, in the order of the notebooks.
EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise
    for module in (
        notebook_00,
        notebook_01,
        notebook_02,
        notebook_03,
        notebook_04,
        notebook_05,
        notebook_06,
        notebook_07,
        notebook_08,
        notebook_09,
        notebook_10,
        notebook_11,
        notebook_12,
        notebook_13,
        notebook_14,
        notebook_15,
        notebook_16,
        notebook_17,
    )
    for exercise in module.EXERCISES
}

__all__ = ["EXERCISES", "Case", "Diagnosis", "Draw", "Exercise", "Fault"]


def __getattr__(name: str) -> Exercise:
    if name in EXERCISES:
        return EXERCISES[name]
    raise AttributeError(f"there is no exercise {name!r}; there are {', '.join(EXERCISES)}")


def __dir__() -> list[str]:
    return [*__all__, *EXERCISES]
