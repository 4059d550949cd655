"""What ``train`` leaves in a folder, and what is done with it: ``python -m sciformer write`` and ``read``."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from sciformer import data
from sciformer.cli.options import count, size, torch_seed
from sciformer.data.files import written_whole
from sciformer.functional import InputError
from sciformer.lab.metrics import known_metric
from sciformer.lab.runs import load_run
from sciformer.lab.settings import ImageSetting, LanguageSetting
from sciformer.lab.trainers import Run
from sciformer.models.decoding import stream
from sciformer.training.weights import save_weights

#: What ``train`` writes: the weights, the history, the picture of its losses, and the card of the model.
RUN_FILES = ("model.safetensors", "history.json", "loss.png", "README.md")

_CARD = """\
# {title}

{sentence} It was trained with `python -m sciformer train {task}` of sciformer {version}, seed {seed}: {steps} steps in
{seconds:.0f} s.

{use}

| measured at the end, one seed | |
|---|---|
{metrics}

Data: {data}. It knows nothing else: it is a model to learn from, not to rely on.

| setting | |
|---|---|
{setting}

`model.safetensors` holds the weights with a checksum, `history.json` every loss and the setting, `loss.png` the losses.
"""
_KINDS = {
    "mnist": {
        "title": "An image transformer that reads digits",
        "sentence": "It names the digit, 0 to 9, on a picture of 28 × 28 grey pixels.",
        "use": "`python -m sciformer read FOLDER picture.png` reads a picture with it.",
        "data": "MNIST, Yann LeCun and Corinna Cortes, CC BY-SA 3.0",
    },
    "shakespeare": {
        "title": "A character model that writes",
        "sentence": "It says which character comes next in a text like Shakespeare's plays.",
        "use": "`python -m sciformer write FOLDER --prompt 'ROMEO:'` lets it write.",
        "data": "Tiny Shakespeare, from Andrej Karpathy's char-rnn, public domain",
    },
}


def write_run(run: Run, setting: Any, task: str, metric: str, folder: Path) -> None:
    """Write the weights, the history, the picture of its losses, and the card."""
    from sciformer.teach import plotting

    weights, history, picture, card = (folder / file for file in RUN_FILES)
    save_weights(run.model, weights)
    content = {"seed": run.seed, "config": asdict(setting), "metrics": run.metrics, "loss": run.history.loss}
    content |= {"curves": run.history.metrics, "seconds": run.history.seconds}
    with written_whole(history) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    series: dict[str, Any] = {"training loss": run.history.loss}
    if known_metric(metric).unit == known_metric("loss").unit:  # then one axis shows both
        series[metric] = run.history.metrics[metric]
    loss = plotting.curves(series, smooth=50)
    with written_whole(picture) as beside:
        plotting.figure_of(loss).savefig(beside, dpi=150, format="png")
    with written_whole(card) as beside:
        beside.write_text(_card(run, setting, task), encoding="utf-8")
    print(f"written to {folder}: {', '.join(RUN_FILES)}")


def _card(run: Run, setting: Any, task: str) -> str:
    def rows(pairs: Mapping[str, Any]) -> str:
        return "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in pairs.items())

    options = asdict(setting)
    train, parameters = options.pop("train"), sum(p.numel() for p in run.model.parameters())
    return _CARD.format(
        task=task,
        version=metadata.version("sciformer"),
        seed=run.seed,
        steps=setting.train.steps,
        seconds=run.history.seconds,
        metrics=rows({name: f"{value:.4g}" for name, value in run.metrics.items()}),
        setting=rows({"parameters": f"{parameters:,}"} | options | train),
        **_KINDS[task],
    )


def add_runs(commands: Any) -> None:
    """Add both commands and their options."""
    write = commands.add_parser("write", help="let a language model that train has trained go on from a prompt")
    write.add_argument("run", type=Path, metavar="RUN", help="folder that train has written")
    write.add_argument("--prompt", default="\n", help="what the text begins with; a new line if not given")
    write.add_argument("--count", type=count, default=500, help="how many characters; %(default)s if not given")
    write.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        help="0 always takes the likeliest character; %(default)s if not given",
    )
    write.add_argument("--top-k", type=size, help="draw among the so many likeliest only")
    write.add_argument("--seed", type=torch_seed, default=0)
    write.set_defaults(command=run_write)
    read = commands.add_parser("read", help="read digits in pictures with an image model that train has trained")
    read.add_argument("run", type=Path, metavar="RUN", help="folder that train has written")
    read.add_argument("pictures", nargs="+", type=Path, metavar="PICTURE", help="one digit each; PNG, JPEG, ...")
    read.set_defaults(command=run_read)


def run_write(options: argparse.Namespace) -> None:
    """Write a text, each character as soon as it is chosen.

    Raises:
        InputError: if the run is no language model's, or a character of the prompt is unknown to it.
    """
    model = _model_of(options.run, LanguageSetting, "write")
    characters = data.shakespeare("val")[1]
    prompt = characters.encode(options.prompt)[None]  # (1, L)
    generator = torch.Generator().manual_seed(options.seed)
    tokens = stream(
        model, prompt, options.count, temperature=options.temperature, top_k=options.top_k, generator=generator
    )
    print(options.prompt, end="", flush=True)
    for token in tokens:
        print(characters.decode(token), end="", flush=True)
    print()


@torch.no_grad()
def run_read(options: argparse.Namespace) -> None:
    """Say of each picture which digit it shows, and how probable the likeliest three are.

    Raises:
        InputError: if the run is no image model's, or a picture is none.
    """
    model = _model_of(options.run, ImageSetting, "read").eval()
    for path in options.pictures:
        probabilities = model(data.digit_from_picture(path)[None]).softmax(dim=-1)[0]  # (10,)
        best = probabilities.topk(3)
        told = [f"{digit} ({p:.1%})" for p, digit in zip(best.values.tolist(), best.indices.tolist(), strict=True)]
        print(f"{path}: {told[0]}, then {told[1]}, {told[2]}", flush=True)


def _model_of(run: Path, kind: type, command: str) -> Any:
    model, setting, _ = load_run(run)
    if type(setting) is not kind:
        uses = {LanguageSetting: "writes text: use `write`", ImageSetting: "reads images: use `read`"}
        neither = "does neither: `write` is for language models, `read` for image models"
        raise InputError(f"`{command}` cannot use {run}, whose model {uses.get(type(setting), neither)}")
    return model
