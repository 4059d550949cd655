"""A line that an expression of a right answer mends, and a line that should stand elsewhere."""

import sys

import pytest
import torch

from sciformer.check.borrowing import borrowed
from sciformer.check.repairing import one_move


def wrong_on_purpose(x, scale):
    shares = x.exp() / x.sum().exp()
    return scale * shares


def right(numbers, factor):
    weights = numbers.softmax(dim=0)
    return weights * factor


def right_in_a_loop(x, scale):
    total = 0
    for entry in x:
        total = total + entry.exp()
    return scale * (x.exp() / total)


INPUTS = [(torch.tensor([0.5, 2.0, -1.0]), 3.0), (torch.tensor([1.0, 0.0]), 2.0)]
CALLS = [lambda answer, given=given: answer(*given) for given in INPUTS]


def is_right(answer):
    return all(torch.allclose(answer(*given), right(*given)) for given in INPUTS)


def test_an_expression_is_said_in_the_students_names_and_leaves_no_line_without_use():
    change = borrowed(wrong_on_purpose, [right], CALLS, is_right)
    assert (change.old, change.new) == ("shares = x.exp() / x.sum().exp()", "shares = x.softmax(dim=0)")
    assert is_right(change.answer)


def test_the_smallest_change_of_all_ways_is_offered():
    def another(x, scale):
        return scale * (x.exp() / x.exp().sum())

    change = borrowed(wrong_on_purpose, [right, another], CALLS, is_right)
    assert change.new == "shares = x.exp() / x.exp().sum()"


@pytest.mark.parametrize("ways", [[], [right_in_a_loop]])
def test_nothing_is_offered_where_no_way_helps(ways):
    assert borrowed(wrong_on_purpose, ways, CALLS, is_right) is None


def test_a_whole_answer_is_no_change():
    def all_in_one_line(x, scale):
        return scale * ((x - x.max()).exp() / (x - x.max()).exp().sum()) + 0 * (x - x.mean()) / len(x)

    def untouched(x, scale):
        return x

    assert is_right(all_in_one_line)
    assert borrowed(untouched, [all_in_one_line], CALLS, is_right) is None


def test_tracing_ends_with_the_search():
    before = sys.gettrace()
    borrowed(wrong_on_purpose, [right], CALLS, is_right)
    assert sys.gettrace() is before


def counted_too_early(x):
    for row in x:
        total = 0.0
        total = total + row.sum()
    return total


def in_the_wrong_order(x):
    x = x - x.mean()
    scale = x.mean()
    return x / scale


@pytest.mark.parametrize(
    ("answer", "wanted", "where"),
    [
        (counted_too_early, lambda x: x.sum(), ("out of the loop, before", "for row in x:")),
        (in_the_wrong_order, lambda x: (x - x.mean()) / x.mean(), ("behind your line", "scale = x.mean()")),
    ],
)
def test_a_line_that_should_stand_elsewhere_is_found(answer, wanted, where):
    x = torch.tensor([[1.0, 2.0], [4.0, 5.0]])
    change = one_move(answer, lambda candidate: torch.allclose(candidate(x), wanted(x)))
    assert change.where == where
    assert change.old == change.new
    assert f"Move your line\n    {change.old}\n  {where[0]}\n    {where[1]}" in change.told()
