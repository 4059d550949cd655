"""Right for scores of a usual size, and not for large ones: a verdict of its own."""

import re
from pathlib import Path

import pytest
import torch

from sciformer import check
from sciformer.check import EXERCISES, progress

CFG = Path(__file__).parents[1] / "notebooks" / "nbval_sanitize.cfg"


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIFORMER_PROGRESS", str(tmp_path / "progress.json"))


def overflowing(scores, attn_mask):
    weights = scores.exp() * attn_mask
    return weights / weights.sum(dim=-1, keepdim=True)


def test_an_answer_that_overflows_is_right_and_told_so():
    diagnosis = check.masked_weights.diagnose(overflowing, seed=0)
    assert (diagnosis.kind, diagnosis.correct) == ("unstable", True)
    lines = diagnosis.message.splitlines()
    assert lines[0] == "masked_weights: correct, but unstable"
    assert "With `scores` 1000 times as large" in lines[1]
    assert "    scores     [[ 1500,  -300], [-2200,   600]]" in lines
    assert "    got        [[nan,   0], [  0, nan]]" in lines


@pytest.mark.parametrize("exercise", [e for e in EXERCISES.values() if e.large], ids=lambda e: e.name)
def test_the_solution_is_stable(exercise):
    assert exercise.diagnose(exercise.solution, seed=0).kind == "correct"
    inputs = exercise.draw(0)[0].inputs
    assert all(inputs[name].is_floating_point() for name in exercise.large)


def test_a_right_answer_of_an_exercise_without_large_inputs_is_correct():
    assert not check.causal_aft.large, "its prompt promises small keys"


def test_it_counts_as_solved_and_is_used(capsys):
    assert check.masked_weights.use(overflowing) is overflowing
    assert capsys.readouterr().out.endswith("\nthe notebook goes on with yours\n")
    assert progress.load()["masked_weights"]["solved"]


def sanitized(text):
    """As nbval does it: each regular expression of the file with the replacement behind it."""
    lines = CFG.read_text().splitlines()
    pairs = [
        (lines[n].removeprefix("regex: "), lines[n + 1].removeprefix("replace: "))
        for n in range(len(lines) - 1)
        if lines[n].startswith("regex: ")
    ]
    for regex, replacement in pairs:
        text = re.sub(regex, replacement, text)
    return text


def test_strict_validation_holds_whether_solved_or_not(capsys):
    def unwritten(scores, attn_mask):
        raise NotImplementedError

    def right(scores, attn_mask):
        return scores.masked_fill(~attn_mask, -torch.inf).softmax(dim=-1)

    for call, alike in ((check.masked_weights, "EXERCISE\n"), (check.masked_weights.use, "EXERCISE IN USE\n")):
        for answer in (unwritten, right, overflowing):
            call(answer)
            assert sanitized(capsys.readouterr().out) == f"masked_weights: {alike}"
        for _ in range(2):
            call(lambda scores, attn_mask: scores)
            assert "EXERCISE" not in sanitized(capsys.readouterr().out), "a wrong answer is not hidden"
