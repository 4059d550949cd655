"""Make the data that the package carries from the full sets: ``python tools/make_embedded_data.py [FOLDER]``.

Reads the data root (SCIFORMER_DATA or the user's cache folder; what is not there is fetched) and writes to FOLDER, or
to sciformer/data/assets. The result is the same byte for byte everywhere: numpy promises never to change RandomState's
numbers, and bz2's encoder is frozen. The sizes and checksums it prints stand in sciformer/data/.
"""

import bz2
import hashlib
import sys
from pathlib import Path

import numpy as np

from sciformer.data import ASSETS, SHAKESPEARE_FILE, data_root, fetch

SEED = 0
SAMPLES = {"train": 10_000, "test": 2_000}
PREFIX = {"train": "train", "test": "t10k"}


def sample_mnist(root: Path, split: str) -> bytes:
    """All labels, then all pixels, one byte each.

    The digits stay in the random order in which they are drawn: the original order is not random (the second half of
    the test set is harder), and a reader who takes the first 500 should get a fair sample.
    """
    raw = root / "MNIST" / "raw"
    images = np.frombuffer((raw / f"{PREFIX[split]}-images-idx3-ubyte").read_bytes()[16:], np.uint8).reshape(
        -1, 28 * 28
    )
    labels = np.frombuffer((raw / f"{PREFIX[split]}-labels-idx1-ubyte").read_bytes()[8:], np.uint8)
    chosen = np.random.RandomState(SEED).permutation(len(labels))[: SAMPLES[split]]
    return labels[chosen].tobytes() + images[chosen].tobytes()


def main(folder: Path) -> None:
    """Write every embedded file into a folder."""
    root = data_root()
    fetch(root)
    contents = {f"mnist_small_{split}.bz2": sample_mnist(root, split) for split in SAMPLES}
    contents["tinyshakespeare.txt.bz2"] = (root / SHAKESPEARE_FILE.name).read_bytes()
    for name, content in contents.items():
        compressed = bz2.compress(content)
        (folder / name).write_bytes(compressed)
        print(f"{name}  {len(compressed):,} bytes  {hashlib.sha256(compressed).hexdigest()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS)
