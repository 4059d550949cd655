"""Write what pages for learners and instructors take from elsewhere: hours, minutes, syllabus, mistakes, the example.

    python tools/teaching.py             write it into README.md, docs/paths.md and docs/instructors.md
    python tools/teaching.py check       fail if a page is out of date; writes nothing
    python tools/teaching.py recognize   ask the checkers which mistakes they see in the wrong answers of tests/answers:
                                         minutes, and only needed when answers or mistakes change

Hours are those of tools/heads.py. The main line of a notebook is what is left without its exercises and without the
sections that are called optional.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import nbformat
from answers import ANSWERS, diagnoses
from heads import NOTEBOOKS, minutes
from site_notebooks import head
from slides import objectives, plain

from sciformer.check import EXERCISES

ROOT = Path(__file__).resolve().parents[1]
#: The pages that are written.
PAGES = [ROOT / name for name in ("README.md", "docs/paths.md", "docs/instructors.md")]
RECOGNIZED = ANSWERS.with_name("recognized.json")
READ = {path.stem[:2]: nbformat.read(path, as_version=4) for path in NOTEBOOKS}
FILES = {path.stem[:2]: path.name for path in NOTEBOOKS}

#: Each path: its sessions, and the notebooks of each.
PATHS: dict[str, dict[str, str]] = {
    "day": {"first half": "00 01", "second half": "02 06"},
    "weekend": {"Saturday": "00 01 02 03", "Sunday": "04 05 06"},
    "six weeks": {"1": "00 01", "2": "02", "3": "03 04", "4": "05 06", "5": "07", "6": "08"},
    "twelve weeks": {
        **{"1": "00 01", "2": "02", "3": "03", "4": "04", "5": "05", "6": "06", "7": "07", "8": "08"},
        **{"9": "09 10", "10": "11 12", "11": "13 14 15", "12": "16 17 18"},
    },
    "for those who know transformers": {
        "distance": "07",
        "scores": "09 10",
        "evidence": "16",
        "your own": "17",
        "inside": "18",
    },
}
#: What one can do after the notebook that opens with a question in place of a list.
OBJECTIVES = {
    "07": "- give attention a learned price on distance, and say how far it reaches;\n"
    "- say why a symmetric price and a mean cannot tell a sequence from its reverse, and cure it;\n"
    "- compare learned prices with positions, fairly;\n"
    "- tell what training learned from what the start put in."
}
#: Kinds of mistakes, each with what it is recognised by in the name of a fault; a fault belongs to the first that fits.
FAMILIES = {
    "a mask inverted, ignored, or applied at the wrong step": r"\bmask\b|not causal|future|padding",
    "a softmax left out, done twice, or over the wrong axis": r"softmax|exponential",
    "a sum or a mean over the wrong axis": r"^(over|along|mean over) |down the|over the",
    "a wrong scale: √D, or the temperature": r"scale|√D|by D\b|temperature",
    "heads or patches mixed up when a tensor is reshaped": r"split|merge|interleaved|by columns|reshaped|channels as",
    "a residual or a norm missing or at the wrong place": r"\bnorm\b|residual",
    "one position too early or too late": r"shifted|one too|counted from|from 1\b|offset|next|two tokens back|two back",
    "two things exchanged, or queries, keys or values of the wrong input": r"quer|\bkeys?\b|values|exchanged|context",
    "a sign or a direction": r"sign|minus|no bars|wrong way|other way|reverse",
    "a test that asserts too little, or too much": r"asserted|to the last bit|shape only",
}
REST = "a mistake of its own kind"


def table(header: str, rows: list[str]) -> str:
    """A table in Markdown."""
    return "\n".join([header, re.sub(r"[^|]+", "---", header), *rows])


def main_line(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A notebook without optional sections, without exercises and the time for them."""
    kept, cells = True, []
    for cell in notebook.cells:
        if heading := re.match(r"## (.+)", cell.source) if cell.cell_type == "markdown" else None:
            kept = not re.match(r"Optional|Exercises|More exercises|One more exercise", heading[1])
        if kept:
            source = re.sub(r"^### Exercise .*", "", cell.source, flags=re.M) if cell.cell_type == "markdown" else None
            cells.append(cell if source is None else nbformat.v4.new_markdown_cell(source))
    return nbformat.v4.new_notebook(cells=cells)


