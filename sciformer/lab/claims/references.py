"""The works that the table of claims cites: ``docs/references.bib``, read and printed."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sciformer.functional import InputError

#: What every entry has to say.
FIELDS = ("author", "title", "year", "url")


@dataclass(frozen=True)
class Reference:
    """A work, with what a reader needs to find it."""

    key: str
    author: str
    title: str
    year: str
    url: str

    @property
    def cited(self) -> str:
        """The key, as a link to the work."""
        return f"[{self.key}]({self.url})"

    def __str__(self) -> str:
        authors = " and ".join(" ".join(reversed(name.split(", "))) for name in self.author.split(" and "))
        return f"`{self.key}`: {authors}. *{self.title}*. {self.year}. <{self.url}>"


def references_file() -> Path:
    """Where the entries lie: inside an installed package, in ``docs/`` of a checkout."""
    inside = Path(__file__).parents[2] / "results" / "references.bib"
    return inside if inside.exists() else Path(__file__).parents[3] / "docs" / "references.bib"


@cache
def references() -> dict[str, Reference]:
    """Every entry by its key.

    Raises:
        InputError: if an entry lacks its author, title, year or link, or a key stands twice.
    """
    found: dict[str, Reference] = {}
    text = references_file().read_text(encoding="utf-8")
    for key, body in re.findall(r"^@\w+\{([^,\s]+),\n(.*?)^\}", text, flags=re.M | re.S):
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},$", body, flags=re.M))
        if missing := [name for name in FIELDS if name not in fields]:
            raise InputError(f"the reference {key} lacks its {', '.join(missing)}")
        if key in found:
            raise InputError(f"the reference {key} stands twice")
        found[key] = Reference(key, *(fields[name] for name in FIELDS))
    return found


def cited(key: str) -> str:
    """A key as a link to its work; "this course" where there is none.

    Raises:
        InputError: if there is no such reference; names those that there are.
    """
    if not key:
        return "this course"
    if key not in references():
        raise InputError(f"there is no reference {key!r}; there are {', '.join(references())}")
    return references()[key].cited
