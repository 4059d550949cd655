"""Keep the notebooks and their paired scripts in step.

    python tools/notebooks.py check              fail if a pair has drifted apart; writes nothing
    python tools/notebooks.py run [NN ...]       take the scripts as they are, run them, store outputs in the notebooks
    python tools/notebooks.py time [NN ...]      run them and print what each takes, slowest cells first; writes nothing
    python tools/notebooks.py memory [NN ...]    run them and fail if one needs more memory than 4 GB; writes nothing

The script is where a notebook is edited with a text editor. Edited in JupyterLab, with jupytext, both change together.
Outputs are stored with the smallest possible diff: no widget state, no timings, no kernel's patch version.
"""

import argparse
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import jupytext
import nbformat
import psutil  # which ipykernel brings
from jupytext.combine import combine_inputs_with_outputs
from jupytext.config import load_jupytext_configuration_file
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS, SCRIPTS = ROOT / "notebooks", ROOT / "notebooks_py"
MEMORY = 4e9  # bytes that every notebook is to run within
CONFIG = load_jupytext_configuration_file(str(ROOT / "pyproject.toml"))
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def drifted() -> list[str]:
    """One line for each pair that is not a pair."""
    notebooks, scripts = ({p.stem for p in d.glob(f"[0-9]*{e}")} for d, e in ((NOTEBOOKS, ".ipynb"), (SCRIPTS, ".py")))
    bad = [f"{stem}: only one of the pair exists" for stem in sorted(notebooks ^ scripts)]
    for stem in sorted(notebooks & scripts):
        notebook = jupytext.read(NOTEBOOKS / f"{stem}.ipynb", config=CONFIG)
        if jupytext.writes(notebook, fmt="py:percent", config=CONFIG) != (SCRIPTS / f"{stem}.py").read_text(
            encoding="utf-8"
        ):
            bad.append(f"{stem}: notebook and script differ; python tools/notebooks.py run {stem[:2]}")
    return bad


def executed(script: Path, timeout: int) -> nbformat.NotebookNode:
    """The notebook of a script, run; each code cell's metadata tell when it began and ended."""
    path = NOTEBOOKS / f"{script.stem}.ipynb"
    notebook = jupytext.read(script, config=CONFIG)
    if path.exists():  # keeps the cells' ids
        notebook = combine_inputs_with_outputs(notebook, nbformat.read(path, as_version=4), fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    folder = {"metadata": {"path": NOTEBOOKS}}
    return NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=folder).execute()


def timed(script: Path, timeout: int, slowest: int = 8) -> None:
    """Print the seconds of a notebook and of its slowest cells, each with its first line."""
    taken = []
    for cell in executed(script, timeout).cells:
        if times := cell.metadata.get("execution"):
            began, ended = (datetime.fromisoformat(times[key]) for key in ("iopub.status.busy", "shell.execute_reply"))
            taken.append(((ended - began).total_seconds(), cell.source.splitlines()[0]))
    print(f"{script.stem}: {sum(seconds for seconds, _ in taken):.0f} s")
    for seconds, line in sorted(taken, reverse=True)[:slowest]:
        print(f"{seconds:8.1f} s  {line}", flush=True)


@contextmanager
def memory_watched(seconds: float = 0.1) -> Iterator[list[int]]:
    """Yield a list whose only number is the most memory, in bytes, that the processes started by this one have held.

    Linux keeps the peak of each process, so that of a single one is never missed. What several hold together is read
    ten times a second; a page that they share counts once.
    """
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(seconds):
            ids = [process.pid for process in psutil.Process().children(recursive=True)]
            together = sum(kilobytes(f"/proc/{pid}/smaps_rollup", "Pss") for pid in ids)
            highest = max((kilobytes(f"/proc/{pid}/status", "VmHWM") for pid in ids), default=0)
            peak[0] = max(peak[0], 1024 * together, 1024 * highest)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def kilobytes(path: str, name: str) -> int:
    """A number of one of the kernel's files about a process; 0 if the process has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        if found := re.search(rf"^{name}:\s+(\d+) kB$", Path(path).read_text(encoding="utf-8"), flags=re.M):
            return int(found[1])
    return 0


def fits(script: Path, timeout: int) -> bool:
    """Print the most memory that a notebook's kernel and what it starts take; whether it is little enough."""
    with memory_watched() as peak:
        executed(script, timeout)
    print(f"{script.stem}: {peak[0] / 1e9:.2f} GB", flush=True)
    return peak[0] <= MEMORY


def run(script: Path, timeout: int) -> None:
    """Execute a script as a notebook and store it; nothing is written if a cell fails."""
    path = NOTEBOOKS / f"{script.stem}.ipynb"
    notebook = executed(script, timeout)
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"tags": cell.metadata.tags} if "tags" in cell.metadata else {})
        if cell.cell_type == "code":
            cell.outputs = coalesced(cell.outputs)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)
    # The script as jupytext would write it, so that the pair is in step to the letter.
    script.write_text(jupytext.writes(notebook, fmt="py:percent", config=CONFIG), encoding="utf-8")


def coalesced(outputs: list) -> list:
    """Stream chunks joined, with only what a terminal would show after carriage returns, and no live widget."""
    joined: list = []
    for output in outputs:
        output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = re.sub(r"^.*\r(?=[^\n])", "", output.text, flags=re.M)
    return joined


def main() -> int:
    """Check, run, time or weigh; the exit status is 1 if a pair has drifted or a notebook needs too much memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "run", "time", "memory"])
    parser.add_argument("numbers", nargs="*", metavar="NN", help="which notebooks; all where none is named")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one cell")
    options = parser.parse_args()
    if options.command == "check":
        bad = drifted()
        print("\n".join(bad) or "all pairs in step")
        return int(bool(bad))
    if options.command == "memory" and sys.platform != "linux":
        parser.error(f"the peak of a process's memory is read from Linux's /proc; this is {sys.platform}")
    fit = True
    for script in sorted(SCRIPTS.glob("[0-9]*.py")):
        if options.numbers and script.stem[:2] not in options.numbers:
            continue
        if options.command == "time":
            timed(script, options.timeout)
        elif options.command == "memory":
            fit &= fits(script, options.timeout)
        else:
            print("running", script.stem, flush=True)
            run(script, options.timeout)
    return int(not fit)


if __name__ == "__main__":
    sys.exit(main())
