"""The models of the playground: train them, each with the record that made it.

python tools/playground.py train reader        # a few minutes on one core; writes runs/playground/reader
"""

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sciformer import cli, data
from sciformer.data.files import written_whole
from sciformer.lab import records, trainers
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, MNIST_PIXELS, SHAKESPEARE, SHAKESPEARE_CELL
from sciformer.lab.runs import load_run
from sciformer.lab.settings import SMALL_MOVES, LanguageSetting
from sciformer.teach import export
from sciformer.teach.export.packing import SMALL
from sciformer.teach.trained import HERE as MODELS
from sciformer.training import text_loss

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "playground"

_STUDENT, _PIXELS = SHAKESPEARE_CELL["quick"], MNIST_PIXELS["quick"]["distance"]
#: The setting of each model, how it is trained, and the number type of its weights in the page.
PLAYGROUND: dict[str, tuple[Any, Callable[..., trainers.Run], export.DType]] = {
    # Notebook 06's image transformer.
    "reader": (MNIST_IMAGE_TRANSFORMER["quick"], trainers.train_image_transformer, "float16"),
    # One slope for both sides, pixels in a row, and a mean over the tokens: the half-turn theorem of notebook 07 holds.
    "turner": (
        replace(
            _PIXELS,
            score_options={"start": (0.02, 0.07, 0.3, 1.0)},
            augmentation=SMALL_MOVES,
            train=_PIXELS.train.with_steps(1500),
        ),
        trainers.train_pixel_transformer,
        "float16",
    ),
    # The best character model that one core trains in half an hour: notebook 08 ends with it.
    "writer": (SHAKESPEARE["long"]["2,500 steps"], trainers.train_language, "int8"),
    # A small one with plain parts, to be broken: learned positions, scores that nothing but 1/√D keeps small.
    "student": (
        replace(
            _STUDENT,
            embed_dim=64,
            train=replace(SHAKESPEARE["quick"]["muon"].train, weight_decay=0.0),
        ),
        trainers.train_language,
        "int8",
    ),
}


def train(name: str) -> None:
    """Train seed 0 of one model and write weights, history and environment to ``runs/playground``."""
    setting, run, _ = PLAYGROUND[name]
    where = records.environment("cpu")
    trained = run(setting, 0, checkpoint=RUNS / f"{name}.pt")
    task = "shakespeare" if isinstance(setting, LanguageSetting) else "mnist"
    cli.write_run(trained, setting, task, next(iter(trained.metrics)), RUNS / name)
    with written_whole(RUNS / name / "environment.json") as beside:
        beside.write_text(json.dumps(where, indent=1) + "\n", encoding="utf-8")


def pack(name: str) -> None:
    """Write one run, weights and record, beside ``sciformer.teach.trained``, which loads it."""
    dtype = PLAYGROUND[name][2]
    model, setting, history = load_run(RUNS / name)
    content = export.pack(model, history=history, setting=setting, dtype=dtype)
    run, where = (
        json.loads((RUNS / name / f"{file}.json").read_text(encoding="utf-8")) for file in ("history", "environment")
    )
    content["record"] = {key: run[key] for key in ("seed", "metrics", "seconds", "config")} | where
    if "validation loss" in run["metrics"]:
        text = data.shakespeare("val")[0]
        content["record"]["validation loss in the page"] = text_loss(rounded(model, dtype), text, setting.length)
    path = MODELS / f"{name}.json"
    with written_whole(path) as beside:
        beside.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {path}, {path.stat().st_size / 1e6:.2f} MB, {content['record']}")


@torch.no_grad()
def rounded(model: nn.Module, dtype: export.DType) -> nn.Module:
    """A copy with the weights that the page computes with."""
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        if parameter.dim() > 1 and parameter.numel() > SMALL:
            rows = parameter.flatten(1)
            scales = rows.abs().amax(dim=1, keepdim=True) / 127
            whole = (rows / scales).round() * scales if dtype == "int8" else rows.half().float()
            parameter.copy_(whole.view_as(parameter))
    return copied


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, command in (("train", train), ("pack", pack)):
        one = commands.add_parser(name)
        one.add_argument("name", choices=PLAYGROUND)
        one.set_defaults(command=command)
    options = parser.parse_args()
    options.command(options.name)


if __name__ == "__main__":
    main()
