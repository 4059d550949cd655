"""Counterexamples: as small as they get, short to read, and never an input that the exercise does not promise."""

import math

import torch

from sciformer import check
from sciformer.check.shrinking import shrunk
from sciformer.check.values import table


def test_axes_of_one_size_are_cut_together_until_the_mistake_would_go():
    inputs = {"query": torch.ones(5, 3), "key": torch.ones(7, 3), "value": torch.ones(7, 3), "attn_mask": None}
    cut = shrunk(inputs, lambda cut: cut["query"].shape[1] >= 2)
    assert [tuple(cut[name].shape) for name in ("query", "key", "value")] == [(2, 2), (2, 2), (2, 2)]
    cut = shrunk(inputs, lambda cut: cut["key"].shape[0] >= 4)
    assert [tuple(cut[name].shape) for name in ("query", "key")] == [(2, 2), (4, 2)]
    assert shrunk(inputs, lambda cut: False) is inputs


def test_of_a_batch_one_example_is_left():
    cut = shrunk({"x": torch.ones(5, 3, 2)}, lambda cut: True)
    assert tuple(cut["x"].shape) == (1, 2, 2)


def test_whole_numbers_are_left_alone():
    inputs = {"logits": torch.ones(3, 5), "tokens": torch.arange(3)}
    assert shrunk(inputs, lambda cut: True) is inputs


def test_what_is_shown_is_cut_from_the_case_and_still_right():
    def mine(query, key, value, attn_mask=None):
        return (
            value[:1].expand(len(query), -1)
            if len(key) > 3
            else check.scaled_dot_product.reference(query, key, value, attn_mask)
        )

    message = check.scaled_dot_product.diagnose(mine, seed=0).message
    assert 'the smallest input that shows it: cut down from the case "4 tokens, causal mask"' in message
    key = next(line for line in message.splitlines() if line.strip().startswith("key"))
    assert key.count("[") == 1 + 4, "four keys: with fewer the answer is right"
    assert key.count(",") == 4 + 3, "of two features"


def test_inputs_without_a_meaning_are_not_shown():
    """Cut to two keys, some rows of the mask see nothing, and the right answer is NaN."""
    message = check.masked_weights.diagnose(lambda scores, attn_mask: scores, seed=0).message
    assert "nan" not in message.lower()


def test_of_results_that_look_alike_one_entry_is_shown():
    def mine(scores, attn_mask):
        return scores.masked_fill(~attn_mask, -math.inf).softmax(dim=-1) + 1e-4 * scores

    message = check.masked_weights.diagnose(mine, seed=0).message
    assert "    expected[1, 0]  0.0573242\n    got[1, 0]       0.0571042\n" in message


def test_a_table_keeps_to_its_lines():
    rows = {name: torch.ones(6, 5) for name in "abcdefgh"} | {
        "expected": torch.ones(4, 4) / 3,
        "got": torch.zeros(4, 4),
    }
    text = table(rows, 7)
    assert text.count("\n") == 7
    assert "and 4 more inputs" in text
    assert "    a            shape (6, 5), beginning [1, 1, 1, 1]" in text
    assert text.splitlines()[-2:] == ["    expected[0]  [0.333, 0.333, 0.333, 0.333]", "    got[0]       [0, 0, 0, 0]"]


def test_a_change_of_the_input_is_shown_with_its_line():
    def mine(query, key, value, attn_mask=None):
        scores = query @ key.T
        query /= 2
        return scores

    message = check.scaled_dot_product.diagnose(mine, seed=0).message
    assert "changes its input `query`" in message
    assert "\n  in your line: query /= 2\n    before  [[ 1.5, -0.3, -2.2]" in message
    assert "\n    after   [[0.75, -0.15, -1.1]" in message or "\n    after   [[ 0.75" in message


def test_of_large_results_the_row_that_differs_most_is_shown():
    expected = torch.zeros(3, 5, 4)
    got = expected.clone()
    got[2, 3] = torch.tensor([0.0, 5.0, 0.0, 1.0])
    lines = table({"expected": expected, "got": got}).splitlines()
    assert lines[1:] == ["    expected[2, 3]  [0, 0, 0, 0]", "    got[2, 3]       [0, 5, 0, 1]"]
    wide = table({"expected": torch.zeros(3, 50), "got": torch.eye(3, 50)}).splitlines()
    assert wide[1:] == ["    expected[0, 0]  0", "    got[0, 0]       1"]
