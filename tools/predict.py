"""Count what every full profile will cost on a GPU, and write results/predictions.json: python tools/predict.py."""

from sciformer.data.files import written_whole
from sciformer.lab.predictions import as_json, predict_all
from sciformer.lab.records import results_folder

path = results_folder() / "predictions.json"
predictions = predict_all(lambda name: print(name, flush=True))
with written_whole(path) as beside:
    beside.write_text(as_json(predictions) + "\n", encoding="utf-8")
print(f"written: {path}")
