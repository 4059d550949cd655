"""The report of a class: a table to read, and a file that is whole at any time."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sciformer.check.grading import Grade, Result, visible
from sciformer.data.files import written_whole
from sciformer.functional import InputError


def table(grades: Sequence[Grade]) -> str:
    """One line for each exercise of each submission, and its sum."""
    rows = []
    for one in grades:
        for result in one.results:
            points = f"{result.points}/{result.out_of}"
            rows.append((one.file, result.exercise, points, result.says.split("\n")[0]))
        points = f"{one.points}/{one.out_of}" if one.graded else "-"
        rows.append((one.file, "total", points, "; ".join(one.notes)))
    shown = [[visible(word).replace("\n", "\\n") for word in row] for row in rows]
    widths = [max(len(row[n]) for row in shown) for n in range(3)]
    lines = ["  ".join([*(word.ljust(w) for word, w in zip(row, widths, strict=False)), row[3]]) for row in shown]
    return "\n".join(line.rstrip()[:240] for line in lines)


def write_report(grades: Sequence[Grade], seed: int, path: Path) -> None:
    """The grades as JSON, one line for each submission; characters that a terminal would obey are escaped.

    Raises:
        InputError: if it cannot be written. What was there before stays.
    """
    lines = [json.dumps(_entry(one), ensure_ascii=False) for one in grades]
    text = f'{{"seed": {seed}, "submissions": [\n' + ",\n".join(lines) + "\n]}\n"
    text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    try:
        with written_whole(path) as beside:
            beside.write_text(text, encoding="utf-8")
    except OSError as error:  # a full disk's does not say where
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _entry(one: Grade) -> dict[str, object]:
    return asdict(one) | {"graded": one.graded, "points": one.points, "out_of": one.out_of}


def read_report(path: Path) -> tuple[int, list[Grade]]:
    """The seed and the grades of a report.

    Raises:
        InputError: if the file is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return int(content["seed"]), [_grade(entry) for entry in content["submissions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a report of grades: {error!r}") from error


def _grade(entry: dict[str, list[dict[str, object]]]) -> Grade:
    results = tuple(Result(**one | {"faults": tuple(one["faults"])}) for one in entry["results"])  # type: ignore[arg-type]
    return Grade(str(entry["file"]), results, tuple(map(str, entry["notes"])), str(entry["digest"]))
