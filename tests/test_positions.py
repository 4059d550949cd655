"""Positions: by hand, and what they refuse."""

import math

import pytest
import torch
from torch.testing import assert_close

from sciformer import (
    POSITIONS,
    LearnedPositions,
    NoPositions,
    SinusoidalGridPositions,
    SinusoidalPositions,
)

B, L, E, H = 2, 5, 6, 3


def test_sinusoidal_positions_by_hand():
    table = SinusoidalPositions(4, 3)(torch.zeros(1, 3, 4))[0]
    for t in range(3):
        slow = t / 10000 ** (2 / 4)
        expected = [math.sin(t), math.cos(t), math.sin(slow), math.cos(slow)]
        assert_close(table[t], torch.tensor(expected))


def test_sinusoidal_dot_products_depend_on_the_distance_only():
    table = SinusoidalPositions(64, 50).table
    products = table @ table.T
    for offset in (1, 7):
        diagonal = products.diagonal(offset)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(3, 3), (2, 5), (5, 2)])
def test_positions_on_a_grid_are_those_of_the_row_beside_those_of_the_column(height, width):
    sizes = (8, height * width) if height == width else (8, height * width, width)
    table = SinusoidalGridPositions(*sizes)(torch.zeros(1, height * width, 8))[0]
    waves = SinusoidalPositions(4, 5).table
    for row in range(height):
        for column in range(width):
            assert_close(table[row * width + column], torch.cat((waves[row], waves[column])))


def test_positions_on_a_grid_refuse():
    with pytest.raises(ValueError, match="an embed_dim that 4 divides, got 6"):
        SinusoidalGridPositions(6, 9)
    with pytest.raises(ValueError, match="10 tokens do not make up rows of 3"):
        SinusoidalGridPositions(8, 10)
    with pytest.raises(ValueError, match=r"width .* got 0"):
        SinusoidalGridPositions(8, 10, 0)


def test_positions_are_added_and_trained_where_they_should_be():
    x = torch.randn(B, L, E)
    learned = LearnedPositions(E, 7)
    assert_close(learned(x) - x, learned.table[:L].expand(B, L, E))
    assert LearnedPositions(64, 100).table.std().item() == pytest.approx(0.02, rel=0.1)
    assert_close(NoPositions(E, 7)(x), x)
    assert [len(list(POSITIONS[name](E, 7).parameters())) for name in ("sinusoidal", "learned", "none")] == [0, 1, 0]
    assert list(SinusoidalPositions(E, 7).state_dict()) == []


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_positions_refuse(name):
    positions = POSITIONS[name](E, L)
    with pytest.raises(ValueError, match="up to 5 tokens of width 6, got 7 of width 6"):
        positions(torch.zeros(B, 7, E))
    with pytest.raises(ValueError, match="up to 5 tokens of width 6, got 6 of width 6"):
        positions(torch.zeros(B, 4, E), offset=2)
    with pytest.raises(ValueError, match="got 5 of width 1"):
        positions(torch.zeros(B, L, 1))
    with pytest.raises(ValueError, match="even embed_dim, got 7"):
        SinusoidalPositions(7, L)


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
@pytest.mark.parametrize("offset", [-1, -7])
def test_positions_refuse_a_negative_offset(name, offset):
    """A slice counts a negative start from the end: with -7 of 9 rows every token would get another's position."""
    with pytest.raises(ValueError, match=f"offset must be at least 0, got {offset}"):
        POSITIONS[name](E, 9)(torch.zeros(B, L, E), offset=offset)


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
@pytest.mark.parametrize(("sizes", "message"), [((0, 5), "embed_dim .* got 0"), ((6, -1), "max_length .* got -1")])
def test_positions_refuse_sizes(name, sizes, message):
    with pytest.raises(ValueError, match=message):
        POSITIONS[name](*sizes)
