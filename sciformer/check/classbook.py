"""What a class did: which mistakes were made how often, and points in the form that a learning platform imports.

Canvas imports the table that its gradebook exports, and Moodle the grading worksheet of an assignment. Both are filled
in here: the names of submissions, as either platform hands them out, hold the number that stands in its table.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sciformer.check.grading import Grade, Result
from sciformer.data.files import written_whole
from sciformer.functional import InputError

Keep = Literal["best", "last"]

#: Moodle: "Ada Lovelace_1234567_assignsubmission_file_/02.ipynb", Canvas: "lovelaceada_LATE_1234_56789_02-1.ipynb".
_MOODLE = re.compile(r"_(\d+)_assignsubmission_")
_CANVAS = re.compile(r"_(LATE_)?(\d+)_(\d+)_")
_CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_POSSIBLE = "Points Possible"


@dataclass(frozen=True)
class HandedIn:
    """What counts of a student.

    Args:
        student: the platform's number, or the file's name where it has none.
        share: of the points that can be reached, from 0 to 1; what is late is worth less, if so decided.
        late: whether the platform calls it late.
        of: how many submissions there were.
    """

    student: str
    grade: Grade
    share: float
    late: bool
    of: int


def handed_in(grades: Sequence[Grade], *, keep: Keep = "best", late: float = 1.0) -> list[HandedIn]:
    """One submission of each student.

    Args:
        keep: which counts of several: the one with the most points, or the last by its name, where numbers count up.
        late: what a late submission is worth, from 0 to 1.
    """
    by_student: dict[str, list[HandedIn]] = {}
    for grade in sorted(grades, key=lambda grade: _natural(grade.file)):
        student, is_late = _student(grade.file)
        share = grade.points / max(1, grade.out_of) * (late if is_late else 1)
        by_student.setdefault(student, []).append(HandedIn(student, grade, share, is_late, 1))
    chosen = []
    for several in by_student.values():
        one = several[-1] if keep == "last" else max(several, key=lambda one: one.share)
        chosen.append(HandedIn(one.student, one.grade, one.share, one.late, len(several)))
    return chosen


def _student(file: str) -> tuple[str, bool]:
    """The number of a student in a file's name, and whether it says that it is late."""
    if found := _MOODLE.search(file):
        return found[1], False
    if found := _CANVAS.search(Path(file).name):
        return found[2], found[1] is not None
    return Path(file).name, False


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


@dataclass
class Tally:
    """What became of one exercise.

    Args:
        mistakes: by sentence, how many made each.
    """

    exercise: str
    attempted: int = 0
    right: int = 0
    mistakes: Counter[str] = field(default_factory=Counter)

    def shares(self, most: int = 3) -> dict[str, float]:
        """The most frequent mistakes as shares of those who attempted it."""
        return {says: count / self.attempted for says, count in self.mistakes.most_common(most)}


def tallies(chosen: Sequence[HandedIn]) -> list[Tally]:
    """A tally of each exercise, in the order of the report."""
    found: dict[str, Tally] = {}
    for one in chosen:
        for result in one.grade.results:
            tally = found.setdefault(result.exercise, Tally(result.exercise))
            if result.kind in ("missing", "not attempted"):
                continue
            tally.attempted += 1
            tally.right += result.kind == "correct"
            if result.kind != "correct":
                tally.mistakes[_named(result)] += 1
    return list(found.values())


def _named(result: Result) -> str:
    """A mistake in a few words: its name, a generated one's sentence, or the kind of problem."""
    if result.faults:
        return ", and ".join(result.faults)
    return result.says.split("\n")[0] if result.kind == "likely mistake" else result.kind


def mistakes_table(found: Sequence[Tally], students: int) -> str:
    """The tallies as a person reads them."""
    lines = []
    for tally in found:
        right = f"{tally.right / tally.attempted:.0%} right" if tally.attempted else "nobody"
        lines.append(f"{tally.exercise}: attempted by {tally.attempted} of {students}, {right}")
        lines += [f"  {share:4.0%}  {says}"[:120] for says, share in tally.shares().items()]
    return "\n".join(lines)


