"""The pages for learners and instructors: what they count, what they promise, and the commands that they show."""

import csv
import math
import re
import shlex
import sys
from pathlib import Path

import bubblewrap
import pytest
import torch
from scipy import stats

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import site_notebooks  # noqa: E402
import teaching  # noqa: E402
from heads import NOTEBOOKS, minutes  # noqa: E402

from sciformer import masked_softmax  # noqa: E402
from sciformer.check import EXERCISES  # noqa: E402
from sciformer.cli import main  # noqa: E402

README, PATHS, INSTRUCTORS = (page.read_text(encoding="utf-8") for page in teaching.PAGES)
ASSIGNMENTS = {n: (ROOT / "docs" / "assignments" / f"{n}.md").read_text(encoding="utf-8") for n in (1, 2, 3)}


@pytest.mark.parametrize("page", [README, PATHS, INSTRUCTORS], ids=["readme", "paths", "instructors"])
def test_tables_and_programs_are_those_of_today(page):
    """`tools/teaching.py` writes them anew."""
    assert teaching.written(page) == page
    begun = re.findall(r"^<!-- (?!end of )(.+) -->$", page, flags=re.M)
    assert begun
    assert all(f"<!-- end of {name} -->" in page for name in begun)


def test_stale_hours_are_noticed(monkeypatch):
    monkeypatch.setattr(teaching, "minutes", lambda notebook: 2 * minutes(notebook))
    assert teaching.written(PATHS) != PATHS
    assert teaching.written(README) != README


def test_a_stale_running_time_is_noticed(monkeypatch):
    head = site_notebooks.Head("nothing", "7 s", "one hour")
    monkeypatch.setattr(teaching, "head", lambda path: head)
    assert teaching.written(README).count(" | 7 s |") == len(NOTEBOOKS)


def test_every_path_is_on_the_page_and_the_longest_has_every_notebook():
    assert re.findall(r"^<!-- path: (.+) -->$", PATHS, flags=re.M) == list(teaching.PATHS)
    assert " ".join(teaching.PATHS["twelve weeks"].values()).split() == [path.stem[:2] for path in NOTEBOOKS]


@pytest.mark.parametrize("name", ["weekend", "six weeks", "twelve weeks"])
def test_what_a_notebook_needs_comes_before_it(name):
    seen = set()
    for number in " ".join(teaching.PATHS[name].values()).split():
        needs = site_notebooks.head(ROOT / "notebooks" / teaching.FILES[number]).needs
        assert set(re.findall(r"\b(\d\d)\b", needs)) <= seen, number
        seen.add(number)


def test_the_main_line_leaves_out_exercises_and_what_is_optional():
    for number, notebook in teaching.READ.items():
        text = "\n".join(cell.source for cell in teaching.main_line(notebook).cells)
        assert not re.search(r"^## Optional|^### Exercise ", text, flags=re.M), number
        assert "## Takeaways" in text
        assert minutes(teaching.main_line(notebook)) < minutes(notebook)


@pytest.mark.parametrize(("total", "says"), [(10, "½ h"), (59, "1 h"), (80, "1½ h"), (541, "9 h")])
def test_hours_are_rounded_to_the_half(total, says):
    assert teaching.hours(teaching.half_hours(total)) == says


def test_every_week_says_what_students_can_do():
    for number in teaching.READ:
        goals = teaching.goals_of(number)
        assert 3 <= len(goals) <= 5
        assert all(len(goal) > 15 and "](" not in goal for goal in goals)


# Assignments.


