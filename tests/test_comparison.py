"""The comparison of what notices a slip: slips are programs with lines, and what is counted is what is said."""

import pytest
import torch

from sciformer.check import EXERCISES
from sciformer.exercises.ways import ways_of
from tools.comparison import Count, Slip, changes_something, is_a_mistake, one_input, ours, slips


@pytest.fixture(scope="module")
def norm():
    return EXERCISES["root_mean_square_norm"], ways_of(EXERCISES["root_mean_square_norm"])


def test_slips_are_programs_that_differ_in_the_line_that_they_name(norm):
    exercise, answers = norm
    found = list(slips(exercise, exercise.name, answers[exercise.name]))
    assert len(found) >= 10
    for slip in found:
        assert callable(slip.answer)
        assert slip.line
    assert any(is_a_mistake(slip, answers[exercise.name], tries=20) for slip in found)


def test_right_answers_are_no_mistakes(norm):
    exercise, answers = norm
    for answer in answers.values():
        slip = Slip(exercise, answer, "")
        assert not is_a_mistake(slip, answers[exercise.name], tries=20)
        assert not changes_something(slip, answers[exercise.name], seeds=2)
        assert not one_input(slip, answers[exercise.name])


def no_mean(x, weight, eps):
    square = x.square().sum(dim=-1, keepdim=True)
    return x / (square + eps).sqrt() * weight


def nothing_like_it(x, weight, eps):
    return torch.tanh(x.cumsum(dim=-1)).flip(-1) - eps


def test_what_is_said_is_counted(norm):
    exercise, _ = norm
    count = Count()
    ours(Slip(exercise, no_mean, "square = x.square().sum(dim=-1, keepdim=True)"), count)
    assert (count.slips, count.detected, count.named, count.located, count.hit) == (1, 1, 1, 1, 1)
    ours(Slip(exercise, nothing_like_it, "another line"), count)
    assert (count.slips, count.detected, count.named, count.stopped) == (2, 2, 1, 0)
    assert count.share("named") == "1 of 2 (50%)"