def half_hours(total: float) -> int:
    """How many half hours so many minutes are, at least one. What is shown is added up, so that sums come out right."""
    return max(1, round(total / 30))


def hours(halves: int) -> str:
    """Half hours, written as hours."""
    whole = f"{halves // 2}" if halves > 1 else ""
    return f"{whole}{'½' if halves % 2 else ''} h"


def counted(numbers: list[str]) -> str:
    """The exercises of some notebooks, and the hours without and with them, as cells of a table."""
    asked = [exercise for exercise in EXERCISES.values() if exercise.notebook in numbers]
    short = sum(half_hours(minutes(main_line(READ[number]))) for number in numbers)
    whole = sum(half_hours(minutes(READ[number])) for number in numbers)
    return f"{len(asked)} ({sum(exercise.minutes for exercise in asked)} min) | {hours(short)} | {hours(whole)}"


def linked(numbers: list[str]) -> str:
    """Links to notebooks, from the folder of the pages."""
    return " ".join(f"[{number}](../notebooks/{FILES[number]})" for number in numbers)


def path_table(name: str) -> str:
    """The sessions of a path."""
    sessions = {session: numbers.split() for session, numbers in PATHS[name].items()}
    rows = [f"| {session} | {linked(numbers)} | {counted(numbers)} |" for session, numbers in sessions.items()]
    together = [number for numbers in sessions.values() for number in numbers]
    rows.append(f"| **together** | {len(together)} notebooks | {counted(together)} |")
    return table("| session | notebooks | exercises | main line | study |", rows)


def paths_table() -> str:
    """The README's table of paths: what each takes."""
    rows = []
    for name, sessions in PATHS.items():
        numbers = [number for session in sessions.values() for number in session.split()]
        all_between = list(map(int, numbers)) == list(range(int(numbers[0]), int(numbers[-1]) + 1))
        shown = f"{numbers[0]} to {numbers[-1]}" if all_between else " ".join(numbers)
        rows.append(f"| {name} | {shown} | {counted(numbers)} |")
    return table("| path | notebooks | exercises | main line | study |", rows)


def notebooks_table(rows: str) -> str:
    """The README's table of notebooks, with the hours of study and the time of a run from each notebook's head."""
    runs = {number: head(ROOT / "notebooks" / name).runs for number, name in FILES.items()}

    def timed(row: re.Match[str]) -> str:
        return f"{row[1]} {hours(half_hours(minutes(READ[row[2]])))} | {runs[row[2]]} |"

    whole = hours(sum(half_hours(minutes(notebook)) for notebook in READ.values()))
    seconds = sum(int(n) * (60 if unit == "minutes" else 1) for n, unit in map(str.split, runs.values()))
    rows = re.sub(r"^(\| (\d\d) \|.+\|)[^|]+\|[^|]+\|$", timed, rows, flags=re.M)
    together = f"| | **together** | | | **{whole}** | **{seconds / 60:.0f} minutes** |"
    return re.sub(r"^\| \| \*\*together.+$", together, rows, flags=re.M)


def syllabus_table(name: str) -> str:
    """The weeks of a syllabus with the learning objectives of their notebooks."""
    rows = []
    for week, numbers in PATHS[name].items():
        goals = [goal for number in numbers.split() for goal in goals_of(number)]
        rows.append(f"| {week} | {linked(numbers.split())} | {'<br>'.join(goals)} | {counted(numbers.split())} |")
    header = "| week | notebooks | afterwards students can | exercises | main line | study |"
    return table(header, rows)


def goals_of(number: str) -> list[str]:
    """What one can do after a notebook, a line for each."""
    texts = [cell.source for cell in READ[number].cells if cell.cell_type == "markdown"]
    (listed,) = (
        [OBJECTIVES[number]] if number in OBJECTIVES else [goals for text in texts for goals in objectives(text)]
    )
    goals = re.split(r"^- ", plain(listed), flags=re.M)[1:]
    return ["• " + " ".join(goal.replace("|", r"\|").split()).rstrip(";.") for goal in goals]


