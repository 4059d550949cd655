"""One change of the student's own program: found where it is enough, told in full only where no mistake is known."""

import linecache
import math
import sys
from contextlib import suppress
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from sciformer import check
from sciformer.check.closer_look import _quotes_another
from sciformer.check.exercise import LONGEST
from sciformer.check.programs import made
from sciformer.check.repairing import (
    Change,
    drops_axes,
    in_vain,
    loop_that_ends_at_once,
    one_change,
    read_from_a_copy,
)
from sciformer.check.telling import Diagnosis


def message(exercise, answer):
    text = exercise.diagnose(answer, seed=0).message
    assert len(text.splitlines()) <= LONGEST
    return text


def too_late(length, embed_dim):
    position = torch.arange(length)[:, None]
    frequency = 10000.0 ** (-torch.arange(1, embed_dim, 2) / embed_dim)
    angle = position * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def too_short(p):
    order = p.argsort()
    factor = torch.arange(len(p), 1, -1, device=p.device)
    adjusted = (factor * p[order]).cummax(dim=0).values.clamp(max=1)
    return adjusted[order.argsort()]


def unscaled(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(len(query))
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def far_off(query, key, value, attn_mask=None):
    return torch.tanh((query @ key.T).softmax(dim=0)) @ key


def test_an_unknown_mistake_is_told_by_the_change_that_mends_it():
    assert (
        "\n  With one change it would be right. In place of your line\n"
        "    frequency = 10000.0 ** (-torch.arange(1, embed_dim, 2) / embed_dim)\n"
        "  write\n"
        "    frequency = 10000.0 ** (-torch.arange(0, embed_dim, 2) / embed_dim)\n"
        "  the smallest input that shows it:"
    ) in message(check.sinusoidal_table, too_late)


def test_the_first_wrong_run_does_not_tell_it():
    diagnosis = check.sinusoidal_table.diagnose(too_late, seed=0)
    assert "With one change" not in diagnosis.symptom


def test_where_python_stops_the_line_with_the_mistake_may_be_another():
    text = message(check.holm, too_short)
    assert "in your line: adjusted = " in text
    assert "In place of your line\n    factor = torch.arange(len(p), 1, -1, device=p.device)\n  write\n" in text


def test_of_a_known_mistake_the_line_is_told_and_not_the_change():
    diagnosis = check.scaled_dot_product.diagnose(lambda q, k, v, m=None: unscaled(q, k, v, m), seed=0)
    assert diagnosis.kind == "known mistake"
    assert "in your line" not in diagnosis.message, "a lambda that calls it has no line with the mistake"
    text = message(check.scaled_dot_product, lambda *inputs: unscaled(*inputs))
    assert "with one change" not in text.lower()


def test_the_line_of_a_known_mistake():
    def mine(query, key, value, attn_mask=None):
        scores = query @ key.T / math.sqrt(query.shape[0])
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        return scores.softmax(dim=-1) @ value

    text = message(check.scaled_dot_product, mine)
    assert "\n  in your line: scores = query @ key.T / math.sqrt(query.shape[0])\n  the smallest input" in text
    assert "In place of" not in text


def test_no_line_of_a_known_mistake_is_told_where_either_of_two_may_hold_it():
    def seed_spread(values):
        deviation = values.std(dim=1, unbiased=True)
        return values.mean(dim=1), deviation / (values.shape[1] - 1) ** 0.5

    text = message(check.seed_spread, seed_spread)
    assert "The deviation is divided by √(n − 1)." in text
    assert "in your line" not in text


def test_a_mistake_under_a_condition_is_not_the_condition():
    def mine(query, key, value, attn_mask=None):
        if attn_mask is not None:
            attn_mask = ~attn_mask
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)

    assert "\n  in your line: attn_mask = ~attn_mask\n" in message(check.scaled_dot_product, mine)


