"""Draw the forest plot of the claims for docs/measured.md from the records: python tools/claims_picture.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import pictures

TARGET = Path(__file__).resolve().parents[1] / "docs" / "claims.png"

if __name__ == "__main__":
    plt.rcParams["savefig.dpi"] = 110
    pictures.claims(TARGET)
