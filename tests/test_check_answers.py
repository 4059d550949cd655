"""Answers to all exercises by people who knew the prompts alone, and neither the checkers nor the faults in them.

`answers/answers.json` holds for each its exercise, its code, whether it is right or wrong, and its mistake in words.
Where the prompt left open what the checker demands, an answer is "undecided", with the reason: it is not judged here.
"""

import json
from pathlib import Path

import pytest

from sciformer.check import EXERCISES

ANSWERS = json.loads((Path(__file__).parent / "answers" / "answers.json").read_text())


@pytest.fixture
def _verdict_only(monkeypatch):
    """What a message says of the cause takes most of the time, and is not the question here."""
    monkeypatch.setattr("sciformer.check.judging.find_cause", lambda *_, **__: None)
    for name in ("one_change", "look_closer", "first_wrong_line"):
        monkeypatch.setattr(f"sciformer.check.closer_look.{name}", lambda *_, **__: None)


def verdicts(name, kind):
    """The mistakes of an exercise's answers of one kind, each with the verdict on it."""
    found = []
    for answer in ANSWERS:
        if (answer["exercise"], answer["kind"]) == (name, kind):
            scope = {"__name__": "answer"}
            exec(answer["code"], scope)
            found.append((answer["mistake"], EXERCISES[name].diagnose(scope[name], seed=7).kind))
    return found


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
