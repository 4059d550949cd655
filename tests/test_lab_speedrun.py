"""A submission to the speedrun is trained by itself and held to every rule."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from sciformer import CharTransformer, cli
from sciformer.data import shakespeare
from sciformer.functional import InputError
from sciformer.lab import claims, speedrun
from sciformer.lab.claims import tables

VALIDATION, VOCABULARY = shakespeare("val")
SIZE = len(VOCABULARY)
PAIRS = """
import torch
from torch import nn


class Pairs(nn.Module):
    def __init__(self, text, vocab_size):
        super().__init__()
        counts = torch.bincount(text[:-1] * vocab_size + text[1:], minlength=vocab_size**2).view(vocab_size, vocab_size)
        self.logits = nn.Parameter((counts + 1).log())

    def forward(self, tokens):
        return self.logits[tokens]


def train(text, vocab_size, seed):
    return Pairs(text, vocab_size)
"""


class Honest(nn.Module):
    """One look-up of the last token."""

    def __init__(self, numbers=SIZE):
        super().__init__()
        self.table = nn.Embedding(SIZE, numbers)

    def forward(self, tokens):
        return self.table(tokens)


class SeesTheFuture(Honest):
    def forward(self, tokens):
        return super().forward(tokens) + super().forward(tokens.roll(-1, dims=1))


class SeesTheFutureByTable(Honest):
    """No gradient would show it."""

    def forward(self, tokens):
        return super().forward(tokens) + nn.functional.one_hot(tokens.roll(-1, dims=1), SIZE)


class SeesItsBatch(Honest):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits + logits.mean(dim=0)


class Learns(Honest):
    """It goes on learning from what it reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(SIZE))

    def forward(self, tokens):
        self.seen += torch.bincount(tokens.flatten(), minlength=SIZE)
        return super().forward(tokens)


class Remembers(Honest):
    """It hides what it has read where no state is looked for."""

    calls = 0

    def forward(self, tokens):
        self.calls += 1
        return super().forward(tokens) + self.calls


class Draws(Honest):
    def forward(self, tokens):
        return super().forward(tokens) + torch.randn(SIZE)


def test_an_honest_model_is_let_through():
    assert speedrun.check_model(Honest(), VALIDATION, SIZE) == SIZE**2
    gpt = CharTransformer(SIZE, speedrun.LENGTH, 16, 2, 1, dropout=0.5)
    assert speedrun.check_model(gpt, VALIDATION, SIZE) == sum(p.numel() for p in gpt.parameters())
    assert gpt.training


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (SeesTheFuture(), "change with the tokens after them"),
        (SeesTheFutureByTable(), "change with the tokens after them"),
        (SeesItsBatch(), "what else is in its batch"),
        (Learns(), "weights change while it reads"),
        (Remembers(), "change with the tokens after them"),
        (Draws(), "change with the tokens after them"),
        (Honest(64), r"must be \(4, 256, 65\), got \(4, 256, 64\)"),
        (Honest(200_000), "13,000,000 numbers in parameters and buffers; 10,700,000 are allowed"),
        (nn.Identity(), "no parameter"),
        (len, "an nn.Module, got builtin_function_or_method"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_broken_rule_is_named(model, said):
    with pytest.raises(InputError, match=said):
        speedrun.check_model(model, VALIDATION, SIZE)


def test_a_file_is_checked_before_it_is_trained(tmp_path, capsys):
    empty, text = tmp_path / "empty.py", tmp_path / "notes.txt"
    empty.touch()
    text.touch()
    for path, said in ((empty, "has no function train"), (text, "is a Python file"), (tmp_path / "none.py", "none.py")):
        assert cli.main(["speedrun", "check", str(path)]) == 1
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_a_submission_is_trained_judged_and_kept(tmp_path, capsys, monkeypatch):
    path = tmp_path / "pairs.py"
    path.write_text(PAIRS)
    assert cli.main(["speedrun", "check", str(path), "--seeds", "2", "--record", "counted pairs"]) == 0
    out = capsys.readouterr().out
    assert "1.4697 is not reached" in out
    assert [line.split(":")[0] for line in out.splitlines()] == ["seed 0", "seed 1", "all", "written"]
    ((content, attempts),) = speedrun.load_records(tmp_path)
    assert content["gained"] == "counted pairs"
    assert [attempt.seed for attempt in attempts] == [0, 1]
    for attempt in attempts:
        assert attempt.numbers == SIZE**2
        assert 0 < attempt.seconds < 10
        assert attempt.products > 0
        assert 2.4 < attempt.loss < 2.6  # of counted pairs, as in notebook 08
        assert abs(attempt.window_loss - attempt.loss) < 0.02
    monkeypatch.setattr(speedrun, "load_records", partial(speedrun.load_records, tmp_path))
    assert "| [pairs.py](../speedrun/pairs.py) | counted pairs |" in tables.speedrun_table()
    monkeypatch.undo()

    (tmp_path / "pairs.json").write_text(json.dumps(content | {"attempts": []} | {"gained": 3}))
    with pytest.raises(InputError, match=r"pairs\.json is not a whole record: gained is not a text but 3"):
        speedrun.load_records(tmp_path)


def test_the_target_is_reached_by_the_mean_of_both_losses():
    good, bad = (speedrun.Attempt(0, 1.0, 1.0, loss, loss, 1) for loss in (1.4597, 1.4797))
    assert speedrun.is_reached([good, bad])
    assert not speedrun.is_reached([good, bad, bad])
    assert not speedrun.is_reached([speedrun.Attempt(0, 1.0, 1.0, 1.4, 1.48, 1)])


def test_the_page_shows_the_records():
    page = speedrun.FOLDER.parent / "docs" / "speedrun.md"
    text = page.read_text(encoding="utf-8")
    assert claims.with_tables(text) == text
