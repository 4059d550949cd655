"""A training goes on from its checkpoint to the bit, and from no half, damaged or foreign one."""

import random
from contextlib import suppress
from pathlib import Path

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
    asked, saved = [], dict.fromkeys(("rng", "device_rng"), torch.get_rng_state())
    monkeypatch.setattr(checkpoints, "random_state", lambda device: asked.append(device) or saved)
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
    write, written = Path.write_bytes, []

    def fails_the_second_time(path, content):
        written.append(path)
        if len(written) == 2:
            write(path, b"half of a check")
            raise OSError("no space left")
        write(path, content)

    monkeypatch.setattr(Path, "write_bytes", fails_the_second_time)
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


@pytest.mark.attack
def test_every_one_of_300_flipped_bits_is_noticed(finished):
    file, config = finished
    whole = file.read_bytes()
    for position in random.Random(0).sample(range(8 * len(whole)), 300):
        content = bytearray(whole)
        content[position // 8] ^= 1 << position % 8
        file.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"run\.pt is not a whole checkpoint .*; delete it to start from the beginning"
        ):
            fit(seeded(), stream(), F.cross_entropy, config, checkpoint=file, progress=False)


def without(*names):
    """A change that takes a part out of a checkpoint."""

    def change(state):
        *above, last = names
        for name in above:
            state = state[name]
        del state[last]

    return change


def of_another_shape(state):
    state["model"]["read_out.weight"] = torch.zeros(3, 4)


def of_another_type(state):
    state["model"]["read_out.bias"] = 3.0


def one_too_many(state):
    state["model"]["extra"] = torch.zeros(2)


def moments_of_another_shape(state):
    state["optimizers"][0]["state"][0]["exp_avg"] = torch.zeros(2, 2)


def longer_than_it_is(state):
    state["history"]["loss"] = [1.0] * 4


def random_numbers_cut(state):
    state["rng"] = state["rng"][:10]


NOT_WHOLE, OTHER_MODEL = "is not a whole checkpoint", "holds the weights of another model: "
FORGED = {
    "no configuration": (without("config"), NOT_WHOLE),
    "no name": (without("of"), NOT_WHOLE),
    "no history": (without("history"), NOT_WHOLE),
    "no losses": (without("history", "loss"), NOT_WHOLE),
    "too many losses": (longer_than_it_is, NOT_WHOLE),
    "losses of no kind": (lambda state: state["history"].update(loss=["a"]), NOT_WHOLE),
    "no random numbers": (without("rng"), NOT_WHOLE),
    "half the random numbers": (random_numbers_cut, NOT_WHOLE),
    "no model": (without("model"), NOT_WHOLE),
    "no optimizers": (without("optimizers"), NOT_WHOLE),
    "a weight missing": (without("model", "read_out.weight"), OTHER_MODEL + "read_out.weight is missing"),
    "a weight of another shape": (of_another_shape, OTHER_MODEL + r"read_out.weight is \(3, 4\), wanted \(3, 5\)"),
    "a weight that is none": (of_another_type, OTHER_MODEL + "read_out.bias is no tensor, wanted"),
    "a weight too many": (one_too_many, OTHER_MODEL + "extra is none of the model's"),
    "one optimizer too few": (lambda state: state["optimizers"].pop(), "holds the optimizers of another model"),
    "a group missing": (without("optimizers", 0, "param_groups", 0), "holds the optimizers of another model"),
    "moments of another shape": (moments_of_another_shape, "holds the optimizers of another model"),
}


@pytest.mark.attack
@pytest.mark.parametrize("name", FORGED)
def test_a_checkpoint_whose_parts_do_not_fit_is_one_line_and_changes_nothing(finished, name):
    file, config = finished
    change, message = FORGED[name]
    state = torch.load(file)
    change(state)
    torch.save(state, file)
    model = seeded()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ValueError, match=rf"run\.pt {message}") as raised:
        fit(model, stream(), F.cross_entropy, config, checkpoint=file, progress=False)
    assert "\n" not in str(raised.value)
    assert_close(list(model.parameters()), before, rtol=0, atol=0)


@pytest.mark.attack
def test_a_full_disk_is_one_line_and_leaves_the_checkpoint_before(small_disk):
    options = {"checkpoint": small_disk / "run.pt", "checkpoint_every": 2, "progress": False}
    config, filler = TrainConfig(steps=4), small_disk / "filler"

    def fill(step, model):
        if step == 3:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

    with pytest.raises(OSError, match=r"No space left on device: '.*run\.pt'"):
        fit(seeded(), stream(), F.cross_entropy, config, fill, **options)
    assert sorted(file.name for file in small_disk.iterdir()) == ["filler", "run.pt"]
    assert len(torch.load(small_disk / "run.pt")["history"]["loss"]) == 2
    filler.unlink()
    expected = fit(seeded(), stream(), F.cross_entropy, config, progress=False)
    assert fit(seeded(7), stream(), F.cross_entropy, config, **options).loss == expected.loss


@pytest.mark.attack
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's devices")
@pytest.mark.parametrize("path", ["/dev/full", "/dev/zero", "/tmp"])
def test_a_checkpoint_that_is_no_file_is_refused_unread(path):
    with pytest.raises(OSError, match="Not a regular file"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint=path, progress=False)


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


def test_what_could_not_be_written_leaves_no_view_of_its_memory(tmp_path, monkeypatch):
    """Python 3.12.0 and 3.12.1 crash when they collect such a view as a part of a cycle, as an error's traceback is."""
    views = []

    def fails(path, content):
        views.append(content)
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(OSError, match="no space left"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=2), checkpoint=tmp_path / "run.pt", progress=False)
    with pytest.raises(ValueError, match="released memoryview"):
        bytes(views[0])
