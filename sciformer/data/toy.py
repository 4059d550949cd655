"""Toy tasks, drawn at random: looking up, clusters in the plane, reversing letters, reading dates."""

import math
from collections import Counter
from datetime import date
from itertools import product
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sciformer.data._choice import check_choice
from sciformer.data.text import Vocabulary


def lookup(
    count: int, *, seed: int, pairs: int = 8, num_keys: int = 32, num_values: int = 10
) -> tuple[Int[Tensor, "N P"], Int[Tensor, "N P"], Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Pairs of a key and a value, then one of the keys again; the answer is the value that stood beside it.

    In a sequence no key occurs twice, a value may. All is drawn uniformly.

    Args:
        count: number of sequences, N.
        pairs: number of pairs in a sequence, P.

    Returns:
        Keys (N, P), values (N, P), the key that is asked for (N,) and the answer (N,), all int64.

    Raises:
        ValueError: if there are fewer keys than pairs, or any of the sizes is below 1.
    """
    if min(count, pairs, num_values) < 1 or num_keys < pairs:
        raise ValueError(
            f"lookup needs 1 or more of everything and a key for each pair, got count {count}, pairs {pairs}, "
            f"num_keys {num_keys}, num_values {num_values}"
        )
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(count, num_keys, generator=generator).argsort(dim=-1)[:, :pairs]  # (N, P), each key once
    values = torch.randint(num_values, (count, pairs), generator=generator)  # (N, P)
    place = torch.randint(pairs, (count, 1), generator=generator)  # (N, 1)
    return keys, values, keys.gather(1, place).squeeze(1), values.gather(1, place).squeeze(1)


def clustered_tokens(
    count: int, *, seed: int, clusters: int = 4, size: int = 8, spread: float = 0.15, high: float = 4.0
) -> tuple[Float[Tensor, "N L 2"], Int[Tensor, "N L"], Float[Tensor, "N L"]]:
    """Sets of tokens in the plane, in clusters of high and of low importance.

    The clusters' centres stand evenly on a circle of radius 1, turned at random; around them the tokens are normally
    distributed. In each set, half of the clusters (with an odd number the smaller half), drawn at random, are of high
    importance. The tokens of a cluster follow one another.

    Args:
        count: number of sets, N.
        clusters: number of clusters in a set, K.
        size: number of tokens in a cluster; a set has L = K · size.
        spread: standard deviation of x and y around a centre.
        high: importance of a token in a cluster of high importance; in the others it is 1.

    Returns:
        Positions (N, L, 2), the number of each token's cluster (N, L), from 0, and each token's importance (N, L).

    Raises:
        ValueError: if there is no set, no token in a cluster or fewer than two clusters.
    """
    if min(count, size) < 1 or clusters < 2:
        raise ValueError(
            f"clustered_tokens needs a set, 2 clusters and a token in each, got count {count}, clusters {clusters}, "
            f"size {size}"
        )
    generator = torch.Generator().manual_seed(seed)
    turn = torch.rand(count, 1, generator=generator)  # (N, 1), in whole turns
    angle = 2 * math.pi * (turn + torch.arange(clusters) / clusters)  # (N, K)
    centres = torch.stack((angle.cos(), angle.sin()), dim=-1)  # (N, K, 2)
    important = torch.rand(count, clusters, generator=generator).argsort(dim=-1) < clusters // 2  # (N, K)
    labels = torch.arange(clusters).repeat_interleave(size).repeat(count, 1)  # (N, L)
    noise = spread * torch.randn(count, clusters * size, 2, generator=generator)  # (N, L, 2)
    importance = torch.where(important, high, 1.0).repeat_interleave(size, dim=1)  # (N, L)
    return centres.repeat_interleave(size, dim=1) + noise, labels, importance


#: What an encoder–decoder writes with: padding, start and end are tokens 0, 1 and 2. Then the letters.
LETTERS = Vocabulary("_<>abcdefghijklmnopqrstuvwxyz")


def reversals(count: int, *, seed: int, shortest: int = 1, longest: int = 10) -> tuple[list[str], list[str]]:
    """Random letters, and the same letters from last to first.

    The length is drawn uniformly, and so are five letters of which a string is made: letters often stand twice in a
    row, and a model cannot find its place by them. Both sides are made of :data:`LETTERS`.

    Args:
        count: number of strings.
        shortest, longest: how many letters a string has.

    Returns:
        The strings and what they are reversed.

    Raises:
        ValueError: if there is no string, or not 1 <= ``shortest`` <= ``longest``.
    """
    if count < 1 or not 1 <= shortest <= longest:
        raise ValueError(
            f"reversals needs 1 string or more and 1 <= shortest <= longest, got count {count}, shortest {shortest}, "
            f"longest {longest}"
        )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    pool = torch.randint(3, len(LETTERS), (count, 5), generator=generator)
    letters = pool.gather(1, torch.randint(5, (count, longest), generator=generator)).tolist()
    texts = ["".join(LETTERS.characters[n] for n in row[:length]) for row, length in zip(letters, lengths, strict=True)]
    return texts, [text[::-1] for text in texts]


_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

#: The first and the last day that :func:`dates` draws.
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)

#: What written dates are made of, and what ISO 8601 is made of; padding, start and end come first in both.
WRITTEN_DATES = Vocabulary("_<> ,-./0123456789ABCDEFGJLMNOPRSTUVWYabcdeghilmnoprstuvy")
ISO_DATES = Vocabulary("_<>-0123456789")


class DateForm(NamedTuple):
    """How a date is written.

    Args:
        weekday: whether it begins with the day of the week, "Tue ".
        order: which comes first: "dmy", "mdy" or "ymd".
        day: how 5 March looks: "5", "05" or "5th".
        month: "March", "Mar", "MAR", "3" or "03".
        separator: what stands between day, month and year.
    """

    weekday: bool
    order: str
    day: str
    month: str
    separator: str

    def write(self, day: date) -> str:
        """A date in this form."""
        name = _MONTHS[day.month - 1]
        ending = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        parts = {
            "d": {"5": f"{day.day}", "05": f"{day.day:02}", "5th": f"{day.day}{ending}"}[self.day],
            "m": {
                "March": name,
                "Mar": name[:3],
                "MAR": name[:3].upper(),
                "3": f"{day.month}",
                "03": f"{day.month:02}",
            }[self.month],
            "y": f"{day.year}",
        }
        weekday = f"{_WEEKDAYS[day.weekday()]} " if self.weekday else ""
        return weekday + self.separator.join(parts[part] for part in self.order)


#: Every form. Where the month is a number, the separator tells the order: 3/5/1985 is March 5, 5.3.1985 is too.
DATE_FORMS = [
    DateForm(*pieces)
    for pieces in product(
        (False, True), ("dmy", "mdy", "ymd"), ("5", "05", "5th"), ("March", "Mar", "MAR"), (" ", "-", ".", "/", ", ")
    )
] + [
    DateForm(weekday, order, day, month, separator)
    for weekday, (order, separator), day, month in product(
        (False, True), (("mdy", "/"), ("dmy", "."), ("ymd", "-")), ("5", "05"), ("3", "03")
    )
]


def dates(
    count: int,
    *,
    seed: int,
    days: Literal["train", "test"] = "train",
    forms: Literal["train", "test"] = "train",
) -> tuple[list[str], list[str]]:
    """Days from 1900 to 2099, written in one of many forms, and the same days in ISO 8601.

    Every tenth day and every eleventh form is kept for testing. Each piece of a form that is kept, such as its
    separator or its way to write the month, is known from other forms: what is new is how they come together. The five
    ways to write a month are equally likely, then the forms that have it; so are the days.

    Args:
        count: number of dates.
        days: ``"train"`` or ``"test"``, which never occur in training in any form.
        forms: ``"train"`` or ``"test"``, in which nothing is written in training.

    Returns:
        The dates as written, made of :data:`WRITTEN_DATES`, and in ISO 8601, made of :data:`ISO_DATES`.

    Raises:
        ValueError: if there is no date, or a split is none of the above.
    """
    if count < 1:
        raise ValueError(f"dates needs 1 date or more, got {count}")
    check_choice("days", days, ("train", "test"))
    check_choice("forms", forms, ("train", "test"))
    generator = torch.Generator().manual_seed(seed)
    ordinals = [n for n in range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1) if (n % 10 == 0) == (days == "test")]
    kept = [form for n, form in enumerate(DATE_FORMS) if (n % 11 == 0) == (forms == "test")]
    alike = Counter(form.month for form in kept)
    weights = torch.tensor([1 / alike[form.month] for form in kept])
    chosen_days = torch.randint(len(ordinals), (count,), generator=generator).tolist()
    chosen_forms = torch.multinomial(weights, count, replacement=True, generator=generator).tolist()
    drawn = [(date.fromordinal(ordinals[n]), kept[m]) for n, m in zip(chosen_days, chosen_forms, strict=True)]
    return [form.write(day) for day, form in drawn], [day.isoformat() for day, _ in drawn]
