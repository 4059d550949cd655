"""The same training on a quiet machine and beside busy processes, under each way in which threads may wait.

A thread without work can spin, ready at once, or sleep, and leave its core to whoever wants it. OpenMP reads which when
torch is loaded, so every training is a process of its own; its time leaves out what comes before the first step.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.models import our_loop
from sciformer.lab.experiments import BAKE_OFF_TEXT, MNIST_IMAGE_TRANSFORMER, MNIST_PIXELS, SHAKESPEARE

ROOT = Path(__file__).parents[1]
#: What the notebooks train, by name: the setting and a number of steps that takes a few seconds.
TASKS: dict[str, tuple[Any, int]] = {
    "image, notebook 06": (MNIST_IMAGE_TRANSFORMER["quick"], 30),
    "pixels, notebook 07": (MNIST_PIXELS["quick"]["distance"], 10),
    "characters, notebook 08": (SHAKESPEARE["quick"]["distance"], 30),
    "additive, notebook 16": (BAKE_OFF_TEXT["quick"]["additive"], 10),
}
#: What threads do that wait, and what says so to OpenMP before torch is loaded.
WAYS: dict[str, dict[str, str]] = {
    "spin": {},
    "sleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one alone": {"OMP_NUM_THREADS": "1"},
}
#: What the package and the notebooks set.
COURSE = "sleep"
#: How many processes keep a core each; the first is the quiet machine.
BUSY = (0, 1, 2)


def seconds(task: str) -> float:
    """How long the steps of a task take in this process; three more before them warm up."""
    setting, steps = TASKS[task]
    model = setting.model()
    our_loop(model, replace(setting, train=setting.train.with_steps(3)), "cpu")()
    train = our_loop(model, replace(setting, train=setting.train.with_steps(steps)), "cpu")
    began = time.perf_counter()
    train()
    return time.perf_counter() - began


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that keep a core each."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(*, repeats: int, limit: float = 60.0) -> Iterator[dict[str, Any]]:
    """Median seconds of every task, in every way of waiting, beside no, one and two busy processes, in random order.

    Args:
        limit: seconds after which a training is broken off; it counts as having taken so long.

    Yields:
        Rows with "task", "threads", "busy" and "seconds".
    """
    cases = [(task, way, busy) for task in TASKS for way in WAYS for busy in BUSY]
    times: dict[tuple[str, str, int], list[float]] = {case: [] for case in cases}
    untouched = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    orders = Random(0)
    for _ in range(repeats):
        for task, way, busy in orders.sample(cases, len(cases)):
            # torch comes first, so that it sees this environment and nothing that the package would add to it
            code = f"import torch; from benchmarks import busy; print(busy.seconds({task!r}))"
            command, environment = [sys.executable, "-c", code], untouched | WAYS[way]
            with busy_processes(busy):
                try:
                    done = subprocess.run(
                        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=limit
                    )
                    times[task, way, busy].append(float(done.stdout))
                except subprocess.TimeoutExpired:
                    times[task, way, busy].append(limit)
    for (task, way, busy), taken in times.items() if repeats else ():
        yield {"task": task, "threads": way, "busy": busy, "seconds": median(taken)}
