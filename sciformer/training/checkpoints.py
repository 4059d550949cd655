"""Checkpoints: the state of a training in a file, from which it goes on after an interruption."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sciformer.data.files import check_regular, check_writable, written_whole
from sciformer.functional import InputError
from sciformer.training import distributed
from sciformer.training.config import Batch, History, TrainConfig
from sciformer.training.weights import check_fits

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
            ValueError: if the file is damaged, or belongs to another configuration, another run or another model; the
                model stays as it was.
            OSError: if the file cannot be read, or there are steps to come and the file cannot be written.
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
        content = io.BytesIO()  # not the file itself: torch hides the error of a full disk
        torch.save(state, content)
        content.write(hashlib.sha256(content.getbuffer()).digest())
        # Released even where writing fails: Python 3.12.0 and 3.12.1 crash when they collect such a view (gh-111211).
        with written_whole(self.path) as beside, content.getbuffer() as view:  # type: ignore[arg-type]
            beside.write_bytes(view)

    def _load(self, path: Path) -> dict[str, Any]:
        check_regular(path)
        try:
            state = torch.load(io.BytesIO(_checked(path.read_bytes())), map_location="cpu", weights_only=True)
            saved, of, model, optimizers = (state[name] for name in ("config", "of", "model", "optimizers"))
            self._check_progress(state)
        except OSError:
            raise
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
        check_fits(model, self.model, path)
        self._check_optimizers(optimizers, path)
        self.model.load_state_dict(model)
        for optimizer, optimizer_state in zip(self.optimizers, optimizers, strict=True):
            optimizer.load_state_dict(optimizer_state)
        return state

    def _check_progress(self, state: Mapping[str, Any]) -> None:
        """Use the history and the random numbers once, so that they fail now if they ever do."""
        history = History(**state["history"])
        if not 0 < len(torch.tensor(history.loss)) <= state["config"]["steps"] or history.seconds < 0:
            raise ValueError("no such history")
        torch.Generator().set_state(state["rng"])
        len(state["device_rng"])

    def _check_optimizers(self, saved: Any, path: Path) -> None:
        """What the optimizers remember has to belong to the same parameters."""
        try:
            for optimizer, state in zip(self.optimizers, saved, strict=True):
                sizes = [len(group["params"]) for group in optimizer.param_groups]
                if [len(group["params"]) for group in state["param_groups"]] != sizes:
                    raise ValueError("other groups of parameters")
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                for n, remembered in state["state"].items():
                    for value in remembered.values():
                        if isinstance(value, Tensor):
                            value.expand_as(parameters[n])
        except Exception as error:
            raise InputError(
                f"{path} holds the optimizers of another model ({' '.join(str(error).split())}); delete it to start "
                "from the beginning"
            ) from error

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