def fill_in(chosen: Sequence[HandedIn], roster: Path, out: Path, column: str) -> tuple[int, list[str]]:
    """Write a platform's table with the points filled in, scaled to those that it says are possible.

    Args:
        roster: what Canvas's gradebook exports, or Moodle's grading worksheet.
        column: name of the assignment, where the table is Canvas's; one that it lacks makes a new assignment.

    Returns:
        How many rows were filled in, and the students who are not in the table.

    Raises:
        InputError: if the table is neither's, or cannot be read or written.
    """
    try:
        rows = list(csv.reader(io.StringIO(roster.read_text(encoding="utf-8-sig"), newline="")))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{roster} cannot be read as a table: {error}") from error
    header = rows[0] if rows else []
    if "Identifier" in header and "Grade" in header:
        filled, known = _fill_moodle(rows, {one.student: one for one in chosen})
    elif "ID" in header and "Student" in header:
        rows, filled, known = _fill_canvas(rows, {one.student: one for one in chosen}, column)
    else:
        raise InputError(
            f"{roster} is no table of Canvas's gradebook (Student, ID, …) and no grading worksheet of Moodle's "
            f"(Identifier, …, Grade): it begins {','.join(header)[:80]!r}"
        )
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    try:
        with written_whole(out) as beside:
            beside.write_text(text.getvalue(), encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from error
    return filled, [one.student for one in chosen if one.student not in known]


def _fill_moodle(rows: list[list[str]], students: dict[str, HandedIn]) -> tuple[int, set[str]]:
    """Fill in Grade and Feedback comments; a row whose grade may not be changed stays as it is."""
    header, filled, known = rows[0], 0, set()
    at = {name: n for n, name in enumerate(header)}
    possible_at = next((n for name, n in at.items() if name.lower() == "maximum grade"), None)
    for row in rows[1:]:
        number = re.sub(r"\D", "", row[at["Identifier"]]) if len(row) == len(header) else ""
        known.add(number)
        one = students.get(number)
        if one is None or row[at.get("Grade can be changed", at["Identifier"])] == "No":
            continue
        row[at["Grade"]] = _points(one, row[possible_at] if possible_at is not None else "")
        if "Feedback comments" in at:
            row[at["Feedback comments"]] = _feedback(one)
        filled += 1
    return filled, known


def _fill_canvas(
    rows: list[list[str]], students: dict[str, HandedIn], column: str
) -> tuple[list[list[str]], int, set[str]]:
    """The columns that tell who somebody is, and that of the assignment."""
    header = rows[0]
    at = {name: n for n, name in enumerate(header)}
    there = next(
        (n for name, n in at.items() if name == column or re.fullmatch(re.escape(column) + r" \(\d+\)", name)), None
    )
    who = [name for name in _CANVAS_COLUMNS if name in at]
    possible = str(next((one.grade.out_of for one in students.values()), 0))
    filled, known, table = 0, set(), [[*who, header[there] if there is not None else column]]
    for row in rows[1:]:
        if len(row) <= max(at[name] for name in who):
            continue
        cells = [row[at[name]] for name in who]
        before = row[there] if there is not None and there < len(row) else ""
        if row[0].strip() == _POSSIBLE:
            possible = before or possible
            table.append([*cells, possible])
            continue
        number = row[at["ID"]].strip()
        if not number:  # a row about the columns, as "Manual Posting"
            continue
        known.add(number)
        one = students.get(number)
        filled += one is not None
        table.append([*cells, _points(one, possible) if one else before])
    return table, filled, known


def _points(one: HandedIn, possible: str) -> str:
    try:
        highest = float(possible)
    except ValueError:
        highest = float(one.grade.out_of)
    return f"{one.share * highest:.2f}".rstrip("0").rstrip(".")


def _feedback(one: HandedIn) -> str:
    """Each exercise in a line, and what counts."""
    lines = [f"{r.exercise}: {r.points} of {r.out_of}. {r.says.splitlines()[0]}" for r in one.grade.results]
    if one.late:
        lines.append("This submission is late.")
    if one.of > 1:
        lines.append(f"It is the one of {one.of} submissions that counts.")
    return "<br>".join([*lines, *one.grade.notes])
