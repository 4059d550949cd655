"""Equations of an einsum that one slip turns into a wrong one, so that a student's can be mended."""

from collections.abc import Iterator
from itertools import combinations
from string import ascii_lowercase

_ALPHABET = 2 * ascii_lowercase


def other_equations(equation: str) -> Iterator[str]:
    """This equation with one letter that means two axes, one that is taken for another, or two that are exchanged.

    Of "bhld,hdr,bhsd,hdr->bhls" one is "bhld,hdr,bhse,her->bhls".
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    parts = [*inputs.split(","), *([output] if arrow else [])]
    letters = sorted({letter for part in parts for letter in part if letter.isalpha()})
    for letter in letters:  # in some of the inputs it may mean another axis
        free = next((other for other in _ALPHABET[_ALPHABET.find(letter) + 1 :] if other not in letters), "")
        having = [n for n in range(inputs.count(",") + 1) if letter in parts[n]][::-1] if free else []
        for count in range(1, len(having)):
            for some in combinations(having, count):
                renamed = [part.replace(letter, free) if n in some else part for n, part in enumerate(parts)]
                yield _joined(renamed, arrow)
    for n, part in enumerate(parts):
        for one, two in combinations(range(len(part)), 2):
            turned = [*part]
            turned[one], turned[two] = part[two], part[one]
            yield _joined([*parts[:n], "".join(turned), *parts[n + 1 :]], arrow)
        for at, letter in enumerate(part):
            for other in letters if letter.isalpha() else []:
                if other != letter:
                    yield _joined([*parts[:n], part[:at] + other + part[at + 1 :], *parts[n + 1 :]], arrow)


def _joined(parts: list[str], arrow: str) -> str:
    return f"{','.join(parts[:-1])}->{parts[-1]}" if arrow else ",".join(parts)
