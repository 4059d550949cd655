"""Assignments and grades: what students get, and what becomes of whatever they hand in."""

import inspect
import json
import re
import shutil
import sys
from pathlib import Path

import bubblewrap
import nbformat
import pytest

import sciformer
from sciformer.check import EXERCISES, grading, running
from sciformer.check.assignment import read_notebook, student_version, write_assignment
from sciformer.check.exercise import Call, Observation
from sciformer.check.report import read_report, table, write_report
from sciformer.cli import main
from sciformer.exercises.ways import nb02
from sciformer.exercises.ways.nb02 import masked_weights, scaled_dot_product

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "02_scaled_dot_product.ipynb"
#: For the commands: with a sandbox wherever there can be one.
HOW = [] if bubblewrap.WORKS else ["--unsandboxed"]
RIGHT = Path(nb02.__file__).read_text().split("\n\n\ndef test_attention")[0]
NAMES = ["masked_weights", "scaled_dot_product", "future_leaks"]


def cell(source, kind="code"):
    more = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "id": "x", "metadata": {}, "source": source, **more}


def notebook(*cells):
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


# What students get.


def test_a_student_version_gives_nothing_away():
    text = json.dumps(student_version(read_notebook(NOTEBOOK), EXERCISES), ensure_ascii=False)
    assert "<details>" not in text
    assert "hidden.softmax" not in text
    for name in NAMES:
        assert f"def {name}(" in text


def test_a_student_version_is_a_notebook_that_knows_its_exercises(tmp_path):
    path, count = write_assignment(NOTEBOOK, tmp_path / "handed out", EXERCISES)
    student = nbformat.read(path, as_version=4)
    nbformat.validate(student)
    assert count == 5
    assert student.metadata["sciformer"]["exercises"] == [*NAMES[:2], "AttentionHead", NAMES[2], "test_attention"]
    assert list(tmp_path.iterdir()) == [tmp_path / "handed out"]


def test_marked_solutions_become_stubs():
    solved = "def masked_weights(s, m):\n    ### BEGIN SOLUTION\n    return s\n    ### END SOLUTION\n\n\n"
    student = student_version(notebook(cell(solved + "check.masked_weights(masked_weights)")), EXERCISES)
    source = student["cells"][0]["source"]
    assert source.startswith("def masked_weights(s, m):\n    raise NotImplementedError\n")
    assert "return s" not in source


@pytest.mark.parametrize(
    "content", ["", "no json", "[]", '{"cells": 3, "metadata": {}}', '{"cells": [{}], "metadata": {}}']
)
def test_what_is_no_notebook_is_refused(tmp_path, content):
    path = tmp_path / "broken.ipynb"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"broken.ipynb is not a notebook"):
        write_assignment(path, tmp_path / "out", EXERCISES)
    assert not (tmp_path / "out").exists()


def test_a_notebook_is_not_overwritten_nor_handed_out_without_exercises(tmp_path):
    path = tmp_path / "plain.ipynb"
    path.write_text(json.dumps(notebook(cell("x = 1"))))
    with pytest.raises(ValueError, match="is the notebook itself"):
        write_assignment(path, tmp_path, EXERCISES)
    with pytest.raises(ValueError, match="has no exercise"):
        write_assignment(path, tmp_path / "out", EXERCISES)


def test_nbgrader_gets_an_answer_cell_and_a_locked_test_cell():
    student = student_version(read_notebook(NOTEBOOK), EXERCISES, nbgrader=True)
    nbformat.validate(nbformat.from_dict(student))
    marked = [c for c in student["cells"] if "nbgrader" in c["metadata"]]
    assert len(marked) == 10
    answer, test = marked[2], marked[3]
    assert answer["metadata"]["nbgrader"] == {
        "grade": False,
        "grade_id": "scaled_dot_product-answer",
        "locked": False,
        "schema_version": 3,
        "solution": True,
        "task": False,
    }
    assert answer["source"].startswith("def scaled_dot_product(")
    assert "check." not in answer["source"]
    assert test["metadata"]["nbgrader"]["points"] == 2
    assert test["metadata"]["nbgrader"]["locked"]
    scope = {"check": sciformer.check, "scaled_dot_product": scaled_dot_product}
    exec(test["source"], scope)
    with pytest.raises(AssertionError):
        exec(test["source"], scope | {"scaled_dot_product": lambda *inputs: inputs[2]})


