"""Write docs/museum.md: bugs that shipped in published code, and what our checkers say about each.

python tools/museum.py
"""

from pathlib import Path
from textwrap import fill
from urllib.parse import urlparse

from sciformer.check import EXERCISES
from sciformer.exercises.museum import PIECES, Piece, diagnosis, source

PAGE = Path(__file__).resolve().parents[1] / "docs" / "museum.md"
HEAD = """# A museum of real bugs

Each of these {count} mistakes shipped: in a course, a library, a published model or a test. Most ran without an error,
and some of the models trained well enough. Such mistakes happen to everybody who writes attention. The links lead to
people who looked closely and said so in public.

Each bug is shown as small as it gets, in the notation of the course, as an answer to one of its exercises. The
original is written otherwise, and the link has it. **Find the bug before you unfold the diagnosis.** Then mend it:
paste the code into a cell and let the checker look.

```python
from sciformer import check

check.scaled_dot_product(scaled_dot_product)  # the function that you mended
```

The diagnoses are what the checkers print (seed 0), and `python tools/museum.py` makes this page. When the bugs were
collected, the checkers, which had been written without them, named {named_first} of the {count}. The other {added}
were told as wrong numbers; they have a sentence of their own since.
"""
#: Of the pieces, those whose mistake the checkers named before any had been written down for the museum's sake.
NAMED_FIRST = 20


def page() -> str:
    """The page as it should be."""
    head = HEAD.format(count=len(PIECES), named_first=NAMED_FIRST, added=len(PIECES) - NAMED_FIRST)
    return "\n".join([head, *(_room(number, piece) for number, piece in enumerate(PIECES, start=1))])


def _room(number: int, piece: Piece) -> str:
    owner, repository, kind, thread = urlparse(piece.link).path.strip("/").split("/")
    kind = {"pull": "pull request", "issues": "issue"}[kind]
    exercise = EXERCISES[piece.exercise]
    return f"""## {number}. {piece.title}

[{owner}/{repository}, {kind} {thread}]({piece.link}) · answers `{exercise.name}` of notebook {exercise.notebook}

{fill(piece.tells, 120, break_on_hyphens=False)}

```python
{source(piece).strip()}
```

<details><summary>What the checker says</summary>

```text
{diagnosis(piece).message}
```

</details>
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
