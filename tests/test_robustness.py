"""How far a verdict stands from its bound over the conditions it was tried under, and which runs count."""

import json
import math
import os
import subprocess
import sys

import nbformat
import pytest
import torch
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

    write('1 + 1\nplotting.show("A line.")', "One and one.")
    result = {"code": robustness.code_of(notebook), "seconds": 1}
    runs.write_text(json.dumps({"quiet": {"00_first": result}}), encoding="utf-8")
    assert robustness.kept() == {"quiet": {"00_first": result}}
    write('1 + 1\nplotting.show(\n    "A curve, "\n    f"at {n} (or less)."\n)', "Other words.")
    assert robustness.kept() == {"quiet": {"00_first": result}}
    write('1 + 2\nplotting.show("A curve.")', "Other words.")
    assert robustness.kept() == {}


@pytest.mark.parametrize(
    ("alteration", "first_draw", "moves"),
    [
        (robustness.SHIFT_SEEDS.format(shift=5), "later", True),
        (robustness.SABOTAGES["untrained"], "same", False),
        (robustness.SABOTAGES["noise"], "same", True),
    ],
)
def test_an_altered_run_has_other_seeds_or_learns_nothing_and_records_verdicts_that_fail(
    alteration, first_draw, moves, tmp_path
):
    cell = """
torch.manual_seed(0)
drawn = {"global": torch.rand(1).item(), "own": torch.rand(1, generator=torch.Generator().manual_seed(0)).item()}
weight = torch.nn.Parameter(torch.ones(100))
optimizer = torch.optim.SGD([weight], lr=0.1)
weight.square().sum().backward()
optimizer.step()
course.verdict("impossible", 1.0, below=0)
print(json.dumps(drawn | {"moved": (weight != 1).all().item(), "learned": (weight == 0.8).all().item()}))
"""
    code = robustness.UNJUDGED + alteration + robustness.STARTUP + "import json" + cell
    verdicts = tmp_path / "verdicts"
    environment = os.environ | {"SCIFORMER_VERDICTS": str(verdicts)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    expected = torch.rand(1, generator=torch.Generator().manual_seed(5 if first_draw == "later" else 0)).item()
    assert seen["global"] == seen["own"] == expected
    assert seen["moved"] == moves
    assert seen["learned"] == (first_draw == "later")
    assert json.loads(verdicts.read_text()) == {"name": "impossible", "value": 1.0, "above": None, "below": 0}


def test_a_notebook_that_does_not_notice_that_nothing_was_learned_is_named():
    def run(**values):
        return {"verdicts": [{"name": name, "value": x, "above": 0.5, "below": None} for name, x in values.items()]}

    learned = {"00_blind": run(shape=1.0, equal=0.9), "01_seeing": run(equal=0.9, share=0.8)}
    untrained = {"00_blind": run(shape=1.0, equal=0.7), "01_seeing": run(equal=0.7, share=0.1)}
    results = {"quiet": learned, "quiet, untrained": untrained}
    assert list(robustness.unnoticed(results)) == ["00 (untrained)"]
    assert [row.split(" | ")[1:2] + row.split(" | ")[-2:-1] for row in robustness.altered_rows(results)] == [
        ["shape", "="],
        ["equal", "0.7 **passes**"],
        ["equal", "0.7 **passes**"],
        ["share", "0.1"],
    ]
