"""Verdicts and proofs that can fail."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import MultiHeadAttention, course


def test_profile(monkeypatch):
    monkeypatch.setenv("SCIFORMER_PROFILE", "full")
    assert course.profile() == "full"
    monkeypatch.setenv("SCIFORMER_PROFILE", "")
    assert course.profile() == ("full" if torch.cuda.is_available() else "quick")
    monkeypatch.setenv("SCIFORMER_PROFILE", "fast")
    with pytest.raises(ValueError, match="got 'fast'"):
        course.profile()


def test_verdict_prints_bound_and_measurement(capsys):
    course.verdict("accuracy", 0.99123, above=0.98)
    course.verdict("ratio", 1e-7, above=-0.5, below=2)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "ok: accuracy is above 0.98: measured 0.9912"
    assert second == "ok: ratio is above -0.5 and below 2: measured 1e-07"


@pytest.mark.parametrize("value", [0.5, 12345678.9, -3e-9, -math.inf])
def test_notebooks_are_validated_without_what_a_verdict_measured(value, capsys):
    rules = (Path(__file__).parents[1] / "notebooks" / "nbval_sanitize.cfg").read_text()
    rule = re.search("regex: (: measured .*)", rules)[1]
    course.verdict("it", value, below=1e9)
    assert re.sub(rule, "", capsys.readouterr().out) == "ok: it is below 1e+09\n"


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (0.97, {"above": 0.98}, "it is 0.97, expected above 0.98"),
        (0.98, {"above": 0.98}, "expected above"),
        (3.0, {"above": 0.5, "below": 2.0}, "it is 3, expected above 0.5 and below 2"),
        (math.nan, {"above": 0.5}, "it is nan"),
        (math.nan, {"below": 0.5}, "it is nan"),
    ],
)
def test_verdict_can_fail(value, bounds, message):
    with pytest.raises(AssertionError, match=message):
        course.verdict("it", value, **bounds)


def test_verdict_is_judged_in_the_profile_that_was_measured(monkeypatch, capsys):
    monkeypatch.setenv("SCIFORMER_PROFILE", "quick")
    with pytest.raises(AssertionError, match=r"it is 0\.5, expected above 0\.98"):
        course.verdict("it", 0.5, above=0.98, measured="quick")
    course.verdict("it", 0.99, above=0.98, measured="quick")
    monkeypatch.setenv("SCIFORMER_PROFILE", "full")
    course.verdict("it", 0.5, above=0.98, measured="quick")
    assert capsys.readouterr().out.splitlines() == [
        "ok: it is above 0.98: measured 0.99",
        "stated, not judged: it is 0.5; no record of the full profile says what to expect",
    ]
    with pytest.raises(AssertionError, match=r"it is 0\.5, expected above 0\.98"):
        course.verdict("it", 0.5, above=0.98)


def test_verdict_needs_a_bound():
    with pytest.raises(ValueError, match="above=, below= or both"):
        course.verdict("it", 1.0)


class Mine(MultiHeadAttention):
    """The package's layer, with one fault on request."""

    fault = ""

    def forward(self, query, **options):
        if self.fault == "detached":  # same output, wrong gradient
            output, weights = super().forward(query.detach(), **options)
            return output + 0 * query, weights
        output, weights = super().forward(query, **options)
        return (output * 1.001 if self.fault == "scaled" else output), weights


def test_same_module_is_proved(capsys):
    mine, package, x = Mine(6, 2), MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    before = [p.clone() for p in (*mine.parameters(), *package.parameters())]
    course.assert_same_module(mine, package, x, is_causal=True)
    assert capsys.readouterr().out == "same: output, 1 input gradients and 8 parameter gradients agree\n"
    assert_close([*mine.parameters(), *package.parameters()], before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("fault", "message"), [("scaled", "output differs"), ("detached", "gradient of input 0 differs")]
)
def test_other_modules_are_not_the_same(fault, message):
    mine = Mine(6, 2)
    mine.fault = fault
    with pytest.raises(AssertionError, match=message):
        course.assert_same_module(mine, MultiHeadAttention(6, 2), torch.randn(2, 5, 6))


class Pair(nn.Module):
    """Two maps, one after the other, built in either order."""

    def __init__(self, *order):
        super().__init__()
        for name in order:
            setattr(self, name, nn.Linear(*{"first": (3, 5), "second": (5, 2)}[name]))

    def forward(self, x):
        return self.second(self.first(x))


def test_the_same_module_may_be_built_in_another_order(capsys):
    course.assert_same_module(Pair("second", "first"), Pair("first", "second"), torch.randn(2, 3))
    assert "4 parameter gradients agree" in capsys.readouterr().out


class Halved(Pair):
    """Only its first map has a say; the weight of the second is in the formula, times 0, unless it is forgotten."""

    def __init__(self, *, forgets):
        super().__init__("first", "second")
        self.forgets = forgets

    def forward(self, x):
        output = self.first(x)
        return output if self.forgets else output + 0 * self.second.weight.sum()


def test_a_parameter_without_a_say_is_compared_too(capsys):
    x = torch.randn(2, 3)
    course.assert_same_module(Halved(forgets=True), Halved(forgets=True), x)
    assert "4 parameter gradients agree" in capsys.readouterr().out
    with pytest.raises(AssertionError, match=r"gradient of second\.weight differs"):
        course.assert_same_module(Halved(forgets=True), Halved(forgets=False), x)


def test_modules_with_other_parameters_are_not_the_same():
    with pytest.raises(AssertionError, match=r"differ in name: \['bias'\]"):
        course.assert_same_module(nn.Linear(3, 5, bias=False), nn.Linear(3, 5), torch.randn(2, 3))
