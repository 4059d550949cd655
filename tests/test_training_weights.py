"""Weights come back as they were written, or are refused in one line; those of earlier versions are read."""

import random

import pytest
import torch
from safetensors.torch import save_file
from small_training import seeded
from torch import nn
from torch.testing import assert_close

from sciformer import CharTransformer
from sciformer.training.weights import load_weights, save_weights

pytestmark = pytest.mark.attack


def states(*models):
    return [model.state_dict() for model in models]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    save_weights(seeded(), path)
    return path


def refused(path, message, model=None):
    """The weights are refused in one line, and the model stays as it was."""
    model = seeded(1) if model is None else model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=message) as raised:
        load_weights(model, path)
    assert "\n" not in str(raised.value)
    assert path.name in str(raised.value)
    assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_weights_come_back_bit_by_bit(saved):
    model = seeded(1)
    load_weights(model, saved)
    assert_close(*states(model, seeded()), rtol=0, atol=0)


def test_tied_weights_stay_tied(tmp_path):
    first, second = (CharTransformer(11, 7, 10, 5, 2, tie_weights=True) for _ in range(2))
    save_weights(first, tmp_path / "tied.safetensors")
    load_weights(second, tmp_path / "tied.safetensors")
    assert_close(*states(first, second), rtol=0, atol=0)
    tied = [name for name, p in second.named_parameters(remove_duplicate=False) if p is second.read_out.weight]
    assert len(tied) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_dtype_is_kept(tmp_path, dtype):
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).to(dtype)  # which counts its batches: no dimension at all
    save_weights(model, tmp_path / "model.safetensors")
    other = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).to(dtype)
    load_weights(other, tmp_path / "model.safetensors")
    assert_close(*states(other, model), rtol=0, atol=0)


def test_every_one_of_300_flipped_bits_is_noticed(saved):
    whole = saved.read_bytes()
    for position in random.Random(0).sample(range(8 * len(whole)), 300):
        content = bytearray(whole)
        content[position // 8] ^= 1 << position % 8
        saved.write_bytes(content)
        refused(saved, "is not a whole file of weights|holds the weights of another model")


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"", lambda b: b"PK\3\4", lambda b: 9000 * b"\xff"]
)
def test_a_file_that_is_cut_or_something_else_is_refused(saved, damage):
    saved.write_bytes(damage(saved.read_bytes()))
    refused(saved, "is not a whole file of weights")


def test_a_file_without_a_checksum_is_refused(saved):
    save_file(seeded().state_dict(), saved)
    refused(saved, "its checksum is missing or wrong")


def test_weights_of_another_model_are_refused(saved):
    wider = nn.Linear(5, 3)
    refused(saved, r"weight is missing, and 7 more do not fit", wider)
    other = seeded(1)
    other.read_out = nn.Linear(5, 4)
    refused(saved, r"read_out\.weight is \(3, 5\), wanted \(4, 5\), and 1 more do not fit", other)
    other.read_out = nn.Linear(5, 3, bias=False)
    refused(saved, r"read_out\.bias is none of the model's$", other)


def test_what_an_earlier_version_wrote_is_read(tmp_path):
    path, model = tmp_path / "model.pt", seeded(1)
    torch.save(seeded().state_dict(), path)
    load_weights(model, path)
    assert_close(*states(model, seeded()), rtol=0, atol=0)
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "is not a whole file of weights")


def test_code_in_an_earlier_versions_file_is_not_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return open, (str(tmp_path / "written"), "w")

    path = tmp_path / "model.pt"
    torch.save({"read_out.weight": Harmful()}, path)
    refused(path, r"is not a whole file of weights \(UnpicklingError\)")
    assert not (tmp_path / "written").exists()


def test_a_full_disk_is_one_line(small_disk):
    model = nn.Linear(1000, 100)
    with pytest.raises(OSError, match=r"No space left on device: '.*model\.safetensors'"):
        save_weights(model, small_disk / "model.safetensors")
    assert list(small_disk.iterdir()) == []