def test_an_answer_in_use_is_judged_before_the_solution_takes_its_place(tmp_path):
    lines = [
        "def scaled_dot_product(query, key, value, attn_mask=None):",
        "    raise NotImplementedError",
        "scaled_dot_product = check.scaled_dot_product.use(scaled_dot_product)",
    ]
    content = notebook(cell("\n".join(lines)))
    student = student_version(content, EXERCISES, nbgrader=True)
    assert student["metadata"]["sciformer"]["exercises"] == ["scaled_dot_product"]
    test = student["cells"][-1]
    assert test["source"].endswith(lines[-1])
    scope = {"check": sciformer.check, "scaled_dot_product": scaled_dot_product}
    exec(test["source"], scope)
    assert scope["scaled_dot_product"] is scaled_dot_product
    with pytest.raises(AssertionError):
        exec(test["source"], scope | {"scaled_dot_product": lambda *inputs: inputs[2]})


# What they hand in.

NO_SCALE = inspect.getsource(scaled_dot_product).replace(" / math.sqrt(query.shape[-1])", "")
SPEAKS = """
import os
for fd in range(3, 40):
    try:
        os.write(fd, b'[1]\\n{"seen": "masked_weights", "content": []}\\n')
        os.write(fd, b'{"seen": "future_leaks", "content": "eA=="}\\n')
    except OSError:
        pass
"""
DELETES = """
import os, pathlib, shutil, sciformer
package = pathlib.Path(sciformer.__file__).parent
assert package.parent == pathlib.Path.cwd() or not os.access(package, os.W_OK), "neither a copy nor read-only"
(package / "check" / "exercise.py").write_text("broken")
shutil.rmtree(package, ignore_errors=True)
shutil.rmtree(pathlib.Path.cwd(), ignore_errors=True)
"""
# What real notebooks look like, and right all the same.
LIKE_A_NOTEBOOK = notebook(
    cell("from __future__ import annotations"),
    cell(
        "IN_COLAB = False\nif IN_COLAB:\n    !pip install sciformer\nfiles = !ls\nfor file in files:\n    print(file)"
    ),
    cell("%matplotlib inline\nimport math\nimport torch\n%load_ext autoreload\n%time half = 1 / 2"),
    cell("%%time\nfrom sciformer import check, masked_softmax\ntorch.set_grad_enabled(False)\ndisplay(half)"),
    cell("get_ipython().run_line_magic('matplotlib', 'inline')\ntorch.cummax?"),
    cell("%config InlineBackend.figure_format = 'retina'\n" + RIGHT + "\nmine = masked_weights"),
    cell("!nvidia-smi\ncheck.masked_weights(mine)"),
)
ANNOTATED = """# -*- coding: latin-1 -*-
# é
from __future__ import annotations
import inspect
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Settings:
    other: "Settings | None" = None
    later: Later = None


class Pair(NamedTuple):
    first: "int"


class Later:
    pass


assert "class Later" in inspect.getsource(Later)
"""
COMPILED = """
@torch.jit.script
def scaled(query, key):
    return query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5


def scaled_dot_product(query, key, value, attn_mask=None):
    scores = scaled(query, key)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ value
"""
USED = """
from sciformer import check
def scaled_dot_product(query, key, value, attn_mask=None): return value
scaled_dot_product = check.scaled_dot_product.use(scaled_dot_product)
check.scaled_dot_product(scaled_dot_product)
"""
GUESSES = """
count = 0
def future_leaks(attention, x):
    global count
    count += 1
    return [False, True, True, False, True, False, True, True, True, True, True, False, False][(count - 1) // 2 % 13]
"""
SUBMISSIONS = {
    "float64.py": "import torch\ntorch.set_default_dtype(torch.float64)\n" + RIGHT,
    "mark.py": "\ufeff" + RIGHT,
    "annotated.py": (ANNOTATED + RIGHT.replace("from __future__", "#")).encode("latin-1", "replace"),
    "compiled.py": RIGHT + COMPILED,
    "UPPER.IPYNB": "\ufeff" + json.dumps(LIKE_A_NOTEBOOK),
    "used.py": USED,
    "guesses.py": GUESSES,
    "right.py": RIGHT,
    "no_scale.py": "import math\n" + inspect.getsource(masked_weights) + NO_SCALE,
    "renamed.ipynb": notebook(
        cell("import math\nimport torch\nfrom sciformer import check"),
        cell("%matplotlib inline\n" + inspect.getsource(scaled_dot_product) + "mine = scaled_dot_product"),
        cell("check.scaled_dot_product(mine)"),
        cell("def broken(:"),
        cell("1 / 0\n" + inspect.getsource(masked_weights)),
    ),
    "magic.ipynb": notebook(
        cell("files = !ls\nimport math\nimport torch"),
        cell("%%time\n" + RIGHT + "\ntorch.cummax?"),
        cell("%%bash\necho done"),
    ),
    "loops.py": "while True: pass\n" + RIGHT.replace("return bool(", "while True: pass\n    return bool("),
    "exits.py": "import sys, os\nsys.exit(3)\nos._exit(0)\n" + RIGHT + "\ndef future_leaks(attention, x): os._exit(0)",
    "crashes.py": RIGHT + "\nimport ctypes\ndef masked_weights(*x): return ctypes.string_at(0)",
    "prints.py": RIGHT + "\nfor n in range(200): print('x' * 100_000)",
    "hungry.py": RIGHT + "\ndef masked_weights(s, m): return torch.ones(8_000_000_000)",
    "not_python.py": "def (",
    "no_notebook.ipynb": '{"cells": 1}',
    "null.py": "x = '\0'",
    "forges.py": (
        "from sciformer.check import EXERCISES\nfrom sciformer.check.exercise import Exercise, Observation\n"
        "Exercise.judge = lambda *a: print('correct')\nExercise.observe = lambda *a: Observation()\n"
        "def masked_weights(s, m): return s\ndef scaled_dot_product(*x): return x[0]\n"
        "def future_leaks(*x): return True\n"
    ),
    "speaks.py": SPEAKS + RIGHT,
    "says_so.py": (
        "from sciformer.check.exercise import Exercise, Observation, Problem\n"
        "Exercise.observe = lambda *a: Observation(problem=Problem('correct', ''))\n"
        "def masked_weights(s, m): return s\n"
    ),
    "empties.py": (
        "import os\nfor fd in range(3, 40):\n    try: os.ftruncate(fd, 0)\n    except OSError: pass\nos._exit(1)\n"
        "def masked_weights(s, m): raise ValueError('\\ud800')\n"
    ),
    "deep.ipynb": "[" * 100_000,
    "deletes.py": DELETES + RIGHT,
    "right_after_all.py": RIGHT,
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """All submissions, graded in one go; each by its name."""
    folder = tmp_path_factory.mktemp("handed in")
    for name, content in SUBMISSIONS.items():
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    files = [folder / name for name in SUBMISSIONS]
    grades = grading.grade(files, 7, seconds=24, memory=2048, jobs=2, unsandboxed=not bubblewrap.WORKS)
    assert len(grades) == len(SUBMISSIONS)
    return {Path(one.file).name: one for one in grades}


def kinds(one):
    return {result.exercise: result.kind for result in one.results}


@pytest.mark.parametrize("name", ["right.py", "magic.ipynb", "prints.py", "deletes.py", "right_after_all.py"])
def test_right_answers_get_all_points(graded, name):
    one = graded[name]
    assert kinds(one) == dict.fromkeys(NAMES, "correct")
    assert (one.points, one.out_of) == (6, 6)


@pytest.mark.parametrize("name", ["float64.py", "mark.py", "annotated.py", "compiled.py", "UPPER.IPYNB"])
def test_the_shapes_that_honest_work_has_cost_no_points(graded, name):
    assert graded[name].notes == ()
    assert graded[name].points == 6


def test_going_on_with_the_solution_does_not_hand_it_in(graded):
    assert graded["used.py"].results[1].kind != "correct"
    assert graded["used.py"].points == 0


def test_yes_and_no_cannot_be_learnt_by_heart(graded):
    assert kinds(graded["guesses.py"])["future_leaks"] != "correct"


def test_the_package_is_as_it_was(graded):
    (note,) = graded["deletes.py"].notes or ("",)
    assert note == "" or "Read-only file system" in note
    assert (Path(sciformer.__file__).parent / "check" / "exercise.py").read_text().startswith('"""An exercise')


def test_mistakes_are_named_and_what_is_missing_counts(graded):
    one = graded["no_scale.py"]
    assert kinds(one) == {"masked_weights": "correct", "scaled_dot_product": "known mistake", "future_leaks": "missing"}
    assert one.results[1].faults == ("no scale",)
    assert (one.points, one.out_of) == (1, 6)


def test_a_notebook_is_run_as_far_as_it_goes(graded):
    one = graded["renamed.ipynb"]
    assert kinds(one)["scaled_dot_product"] == kinds(one)["masked_weights"] == "correct"
    unread, failed = one.notes
    assert unread.startswith("cell 4: SyntaxError: ")
    assert failed == "1 / 0: ZeroDivisionError: division by zero"


def test_loops_are_cut_off_and_the_rest_is_graded(graded):
    one = graded["loops.py"]
    assert kinds(one) == {"masked_weights": "correct", "scaled_dot_product": "correct", "future_leaks": "too slow"}
    assert "cut off" in one.notes[0]


def test_ending_the_process_costs_only_what_ended_it(graded):
    one = graded["exits.py"]
    assert kinds(one) == {"masked_weights": "correct", "scaled_dot_product": "correct", "future_leaks": "crashed"}
    assert one.notes == (
        "os._exit(0): it ended its process: exit status 0",
        "sys.exit(3): SystemExit: 3",
    )
    assert kinds(graded["crashes.py"])["masked_weights"] == "crashed"
    assert graded["crashes.py"].points == 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit a process's memory")
def test_memory_is_limited(graded):
    assert kinds(graded["hungry.py"])["masked_weights"] == "raises"
    assert graded["hungry.py"].points == 5


@pytest.mark.parametrize("name", ["not_python.py", "no_notebook.ipynb", "null.py", "deep.ipynb"])
def test_what_cannot_be_read_gets_nothing(graded, name):
    assert kinds(graded[name]) == dict.fromkeys(NAMES, "missing")
    assert len(graded[name].notes) == 1


@pytest.mark.parametrize("name", ["forges.py", "says_so.py", "empties.py"])
def test_rewriting_the_checker_is_no_use(graded, name):
    assert graded[name].points == 0
    assert graded[name].out_of == 6


def test_a_report_holds_whatever_was_handed_in(graded, tmp_path):
    write_report(list(graded.values()), 7, tmp_path / "grades.json")
    report = json.loads((tmp_path / "grades.json").read_text(encoding="utf-8"))
    assert len(report["submissions"]) == len(table(list(graded.values())).splitlines()) / 4 == len(SUBMISSIONS)


def test_speaking_in_the_worker_s_place_hurts_nobody_else(graded):
    assert graded["speaks.py"].out_of == 6
    assert graded["right_after_all.py"].points == 6


def test_the_table_has_a_line_for_each_and_a_sum(graded):
    lines = table([graded["no_scale.py"]]).splitlines()
    assert len(lines) == 4
    assert "scaled_dot_product  0/2  The scores are not divided by √D" in lines[1]
    assert lines[3].split()[-2:] == ["total", "1/6"]


# The commands.

PAGE = (Path(__file__).parents[1] / "docs" / "homework.md").read_text(encoding="utf-8")
(HOMEWORK,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S) if "Fault(" in block)