def test_a_return_that_comes_too_early_is_the_branch():
    def split_heads(x, num_heads):
        if num_heads == 1:
            return x
        B, L, E = x.shape
        return x.view(B, L, num_heads, E // num_heads).transpose(1, 2)

    told = message(check.split_heads, split_heads)
    assert "\n  Without this branch of yours it would be right:\n    if num_heads == 1:\n" in told


def test_a_matrix_that_is_reshaped_where_it_should_be_transposed():
    def embed_patches(images, weight, bias):
        E, C, P, _ = weight.shape
        B, _, H, W = images.shape
        patches = images.reshape(B, C, H // P, P, W // P, P)
        patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)
        return patches @ weight.reshape(C * P * P, E) + bias

    assert "    return patches @ weight.reshape(E, C * P * P).T + bias\n" in message(check.embed_patches, embed_patches)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("x.masked_fill(x > 0, 0)", "x = x.masked_fill(x > 0, 0)"),
        ("x = (2 * x[None]).squeeze()", "x = (2 * x[None]).squeeze(0)"),
        ("x = x / x.sum()", "x = x / x.sum(dim=-1, keepdim=True)"),
        ("x = x[0] @ x[0].T", "x = torch.outer(x[0], x[0])"),
    ],
)
def test_what_torch_does_otherwise_than_it_looks(wrong, right, tmp_path):
    def answer(line):
        source = f"import torch\n\ndef answer(x):\n    {line}\n    return x\n"
        file = str(tmp_path / "answer.py")
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        module = sys.modules["one_answer"] = ModuleType("one_answer")
        exec(compile(source, file, "exec"), vars(module))
        return module.answer

    x = [torch.randn(1, 3), torch.randn(2, 3)]
    wanted = [answer(right)(one) for one in x]
    mine = answer(wrong)

    def is_right(candidate):
        with suppress(Exception):
            return all(torch.equal(candidate(one), result) for one, result in zip(x, wanted, strict=True))
        return False

    change = one_change(mine, is_right)
    assert (change.old, change.new) == (wrong, right)


def test_nothing_is_said_where_no_single_change_helps():
    text = message(check.scaled_dot_product, far_off)
    assert "With one change" not in text
    assert "in your line" not in text


@pytest.mark.parametrize("answer", [len, lambda x: x, 3])
def test_what_has_no_source_of_its_own_has_no_change(answer):
    assert one_change(answer, lambda candidate: False) is None


def test_a_line_too_many():
    def twice(x):
        x = 2 * x
        x = x + 1
        return x

    def is_right(candidate):
        return candidate(3) == 6 and candidate(5) == 10

    change = one_change(twice, is_right)
    assert change.new in ("", "x = x")
    assert Change("x = x + 1", "", twice).told() == "\n  Without this line of yours it would be right:\n    x = x + 1"


CELL = """import torch

class TemperedScore(torch.nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.log_temperature = torch.nn.Parameter(torch.zeros(num_heads))

    def forward(self, query, key, **options):
        temperature = self.log_temperature.exp()[:, None, None]
        return query @ key.mT / query.shape[-1] ** 0.5 * temperature
"""


def test_a_class_in_a_notebooks_cell_has_lines_too(monkeypatch):
    """Its module has no file, as `__main__` has none in a notebook."""
    monkeypatch.setitem(sys.modules, "a_cell", cell := ModuleType("a_cell"))
    monkeypatch.setitem(linecache.cache, "<cell>", (len(CELL), None, CELL.splitlines(keepends=True), "<cell>"))
    exec(compile(CELL, "<cell>", "exec"), vars(cell))
    line = "return query @ key.mT / query.shape[-1] ** 0.5 * temperature"
    assert f"\n  in your line: {line}\n" in message(check.TemperedScore, cell.TemperedScore)


def test_the_line_of_a_sum_without_keepdim():
    def plain_attention(x):
        e = torch.exp(x @ x.T)
        weights = e / e.sum(dim=1)
        return weights @ x, weights

    text = message(check.plain_attention, plain_attention)
    assert "\n  in your line: weights = e / e.sum(dim=1)\n" in text


