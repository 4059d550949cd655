"""The points-in-the-plane pictures: the hull they shade is the right one."""

import matplotlib.pyplot as plt
import pytest
import torch

from sciformer import plotting


def test_hull_has_the_corners_and_nothing_else():
    corners = torch.tensor([[0.0, 0.0], [5.0, 0.0], [5.0, 3.0], [0.0, 3.0]])
    inside_or_on_an_edge = torch.tensor([[2.0, 1.0], [5.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    hull = plotting.convex_hull(torch.cat([inside_or_on_an_edge, corners]))
    torch.testing.assert_close(hull, corners)


@pytest.mark.parametrize("points", [[[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]]])
def test_hull_of_one_place_is_that_place(points):
    assert plotting.convex_hull(torch.tensor(points)).tolist() == [[1.0, 2.0]]


def test_points_that_coincide_share_a_label():
    points = torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]])
    ax = plotting.plane(points, ["the", "cat", "the"], hull=True)
    assert [text.get_text() for text in ax.texts] == ["the", "cat"]
    plt.close(ax.figure)


def test_arrows_from_the_origin_have_their_lengths_and_angles():
    points = torch.tensor([[0.0, 2.0], [3.0, 1.0], [0.0, 2.0]])
    ax = plotting.plane(points, ["cat", "mat", "cat"], from_origin=True)
    arrows = [text for text in ax.texts if text.arrow_patch is not None]
    assert sorted((arrow.xyann, tuple(arrow.xy)) for arrow in arrows) == [((0, 0), (0.0, 2.0)), ((0, 0), (3.0, 1.0))]
    assert ax.get_aspect() == 1
    plt.close(ax.figure)
