"""The loop does what it says: learns, clips, drops out, decays and stops at NaN."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_training import Stacked, seeded, stream
from torch import nn
from torch.testing import assert_close

from sciformer.lab.metrics import accuracy
from sciformer.training import TrainConfig, evaluate, fit, loop, make_optimizers


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
def test_fit_learns(optimizer):
    model = seeded()
    config = TrainConfig(steps=300, lr=1e-2, optimizer=optimizer, warmup_steps=10)
    history = fit(model, stream(), F.cross_entropy, config, progress=False)
    assert len(history.loss) == 300
    assert sum(history.loss[-20:]) < 0.5 * sum(history.loss[:20])
    assert evaluate(model, stream(seed=1, count=10), accuracy) > 0.9


def test_the_rate_of_each_step_reaches_every_optimizer(monkeypatch):
    made, rates = [], []

    def make(*arguments):
        made.extend(make_optimizers(*arguments))
        return made

    def watch(step, model):
        rates.append([group["lr"] for optimizer in made for group in optimizer.param_groups])

    monkeypatch.setattr(loop, "make_optimizers", make)
    config = TrainConfig(steps=5, lr=1e-2, optimizer="muon", warmup_steps=2)
    fit(seeded(), stream(), F.cross_entropy, config, watch, progress=False)
    assert rates == [[config.lr_at(step)] * 3 for step in range(5)]
    assert config.with_steps(9) == replace(config, steps=9)
    assert config.with_steps(1) == replace(config, steps=1, warmup_steps=1)


@pytest.mark.parametrize(("grad_clip", "moved"), [(1e6, 0.1), (1e-12, 0.0)])
def test_gradients_are_clipped(grad_clip, moved):
    """AdamW's first step has the size of the rate, unless the gradient is below its eps, 1e-8."""
    model = nn.Linear(5, 3, bias=False)
    before = model.weight.detach().clone()
    config = TrainConfig(steps=1, lr=0.1, weight_decay=0.0, grad_clip=grad_clip)
    fit(model, [(torch.ones(2, 5), torch.zeros(2, 3))], lambda output, _: output.sum(), config, progress=False)
    assert_close(before - model.weight.detach(), torch.full((3, 5), moved), rtol=0, atol=1e-4)


def test_training_drops_out_whatever_mode_the_model_is_in():
    """Before the first step and after each look from outside."""
    config = TrainConfig(steps=3)
    expected = fit(seeded(), stream(), F.cross_entropy, config, progress=False)

    def leaves_it_in_eval(step, model):
        model.eval()

    torch.manual_seed(0)
    history = fit(Stacked().eval(), stream(), F.cross_entropy, config, leaves_it_in_eval, progress=False)
    assert history.loss == expected.loss


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_if_asked_for(progress, capsys):
    fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), progress=progress)
    assert ("3/3" in capsys.readouterr().err) is progress


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
def test_weight_decay_spares_biases(optimizer):
    model = seeded()
    before = {name: p.clone() for name, p in model.named_parameters()}
    zeros = [(torch.zeros(2, 5), torch.zeros(2, 3))]
    config = TrainConfig(steps=1, lr=0.1, weight_decay=0.5, optimizer=optimizer)
    fit(model, zeros, lambda logits, target: (logits * target).sum(), config, progress=False)  # all gradients are 0
    for name, p in model.named_parameters():
        assert_close(p, before[name] * (0.95 if p.dim() == 2 else 1.0))


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
def test_what_is_frozen_stays_as_it_is(optimizer):
    model = seeded()
    frozen = [model.blocks[0].weight, model.read_out.weight, model.read_out.bias]
    before = [p.requires_grad_(False).clone() for p in frozen]
    config = TrainConfig(steps=2, lr=0.1, weight_decay=0.5, optimizer=optimizer)
    fit(model, stream(), F.cross_entropy, config, progress=False)
    assert_close(frozen, before, rtol=0, atol=0)


@pytest.mark.parametrize("bad_step", [0, 3, 55])
def test_a_loss_that_is_not_finite_stops_with_step_and_rate(tmp_path, bad_step):
    def batches():
        for n, (x, y) in enumerate(stream()):
            yield (x * math.nan if n == bad_step else x), y

    config, file = TrainConfig(steps=80, lr=0.125), tmp_path / "run.pt"
    message = rf"nan at step {bad_step + 1} of 80, with learning rate {config.lr_at(bad_step):.3g}"
    with pytest.raises(FloatingPointError, match=message):
        fit(seeded(), batches(), F.cross_entropy, config, checkpoint=file, checkpoint_every=57, progress=False)
    assert not file.exists()


def test_a_loss_that_is_not_finite_stops_a_short_run_without_checkpoints():
    with pytest.raises(FloatingPointError, match="nan at step 1 of 3"):
        fit(seeded(), stream(), lambda logits, _: math.nan * logits.sum(), TrainConfig(steps=3), progress=False)


def test_batches_start_anew_or_run_dry():
    three = list(stream(count=3))
    history = fit(seeded(), three, F.cross_entropy, TrainConfig(steps=10), progress=False)
    assert len(history.loss) == 10
    with pytest.raises(ValueError, match="ran dry after 3"):
        fit(seeded(), stream(count=3), F.cross_entropy, TrainConfig(steps=10), progress=False)
    with pytest.raises(ValueError, match="ran dry after 0"):
        fit(seeded(), [], F.cross_entropy, TrainConfig(steps=10), progress=False)


def test_compiled_training_is_the_same_training():
    config = {"steps": 3, "lr": 1e-2}
    plain, compiled = nn.Linear(5, 3), nn.Linear(5, 3)
    compiled.load_state_dict(plain.state_dict())
    expected = fit(plain, stream(), F.cross_entropy, TrainConfig(**config), progress=False)
    try:
        history = fit(compiled, stream(), F.cross_entropy, TrainConfig(**config, compile=True), progress=False)
    except Exception as error:
        pytest.skip(f"torch.compile does not work here: {error!r:.100}")
    assert_close(torch.tensor(history.loss), torch.tensor(expected.loss))
    assert compiled.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize(("bad_step", "noticed"), [(0, 50), (3, 50), (55, 80)])
def test_weights_that_are_not_finite_stop_at_the_next_look(bad_step, noticed):
    """Of a loss that stays finite: a fast path of attention can give a query of NaN the output 0."""

    def breaks(done, model):
        if done == bad_step + 1:
            with torch.no_grad():
                model.read_out.bias[1] = math.nan

    def healthy(logits, target):
        return F.cross_entropy(logits.nan_to_num(), target)

    config = TrainConfig(steps=80, lr=0.125)
    message = (
        rf"weights that are not finite after step {noticed} of 80, with learning rate {config.lr_at(noticed - 1):.3g}"
    )
    with pytest.raises(FloatingPointError, match=message):
        fit(seeded(), stream(), healthy, config, breaks, progress=False)


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_fit_refuses_to_save_never(tmp_path, every):
    with pytest.raises(ValueError, match=f"checkpoint_every must be .*, got {every}"):
        fit(
            seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint=tmp_path / "x", checkpoint_every=every
        )
