"""The line of an answer where its numbers part from the solution's."""

import math

import pytest
import torch

from sciformer import check
from sciformer.check import tracing
from sciformer.check.tracing import first_wrong_line


@pytest.fixture(autouse=True)
def _no_change_is_found(monkeypatch):
    """A line is told only where no other one can be offered in its place."""
    monkeypatch.setattr("sciformer.check.closer_look.larger_change", lambda *_, **__: None)


def located(answer):
    message = check.scaled_dot_product.diagnose(answer, seed=0).message
    return " ".join(message.split())


def late(query, key, value, attn_mask=None):
    scores = query @ key.T
    scores = scores / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    weights = scores.softmax(dim=-1)
    return (weights * 0.7).sin() @ value + 0.1


def early(query, key, value, attn_mask=None):
    scores = query @ key.T
    scores = scores / (1 + query.shape[-1] ** 0.3)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (late, "`weights = scores.softmax(dim=-1)`", "`return (weights * 0.7).sin() @ value + 0.1`"),
        (early, "`scores = query @ key.T`", "`scores = scores / (1 + query.shape[-1] ** 0.3)`"),
    ],
)
def test_the_line_is_named(answer, right, wrong):
    assert f"Up to your line {right} the numbers are right; your line {wrong} makes them wrong." in located(answer)


