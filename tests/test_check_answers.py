"""Answers to all exercises by people who knew the prompts alone, and neither the checkers nor the faults in them.

Those to `ablate` are an exception: its author wrote them, before the faults.

`answers/answers.json` holds for each its exercise, its code, whether it is right or wrong, and its mistake in words.
Where the prompt left open what the checker demands, an answer is "undecided", with the reason: it is not judged here.
"""

import json
from pathlib import Path

import pytest

from sciformer.check import EXERCISES
from sciformer.check.exercise import LONGEST
from tools.answers import as_a_cell

ANSWERS = json.loads((Path(__file__).parent / "answers" / "answers.json").read_text())


@pytest.fixture
def _verdict_only(monkeypatch):
    """What a message says of the cause takes most of the time, and is not the question here."""
    monkeypatch.setattr("sciformer.check.judging.find_cause", lambda *_, **__: None)
    for name in ("changing.one_change", "changing.one_move", "changing.borrowed"):
        monkeypatch.setattr(f"sciformer.check.{name}", lambda *_, **__: None)
    for name in ("look_closer", "first_wrong_line"):
        monkeypatch.setattr(f"sciformer.check.closer_look.{name}", lambda *_, **__: None)


def diagnoses(name, kind, every=1):
    """The mistakes of an exercise's answers of one kind, or of every so many of them, each with its diagnosis."""
    numbers = [n for n, answer in enumerate(ANSWERS) if (answer["exercise"], answer["kind"]) == (name, kind)]
    found = []
    for number in numbers[::every]:
        cell = as_a_cell(ANSWERS[number]["code"], number)
        found.append((ANSWERS[number]["mistake"], EXERCISES[name].diagnose(cell[name], seed=7)))
    return found


def verdicts(name, kind):
    return [(mistake, diagnosis.kind) for mistake, diagnosis in diagnoses(name, kind)]


def test_there_are_answers_to_every_exercise():
    assert {answer["exercise"] for answer in ANSWERS} == set(EXERCISES)
    assert {answer["kind"] for answer in ANSWERS} == {"right", "wrong", "undecided"}
    assert all(answer.get("reason") for answer in ANSWERS if answer["kind"] == "undecided")


@pytest.mark.usefixtures("_verdict_only")
@pytest.mark.parametrize("name", EXERCISES)
def test_right_answers_are_accepted_and_no_wrong_one_is_called_correct(name):
    assert {kind for _, kind in verdicts(name, "right")} <= {"correct"}
    wrong = verdicts(name, "wrong")
    assert len(wrong) >= 3
    assert not [mistake for mistake, kind in wrong if kind == "correct"]


#: To find what to say of a wrong answer takes about a second, so only every third is taken here; -m seeds takes all.
TOLD = [
    pytest.param((name, every), marks=marks, id=f"{name}, {which}")
    for which, every, marks in [("every third", 3, []), ("all", 1, [pytest.mark.seeds])]
    for name in EXERCISES
]


@pytest.fixture(scope="module", params=TOLD)
def told(request):
    """The name of an exercise, of how many wrong answers one was taken, and the diagnoses of these."""
    name, every = request.param
    return name, every, diagnoses(name, "wrong", every)


def test_what_is_said_of_a_wrong_answer_can_be_taken_in_at_a_glance(told):
    _, _, diagnosed = told
    for mistake, diagnosis in diagnosed:
        for text in (diagnosis.message, diagnosis.symptom):
            assert len(text.splitlines()) <= LONGEST, (mistake, text)
        known = diagnosis.kind in ("known mistake", "likely mistake")
        assert not known or "does not recognize" not in " ".join(diagnosis.symptom.split()), "it is about to be told"


def test_what_is_recognized_is_what_the_page_for_instructors_counts(told):
    """`tools/teaching.py recognize` writes it anew."""
    name, every, diagnosed = told
    recognized = json.loads((Path(__file__).parent / "answers" / "recognized.json").read_text())
    single = [diagnosis.faults[0] if len(diagnosis.faults) == 1 else None for _, diagnosis in diagnosed]
    assert single == recognized[name][::every]
