"""The trained models of the package are as good as their records say, and damage to their files is noticed."""

import json

import pytest
import torch
from torch.nn.functional import avg_pool2d

from sciformer import data, trained
from sciformer.functional import InputError
from sciformer.training import text_loss

#: What the models' input is made of a test digit, as their settings say.
INPUTS = {"reader": lambda images: images, "turner": lambda images: 2 * avg_pool2d(images, 2) - 1}


@pytest.mark.parametrize("name", INPUTS)
def test_digits_are_read_as_recorded(name):
    images, labels = data.mnist("test")
    with torch.no_grad():
        read = trained.load(name)(INPUTS[name](images)).argmax(dim=-1)
    accuracy = (read == labels).float().mean().item()
    # Rounding the weights to float16 may turn the one or other digit: two of 2,000 are allowed.
    assert accuracy == pytest.approx(trained.record(name)["metrics"]["test accuracy"], abs=0.0011)


def test_names_are_written_as_recorded():
    """On 500 rows of the small test digits, among them none that it was trained on."""
    kept = trained.record("namer")
    rows, names = data.digit_rows(*data.mnist("test"), 500, torch.Generator().manual_seed(0))
    written = trained.load("namer").greedy(rows, kept["config"]["max_length"])
    right = sum(data.NAME_LETTERS.decode(row).strip("_<>") == name for row, name in zip(written, names, strict=True))
    # Three standard deviations of 500 draws, and of the 2,000 digits that they are drawn from.
    share = kept["metrics"]["test exact match"]
    assert abs(right / 500 - share) < 3 * (share * (1 - share) * (1 / 500 + 2.5 / 2000)) ** 0.5
    assert share > 0.9


def test_questions_are_answered_as_recorded():
    """By 1,000 stories, of which a few may have been trained on."""
    model, vocabulary, kept = trained.load("answerer"), data.STORY_WORDS, trained.record("answerer")["metrics"]
    for kind, longest in (("", 6), (" at twice the length", 12)):
        texts, places = data.stories(1000, seed=1, shortest=2 if longest == 6 else 12, longest=longest)
        written = model.greedy(data.token_rows([f"{text} >" for text in texts], vocabulary), 3)
        right = sum(vocabulary.decode(row) == f"< {place} >" for row, place in zip(written, places, strict=True))
        share = kept[f"test exact match{kind}"]
        assert abs(right / 1000 - share) < 3 * (share * (1 - share) / 1000) ** 0.5 + 0.002  # three standard deviations


@pytest.mark.parametrize(("name", "every", "tolerance"), [("student", 1, 1e-3), ("writer", 8, 0.05)])
def test_text_is_predicted_as_recorded(name, every, tolerance):
    """By the large model on every eighth window of the validation split, whose mean has a standard error of 0.03."""
    record, (text, _) = trained.record(name), data.shakespeare("val")
    length = record["config"]["length"]
    windows = text.unfold(0, length, every * length).flatten()
    loss = text_loss(trained.load(name), windows, length)
    assert loss == pytest.approx(record["validation loss in the page"], abs=tolerance)


def test_the_text_at_temperature_0_is_fixed():
    vocabulary = data.shakespeare()[1]
    tokens = trained.load("writer").generate(vocabulary.encode("JULIET:\n")[None], 40, temperature=0)
    assert vocabulary.decode(tokens[0]) == "JULIET:\nI will not speak to thee again to thee.\n"


def test_a_model_is_ready_to_be_used():
    model = trained.load("student")
    assert not model.training
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["writer", "namer"])
def test_an_untrained_model_is_of_the_same_kind_and_drawn_anew(name):
    torch.manual_seed(0)
    first, second, kept = trained.untrained(name), trained.untrained(name), trained.load(name)
    assert not first.training
    shapes = [{key: value.shape for key, value in model.state_dict().items()} for model in (first, kept)]
    assert shapes[0] == shapes[1]
    for other in (second, kept):
        assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("ask", [trained.load, trained.record, trained.untrained])
def test_an_unknown_name_is_refused_with_those_that_there_are(ask):
    with pytest.raises(InputError, match=r"'poet'; there are answerer, namer, reader, student, turner, writer"):
        ask("poet")


def test_a_file_whose_record_is_another_models_is_refused(tmp_path, monkeypatch):
    content = json.loads((trained.HERE / "student.json").read_text())
    content["record"]["config"]["num_layers"] += 1
    (tmp_path / "student.json").write_text(json.dumps(content))
    monkeypatch.setattr(trained, "HERE", tmp_path)
    with pytest.raises(InputError, match="another model than its record"):
        trained.load("student")
