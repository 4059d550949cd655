"""Trained models that come with the package, each with the record of the run that made it.

============ ================================================================================================
``reader``   notebook 06's image transformer: reads a digit of 28 × 28 pixels
``turner``   the distance-biased model of notebook 07, which cannot tell a digit from the same one turned by 180°
``writer``   the character model with which notebook 08 ends: writes Shakespeare
``student``  a small character model of plain parts, to be broken
``namer``    the model of notebook 11 that looks at two or three digits in a row and writes their names
``answerer`` the model of notebook 11 that reads a story and says where somebody is
============ ================================================================================================

``tools/playground.py`` trains and packs the first four, which the site's playground shows, and
``tools/trained_runs.py`` the last two, which are folders as ``sciformer train`` writes them.
"""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sciformer.functional import InputError
from sciformer.lab.runs import load_run, setting_of
from sciformer.teach.export.describing import Describer
from sciformer.teach.export.packing import Packed

HERE = Path(__file__).parent


def load(name: str) -> nn.Module:
    """A trained model, on the CPU and ready to be used: ``trained.load("writer").generate(prompt, 600)``.

    Its matrices are as they are in the file, some models' in float16 or int8, so that their numbers differ a little
    from those of the run: :func:`record` has both.

    Raises:
        InputError: if there is no model of this name, naming those that there are.
    """
    if name in _folders():
        return load_run(HERE / name)[0].eval()
    content = _content(name)
    model = setting_of(content["record"]["config"], _path(name)).model()
    fresh = Packed("float32")
    if Describer(fresh)(model, "model") != content["model"]:
        raise InputError(f"{_path(name)} describes another model than its record: its tensors have no place in it")
    stored = bytearray(base64.b64decode(content["bytes"]))
    with torch.no_grad():
        for tensor, described in zip(fresh.tensors, content["tensors"], strict=True):
            tensor.copy_(_unpacked(stored, described))
    return model.eval()


def untrained(name: str) -> nn.Module:
    """The same kind of model before its training, with parameters drawn from torch's generator; ready to be used.

    Raises:
        InputError: as :func:`load`.
    """
    return setting_of(record(name)["config"], _path(name)).model().eval()


def record(name: str) -> dict[str, Any]:
    """The run that made a model: its setting and seed, what was measured, the seconds, versions, commit and date.

    Raises:
        InputError: as :func:`load`.
    """
    if name in _folders():
        history = json.loads((HERE / name / "history.json").read_text(encoding="utf-8"))
        return {key: value for key, value in history.items() if key not in ("loss", "curves")}
    return _content(name)["record"]


def _path(name: str) -> Path:
    return HERE / f"{name}.json"


def _content(name: str) -> dict[str, Any]:
    there = {path.stem for path in HERE.glob("*.json")}
    if name not in there:
        raise InputError(f"there is no trained model {name!r}; there are {', '.join(sorted(there | _folders()))}")
    return json.loads(_path(name).read_text(encoding="utf-8"))


def _folders() -> set[str]:
    """The models that are kept as ``sciformer train`` writes them."""
    return {path.parent.name for path in HERE.glob("*/history.json")}


def _unpacked(stored: bytearray, described: dict[str, Any]) -> Tensor:
    """One tensor as :class:`Packed` wrote it."""
    shape = described["shape"]
    numbers = _read(stored, described["start"], shape, getattr(torch, described["dtype"])).float()
    if "scales" in described:
        numbers = numbers * _read(stored, described["scales"], [*shape[:-1], 1], torch.float32)
    return numbers


def _read(stored: bytearray, start: int, shape: list[int], dtype: torch.dtype) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.frombuffer(stored, dtype=dtype, count=count, offset=start).view(shape)