def test_axes_are_exchanged_and_not_read_in_another_shape():
    def text_perplexity(logits, tokens):
        B, L, V = logits.shape
        predictions = logits[:, :-1].reshape(B, V, L - 1)
        return torch.nn.functional.cross_entropy(predictions, tokens[:, 1:]).exp()

    assert "\n    predictions = logits[:, :-1].transpose(-2, -1)\n" in message(check.text_perplexity, text_perplexity)


def divided_by_the_number(a, b):
    covariance = ((a - a.mean()) * (b - b.mean())).mean()
    return a.var() + b.var() - 2 * covariance


def test_a_mean_that_should_be_divided_by_one_less():
    a, b = torch.randn(2, 5, dtype=torch.float64)
    is_right = unless_it_stops(lambda mine: torch.allclose(mine(a, b), (a - b).var()))
    change = one_change(divided_by_the_number, is_right)
    assert change.new == "covariance = ((a - a.mean()) * (b - b.mean())).sum() / (len(a) - 1)"


def overwritten_too_early(encoder, train, test):
    with torch.no_grad():
        train, test = encoder(train), encoder(test)
        train = (train - train.mean(0)) / train.std(0)
        test = (test - train.mean(0)) / train.std(0)
    return train, test


def test_of_a_known_mistake_a_line_that_should_stand_elsewhere_is_told_in_full():
    text = message(check.frozen_features, overwritten_too_early)
    assert "Only the training features are standardised." in text
    assert "Move your line\n    train = (train - train.mean(0)) / train.std(0)\n  behind your line\n    test = " in text


def test_other_axes_should_be_exchanged():
    def merge_heads(x):
        B, H, L, D = x.shape
        x = x.transpose(2, 3)
        return x.reshape(B, L, H * D)

    assert "\n    x = x.transpose(1, 2)\n" in message(check.merge_heads, merge_heads)


def squared(d):
    return (d**2).sum()


def by_method(d):
    return d.square().sum()


@pytest.mark.parametrize("squares", [squared, by_method])
def test_squares_of_what_is_not_centred(squares):
    def is_right(candidate):
        return torch.allclose(candidate(torch.tensor([1.0, 2.0, 6.0])), torch.tensor(14.0))

    assert "d - d.mean()" in one_change(squares, is_right).new


def test_no_line_is_told_where_two_inputs_are_exchanged_in_the_one_before():
    def low_rank_scores(query, key, left, right):
        both = right @ left.mT
        return query @ both @ key.mT / right.shape[-1] ** 0.5

    text = message(check.low_rank_scores, low_rank_scores)
    assert "The matrices are exchanged" in text
    assert "in your line" not in text


def unless_it_stops(is_right):
    def judged(candidate):
        with suppress(Exception):
            return is_right(candidate)
        return False

    return judged


def another_variable(a, b):
    c = a + b
    return abs(a) + c


def listed_in_the_wrong_order(a, b):
    d, c = a + b, a - b
    return c - d * d


def rounded_down(a, b):
    return a // b + 1


def of_the_last_round(a, b):
    found = False
    for n in range(b):
        found = a > n * n
    return found


def exact(a, b):
    return a * (1 + math.erf(b))


def of_the_first_axis(gains):
    return gains.std() / len(gains) ** 0.5


def below_zero(a, b):
    return max(a, -10) + b


def one_factor_for_both(a, b):
    return a * (b - a)


def a_divisor_of_one_only(a, b):
    return a + b / 2


def one_too_early(a, b):
    return sum(range(a)) + b


def one_too_early_twice(a, b):
    for_a = sum(range(a + 2))
    for_b = sum(range(b + 1))
    return for_a * for_b


def factor_in_the_power(a, b):
    return (a / (2 * b)) ** 2


def product_before_the_difference(a, b):
    return a * b - 7


