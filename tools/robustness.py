"""Find out where a notebook's checks depend on the machine: run them under many conditions and collect the margins.

    python tools/robustness.py run --threads 1 2 4          strict nbval of every notebook with 1, 2 and 4 threads
    python tools/robustness.py run --vectors avx2 default   with less of the processor's vector instructions
    python tools/robustness.py run --busy 1                 beside a process that keeps one core busy
    python tools/robustness.py run --python OTHER/bin/python --threads 1    with another environment's torch
    python tools/robustness.py run --seeds 1000 2000        with these numbers added to every seed
    python tools/robustness.py run --sabotage untrained noise    where no model learns, which a verdict should notice
    python tools/robustness.py table                        write docs/robustness.md from what has been run

Lists are multiplied, so `--threads 1 2 --vectors best default` gives four conditions. Each run's failed cells and the
value of each verdict are kept in docs/robustness.json, and what stands there is not run again, so that a grid of many
hours can be interrupted and continued on another machine; `--again` repeats it. A run counts as long as the notebook's
code cells are the same. The table names every failure and gives, for each verdict, the distance between its mean and
the nearest bound in standard deviations over the conditions; then its values under other seeds, and whether it passes
although nothing was learned. In these last two no verdict is judged, so that what follows it in its cell runs, and
failed cells do not count.
"""

import argparse
import fcntl
import hashlib
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from benchmarks.__main__ import machine

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
RUNS = ROOT / "docs" / "robustness.json"
TABLE = ROOT / "docs" / "robustness.md"
CAPTION = re.compile(r'plotting\.show\((?:\s*f?"[^"\n]*")+\s*\)')
COLOURS = re.compile(r"(\x1b|#x1B)\[[0-9;]*m")
SAFE = 3.0  # standard deviations between a verdict's mean and its bound

#: A verdict is known by its notebook, its name and its turn among equal names.
Key = tuple[str, str, int]

# Runs in each kernel before its first cell: every verdict leaves its value in a file, and is then judged as ever.
STARTUP = """
def _record_verdicts():
    import json, os
    from sciformer import course
    judge = course.verdict
    def verdict(name, value, *, above=None, below=None, **options):
        with open(os.environ["SCIFORMER_VERDICTS"], "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "value": float(value), "above": above, "below": below}) + "\\n")
        return judge(name, value, above=above, below=below, **options)
    course.verdict = verdict
_record_verdicts()
"""

# What goes before it where the seeds are others or nothing is to be learned: a verdict is then recorded and not judged.
UNJUDGED = """
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from sciformer import course
course.verdict = lambda *args, **options: None
"""
SHIFT_SEEDS = """
class _Shifted(torch.Generator):
    def manual_seed(self, seed):
        return super().manual_seed(seed + {shift})
torch.Generator, _manual_seed = _Shifted, torch.manual_seed
torch.manual_seed = lambda seed: _manual_seed(seed + {shift})
"""
SABOTAGES = {
    "untrained": """
register_optimizer_step_pre_hook(lambda optimizer, *_: optimizer.zero_grad())
""",
    "noise": """
def _to_noise(optimizer, *_):
    for gradient in (p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
        gradient.copy_(torch.randn_like(gradient) * gradient.square().mean().sqrt())
register_optimizer_step_pre_hook(_to_noise)
""",
}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy with work that is not ours."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def code_of(notebook: Path) -> str:
    """A short digest of the notebook's code, but for captions and ends of cells: runs of other code do not count."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    lines = [line for line in CAPTION.sub("", code).splitlines() if line.strip()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def run(python: str, notebook: Path, environment: dict[str, str], alteration: str) -> dict:
    """Validate one notebook strictly; the cells that failed, the verdicts' values, the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        startup, verdicts, report = (Path(folder) / name for name in ("startup.py", "verdicts", "report.xml"))
        startup.write_text(alteration + STARTUP, encoding="utf-8")
        verdicts.touch()
        command = [python, "-m", "pytest", "-q", "--nbval", str(notebook), f"--junitxml={report}"]
        settings = {"PYTHONSTARTUP": str(startup), "SCIFORMER_VERDICTS": str(verdicts), **environment}
        started = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
        seconds = time.perf_counter() - started
        if not report.exists():
            raise RuntimeError(f"pytest wrote no report for {notebook.name}:\n{done.stdout}{done.stderr}")
        cases = ET.parse(report).findall(".//testcase")
        failed = {
            case.get("name", ""): f"{fault.get('message', '')}\n{fault.text or ''}"
            for case in cases
            for fault in case
            if fault.tag in ("failure", "error")
        }
        values = [json.loads(line) for line in verdicts.read_text(encoding="utf-8").splitlines()]
    here = machine()
    place = {"date": str(date.today()), "machine": f"{here['cores']} cores of {here['processor']}"}
    counted = {"code": code_of(notebook), "seconds": round(seconds), "cells": len(cases)}
    return place | counted | {"failed": failed, "verdicts": values}


