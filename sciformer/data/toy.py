"""Toy tasks, drawn at random.

Lookup, clusters in the plane, repeated blocks, reversed strings, stories with a question, and written dates.
"""

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
from sciformer.functional import InputError


def lookup(
    count: int, *, seed: int, pairs: int = 8, num_keys: int = 32, num_values: int = 10
) -> tuple[Int[Tensor, "N P"], Int[Tensor, "N P"], Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Pairs of a key and a value, then one of the keys again as the query; the answer is the value paired with it.

    Within a sequence the keys are distinct, while values may repeat. Everything is drawn uniformly.

    Args:
        count: number of sequences, N.
        pairs: number of pairs in a sequence, P.

    Returns:
        Keys (N, P), values (N, P), the queried key (N,) and the answer (N,), all int64.

    Raises:
        ValueError: if ``num_keys`` is below ``pairs``, or any size is below 1.
    """
    if min(count, pairs, num_values) < 1 or num_keys < pairs:
        raise InputError(
            f"lookup needs 1 or more of everything and a key for each pair, got count {count}, pairs {pairs}, "
            f"num_keys {num_keys}, num_values {num_values}"
        )
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(count, num_keys, generator=generator).argsort(dim=-1)[:, :pairs]  # (N, P), each key once
    values = torch.randint(num_values, (count, pairs), generator=generator)  # (N, P)
    position = torch.randint(pairs, (count, 1), generator=generator)  # (N, 1)
    return keys, values, keys.gather(1, position).squeeze(1), values.gather(1, position).squeeze(1)


def repeated_blocks(
    count: int, *, seed: int, length: int = 65, vocab_size: int = 48, shortest: int = 12, longest: int = 32
) -> tuple[Int[Tensor, "N L"], Int[Tensor, "N"]]:
    """Sequences that are one block of tokens, written again and again until they are full.

    The tokens of a block are distinct and drawn uniformly, and so is its length, the period. Whoever has seen the block
    once knows all that follows; neither a single token nor its position tells anything.

    Args:
        count: number of sequences, N.
        length: tokens in a sequence, L.
        vocab_size: number of different tokens.
        shortest: smallest period.
        longest: largest period.

    Returns:
        Tokens (N, L) and the period of each sequence (N,), both int64.

    Raises:
        ValueError: if a size is below 1, the periods are no range, or a block needs more tokens than there are.
    """
    if not 1 <= shortest <= longest <= vocab_size or min(count, length) < 1:
        raise InputError(
            f"repeated_blocks needs 1 or more of everything and 1 <= shortest <= longest <= vocab_size, got count "
            f"{count}, length {length}, shortest {shortest}, longest {longest}, vocab_size {vocab_size}"
        )
    generator = torch.Generator().manual_seed(seed)
    period = torch.randint(shortest, longest + 1, (count,), generator=generator)
    block = torch.rand(count, vocab_size, generator=generator).argsort(dim=-1)  # (N, V): each token once
    return block.gather(1, torch.arange(length) % period[:, None]), period


def clustered_tokens(
    count: int, *, seed: int, clusters: int = 4, size: int = 8, spread: float = 0.15, high: float = 4.0
) -> tuple[Float[Tensor, "N L 2"], Int[Tensor, "N L"], Float[Tensor, "N L"]]:
    """Sets of tokens in the plane, in clusters of high or low importance.

    The cluster centers are evenly spaced on the unit circle, rotated at random, and the tokens are normally
    distributed around them. In each set, half of the clusters (rounded down), drawn at random, are of high importance.
    The tokens of a cluster are adjacent in the sequence.

    Args:
        count: number of sets, N.
        clusters: number of clusters in a set, K.
        size: number of tokens in a cluster; a set has L = K · size.
        spread: standard deviation of x and y around a center.
        high: importance of a token in a cluster of high importance; in the other clusters it is 1.

    Returns:
        Positions (N, L, 2), each token's cluster (N, L), int64 from 0, and each token's importance (N, L).

    Raises:
        ValueError: if ``count`` or ``size`` is below 1, or ``clusters`` below 2.
    """
    if min(count, size) < 1 or clusters < 2:
        raise InputError(
            f"clustered_tokens needs a set, 2 clusters and a token in each, got count {count}, clusters {clusters}, "
            f"size {size}"
        )
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.rand(count, 1, generator=generator)  # (N, 1), in full turns
    angle = 2 * math.pi * (rotation + torch.arange(clusters) / clusters)  # (N, K)
    centers = torch.stack((angle.cos(), angle.sin()), dim=-1)  # (N, K, 2)
    important = torch.rand(count, clusters, generator=generator).argsort(dim=-1) < clusters // 2  # (N, K)
    labels = torch.arange(clusters).repeat_interleave(size).repeat(count, 1)  # (N, L)
    noise = spread * torch.randn(count, clusters * size, 2, generator=generator)  # (N, L, 2)
    importance = torch.where(important, high, 1.0).repeat_interleave(size, dim=1)  # (N, L)
    return centers.repeat_interleave(size, dim=1) + noise, labels, importance


def _check_counts(function: str, kind: str, count: int, shortest: int, longest: int) -> None:
    if count < 1 or not 1 <= shortest <= longest:
        raise InputError(
            f"{function} needs 1 {kind} or more and 1 <= shortest <= longest, got count {count}, shortest {shortest}, "
            f"longest {longest}"
        )


#: The vocabulary of :func:`reversals`: padding, start and end are tokens 0, 1 and 2, followed by the letters.
LETTERS = Vocabulary("_<>abcdefghijklmnopqrstuvwxyz")


def reversals(count: int, *, seed: int, shortest: int = 1, longest: int = 10) -> tuple[list[str], list[str]]:
    """Strings of random letters, and the same strings reversed.

    The length of a string is drawn uniformly, and so are the five letters that it is made of. Letters therefore often
    repeat, and a model cannot tell its position from the letters alone. Both sides consist of :data:`LETTERS`.

    Args:
        count: number of strings.
        shortest, longest: bounds of the number of letters in a string, both included.

    Returns:
        The strings and the reversed strings.

    Raises:
        ValueError: if ``count`` is below 1, or not 1 <= ``shortest`` <= ``longest``.
    """
    _check_counts("reversals", "string", count, shortest, longest)
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    pool = torch.randint(3, len(LETTERS), (count, 5), generator=generator)
    letters = pool.gather(1, torch.randint(5, (count, longest), generator=generator)).tolist()
    texts = ["".join(LETTERS.characters[n] for n in row[:length]) for row, length in zip(letters, lengths, strict=True)]
    return texts, [text[::-1] for text in texts]


_PEOPLE = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo")
_PLACES = ("attic", "bathroom", "cellar", "garage", "garden", "hall", "kitchen", "library", "office", "workshop")
_WAYS = ("went", "ran", "walked", "moved")

#: The vocabulary of :func:`stories`, in words: padding, start and end are tokens 0, 1 and 2.
STORY_WORDS = Vocabulary(("_", "<", ">", ".", "?", "Where", "is", "to", "the", *_WAYS, *_PEOPLE, *_PLACES))


def stories(count: int, *, seed: int, shortest: int = 2, longest: int = 6) -> tuple[list[str], list[str]]:
    """Stories of people who go from place to place, each with a question, and the answers.

    ``"Anna went to the hall . Ben ran to the attic . Anna moved to the garden . Where is Anna ?"`` has the answer
    ``"garden"``: of the sentences about a person, the last one counts. Each sentence is about one of up to four people,
    and the question is about one who occurs. All is drawn uniformly, in words of :data:`STORY_WORDS`. After the first
    of the bAbI tasks (Weston et al. 2015, arXiv:1502.05698, section 3.1).

    Args:
        count: number of stories.
        shortest, longest: bounds of the number of sentences before the question, both included.

    Returns:
        The stories, each with its question, and the answers, a place each.

    Raises:
        ValueError: if ``count`` is below 1, or not 1 <= ``shortest`` <= ``longest``.
    """
    _check_counts("stories", "story", count, shortest, longest)
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    casts = torch.rand(count, len(_PEOPLE), generator=generator).argsort(dim=1)[:, :4].tolist()
    drawn = torch.rand(count, longest, 3, generator=generator)  # of a person, a way and a place
    choices = (drawn * torch.tensor([4, len(_WAYS), len(_PLACES)])).long().tolist()
    asked = torch.randint(12, (count,), generator=generator).tolist()  # twelve is a multiple of 1, 2, 3 and 4
    texts, answers = [], []
    for length, cast, story, question in zip(lengths, casts, choices, asked, strict=True):
        sentences, is_at = [], {}
        for person, way, place in story[:length]:
            name = _PEOPLE[cast[person]]
            is_at[name] = _PLACES[place]
            sentences.append(f"{name} {_WAYS[way]} to the {_PLACES[place]} .")
        name = list(is_at)[question % len(is_at)]
        texts.append(" ".join((*sentences, f"Where is {name} ?")))
        answers.append(is_at[name])
    return texts, answers


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

#: The vocabularies of written dates and of ISO 8601; padding, start and end come first in both.
WRITTEN_DATES = Vocabulary("_<> ,-./0123456789ABCDEFGJLMNOPRSTUVWYabcdeghilmnoprstuvy")
ISO_DATES = Vocabulary("_<>-0123456789")


class DateForm(NamedTuple):
    """A format for dates.

    Args:
        weekday: whether the date begins with the day of the week, "Tue ".
        order: the order of day, month and year: "dmy", "mdy" or "ymd".
        day: how the fifth day is written: "5", "05" or "5th".
        month: how March is written: "March", "Mar", "MAR", "3" or "03".
        separator: the characters between day, month and year.
    """

    weekday: bool
    order: str
    day: str
    month: str
    separator: str

    def write(self, day: date) -> str:
        """A date written in this form."""
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


#: Every form. Where the month is a number, the separator determines the order: 3/5/1985 and 5.3.1985 are both March 5.
DATE_FORMS = [
    DateForm(*parts)
    for parts in product(
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
    """Days from 1900 to 2099, each written in one of many forms, and the same days in ISO 8601.

    Every tenth day and every eleventh form is held out for testing. Each component of a held-out form, such as its
    separator or its way of writing the month, also occurs in training forms: only the combination is new. Days are
    drawn uniformly. So is the way of writing the month, and then a form among those that write the month that way.

    Args:
        count: number of dates.
        days: ``"train"`` or ``"test"``; test days never occur in training, in any form.
        forms: ``"train"`` or ``"test"``; test forms never occur in training, on any day.

    Returns:
        The dates as written, in characters of :data:`WRITTEN_DATES`, and in ISO 8601, in those of :data:`ISO_DATES`.

    Raises:
        ValueError: if ``count`` is below 1, or a split is none of the above.
    """
    if count < 1:
        raise InputError(f"dates needs 1 date or more, got {count}")
    check_choice("days", days, ("train", "test"))
    check_choice("forms", forms, ("train", "test"))
    generator = torch.Generator().manual_seed(seed)
    ordinals = [n for n in range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1) if (n % 10 == 0) == (days == "test")]
    allowed = [form for n, form in enumerate(DATE_FORMS) if (n % 11 == 0) == (forms == "test")]
    forms_per_month = Counter(form.month for form in allowed)
    weights = torch.tensor([1 / forms_per_month[form.month] for form in allowed])
    chosen_days = torch.randint(len(ordinals), (count,), generator=generator).tolist()
    chosen_forms = torch.multinomial(weights, count, replacement=True, generator=generator).tolist()
    drawn = [(date.fromordinal(ordinals[n]), allowed[m]) for n, m in zip(chosen_days, chosen_forms, strict=True)]
    return [form.write(day) for day, form in drawn], [day.isoformat() for day, _ in drawn]