def test_exercises_of_one_s_own_from_the_command_line(tmp_path, capsys):
    (tmp_path / "homework.py").write_text(HOMEWORK)
    stub = "def mine(query, key):\n    raise NotImplementedError\n\n\nhomework.cosine_scores(mine)"
    (tmp_path / "sheet.ipynb").write_text(json.dumps(notebook(cell("import homework"), cell(stub))))
    own = ["--exercises", str(tmp_path / "homework.py")]
    assert main(["assignment", str(tmp_path / "sheet.ipynb"), "--out", str(tmp_path / "out"), *own]) == 0
    handed_in = (tmp_path / "out" / "sheet.ipynb").read_text()
    right = "return torch.nn.functional.cosine_similarity(query[:, None], key, dim=-1)"
    (tmp_path / "anna.ipynb").write_text(handed_in.replace("raise NotImplementedError", f"import torch; {right}"))
    (tmp_path / "ben.py").write_text("def cosine_scores(query, key):\n    return query @ key.T\n")
    files = [str(tmp_path / name) for name in ("anna.ipynb", "ben.py", "out/sheet.ipynb")]
    assert main(["grade", *files, *own, "--out", str(tmp_path / "grades.json"), "--seed", "5", *HOW]) == 0
    printed = capsys.readouterr().out
    assert "2/2  correct" in printed
    assert "The vectors are not divided by their lengths." in printed
    assert "not attempted yet" in printed
    report = json.loads((tmp_path / "grades.json").read_text())
    assert report["seed"] == 5
    assert [submission["points"] for submission in report["submissions"]] == [2, 0, 0]
    assert report["submissions"][1]["results"][0]["faults"] == ["not normalised"]


