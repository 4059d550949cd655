"""Print what the cases of every exercise cover, as it is seen in the drawn cases themselves.

    python tools/edges.py            every exercise
    python tools/edges.py NAME ...   these alone

Of each condition that its inputs can fulfil or not, how many cases do: an answer that is right only under a condition
is noticed by the cases beyond it. What no case is beyond stands at the end, and says whether it could be otherwise.
"""

import sys

from sciformer.check import EXERCISES, Exercise
from sciformer.check.coverage import edges, is_bound
from sciformer.check.written_tests import WrittenTest


def show(exercise: Exercise, seed: int = 0) -> None:
    """Print the edges of one exercise, those that are covered first."""
    print(f"{exercise.notebook} {exercise.name}")
    for edge in sorted(edges(exercise, seed), key=lambda edge: edge.beyond == 0):
        says = edge.condition.says.removeprefix("only where ")
        if edge.beyond:
            print(f"   {edge.within:3} of {edge.within + edge.beyond:2} cases: {says}")
        else:
            must = ", and has to be" if is_bound(exercise, edge.condition, seed) else ""
            print(f"   always{must}: {says}")


def main() -> None:
    """Print the exercises that are named, or all of them."""
    for name in sys.argv[1:] or EXERCISES:
        if not isinstance(EXERCISES[name], WrittenTest):
            show(EXERCISES[name])


if __name__ == "__main__":
    main()
