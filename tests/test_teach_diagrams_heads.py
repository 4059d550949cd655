"""Diagrams of attention heads: they show the numbers and the words that they were given, where they belong."""

import pytest
import torch

from sciformer.teach.diagrams.heads import attention_head, split_and_merge
from sciformer.teach.diagrams.language import shifted_by_one

FEATURES = {"x": list("ghij"), "query": ["q?", "r?"], "value": ["u", "v"]}


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_head_shows_every_tensor_with_its_shape():
    sizes = {"x": (5, 4), "query": (5, 2), "key": (5, 2), "value": (5, 2), "scores": (5, 5), "output": (5, 2)}
    tensors = {name: torch.full(size, float(n)) for n, (name, size) in enumerate(sizes.items(), start=3)}
    tensors["weights"] = torch.full((5, 5), 0.25)
    shown = texts(attention_head(list("abcde"), **tensors, features=FEATURES))
    for name, tensor in tensors.items():
        number = "0.25" if name == "weights" else f"{tensor[0, 0]:.1f}"
        assert shown.count(number) == tensor.numel(), name
        title = "keyᵀ (2, 5)" if name == "key" else f"{name} {tuple(tensor.shape)}"
        assert shown.count(title) == 1
    assert [shown.count(word) for word in "abcde"] == [5] * 5
    assert [shown.count(name) for name in "ghij"] == [1] * 4
    assert [shown.count(name) for name in ("q?", "r?", "u", "v")] == [
        2
    ] * 4  # of queries and keys, of values and outputs


def test_keys_stand_above_the_scores_that_they_give():
    key = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rest = {name: torch.zeros(3, 2) for name in ("x", "query", "value", "output")}
    square = {"scores": torch.full((3, 3), 9.0), "weights": torch.zeros(3, 3)}
    figure = attention_head(["a", "b", "c"], key=key, **rest, **square, features=FEATURES | {"x": list("gh")})
    found = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    nines = sorted({t.get_position()[0] for t in figure.axes[0].texts if t.get_text() == "9.0"})
    assert [found[f"{n}.0"][0] for n in (1, 3, 5)] == pytest.approx(nines)
    assert found["1.0"][1] > found["2.0"][1] > found["9.0"][1]


def test_the_target_stands_above_the_word_before_it():
    figure = shifted_by_one(["one", "two", "three"])
    at = {}
    for text in figure.axes[0].texts:
        at.setdefault(text.get_text(), []).append(text.get_position())
    (low, high) = sorted(at["two"], key=lambda point: point[1])
    assert low[0] == pytest.approx(at["three"][0][0])
    assert high[0] == pytest.approx(at["one"][0][0])
    assert at["three"][0][1] == high[1] > low[1] == at["one"][0][1]


def test_without_the_answers_no_arrow_leads_back():
    open_question, told = (shifted_by_one(["one", "two", "three"], answers=answers) for answers in (False, True))
    assert len(texts(told)) == len(texts(open_question)) + 1
    assert len(told.axes[0].patches) == len(open_question.axes[0].patches) + 1


def test_bricks_stand_where_their_numbers_went():
    L, H, D = 3, 2, 2
    numbered = torch.arange(L * H * D).view(L, H * D)
    split = numbered.view(L, H, D).transpose(0, 1)
    wrong = numbered.view(H, L, D)
    figure = split_and_merge(["a", "b", "c"], numbered, split, numbered, wrong, split.reshape(L, H * D))
    shown = texts(figure)
    assert shown.count("head 0") == 2
    assert [word for word in shown if word[:1] in ("a", "b", "c") and word[1:2] == " "] == ["a 0", "b 1", "c 2"]
    numbers = {}
    for text in figure.axes[0].texts:
        if text.get_text() in ("0", "1", "2"):
            x, y = text.get_position()
            numbers.setdefault(round(y, 2), []).append((x, int(text.get_text())))
    rows = [[token for _, token in sorted(row)] for _, row in sorted(numbers.items(), reverse=True)]
    assert rows[:3] == [[i] * 4 + [i] * 4 + [i] * 4 for i in range(3)], "right: a row is one token everywhere"
    merged = (split.reshape(L, H * D) // (H * D)).tolist()
    assert rows[3:] == [[*(wrong[:, i] // (H * D)).flatten().tolist(), *merged[i]] for i in range(3)]
