"""The rehearsal of a homework with a made class: what it compares, and that it notices wrong points."""

import json
import sys
from pathlib import Path

import bubblewrap
import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import dry_run

STUB = "def plain_attention(x):\n    raise NotImplementedError\n\n\ncheck.plain_attention(plain_attention)"


@pytest.fixture
def arguments(tmp_path):
    """A notebook with a single exercise, which is quickly graded."""
    cells = [nbformat.v4.new_code_cell("import torch\nfrom sciformer import check"), nbformat.v4.new_code_cell(STUB)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "small.ipynb")
    how = [] if bubblewrap.WORKS else ["--unsandboxed"]
    return ["dry_run.py", "--notebook", str(tmp_path / "small.ipynb"), "--out", str(tmp_path / "class"), *how]


@pytest.mark.parametrize(("platform", "students"), [("canvas", 10), ("moodle", 3)])
def test_a_class_gets_the_points_that_the_checkers_give(arguments, platform, students, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [*arguments, "--platform", platform, "--students", str(students)])
    dry_run.main()
    said = capsys.readouterr().out
    assert f"{students} rows filled in" in said
    assert said.endswith(f"all {students} students have the points that the checkers give\n")
    assert f"-- {students + 1} submissions graded: " in said, "one hands in twice"


def test_wrong_points_are_noticed(arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", [*arguments, "--students", "2"])
    monkeypatch.setattr(dry_run, "points", lambda chosen: 1)
    with pytest.raises(AssertionError, match="as the checkers say"):
        dry_run.main()


def test_students_differ_and_answers_stand_where_the_stubs_stood():
    names = ["plain_attention", "tempered_attention", "bilateral_filter", "one_more_word"]
    draw = dry_run.random.Random(0)
    chosen = [dry_run.answers_of_a_student(names, draw) for _ in range(30)]
    kinds = {answer["kind"] for student in chosen for answer in student.values()}
    assert kinds == {"right", "wrong"}
    assert {len(student) for student in chosen} > {4}, "some leave an exercise out"
    handout = {"cells": [nbformat.v4.new_code_cell(STUB)]}
    filled = json.dumps(dry_run.filled_in(handout, {"plain_attention": {"code": "def plain_attention(x): return x"}}))
    assert "NotImplementedError" not in filled
    assert "check.plain_attention(plain_attention)" in filled
