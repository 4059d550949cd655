"""Rehearse a homework with a made class, from the handout to the points in a learning platform's table.

    python tools/dry_run.py                          30 students, notebook 01, Canvas, 2 at a time
    python tools/dry_run.py --platform moodle --students 5 --out FOLDER

Each student answers each exercise as somebody in tests/answers did, right or wrong, or not at all; one in ten is late,
and one hands in twice. In the end the points in the table have to be those that the checkers give for the same answers
when they are asked directly.
"""

import argparse
import csv
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from answers import ANSWERS, as_a_cell

from sciformer.check import EXERCISES
from sciformer.check.assignment import checked
from sciformer.cli import main as sciformer

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "01_weighted_sums.ipynb"
LATE = 0.5
COLUMN = "Homework 1"
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", COLUMN]
MOODLE = ["Identifier", "Full name", "Status", "Grade", "Maximum Grade", "Grade can be changed", "Feedback comments"]


def answers_of_a_student(names: list[str], draw: random.Random) -> dict[str, dict[str, str]]:
    """An answer to most of the exercises, by name."""
    known = json.loads(ANSWERS.read_text(encoding="utf-8"))
    chosen = {}
    for name in names:
        kind = draw.choices(["right", "wrong", ""], [6, 3, 1])[0]
        if kind:
            chosen[name] = draw.choice([one for one in known if (one["exercise"], one["kind"]) == (name, kind)])
    return chosen


def filled_in(handout: dict[str, Any], chosen: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The handout with the stubs replaced by answers; the line that checks an answer stays."""
    cells = []
    for cell in handout["cells"]:
        text = "".join(cell["source"])
        mine = [name for name in checked(text, EXERCISES) if name in chosen] if cell["cell_type"] == "code" else []
        if mine:
            text = "\n\n".join([*(chosen[name]["code"] for name in mine), text.rpartition("\n\n\n")[2]])
        cells.append(cell | {"source": text})
    return handout | {"cells": cells}


def points(chosen: dict[str, dict[str, str]]) -> int:
    """What the checkers give for the same answers in this process, without a sandbox."""
    right = [
        EXERCISES[name].points
        for number, (name, answer) in enumerate(chosen.items())
        if EXERCISES[name].diagnose(as_a_cell(answer["code"], number)[name], seed=1).correct
    ]
    return sum(right)


def file_name(platform: str, student: int, late: bool, again: int = 0) -> str:
    """What a platform calls a submission; Moodle does not say in the name that it is late."""
    if platform == "moodle":
        return f"Student {student}_{1000 + student}_assignsubmission_file_{again}.ipynb"
    mark, version = "LATE_" if late else "", f"-{again}" if again else ""
    return f"student{student}_{mark}{1000 + student}_{5000 + again}_homework{version}.ipynb"


def roster(platform: str, students: int) -> list[list[str]]:
    """The platform's table before anything is graded."""
    if platform == "moodle":
        rows = [[f"Participant {1000 + n}", f"Student {n}", "Submitted", "", "100", "Yes", ""] for n in range(students)]
        return [MOODLE, *rows]
    rows = [[f"Student {n}", str(1000 + n), f"U{n}", f"s{n}", "01", ""] for n in range(students)]
    return [CANVAS, ["    Points Possible", "", "", "", "", "100"], *rows]


def hand_in(handout: Path, folder: Path, platform: str, students: int, seed: int) -> dict[str, float]:
    """Write what the students hand in; the share of the points that each should get, by the platform's number."""
    content, draw = json.loads(handout.read_text(encoding="utf-8")), random.Random(seed)
    names = content["metadata"]["sciformer"]["exercises"]
    possible, shares = sum(EXERCISES[name].points for name in names), {}
    for student in range(students):
        late = student % 10 == 9
        again = student == 1  # the first try of this one is empty; by default the better one counts
        chosen = answers_of_a_student(names, draw)
        for n, what in enumerate([{}, chosen] if again else [chosen]):
            target = folder / file_name(platform, student, late, n)
            target.write_text(json.dumps(filled_in(content, what)), encoding="utf-8")
        shares[str(1000 + student)] = points(chosen) / possible * (LATE if late and platform == "canvas" else 1)
    return shares


def points_in(table: Path, platform: str) -> dict[str, float]:
    """The points of a table that was filled in, as shares, by the platform's number."""
    rows = list(csv.DictReader(table.open(encoding="utf-8", newline="")))
    if platform == "moodle":
        return {row["Identifier"].removeprefix("Participant "): float(row["Grade"]) / 100 for row in rows}
    return {row["ID"]: float(row[COLUMN]) / 100 for row in rows if row["ID"]}


def timed(what: str, step: Callable[[], Any]) -> Any:
    """What a step returns, after a line with the time that it took."""
    start = time.perf_counter()
    result = step()
    print(f"-- {what}: {time.perf_counter() - start:.0f} s", flush=True)
    return result


def command(*arguments: object) -> None:
    """Run a command of the course as a person would, and show it.

    Raises:
        SystemExit: if it fails.
    """
    words = [str(word) for word in arguments]
    print("$ sciformer", " ".join(word if len(words) < 15 else Path(word).name for word in words)[:200], flush=True)
    if status := sciformer(words):
        sys.exit(status)


def rehearse(folder: Path, options: argparse.Namespace) -> None:
    """All of it, in a folder.

    Raises:
        AssertionError: if the table holds other points than the checkers give.
    """
    own, handed_in = folder / "handout", folder / "handed_in"
    handed_in.mkdir(parents=True)
    timed("handout", lambda: command("assignment", options.notebook, "--out", own))
    expected = timed(
        f"{options.students} students answer",
        lambda: hand_in(own / options.notebook.name, handed_in, options.platform, options.students, options.seed),
    )
    report, table, filled = folder / "grades.json", folder / "roster.csv", folder / "import.csv"
    how = ["--unsandboxed"] if options.unsandboxed else []
    files = sorted(handed_in.iterdir())
    grading = ["grade", *files, "--out", report, "--jobs", options.jobs, *how]
    timed(f"{len(files)} submissions graded", lambda: command(*grading))
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(roster(options.platform, options.students))
    late = ["--late", LATE] if options.platform == "canvas" else []
    filling = ["class", report, "--roster", table, "--column", COLUMN, "--out", filled, *late]
    timed("class and table", lambda: command(*filling))
    found = points_in(filled, options.platform)
    differing = {one: (found.get(one), share) for one, share in expected.items() if abs(found[one] - share) > 1e-4}
    assert not differing, f"in the table, and as the checkers say: {differing}"
    print(f"all {len(expected)} students have the points that the checkers give")


def main() -> None:
    """Read the command line and rehearse."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--notebook", type=Path, default=NOTEBOOK)
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--platform", choices=["canvas", "moodle"], default="canvas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the class")
    parser.add_argument("--unsandboxed", action="store_true")
    parser.add_argument("--out", type=Path, help="a folder to keep; a temporary one if not given")
    options = parser.parse_args()
    if options.out is not None:
        rehearse(options.out, options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rehearse(Path(folder), options)


if __name__ == "__main__":
    main()
