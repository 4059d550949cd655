"""The museum: every bug is wrong and named by its checker, and the page says what the checkers say."""

import importlib.util
from pathlib import Path

import pytest

from sciformer.check import EXERCISES
from sciformer.exercises.museum import PIECES, diagnosis, source

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.title)
def test_every_bug_is_named_whatever_the_seed(piece):
    faults = {diagnosis(piece, seed).faults for seed in range(4)}
    assert len(faults) == 1
    assert len(faults.pop()) == 1, "one mistake, and a written one"


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.title)
def test_the_code_that_is_shown_is_an_answer_that_can_be_pasted(piece):
    scope = {}
    exec("import math\nimport torch\nimport torch.nn.functional as F\n" + source(piece), scope)
    pasted = EXERCISES[piece.exercise].diagnose(scope[piece.exercise], seed=0)
    assert pasted.faults == diagnosis(piece).faults


def test_the_bugs_are_many_and_each_has_a_thread_of_its_own():
    assert len(PIECES) >= 10
    assert len({piece.link for piece in PIECES}) == len({piece.title for piece in PIECES}) == len(PIECES)
    for piece in PIECES:
        owner, repository, kind, thread = piece.link.removeprefix("https://github.com/").split("/")
        assert owner
        assert repository
        assert kind in ("issues", "pull")
        assert thread.isdigit()


def test_the_page_is_what_its_tool_writes():
    spec = importlib.util.spec_from_file_location("museum_tool", ROOT / "tools" / "museum.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), "python tools/museum.py"
