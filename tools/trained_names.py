"""Train the model that names digits, and put it beside the package's other trained models.

python tools/trained_names.py        # some minutes on one core; an interrupted training goes on where it was saved
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sciformer.data.files import written_whole
from sciformer.lab import records, trainers
from sciformer.lab.experiments import DIGIT_NAMES
from sciformer.teach.trained import HERE
from sciformer.training.weights import save_weights

FOLDER = HERE / "namer"


def keep(run: trainers.Run, setting: Any, where: dict[str, Any], folder: Path = FOLDER) -> None:
    """Write weights and record of a run as :func:`sciformer.lab.runs.load_run` reads them."""
    folder.mkdir(exist_ok=True)
    save_weights(run.model, folder / "model.safetensors")
    content = {"seed": run.seed, "config": asdict(setting), "metrics": run.metrics}
    content |= {"loss": [round(loss, 4) for loss in run.history.loss], "curves": run.history.metrics}
    content |= {"seconds": round(run.history.seconds, 1)} | where
    with written_whole(folder / "history.json") as beside:
        beside.write_text(json.dumps(content) + "\n", encoding="utf-8")


def main() -> None:
    """Train seed 0 of the recorded setting, and keep it."""
    setting, where = DIGIT_NAMES["quick"], records.environment("cpu")
    FOLDER.mkdir(exist_ok=True)
    run = trainers.train_digit_names(setting, 0, checkpoint=FOLDER / "training.pt")
    keep(run, setting, where)
    (FOLDER / "training.pt").unlink()
    print(f"written: {FOLDER}, {run.metrics}")


if __name__ == "__main__":
    main()
