"""How far a verdict stands from its bound over the conditions it was tried under."""

import math

import pytest

from tools.robustness import margin_of


def test_margin_is_counted_in_standard_deviations_to_the_nearest_bound():
    assert margin_of([4.0, 6.0], {"above": 1.0}, is_ratio=False) == pytest.approx(4 / math.sqrt(2))
    assert margin_of([4.0, 6.0], {"above": 1.0, "below": 6.0}, is_ratio=False) == pytest.approx(1 / math.sqrt(2))
    assert margin_of([4.0, 6.0], {"below": 4.0}, is_ratio=False) == pytest.approx(-1 / math.sqrt(2))
    assert margin_of([5.0, 5.0], {"above": 1.0}, is_ratio=False) == math.inf
    assert margin_of([5.0], {"below": 1.0}, is_ratio=False) == -math.inf


def test_a_ratio_is_as_far_from_its_bound_as_its_inverse():
    there = margin_of([2.0, 8.0], {"above": 1.0}, is_ratio=True)
    assert there == pytest.approx(math.log(4) / (math.log(4) / math.sqrt(2)))
    assert margin_of([1 / 2, 1 / 8], {"below": 1.0}, is_ratio=True) == pytest.approx(there)
