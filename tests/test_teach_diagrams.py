"""Diagrams: that they show the numbers they were given, and that their parts meet."""

import pytest
import torch

from sciformer.teach.diagrams import Sheet


def test_a_tensor_shows_its_numbers_where_they_stand():
    sheet = Sheet(3, 2)
    sides = sheet.tensor(
        1, 0.5, torch.tensor([[1.0, -2.25], [3.0, 4.0]]), name="x", rows=("a", "b"), cell=0.5, digits=2
    )
    found = {text.get_text(): text.get_position() for text in sheet.done().axes[0].texts}
    assert found["1.00"] == pytest.approx((1.25, 1.25))
    assert found["−2.25"] == pytest.approx((1.75, 1.25))
    assert found["4.00"] == pytest.approx((1.75, 0.75))
    assert found["b"][1] == pytest.approx(0.75)
    assert sides["right"] == pytest.approx((2.0, 1.0))
    assert sides["top"] == pytest.approx((1.5, 1.5))


def test_cells_are_shaded_by_their_size():
    sheet = Sheet(2, 2)
    sheet.tensor(0, 0, torch.tensor([[0.0, 1.0]]), digits=None, shade=True)
    filled = [patch.get_alpha() for patch in sheet.ax.patches if patch.get_fill()]
    assert filled == pytest.approx([0.15, 1.0])
    assert not sheet.ax.texts[:-1]


def test_an_arrow_joins_two_boxes():
    sheet = Sheet(4, 1)
    left, right = sheet.box(0, 0, 1, 1, "a"), sheet.box(3, 0, 1, 1, "b")
    sheet.arrow(left["right"], right["left"], "to")
    assert [text.get_text() for text in sheet.ax.texts] == ["a", "b", "to"]
    arrow = sheet.ax.patches[-1]
    assert arrow._posA_posB == [(1, 0.5), (3, 0.5)]
