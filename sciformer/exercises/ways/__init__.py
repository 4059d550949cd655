"""Right answers to the exercises, a file for each notebook, as students write them: without annotations.

The function with the exercise's own name is the one that stands folded away in the notebook, to the letter. Names with
a suffix after two underscores are the same answer, written in other ways.
"""

import importlib
from collections.abc import Callable
from typing import Any

from sciformer.check.exercise import Exercise


def ways_of(exercise: Exercise) -> dict[str, Callable[..., Any]]:
    """Every right answer to an exercise that stands here, by name."""
    module = importlib.import_module(f"{__name__}.nb{exercise.notebook}")
    return {name: answer for name, answer in vars(module).items() if name.split("__")[0] == exercise.name}
