"""The line of an answer where its numbers part from the solution's."""

import math

import pytest

from sciformer import check


def located(answer):
    message = check.scaled_dot_product.diagnose(answer, seed=0).message
    return " ".join(message.split())


def late(query, key, value, attn_mask=None):
    scores = query @ key.T
    scores = scores / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    weights = scores.softmax(dim=-1)
    weights = (weights + 0.1) / 3
    return weights @ value * 2


def early(query, key, value, attn_mask=None):
    scores = query @ key.T
    scores = scores / (1 + query.shape[-1] ** 0.3)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (late, "`weights = scores.softmax(dim=-1)`", "`weights = (weights + 0.1) / 3`"),
        (early, "`scores = query @ key.T`", "`scores = scores / (1 + query.shape[-1] ** 0.3)`"),
    ],
)
def test_the_line_is_named(answer, right, wrong):
    assert f"Up to your line {right} the numbers are right; those of {wrong} are not." in located(answer)


def test_another_way_to_the_result_is_not_blamed():
    def mine(query, key, value, attn_mask=None):
        shifted = (query + 1) @ key.T
        scores = shifted - key.sum(dim=-1)  # the right numbers, not scaled, by a way of one's own
        return scores.softmax(dim=-1) @ value

    assert "Up to your line" not in located(mine)


def test_nothing_is_said_of_a_single_line():
    assert "Up to your line" not in located(lambda query, key, value, attn_mask=None: (query @ key.T + 1).exp() @ value)


def test_a_debugger_gets_its_hook_back():
    import sys

    def hook(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(hook)
    try:
        located(late)
        assert sys.gettrace() is hook
    finally:
        sys.settrace(before)
