"""Time and memory of a computation."""

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Median time of ``run``, after one that warms up and makes the gradients' memory."""
    return median_seconds_in_turns([run], repeats)[0]


def median_seconds_in_turns(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median time of each of several computations, after one of each that warms up.

    They take turns, so that a noisy machine is noisy for all: the ratio of two medians says more than either.
    """
    return [statistics.median(own) for own in _seconds_in_turns(runs, repeats)]


def fastest_seconds_in_turns(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The shortest time of each of several computations, which other programs on the machine disturb least."""
    return [min(own) for own in _seconds_in_turns(runs, repeats)]


def _seconds_in_turns(runs: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Each computation's times, after one of each that warms up.

    Each round has an order of its own, or the same one would always come after one that empties the processor's caches.
    """
    times: list[list[float]] = [[] for _ in runs]
    turns, orders = list(zip(runs, times, strict=True)), random.Random(0)
    for _ in range(repeats + 1):
        orders.shuffle(turns)
        for run, own in turns:
            began = time.perf_counter()
            run()
            own.append(time.perf_counter() - began)
    return [own[1:] for own in times]


def peak_bytes(run: Callable[[], object], device: torch.device | str) -> int:
    """Most that torch had allocated at a time while ``run`` ran, beyond what was there before."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = [
            event
            for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
            if event.get("name") == "[memory]"
        ]
    first = min(events, key=lambda event: event["ts"])["args"]
    return max(e["args"]["Total Allocated"] for e in events) - (first["Total Allocated"] - first["Bytes"])
