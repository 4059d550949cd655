"""From a notebook of the course, or of one's own, to the one that students get."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from sciformer.check.exercise import Exercise
from sciformer.data.files import written_whole
from sciformer.functional import InputError

#: What reading a program may raise: it can be no Python, hold null bytes, or be nested too deeply.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)

#: Magic above a cell, or before a statement, that is Python all the same.
_STILL_PYTHON = re.compile(r"\A%%(?:time|timeit|capture|prun)\b.*|^([ \t]*)%(?:time|prun) ", flags=re.M)
_FOLDED = re.compile(r"<details>.*?</details>\s*", flags=re.S)
_STUB = re.compile(r"^([ \t]*)(raise NotImplementedError.*)$")
_UNWRITTEN = r"\1raise NotImplementedError"
_WRITTEN = re.compile(r"^([ \t]*)### BEGIN SOLUTION.*?### END SOLUTION[^\n]*", flags=re.S | re.M)


def student_version(
    notebook: dict[str, Any], exercises: Mapping[str, Exercise], *, nbgrader: bool = False
) -> dict[str, Any]:
    """A notebook without what gives the answers away.

    Text cells lose all that is folded: hints, solutions and answers. In code cells, what stands between
    ``### BEGIN SOLUTION`` and ``### END SOLUTION`` becomes a NotImplementedError. Exercise cells lose their outputs.
    The names of the exercises are kept in the notebook's metadata, so that one that a student deletes is still missed.

    Args:
        notebook: as ``json.load`` reads it.
        exercises: those to look for, by name.
        nbgrader: split each exercise into an answer cell and a test cell, with nbgrader's metadata; the test cell
            fails where the answer is wrong.
    """
    student = deepcopy(notebook)
    found: list[str] = []
    cells: list[dict[str, Any]] = []
    for cell in student["cells"]:
        text = source(cell)
        if cell["cell_type"] == "markdown":
            kept = _FOLDED.sub("", text).strip()
            if kept or not text:
                cells.append(cell | {"source": kept})
            continue
        solved = _WRITTEN.sub(_UNWRITTEN, text)
        names = list(checked(solved, exercises)) if cell["cell_type"] == "code" else []
        if cell["cell_type"] == "code" and (names or solved != text):
            cell |= {"source": solved, "outputs": [], "execution_count": None}
        found += names
        cells += _for_nbgrader(cell, [exercises[name] for name in names]) if names and nbgrader else [cell]
    student["cells"] = cells
    student["metadata"]["sciformer"] = {"exercises": list(dict.fromkeys(found))}
    return student


def write_assignment(
    path: Path, out: Path, exercises: Mapping[str, Exercise], *, nbgrader: bool = False
) -> tuple[Path, int]:
    """Write the student version of a notebook into a folder.

    Returns:
        The file written, and how many exercises it has.

    Raises:
        ValueError: if the file is no notebook, has no exercise, or would be overwritten.
    """
    target = out / path.name
    if target.resolve() == path.resolve():
        raise InputError(f"{target} is the notebook itself; give --out another folder")
    student = student_version(read_notebook(path), exercises, nbgrader=nbgrader)
    count = len(student["metadata"]["sciformer"]["exercises"])
    if not count:
        raise InputError(f"{path} has no exercise: no cell calls check.NAME(...) for a name that is known")
    with written_whole(target) as beside:
        beside.write_text(json.dumps(student, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return target, count


def read_notebook(path: Path) -> dict[str, Any]:
    """A notebook as a dictionary.

    Raises:
        ValueError: if the file is no notebook.
    """
    return notebook_from(path.read_bytes(), path)


def notebook_from(content: bytes, path: Path) -> dict[str, Any]:
    """A notebook from what a file holds, with or without a byte order mark.

    Raises:
        ValueError: if it is no notebook.
    """
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
        if not isinstance(notebook["metadata"], dict):
            raise TypeError("metadata is no dictionary")
        for cell in notebook["cells"]:
            source(cell), cell["cell_type"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is not a notebook: {error!r}") from error
    return notebook


def source(cell: dict[str, Any]) -> str:
    """The text of a cell; a notebook file may hold it in lines."""
    return "".join(cell["source"])


def checked(text: str, exercises: Iterable[str]) -> dict[str, str]:
    """Each exercise that a program checks, and the variable that holds the answer."""
    try:
        _, tree = parsed(text)
    except UNREADABLE:
        return {}
    return dict(found for statement in tree.body if (found := check_in(statement, exercises)))


def parsed(text: str) -> tuple[str, ast.Module]:
    """A cell's text as Python, and its syntax tree; IPython's magic becomes calls of ``get_ipython()``.

    Raises:
        SyntaxError: if it is neither Python nor IPython's, or whatever else of UNREADABLE.
    """
    text = _STILL_PYTHON.sub(r"\1", text)
    try:
        return text, ast.parse(text)
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        with suppress(Exception):
            changed = TransformerManager().transform_cell(text)
            return changed, ast.parse(changed)
        raise


def check_in(statement: ast.stmt, exercises: Iterable[str]) -> tuple[str, str] | None:
    """The exercise that a statement checks, and the variable; NAME where it is none.

    The statement is ``check.NAME(variable)``, or ``NAME = check.NAME.use(variable)``, which goes on with the answer.
    """
    call = _call_in(statement)
    if call is None or (name := _checker_of(call).attr) not in exercises:
        return None
    first = call.args[0] if call.args else None
    return name, first.id if isinstance(first, ast.Name) else name


def _call_in(statement: ast.stmt) -> ast.Call | None:
    """The call of an attribute that a statement consists of, its result assigned or not."""
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None


def _checker_of(call: ast.Call) -> ast.Attribute:
    """``check.NAME`` of ``check.NAME(...)`` and of ``check.NAME.use(...)``."""
    function = call.func
    assert isinstance(function, ast.Attribute)
    return function.value if function.attr == "use" and isinstance(function.value, ast.Attribute) else function


def _for_nbgrader(cell: dict[str, Any], exercises: list[Exercise]) -> list[dict[str, Any]]:
    """The answer cell, and the test cell, which is locked and worth the exercises' points."""
    names = [exercise.name for exercise in exercises]
    statements = [s for s in ast.parse(cell["source"]).body if check_in(s, names)]
    lines = cell["source"].splitlines()
    answer, test = lines[: statements[0].lineno - 1], lines[statements[0].lineno - 1 :]
    # nbgrader empties an answer cell, but for a marked part.
    answer = [_STUB.sub(r"\1### BEGIN SOLUTION\n\1\2\n\1### END SOLUTION", line) for line in answer]
    asserted = []
    for call in filter(None, map(_call_in, statements)):
        checker, arguments = ast.unparse(_checker_of(call)), ", ".join(map(ast.unparse, [*call.args, *call.keywords]))
        if call.func is not _checker_of(call):  # the answer is judged before the solution may take its place
            asserted.append(f"{checker}({arguments})")
        asserted.append(f"assert {checker}.diagnose({arguments}).correct")
    in_use = any(isinstance(statement, ast.Assign) for statement in statements)
    test = asserted + test if in_use else test + asserted

    def part(suffix: str, text: list[str], **marks: Any) -> dict[str, Any]:
        marks = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3, **marks}
        marks["grade_id"] = f"{names[0]}-{suffix}"
        metadata = cell["metadata"] | {"nbgrader": marks}
        return cell | {"id": marks["grade_id"], "source": "\n".join(text).strip(), "metadata": metadata}

    points = sum(exercise.points for exercise in exercises)
    return [part("answer", answer, solution=True), part("test", test, grade=True, locked=True, points=points)]