@pytest.mark.parametrize("page", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_an_assignment_adds_up(page):
    rows = re.findall(r"^\| `(\w+)` \| (\d\d) \| (\d) \|$", page, flags=re.M)
    for name, notebook, points in rows:
        assert (EXERCISES[name].notebook, EXERCISES[name].points) == (notebook, int(points))
    total, checked = map(int, re.search(r"\*\*Points:\*\* (\d+), of which (\d+) come from the checkers", page).groups())
    assert sum(int(points) for *_, points in rows) == checked
    written = int(re.search(r"^## Part B: .+ \((\d+) points", page, flags=re.M)[1])
    assert checked + written == total
    assert sum(int(n) for n in re.findall(r"^- (\d+) points?: ", page, flags=re.M)) == written
    handed_out = re.findall(r"notebooks/(\d\d)_\w+\.ipynb", page)
    assert {notebook for _, notebook, _ in rows} == set(handed_out)


def test_the_first_assignment_s_four_recipes_leak_as_its_answer_says():
    torch.manual_seed(0)
    mask, x = torch.ones(4, 4, dtype=torch.bool).tril(), torch.randn(4, 3, dtype=torch.float64)
    future_leaks = EXERCISES["future_leaks"].reference

    def after(scores):
        return scores.softmax(dim=-1) * mask

    recipes = {
        "a": lambda scores: masked_softmax(scores, mask),
        "b": after,
        "c": lambda scores: after(scores) / after(scores).sum(dim=-1, keepdim=True),
        "d": lambda scores: (scores * mask).softmax(dim=-1),
    }
    attentions = {name: lambda x, recipe=recipe: recipe(x @ x.T) @ x for name, recipe in recipes.items()}
    assert {name: future_leaks(attention, x) for name, attention in attentions.items() if name != "c"} == {
        "a": False,
        "b": True,
        "d": True,
    }
    jacobian = torch.autograd.functional.jacobian(attentions["c"], x).abs().sum(dim=(1, 3))
    assert 0 <= jacobian.triu(diagonal=1).max() < 1e-15, "rounding, or nothing at all"


def test_the_first_assignment_s_bias_of_the_keys_changes_nothing():
    torch.manual_seed(0)
    query, key, bias = torch.randn(3, 5), torch.randn(4, 5), torch.randn(5)
    right = (query @ key.T).softmax(dim=-1)
    torch.testing.assert_close((query @ (key + bias).T).softmax(dim=-1), right)
    assert not torch.allclose(((query + bias) @ key.T).softmax(dim=-1), right)


def test_the_second_assignment_s_statistics_follow_from_its_table():
    page = ASSIGNMENTS[2]
    rows = re.findall(r"^\| \d \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) \|$", page, flags=re.M)
    gains = [float(learned) - float(none) for learned, none, _ in rows]
    assert [f"{gain:.2f}" for gain in gains] == [gain for *_, gain in rows]
    low, high = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    error = stats.sem(gains)
    assert f"is {sum(gains) / 5:.2f} points with a standard error of {error:.2f}" in page
    assert f"the interval reaches from {low:.2f} to {high:.2f}" in page
    assert math.isclose(stats.t.ppf(0.975, 4), 2.776, abs_tol=5e-4)


# The commands of the page for instructors, one after the other.

MINE = """
import torch
def plain_attention(x):
    weights = (x @ x.T).softmax(dim=-1)
    return weights @ x, weights
def cosine_scores(query, key):
    return torch.nn.functional.cosine_similarity(query[:, None], key, dim=-1)
"""
CANVAS = "Student,ID,SIS User ID,SIS Login ID,Section,Homework 1 (9)\nAda,1001,u,a,01,\nEmmy,1002,v,e,01,\n"
MOODLE = "Identifier,Full name,Grade,Maximum Grade,Grade can be changed\nParticipant 1003,Marie,,100.00,Yes\n"


def commands(page):
    blocks = re.findall(r"^```sh\n(.*?)^```", page, flags=re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


def test_the_commands_for_instructors_work_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("notebooks", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for folder in ("handed_in", "sheets"):
        (tmp_path / folder).mkdir()
    names = ("ada_1001_5001_homework.py", "emmy_LATE_1002_5002_homework.py", "Marie_1003_assignsubmission_file_a.py")
    for name in names:
        (tmp_path / "handed_in" / name).write_text(MINE.partition("def cosine")[0])
    (tmp_path / "sheets" / "ada.py").write_text(
        MINE.partition("def plain")[0] + "def cosine" + MINE.partition("def cosine")[2]
    )
    (tmp_path / "canvas.csv").write_text(CANVAS)
    (tmp_path / "moodle.csv").write_text(MOODLE)
    lines = commands(INSTRUCTORS)
    assert len(lines) == 8
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "sciformer"
        arguments = [
            name for word in words for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
        ]
        more = ["--unsandboxed"] if words[0] == "grade" and not bubblewrap.WORKS else []
        assert main([*arguments, *more]) == 0, line
    for name in ("homework", "homework_answers"):
        sys.modules.pop(name, None)
    tables = (Path(f"{name}_import.csv").read_text().splitlines() for name in ("canvas", "moodle"))
    canvas, moodle = map(list, map(csv.DictReader, tables))
    assert [row["Homework 1 (9)"] for row in canvas] == ["2", "1"], "late work is worth half"
    assert [row["Grade"] for row in moodle] == ["100"]
    assert sorted(path.name for path in (tmp_path / "handout").iterdir()) == [
        "01_weighted_sums.ipynb",
        "homework.py",
        "sheet.ipynb",
    ]


def test_the_commands_of_the_assignments_are_known():
    for page in ASSIGNMENTS.values():
        for line in commands(page):
            words = shlex.split(line)
            assert words[:2] in (["sciformer", "assignment"], ["sciformer", "train"])
            assert all((ROOT / word).exists() for word in words if word.startswith("notebooks/"))
