"""What students hand in: read once, with a bound on its size, and never run here."""

import hashlib
import io
import re
import stat
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sciformer.check.assignment import notebook_from, source
from sciformer.check.exercise import Exercise
from sciformer.functional import InputError

#: Bytes of a file, pictures included, and characters of its program.
LARGEST_FILE, LARGEST_PROGRAM = 2**25, 2**20
#: Here no submission is parsed: what is written to keep a parser busy would keep the grader busy.
_DEFINED = re.compile(r"^(?:def|class) (\w+)", flags=re.M)
_CHECKED = re.compile(r"^\w+(?:\.\w+)*\.(\w+)\((?:\s*(\w+)\s*[,)])?", flags=re.M)


@dataclass(frozen=True)
class Submission:
    """One file, read.

    Args:
        announced: exercises that the notebook was handed out with.
        unread: why it could not be read, if so.
        digest: SHA-256 of the file.
    """

    file: str
    cells: list[str]
    announced: frozenset[str] = frozenset()
    unread: str | None = None
    digest: str = ""

    def variables(self, exercises: Mapping[str, Exercise]) -> dict[str, str]:
        """Each exercise that the submission checks or defines, and the variable that holds its answer."""
        program = "\n".join(self.cells)
        found = {name: name for name in _DEFINED.findall(program) if name in exercises}
        return found | {name: variable or name for name, variable in _CHECKED.findall(program) if name in exercises}


def read(path: Path) -> Submission:
    """Read a notebook or a program; of what cannot be read, why."""
    digest = ""
    try:
        content = _content(path)
        digest = hashlib.sha256(content).hexdigest()
        cells, announced = _cells(path, content)
    except (OSError, ValueError, SyntaxError, LookupError, RecursionError, MemoryError) as error:
        return Submission(str(path), [], unread=f"cannot be read: {error}", digest=digest)
    return Submission(str(path), cells, announced, digest=digest)


def _content(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe or a device may never end
        raise InputError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise InputError(f"it has more than {LARGEST_FILE // 2**20} MB")
    return content


def _cells(path: Path, content: bytes) -> tuple[list[str], frozenset[str]]:
    """The cells' programs, and the exercises that a notebook was handed out with."""
    if path.suffix.lower() != ".ipynb":
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)  # a coding line, a byte order mark
        return _bounded([content.decode(encoding)]), frozenset()
    notebook = notebook_from(content, path)
    cells = [source(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    mark = notebook["metadata"].get("sciformer")
    names = mark.get("exercises") if isinstance(mark, dict) else None
    return _bounded(cells), frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _bounded(cells: list[str]) -> list[str]:
    if sum(map(len, cells)) > LARGEST_PROGRAM:
        raise InputError(f"its program has more than {LARGEST_PROGRAM:,} characters")
    return cells
