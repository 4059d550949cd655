"""What a worker says is read as plain values, whoever wrote it."""

import pytest
import torch

from sciformer import check
from sciformer.check.exercise import Call, Observation, Problem
from sciformer.check.values import same
from sciformer.check.wire import decode, decode_observation, encode, encode_observation

PLAIN = [
    None,
    True,
    3,
    2.5,
    "text",
    {"type": "object"},
    [1, [torch.randn(3, 5), "x"]],
    torch.randn(3, 5).mT,
    torch.randn(3, 5).expand(2, 3, 5),
    torch.tensor(1.5, dtype=torch.float64),
    torch.tensor([1.5, float("nan"), float("inf")], dtype=torch.bfloat16),
    torch.arange(7),
    torch.tensor([True, False, True]),
    torch.empty(0, 3),
    torch.empty(0, dtype=torch.bool),
]


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_plain_values_arrive_as_they_were(value):
    arrived = decode(encode(value))
    assert type(arrived) is type(value)
    if isinstance(value, torch.Tensor):
        assert arrived.dtype == value.dtype
        torch.testing.assert_close(arrived, value, rtol=0, atol=0, equal_nan=True)
    else:
        assert same(arrived, value)


TENSOR = {"dtype": "float32", "shape": [2], "content": "AAAAAAAAAAA="}


@pytest.mark.parametrize(
    "made_up",
    [
        {},
        2**63,
        {"type": "a", "more": 1},
        TENSOR | {"shape": [10**9]},
        TENSOR | {"shape": [-1, -2]},
        TENSOR | {"shape": [2.5]},
        TENSOR | {"shape": "2"},
        TENSOR | {"shape": [2**40, 2**40]},
        TENSOR | {"shape": [0, 2**70], "content": ""},
        TENSOR | {"shape": None},
        TENSOR | {"dtype": "complex64"},
        TENSOR | {"dtype": ["float32"]},
        TENSOR | {"content": "%"},
        TENSOR | {"content": 3},
    ],
    ids=str,
)
def test_what_is_made_up_is_refused(made_up):
    with pytest.raises(ValueError, match=r"is no plain value|this is no tensor"):
        decode([made_up])


def test_truth_values_are_0_or_1_whatever_their_bytes():
    (twice,) = decode([{"dtype": "bool", "shape": [2], "content": "AgA="}])
    assert twice.view(torch.uint8).tolist() == [1, 0]


def test_an_observation_is_judged_alike_after_its_journey():
    exercise = check.scaled_dot_product
    cases = exercise.draw(5)
    for answer in (exercise.reference, lambda *inputs: inputs[2], lambda *inputs: 1 / 0):
        seen = exercise.observe(answer, cases, 5)
        assert exercise.judge(cases, decode_observation(encode_observation(seen)), 5) == exercise.judge(cases, seen, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"calls": 3},
        {"calls": [{"output": 1}]},
        {"gradients": []},
        {"problem": {"kind": "correct", "says": "correct"}},
        {"problem": {"kind": "raises", "says": 3}},
        {"problem": {"kind": ["raises"], "says": ""}},
    ],
    ids=str,
)
def test_an_observation_that_is_made_up_is_incomplete(change):
    seen = Observation([Call(1, 1, {})], {}, Problem("raises", "x" * 10_000))
    assert len(decode_observation(encode_observation(seen)).problem.says) == 2000
    assert decode_observation(encode_observation(seen) | change).problem.kind == "incomplete"
