"""What the notebooks train and what ``results/`` records: one definition for both.

An experiment is a setting for each profile and a function that trains it once for one seed. A record is the JSON file
of all its seeds, written only when every one of them has finished.
"""

import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from sciformer.data import batches, mnist, random_affine
from sciformer.files import written_whole
from sciformer.metrics import accuracy, mean_and_error
from sciformer.models import ImageTransformer
from sciformer.positions import POSITIONS
from sciformer.scores import SCORES
from sciformer.training import Batch, History, TrainConfig, evaluate, fit

Profile = Literal["quick", "full"]


@dataclass(frozen=True)
class ImageSetting:
    """One image transformer on MNIST: data, model and training.

    Args:
        size: which MNIST, see :func:`sciformer.data.mnist`.
        augmentation: arguments of :func:`sciformer.data.random_affine`.
    """

    size: Literal["small", "full"]
    patch_size: int
    embed_dim: int
    num_heads: int
    num_layers: int
    expansion: float
    batch_size: int
    train: TrainConfig
    score: str = "dot"
    positions: str = "learned"
    dropout: float = 0.0
    num_queries: int = 0
    augmentation: dict[str, float] = field(default_factory=dict)

    def model(self) -> ImageTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            ValueError: if the score or the positions have an unknown name.
        """
        for name, known in ((self.score, SCORES), (self.positions, POSITIONS)):
            if name not in known:
                raise ValueError(f"{name!r} is unknown; there are {', '.join(known)}")
        return ImageTransformer(
            28,
            self.patch_size,
            1,
            10,
            self.embed_dim,
            self.num_heads,
            self.num_layers,
            score=SCORES[self.score],
            positions=POSITIONS[self.positions],
            expansion=self.expansion,
            dropout=self.dropout,
            num_queries=self.num_queries,
        )

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches of digits, each shifted, turned and stretched a little."""
        images, labels = (tensor.to(device) for tensor in mnist("train", size=self.size))
        augment = partial(random_affine, **self.augmentation) if self.augmentation else None  # type: ignore[arg-type]
        return batches(images, labels, batch_size=self.batch_size, seed=seed, augment=augment)

    def test_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The test digits, once, as they are."""
        images, labels = (tensor.to(device) for tensor in mnist("test", size=self.size))
        return list(zip(images.split(1000), labels.split(1000), strict=True))


@dataclass
class Run:
    """One seed of an experiment.

    Args:
        figures: what the run is judged by, by name.
    """

    seed: int
    model: nn.Module
    history: History
    figures: dict[str, float]


def train_image_transformer(
    setting: ImageSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Train once; measure the test accuracy, from 0 to 1, ten times on the way and at the end."""
    torch.manual_seed(seed)
    model = setting.model().to(device)
    test_batches = setting.test_batches(device)
    every = max(1, setting.train.steps // 10)

    def look(step: int, model: nn.Module) -> dict[str, float] | None:
        return {"test accuracy": evaluate(model, test_batches, accuracy)} if step % every == 0 else None

    stream = setting.training_batches(seed, device)
    history = fit(model, stream, F.cross_entropy, setting.train, look, checkpoint=checkpoint, progress=progress)
    return Run(seed, model, history, {"test accuracy": evaluate(model, test_batches, accuracy)})


_SMALL_MOVES = {"degrees": 10.0, "translate": 2.0, "scale": 0.1}

# Chosen by the accuracy on 10,000 other digits of MNIST's training set; the test digits took no part in it.
MNIST_IMAGE_TRANSFORMER: dict[Profile, ImageSetting] = {
    "quick": ImageSetting(
        size="small",
        patch_size=7,
        embed_dim=64,
        num_heads=4,
        num_layers=3,
        expansion=2,
        num_queries=8,
        batch_size=128,
        train=TrainConfig(steps=1500, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=100),
        augmentation=_SMALL_MOVES,
    ),
    "full": ImageSetting(
        size="full",
        patch_size=4,
        embed_dim=64,
        num_heads=4,
        num_layers=6,
        expansion=2,
        num_queries=4,
        batch_size=256,
        train=TrainConfig(steps=24_000, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=500),
        augmentation=_SMALL_MOVES,
    ),
}


@dataclass(frozen=True)
class Experiment:
    """A name that ``python -m sciformer record`` knows.

    Args:
        settings: the setting of each profile.
        run: trains one seed: ``run(setting, seed, device=…, progress=…)``.
        seeds: how many seeds a record has.
    """

    settings: dict[Profile, Any]
    run: Callable[..., Run]
    seeds: int


EXPERIMENTS: dict[str, Experiment] = {
    "mnist-image-transformer": Experiment(MNIST_IMAGE_TRANSFORMER, train_image_transformer, seeds=5),
}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: if there is none; names those that there are.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def record(
    name: str,
    profile: Profile,
    *,
    seeds: int | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    out: Path | None = None,
    steps: int | None = None,
) -> Path:
    """Train every seed of an experiment and write its record.

    Args:
        seeds: how many, if not as many as the experiment says.
        jobs: how many seeds train at the same time, each in a process of its own.
        out: folder of the record; :func:`results_folder` where it is not given.
        steps: train for that many steps instead, for a rehearsal.

    Returns:
        The file written.

    Raises:
        ValueError: if the experiment is unknown or there is no seed.
    """
    what = experiment(name)
    setting = what.settings[profile]
    if steps is not None:
        setting = replace(setting, train=setting.train.with_steps(steps))
    all_seeds = range(what.seeds if seeds is None else seeds)
    if not all_seeds:
        raise ValueError(f"a record needs at least 1 seed, got {seeds}")
    began = time.perf_counter()
    if jobs == 1:
        runs = [_summary(what.run, setting, seed, device) for seed in all_seeds]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            runs = list(pool.map(partial(_summary, what.run, setting, device=device), all_seeds))
    content = {
        "name": name,
        "profile": profile,
        "config": asdict(setting),
        "seeds": list(all_seeds),
        "runs": runs,
        "seconds": round(time.perf_counter() - began, 1),
        **environment(device),
    }
    path = (out or results_folder()) / record_file(name, profile)
    with written_whole(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _summary(run: Callable[..., Run], setting: Any, seed: int, device: torch.device | str) -> dict[str, Any]:
    result = run(setting, seed, device=device)
    loss = torch.tensor(result.history.loss)
    pieces = torch.arange(1, len(loss) + 1).tensor_split(min(200, len(loss)))  # 200 points are enough for a curve
    curves = {"loss": [(int(piece[-1]), round(loss[piece - 1].mean().item(), 5)) for piece in pieces]}
    return {
        "seed": seed,
        "parameters": sum(p.numel() for p in result.model.parameters()),
        "figures": result.figures,
        "curves": curves | result.history.metrics,
        "seconds": round(result.history.seconds, 1),
    }


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Where a figure comes from: device, versions, threads, commit."""
    on_cuda = torch.device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else f"CPU, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None  # installed from a wheel


def results_folder() -> Path:
    """Where the records lie: inside an installed package, beside it in a checkout."""
    inside = Path(__file__).parent / "results"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "results"


def record_file(name: str, profile: Profile) -> str:
    """File name of a record; that of the full profile, the real experiment, is just the name."""
    return f"{name}.json" if profile == "full" else f"{name}.{profile}.json"


def load_record(name: str, profile: Profile = "full", folder: Path | None = None) -> dict[str, Any] | None:
    """A record, or None if that run has not been made.

    Raises:
        ValueError: if the experiment is unknown, or the file is not a whole record.
    """
    experiment(name)
    path = (folder or results_folder()) / record_file(name, profile)
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        whole = [run["seed"] for run in content["runs"]] == content["seeds"] and len(content["seeds"]) > 0
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a whole record ({error!r}); record {name} again") from error
    if not whole:
        raise ValueError(f"{path} lacks some of its seeds; record {name} again")
    return content


def describe_record(name: str, figure: str, profile: Profile = "full") -> str:
    """One line for a notebook: mean ± standard error of a share over the seeds, on what, or 'not recorded yet'."""
    content = load_record(name, profile)
    if content is None:
        return f"{name}, {profile} profile: not recorded yet"
    mean, error = mean_and_error([run["figures"][figure] for run in content["runs"]])
    seconds, _ = mean_and_error([run["seconds"] for run in content["runs"]])
    return (
        f"{name}, {profile} profile: {figure} {100 * mean:.2f} ± {100 * error:.2f} % over "
        f"{len(content['seeds'])} seeds, {content['runs'][0]['parameters']:,} parameters, "
        f"{seconds:.0f} s each on {content['device']}"
    )
