"""Draw the losses of the two by two of positions and scores from its record: python tools/loss_pictures.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import pictures

from sciformer.lab.claims.rules import best_record

RESULTS = Path(__file__).resolve().parents[1] / "results"

if __name__ == "__main__":
    content = best_record("additive-2x2")
    if content is None:
        raise SystemExit("additive-2x2 is not recorded: python -m sciformer record additive-2x2")
    plt.rcParams["savefig.dpi"] = 100
    for path in pictures.losses(RESULTS, content):
        print(path.relative_to(RESULTS.parent))