def conditions(options: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, str], str]]:
    """Name, busy processes, environment variables and altering code of each condition asked for."""
    probe = "import torch; print(torch.__version__.split('+')[0], torch.backends.cpu.get_cpu_capability(), sep=', ')"
    asked = (options.threads, options.vectors, options.busy, options.seeds, options.sabotage)
    for threads, vectors, load, shift, sabotage in itertools.product(*asked):
        environment = {"OMP_NUM_THREADS": str(threads)}
        if vectors != "best":
            environment["ATEN_CPU_CAPABILITY"] = vectors
        command = [options.python, "-c", probe]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
        name = f"torch {done.stdout.strip()}, threads {threads}, busy {load}"
        alteration = ""
        if shift:
            name, alteration = f"{name}, seeds + {shift}", SHIFT_SEEDS.format(shift=shift)
        if sabotage != "none":
            name, alteration = f"{name}, {sabotage}", alteration + SABOTAGES[sabotage]
        yield name, load, environment, alteration and UNJUDGED + alteration


def is_altered(condition: str) -> bool:
    """Whether other numbers are to be expected in it: from other seeds, or since nothing was learned."""
    return ", seeds + " in condition or condition.endswith(tuple(SABOTAGES))


def kept() -> dict[str, dict[str, dict]]:
    """What has been run: for each condition and notebook, the result of its present code."""
    results = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    codes = {notebook.stem: code_of(notebook) for notebook in NOTEBOOKS}
    current = {
        condition: {stem: result for stem, result in runs.items() if result["code"] == codes.get(stem)}
        for condition, runs in results.items()
    }
    return {condition: runs for condition, runs in current.items() if runs}


def keep(condition: str, notebook: str, result: dict) -> None:
    """Add one result, a line of its own in the file, to those kept; other processes may add theirs at the same time."""
    with open(__file__, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = kept()
        results.setdefault(condition, {})[notebook] = result
        blocks = [
            f"{json.dumps(name)}: {{\n"
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(runs.items()))
            for name, runs in sorted(results.items())
        ]
        partial = RUNS.with_suffix(".partial")
        partial.write_text("{\n" + "\n},\n".join(blocks) + "\n}\n}\n", encoding="utf-8")
        partial.replace(RUNS)


def run_all(options: argparse.Namespace) -> None:
    """Run what has not been run yet, and say how each run went."""
    notebooks = [notebook for notebook in NOTEBOOKS if notebook.stem[:2] in (options.notebooks or [notebook.stem[:2]])]

    for condition, load, environment, alteration in conditions(options):
        done = set() if options.again else set(kept().get(condition, {}))

        def one(notebook: Path, condition: str = condition, settings: tuple = (environment, alteration)) -> None:
            result = run(options.python, notebook, *settings)
            keep(condition, notebook.stem, result)
            print(f"{condition}: {notebook.stem} {result['seconds']:.0f} s, failed {[*result['failed']]}", flush=True)

        with busy(load), ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(one, [notebook for notebook in notebooks if notebook.stem not in done]))


