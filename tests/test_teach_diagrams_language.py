"""Diagrams of a language model: that they show the characters, shapes and numbers they were given."""

import matplotlib.pyplot as plt
import pytest
import torch

from sciformer.teach.diagrams import language


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_space_and_a_new_line_can_be_seen():
    assert "".join(map(language.visible, "a b\n")) == "a␣b↵"


def test_every_input_stands_under_the_character_that_comes_next():
    figure = language.shifted_by_one("to be")
    characters = [text for text in figure.axes[0].texts if len(text.get_text()) == 1]
    boxes = {(text.get_position()[0], text.get_text()) for text in characters}
    columns = {}
    for x, character in boxes:
        columns.setdefault(round(x, 3), set()).add(character)
    assert [columns[x] for x in sorted(columns)] == [{"t", "o"}, {"o", "␣"}, {"␣", "b"}, {"b", "e"}]


def test_the_model_shows_its_shapes():
    shown = words(language.model(65, 32, 24, 3))
    assert shown.count("block") == 3
    assert shown.count("(32, 24)") == 6
    assert {"(32,)", "(32, 65)", "embedding\n65 rows of 24", "3 causal blocks, one after the other"} <= set(shown)


def test_a_drawing_shows_both_rows_of_probabilities_and_what_was_drawn():
    shown = words(language.drawing("th", ["e", " "], torch.tensor([0.6, 0.4]), torch.tensor([0.9, 0.1]), 1, 0.5))
    assert {"0.60", "0.40", "0.90", "0.10", "th", "2. temperature 0.5", "3. drawn and appended: ␣"} <= set(shown)


def test_the_cache_shows_its_numbers_and_frames_the_new_column():
    torch.manual_seed(0)
    keys, values, query = torch.randn(3, 5), torch.randn(3, 5), torch.randn(5)
    weights = torch.tensor([0.25, 0.25, 0.5])
    figure = language.kv_cache("a b", query, keys, values, weights, longest=4, features=2)
    shown = words(figure)
    output = weights @ values
    for number in (*query[:2], *keys[:, :2].flatten(), *values[:, :2].flatten(), *output[:2]):
        assert f"{number:.1f}".replace("-0.0", "0.0").replace("-", "−") in shown
    assert [text for text in shown if text in ("0.25", "0.50")] == ["0.25", "0.25", "0.50"]
    assert "−0.0" not in shown
    assert "reading 'b': 2 kept, 1 new" in shown
    assert "drawn: 2 of 5 features" in shown
    framed = [patch.get_x() for patch in figure.axes[0].patches if patch.get_linewidth() == 2.5]
    assert framed == pytest.approx([2.3 + 2 * 0.46] * 2)


def test_all_frames_of_the_cache_have_one_size():
    def frame(S):
        return language.kv_cache(
            "abcd"[:S], torch.ones(4), torch.ones(S, 4), torch.ones(S, 4), torch.ones(S) / S, longest=4
        )

    assert len({tuple(frame(S).get_size_inches()) for S in (1, 2, 4)}) == 1
