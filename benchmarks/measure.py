"""How the benchmarks measure time and memory."""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


def median_seconds(run: Callable[[], None], repeats: int) -> float:
    """Median time of ``run``, after one that warms up and makes the gradients' memory."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def peak_bytes(run: Callable[[], None], device: str) -> int:
    """Most that torch had allocated at a time while ``run`` ran, beyond what was there before."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    first = min(events, key=lambda event: event["ts"])["args"]
    return max(e["args"]["Total Allocated"] for e in events) - (first["Total Allocated"] - first["Bytes"])