def family(fault: str) -> str:
    """The kind of a mistake."""
    return next((kind for kind, words in FAMILIES.items() if re.search(words, fault)), REST)


def mistakes_table() -> str:
    """Kinds of mistakes: how many the checkers know, in how many exercises, and how many wrong answers showed one."""
    known = [(name, fault.name) for name, exercise in EXERCISES.items() for fault in exercise.faults]
    seen = Counter(family(fault) for faults in recognized().values() for fault in faults if fault)
    rows = []
    for kind, count in Counter(family(fault) for _, fault in known).most_common():
        names = Counter(fault.partition(",")[0] for _, fault in known if family(fault) == kind)
        most = ", ".join(f"{name} ({times})" for name, times in names.most_common(3)) if kind != REST else ""
        exercises = len({name for name, fault in known if family(fault) == kind})
        rows.append((kind == REST, f"| {kind} | {count} | {exercises} | {seen[kind]} | {most} |"))
    header = (
        "| kind of mistake | known to the checkers | in exercises | seen in wrong answers | the commonest, by name |"
    )
    return table(header, [row for _, row in sorted(rows, key=lambda row: row[0])])


def recognized() -> dict[str, list[str | None]]:
    """By exercise, the one known mistake that is recognised in each wrong answer; None where it is no single one."""
    return json.loads(RECOGNIZED.read_text(encoding="utf-8"))


def recognize() -> None:
    """Ask the checkers, and write down what they say."""
    found: dict[str, list[str | None]] = {name: [] for name in EXERCISES}
    for _, answer, diagnosis in diagnoses("wrong", list(EXERCISES), seed=7):
        found[answer["exercise"]].append(diagnosis.faults[0] if len(diagnosis.faults) == 1 else None)
    lines = [f"{json.dumps(name)}: {json.dumps(faults, ensure_ascii=False)}" for name, faults in found.items()]
    RECOGNIZED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def totals() -> str:
    """How many mistakes and wrong answers the table stands on."""
    faults = [fault for faults in recognized().values() for fault in faults]
    return (
        f"The checkers know {sum(len(exercise.faults) for exercise in EXERCISES.values()):,} mistakes in "
        f"{len(EXERCISES)} exercises, and recognise a single one of them in {sum(map(bool, faults))} of {len(faults)} "
        "wrong answers."
    )


def written(page: str) -> str:
    """A page with its tables and programs made anew, each between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    tables = {f"path: {name}": path_table for name in PATHS} | {f"syllabus: {name}": syllabus_table for name in PATHS}
    parts = {name: make(name.partition(": ")[2]) for name, make in tables.items() if f"<!-- {name} -->" in page}
    for rows in re.findall("<!-- notebooks -->\n\n(.*?)\n\n<!-- end of notebooks -->", page, flags=re.S):
        parts["notebooks"] = notebooks_table(rows)
    if "<!-- paths -->" in page:
        parts["paths"] = paths_table()
    if "<!-- mistakes -->" in page:
        parts["mistakes"] = f"{totals()}\n\n{mistakes_table()}"
    for name in re.findall(r"^<!-- (examples/\S+) -->$", page, flags=re.M):
        parts[name] = f"```python\n{(ROOT / name).read_text(encoding='utf-8')}```"
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        page = re.sub(rf"{begin}.*?{end}", lambda _, new=f"{begin}\n\n{text}\n\n{end}": new, page, flags=re.S)
    return page


def main() -> int:
    """Write or check; the exit status is 1 if a page is out of date."""
    if sys.argv[1:] == ["recognize"]:
        recognize()
    stale = []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        if written(page) != page:
            stale.append(path.name)
            if sys.argv[1:] != ["check"]:
                path.write_text(written(page), encoding="utf-8")
    print("\n".join(f"{name}: out of date" for name in stale) or "all pages are up to date")
    return int(sys.argv[1:] == ["check"] and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
