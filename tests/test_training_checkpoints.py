"""A training goes on from its checkpoint to the bit, and from no half, damaged or foreign one."""

import pytest
import torch
import torch.nn.functional as F
from small_training import seeded, stream

from sciformer.training import TrainConfig, fit


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
