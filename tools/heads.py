"""Write the head of every notebook: links to its neighbours, where it stands in the course, and how long it takes.

    python tools/heads.py          write them, in the scripts and in the notebooks
    python tools/heads.py check    fail if one is out of date; writes nothing

The hours are computed from what there is to do: 120 words of text a minute, which is slow reading of a technical text
in a second language, ten seconds for each line of code, half a minute for each output, and the exercises' own minutes.
"""

import re
import sys

import jupytext
import nbformat

import notebooks as pairs
from sciformer.teach.diagrams.course_map import PARTS

NOTEBOOKS = sorted(pairs.NOTEBOOKS.glob("[0-9]*.ipynb"))
WORDS_A_MINUTE, MINUTES_A_LINE, MINUTES_AN_OUTPUT = 120, 1 / 6, 1 / 2


def minutes(notebook: nbformat.NotebookNode) -> float:
    """Minutes of study: reading, running and looking, and the exercises."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    read = sum(len(re.sub(r"<details>.*?</details>", "", text, flags=re.S).split()) for text in texts)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"][1:]  # the set-up is nothing to study
    lines = sum(len(cell.source.splitlines()) for cell in code)
    exercises = sum(int(n) for text in texts for n in re.findall(r"^### Exercise .* (\d+) minutes$", text, flags=re.M))
    looks = sum(bool(cell.outputs) for cell in code)
    return read / WORDS_A_MINUTE + lines * MINUTES_A_LINE + looks * MINUTES_AN_OUTPUT + exercises


def hours(notebook: nbformat.NotebookNode) -> str:
    """The same in words, to the half hour."""
    halves = max(1, round(minutes(notebook) / 30))
    number = {1: "half an", 2: "one"}.get(halves, f"{halves // 2}½" if halves % 2 else str(halves // 2))
    return f"about {number} hour{'s' if halves > 2 else ''} of study"


def head(number: int, titles: list[str], source: str, study: str) -> str:
    """The first cell of a notebook with its links and its hours; the rest of it stays."""
    lines = source.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("Needs: "))
    links = []
    if number:
        links.append(f"← [{titles[number - 1]}]({NOTEBOOKS[number - 1].name})")
    links.append("[the map of the course](00_welcome.ipynb)" if number else "the map of the course is below")
    if number + 1 < len(NOTEBOOKS):
        links.append(f"[{titles[number + 1]}]({NOTEBOOKS[number + 1].name}) →")
    needs = re.sub(r" · (?:runs in )?about ([^·]*? on two CPU cores).*", r" · runs in about \1", lines[at])
    map_ = [] if number == 0 else [course_map(number), ""]
    return "\n".join([*lines[:3], "", " · ".join(links), "", *map_, f"{needs} · {study}", *lines[at + 1 :]])


def course_map(here: int) -> str:
    """The parts of the course in a line, each notebook as a link, the present one in bold."""
    first = [start for _, start in PARTS.values()]
    parts = zip(PARTS, first, [*first[1:], len(NOTEBOOKS)], strict=True)

    def place(n: int) -> str:
        return f"**{n:02}**" if n == here else f"[{n:02}]({NOTEBOOKS[n].name})"

    lists = [f"{part} {' '.join(place(n) for n in range(start, end))}" for part, start, end in parts]
    return f"You are here: {' · '.join(lists)}"


def main() -> int:
    """Write or check; the exit status is 1 if a head is out of date."""
    notebooks = [nbformat.read(path, as_version=4) for path in NOTEBOOKS]
    titles = [notebook.cells[0].source.splitlines()[0].removeprefix("# ") for notebook in notebooks]
    stale = []
    for number, (path, notebook) in enumerate(zip(NOTEBOOKS, notebooks, strict=True)):
        wanted = head(number, titles, notebook.cells[0].source, hours(notebook))
        if wanted != notebook.cells[0].source:
            stale.append(path.stem)
            notebook.cells[0].source = wanted
            if sys.argv[1:] != ["check"]:
                nbformat.write(notebook, path)
                script = jupytext.writes(notebook, fmt="py:percent", config=pairs.CONFIG)
                (pairs.SCRIPTS / f"{path.stem}.py").write_text(script, encoding="utf-8")
    print("\n".join(f"{stem}: the head is out of date" for stem in stale) or "all heads are up to date")
    return int(sys.argv[1:] == ["check"] and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
