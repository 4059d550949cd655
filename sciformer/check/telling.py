"""What a student reads: one sentence about the mistake, the smallest input that shows it, the section to read again."""

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sciformer.check.spelling import spelled
from sciformer.check.values import plain, same, table

if TYPE_CHECKING:
    from sciformer.check.exercise import Exercise

#: Lines of a message, so that it can be taken in at a glance.
LONGEST = 15
#: Of so many right cases the name is told.
MOST_NAMES = 3
SMALLEST = "\n  the smallest input"


@dataclass(frozen=True)
class Diagnosis:
    """The judgement of one answer.

    Args:
        kind: "correct", "unstable", "not attempted", "known mistake", "likely mistake", or what else went wrong.
        says: the judgement in words.
        message: all that a student can read: the judgement, the smallest input, the section to read again.
        faults: names of the mistakes that were recognised.
        symptom: the message without the cause: what is wrong with the result.
    """

    exercise: str
    kind: str
    says: str
    message: str
    faults: tuple[str, ...] = ()
    symptom: str = ""

    @property
    def correct(self) -> bool:
        """Whether the answer is right, if only for inputs of a usual size."""
        return self.kind in ("correct", "unstable")


def message(exercise: "Exercise", says: str, shown: str = "", *, see: str | None = None) -> str:
    """All that a student reads of a wrong answer; the first line of ``says`` is broken, those below it stay."""
    sentence, *more = says.split("\n")
    # JupyterLab shows about 100 characters in a line and breaks longer ones within words.
    lines = [fill(f"{exercise.name}: not right yet. {sentence}", 96, subsequent_indent="  "), *more]
    section = spelled(see or exercise.section)
    return "\n".join(lines) + f"{shown}\n  read again: notebook {exercise.notebook}, '{section}'"


def message_of_a_stop(exercise: "Exercise", cause: str, stop: str, *, see: str | None = None) -> str:
    """The message that names the mistake of an answer that stops or is refused, and below it says how it does."""
    sentence, *where = stop.split("\n")
    shown = "\n".join(["", fill(sentence, 96, initial_indent="  ", subsequent_indent="  "), *where])
    return message(exercise, cause, shown, see=see)


def counterexample(
    exercise: "Exercise", name: str, inputs: dict[str, Any], expected: Any, got: Any, most: int = 8
) -> str:
    """The smallest input, with what is right and what the answer gives, in so many lines at most.

    Of several results the first that is wrong is shown.
    """
    lists = isinstance(expected, list) and isinstance(got, list)
    several = lists and len(expected) == len(got) == len(exercise.returns)
    wrong = [n for n in range(len(expected)) if not same(expected[n], got[n])] if several else []
    if wrong and len(expected) > 1:
        name = f"{name} ({exercise.returns[wrong[0]]})"
        expected, got = expected[wrong[0]], got[wrong[0]]
    rows = {given: plain(x) for given, x in inputs.items()} | {"expected": expected, "got": got}
    told = fill(f"{SMALLEST.strip()} that shows it: {name}", 96, initial_indent="  ", subsequent_indent="  ")
    return "\n" + told + table(rows, most - told.count("\n"))


def listed(names: list[str]) -> str:
    """Names, each once, and how many there are beside those that can be taken in at a glance."""
    different = list(dict.fromkeys(names))
    more = len(different) - MOST_NAMES
    return "; ".join(different[:MOST_NAMES]) + (f"; and {more} more" if more > 0 else "")
