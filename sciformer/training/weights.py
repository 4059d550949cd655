"""The weights of a model in a file: safetensors, with a checksum over every name, shape and number."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from sciformer.data.files import check_regular, written_whole
from sciformer.functional import InputError

#: How a file begins that ``torch.save`` wrote, as ``sciformer train`` did up to version 0.1.0: it is a zip archive.
ZIP = b"PK\3\4"


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Write what ``model.state_dict()`` holds, whole or not at all.

    Raises:
        OSError: if the file cannot be written.
    """
    # A copy of each, for a file has no two names for one tensor: tied weights stand in it twice.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    content = save(tensors, metadata=_metadata(tensors))
    with written_whole(path) as beside:
        beside.write_bytes(content)


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Give a model the weights that :func:`save_weights` wrote, or an earlier version's ``model.pt``.

    The latter has no checksum. No file can run code: of what ``torch.save`` wrote, only tensors are read.

    Raises:
        InputError: if the file is damaged, or its weights are not those of such a model; the model stays as it was.
        OSError: if the file cannot be read.
    """
    path = Path(path)
    check_regular(path)
    with path.open("rb") as file:
        read = _read_zip if file.read(len(ZIP)) == ZIP else _read_safetensors
    tensors = read(path)
    check_fits(tensors, model, path)
    model.load_state_dict(tensors)


def check_fits(tensors: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Hold weights to a model before they are loaded, so that none is if one does not fit.

    Raises:
        InputError: naming the first weight that is missing, too many, or of another shape, and how many there are.
    """
    wanted = model.state_dict()
    faults = [f"{name} is missing" for name in wanted if name not in tensors]
    faults += [f"{name} is none of the model's" for name in tensors if name not in wanted]
    for name, own in wanted.items():
        shape = getattr(tensors.get(name, own), "shape", None)
        if shape != own.shape:
            faults.append(f"{name} is {'no tensor' if shape is None else tuple(shape)}, wanted {tuple(own.shape)}")
    if faults:
        more = f", and {len(faults) - 1} more do not fit" if len(faults) > 1 else ""
        raise InputError(f"{path} holds the weights of another model: {faults[0]}{more}")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            kept = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path} is not a whole file of weights ({' '.join(str(error).split())})") from error
    if kept != _metadata(tensors):
        raise InputError(f"{path} is not a whole file of weights: its checksum is missing or wrong")
    return tensors


def _read_zip(path: Path) -> dict[str, Tensor]:
    try:
        return dict(torch.load(io.BytesIO(path.read_bytes()), map_location="cpu", weights_only=True))
    except Exception as error:  # torch's own, of many types
        raise InputError(f"{path} is not a whole file of weights ({type(error).__name__})") from error


def _metadata(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return {"format": "pt", "sha256": digest.hexdigest()}  # whose tensors they are: PyTorch's
