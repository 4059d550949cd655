"""What one step of training costs on a GPU, measured: its time and its memory, beside what was predicted.

``results/steps.json`` holds the figures of every arm of every full profile; ``tools/measure_steps.py`` writes it. A
whole record takes hours of a GPU, some steps of each arm take minutes.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sciformer.lab.predictions import training_loss
from sciformer.lab.settings import MaskedImageSetting
from sciformer.training import fit

#: Steps before the clock starts, in which torch chooses its kernels and makes its memory, and steps that are timed.
WARM_UP, TIMED = 5, 20


@dataclass(frozen=True)
class Step:
    """What was measured of one step of a training.

    Args:
        seconds: from one step to the next, with the batch, the forward and the backward pass and the optimizer.
        peak_bytes: most that torch held at a time: parameters, gradients, the optimizer's averages and what is
            computed. The data that lie ready on the device are not among them.
    """

    seconds: float
    peak_bytes: int


def measure_step(setting: Any, device: torch.device | str = "cuda") -> Step:
    """Train a setting on a CUDA GPU for WARM_UP + TIMED steps, as its record would."""
    torch.manual_seed(0)
    model = setting.model().to(device)
    masked = isinstance(setting, MaskedImageSetting)
    stream = setting.training_batches(model, 0, device) if masked else setting.training_batches(0, device)
    own = sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
    data = torch.cuda.memory_allocated(device) - own
    clock: dict[int, float] = {}

    def look(step: int, model: nn.Module) -> None:
        if step in (WARM_UP, WARM_UP + TIMED):
            torch.cuda.synchronize(device)
            clock[step] = time.perf_counter()

    torch.cuda.reset_peak_memory_stats(device)
    short = setting.train.with_steps(WARM_UP + TIMED)
    fit(model, stream, training_loss(setting), short, look, progress=False)
    seconds = (clock[WARM_UP + TIMED] - clock[WARM_UP]) / TIMED
    return Step(seconds, torch.cuda.max_memory_allocated(device) - data)