def test_without_a_sandbox_the_same_points_are_given_when_asked_for(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "deletes.py").write_text(DELETES + RIGHT)
    files = [str(tmp_path / name) for name in ("right.py", "deletes.py")]
    assert main(["grade", *files, "--out", str(tmp_path / "grades.json"), "--unsandboxed", "--jobs", "2"]) == 0
    _, grades = read_report(tmp_path / "grades.json")
    assert [one.points for one in grades] == [6, 6]
    assert Path(sciformer.check.exercise.__file__).read_text().startswith('"""An exercise')


def test_a_report_does_not_grow_with_what_an_answer_says():
    huge = Observation([Call("x" * 2**20, "x" * 2**20, {})])
    result = grading._result(EXERCISES["future_leaks"], huge, 7)
    assert result.points == 0
    assert len(result.message) <= 4000
    assert len(result.says) <= 4000


def test_a_grader_that_cannot_run_anything_says_so(tmp_path, monkeypatch, capsys):
    (tmp_path / "right.py").write_text(RIGHT)
    monkeypatch.setattr(running.sys, "executable", shutil.which("false"))
    assert main(["grade", str(tmp_path / "right.py"), "--out", str(tmp_path / "grades.json"), *HOW]) == 1
    assert "does not start: exit status 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no Python file"), ("import nothing_like_it", "cannot be imported"), ("x = 1", "has no Exercise")],
)
def test_a_module_that_is_no_use_is_refused(tmp_path, capsys, content, words):
    module = tmp_path / "own.py"
    if content:
        module.write_text(content)
    assert main(["grade", "a.py", "--exercises", str(module)]) == 1
    assert words in capsys.readouterr().err


def test_files_without_exercises_are_refused(tmp_path, capsys):
    (tmp_path / "empty.py").write_text("x = 1")
    assert main(["grade", str(tmp_path / "empty.py"), "--out", str(tmp_path / "grades.json")]) == 1
    assert "there is no exercise in" in capsys.readouterr().err
    assert not (tmp_path / "grades.json").exists()
