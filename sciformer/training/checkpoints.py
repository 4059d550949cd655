"""Checkpoints: the state of a training in a file, from which it goes on after an interruption."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sciformer.data.files import check_writable, written_whole
from sciformer.functional import InputError
from sciformer.training import distributed
from sciformer.training.config import Batch, History, TrainConfig

#: A checkpoint ends with the SHA-256 digest of all that is before it.
DIGEST_BYTES = 32


class ChecksumMismatch(ValueError):
    """The bytes of a file are not those that were written."""


@dataclass(frozen=True)
class Checkpoint:
    """The file that a training is saved to now and then, and what there is to save.

    The file is what ``torch.save`` writes, followed by a checksum; ``torch.load`` reads it as it is.

    Args:
        path: the file; None to save nothing.
        every: number of steps from one save to the next. The last step is always saved.
        of: what is trained, in words: a checkpoint of something else is refused.
    """

    path: Path | None
    every: int
    of: str
    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    config: TrainConfig

    def resume(self, stream: Iterator[Batch]) -> tuple[History, Iterator[Batch]]:
        """Bring model and optimizers to where they were saved; a training without a file is at its beginning.

        Args:
            stream: the batches of the training from its first step on.

        Returns:
            The history so far, and the batches of the steps to come. The random numbers are set back as the first of
            these is asked for.

        Raises:
            ValueError: if the file is damaged, or belongs to another configuration or another run.
            OSError: if there are steps to come and the file cannot be written.
        """
        history = History()
        if self.path is not None and self.path.exists():
            state = self._load(self.path)
            history = History(**state["history"])
            stream = self._remaining(stream, len(history.loss), {name: state[name] for name in ("rng", "device_rng")})
        if self.path is not None and distributed.rank() == 0 and len(history.loss) < self.config.steps:
            check_writable(self.path)
        return history, stream

    def is_due(self, done: int) -> bool:
        """Whether this process saves after so many steps. Of several processes only that of rank 0 does."""
        if self.path is None or distributed.rank() > 0:
            return False
        return done % self.every == 0 or done == self.config.steps

    def save(self, history: History) -> None:
        """Write the file, whole or not at all."""
        state = {
            "of": self.of,
            "config": asdict(self.config),
            "history": asdict(history),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            **random_state(_device(self.model)),
        }
        with written_whole(self.path) as beside:  # type: ignore[arg-type]
            torch.save(state, beside)
            with beside.open("r+b") as file:
                file.write(hashlib.file_digest(file, "sha256").digest())

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            state = torch.load(io.BytesIO(_checked(path.read_bytes())), map_location="cpu", weights_only=True)
            saved, of, _ = state["config"], state["of"], state["device_rng"]
        except Exception as error:
            raise InputError(
                f"{path} is not a whole checkpoint ({type(error).__name__}); delete it to start from the beginning"
            ) from error
        config = asdict(self.config)
        if saved != config:
            other = {name: (saved.get(name), value) for name, value in config.items() if saved.get(name) != value}
            raise InputError(f"{path} was made with another configuration (saved, asked for): {other}")
        if of != self.of:
            raise InputError(f"{path} was made by another run (saved, asked for): {of!r}, {self.of!r}")
        self.model.load_state_dict(state["model"])
        for optimizer, optimizer_state in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        return state

    def _remaining(self, stream: Iterator[Batch], start: int, rng: Mapping[str, Tensor]) -> Iterator[Batch]:
        for _ in range(start):
            next(stream)
        set_random_state(rng, _device(self.model))  # only now: the batches may have drawn random numbers
        yield from stream


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's random number generators: of the CPU's, and of the device's own if it has one."""
    of_device = torch.empty(0)
    if device.type != "cpu":  # CUDA's module is told which GPU; Apple's knows only one
        of_device = torch.get_device_module(device).get_rng_state(device)
    return {"rng": torch.get_rng_state(), "device_rng": of_device}


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Put torch's random number generators into the state that ``random_state`` gave."""
    torch.set_rng_state(state["rng"])
    if device.type != "cpu" and len(state["device_rng"]):  # empty where the training began on a CPU
        torch.get_device_module(device).set_rng_state(state["device_rng"], device)


def _checked(content: bytes) -> bytes:
    """What ``torch.save`` wrote, if the digest behind it agrees. Without a digest, it ends as zip files do."""
    if content[-22:-18] == b"PK\5\6":  # the end record of a zip archive: saved by torch alone
        return content
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ChecksumMismatch
    return body


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