@pytest.mark.parametrize(
    ("answer", "right", "old", "new"),
    [
        (
            factor_in_the_power,
            lambda a, b: (a / b) ** 2 / 2,
            "return (a / (2 * b)) ** 2",
            "return (a / b) ** 2 / 2",
        ),
        (product_before_the_difference, lambda a, b: (a - 7) * b, "return a * b - 7", "return (a - 7) * b"),
        (one_factor_for_both, lambda a, b: b - a * a, "return a * (b - a)", "return b - a * a"),
        (a_divisor_of_one_only, lambda a, b: (a + b) / 2, "return a + b / 2", "return (a + b) / 2"),
        (one_too_early, lambda a, b: sum(range(a + 1)) + b, "return sum(range(a)) + b", "return sum(range(a + 1)) + b"),
        (
            one_too_early_twice,
            lambda a, b: sum(range(a + 1)) * sum(range(b)),
            "for_a = sum(range(a + 2))\nfor_b = sum(range(b + 1))",
            "for_a = sum(range(a + 2 - 1))\nfor_b = sum(range(b + 1 - 1))",
        ),
        (another_variable, lambda a, b: abs(a + b) + a + b, "return abs(a) + c", "return abs(c) + c"),
        (
            listed_in_the_wrong_order,
            lambda a, b: a + b - (a - b) ** 2,
            "d, c = (a + b, a - b)",
            "c, d = (a + b, a - b)",
        ),
        (rounded_down, lambda a, b: math.ceil(a / b) + 1, "return a // b + 1", "return -(-a // b) + 1"),
        (of_the_last_round, lambda a, b: a > 0, "found = a > n * n", "found = found or a > n * n"),
        (
            exact,
            lambda a, b: a * (1 + math.erf(b / 2**0.5)),
            "return a * (1 + math.erf(b))",
            "return a * (1 + math.erf(b / 2 ** 0.5))",
        ),
        (below_zero, lambda a, b: a + b, "return max(a, -10) + b", "return max(a, float('-inf')) + b"),
    ],
)
def test_what_else_mends(answer, right, old, new):
    pairs = [(a, b) for a in (-20, 3, 7) for b in (2, 5)]
    is_right = unless_it_stops(lambda candidate: all(candidate(*pair) == right(*pair) for pair in pairs))
    change = one_change(answer, is_right)
    assert (change.old, change.new) == (old, new)


@pytest.mark.parametrize(
    ("call", "right"),
    [
        ("x.transpose(2, 3)", (0, 2, 1, 3)),
        ("x.swapaxes(-1, -2)", (0, 2, 1, 3)),
        ("x.permute(0, 3, 1, 2)", (0, 2, 3, 1)),
        ("x[None].permute(1, 2, 3, 4, 0)[..., 0]", (1, 2, 3, 0)),
    ],
)
def test_other_axes(call, right, monkeypatch):
    x = torch.arange(120.0).view(2, 3, 4, 5)
    text = f"def moved(x):\n    return {call}\n"
    monkeypatch.setitem(linecache.cache, "<axes>", (len(text), None, text.splitlines(keepends=True), "<axes>"))
    scope = {"__name__": "axes"}
    exec(compile(text, "<axes>", "exec"), scope)
    wanted = x.permute(right)

    change = one_change(scope["moved"], unless_it_stops(lambda candidate: torch.equal(candidate(x), wanted)))
    assert change is not None
    assert torch.equal(change.answer(x), wanted)


def first_only(xs):
    for x in xs:
        if x > 0:
            return "some"
        else:
            return "none"


def last_line(xs):
    total = 0
    for x in xs:
        total += x
        return total


def any_of_them(xs):
    for x in xs:
        if x > 0:
            return "some"
    return "none"


def first_that_counts(xs):
    for x in xs:
        if x == 0:
            continue
        return x


def best(xs):
    for x in xs:
        if x > 3:
            y = x
        else:
            break
    return y


def test_a_loop_that_ends_in_its_first_pass():
    assert "loop `for x in xs:` ends in its first pass" in loop_that_ends_at_once(first_only)
    assert loop_that_ends_at_once(last_line)
    for answer in (any_of_them, first_that_counts, best, len):
        assert loop_that_ends_at_once(answer) is None


