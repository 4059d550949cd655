"""The ladder, hints, `use`, what is remembered, and the review."""

import json
import math

import pytest

from sciformer import check
from sciformer.check import EXERCISES, progress, settings
from sciformer.cli import main


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A file of its own."""
    monkeypatch.setenv("SCIFORMER_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


def right(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def unscaled(query, key, value, attn_mask=None):
    return right(query * math.sqrt(query.shape[-1]), key, value, attn_mask)


def unwritten(query, key, value, attn_mask=None):
    raise NotImplementedError


CAUSE = "not divided by √D"


def test_first_the_symptom_then_the_cause(kept, capsys):
    check.scaled_dot_product(unscaled)
    first = capsys.readouterr().out
    assert CAUSE not in first
    assert "not right yet" in first
    assert "expected" in first
    assert "check.scaled_dot_product.hint()" in first
    check.scaled_dot_product(unscaled)
    assert CAUSE in capsys.readouterr().out
    check.scaled_dot_product(right)
    assert capsys.readouterr().out == "scaled_dot_product: correct\n"
    check.scaled_dot_product(unscaled)
    assert CAUSE not in capsys.readouterr().out, "after a right answer the ladder begins anew"


def test_with_a_seed_everything_is_told_and_nothing_kept(kept, capsys):
    check.scaled_dot_product(unscaled, seed=0)
    assert CAUSE in capsys.readouterr().out
    assert not kept.exists()


@pytest.mark.parametrize(
    ("tell", "first", "second"),
    [("verdict", [], []), ("symptom", ["expected"], ["expected"]), ("cause", ["expected", CAUSE], ["expected", CAUSE])],
)
def test_an_instructor_says_how_much_is_told(kept, capsys, monkeypatch, tell, first, second):
    monkeypatch.setattr(settings, "tell", tell)
    for words in (first, second):
        check.scaled_dot_product(unscaled)
        out = capsys.readouterr().out
        assert out.startswith("scaled_dot_product: not right yet.")
        assert [word for word in ("expected", CAUSE) if word in out] == words


def test_hints_come_one_after_the_other(capsys, monkeypatch):
    monkeypatch.setattr(check.scaled_dot_product, "_hinted", 0)
    for _ in range(3):
        check.scaled_dot_product.hint()
    one, two, three = capsys.readouterr().out.splitlines()
    assert one == f"hint 1 of 2: {check.scaled_dot_product.hints[0]}"
    assert two == f"hint 2 of 2: {check.scaled_dot_product.hints[1]}"
    assert three == "no more hints; a solution is folded away below the exercise in notebook 02"


def test_use_goes_on_with_what_is_right(kept, capsys):
    use = check.scaled_dot_product.use
    assert use(right) is right
    assert capsys.readouterr().out == "scaled_dot_product: correct; the notebook goes on with yours\n"
    assert use(unwritten) is check.scaled_dot_product.solution
    out = capsys.readouterr().out
    assert out == "scaled_dot_product: not attempted yet; the notebook goes on with the solution\n"
    assert use(unscaled) is check.scaled_dot_product.solution
    assert capsys.readouterr().out.endswith("\nthe notebook goes on with the solution\n")


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_the_solution_that_use_gives_is_right(exercise):
    assert exercise.diagnose(exercise.solution, seed=0).correct


def test_what_is_kept(kept):
    for answer in (unwritten, unscaled, unscaled, right):
        check.scaled_dot_product(answer)
    entry = json.loads(kept.read_text())["scaled_dot_product"]
    assert entry.pop("solved")
    assert entry == {"runs": 3, "wrong": 0, "mistakes": {"no scale": 2}}


def test_not_attempted_leaves_no_file(kept):
    check.scaled_dot_product(unwritten)
    assert not kept.exists()


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"scaled_dot_product": 3}'])
def test_a_file_that_cannot_be_read_counts_as_none(kept, content, capsys):
    kept.write_text(content)
    check.scaled_dot_product(right)
    assert capsys.readouterr().out == "scaled_dot_product: correct\n"
    assert json.loads(kept.read_text())["scaled_dot_product"]["runs"] == 1


def test_a_folder_that_cannot_be_written_is_no_trouble(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SCIFORMER_PROGRESS", str(tmp_path / "no folder" / "progress.json"))
    for _ in range(2):
        check.scaled_dot_product(unscaled)
    assert CAUSE in capsys.readouterr().out, "the ladder is climbed all the same"


def test_the_command_shows_what_is_solved(kept, capsys):
    check.scaled_dot_product(right)
    check.masked_weights(lambda scores, attn_mask: scores)
    capsys.readouterr()
    assert main(["progress"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "02  ◧■□□    masked_weights, future_leaks, test_attention" in out
    assert out[-1].startswith(f"1 of {len(EXERCISES)} exercises solved, 2 of ")


def test_the_command_draws_the_course(kept, capsys, tmp_path):
    check.scaled_dot_product(right)
    picture = tmp_path / "course.png"
    assert main(["progress", "--picture", str(picture)]) == 0
    assert capsys.readouterr().out.endswith(f"written: {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = progress.states(EXERCISES)
    assert found["02"] == {
        "masked_weights": "open",
        "scaled_dot_product": "solved",
        "future_leaks": "open",
        "test_attention": "open",
    }


def test_a_review_asks_about_mistakes_that_were_made(kept, capsys):
    check.review()
    assert capsys.readouterr().out.startswith("There is nothing to review yet")
    check.scaled_dot_product(unscaled)
    capsys.readouterr()
    questions = progress.review(EXERCISES, seed=1)
    assert questions.startswith("1. scaled_dot_product: not right yet.")
    options = {line.strip()[0]: line for line in questions.splitlines() if line.strip()[:2] in ("a)", "b)", "c)")}
    assert len(options) == 3
    (letter,) = [letter for letter, line in options.items() if CAUSE in line]
    assert progress.review(EXERCISES, letter, seed=1) == "1. right\n1 of 1 right"
    wrong = next(other for other in "abc" if other != letter)
    assert progress.review(EXERCISES, wrong, seed=1) == f"1. no: {letter}\n0 of 1 right"
