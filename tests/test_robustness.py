"""How far a verdict stands from its bound over the conditions it was tried under, and which runs count."""

import json
import math

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import robustness
from tools.robustness import margin_of


def test_margin_is_counted_in_standard_deviations_to_the_nearest_bound():
    assert margin_of([4.0, 6.0], {"above": 1.0}, is_ratio=False) == pytest.approx(4 / math.sqrt(2))
    assert margin_of([4.0, 6.0], {"above": 1.0, "below": 6.0}, is_ratio=False) == pytest.approx(1 / math.sqrt(2))
    assert margin_of([4.0, 6.0], {"below": 4.0}, is_ratio=False) == pytest.approx(-1 / math.sqrt(2))
    assert margin_of([5.0, 5.0], {"above": 1.0}, is_ratio=False) == math.inf
    assert margin_of([5.0], {"below": 1.0}, is_ratio=False) == -math.inf


def test_a_ratio_is_as_far_from_its_bound_as_its_inverse():
    there = margin_of([2.0, 8.0], {"above": 1.0}, is_ratio=True)
    assert there == pytest.approx(math.log(4) / (math.log(4) / math.sqrt(2)))
    assert margin_of([1 / 2, 1 / 8], {"below": 1.0}, is_ratio=True) == pytest.approx(there)


def test_a_run_counts_only_while_the_notebook_has_the_same_code(tmp_path, monkeypatch):
    notebook = tmp_path / "00_first.ipynb"
    runs = tmp_path / "robustness.json"
    monkeypatch.setattr(robustness, "NOTEBOOKS", [notebook])
    monkeypatch.setattr(robustness, "RUNS", runs)

    def write(code, text):
        cells = [new_markdown_cell(text), new_code_cell(code)]
        notebook.write_text(nbformat.writes(new_notebook(cells=cells)), encoding="utf-8")

    write("1 + 1", "One and one.")
    result = {"code": robustness.code_of(notebook), "seconds": 1}
    runs.write_text(json.dumps({"quiet": {"00_first": result}}), encoding="utf-8")
    assert robustness.kept() == {"quiet": {"00_first": result}}
    write("1 + 1", "Other words.")
    assert robustness.kept() == {"quiet": {"00_first": result}}
    write("1 + 2", "Other words.")
    assert robustness.kept() == {}