def swapped(query, key, value, attn_mask=None):
    first = key.contiguous() + 0
    scores = first @ query.T / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def two_mistakes(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    weights = (scores.softmax(dim=-1) + 0.1) / 3
    return weights @ value * 2


def symmetric(x, temperature):
    scores = x @ x.T / temperature
    weights = torch.softmax(scores, dim=0)  # the transpose of the right one, not the right one
    return weights @ x


def same_matrix(query, key, left, right):
    q, k = query @ left, key @ left
    return q @ k.transpose(-2, -1) / math.sqrt(left.shape[-1])


def reshaped(logits, tokens):
    b, length, v = logits.shape
    scores = logits[:, :-1].reshape(b, v, length - 1)  # its values stand in the same order as the right ones
    return torch.nn.functional.cross_entropy(scores, tokens[:, 1:]).exp()


def all_from_the_first(patches, embedding, positions, blocks, head):
    tokens = patches @ embedding + positions
    out = tokens
    for block in blocks:
        out = block(tokens)  # right for the first block
    return out.mean(dim=1) @ head


def gathered(logits, temperature, top_p):
    probs = torch.softmax(logits / temperature, dim=-1)
    sorted_probs, order = probs.sort(dim=-1, descending=True)
    keep = sorted_probs.cumsum(dim=-1) - sorted_probs < top_p
    kept = sorted_probs * keep  # right, on a way that the solution does not take
    kept = kept / kept.sum(dim=-1, keepdim=True)
    return kept.gather(1, order)


@pytest.mark.parametrize(
    ("exercise", "answer", "innocent"),
    [
        ("tempered_attention", symmetric, "`return weights @ x`"),
        ("low_rank_scores", same_matrix, "`return"),
        ("text_perplexity", reshaped, "`return"),
        ("logits_from_patches", all_from_the_first, "`return"),
        ("nucleus", gathered, "`kept = sorted_probs * keep`"),
        ("scaled_dot_product", two_mistakes, "`"),
        ("scaled_dot_product", swapped, "`first"),
    ],
)
def test_an_innocent_line_is_not_blamed(exercise, answer, innocent):
    message = " ".join(getattr(check, exercise).diagnose(answer, seed=0).message.split())
    assert not message.startswith(f"{exercise}: correct")
    blame = message.partition("are right; ")[2].partition(" makes them wrong.")[0]
    assert innocent not in blame


def where_it_goes_wrong(answer, *cases):
    """What is said of lines, for the right answer 2 · (x + 1)."""

    def right(case):
        return double_of_next(case["x"])

    return first_wrong_line(lambda case: answer(case["x"]), right, [{"x": x} for x in cases], lambda code: True)


def double_of_next(x):
    following = x + 1
    return 2 * following


def one_line_for_all(x):
    following = x + 1
    result = 3 * following
    return result


def another_line_for_long_ones(x):
    following = x + 1
    if len(x) < 3:
        return 3 * following
    return 5 * following


def test_a_line_is_blamed_only_if_it_is_the_same_for_every_input(monkeypatch):
    monkeypatch.setattr("sciformer.check.tracing._results", made_here)
    short, long = torch.tensor([0.5, 3.0]), torch.tensor([0.25, 2.0, 5.0])
    assert "your line `result = 3 * following` makes them wrong" in where_it_goes_wrong(one_line_for_all, short, long)
    assert where_it_goes_wrong(another_line_for_long_ones, short, long) is None
    assert "your line `return 5 * following` makes them wrong" in where_it_goes_wrong(another_line_for_long_ones, long)


def made_here(call, is_own, replacement=None, *, results=tracing._results):
    """Only the lines of this file are anybody's: the solution's are those of `double_of_next`."""
    return results(call, lambda code: code.co_name in {f.__name__ for f in (double_of_next, *ANSWERS)}, replacement)


ANSWERS = (one_line_for_all, another_line_for_long_ones)


def test_another_way_to_the_result_is_not_blamed():
    def mine(query, key, value, attn_mask=None):
        shifted = (query + 1) @ key.T
        scores = shifted - key.sum(dim=-1)  # the right numbers, not scaled, by a way of one's own
        return scores.softmax(dim=-1) @ value

    assert "Up to your line" not in located(mine)


def test_nothing_is_said_of_a_single_line():
    assert "Up to your line" not in located(lambda query, key, value, attn_mask=None: (query @ key.T + 1).exp() @ value)


def by_the_rows(values):
    n = sum(values.shape) ** 2
    mean = values.mean(dim=1)
    error = values.std(dim=1) / n**0.5
    return mean, error


def test_a_plain_number_of_the_line_may_be_what_is_wrong():
    told = " ".join(check.seed_spread.diagnose(by_the_rows, seed=0).message.split())
    assert "Up to your line `mean = values.mean(dim=1)` the tensors are right; your line `error = " in told
    assert "makes them wrong. Look at `n`, too, which this line uses." in told


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


def tripled(x):
    """Its exponentials are right up to a factor, and the right weights in their place stay so when they are divided."""
    scores = x * 3
    e = torch.exp(scores - scores.max())
    weights = e / e.sum(dim=1)  # without keepdim
    return weights @ x


def test_of_two_lines_that_come_right_by_the_same_values_both_are_told(monkeypatch):
    def right(case):
        scores = case["x"] * 3
        weights = scores.softmax(dim=-1)
        return weights @ case["x"]

    monkeypatch.setattr(right, "__code__", right.__code__.replace(co_filename="sciformer/right.py"))
    cases = [{"x": torch.randn(3, 3)} for _ in range(3)]
    assert first_wrong_line(lambda case: tripled(case["x"]), right, cases, lambda code: code.co_name == "tripled") == (
        "Up to your line `scores = x * 3` the numbers are right; one of your lines "
        "`e = torch.exp(scores - scores.max())` and `weights = e / e.sum(dim=1)  # without keepdim` makes them wrong."
    )


def test_a_line_that_writes_into_a_tensor_is_a_line():
    def ablate(x, heads, num_heads):
        B, L, E = x.shape
        out = x.reshape(B, L, num_heads, E // num_heads).clone()
        for h in heads:
            out[:, :, h] = out[:, :, h].sin() + 0.1
        return out.reshape(B, L, E)

    told = " ".join(check.ablate.diagnose(ablate, seed=0).message.split())
    assert "your line `return out.reshape(B, L, E)` makes them wrong" not in told
