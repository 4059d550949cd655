"""A line that an expression of a right answer mends, and a line that should stand elsewhere."""

import copy
import sys
from dataclasses import replace

import pytest
import torch

from sciformer.check.borrowing import borrowed
from sciformer.check.limits import TimeUp, limited
from sciformer.check.repairing import Change, one_move


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


def in_one_branch_only(x, scale):
    scores = x * x
    if len(x) == 3:
        return torch.softmax(scores / scale, dim=0)
    shares = torch.softmax(scores, dim=0)
    return shares


def in_both(x, scale):
    scores = x * x / scale
    return scores.softmax(dim=0)


def test_a_tensor_has_the_students_name_also_in_a_branch_that_only_some_calls_reach():
    inputs = [(torch.tensor([0.5, 2.0, -1.0]), 4.0), (torch.tensor([1.0, 0.0]), 0.5)]
    calls = [lambda answer, given=given: answer(*given) for given in inputs]

    def agrees(answer):
        return all(torch.allclose(answer(*given), in_both(*given)) for given in inputs)

    change = borrowed(in_one_branch_only, [in_both], calls, agrees)
    assert (change.old, change.new) == (
        "shares = torch.softmax(scores, dim=0)",
        "shares = torch.softmax(scores / scale, dim=0)",
    )


ROWS = [(torch.arange(12.0).view(2, 6), [0], 2), (torch.arange(8.0).view(1, 8), [1], 2)]
ROW_CALLS = [lambda answer, given=given: answer(*copy.deepcopy(given)) for given in ROWS]


def features_in_a_list(x, heads, num_heads):
    features = []
    for h in heads:
        features += [f for f in range(h * num_heads, (h + 1) * num_heads) if f in range(x.shape[-1])]
    out = x.clone()
    out[:, features] = 0.0
    return out


def silent(x, heads, num_heads):
    width, out = x.shape[-1] // num_heads, x.clone()
    for h in heads:
        out[:, h * width : (h + 1) * width] = 0.0
    return out


def test_what_is_written_twice_is_exchanged_twice_and_a_line_that_becomes_long_is_not_repeated():
    def agrees(answer):  # one of the programs that are tried lengthens the list that it loops over
        return limited(lambda: all(torch.equal(call(answer), call(silent)) for call in ROW_CALLS), 0.05)

    def is_right_in_time(answer):
        try:
            return agrees(answer)
        except TimeUp:
            return False

    change = borrowed(features_in_a_list, [silent], ROW_CALLS, is_right_in_time)
    assert change.part == ("num_heads", "x.shape[-1] // num_heads")
    assert change.told().endswith("\n  write (x.shape[-1] // num_heads) in place of num_heads.")
    assert agrees(change.answer)


def unless_there_is_none(x, scale):
    weights = x.softmax(dim=0)
    if scale:
        weights = scale * weights
    return weights


def unless_it_is_one(x, scale):
    weights = x.softmax(dim=0)
    if scale != 1 and x.ndim:
        weights = scale * weights
    return weights


def test_a_condition_is_not_mended_by_one_that_always_holds():
    inputs = [(torch.tensor([0.5, 2.0]), 0.0), (torch.tensor([1.0, 0.0]), 3.0)]
    calls = [lambda answer, given=given: answer(*given) for given in inputs]

    def agrees(answer):
        return all(torch.allclose(answer(*given), given[1] * given[0].softmax(dim=0)) for given in inputs)

    change = borrowed(unless_there_is_none, [unless_it_is_one], calls, agrees)
    assert change.new == "if scale != 1:"


def begun_without_a_weight(x, scale):
    total = x[0].exp()
    for entry in x:
        total = total + entry.exp()
    return scale * (x.exp() / total)


def test_lines_that_a_change_leaves_without_use_are_told():
    change = borrowed(begun_without_a_weight, [right], CALLS, is_right)
    assert change.new == "return scale * x.softmax(dim=0)"
    assert change.idle == ("total = x[0].exp()", "for entry in x:", "total = total + entry.exp()")
    told = " ".join(change.told().split())
    assert told.endswith(
        "Then your lines `total = x[0].exp()`, `for entry in x:`, `total = total + entry.exp()` are no longer needed."
    )


def test_of_many_lines_without_use_a_few_are_quoted():
    one = Change("a", "b", right, idle=("c",))
    assert one.told().endswith("Then your line `c` is no longer needed.")
    many = " ".join(replace(one, idle=tuple("cdefgh")).told().split())
    assert many.endswith("Then your lines `c`, `d`, `e`, `f` and 2 more are no longer needed.")


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


def doubled_too_late(x):
    total = 0.0
    for row in x:
        total = total + row.sum()
    x = 2 * x
    return total


def test_a_loop_that_should_stand_elsewhere_is_moved_as_a_whole():
    x = torch.tensor([[1.0, 2.0], [4.0, 5.0]])
    change = one_move(doubled_too_late, lambda candidate: torch.allclose(candidate(x), 2 * x.sum()))
    told = change.told()
    assert "Move all that begins with your line\n    for row in x:\n  behind your line\n    x = 2 * x" in told