def table() -> str:
    """The page: conditions, failures, and every verdict with its margin, the narrowest first."""
    every = kept()
    conditions = [(condition, runs) for condition, runs in sorted(every.items()) if not is_altered(condition)]
    results = {(condition, stem): result for condition, runs in conditions for stem, result in sorted(runs.items())}
    lines = [
        "# Do the notebooks' checks hold on other machines?",
        "",
        "Written by `python tools/robustness.py table` from strict `pytest --nbval` runs of the quick profile, which",
        "[robustness.json](robustness.json) keeps. Threads are torch's; the vector instructions are those its kernels",
        "used (`ATEN_CPU_CAPABILITY`); busy counts processes that were started to keep a core busy beside the course.",
        "Machines may have done other work besides, so that the seconds are upper bounds.",
        "",
        "## Conditions",
        "",
        "| condition | machine | dates | notebooks | cells | failed | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for condition, runs in conditions:
        machines, dates = ({result[key] for result in runs.values()} for key in ("machine", "date"))
        cells, failed, seconds = (
            sum(measure(result) for result in runs.values())
            for measure in (lambda r: r["cells"], lambda r: len(r["failed"]), lambda r: r["seconds"])
        )
        row = [
            condition,
            ", ".join(sorted(machines)),
            ", ".join(sorted(dates)),
            len(runs),
            cells,
            failed,
            f"{seconds:.0f}",
        ]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    failures = [
        f"- {stem}, {cell} ({condition}): `{COLOURS.sub('', message).strip().splitlines()[0][:200]}`"
        for (condition, stem), result in results.items()
        for cell, message in result["failed"].items()
    ]
    none = "None." if conditions else "No condition has been run yet with the notebooks' present code."
    lines += ["", "## Failed cells", "", *(failures or [none])]
    lines += [
        "",
        "## Verdicts",
        "",
        "Margin: how many standard deviations over the conditions lie between the mean and the nearest bound; a value",
        "that is the same everywhere has no standard deviation, and its margin is marked –. A ratio (‘this over that’)",
        "varies by factors, so its margin is counted in logarithms.",
        "",
        "| notebook | verdict | bound | lowest | mean | highest | margin |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [row for _, row in sorted(verdict_rows(results))]
    lines += [
        "",
        "## Other seeds, and nothing learned",
        "",
        "Each verdict's values with another number added to every seed of the notebook's own process (what it starts",
        "beside it, as notebook 15 does, keeps its seeds), and how many of them fall outside the verdict's bound;",
        "then its value where no model learns: *untrained*, every optimiser's step does nothing; *noise*, every",
        "gradient is replaced by normal noise of its size. `=` marks what learning does not touch; what it does",
        "touch should fall outside the bound, and is marked where it does not. Some have to pass: that two models do",
        "equally well, that one learns nothing or less than a plain rule does, and what a clock or the shape of a",
        "formula says, is true without learning, too. Then the same notebook has to hold a verdict that fails, and the",
        "last line below names those that do not. Empty: not run, or a cell failed.",
        "",
        "| notebook | verdict | bound | other seeds | lowest | mean | highest | outside | untrained | noise |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += altered_rows(every)
    lines += ["", "Notebooks in which no verdict notices it: " + (", ".join(unnoticed(every)) or "none") + "."]
    return "\n".join(lines) + "\n"


def margin_of(numbers: list[float], bounds: dict[str, float], is_ratio: bool) -> float:
    """Standard deviations from the mean to the nearest bound: negative beyond it, infinite where nothing varies."""
    if is_ratio and min([*numbers, *bounds.values()]) > 0:
        numbers, bounds = [math.log(x) for x in numbers], {word: math.log(x) for word, x in bounds.items()}
    mean, spread = statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    distance = min(mean - bound if word == "above" else bound - mean for word, bound in bounds.items())
    same = spread <= 1e-6 * abs(mean)
    return math.copysign(float("inf"), distance) if same else distance / spread


def numbered(stem: str, verdicts: list[dict]) -> Iterator[tuple[Key, dict]]:
    """Each verdict of a run by what it is known by: its notebook, its name and its turn among equal names."""
    turns: dict[str, int] = {}
    for verdict in verdicts:
        turn = turns[verdict["name"]] = turns.get(verdict["name"], -1) + 1
        yield (stem, verdict["name"], turn), verdict


def bounds_of(verdict: dict) -> dict[str, float]:
    """The bounds that a verdict has, by their word."""
    return {word: verdict[word] for word in ("above", "below") if verdict[word] is not None}


def is_inside(verdict: dict) -> bool:
    """Whether a verdict's value lies within its bounds."""
    value = verdict["value"]
    return all(value > bound if word == "above" else value < bound for word, bound in bounds_of(verdict).items())


def heading(stem: str, verdict: dict) -> list[str]:
    """The first cells of a verdict's row: its notebook, its name and its bound."""
    bound = " and ".join(f"{word} {value:g}" for word, value in bounds_of(verdict).items())
    return [stem[:2], verdict["name"].replace("|", "/").replace("\n", " "), bound]


def spread(numbers: list[float]) -> list[str]:
    """The lowest, the mean and the highest number."""
    return [f"{number:.4g}" for number in (min(numbers), statistics.fmean(numbers), max(numbers))]


def verdict_rows(results: dict[tuple[str, str], dict]) -> Iterator[tuple[float, str]]:
    """Margin and row of each verdict."""
    values: dict[Key, list[dict]] = {}
    for (_, stem), result in results.items():
        for key, verdict in numbered(stem, result["verdicts"]):
            values.setdefault(key, []).append(verdict)
    for (stem, name, _), found in values.items():
        numbers = [verdict["value"] for verdict in found]
        margin = margin_of(numbers, bounds_of(found[-1]), is_ratio=" over " in f" {name} ")
        shown = "–" if margin == float("inf") else f"{margin:.1f}" + (" **narrow**" if margin < SAFE else "")
        yield margin, "| " + " | ".join([*heading(stem, found[-1]), *spread(numbers), shown]) + " |"


def is_touched(verdict: dict, plain: list[dict]) -> bool:
    """Whether keeping from learning has changed a verdict's value."""
    close = [math.isclose(verdict["value"], other["value"], rel_tol=1e-6, abs_tol=1e-12) for other in plain]
    return not any(close)


def sorted_by_alteration(results: dict[str, dict[str, dict]]) -> tuple[dict, dict, dict[str, dict[Key, dict]]]:
    """Each verdict's values: as the notebook runs, with other seeds, and for each sabotage."""
    plain: dict[Key, list[dict]] = {}
    seeds: dict[Key, list[dict]] = {}
    sabotaged: dict[str, dict[Key, dict]] = {name: {} for name in SABOTAGES}
    for condition, runs in results.items():
        for stem, result in sorted(runs.items()):
            for key, verdict in numbered(stem, result["verdicts"]):
                if not is_altered(condition):
                    plain.setdefault(key, []).append(verdict)
                elif condition.endswith(tuple(SABOTAGES)):
                    sabotaged[condition.rsplit(", ", 1)[1]][key] = verdict
                else:
                    seeds.setdefault(key, []).append(verdict)
    return plain, seeds, sabotaged


def altered_rows(results: dict[str, dict[str, dict]]) -> Iterator[str]:
    """The row of each verdict that was tried with other seeds or where nothing was learned, in the notebooks' order."""
    plain, seeds, sabotaged = sorted_by_alteration(results)

    def under(sabotage: str, key: Key) -> str:
        if key not in sabotaged[sabotage]:
            return ""
        verdict = sabotaged[sabotage][key]
        if not is_touched(verdict, plain[key]):
            return "="
        return f"{verdict['value']:.4g}" + (" **passes**" if is_inside(verdict) else "")

    for key in sorted(plain, key=lambda key: key[0]):
        others = seeds.get(key, [])
        if others or any(key in runs for runs in sabotaged.values()):
            numbers = spread([verdict["value"] for verdict in others]) if others else ["", "", ""]
            outside = sum(not is_inside(verdict) for verdict in others)
            cells = [*heading(key[0], plain[key][-1]), str(len(others)), *numbers, str(outside)]
            yield "| " + " | ".join(cells + [under(sabotage, key) for sabotage in SABOTAGES]) + " |"


def unnoticed(results: dict[str, dict[str, dict]]) -> Iterator[str]:
    """The notebooks that hold verdicts about what is learned, of which none fails although nothing was."""
    plain, _, sabotaged = sorted_by_alteration(results)
    for sabotage, verdicts in sabotaged.items():
        touched = {key: verdict for key, verdict in verdicts.items() if is_touched(verdict, plain.get(key, []))}
        for stem in sorted({key[0] for key in touched}):
            if all(is_inside(verdict) for key, verdict in touched.items() if key[0] == stem):
                yield f"{stem[:2]} ({sabotage})"


def main() -> None:
    """Run conditions, or write the table of those that were run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run what has not been run yet")
    runs.add_argument("--notebooks", nargs="*", metavar="NN", help="which notebooks; all where none is named")
    runs.add_argument("--threads", nargs="+", type=int, default=[2], help="threads of torch")
    runs.add_argument("--vectors", nargs="+", choices=["best", "avx2", "default"], default=["best"])
    runs.add_argument("--busy", nargs="+", type=int, default=[0], help="processes that keep a core busy")
    runs.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SHIFT", help="numbers added to every seed")
    runs.add_argument(
        "--sabotage", nargs="+", choices=["none", *SABOTAGES], default=["none"], help="keep from learning"
    )
    runs.add_argument("--python", default=sys.executable, help="interpreter of the environment to test")
    runs.add_argument("--jobs", type=int, default=1, help="notebooks at a time")
    runs.add_argument("--again", action="store_true", help="repeat what has been run")
    commands.add_parser("table", help="write docs/robustness.md")
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
    else:
        TABLE.write_text(table(), encoding="utf-8")
        print(f"wrote {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
