"""Several processes train as one does; when one of them dies, torchrun starts them again and they go on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sciformer.training import distributed

ROOT = Path(__file__).parents[1]
TRAIN = ["train", "mnist", "--profile", "quick", "--device", "cpu", "--steps", "12", "--batch-size", "16"]
TINY = ["--embed-dim", "8", "--num-heads", "2", "--num-layers", "1"]

#: Trains 20 steps with dropout, saved every 5. In its first life process 1 kills itself after 12 if the flag is set.
WORKER = """
import json, os, signal, sys
import torch
from torch import nn
from sciformer.training import distributed
from sciformer.data import batches
from sciformer.training import TrainConfig, fit

folder, deadly = sys.argv[1], sys.argv[2] == "deadly"
begun = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def watch(step, model):
    if deadly and begun == 0 and step == 12 and distributed.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"begun": begun}

torch.manual_seed(begun)
model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
x = torch.linspace(-1, 1, 96).view(32, 3)
stream = batches(x, x.sum(dim=1, keepdim=True), batch_size=8, seed=0)
with distributed.process_group("cpu"):
    history = fit(
        model, stream, nn.functional.mse_loss, TrainConfig(20), watch,
        checkpoint=f"{folder}/run.pt", checkpoint_every=5, progress=False,
    )
    with open(f"{folder}/{distributed.rank()}.json", "w") as file:
        json.dump({"loss": history.loss, "begun": history.metrics["begun"]}, file)
"""


def torchrun(*arguments, restarts=0):
    """Run a command in two processes; what they printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*command, f"--max-restarts={restarts}", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return result.returncode, result.stdout + result.stderr


def test_two_processes_have_the_loss_curve_of_one(tmp_path):
    alone = [sys.executable, "-m", "sciformer", *TRAIN, *TINY, "--out", str(tmp_path / "one")]
    subprocess.run(alone, check=True, capture_output=True, cwd=ROOT)
    status, printed = torchrun("-m", "sciformer", *TRAIN, *TINY, "--out", tmp_path / "two")
    assert status == 0, printed
    assert printed.count("written to") == 1
    one, two = (json.loads((tmp_path / name / "history.json").read_text()) for name in ("one", "two"))
    assert len(one["loss"]) == 12
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["metrics"] == pytest.approx(one["metrics"], abs=1e-3)


def test_a_killed_worker_is_started_again_and_goes_on_from_the_checkpoint(tmp_path):
    script, results = tmp_path / "worker.py", {}
    script.write_text(WORKER)
    for fate in ("deadly", "quiet"):
        folder = tmp_path / fate
        folder.mkdir()
        status, printed = torchrun(script, folder, fate, restarts=1)
        assert status == 0, printed
        results[fate] = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    for rank in (0, 1):
        assert results["deadly"][rank]["loss"] == results["quiet"][rank]["loss"]
        assert results["deadly"][rank]["begun"] == [[step, int(step > 10)] for step in range(1, 21)]
    assert results["quiet"][0]["loss"] == results["quiet"][1]["loss"]


def test_a_process_alone_has_the_whole_batch():
    with distributed.process_group("cpu") as device:
        assert device == torch.device("cpu")
        assert (distributed.rank(), distributed.world_size()) == (0, 1)
        batch = torch.arange(4), torch.arange(4)
        assert all(torch.equal(a, b) for a, b in zip(distributed.shard(batch), batch, strict=True))
        assert distributed.all_reduce_mean(torch.tensor(3.0)) == 3


def test_a_batch_that_the_processes_do_not_divide(monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    with pytest.raises(ValueError, match="2 processes cannot share a batch of 7 equally"):
        distributed.shard((torch.zeros(7), torch.zeros(7)))
