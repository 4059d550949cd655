"""The exercises as they stand in the notebooks: unsolved, each says so; with its solution put in, each is right."""

import ast
import contextlib
import inspect
import io
import re
from pathlib import Path

import nbformat
import pytest

from sciformer.check import EXERCISES
from sciformer.check.exercise import POINTS
from sciformer.exercises.ways import ways_of

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("[0-9]*.ipynb"))
HEADING = r"### Exercise (\d) · (\w+) · (\d+) minutes"
FOLDED = r"<details><summary>(.+?)</summary>\n\n(.*?)\n\n</details>"


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    content = nbformat.read(request.param, as_version=4)
    content.number = request.param.stem[:2]
    return content


def name_of(cell):
    """The exercise that a cell ends by checking, or whose answer it takes into use."""
    last = cell.source.splitlines()[-1] if cell.source else ""
    found = re.fullmatch(r"check\.(\w+)\(\1\)|(\w+) = check\.\2\.use\(\2\)", last)
    return (found[1] or found[2]) if cell.cell_type == "code" and found else None


def in_use(cell):
    """Whether the notebook goes on with the answer."""
    return cell.source.endswith(f".use({name_of(cell)})")


def exercises(notebook):
    """Name, text before, cell and text after of each exercise."""
    cells = notebook.cells
    return [(name_of(c), cells[n - 1], c, cells[n + 1]) for n, c in enumerate(cells) if name_of(c)]


def solution(exercise):
    return ways_of(exercise)[exercise.name]


def run(notebook, solved):
    """What the checkers print. Only imports and exercises run; that nothing else depends on them is tested below."""
    scope, printed = {"__name__": "notebook"}, {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        tree = ast.parse(cell.source)
        name = name_of(cell)
        if name is None:
            tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(tree, "imports", "exec"), scope)
            continue
        check = tree.body.pop()
        exec(compile(tree, "stub", "exec"), scope)
        if solved:
            exec(inspect.getsource(solution(EXERCISES[name])), scope)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(ast.Module([check], []), "check", "exec"), scope)
        printed[name] = out.getvalue()
    return printed


def test_every_notebook_has_an_easy_a_middle_and_a_hard_one(notebook):
    assert {EXERCISES[name].level for name, *_ in exercises(notebook)} == {"easy", "middle", "hard"}
    levels = [EXERCISES[name].level for name, _, cell, _ in exercises(notebook) if not in_use(cell)]
    assert levels == sorted(levels, key=list(POINTS).index), "of those at the end, the easy ones first"


def test_every_exercise_stands_in_its_notebook():
    found = {name: path.stem[:2] for path in NOTEBOOKS for name, *_ in exercises(nbformat.read(path, as_version=4))}
    assert found == {exercise.name: exercise.notebook for exercise in EXERCISES.values()}


def test_heads_hints_and_solutions(notebook):
    for number, (name, before, _, after) in enumerate(exercises(notebook), start=1):
        exercise = EXERCISES[name]
        assert re.findall(HEADING, before.source)[-1] == (str(number), exercise.level, str(exercise.minutes))
        folded = re.findall(FOLDED, after.source, flags=re.S)[:3]
        assert [title for title, _ in folded] == ["Hint 1", "Hint 2", "Solution"]
        source = inspect.getsource(solution(exercise))
        assert folded[2][1] == f"```python\n{source}```"
        assert tuple(" ".join(text.split()) for _, text in folded[:2]) == exercise.hints


def told(notebook, verdict, goes_on_with):
    """What each exercise should print."""
    more = f"; the notebook goes on with {goes_on_with}"
    return {name: f"{name}: {verdict}{more if in_use(cell) else ''}\n" for name, _, cell, _ in exercises(notebook)}


def test_unsolved_every_exercise_says_so(notebook):
    printed = run(notebook, solved=False)
    assert printed == told(notebook, "not attempted yet", "the solution")
    for name, _, cell, _ in exercises(notebook):
        assert [output.text for output in cell.outputs] == [printed[name]], "stored as it was left"


def test_solved_every_exercise_is_right(notebook):
    assert run(notebook, solved=True) == told(notebook, "correct", "yours")


def test_nothing_depends_on_an_answer_that_is_not_in_use(notebook):
    names = {name for name, _, cell, _ in exercises(notebook) if not in_use(cell)}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            used = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
            assert not names & used - {name_of(cell)}


def test_the_sections_to_read_again_exist(notebook):
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = set(re.findall(r"^#+ (.+)$", texts, flags=re.M))
    for name, *_ in exercises(notebook):
        exercise = EXERCISES[name]
        assert {exercise.section, *(fault.see for fault in exercise.faults if fault.see)} <= headings
