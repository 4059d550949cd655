"""Measure a step of every full profile on this machine's GPU, and write results/steps.json.

python tools/measure_steps.py [FILE]
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from sciformer.data.files import written_whole
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.records import environment, results_folder
from sciformer.lab.steps import measure_step

path = Path(sys.argv[1]) if len(sys.argv) > 1 else results_folder() / "steps.json"
measured: dict[str, dict[str, dict[str, float]]] = {}
for name, each in EXPERIMENTS.items():
    if "full" in each.settings:
        for arm, setting in each.arms("full").items():
            step = measure_step(setting)
            print(f"{name}, {arm}: {1000 * step.seconds:.1f} ms, {step.peak_bytes / 1e9:.2f} GB", flush=True)
            measured.setdefault(name, {})[arm or ""] = asdict(step)
            torch.cuda.empty_cache()
with written_whole(path) as beside:
    beside.write_text(json.dumps({**environment("cuda"), "steps": measured}, indent=1) + "\n", encoding="utf-8")
print(f"written: {path}")
