"""Train the models that notebook 11 uses, and put them beside the package's other trained models.

python tools/trained_runs.py namer      # some minutes on one core; an interrupted training goes on where it was saved
python tools/trained_runs.py answerer
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sciformer.data.files import written_whole
from sciformer.lab import records, trainers
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.teach.trained import HERE
from sciformer.training.weights import save_weights

#: The experiment that each model is the first run of.
MODELS = {"namer": "digit-names", "answerer": "stories"}


def keep(run: trainers.Run, setting: Any, where: dict[str, Any], folder: Path) -> None:
    """Write weights and record of a run as :func:`sciformer.lab.runs.load_run` reads them."""
    save_weights(run.model, folder / "model.safetensors")
    content = {"seed": run.seed, "config": asdict(setting), "metrics": run.metrics}
    content |= {"loss": [round(loss, 4) for loss in run.history.loss], "curves": run.history.metrics}
    content |= {"seconds": round(run.history.seconds, 1)} | where
    with written_whole(folder / "history.json") as beside:
        beside.write_text(json.dumps(content) + "\n", encoding="utf-8")


def main() -> None:
    """Train seed 0 of the recorded setting, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    name = parser.parse_args().model
    experiment, folder = EXPERIMENTS[MODELS[name]], HERE / name
    folder.mkdir(exist_ok=True)
    where, setting = records.environment("cpu"), experiment.arms("quick")[None]
    run = experiment.run(setting, 0, checkpoint=folder / "training.pt")
    keep(run, setting, where, folder)
    (folder / "training.pt").unlink()
    print(f"written: {folder}, {run.metrics}")


if __name__ == "__main__":
    main()
