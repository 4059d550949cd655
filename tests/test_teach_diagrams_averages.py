"""The diagram of a weighted average shows the numbers it was given, each where it belongs."""

import torch

from sciformer.teach.diagrams.averages import weighted_average

WORDS = ["a", "b", "c", "d", "e"]


def drawn():
    """Everything written on a sheet for numbers that all differ, with where it stands."""
    x = torch.arange(10.0).view(5, 2)
    scores, weights = torch.arange(20.0, 25.0), torch.tensor([0.11, 0.12, 0.13, 0.14, 0.5])
    sheet = weighted_average(WORDS, x, 2, scores, weights, torch.tensor([0.31, 0.32]))
    return [(text.get_text(), *text.get_position()) for text in sheet.ax.texts]


def test_all_numbers_are_shown():
    said = [words for words, *_ in drawn()]
    assert [n for n in said if n.isdigit()] == [*map(str, range(10)), "4", "5", *map(str, range(20, 25))]
    assert [n for n in said if "." in n] == ["0.11", "0.12", "0.13", "0.14", "0.50", "0.31", "0.32"]
    assert said.count("c") == 2
    assert "the new “c”" in said


def test_a_score_and_a_weight_stand_in_the_row_of_their_word():
    places = {words: (x, y) for words, x, y in drawn()}
    for n, word in enumerate(WORDS):
        if word != "c":  # which is written twice
            height = places[word][1]
            assert places[str(20 + n)][1] == height
            assert places[("0.11", "0.12", "0.13", "0.14", "0.50")[n]][1] == height
    assert places["20"][0] < places["0.11"][0] < places["0.31"][0]
