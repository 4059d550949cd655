"""Tests that readers write: which versions they misjudge is told by name, and what the matter is where it is known."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from sciformer import check
from sciformer.check import EXERCISES
from sciformer.check.wire import decode_observation, encode_observation
from sciformer.check.written_tests import WrittenTest

WRITTEN = [exercise for exercise in EXERCISES.values() if isinstance(exercise, WrittenTest)]
NAMED = {"ids": lambda exercise: exercise.name}


def told(answer, exercise=check.test_attention):
    diagnosis = exercise.diagnose(answer, seed=0)
    return diagnosis.kind, " ".join(diagnosis.message.split())


def test_they_stand_in_the_four_notebooks():
    assert [exercise.notebook for exercise in WRITTEN] == ["02", "03", "08", "16"]


@pytest.mark.parametrize("exercise", WRITTEN, **NAMED)
def test_every_right_version_is_right_and_every_faulty_one_is_a_mistake_of_the_other_exercise(exercise):
    of = exercise.of
    spared = {
        "test_holm": {"compared with the one before", "Holm–Šidák"},
        "test_heads": {"divided by the number of key heads"},
    }
    spared = spared.get(exercise.name, set())
    assert {f.name for f in of.faults} == exercise.faulty.keys() | spared
    assert not exercise.faulty.keys() & spared
    assert len(exercise.right) >= 3
    assert len(exercise.faulty) >= 12
    for version in exercise.right.values():
        assert of.diagnose(version, seed=0).correct
    for name, version in exercise.faulty.items():
        assert of.diagnose(version, seed=0).faults == (name,)


@pytest.mark.parametrize("exercise", WRITTEN, **NAMED)
@pytest.mark.parametrize("accepts", [True, False])
def test_whoever_accepts_all_or_nothing_is_told_so(exercise, accepts):
    def answer(version):
        assert accepts

    kind, message = told(answer, exercise)
    if accepts:
        assert f"also: {'; '.join(list(exercise.faulty)[2:])}" in message
        assert "Nothing is asserted about the numbers" in message
    else:
        assert kind == "false alarm"
        assert f"It rejects {len(exercise.right)} of {len(exercise.right)} right versions." in message
        assert f"right versions that it rejects: {'; '.join(exercise.right)}" in message


def test_survivors_are_named_and_the_first_are_explained():
    def answer(attention):
        """Sees whether rows sum to 1, and no more."""
        output = attention(torch.randn(3, 2), torch.randn(4, 2), torch.ones(4, 2), torch.ones(3, 4).tril(1).bool())
        torch.testing.assert_close(output, torch.ones(3, 2))

    kind, message = told(answer)
    assert kind == "known mistake"
    assert "Its values are the same at every position." in message
    symptom = " ".join(check.test_attention.diagnose(answer, seed=0).symptom.split())
    assert "12 of 26 faulty versions survive your test. faulty versions that it accepts:" in symptom
    assert "query and key exchanged" not in message, "its rows have another length"
    assert "no scale: The scores are not divided by √D" in message
    assert "also: multiplied by √D; scaled by the length; scaled by the number of queries" in message
    assert "read again: notebook 02" in message


def test_a_good_test_may_be_written_without_a_mask_argument_where_none_is_wanted():
    def answer(attention):
        query, key, value = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 3)
        torch.testing.assert_close(attention(query, key, value), F.scaled_dot_product_attention(query, key, value))

    _, message = told(answer)
    assert "It never gives a mask" in message
    assert "10 of 25" not in message, "the cause stands in place of the count"
    assert "mask inverted: The mask is the wrong way round" in message


def test_an_error_of_the_test_s_own_is_told_with_its_line():
    def answer(attention):
        attention(torch.randn(2, 3), torch.randn(4, 5), torch.randn(4, 5), None)

    kind, message = told(answer)
    assert kind == "raises"
    assert "in your line: attention(torch.randn(2, 3), torch.randn(4, 5), torch.randn(4, 5), None)" in message


@pytest.mark.parametrize("returned", [True, torch.tensor(True)])
def test_a_test_that_returns_its_verdict_is_told_to_assert(returned):
    kind, message = told(lambda attention: returned)
    assert kind == "wrong type"
    assert "A test rejects with `assert` and returns nothing. This one returns" in message


def test_the_stub_is_not_attempted_and_no_version_hides_it():
    def answer(attention):
        raise NotImplementedError

    assert told(answer)[0] == "not attempted"


def test_a_message_is_short():
    for exercise in WRITTEN:
        assert len(exercise.diagnose(lambda version: None, seed=0).message.splitlines()) <= 15


def test_a_loop_that_never_ends_is_cut_off(monkeypatch):
    monkeypatch.setattr(check.test_holm, "seconds", 0.3)

    def answer(holm):
        while True:
            math.sqrt(2)

    assert told(answer, check.test_holm)[0] == "too slow"


@pytest.mark.parametrize("exercise", WRITTEN, **NAMED)
def test_the_notebook_says_how_many_faulty_versions_there_are(exercise):
    (script,) = (Path(__file__).parents[1] / "notebooks_py").glob(f"{exercise.notebook}_*.py")
    assert f"reject each of {len(exercise.faulty)} faulty ones" in script.read_text().replace("\n# ", " ")


def test_a_grader_judges_from_what_a_worker_says():
    exercise = check.test_attention
    cases = exercise.draw(5)
    seen = exercise.observe(lambda attention: None, cases, 5)
    said = json.loads(json.dumps(encode_observation(seen)))
    diagnosis = exercise.judge(exercise.draw(5), decode_observation(said), 5)
    assert diagnosis.kind == "survivors"
    assert diagnosis.message == exercise.diagnose(lambda attention: None, seed=5).message


def bit_by_bit(attention):
    query, key, value = torch.randn(5, 8), torch.randn(7, 8), torch.randn(7, 8)
    assert torch.equal(attention(query, key, value), (query @ key.T / math.sqrt(8)).softmax(dim=-1) @ value)


def upside_down(attention):
    query, key, value = torch.randn(4, 8), torch.randn(6, 8), torch.randn(6, 8)
    mask = torch.arange(6) > torch.tensor([[1], [2], [3], [4]])
    for seen in (None, mask):
        scores = query @ key.T / math.sqrt(8)
        scores = scores if seen is None else scores.masked_fill(seen, -math.inf)
        torch.testing.assert_close(attention(query, key, value, seen), scores.softmax(dim=-1) @ value)


def test_a_test_that_asks_for_the_last_digit_is_told_so():
    kind, message = told(bit_by_bit)
    assert kind == "false alarm"
    assert "asks for more digits than rounding leaves" in message


def test_a_test_that_expects_a_mistake_is_told_which():
    kind, message = told(upside_down)
    assert kind == "false alarm"
    assert "so the result that it expects has their mistake." in " ".join(message.split())
    assert "mask inverted: The mask is the wrong way round" in message


def test_the_line_that_rejects_a_right_version_is_told():
    def mine(holm):
        corrected = holm(torch.tensor([0.01, 0.9, 0.02]))
        assert corrected[1] <= 1
        assert corrected[0] > 1, "too strict"

    message = check.test_holm.diagnose(mine, seed=0).message
    assert '\n  by your line: assert corrected[0] > 1, "too strict"\n  right versions that it rejects' in message


def test_where_a_right_version_stops_the_test_is_told_what_it_takes():
    kind, message = told(lambda attention: attention(torch.randn(3), 7, "no tensor"))
    assert kind == "raises"
    assert "This version is right: it stops because of what your test gives it. scaled_dot_product takes" in message
    assert "query of shape (" in message


def test_where_the_test_itself_stops_no_version_is_blamed():
    kind, message = told(lambda attention: undefined)
    assert kind == "raises"
    assert "This version is right" not in message


def test_nan_in_what_a_test_expects_is_told():
    def mine(attention):
        query, key, value = torch.randn(3, 2), torch.randn(2, 2), torch.randn(2, 2)
        mask = torch.tensor([[True, True], [True, False], [False, False]])
        expected = (query @ key.T / 2**0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ value
        torch.testing.assert_close(attention(query, key, value, mask), expected)

    message = " ".join(check.test_attention.diagnose(mine, seed=0).message.split())
    assert "There is NaN in your `expected`" in message
    assert "One of your masks hides every key from some query" in message
    assert "more digits" not in message


def test_a_comparison_of_types_is_told():
    def mine(nucleus):
        logits = torch.tensor([[2.0, 0.0, -1.0]])
        expected = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
        torch.testing.assert_close(nucleus(logits, 1.0, 0.5), expected)

    message = " ".join(check.test_nucleus.diagnose(mine, seed=0).message.split())
    assert "It asks for the same type, too" in message
    assert "more digits" not in message


def test_a_row_without_keys_is_told_where_nothing_has_the_name_of_what_is_expected():
    def mine(attention):
        query, key, value = torch.randn(3, 2), torch.randn(3, 2), torch.randn(3, 2)
        mask = torch.ones(3, 3, dtype=torch.bool).tril(-1)
        right = F.scaled_dot_product_attention
        torch.testing.assert_close(attention(query, key, value, mask), right(query, key, value, mask) * torch.nan)

    assert "One of your masks hides every key from some query" in " ".join(told(mine)[1].split())


def test_what_allows_for_rounding_is_not_told_to_allow_for_it():
    def mine(nucleus):
        p = torch.tensor([[0.45, 0.3, 0.2, 0.05]])
        kept = torch.tensor([[0.6, 0.4, 0.0, 0.0]])  # of 0.75, which is what the first two sum to, or nearly so
        torch.testing.assert_close(nucleus(p.log(), 1.0, 0.75), kept)

    message = " ".join(told(mine, check.test_nucleus)[1].split())
    assert "equal to the last bit" not in message
    assert "Your comparison allows for rounding" in message
    assert "by your line: torch.testing.assert_close(nucleus(p.log(), 1.0, 0.75), kept)" in message


def one_square_case(attention):
    query, key, value = torch.randn(3, 4, 4)
    torch.testing.assert_close(attention(query, key, value), F.scaled_dot_product_attention(query, key, value))


def test_all_that_the_inputs_of_a_test_lack_is_told_and_can_be_seen_in_them():
    diagnosis = check.test_attention.diagnose(one_square_case, seed=0)
    assert diagnosis.kind == "known mistake"
    assert diagnosis.faults == ("no mask", "as many tokens as features")
    message = " ".join(diagnosis.message.split())
    assert "It never gives a mask, so whatever is wrong with the mask survives. L, S and D are" in message
    assert "hides nothing" not in message, "a part of what is told already"
    assert "faulty versions that it accepts: scaled by the length; scaled by the number of queries; mask" in message


def by_torch(attention, *inputs):
    torch.testing.assert_close(attention(*inputs), F.scaled_dot_product_attention(*inputs))


@pytest.mark.parametrize(
    ("scale", "mask", "rows", "lack"),
    [
        (0.01, torch.tensor([[True, False, True], [True, True, False]]), 3, "inputs too small"),
        (1.0, torch.ones(3, 3).tril() > 0, 3, "every mask causal"),
        (1.0, torch.tensor([[True, False, True], [True, True, False]]), 1, "every value the same"),
    ],
)
def test_what_hides_a_mistake_in_the_inputs_is_told(scale, mask, rows, lack):
    def mine(attention):
        query, key = scale * torch.randn(len(mask), 4), scale * torch.randn(3, 4)
        value = torch.randn(rows, 4).expand(3, 4)
        by_torch(attention, query, key, value)
        by_torch(attention, query, key, value, mask)

    assert check.test_attention.diagnose(mine, seed=0).faults == (lack,)


def test_nothing_is_said_of_inputs_that_they_do_not_bear_out():
    def mine(holm):
        # In this order the products are 0.04, 0.06, 0.06, 0.04: they do not rise.
        torch.testing.assert_close(holm(torch.tensor([0.04, 0.03, 0.02, 0.01])), torch.tensor([0.06, 0.06, 0.06, 0.04]))

    diagnosis = check.test_holm.diagnose(mine, seed=0)
    assert diagnosis.faults == ("order its own inverse", "never above 1")
    assert "rise by themselves" not in " ".join(diagnosis.message.split())


def test_where_the_inputs_show_a_mistake_what_is_asserted_is_too_weak():
    def mine(holm):
        p = torch.tensor([0.02, 0.30, 0.01, 0.04, 0.6, 0.7])
        assert bool((p <= holm(p)).all())
        assert bool((holm(p) <= 1).all())

    kind, message = told(mine, check.test_holm)
    assert kind == "survivors"
    assert "All of them give wrong numbers on the test's own inputs, and your comparison lets them pass" in message


def test_a_test_whose_numbers_are_right_is_told_that_it_is_too_exact():
    def mine(holm):
        assert holm(torch.tensor([0.03, 0.01, 0.9])).tolist() == [0.06, 0.03, 0.9]

    kind, message = told(mine, check.test_holm)
    assert kind == "false alarm"
    assert "Its numbers are right, but it asks for more digits than rounding leaves" in message


def test_a_test_whose_numbers_may_be_wrong_is_asked():
    def mine(holm):
        assert holm(torch.tensor([0.03, 0.01, 0.9])).tolist() == [0.07, 0.03, 0.9]

    assert "Is a number that it expects wrong, or does it ask" in told(mine, check.test_holm)[1]


def test_what_survives_has_numbers_where_zero_is_right():
    """And what a test asserts that asks for enough, and not for as little as possible."""

    def mine(nucleus):
        logits = torch.tensor([[0.3, 1.2, -0.9, 0.6, 0.0], [-1.0, 0.2, 4.0, -0.3, 0.5]])
        p, got = logits.softmax(dim=-1), nucleus(logits, 1.0, 0.7)
        kept = got > 0
        assert bool(((p * kept).sum(dim=-1) >= 0.7).all())
        torch.testing.assert_close(got, p * kept / (p * kept).sum(dim=-1, keepdim=True))

    kind, message = told(mine, check.test_nucleus)
    assert kind == "survivors"
    assert "Each of them has other numbers where 0 is right." in message


def test_nothing_is_said_of_zeros_that_not_every_survivor_has():
    def mine(nucleus):
        logits = torch.tensor([[0.3, 1.2, -0.9, 0.6, 0.0], [-1.0, 0.2, 4.0, -0.3, 0.5]])
        assert torch.allclose(nucleus(logits, 0.5, 0.7).sum(dim=-1), torch.ones(2))
        assert torch.equal(nucleus(logits, 0.5, 0.7).argmax(dim=-1), logits.argmax(dim=-1))

    kind, message = told(mine, check.test_nucleus)
    assert kind == "survivors"
    assert "is right" not in message
