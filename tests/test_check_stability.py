"""Right for scores of a usual size, and not for large ones: a verdict of its own."""

import re
from pathlib import Path

import pytest
import torch

from sciformer import check
from sciformer.check import EXERCISES, progress
from sciformer.check.changing import far as is_far
from sciformer.check.closer_look import _why_finite
from sciformer.check.values import same
from sciformer.check.variants import not_contiguous
from sciformer.check.written_tests import WrittenTest

CFG = Path(__file__).parents[1] / "notebooks" / "nbval_sanitize.cfg"


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIFORMER_PROGRESS", str(tmp_path / "progress.json"))


def overflowing(scores, attn_mask):
    weights = scores.exp() * attn_mask
    return weights / weights.sum(dim=-1, keepdim=True)


def test_an_answer_that_overflows_is_right_and_told_so():
    diagnosis = check.masked_weights.diagnose(overflowing, seed=0)
    assert (diagnosis.kind, diagnosis.correct) == ("unstable", True)
    lines = diagnosis.message.splitlines()
    assert lines[0] == "masked_weights: correct, but unstable"
    assert "With `scores` 20000 times as large" in lines[1]
    assert "    scores     [[ 30000,  -6000], [-44000,  12000]]" in lines
    assert "    got        [[nan,   0], [  0, nan]]" in lines
    assert "Hide keys before the softmax. Where you take exponentials yourself" in " ".join(diagnosis.message.split())


def test_where_there_is_no_mask_nothing_is_said_of_hiding():
    def plain_exponentials(x):
        weights = torch.exp(x @ x.T)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights @ x, weights

    message = " ".join(check.plain_attention.diagnose(plain_exponentials, seed=0).message.split())
    assert "Where you take exponentials yourself, subtract a row's largest score first." in message
    assert "Hide keys" not in message


@pytest.mark.parametrize("exercise", [e for e in EXERCISES.values() if e.large], ids=lambda e: e.name)
def test_the_solution_is_stable(exercise):
    assert exercise.diagnose(exercise.solution, seed=0).kind == "correct"
    inputs = exercise.draw(0)[0].inputs
    assert all(inputs[name].is_floating_point() for name in exercise.large)


def test_of_small_inputs_the_same_is_told():
    """1 / τ overflows as an exponent when the temperature is a thousandth."""

    def plain_exponentials(temperature, keys):
        best, worst = torch.exp(1 / temperature), torch.exp(-1 / temperature)
        return best / (best + (keys - 1) * worst)

    assert check.largest_share.small == ("temperature",)
    diagnosis = check.largest_share.diagnose(plain_exponentials, seed=0)
    assert (diagnosis.kind, diagnosis.correct) == ("unstable", True)
    assert "With `temperature` 1000 times as small, an exponential overflows" in diagnosis.says
    assert ", made smaller:" in diagnosis.message
    told = " ".join(diagnosis.message.split())
    assert "Subtract the largest exponent from all of them" in told
    assert "Hide keys" not in told


def test_a_finite_number_for_infinity_is_told():
    for seed in range(20):
        diagnosis = check.masked_weights.diagnose(lambda s, m: s.masked_fill(~m, -100.0).softmax(dim=-1), seed=seed)
        assert diagnosis.kind == "unstable"
        assert diagnosis.says.endswith("20000 times as large, the numbers are wrong.")
        told = " ".join(diagnosis.message.split())
        assert "Perhaps a finite number, as −100, is taken for minus infinity." in told


@pytest.mark.parametrize(
    ("program", "guess"),
    [
        ("x.masked_fill(~m, -1e4).softmax(-1)", "Perhaps a finite number, as −100, is taken for minus infinity."),
        (
            "x.clamp(max=80).exp()",
            "Perhaps large numbers are cut off by a clamp, or a sum of exponentials comes out as 0.",
        ),
        ("x / (x.norm() + 1e-8)", "Perhaps a small number that is added makes too much of a difference."),
    ],
)
def test_only_what_a_program_contains_is_suspected(program, guess):
    assert _why_finite(program) == guess


def test_where_a_program_says_nothing_three_things_are_suspected():
    assert _why_finite("x").count(", or ") == 2


