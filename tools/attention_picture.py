"""Take the picture of docs/mechanisms.md from notebook 06, where it was drawn: python tools/attention_picture.py"""

import base64
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TARGET = ROOT / "notebooks" / "06_image_transformer.ipynb", ROOT / "docs" / "attention.png"


def picture() -> bytes:
    """The still picture of the notebook's explorer."""
    cells = nbformat.read(SOURCE, as_version=4).cells
    explorer = next(cell for cell in cells if cell.source.rstrip().endswith(")") and "explore(\n" in cell.source)
    return base64.b64decode(explorer.outputs[0].data["image/png"])


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(picture())
