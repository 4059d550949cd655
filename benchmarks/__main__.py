"""Measure the package beside its peers; print a table, write benchmarks.json, benchmarks.png and roofline.png."""

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks import attention, busy, models, report
from sciformer.data.files import written_whole
from sciformer.lab.claims import between_marks
from sciformer.lab.records import environment
from sciformer.lab.roofline import measure_machine

PEERS = ("x-transformers", "vit-pytorch")
HERE = Path(__file__).parents[1]


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    top.add_argument("--out", type=Path, default=HERE / "results", help="folder to write to")
    top.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024, 4096, 16384, 65536], help="tokens")
    top.add_argument("--repeats", type=int, default=15, help="turns of a model, or of a layer at 1,024 tokens")
    top.add_argument("--trainings", type=int, default=1, help="turns of a training beside busy processes")
    top.add_argument("--threads", type=int, default=torch.get_num_threads())
    top.add_argument("--limit", type=float, default=8.0, help="gigabytes that one pass may take")
    top.add_argument("--patience", type=float, default=8.0, help="seconds that one pass may take")
    top.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    top.add_argument("--write", type=Path, metavar="results/README.md", help="measure nothing: renew this page")
    return top


def machine() -> dict[str, Any]:
    """The processor, its cores and the memory."""
    processors = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", processors.read_text(encoding="utf-8")) if processors.exists() else None
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    return {
        "processor": named[1] if named else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "gigabytes": None if memory is None else round(memory / 1e9),
    }


def versions(names: Iterable[str]) -> dict[str, str | None]:
    """The version of each package that is installed, else None."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rows, and where they come from."""
    content = environment(options.device)
    content["versions"] |= versions(PEERS)
    content |= {"machine": machine(), "limit": options.limit, "patience": options.patience, "layers": []}
    limits = measure_machine(options.device)
    content["roof"] = asdict(limits)
    for row in attention.measure(
        options.lengths,
        repeats=options.repeats,
        limit=options.limit,
        patience=options.patience,
        machine=limits,
        device=options.device,
    ):
        outcome = row.get("why not") or (
            f"{row['milliseconds']:10.2f} ms {row['megabytes']:10.2f} MB{report.share(row)}"
        )
        print(f"{row['length']:6} tokens  {report.label(row):34} {outcome}", flush=True)
        content["layers"].append(row)
    content["models"] = list(models.measure(repeats=options.repeats, machine=limits, device=options.device))
    content["busy"] = list(busy.measure(repeats=options.trainings))
    return content


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    options = parser().parse_args(arguments)
    if options.write:
        made = report.section(report.load(options.out))
        text = between_marks(options.write.read_text(encoding="utf-8"), "benchmarks", made)
        with written_whole(options.write) as beside:
            beside.write_text(text, encoding="utf-8")
        return
    torch.set_num_threads(options.threads)
    for name, version in versions(PEERS).items():
        if version is None:
            print(f"{name} is not installed and left out; pip install -e '.[bench]' brings it", file=sys.stderr)
    content = measure(options)
    with written_whole(options.out / report.RECORD) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for name, (_, draw) in report.PICTURES.items():
        with written_whole(options.out / name) as beside:
            draw(content).savefig(beside, format="png", dpi=110)
    print(f"\n{report.table(content)}\n\nwritten to {options.out}: {', '.join((report.RECORD, *report.PICTURES))}")


if __name__ == "__main__":
    main()
