"""What one step of training costs on a GPU, measured: its time and its memory, beside what was predicted.

``results/steps.json`` holds the figures of every arm of every full profile; ``tools/measure_steps.py`` writes it. A
whole record takes hours of a GPU, some steps of each arm take minutes.
"""

import json
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from sciformer.lab.experiments import experiment
from sciformer.lab.predictions import duration, spread, training_loss, training_stream, trainings
from sciformer.lab.records import results_folder
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


@cache
def kept_steps() -> dict[str, dict[str, Step]]:
    """What ``results/steps.json`` holds: each arm's step by experiment; the only arm of an experiment is named ""."""
    content = json.loads((results_folder() / "steps.json").read_text(encoding="utf-8"))
    return {name: {arm: Step(**step) for arm, step in arms.items()} for name, arms in content["steps"].items()}


def described_steps(name: str) -> str:
    """What a step of each arm took, and what all steps of a full record come to, one training after the other.

    It is "–" where an arm is not measured, as those of the random search are not.
    """
    steps = kept_steps().get(name, {})
    arms = experiment(name).arms("full") if steps else {}
    if not steps or len(steps) < len(arms):
        return "–"
    minutes = sum(steps[arm or ""].seconds * setting.train.steps for arm, setting in arms.items()) / 60
    each = spread([1000 * step.seconds for step in steps.values()], ".0f")
    return f"{each} ms a step, {duration(trainings(name) * minutes)}"


def measure_step(setting: Any, device: torch.device | str = "cuda") -> Step:
    """Train a setting on a CUDA GPU for WARM_UP + TIMED steps, as its record would."""
    torch.manual_seed(0)
    model = setting.model().to(device)
    stream = training_stream(setting, model, device)
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
