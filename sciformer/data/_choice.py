"""Arguments that take one of a few strings."""

from collections.abc import Sequence

from sciformer.functional import InputError


def check_choice(name: str, given: str, wanted: Sequence[str]) -> None:
    """Check that an argument is one of the strings it may be.

    Raises:
        ValueError: naming the argument, the allowed strings and the one that was given.
    """
    if given not in wanted:
        raise InputError(f"{name} must be {' or '.join(map(repr, wanted))}, got {given!r}")
