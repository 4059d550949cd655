"""What needs a CUDA GPU that is there: every score, training, checkpoints, compilation and memory on it."""

from dataclasses import replace

import jaxtyping
import pytest
import torch
from scoring import RECIPES, WRAPPED
from torch.testing import assert_close

from sciformer import CharTransformer, DotProductScore
from sciformer.fast import attention
from sciformer.lab import experiments
from sciformer.lab.measuring import peak_bytes
from sciformer.lab.predictions import training_loss
from sciformer.lab.steps import measure_step
from sciformer.lab.trainers import train_image_transformer, train_language
from sciformer.teach.properties import MASKS, B, H, L, built, masks, random_qkv
from sciformer.teach.properties import D as WIDTH
from sciformer.training import TrainConfig, fit, next_token_loss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

ALL = RECIPES | WRAPPED


def outputs_and_gradients(score, inputs, **options):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    output, _ = attention(score, *inputs, **options)
    learnable = [p for p in score.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(output.sin().sum(), [*inputs, *learnable], allow_unused=True)
    return [output, *(g for g in gradients if g is not None)]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ALL)
def test_every_score_computes_on_a_gpu_what_it_does_on_a_cpu(name, kind):
    attn_mask, is_causal = masks(kind)
    score, inputs = built(ALL[name]), random_qkv(B, H, L, L, WIDTH)
    for need_weights in (False, True):
        here = outputs_and_gradients(
            score.cpu(), inputs, attn_mask=attn_mask, is_causal=is_causal, need_weights=need_weights
        )
        there = outputs_and_gradients(
            score.cuda(),
            [x.cuda() for x in inputs],
            attn_mask=None if attn_mask is None else attn_mask.cuda(),
            is_causal=is_causal,
            need_weights=need_weights,
        )
        for one, other in zip(here, there, strict=True):
            assert other.is_cuda
            assert_close(other.cpu(), one, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RECIPES)
def test_fast_paths_keep_their_digits_on_a_gpu(name):
    """300 tokens, where blocks are several: float32 beside the readable path in float64."""
    if name.endswith("grid"):
        pytest.skip("its grid is three wide")
    score = built(RECIPES[name]).cuda()
    inputs = [x.cuda() for x in random_qkv(2, 3, 300, 300, WIDTH)]
    exact = outputs_and_gradients(score.double(), inputs, is_causal=True, need_weights=True)
    fast = outputs_and_gradients(score.float(), [x.float() for x in inputs], is_causal=True)
    for one, other in zip(exact, fast, strict=True):
        assert (one - other).norm() <= 1e-3 * one.norm() + 1e-6


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_scales_of_0_and_less_hide_what_is_to_be_hidden(scale, dtype, is_causal):
    """49 tokens do not fill the kernels' blocks."""
    score, inputs = DotProductScore(3, 16, scale=scale), [x.cuda() for x in random_qkv(2, 3, 49, 49, 16)]
    exact, _ = attention(score, *inputs, is_causal=is_causal, need_weights=True)
    fast, _ = attention(score, *(x.to(dtype) for x in inputs), is_causal=is_causal)
    assert_close(fast.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)


def losses(setting, device):
    torch.manual_seed(0)
    model = setting.model().to(device)
    short = replace(setting.train.with_steps(6), autocast=False)
    batches = setting.training_batches(0, device)
    return torch.tensor(fit(model, batches, training_loss(setting), short, progress=False).loss)


@pytest.mark.parametrize("name", ["mnist-image-transformer", "mnist-pixels", "shakespeare", "bake-off-text"])
def test_the_first_steps_of_a_training_are_those_of_the_cpu(name):
    """In float32, the quick profile's first arm: the losses part only as rounding errors grow."""
    setting = next(iter(experiments.experiment(name).arms("quick").values()))
    here, there = losses(setting, "cpu"), losses(setting, "cuda")
    assert_close(there, here, rtol=5e-3, atol=0)


def test_a_training_learns_on_a_gpu():
    digits = replace(
        experiments.MNIST_IMAGE_TRANSFORMER["quick"],
        train=experiments.MNIST_IMAGE_TRANSFORMER["quick"].train.with_steps(150),
    )
    assert train_image_transformer(digits, 0, device="cuda", progress=False).metrics["test accuracy"] > 0.9
    text = experiments.SHAKESPEARE["quick"]["distance"]
    run = train_language(replace(text, train=text.train.with_steps(200)), 0, device="cuda", progress=False)
    assert run.metrics["validation loss"] < 2


class Broken(Exception):
    pass


def test_an_interrupted_training_goes_on_exactly(tmp_path):
    """With dropout, whose random numbers are the GPU's own."""

    def train(checkpoint=None, stop=None):
        torch.manual_seed(0)
        model = CharTransformer(11, 16, 16, 2, 2, dropout=0.2).cuda()
        tokens = torch.randint(11, (200, 17), generator=torch.Generator().manual_seed(0)).cuda()
        data = [(part[:, :-1], part[:, 1:]) for part in tokens.split(20)]

        def look(step, model):
            if step == stop:
                raise Broken

        config = TrainConfig(steps=20, lr=1e-2)
        options = {"checkpoint": checkpoint, "checkpoint_every": 5, "progress": False}
        return fit(model, data, next_token_loss, config, look, **options).loss

    whole, file = train(), tmp_path / "saved.pt"
    with pytest.raises(Broken):
        train(file, stop=13)
    assert train(file) == whole


@pytest.fixture
def unchecked():
    """No shapes are checked, since torch's compiler cannot read what checks them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_a_compiled_model_computes_the_same(unchecked):
    torch.manual_seed(0)
    model = experiments.MNIST_IMAGE_TRANSFORMER["quick"].model().cuda().eval()
    images = torch.rand(8, 1, 28, 28, device="cuda")
    assert_close(torch.compile(model)(images), model(images), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "dropout", "grows"),
    [
        (torch.float32, 0.0, 2),
        (torch.float16, 0.0, 2),
        (torch.bfloat16, 0.0, 2),
        (torch.float32, 0.1, 2),
        (torch.bfloat16, 0.1, 2),
        (torch.float64, 0.0, 4),
    ],
)
def test_the_fused_kernels_hold_no_matrix(dtype, dropout, grows):
    """What the page on mechanisms says of the dot product's memory on a GPU, with twice as many tokens."""

    def needs(length):
        inputs = [torch.randn(1, 2, length, 32, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]

        def step():
            attention(DotProductScore(2, 32), *inputs, is_causal=True, dropout_p=dropout)[0].sum().backward()

        step()
        return peak_bytes(step, "cuda")

    assert needs(8192) / needs(4096) == pytest.approx(grows, rel=0.1)


def test_a_step_is_measured():
    step = measure_step(experiments.REVERSAL["quick"]["sinusoidal"])
    assert 0 < step.seconds < 1
    assert 1e6 < step.peak_bytes < 1e9
