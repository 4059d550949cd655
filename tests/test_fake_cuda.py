"""What only a GPU would tell, told without one: shapes, dtypes and devices of fake CUDA tensors, under autocast."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from sciformer import (
    SCORES,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    MaskedImageModel,
    MultiHeadAttention,
    NormalizedScore,
    RotaryScore,
    Transformer,
    dot_product_scores,
)
from sciformer.exercises.ways.nb03 import TemperedScore
from sciformer.lab import experiments
from sciformer.lab.fake_cuda import _backward, can_fake_cuda, fake_cuda
from sciformer.models import masked_image
from sciformer.scores import WELLS

pytestmark = pytest.mark.skipif(not can_fake_cuda(), reason="this torch cannot play a GPU")


@pytest.mark.parametrize(
    ("version", "gpu", "can"), [("2.9.1+cu128", False, False), ("2.9.1+cu128", True, True), ("2.10.0", False, True)]
)
def test_old_versions_need_a_gpu_that_is_there(version, gpu, can, monkeypatch):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert can_fake_cuda() is can


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Tangled(nn.Module):
    """A graph with everything that ours have: shared parameters, several outputs, a checkpoint, two dtypes, no path."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.scale, self.unused = nn.Parameter(torch.rand(())), nn.Parameter(torch.rand(2))

    def forward(self, x):
        first, _, third = checkpoint(self.linear, x, use_reentrant=False).chunk(3)
        return self.scale * Doubled.apply(first.double() @ third.double().mT) + self.linear(x[:1]).sum() * self.scale


def test_the_backward_pass_of_fake_tensors_is_that_of_torch():
    torch.manual_seed(0)
    model, x = Tangled(), torch.randn(3, 3)
    model(x).square().sum().backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    _backward(model(x).square().sum())
    assert {name for name, gradient in expected.items() if gradient is None} == {"unused"}
    for name, p in model.named_parameters():
        assert_close(p.grad, expected[name])


def test_a_gradient_on_another_device_is_refused():
    class Strays(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return gradient.cpu()

    with fake_cuda() as device:
        x = torch.ones(2, device=device, requires_grad=True)
        with pytest.raises(RuntimeError, match="mixes devices: cpu for cuda:0"):
            Strays.apply(x).sum().backward()


def test_everything_is_as_before_afterwards():
    backward, log = torch.Tensor.backward, torch._subclasses.fake_tensor.log.disabled
    with fake_cuda() as device, torch.autocast("cuda", torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        assert torch.empty(2, device=device).device == torch.device("cuda:0")
    assert torch.Tensor.backward is backward
    assert torch._subclasses.fake_tensor.log.disabled is log
    assert type(torch.empty(2)) is torch.Tensor
    assert not torch.is_autocast_enabled("cuda")


# --- every model, every score, the sizes of both profiles ------------------------------------------------------------


class NegativeDistance(nn.Module):
    """The one of docs/homework.md."""

    def __init__(self, num_heads, head_dim):
        super().__init__()

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return -torch.cdist(query, key)


class CosineScore(nn.Module):
    """Notebook 17's."""

    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((num_heads,), math.log(10.0)))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        cosine = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
        return self.log_scale.exp().clamp(max=100.0)[:, None, None] * cosine


class KeyBiasScore(nn.Module):
    """Notebook 03's."""

    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_heads, 1, head_dim))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return dot_product_scores(query, key) + (key * self.weight).sum(dim=-1)[..., None, :]


#: Every score of the package, each well in both forms, and scores as a reader writes them.
ALL_SCORES = {
    **SCORES,
    **{f"{well}, field": partial(EnergyWellScore, well=well, form="field") for well in WELLS},
    "each side": partial(DistanceBiasedScore, each_side=True),
    "rotary": RotaryScore,
    "normalized": NormalizedScore,
    "NegativeDistance": NegativeDistance,
    "CosineScore": CosineScore,
    "KeyBiasScore": KeyBiasScore,
    "TemperedScore": TemperedScore,
}
#: One layer of each setting: the others are like it.
MODELS = {
    "patches": lambda profile: experiments.MNIST_IMAGE_TRANSFORMER[profile],
    "pixels": lambda profile: experiments.MNIST_PIXELS[profile]["sinusoidal"],
    "text": lambda profile: experiments.SHAKESPEARE[profile]["plain"],
    "our text": lambda profile: experiments.SHAKESPEARE[profile]["even rows"],
    "masked images": lambda profile: experiments.MASKED_IMAGES[profile],
    "reversal": lambda profile: experiments.REVERSAL[profile]["sinusoidal"],
    "dates": lambda profile: experiments.DATES[profile],
}
KEEPS_POSITIONS = {"distance", "each side", "rotary"}
COMBINATIONS = [
    (model, score, profile)
    for profile in ("quick", "full")
    for model in MODELS
    for score in ALL_SCORES
    if not (model == "masked images" and score in KEEPS_POSITIONS)
]


