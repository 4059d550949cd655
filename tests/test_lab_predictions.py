"""Predictions of cost: what is counted from shapes is what a step does, and the kept file is of today's settings."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sciformer.lab import experiments
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.measuring import peak_bytes
from sciformer.lab.predictions import (
    GPUS,
    Prediction,
    _Memory,
    duration,
    fits,
    kept_predictions,
    minutes_to_record,
    predict,
)
from sciformer.lab.search import SEARCH, TRIALS, drawn

QUICK = {
    "patches": experiments.MNIST_IMAGE_TRANSFORMER["quick"],
    "pixels": experiments.MNIST_PIXELS["quick"]["distance"],
    "text": experiments.SHAKESPEARE["quick"]["plain"],
}
T4, A100, H100 = GPUS


def test_operations_are_those_of_the_products():
    """A weight of a map takes 2 forward and 4 backward for a token; each pair of tokens as much."""
    setting = QUICK["text"]
    model, tokens = setting.model(), setting.batch_size * setting.length
    weights = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear))
    products = 6 * weights * tokens
    pairs = setting.num_layers * 2 * 2 * setting.embed_dim * setting.length * tokens
    # Flash attention's backward pass computes the scores once more: 5 products for the 2 of the forward pass.
    assert predict(setting).flops == products + pairs * 7 / 2


@pytest.mark.parametrize("name", QUICK)
def test_memory_is_about_what_is_measured(name):
    setting = QUICK[name]
    model, (*inputs, target) = setting.model(), next(setting.training_batches(0))

    def step():
        F.cross_entropy(model(*inputs).flatten(0, -2), target.flatten()).backward()

    step()  # makes the gradients' memory
    counted = predict(setting)
    of_the_step = counted.bytes_float32 - 4 * 4 * counted.parameters  # all but what belongs to parameters
    assert 0.8 < of_the_step / peak_bytes(step, "cpu") < 1.25
    assert counted.bytes_bfloat16 < counted.bytes_float32


def test_memory_is_held_until_it_is_freed():
    with _Memory() as memory:
        a = torch.zeros(1000)
        assert (memory.held, memory.operations) == (4000, 1)
        view = a[10:]
        view.add_(1)
        assert (memory.held, memory.operations) == (4000, 2)
        b = a + 1
        del a
        assert memory.held == 8000
        del view
        assert (memory.held, memory.peak) == (4000, 8000)
        del b
    assert memory.held == 0


def test_a_model_on_another_path_on_a_gpu_is_counted_there(monkeypatch):
    """A GPU takes larger blocks of queries, and so fewer operations."""
    from sciformer.lab import predictions

    setting = replace(experiments.BAKE_OFF_PIXELS["quick"]["gaussian_well"], batch_size=64)
    on_a_gpu = predict(setting).operations
    monkeypatch.setitem(predictions.BLOCK_NUMBERS, "cuda", predictions.BLOCK_NUMBERS["cpu"])
    assert on_a_gpu < predict(setting).operations


def test_every_full_profile_is_predicted_as_it_is_today():
    """To renew them: python tools/predict.py."""
    kept = kept_predictions()
    full = {name: each.arms("full") for name, each in EXPERIMENTS.items() if "full" in each.settings}
    full["search"] = {str(number): one for number, one in enumerate(drawn(SEARCH["full"], TRIALS))}
    assert {n: list(arms) for n, arms in kept.items()} == {n: [arm or "" for arm in arms] for n, arms in full.items()}
    for name, arms in full.items():
        for arm, setting in arms.items():
            parameters = sum(p.numel() for p in setting.model().parameters())
            counted = kept[name][arm or ""]
            assert (counted.parameters, counted.steps) == (parameters, setting.train.steps), (name, arm)


@pytest.mark.parametrize(
    ("name", "arm"),
    [("shakespeare", "plain"), ("dates", ""), ("energy-wells", "gaussian, field"), ("bake-off-patches", "additive")],
)
def test_what_is_kept_is_what_is_counted_today(name, arm):
    kept, today = kept_predictions()[name][arm], predict(EXPERIMENTS[name].arms("full")[arm or None])
    assert kept.flops == today.flops
    for counted in ("operations", "bytes_float32", "bytes_bfloat16"):  # torch's versions differ in these a little
        assert getattr(kept, counted) == pytest.approx(getattr(today, counted), rel=0.1)


def test_minutes_are_sums_or_starts():
    sums = Prediction(1, steps=600, flops=312 * 10**10, operations=1, bytes_float32=0, bytes_bfloat16=0)
    assert sums.minutes(A100) == pytest.approx(600 * 0.1 / 60)
    assert sums.minutes(T4) == pytest.approx(600 * 3.12 / (0.4 * 8.1) / 60)
    starts = replace(sums, operations=100_000)
    assert starts.minutes(A100) == starts.minutes(H100) == pytest.approx(600 * 1 / 60)
    assert minutes_to_record("dates", A100) == pytest.approx(5 * kept_predictions()["dates"][""].minutes(A100))
    assert [duration(12.4), duration(180)] == ["12 min", "3.0 h"]


def test_what_fits(monkeypatch):
    arm = kept_predictions()["dates"][""]
    assert fits("dates", has_bfloat16=False) == 16
    monkeypatch.setitem(kept_predictions()["dates"], "", replace(arm, bytes_float32=30 * 10**9))
    assert (fits("dates", has_bfloat16=False), fits("dates", has_bfloat16=True)) == (80, 16)
    monkeypatch.setitem(kept_predictions()["dates"], "", replace(arm, bytes_float32=81 * 10**9))
    with pytest.raises(ValueError, match="dates needs 81 GB"):
        fits("dates", has_bfloat16=False)
