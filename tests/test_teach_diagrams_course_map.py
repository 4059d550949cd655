"""The map of the course: every notebook is on it, its arrows are what the notebooks need, and none is lost."""

import re
from pathlib import Path

import pytest

from sciformer.teach.diagrams.course_map import NAMES, NEEDS, arrows, course_map

SCRIPTS = sorted((Path(__file__).parents[1] / "notebooks_py").glob("[0-9]*.py"))


def needed(head):
    """The numbers of the notebooks that a line `Needs: …` names."""
    words = re.search(r"^# Needs: (?:notebooks? )?([\d ,andto]*)", head, flags=re.M)[1]
    first_to_last = re.search(r"(\d\d) to (\d\d)", words)
    return set(range(int(first_to_last[1]), int(first_to_last[2]) + 1)) if first_to_last else {
        int(number) for number in re.findall(r"\d\d", words)
    }  # fmt: skip


def words(sheet):
    return [text.get_text() for text in sheet.ax.texts]


def test_every_notebook_is_on_the_map_and_no_other():
    assert [int(path.stem[:2]) for path in SCRIPTS] == list(range(len(NAMES)))
    shown = words(course_map())
    assert [text for text in shown if re.match(r"\d\d", text)] == [f"{n:02} {name}" for n, name in enumerate(NAMES)]


@pytest.mark.parametrize("path", SCRIPTS[1:], ids=lambda path: path.stem)
def test_the_map_says_what_the_head_of_the_notebook_says(path):
    assert NEEDS[int(path.stem[:2])] == needed(path.read_text())


def test_arrows_keep_all_that_is_needed():
    """Whoever follows the arrows back has read everything that the notebook needs."""

    def before(number):
        return set().union(*({m} | before(m) for m in arrows().get(number, ())))

    assert all(needs <= before(number) for number, needs in NEEDS.items())
    assert arrows()[8] == {7}
    assert arrows()[16] == {9, 10}


def test_the_present_notebook_is_marked_and_only_it():
    assert "you are here" not in words(course_map())
    large, small = course_map(10), course_map(10, small=True)
    for sheet in (large, small):
        assert words(sheet).count("you are here") == 1
        frame = next(patch for patch in sheet.ax.patches if patch.get_linewidth() > 2)
        box = next(text for text in sheet.ax.texts if text.get_text().startswith("10"))
        (x, y), (left, bottom) = box.get_position(), (frame.get_x(), frame.get_y())
        assert left < x < left + frame.get_width()
        assert bottom < y < bottom + frame.get_height()


def test_boxes_do_not_overlap_and_stay_on_the_sheet():
    for small in (False, True):
        sheet = course_map(3, small=small)
        boxes = [patch for patch in sheet.ax.patches if hasattr(patch, "get_x") and patch.get_linewidth() == 1]
        assert len(boxes) == len(NAMES) + (0 if small else 6)
        corners = [(b.get_x(), b.get_y(), b.get_x() + b.get_width(), b.get_y() + b.get_height()) for b in boxes]
        for n, (x0, y0, x1, y1) in enumerate(corners):
            assert 0 < x0 < x1 < sheet.ax.get_xlim()[1]
            assert 0 < y0 < y1 < sheet.ax.get_ylim()[1]
            assert all(x1 <= a or c <= x0 or y1 <= b or d <= y0 for a, b, c, d in corners[n + 1 :])