def test_a_message_speaks_of_such_a_loop():
    def recent_words(length, back):
        mask = torch.zeros(length, length, dtype=torch.bool)
        for i in range(length):
            mask[i, max(0, i - back) : i + 1] = True
            return mask

    assert "Your loop `for i in range(length):` ends in its first pass" in message(check.recent_words, recent_words)


def precedence(query, key, value, attn_mask=None):
    scores = query @ key.T * query.shape[-1] ** -1 / 2
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def squeezed(x):
    merged = x.transpose(1, 2).flatten(2)
    return merged.squeeze()


def own_length(x, num_heads):
    B, _, E = x.shape
    return x.reshape(B, B, num_heads, E // num_heads).transpose(1, 2)


def last_of_the_season(past, season, horizon):
    repeated = past[:, -season:].repeat(1, math.ceil(horizon / season))
    return repeated[:, -horizon:]


def added(scores, attn_mask):
    scores = scores + attn_mask
    return scores.softmax(dim=-1)


def spaced(length, embed_dim):
    position = torch.arange(length)[:, None]
    frequency = torch.logspace(0, -4, embed_dim // 2)
    return torch.stack([(position * frequency).sin(), (position * frequency).cos()], dim=-1).flatten(-2)


def decimal(length, embed_dim):
    position = torch.arange(length)[:, None]
    frequency = torch.exp(-math.log10(10000) * torch.arange(0, embed_dim, 2) / embed_dim)
    return torch.stack([(position * frequency).sin(), (position * frequency).cos()], dim=-1).flatten(-2)


def flattened(x):
    tokens = x.transpose(1, 2)
    return tokens.flatten(1, 2)


def in_as_many_parts(packed, num_heads):
    width = packed.shape[-1] // num_heads
    parts = packed.split(width, dim=-1)
    query, key, value = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in parts)
    return query, key, value


def in_turn(rows, width):
    row = torch.arange(rows).repeat(width)
    column = torch.arange(width).repeat(rows)
    return (row[:, None] - row).abs() + (column[:, None] - column).abs()


@pytest.mark.parametrize(
    ("exercise", "answer", "old", "new"),
    [
        ("sinusoidal_table", spaced, "embed_dim // 2)", "embed_dim // 2 + 1)[:-1]"),
        ("sinusoidal_table", decimal, "-math.log10(10000)", "-math.log(10000)"),
        ("merge_heads", flattened, "flatten(1, 2)", "flatten(2, 3)"),
        ("split_packed", in_as_many_parts, "packed.shape[-1] // num_heads", "packed.shape[-1] // 3"),
        ("grid_distance", in_turn, "torch.arange(rows).repeat(width)", "torch.arange(rows).repeat_interleave(width)"),
        ("scaled_dot_product", precedence, "** (-1) / 2", "** (-1 / 2)"),
        ("merge_heads", squeezed, "return merged.squeeze()", "return merged"),
        ("seasonal_naive", last_of_the_season, "repeated[:, -horizon:]", "repeated[:, :horizon]"),
    ],
)
def test_repairs_that_no_mutant_makes(exercise, answer, old, new):
    told = message(getattr(check, exercise), answer)
    assert "With one change it would be right" in told
    before, after = told.split("In place of your line\n")[1].split("\n  write\n")
    assert old in before
    assert new in after.splitlines()[0]


def test_len_is_the_size_of_the_first_axis():
    gains = torch.randn(4, 7)
    wanted = gains.std() / 7**0.5
    change = one_change(of_the_first_axis, unless_it_stops(lambda candidate: torch.equal(candidate(gains), wanted)))
    assert change.new == "return gains.std() / gains.shape[1] ** 0.5"


def test_a_mask_that_is_computed_with_should_hide():
    scores, mask = torch.randn(3, 3), torch.ones(3, 3).tril().bool()
    wanted = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    change = one_change(added, unless_it_stops(lambda candidate: torch.equal(candidate(scores, mask), wanted)))
    assert (change.old, change.new) == (
        "scores = scores + attn_mask",
        "scores = scores.masked_fill(~attn_mask, float('-inf'))",
    )


def test_a_size_that_is_another_one_is_found_by_torch():
    x = torch.arange(24.0).view(2, 3, 4)
    wanted = x.view(2, 3, 2, 2).transpose(1, 2)
    change = one_change(own_length, unless_it_stops(lambda candidate: torch.equal(candidate(x, 2), wanted)))
    assert change is not None
    assert "-1" in change.new


def test_a_line_too_many_is_told():
    def masked_weights(scores, attn_mask):
        hidden = scores.masked_fill(~attn_mask, -math.inf)
        hidden[:, 0] = 0.5
        return hidden.softmax(dim=-1)

    assert "Without this line of yours it would be right:\n    hidden[:, 0] = 0.5" in message(
        check.masked_weights, masked_weights
    )


def test_a_comparison_that_nothing_is_done_with():
    def test_holm(holm):
        p = torch.tensor([0.02, 0.01, 0.30, 0.04])
        torch.allclose(holm(p), torch.tensor([0.06, 0.04, 0.30, 0.08]))

    told = message(check.test_holm, test_holm)
    assert "`torch.allclose(holm(p), torch.tensor([0.06, 0.04, 0.3, 0.08]))` compares" in " ".join(told.split())
    assert "Write `assert` before it" in " ".join(told.split())
    assert in_vain(far_off) is None


@pytest.mark.filterwarnings("ignore:assertion is always true")
def test_an_assertion_that_cannot_fail(tmp_path):
    def test(line):
        source = f"def test_holm(holm):\n    p = torch.tensor([0.02, 0.01])\n    assert {line}\n"
        file = str(tmp_path / f"{len(line)}.py")
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        module = sys.modules["one_test"] = ModuleType("one_test")
        vars(module)["torch"] = torch
        exec(compile(source, file, "exec"), vars(module))
        return module.test_holm

    assert "a tuple is always true" in in_vain(test('(torch.allclose(holm(p), p), "wrong")'))
    assert "a single right number is enough" in in_vain(test("torch.isclose(holm(p), p).any()"))
    assert "a single right number is enough" in in_vain(test("any(holm(p) == p)"))
    assert in_vain(test("torch.allclose(holm(p), p)")) is None


def test_an_error_is_told_in_other_words():
    def two_slopes_mod(left, right):
        return lambda score, b, h, i, j: score - left[h] * max(i - j, 0) - right[h] * max(j - i, 0)

    told = " ".join(message(check.two_slopes_mod, two_slopes_mod).split())
    assert "`max` and `min` ask whether a tensor is true" in told


def test_an_answer_that_stops_is_named_by_what_it_gives_elsewhere():
    def cut_into_patches(image, patch_size):
        n = image.shape[1] // patch_size  # the rows, and in each as many patches
        cut = [
            image[:, y * patch_size : (y + 1) * patch_size, x * patch_size : (x + 1) * patch_size].flatten()
            for y in range(n)
            for x in range(n)
        ]
        return torch.stack(cut)

    diagnosis = check.cut_into_patches.diagnose(cut_into_patches, seed=0)
    assert (diagnosis.kind, diagnosis.faults) == ("known mistake", ("a square of patches",))
    assert "The answer stops with RuntimeError" in diagnosis.message
    assert "The answer stops with RuntimeError" in diagnosis.symptom
    assert "as if every image were square" not in " ".join(diagnosis.symptom.split())


def thrown_away(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def test_what_is_thrown_away_is_told_beside_the_line():
    assert "in your line: scores.masked_fill(~attn_mask, -math.inf), whose result is thrown away" in " ".join(
        message(check.scaled_dot_product, thrown_away).split()
    )


def along_the_rows(first, first_log, second, second_log):
    logs = torch.stack([first_log, second_log], dim=1)
    share = torch.softmax(logs, dim=0)
    return share[:, :1] * first + share[:, 1:] * second, torch.logsumexp(logs, dim=1)


def test_what_is_guessed_from_numbers_gives_way_to_the_change_that_mends_the_program():
    text = message(check.merge_halves, along_the_rows)
    assert "\n    share = torch.softmax(logs, dim=0)\n  write\n    share = torch.softmax(logs, dim=1)\n" in text
    assert "runs along axis" not in text


def test_nothing_is_repaired_by_a_tensor_without_entries():
    """Torch 2.11's fused attention ends the process when its values have no tokens."""

    def twice(x):
        return x.repeat(2, 1, 1)

    tried = []

    def is_right(candidate):
        with suppress(RuntimeError, TypeError):
            tried.append(candidate(torch.ones(1, 2, 3)).numel())
        return False

    one_change(twice, is_right)
    assert len(tried) > 2
    assert all(tried)


def signed(holm):
    p = torch.tensor([0.02, 0.5])
    assert (holm(p) - torch.tensor([0.04, 0.5])).max() < 1e-6


def unsigned(holm):
    p = torch.tensor([0.02, 0.5])
    assert (holm(p) - torch.tensor([0.04, 0.5])).abs().max() < 1e-6


def in_order_of_size(holm):
    p = torch.tensor([0.5, 0.02])
    got, _ = torch.sort(holm(p))
    torch.testing.assert_close(got, torch.tensor([0.04, 0.5]))


def expected_in_order(holm):
    p = torch.tensor([0.5, 0.02])
    wanted = sorted(p.tolist())
    torch.testing.assert_close(holm(p)[1], torch.tensor(2 * wanted[0]))


def test_a_comparison_that_notices_only_what_is_too_large_is_told():
    assert "Take the absolute value" in in_vain(signed)
    assert in_vain(unsigned) is None


def test_a_test_that_sorts_the_results_is_told():
    assert "sorts the results" in in_vain(in_order_of_size)
    assert in_vain(expected_in_order) is None


def joined_and_squeezed(x):
    return torch.cat([head.squeeze() for head in x.chunk(x.shape[1], dim=1)], dim=-1)


def test_a_step_that_drops_too_many_axes_is_told():
    assert "`head.squeeze()` drops every axis of size 1" in drops_axes(joined_and_squeezed)
    assert drops_axes(squeezed)
    assert drops_axes(flattened) is None
    assert "drops every axis of size 1" in message(check.merge_heads, joined_and_squeezed)


def split_and_squeezed(x):
    heads = x.split(1, dim=1)
    return torch.cat(heads, dim=-1).squeeze()


def test_such_a_step_says_more_than_a_line_of_another_way():
    text = message(check.merge_heads, split_and_squeezed)
    assert "drops every axis of size 1" in text
    assert "With one change" not in text


def smoothed_in_place(x):
    new = x.clone()
    for i in range(1, len(new)):
        new[i] = (new[i - 1] + new[i]) / 2
    return new


def smoothed_twice_in_place(x):
    new = [float(v) for v in x]
    for _ in range(2):
        for i in range(1, len(new)):
            new[i] = (new[i - 1] + new[i]) / 2
    return torch.tensor(new)


def smoothed_in_a_list_of_lists(x):
    new, i = [[v] for v in x.tolist()], 1
    while i < len(new):
        new[i][0] = (new[i - 1][0] + new[i][0]) / 2
        i += 1
    return torch.tensor(new)[:, 0]


def smoothed(x):
    return torch.cat([x[:1], (x[:-1] + x[1:]) / 2])


def summed_up(x):
    total = x.clone()
    for i in range(1, len(total)):
        total[i] += total[i - 1]
    return total


def written_only(x):
    new = x.clone()
    for i in range(1, len(x)):
        new[i] = x[i - 1]
    return new


@pytest.mark.parametrize(
    ("answer", "wanted", "line"),
    [
        (smoothed_in_place, smoothed, "for i in range(1, len(new)):"),
        (smoothed_twice_in_place, lambda x: smoothed(smoothed(x)), "for i in range(1, len(new)):"),
        (smoothed_in_a_list_of_lists, smoothed, "while i < len(new):"),
        (summed_up, lambda x: torch.cat([x[:1], x[:-1] + x[1:]]), "for i in range(1, len(total)):"),
    ],
)
def test_a_loop_that_reads_what_it_has_written_is_told(answer, wanted, line):
    x = torch.tensor([1.0, 5.0, 2.0, 7.0])
    change = read_from_a_copy(answer, lambda candidate: torch.allclose(candidate(x), wanted(x)))
    assert change.old == line
    told = " ".join(change.told().split())
    assert told.startswith(f"Your loop `{line}` writes into `{change.copied}` and reads from it again, so later steps")
    assert told.endswith("Keep a copy from before the loop, and read from that.")


@pytest.mark.parametrize("answer", [smoothed_in_place, summed_up, written_only, first_only, len])
def test_nothing_is_said_of_a_loop_that_may_read_what_it_has_written(answer):
    x = torch.tensor([1.0, 5.0, 2.0, 7.0])
    assert read_from_a_copy(answer, lambda candidate: torch.equal(candidate(x), x.cumsum(0))) is None


def test_nothing_is_tried_where_a_loop_only_writes():
    tried = []
    assert read_from_a_copy(written_only, tried.append) is None
    assert not tried


def filtered_in_place(signal, place_width, content_width):
    result, places = signal.clone(), torch.arange(len(signal))
    for i in range(len(signal)):
        exponent = ((places - i) / place_width) ** 2 + ((result - result[i]) / content_width) ** 2
        result[i] = (-exponent / 2).softmax(dim=0) @ result
    return result


def test_a_message_speaks_of_such_a_loop_alone():
    text = message(check.bilateral_filter, filtered_in_place)
    assert "Your loop `for i in range(len(signal)):` writes into `result`" in text
    assert "recognize" not in text
    assert "With one change" not in text


def side_of_the_bare_index(query, key, strength, query_offset=0):
    i = torch.arange(query.shape[2])[:, None]
    distance = (i - torch.arange(key.shape[2])).abs() + query_offset
    return query @ key.mT / math.sqrt(query.shape[3]) - strength.view(-1, 1, 1) * distance


def test_where_an_answer_is_right_is_tried_on_inputs_made_so():
    """Right where queries and keys are equally many, in the cases, but the reason is that there is no offset."""
    text = message(check.distance_scores, side_of_the_bare_index)
    assert "right only where `query_offset` is 0" in " ".join(text.split())
    assert "recognize" not in text


def in_the_order_of_the_table(log_p, logits, ended, pad):
    step = torch.log_softmax(logits, dim=-1)
    step[ended] = -math.inf
    step[ended, pad] = 0
    total = log_p[:, None] + step
    least = total.flatten().sort(descending=True).values[len(total) - 1]
    parent, token = torch.nonzero(total >= least, as_tuple=True)
    return parent, token, total[parent, token]


def test_a_result_that_is_right_by_luck_is_not_called_right():
    for seed in range(5):
        text = check.widen_and_keep.diagnose(in_the_order_of_the_table, seed=seed).message
        assert "Right: parent" not in " ".join(text.split())


def test_what_a_generated_mistake_quotes_has_to_stand_in_the_answer():
    def read_piece(layers, embedding, positions, cache, chunk):
        return cache

    said = Diagnosis(
        "read_piece", "likely mistake", "`cache.get('read', 0)` is not added to what stands beside it.", ""
    )
    assert _quotes_another(said, read_piece)
    assert not _quotes_another(replace(said, says="`cache` is not added, and `keepdim=True` is missing."), read_piece)


@pytest.mark.parametrize("line", ["x.append(x)", "x.append((1, [x]))", "x.insert(0, x)", "x[0] = x", "x[0] = (1, x)"])
def test_no_change_puts_a_list_into_itself(line):
    """`torch.tensor([(0, x)])` of such a list x would end the process, and with it the reader's notebook."""
    with pytest.raises(ValueError, match="put into itself"):
        made(f"x = [0]\n{line}", "x", {})


@pytest.mark.parametrize("line", ["x.append(len(x))", "x.append(x[0])", "x[0] = x[-1]", "x.append((y, 2))"])
def test_a_list_may_take_in_what_is_made_of_it(line):
    assert made(f"x, y = [0], 1\n{line}", "x", {})
