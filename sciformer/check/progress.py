"""What has been solved, and which mistakes were made: a small file beside the notebooks, never sent anywhere.

The file is ``sciformer-progress.json`` in the current folder, or what the environment variable ``SCIFORMER_PROGRESS``
names. It is written when an exercise is attempted, and can be deleted at any time.
"""

import json
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sciformer.data.files import written_whole

if TYPE_CHECKING:
    from sciformer.check.exercise import Diagnosis, Exercise

#: What this process has seen, so that checkers work where no file can be written.
_kept: dict[Path, dict[str, Any]] = {}


def place(folder: Path | None = None) -> Path:
    """The file."""
    return Path(folder or "", os.environ.get("SCIFORMER_PROGRESS", "sciformer-progress.json")).absolute()


def load(folder: Path | None = None) -> dict[str, Any]:
    """By exercise: runs, wrong runs since the last right one, the day of the first right one, and mistakes with counts.

    A file that cannot be read counts as none.
    """
    path = place(folder)
    if path not in _kept:
        _kept[path] = {}
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                _kept[path] = {k: v for k, v in found.items() if isinstance(v, dict)}
    return _kept[path]


def keep(diagnosis: "Diagnosis") -> int:
    """Remember one run of an exercise; how many wrong runs there were since the last right one, this one included."""
    if diagnosis.kind == "not attempted":
        return 0
    kept = load()
    entry = kept.setdefault(diagnosis.exercise, {})
    entry["runs"] = int(entry.get("runs", 0)) + 1
    entry["wrong"] = 0 if diagnosis.correct else int(entry.get("wrong", 0)) + 1
    if diagnosis.correct:
        entry.setdefault("solved", str(date.today()))
    mistakes = entry.setdefault("mistakes", {})
    for fault in diagnosis.faults:
        mistakes[fault] = mistakes.get(fault, 0) + 1
    with suppress(OSError), written_whole(place()) as beside:
        beside.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(entry["wrong"])


State = Literal["solved", "tried", "open"]
_MARKS: dict[State, str] = {"solved": "■", "tried": "◧", "open": "□"}


def states(exercises: Mapping[str, "Exercise"], folder: Path | None = None) -> dict[str, dict[str, State]]:
    """By notebook, each exercise and whether it is solved, tried or open."""
    kept = load(folder)
    found: dict[str, dict[str, State]] = {}
    for name, exercise in exercises.items():
        state: State = "solved" if kept.get(name, {}).get("solved") else "tried" if name in kept else "open"
        found.setdefault(exercise.notebook, {})[name] = state
    return found


def overview(exercises: Mapping[str, "Exercise"], folder: Path | None = None) -> str:
    """A line for each notebook: ■ solved, ◧ tried, □ open, then what is open."""
    found = states(exercises, folder)
    lines = []
    for notebook, of in found.items():
        marks = "".join(_MARKS[state] for state in of.values())
        unsolved = ", ".join(name for name, state in of.items() if state != "solved")
        lines.append(f"{notebook}  {marks:8}{unsolved}".rstrip())
    solved = [name for of in found.values() for name, state in of.items() if state == "solved"]
    points = (sum(exercises[n].points for n in names) for names in (solved, exercises))
    lines.append("{} of {} exercises solved, {} of {} points".format(len(solved), len(exercises), *points))
    return "\n".join(lines)


def review(exercises: Mapping[str, "Exercise"], answers: str | None = None, *, seed: int | None = None) -> str:
    """Three questions about mistakes that were made before; with answers such as "bca", how many are right.

    Args:
        seed: of the choice; by default the day's, so that questions and answers of a day belong together.
    """
    made = [
        (name, fault)
        for name, entry in load().items()
        if name in exercises
        for fault in exercises[name].faults
        if fault.name in entry.get("mistakes", {})
    ]
    if not made:
        return "There is nothing to review yet: no mistake has been named so far."
    draw = random.Random(date.today().toordinal() if seed is None else seed)
    lines, right = [], ""
    for number, (name, fault) in enumerate(draw.sample(made, min(3, len(made))), start=1):
        others = [other for other in exercises[name].faults if other is not fault]
        options = draw.sample([fault, *draw.sample(others, 2)], 3)
        right += "abc"[options.index(fault)]
        lines.append(f"{number}. {exercises[name].shown(fault, draw.randrange(2**32))}\n  Which mistake is it?")
        lines += [f"  {letter}) {option.says}" for letter, option in zip("abc", options, strict=True)]
    if answers is None:
        return "\n".join([*lines, f'Answer with check.review("{"abc"[: len(right)]}"), a letter for each question.'])
    hits = [given == wanted for given, wanted in zip(answers.replace(" ", ""), right, strict=False)]
    told = [
        f"{n}. {'right' if hit else 'no: ' + wanted}"
        for n, (hit, wanted) in enumerate(zip(hits, right, strict=False), 1)
    ]
    return "\n".join([*told, f"{sum(hits)} of {len(right)} right"])
