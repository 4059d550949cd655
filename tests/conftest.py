"""Common ground: few threads, so that small tensors are not slowed by handing work around; and small experiments."""

import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import jaxtyping
import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

# Every call of the rooms that hand tensors about is held to its annotations; what checks exercises takes anything that
# a learner wrote. A process that a test starts is not held: it imports no conftest.
CORE = ("functional", "scores", "attention", "positions", "blocks")
ROOMS = (*CORE, "models", "fast", "data", "training", "lab", "teach")
jaxtyping.install_import_hook([f"sciformer.{room}" for room in ROOMS], "typechecker.check")

from scoring import RECIPES  # noqa: E402

from sciformer import data, fast  # noqa: E402 - after the hook, which works on what is imported later
from sciformer.lab import experiments, settings, trainers  # noqa: E402
from sciformer.lab.experiments import EXPERIMENTS  # noqa: E402
from sciformer.teach.properties import D, H, L, built  # noqa: E402

torch.set_num_threads(1)
mpl.use("Agg")


@pytest.fixture(autouse=True)
def refused_by_the_package_itself(monkeypatch):
    """What a test expects to be refused is refused in the package's own words, and not by the type checker before."""
    raises = pytest.raises

    @contextmanager
    def unchecked(*args, **options):
        with raises(*args, **options) as raised:
            jaxtyping.config.update("jaxtyping_disable", True)
            try:
                yield raised
            finally:
                jaxtyping.config.update("jaxtyping_disable", False)

    monkeypatch.setattr(pytest, "raises", unchecked)


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    plt.close("all")


@pytest.fixture(params=RECIPES)
def recipe(request):
    return RECIPES[request.param]


@pytest.fixture
def score(recipe):
    return built(recipe)


@pytest.fixture(params=[L, 3, 1], ids=lambda queries: f"{queries} queries at once")
def blocks(request, monkeypatch):
    """How much a block holds where the fast path is made of blocks: one example, or a part of one.

    Where it is made of runs of keys, these are as long, but at least 2: of 7 keys, runs of 3 make two levels. Where a
    hidden layer comes in chunks, these are of as many queries, but of one head.
    """
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", request.param * H * L)
    monkeypatch.setattr(fast.additive, "HIDDEN_NUMBERS", request.param * L * D)
    monkeypatch.setattr(fast.separable, "RUN", max(2, request.param))


@pytest.fixture
def tiny_pixels(monkeypatch):
    """The pixel experiment with settings that take no time."""
    arms = {
        arm: replace(setting, pooling=7, score_options=setting.score_options | {"width": 4} if score else {})
        for arm, setting in experiments.MNIST_PIXELS["quick"].items()
        for score in [setting.score_options]
    }
    monkeypatch.setitem(EXPERIMENTS, "mnist-pixels", replace(EXPERIMENTS["mnist-pixels"], settings={"quick": arms}))
    return list(arms)


@pytest.fixture
def short_text(monkeypatch):
    """Tiny Shakespeare's first 2,000 characters in both splits, so that a look at the validation loss takes no time."""
    tokens, vocabulary = data.shakespeare()
    for module in (settings, trainers):
        monkeypatch.setattr(module, "shakespeare", lambda split="train": (tokens[:2000], vocabulary))


@pytest.fixture
def small_disk(tmp_path):
    """A folder that holds 256 KB and no more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("may not mount a small tmpfs here: needs Linux and root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="session", autouse=True)
def checkers_by_themselves(tmp_path_factory):
    """No test reads or writes the progress of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCIFORMER_PROGRESS", str(tmp_path_factory.mktemp("progress") / "progress.json"))
        yield
