"""One call for a score of one's own, and each of its parts by itself."""

import re
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import SCORES, DotProductScore, capstone, plotting
from sciformer.lab.experiments import CAPSTONE
from sciformer.lab.settings import ImageSetting
from sciformer.lab.trainers import Run
from sciformer.teach.properties import examine
from sciformer.training import History


class Cosine(nn.Module):
    """Cosine with a learned factor."""

    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.scale = nn.Parameter(torch.full((num_heads, 1, 1), 10.0))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return self.scale * (F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT)


class Leaking(Cosine):
    def forward(self, query, key, **options):
        scores = super().forward(query, key)
        return scores / scores.abs().amax(dim=-1, keepdim=True).clamp(min=1.0)


@pytest.fixture
def tiny(monkeypatch):
    """Models and texts so small that a run takes no time."""
    settings = CAPSTONE["quick"]
    small = {
        "digits": replace(settings["digits"], embed_dim=8, num_layers=1, patch_size=14, batch_size=4),
        "text": replace(settings["text"], embed_dim=8, num_layers=1, length=32, batch_size=2),
    }
    monkeypatch.setenv("SCIFORMER_PROFILE", "quick")
    monkeypatch.setitem(CAPSTONE, "quick", small)
    monkeypatch.setattr("sciformer.lab.trainers.text_loss", lambda model, tokens, length: 1.0 + length / 100)


def test_one_call_says_it_all(tiny, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(plotting, "show", lambda alt: shown.append(alt) or plt.close("all"))
    monkeypatch.setattr(capstone, "cost", lambda recipe, device: capstone.Cost("a size", {"Cosine": (1.5, 2.0)}, {}))
    report = capstone.report(Cosine, against=["dot", "distance"], seeds=2, steps=2)
    printed = capsys.readouterr().out
    (held, *_) = str(examine(Cosine)).splitlines()
    assert re.match(r"Cosine: all \d+ properties hold", held)
    assert held in printed
    assert "Cosine   1.50     2.00     the same" in printed
    assert printed.endswith(f"{report}\n")
    assert "cost: 1.50 times the dot product's time, 2.00 times its memory" in str(report)
    assert "digits, 2 steps, 2 seeds: test accuracy" in str(report)
    assert "text, 2 steps, 2 seeds: validation loss 1.320 ± 0.000" in str(report)
    assert str(report).count("minus dot's") == str(report).count("minus distance's") == 2
    assert len(shown) == 3
    assert list(report.runs["digits"]) == ["Cosine", "dot", "distance"]
    assert [run.seed for run in report.runs["text"]["dot"]] == [0, 1]
    assert type(report.runs["digits"]["Cosine"][0].model.blocks[0].attention.score) is Cosine


def test_where_a_promise_is_broken_nothing_is_trained(monkeypatch, capsys):
    monkeypatch.setattr(capstone, "learn", None)
    report = capstone.report(Leaking)
    assert report.runs is None
    assert "BROKEN: hides the future" in capsys.readouterr().out
    assert str(report).endswith("nothing was trained: repair this first")


def test_a_stub_is_not_attempted_yet(capsys):
    class MyScore(Cosine):
        def forward(self, query, key, **options):
            raise NotImplementedError

    capstone.report(MyScore)
    assert capsys.readouterr().out == "MyScore: not attempted yet\n"


def test_the_same_start_and_the_same_batches_for_all(tiny):
    """A score that is the dot product learns what the dot product does."""

    class Twin(DotProductScore):
        pass

    runs = capstone.learn(Twin, against=["dot"], seeds=1, steps=3)
    for arms in runs.values():
        twin, dot = (arms[name][0].history.loss for name in ("Twin", "dot"))
        assert twin == pytest.approx(dot, rel=1e-4)


def runs_with(**metrics):
    history = History(loss=[1.0] * 50)
    metric = "validation loss"
    return {
        "text": {
            name: [Run(seed, nn.Identity(), history, {metric: value}) for seed, value in enumerate(values)]
            for name, values in metrics.items()
        }
    }


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([2.1, 2.2, 2.3], "−0.100 ± 0.000, ahead"),
        ([1.9, 2.0, 2.1], "+0.100 ± 0.000, behind"),
        ([2.4, 1.7, 2.3], "−0.033 ± 0.233, no clear difference"),
    ],
)
def test_ahead_is_two_standard_errors_of_the_paired_differences(others, words):
    head, line = capstone.compare(runs_with(mine=[2.0, 2.1, 2.2], other=others), "text")
    assert head == "  text, 50 steps, 3 seeds: validation loss 2.100 ± 0.058"
    assert line == f"    minus other's: {words}"


def test_one_seed_shows_no_difference():
    head, line = capstone.compare(runs_with(mine=[2.0], other=[3.0]), "text")
    assert head == "  text, 50 steps, 1 seed: validation loss 2.000"
    assert line == "    minus other's: −1.000, no clear difference"


def test_cost_is_given_in_multiples_of_the_dot_product():
    cost = capstone.cost(Cosine, against=["distance"], length=16, batch=1, head_dim=8, repeats=1)
    assert list(cost.readable) == ["dot", "Cosine", "distance"]
    assert list(cost.default) == ["dot", "distance"]
    assert cost.readable["dot"] == (1.0, 1.0)
    assert cost.readable["Cosine"][1] > 1
    assert all(time > 0 for time, _ in (*cost.readable.values(), *cost.default.values()))
    assert str(cost).splitlines()[-2].endswith("the same")


@pytest.mark.parametrize("measure", [capstone.cost, capstone.learn])
def test_a_built_in_name_is_refused(measure):
    class separable(DotProductScore):
        pass

    with pytest.raises(ValueError, match="'separable' is the name of a built-in score"):
        measure(separable)


def test_kept_bytes_counts_each_memory_once_and_not_the_inputs():
    x = torch.randn(100, requires_grad=True)
    assert capstone.kept_bytes(lambda: x.exp().sum(), [x]) == 400
    assert capstone.kept_bytes(lambda: (x * x.detach()).sum(), [x]) == 0

    def two_views():
        y = x.exp()
        return (y[:50] * y[50:]).sum()

    assert capstone.kept_bytes(two_views, [x]) == 400


@pytest.mark.parametrize("profile", CAPSTONE)
def test_settings_take_a_score_of_ones_own(profile):
    for setting in CAPSTONE[profile].values():
        scores = {name: replace(setting, score=name).model() for name in SCORES}
        assert type(replace(setting, score=Cosine).model().blocks[0].attention.score) is Cosine
        sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in scores.items()}
        assert max(sizes.values()) < 1.01 * min(sizes.values())
        with pytest.raises(ValueError, match=r"'dott' is unknown; there are dot, "):
            replace(setting, score="dott").model()
    assert isinstance(CAPSTONE[profile]["digits"], ImageSetting)
