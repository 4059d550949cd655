"""Answers that are classes: built, given weights, run; and what a student is told if that cannot be done."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import check
from sciformer.check.exercise import WrongType
from sciformer.check.modules import run_module

WEIGHTS = {"up.weight": torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), "up.bias": torch.tensor([0.5, -0.5])}


class Right(nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.up = nn.Linear(width, height)

    def forward(self, x, *, twice=False):
        return self.up(x) * (2 if twice else 1)


def test_the_weights_are_the_given_ones_and_get_gradients():
    weights = {name: weight.double().requires_grad_() for name, weight in WEIGHTS.items()}
    x = torch.tensor([1.0, 1.0, 1.0]).double()
    output = run_module(Right, (3, 2), weights, x, twice=True)
    assert_close(output, torch.tensor([13.0, 1.0]).double())
    output.sum().backward()
    assert_close(weights["up.bias"].grad, torch.tensor([2.0, 2.0]).double())


class Tied(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        if first:
            self.second.weight = self.first.weight
        else:
            self.first.weight = self.second.weight

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize("first", [True, False])
def test_tied_weights_may_be_tied_either_way(first):
    weights = {"second.weight": torch.tensor([[0.0, 2.0], [1.0, 0.0]])}
    assert_close(run_module(Tied, (first,), weights, torch.tensor([1.0, 3.0])), torch.tensor([2.0, 6.0]))


def test_what_should_be_one_parameter_must_not_be_two():
    with pytest.raises(WrongType, match=r"It has to be down\.weight itself.*: self\.up\.weight = self\.down") as error:
        run_module(Untied, (), {"down.weight": torch.eye(2)}, torch.ones(2), tied={"up.weight": "down.weight"})
    assert "not asked for" not in str(error.value)
    with pytest.raises(WrongType, match=r"not asked for: up\.weight"):
        run_module(Untied, (), {"down.weight": torch.eye(2)}, torch.ones(2))


class Untied(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)


def test_what_should_be_two_parameters_must_not_be_one():
    weights = dict.fromkeys(("first.weight", "second.weight"), torch.eye(2))
    with pytest.raises(WrongType, match=r"first\.weight and second\.weight are one and the same parameter"):
        run_module(Tied, (True,), weights, torch.ones(2))


class Repeated(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(2)] * depth)
        self.layers = nn.ModuleList([nn.ModuleDict({"down": nn.Linear(2, 2)})] * depth)


def test_lists_that_hold_one_module_several_times_are_all_told():
    weights = dict(Repeated(3).named_parameters(remove_duplicate=False))
    with pytest.raises(WrongType) as told:
        run_module(Repeated, (3,), weights)
    assert str(told.value) == (
        "norms.0.weight and norms.1.weight are one and the same parameter; two are wanted. The same goes for "
        "layers.0.down.weight and layers.1.down.weight. Does a list hold one module several times, as after "
        "`[module] * 2`?"
    )


class Unregistered(nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.layers = [nn.Linear(width, height)]


class Renamed(nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.down = nn.Linear(width, height)


class Plain(nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.up = nn.Module()
        self.up.weight, self.up.bias = torch.ones(height, width), nn.Parameter(torch.zeros(height))


class Turned(nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.up = nn.Linear(height, width)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda width, height: width, r"\(3, 2\) gives int\. Write a class that inherits from nn\.Module"),
        (Unregistered, r"up\.bias, up\.weight\. It has no parameters at all: a layer is found if"),
        (
            Plain,
            r"missing: up\.weight\. up\.weight can be found, but as a plain tensor: an optimiser sees nn\.Parameter",
        ),
        (Renamed, r"missing: up\.bias, up\.weight\. These are not asked for: down\.bias, down\.weight\."),
        (Turned, r"up\.weight has the shape \(3, 2\); \(2, 3\) is wanted"),
    ],
)
def test_what_cannot_be_run_is_said_in_words(answer, says):
    with pytest.raises(WrongType, match=says):
        run_module(answer, (3, 2), WEIGHTS, torch.ones(3))


def test_a_size_without_effect_is_told():
    class FourTimesAsWide(nn.Module):
        def __init__(self, embed_dim, hidden_dim):
            super().__init__()
            self.up = nn.Linear(embed_dim, 4 * embed_dim)

    weights = {"up.weight": torch.zeros(3, 2), "up.bias": torch.zeros(3)}
    says = r"shape \(8, 2\); \(3, 2\) is wanted\. `hidden_dim` is 3 here, and has no effect on this shape\."
    with pytest.raises(WrongType, match=says):
        run_module(FourTimesAsWide, (2, 3), weights, torch.zeros(1, 2))


class AlwaysLearned(check.GPT.solution):
    def __init__(self, *sizes, positions=None, **block):
        super().__init__(*sizes, **block)


class OneMore(check.GPT.solution):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.more = nn.Linear(1, 1)


def test_a_known_mistake_is_named_where_it_is_refused_in_the_same_words():
    diagnosis = check.GPT.diagnose(AlwaysLearned, seed=0)
    assert diagnosis.faults == ("always learned positions",)
    assert "`positions` has no effect" in diagnosis.message
    assert "\n  These are not asked for: positions.table.\n  on this input: 1 text" in diagnosis.message
    assert "`positions` has no effect" not in diagnosis.symptom
    assert "These are not asked for: positions.table." in diagnosis.symptom


def test_other_refusals_have_no_known_mistake():
    diagnosis = check.GPT.diagnose(OneMore, seed=0)
    assert (diagnosis.kind, diagnosis.faults) == ("wrong type", ())
    assert "not asked for: more.bias, more.weight." in diagnosis.message


class Sharing(Right):
    def __init__(self, width, height):
        super().__init__(width, height)
        self.up.bias = nn.Parameter(torch.zeros(1).expand(height))


class Remembering(Right):
    def __init__(self, width, height):
        super().__init__(width, height)
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        return self.up(x) * len(self.seen)


class OnlyInTraining(Right):
    def forward(self, x):
        return self.up(x) if self.training else x


class Dropping(Right):
    def forward(self, x):
        return torch.dropout(self.up(x), 0.5, self.training)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Sharing, r"Several entries of the parameter up\.bias are one place in memory, as after `expand`"),
        (Remembering, "A second call with the same inputs gives another output"),
        (OnlyInTraining, r"After `\.eval\(\)` the output is another one than in training"),
        (Dropping, "is there a dropout"),
    ],
)
def test_what_shows_only_when_a_module_is_used(answer, says):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        with pytest.raises(WrongType, match=says):
            run_module(answer, (3, 2), WEIGHTS, torch.ones(3))


def test_prices_that_are_expanded_cannot_be_trained():
    class TwoSidedScore(nn.Module):
        def __init__(self, num_heads, head_dim):
            super().__init__()
            self.strength = nn.Parameter(torch.tensor([0.1, 0.1]).expand(num_heads, 2))

        def forward(self, query, key, *, query_offset=0):
            return query @ key.mT

    assert "one place in memory" in check.TwoSidedScore.diagnose(TwoSidedScore, seed=0).says