def one_layer(kind, score, profile):
    """A model of one layer, a batch of its inputs on no device yet, and how many patches are visible."""
    setting = replace(MODELS[kind](profile), num_layers=1)
    batch, recipe = setting.batch_size, ALL_SCORES[score]
    if kind in ("reversal", "dates"):
        cross = recipe if score not in KEEPS_POSITIONS else DotProductScore
        of_source, of_target = map(len, setting.vocabularies)
        sizes = (setting.max_length, setting.embed_dim, setting.num_heads, 1)
        scores = {"encoder_score": recipe, "decoder_score": recipe, "cross_score": cross}
        network = Transformer(of_source, of_target, *sizes, norm_first=setting.norm_first, **scores)
        return network, [torch.ones(batch, setting.max_length, dtype=torch.long)] * 2
    if kind == "masked images":
        options = {"decoder_dim": setting.decoder_dim, "score": recipe, "expansion": setting.expansion}
        network = MaskedImageModel(28, 4, 1, setting.embed_dim, setting.num_heads, 1, **options)
        return network, [torch.zeros(batch, 1, 28, 28), torch.ones(batch, 49, dtype=torch.bool)]
    network = replace(setting, score=recipe, score_options={}).model()
    if kind in ("text", "our text"):
        return network, [torch.zeros(batch, setting.length, dtype=torch.long)]
    side = network.to_sequence.image_shape[1]
    return network, [torch.zeros(batch, 1, side, side)]


class NoFloat64(TorchDispatchMode):
    """Refuses what Apple's GPUs do not have and others are slow at."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.device.type == "cuda" and x.dtype == torch.float64:
                raise TypeError(f"{function} makes a float64 tensor of shape {tuple(x.shape)} on the GPU")
        return result


def run(network, inputs):
    """Forward and backward on a fake GPU under autocast; every tensor has to be there, and nothing may be read."""
    given_on = []
    with fake_cuda() as device, NoFloat64():
        network.to(device)
        for module in network.modules():
            if isinstance(module, MultiHeadAttention):  # what attention hands on: the average of the values
                module.out_proj.register_forward_pre_hook(lambda _, given: given_on.append(given[0].dtype))
        with torch.autocast("cuda", torch.bfloat16):
            output = network(*(x.to(device) for x in inputs))
        output.sum().backward()
        return output, given_on


def check(network, inputs):
    output, handed_on = run(network, inputs)
    gpu = torch.device("cuda:0")
    assert (output.dtype, output.device) == (torch.bfloat16, gpu)
    assert handed_on
    assert set(handed_on) == {torch.bfloat16}
    for name, p in network.named_parameters():
        assert p.device == gpu, name
        assert p.grad is None or (p.grad.device, p.grad.dtype) == (gpu, torch.float32), name


@pytest.fixture(autouse=True)
def a_quarter_is_visible(monkeypatch):
    """The one number that a masked image model reads."""
    monkeypatch.setattr(masked_image, "fewest_and_most", lambda visible: (12, 12))


@pytest.mark.parametrize(("kind", "score", "profile"), COMBINATIONS)
def test_it_runs_on_a_gpu_under_autocast_and_never_waits(kind, score, profile):
    check(*one_layer(kind, score, profile))


def test_a_tensor_left_on_the_cpu_is_caught(monkeypatch):
    class LeftBehind(DotProductScore):
        def forward(self, query, key, **options):
            return super().forward(query, key, **options) - 0.1 * torch.arange(key.shape[-2])

    monkeypatch.setitem(ALL_SCORES, "left behind", LeftBehind)
    two = r"found (at least two devices, cuda:0 and cpu|two different devices cuda:0, cpu)"  # 2.11: the second
    with pytest.raises(RuntimeError, match=two):
        check(*one_layer("patches", "left behind", "quick"))


def test_float32_that_leaks_out_of_attention_is_caught(monkeypatch):
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *inputs, **options: fused(*inputs, **options).float())
    with pytest.raises(AssertionError, match=r"torch\.float32"):
        check(*one_layer("patches", "dot", "quick"))


def test_float64_which_apples_gpus_do_not_have_is_caught(monkeypatch):
    class Precise(DotProductScore):
        def forward(self, query, key, **options):
            return super().forward(query.double(), key.double(), **options).float()

    monkeypatch.setitem(ALL_SCORES, "precise", Precise)
    with pytest.raises(TypeError, match="makes a float64 tensor"):
        check(*one_layer("patches", "precise", "quick"))


def test_how_many_combinations(capsys):
    with capsys.disabled():
        print(f"\n{len(COMBINATIONS)} combinations of model, score and profile ran on a fake GPU")
    assert len(COMBINATIONS) == 2 * (len(MODELS) * len(ALL_SCORES) - len(KEEPS_POSITIONS))
