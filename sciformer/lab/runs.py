"""What ``sciformer train`` wrote, read again: the setting, the model with its weights, and the history."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from sciformer.functional import InputError
from sciformer.lab.forms import Form, read_json
from sciformer.lab.settings import ImageSetting, LanguageSetting, NamesSetting, PixelSetting, SequenceSetting
from sciformer.training import History, TrainConfig
from sciformer.training.weights import load_weights

#: Fields of settings that runs of version 0.1.0 have not written down; they have their defaults.
ADDED_SINCE = {"test_size", "gain"}

HISTORY: Form = {
    "seed": int,
    "config": dict,
    "metrics": {str: float},
    "loss": [float],
    "curves": {str: [(int, float)]},
    "seconds": float,
}


def load_run(folder: Path) -> tuple[nn.Module, Any, History]:
    """The model that a folder of ``sciformer train`` holds, its setting and its history.

    Raises:
        InputError: if the history is no such file, its setting is none of this version's, or the weights are not
            those of its model.
        OSError: if a file cannot be read.
    """
    path = folder / "history.json"
    try:
        content = read_json(path, HISTORY)
    except InputError as error:
        raise InputError(f"{path} is no history of a training: {error}") from error
    setting = setting_of(content["config"], path)
    model = setting.model()
    load_weights(model, folder / "model.safetensors")
    curves = {name: [(step, value) for step, value in curve] for name, curve in content["curves"].items()}
    return model, setting, History(content["loss"], curves, content["seconds"])


def setting_of(config: dict[str, Any], path: Path) -> ImageSetting | LanguageSetting | SequenceSetting | NamesSetting:
    """The setting whose fields were written down.

    Raises:
        InputError: if it is none of this version's.
    """
    # What fits the last two is plain images.
    kinds = (LanguageSetting, SequenceSetting, NamesSetting, ImageSetting, PixelSetting)
    kind = next((kind for kind in kinds if _fits(config, kind)), None)
    if kind is None:
        raise InputError(f"{path} has a setting that this version does not know, with {', '.join(sorted(config))}")
    try:
        train = TrainConfig(**(config["train"] | {"betas": tuple(config["train"]["betas"])}))
        return kind(**(config | {"train": train}))
    except (TypeError, KeyError) as error:
        raise InputError(f"{path} has no such training as this version does: {error}") from error


def _fits(config: dict[str, Any], kind: type) -> bool:
    """Whether these are the fields of a setting, or those that it had in an earlier version."""
    known = {field.name for field in fields(kind)}
    return known - ADDED_SINCE <= config.keys() <= known