@pytest.mark.parametrize(
    ("got", "wanted", "far"),
    [
        (torch.tensor([1000.0]), torch.tensor([1050.0]), False),  # rounding of large numbers
        (torch.tensor([1000.0]), torch.tensor([1200.0]), True),
        (torch.tensor([0.05]), torch.tensor([0.0]), False),
        (torch.tensor([0.5]), torch.tensor([0.0]), True),
        (torch.zeros(2), torch.zeros(3), False),  # another shape is not compared
        (1.0, torch.zeros(1), False),
    ],
)
def test_what_is_far_off_for_large_numbers(got, wanted, far):
    assert is_far(got, wanted) is far


def merged(x, weight, eps):
    rows = x.view(-1, x.shape[-1])
    return (rows / (rows.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight).view(x.shape)


def test_an_answer_for_contiguous_inputs_alone_is_told_so():
    diagnosis = check.root_mean_square_norm.diagnose(merged, seed=0)
    assert (diagnosis.kind, diagnosis.correct) == ("unstable", True)
    lines = diagnosis.message.splitlines()
    assert lines[0] == "root_mean_square_norm: correct, but only for contiguous inputs"
    assert "  in your line: rows = x.view(-1, x.shape[-1])" in lines


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES.values() if not isinstance(e, WrittenTest)], ids=lambda e: e.name
)
def test_the_solution_is_right_in_any_order_of_memory(exercise):
    for case in exercise.draw(1):
        turned = not_contiguous(case.inputs)
        assert all(x.shape == turned[name].shape for name, x in case.inputs.items() if isinstance(x, torch.Tensor))
        wanted, got = (exercise.plainly(exercise.reference, inputs, seed=1) for inputs in (case.inputs, turned))
        assert same(wanted, got)


def test_inputs_that_are_not_contiguous_hold_the_same_numbers():
    x = torch.arange(24.0).view(2, 3, 4)
    turned = not_contiguous({"x": x, "n": 3})
    torch.testing.assert_close(turned["x"], x)
    assert not turned["x"].is_contiguous()
    assert turned["n"] == 3
    with pytest.raises(RuntimeError, match="view"):
        turned["x"].view(6, 4)


def test_a_right_answer_of_an_exercise_without_large_inputs_is_correct():
    assert not check.causal_aft.large, "its prompt promises small keys"


def test_it_counts_as_solved_and_is_used(capsys):
    assert check.masked_weights.use(overflowing) is overflowing
    assert capsys.readouterr().out.endswith("\nthe notebook goes on with yours\n")
    assert progress.load()["masked_weights"]["solved"]


def sanitized(text):
    """As nbval does it: each regular expression of the file with the replacement behind it."""
    lines = CFG.read_text().splitlines()
    pairs = [
        (lines[n].removeprefix("regex: "), lines[n + 1].removeprefix("replace: "))
        for n in range(len(lines) - 1)
        if lines[n].startswith("regex: ")
    ]
    for regex, replacement in pairs:
        text = re.sub(regex, replacement, text)
    return text


def test_strict_validation_holds_whether_solved_or_not(capsys):
    def unwritten(scores, attn_mask):
        raise NotImplementedError

    def right(scores, attn_mask):
        return scores.masked_fill(~attn_mask, -torch.inf).softmax(dim=-1)

    capsys.readouterr()
    check.root_mean_square_norm(merged)
    assert sanitized(capsys.readouterr().out) == "root_mean_square_norm: EXERCISE\n"
    for call, alike in ((check.masked_weights, "EXERCISE\n"), (check.masked_weights.use, "EXERCISE IN USE\n")):
        for answer in (unwritten, right, overflowing):
            call(answer)
            assert sanitized(capsys.readouterr().out) == f"masked_weights: {alike}"
        for _ in range(2):
            call(lambda scores, attn_mask: scores)
            assert "EXERCISE" not in sanitized(capsys.readouterr().out), "a wrong answer is not hidden"


def by_the_largest_of_all(scores, attn_mask):
    scores = scores.masked_fill(~attn_mask, float("-inf"))
    weights = (scores - scores.max()).exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def test_the_change_that_makes_it_stable_is_told():
    message = check.masked_weights.diagnose(by_the_largest_of_all, seed=0).message
    assert (
        "With one change it would be stable. In place of your line\n    weights = (scores - scores.max()).exp()"
        in message
    )
    assert "\n    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp()\n" in message


def test_numbers_that_are_cut_off_may_be_the_reason():
    def masked_weights(scores, attn_mask):
        weights = scores.clamp(-80, 80).exp() * attn_mask
        return weights / weights.sum(dim=-1, keepdim=True)

    assert "Perhaps large numbers are cut off by a clamp, or a sum of" in " ".join(
        check.masked_weights.diagnose(masked_weights, seed=0).message.split()
    )
