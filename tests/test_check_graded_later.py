"""Exercises whose right answers stay with the instructor: what students and the sandbox see, and what is graded."""

import json
import sys
from pathlib import Path

import bubblewrap
import pytest

import sciformer
from sciformer.check import Case, Fault, GradedLater
from sciformer.check.grading import grade, known_exercises
from sciformer.check.report import read_report
from sciformer.cli import main
from sciformer.functional import InputError

EXAMPLE = Path(__file__).parents[1] / "examples" / "homework"
PUBLIC, ANSWERS, SHEET = (EXAMPLE / name for name in ("homework.py", "homework_answers.py", "sheet.ipynb"))
HOW = [] if bubblewrap.WORKS else ["--unsandboxed"]

RIGHT = """
import torch
from torch import nn


def cosine_scores(query, key):
    return torch.nn.functional.cosine_similarity(query[:, None], key, dim=-1)


class SharedHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.look, self.value = (nn.Linear(embed_dim, head_dim, bias=False) for _ in range(2))

    def forward(self, x):
        look = self.look(x)
        return (look @ look.mT / look.shape[-1] ** 0.5).softmax(dim=-1) @ self.value(x)
"""
WRONG = RIGHT.replace(" / look.shape[-1] ** 0.5", "").replace(
    "cosine_similarity(query[:, None], key, dim=-1)", "linear(query, key)"
)
#: Everything that a submission could try to find the right answers by; each attempt ends in an answer of its own.
THIEF = """
import gc, os, sys, homework
loot = []
for name in ("homework_answers", "answers"):
    try: loot.append(__import__(name))
    except ImportError: pass
for folder, _, files in os.walk("/grader"):
    loot += [file for file in files if "answers" in file]
loot += [thing for thing in gc.get_objects() if getattr(thing, "__name__", "") == "cosine_scores"
         and getattr(thing, "__defaults__", None)]
for path in (os.environ.get("ANSWERS", ""), {answers!r}):
    if os.path.exists(path): loot.append(path)
def cosine_scores(query, key):
    if loot: raise RuntimeError(f"found {{loot}}")
    return homework.cosine_scores.reference(query, key)
SharedHead = homework.SharedHead.reference
"""


@pytest.fixture(autouse=True)
def modules_are_forgotten():
    yield
    for name in ("homework", "homework_answers"):
        sys.modules.pop(name, None)


def with_answers(sheet, program):
    """The sheet as a student hands it in, with the answers in one more cell at its beginning and the stubs gone."""
    content = json.loads(sheet.read_text())
    for cell in content["cells"]:
        if cell["cell_type"] == "code" and "NotImplementedError" in "".join(cell["source"]):
            cell["source"] = "".join(cell["source"]).rpartition("\n\n\n")[2]
    first = next(n for n, cell in enumerate(content["cells"]) if cell["cell_type"] == "code")
    answer = {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": [], "execution_count": None}
    content["cells"].insert(first + 1, answer | {"source": program})
    return json.dumps(content)


def test_from_the_handout_to_the_grades(tmp_path, capsys):
    handout = tmp_path / "handout"
    assert main(["assignment", str(SHEET), "--exercises", str(PUBLIC), "--out", str(handout)]) == 0
    assert sorted(path.name for path in handout.iterdir()) == ["homework.py", "sheet.ipynb"]
    assert (handout / "homework.py").read_text() == PUBLIC.read_text()
    submissions = {"right": RIGHT, "wrong": WRONG, "thief": THIEF.format(answers=str(ANSWERS))}
    for name, program in submissions.items():
        (tmp_path / f"{name}.ipynb").write_text(with_answers(handout / "sheet.ipynb", program))
    files = [str(tmp_path / f"{name}.ipynb") for name in submissions]
    more = ["--exercises", str(handout / "homework.py"), "--answers", str(ANSWERS), "--out", str(tmp_path / "g.json")]
    assert main(["grade", *files, *more, *HOW]) == 0
    printed = capsys.readouterr().out
    assert "The vectors are not divided by their lengths." in printed
    _, grades = read_report(tmp_path / "g.json")
    assert [one.points for one in grades] == [5, 0, 0]
    assert [result.faults for result in grades[1].results] == [("not normalised",), ("no scale",)]
    if bubblewrap.WORKS:
        assert {result.kind for result in grades[2].results} == {"not attempted"}, "it found nothing but the stubs"


def test_students_are_told_whether_an_answer_runs_and_no_more(capsys):
    exercise = known_exercises(PUBLIC)["cosine_scores"]
    exercise(lambda query, key: query @ key.T)
    assert capsys.readouterr().out == (
        "cosine_scores: it runs on all 2 inputs, and is graded after it has been handed in\n"
    )
    exercise(exercise.reference)
    assert capsys.readouterr().out == "cosine_scores: not attempted yet\n"
    exercise(lambda query, key: query @ key)
    assert capsys.readouterr().out.startswith("cosine_scores: The answer stops with RuntimeError: ")


def test_what_is_wrong_can_be_used_on_the_way(capsys):
    exercise = known_exercises(PUBLIC)["cosine_scores"]
    assert exercise.use(max) is max
    exercise.hint()
    assert capsys.readouterr().out.endswith("no more hints\n")


def test_without_the_answers_nothing_is_judged(tmp_path):
    (tmp_path / "a.py").write_text(RIGHT)
    with pytest.raises(InputError, match=r"no right answer to cosine_scores, SharedHead; .* --answers"):
        grade([tmp_path / "a.py"], 1, module=PUBLIC)
    with pytest.raises(InputError, match="the right answer to cosine_scores is not here"):
        known_exercises(PUBLIC)["cosine_scores"].diagnose(lambda query, key: query)


@pytest.mark.parametrize("folder", [Path(sys.prefix), Path(sciformer.__file__).parent], ids=["Python", "package"])
def test_answers_that_every_submission_could_read_are_refused(folder):
    with pytest.raises(InputError, match=r"every submission can read .*answers\.py"):
        known_exercises(PUBLIC, folder / "answers.py")


def test_answers_belong_to_exercises():
    with pytest.raises(InputError, match="--exercises, which is not given"):
        known_exercises(None, ANSWERS)


def numbers(x):
    raise NotImplementedError


def asked(**more):
    about = {"notebook": "01", "section": "x", "level": "easy", "minutes": 1, "differentiable": False}
    cases = lambda draw: [Case("3 numbers", {"x": draw.normal(3)})]  # noqa: E731
    return GradedLater(numbers, cases=cases, **about, **more)


def renamed(answer):
    answer.__name__ = "numbers"
    return answer


def test_yes_or_no_is_asked_often_on_both_sides():
    exercise = asked(yes_or_no=True)
    whole = exercise.answered(renamed(lambda x: bool(x.sum() > 0)), faults=[Fault("x", "x")])
    assert len(whole.draw(5)) == len(exercise.draw(5)) >= 32
    for one, other in zip(whole.draw(5), exercise.draw(5), strict=True):
        assert one.inputs["x"].equal(other.inputs["x"])


@pytest.mark.parametrize(
    ("yes_or_no", "answer"), [(False, lambda x: bool(x.sum() > 0)), (True, lambda x: x)], ids=["a bool", "a tensor"]
)
def test_what_was_said_of_the_answer_has_to_be_true(yes_or_no, answer):
    with pytest.raises(InputError, match=f"yes_or_no={yes_or_no}, but"):
        asked(yes_or_no=yes_or_no).answered(renamed(answer), faults=[])


def test_an_answer_has_the_name_of_its_exercise():
    with pytest.raises(InputError, match="the right answer to numbers is called asked"):
        asked().answered(asked, faults=[])
