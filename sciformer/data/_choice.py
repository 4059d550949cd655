"""An argument that takes one of a few words."""

from collections.abc import Sequence


def check_choice(name: str, given: str, wanted: Sequence[str]) -> None:
    """Refuse an argument that is none of the words it may be.

    Raises:
        ValueError: naming the argument, the words and what was given.
    """
    if given not in wanted:
        raise ValueError(f"{name} must be {' or '.join(map(repr, wanted))}, got {given!r}")
