"""Number formats of training, told without a GPU: fake CUDA tensors have shapes, dtypes and devices."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sciformer.lab import experiments
from sciformer.lab.fake_cuda import READS_A_NUMBER, can_fake_cuda, fake_cuda
from sciformer.training import TrainConfig, evaluate, fit, optimizers
from sciformer.training.checkpoints import random_state, set_random_state
from sciformer.training.precision import mixed_precision, tensor_float_32

needs_cuda_build = pytest.mark.skipif(not can_fake_cuda(), reason="this torch cannot play a GPU")
CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


class Enough(Exception):
    """The test has seen what it wanted to see."""


def has_bfloat16(monkeypatch, *, in_hardware):
    def supported(including_emulation=True):
        return in_hardware or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)


@needs_cuda_build
@pytest.mark.parametrize(("in_hardware", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_products_are_bfloat16_only_where_the_gpu_has_it(monkeypatch, in_hardware, dtype):
    """A T4 says that it supports bfloat16, and means that it emulates it."""
    layer = nn.Linear(2, 3)
    with fake_cuda() as device:
        has_bfloat16(monkeypatch, in_hardware=in_hardware)
        layer.to(device)
        with mixed_precision(device):
            assert layer(torch.empty(1, 2, device=device)).dtype == dtype
        with mixed_precision(device, enabled=False):
            assert layer(torch.empty(1, 2, device=device)).dtype == torch.float32


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_other_devices_compute_in_float32(monkeypatch, name):
    has_bfloat16(monkeypatch, in_hardware=True)
    with mixed_precision(torch.device(name)):
        assert not torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")


def test_tensor_float_32_is_for_cuda_and_for_the_block_alone():
    for device, inside in ((GPU, "high"), (CPU, "highest"), (torch.device("mps"), "highest")):
        with tensor_float_32(device):
            assert torch.get_float32_matmul_precision() == inside
        assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(Enough), tensor_float_32(GPU):
        raise Enough
    assert torch.get_float32_matmul_precision() == "highest"


# --- training ---------------------------------------------------------------------------------------------------------


def on_the_gpu(batches, device):
    for batch in batches:
        yield tuple(torch.empty(x.shape, dtype=x.dtype, device=device) for x in batch)


SETTINGS = {
    "digits": experiments.CAPSTONE["quick"]["digits"],
    "text": experiments.CAPSTONE["quick"]["text"],
}


@needs_cuda_build
@pytest.mark.parametrize("task", SETTINGS)
def test_a_step_of_training_waits_for_nothing(monkeypatch, task):
    """Two whole steps of ``fit``, with Muon, on a GPU: its host reads no number, and the products are bfloat16."""
    setting, seen = SETTINGS[task], []
    model, batches = setting.model(), [next(setting.training_batches(0)) for _ in range(2)]
    orthogonalize = optimizers.orthogonalize

    def spied(matrices, steps=5):
        seen.append(torch.get_float32_matmul_precision())
        return orthogonalize(matrices, steps)

    def loss_fn(output, target):
        seen.append(output.dtype)
        return F.cross_entropy(output.flatten(0, -2), target.flatten())

    def stop(done, model):
        if done == 2:
            raise Enough

    monkeypatch.setattr(optimizers, "orthogonalize", spied)
    with fake_cuda() as device:
        has_bfloat16(monkeypatch, in_hardware=True)
        stream = list(on_the_gpu(batches, device))
        with pytest.raises(Enough):
            fit(model.to(device), stream, loss_fn, setting.train.with_steps(10), stop, progress=False)
    assert set(seen) == {torch.bfloat16, "high"}


@needs_cuda_build
def test_a_number_that_is_read_in_a_step_is_noticed():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    model = Reads()
    with fake_cuda() as device:
        batch = (torch.empty(1, 2, device=device), torch.zeros(1, dtype=torch.long, device=device))
        with pytest.raises(READS_A_NUMBER):
            fit(model.to(device), [batch], F.cross_entropy, TrainConfig(steps=2), progress=False)


@needs_cuda_build
@pytest.mark.parametrize(("autocast", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_model_is_judged_in_the_precision_of_its_training(monkeypatch, autocast, dtype):
    def metric(output, target):
        assert output.dtype == dtype
        raise Enough

    model = nn.Linear(2, 2)
    with fake_cuda() as device:
        has_bfloat16(monkeypatch, in_hardware=True)
        batch = (torch.empty(1, 2, device=device), torch.zeros(1, dtype=torch.long, device=device))
        with pytest.raises(Enough):
            evaluate(model.to(device), [batch], metric, autocast=autocast)


# --- random numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda:1", "mps"])
def test_random_numbers_are_those_of_the_models_own_device(monkeypatch, name):
    states = {"cuda:0": torch.zeros(2), "cuda:1": torch.ones(2), "mps": torch.ones(2)}
    module = SimpleNamespace(
        get_rng_state=lambda device: states[str(device)],
        set_rng_state=lambda state, device: states.update({str(device): state}),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    device = torch.device(name)
    state = random_state(device)
    assert state["device_rng"].tolist() == [1, 1]
    states[name] = torch.full((2,), 7.0)
    set_random_state(state, device)
    assert states[name].tolist() == [1, 1]
    assert states["cuda:0"].tolist() == [0, 0]


# --- torch.compile ------------------------------------------------------------------------------------------------


WHOLE = {
    "patches": 'MNIST_IMAGE_TRANSFORMER["quick"]',
    "pixels": 'MNIST_PIXELS["quick"]["distance"]',
    "text": 'SHAKESPEARE["quick"]["plain"]',
    "our text": 'SHAKESPEARE["quick"]["even rows"]',
}


@pytest.mark.parametrize("name", WHOLE)
def test_compile_takes_the_whole_model(name):
    """A graph break would hand the work back to Python in the middle of a step, as the tests' type checker does."""
    code = f"""
import torch
from sciformer.lab import experiments
setting = experiments.{WHOLE[name]}
*inputs, _ = next(setting.training_batches(0))
explained = torch._dynamo.explain(setting.model())(*inputs)
print(explained.graph_count, explained.graph_break_count, explained.break_reasons)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "1 0 []\n"


COMPILED = {
    "image": ("ImageTransformer(9, 3, 1, 10, 12, 3, 1, num_queries=2, score=SCORES[name])", "torch.randn(n, 1, 9, 9)"),
    "text": ("CharTransformer(7, 40, 12, 3, 1, score=SCORES[name])", "torch.randint(7, (n, 5 * n + 1))"),
}


@pytest.mark.parametrize(
    ("model", "name"), [("image", "dot"), ("text", "dot"), ("text", "distance"), ("text", "additive")]
)
def test_a_compiled_model_serves_other_lengths_too(model, name):
    """At the second size torch traces once more, with symbols for sizes; a third is served by the same graph."""
    make, inputs = COMPILED[model]
    code = f"""
import torch
from sciformer import SCORES, CharTransformer, ImageTransformer
name = {name!r}
model = {make}
compiled = torch.compile(model, fullgraph=True, backend="eager")
for n in (2, 3, 5):
    inputs = {inputs}
    torch.testing.assert_close(compiled(inputs), model(inputs))
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.stdout, result.returncode) == ("2\n", 0), result.stderr[-2000:]
