"""The models of the playground: train them, each with the record that made it.

python tools/playground.py train reader        # a few minutes on one core; writes runs/playground/reader
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from sciformer import cli
from sciformer.data.files import written_whole
from sciformer.lab import records, trainers
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, MNIST_PIXELS, SHAKESPEARE, SHAKESPEARE_CELL
from sciformer.lab.settings import SMALL_MOVES

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "playground"

_STUDENT, _PIXELS = SHAKESPEARE_CELL["quick"], MNIST_PIXELS["quick"]["distance"]
#: The setting of each model, how it is trained, and the number type of its weights in the page.
PLAYGROUND = {
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
    # The best character model that one core trains in ten minutes.
    "writer": (SHAKESPEARE["long"]["1,000 steps"], trainers.train_language, "int8"),
    # A small one with plain parts, to be broken: learned positions, scores that nothing but 1/√D keeps small.
    "student": (
        replace(
            _STUDENT,
            embed_dim=64,
            train=replace(SHAKESPEARE["quick"]["muon"].train, weight_decay=0.0),
        ),
        trainers.train_language,
        "float16",
    ),
}


def train(name: str) -> None:
    """Train seed 0 of one model and write weights, history and environment to ``runs/playground``."""
    setting, run, _ = PLAYGROUND[name]
    where = records.environment("cpu")
    trained = run(setting, 0, checkpoint=RUNS / f"{name}.pt")
    cli.write_run(trained, setting, next(iter(trained.metrics)), RUNS / name)
    with written_whole(RUNS / name / "environment.json") as beside:
        beside.write_text(json.dumps(where, indent=1) + "\n")


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.add_argument("name", choices=PLAYGROUND)
    training.set_defaults(command=lambda options: train(options.name))
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
