"""A training goes on from its checkpoint to the bit, and from no half, damaged or foreign one."""

import random

import pytest
import torch
import torch.nn.functional as F
from small_training import seeded, stream
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from sciformer.training import History, TrainConfig, checkpoints, fit


@pytest.fixture
def finished(tmp_path):
    """The checkpoint of a training that has come to its end, and its configuration."""
    file, config = tmp_path / "run.pt", TrainConfig(steps=3)
    fit(seeded(), stream(), F.cross_entropy, config, checkpoint=file, progress=False)
    return file, config


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
@pytest.mark.parametrize("stopped_at", [20, 25])
def test_resume_is_exact(tmp_path, optimizer, stopped_at):
    config = TrainConfig(steps=40, lr=1e-2, optimizer=optimizer, warmup_steps=5)

    def watch(step, model):
        return {"norm": model.read_out.weight.norm().item()} if step % 8 == 0 else None

    whole = seeded()
    expected = fit(whole, stream(), F.cross_entropy, config, watch, progress=False)

    def interrupt(step, model):
        if step == stopped_at:
            raise KeyboardInterrupt
        return watch(step, model)

    file = tmp_path / "new" / "run.pt"
    options = {"checkpoint": file, "checkpoint_every": 10, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        fit(seeded(), stream(), F.cross_entropy, config, interrupt, **options)
    resumed = seeded(seed=7)  # another process would start from other random numbers
    history = fit(resumed, stream(), F.cross_entropy, config, watch, **options)
    assert history.loss == expected.loss
    assert history.metrics == expected.metrics
    for a, b in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [f.name for f in file.parent.iterdir()] == ["run.pt"]
    again = fit(seeded(seed=8), stream(), F.cross_entropy, config, **options)  # finished: nothing left to do
    assert again.loss == expected.loss
    assert again.seconds >= torch.load(file)["history"]["seconds"]  # the time of all parts


def test_random_numbers_are_saved_and_set_for_the_models_own_device(tmp_path, monkeypatch):
    """On the second of two GPUs the generator is that of cuda:1. Here "meta" stands for such a device."""
    asked, nothing = [], {"rng": torch.empty(0), "device_rng": torch.empty(0)}
    monkeypatch.setattr(checkpoints, "random_state", lambda device: asked.append(device) or nothing)
    monkeypatch.setattr(checkpoints, "set_random_state", lambda state, device: asked.append(device))
    model = nn.Linear(2, 3, device="meta")
    checkpoint = checkpoints.Checkpoint(tmp_path / "run.pt", 1, "", model, [], TrainConfig(steps=2))
    checkpoint.save(History(loss=[0.0]))
    _, remaining = checkpoint.resume(iter(["first batch", "second batch"]))
    assert next(remaining) == "second batch"
    assert asked == [torch.device("meta")] * 2


def test_checkpoint_of_another_run_is_refused(tmp_path):
    options = {"checkpoint": tmp_path / "run.pt", "progress": False}
    fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), **options)
    with pytest.raises(ValueError, match=r"'steps': \(3, 5\)"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=5), **options)
    with pytest.raises(ValueError, match=r"another run \(saved, asked for\): '', 'seed 1'"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint_of="seed 1", **options)
    state = torch.load(tmp_path / "run.pt")
    torch.save(state | {"of": "seed 1"}, tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"another run \(saved, asked for\): 'seed 1', ''"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), **options)


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    options = {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 2, "progress": False}
    save = torch.save

    def fails_the_second_time(state, path):
        if len(state["history"]["loss"]) > 2:
            path.write_bytes(b"half of a check")
            raise OSError("no space left")
        save(state, path)

    monkeypatch.setattr(torch, "save", fails_the_second_time)
    with pytest.raises(OSError, match="no space left"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=4), **options)
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
    assert len(torch.load(tmp_path / "run.pt")["history"]["loss"]) == 2


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"not a checkpoint"])
def test_damaged_checkpoint_is_refused(tmp_path, damage):
    file = tmp_path / "run.pt"
    fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint=file, progress=False)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"run\.pt is not a whole checkpoint .*; delete it"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint=file, progress=False)


@pytest.mark.parametrize("seed", range(60))
def test_a_single_flipped_bit_is_noticed(finished, seed):
    file, config = finished
    content = bytearray(file.read_bytes())
    position = random.Random(seed).randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    file.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"run\.pt is not a whole checkpoint .*; delete it to start from the beginning"
    ):
        fit(seeded(), stream(), F.cross_entropy, config, checkpoint=file, progress=False)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[1:], lambda b: b[:-7] + bytes(7)]
)
def test_a_checksum_that_is_cut_shifted_or_blank_is_noticed(finished, damage):
    file, config = finished
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"run\.pt is not a whole checkpoint \(ChecksumMismatch\); delete it"):
        fit(seeded(), stream(), F.cross_entropy, config, checkpoint=file, progress=False)


def test_a_checkpoint_that_torch_saved_without_a_checksum_is_read(finished):
    file, config = finished
    state = torch.load(file)
    torch.save(state, file)
    history = fit(seeded(), stream(), F.cross_entropy, config, checkpoint=file, progress=False)
    assert history.loss == state["history"]["loss"]


def test_a_checkpoint_that_cannot_be_written_is_noticed_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    model = seeded()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(OSError, match="file"):
        fit(model, stream(), F.cross_entropy, TrainConfig(3), checkpoint=tmp_path / "file" / "run.pt", progress=False)
    assert_close(list(model.parameters()), before, rtol=0, atol=0)


def test_a_training_that_is_finished_needs_no_place_to_write_to(finished, monkeypatch):
    file, config = finished
    monkeypatch.setattr(checkpoints, "check_writable", lambda path: pytest.fail(f"{path} is to be written"))
    assert len(fit(seeded(), stream(), F.cross_entropy, config, checkpoint=file, progress=False).loss) == config.steps


@pytest.mark.parametrize("stopped_at", [4, 6, 8])
def test_resume_is_exact_where_a_new_epoch_draws_random_numbers(tmp_path, stopped_at):
    """A DataLoader draws a seed as each epoch begins, here every 4 steps, even if it shuffles nothing."""
    loader = DataLoader(TensorDataset(*next(stream())), batch_size=8)
    config, expected = TrainConfig(steps=10, lr=1e-2), seeded()
    history = fit(expected, loader, F.cross_entropy, config, progress=False)

    def interrupt(step, model):
        if step == stopped_at + 1:
            raise KeyboardInterrupt

    options = {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 2, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        fit(seeded(), loader, F.cross_entropy, config, interrupt, **options)
    resumed = seeded(seed=7)
    assert fit(resumed, loader, F.cross_entropy, config, **options).loss == history.loss
    assert_close(list(resumed.parameters()), list(expected.parameters()), rtol=0, atol=0)
