"""What a training is given besides the model, the data and the loss, and the history that it returns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Literal

from torch import Tensor, nn

from sciformer.functional import InputError

#: The inputs of the model, followed by the target that its output is compared with.
Batch = Sequence[Tensor]
#: Called as ``on_step(number of steps done, model)``; a mapping that it returns goes into the history.
OnStep = Callable[[int, nn.Module], Mapping[str, float] | None]


@dataclass(frozen=True)
class TrainConfig:
    """How to train: everything but the model, the data and the loss.

    Args:
        steps: number of updates.
        lr: learning rate at its peak; it rises linearly for ``warmup_steps`` and then follows the ``schedule``.
        schedule: to 0 along a half ``"cosine"``, to 0 along a ``"line"``, or not at all (``"constant"``).
        optimizer: ``"adamw"``, or ``"muon"`` for the weight matrices of the stacked blocks and AdamW for the rest;
            ``"normuon"`` is the same with Muon's even rows.
        weight_decay: of matrices only, not on biases and norms.
        grad_clip: largest norm of the whole gradient.
        autocast: train in mixed precision where the GPU has bfloat16; see ``training/precision.py``.
        compile: pass the model through ``torch.compile`` first, which joins its operations into few kernels.

    Raises:
        ValueError: if a number is out of its range or the optimizer is unknown.
    """

    steps: int
    lr: float = 1e-3
    optimizer: Literal["adamw", "muon", "normuon"] = "adamw"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    warmup_steps: int = 0
    grad_clip: float = 1.0
    autocast: bool = True
    compile: bool = False
    schedule: Literal["cosine", "line", "constant"] = "cosine"

    def __post_init__(self) -> None:
        if self.schedule not in ("cosine", "line", "constant"):
            raise InputError(f'schedule must be "cosine", "line" or "constant", got {self.schedule!r}')
        if self.optimizer not in ("adamw", "muon", "normuon"):
            raise InputError(f'optimizer must be "adamw", "muon" or "normuon", got {self.optimizer!r}')
        whole = all(isinstance(count, Integral) for count in (self.steps, self.warmup_steps))
        if not whole or self.steps < 1 or not 0 <= self.warmup_steps <= self.steps:
            raise InputError(
                f"got {self.steps} steps, {self.warmup_steps} of them warm-up; need whole numbers, a step or more and "
                "0 <= warm-up <= steps"
            )
        if not 0 < self.lr < math.inf or not self.grad_clip > 0:
            raise InputError(f"lr and grad_clip must be positive, lr finite too, got {self.lr} and {self.grad_clip}")
        if not 0 <= self.weight_decay < math.inf or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(
                "weight_decay must be a finite number from 0, and betas must lie in [0, 1), "
                f"got {self.weight_decay} and {self.betas}"
            )

    def with_steps(self, steps: int) -> "TrainConfig":
        """The same training with another number of steps; the warm-up is cut where it would not fit."""
        return replace(self, steps=steps, warmup_steps=min(steps, self.warmup_steps))

    def lr_at(self, step: int) -> float:
        """Learning rate of update number ``step``, counted from 0."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)  # all may be warm-up
        left = {"cosine": (1 + math.cos(math.pi * done)) / 2, "line": 1 - done, "constant": 1.0}[self.schedule]
        return self.lr * left


@dataclass
class History:
    """What happened in a training.

    Args:
        loss: the loss of every step.
        metrics: whatever ``on_step`` returned, by name, as pairs of the number of steps done and the value.
        seconds: the time it took.
    """

    loss: list[float] = field(default_factory=list)
    metrics: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    seconds: float = 0.0

    def record(self, step: int, values: Mapping[str, float] | None) -> None:
        """Append what ``on_step`` returned after so many steps to the metrics."""
        for name, value in (values or {}).items():
            self.metrics.setdefault(name, []).append((step, value))
