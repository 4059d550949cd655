"""The data files: where they are stored, whether they are intact, and how missing ones are fetched.

There are two tiers:

- The package contains all of Tiny Shakespeare and a small MNIST of 10,000 + 2,000 digits (``assets/``).
- All of MNIST is fetched once into the data root and kept there.

Every file is compared with its SHA-256 checksum before any of its content is used. Every failure is reported as a
``DataError`` that names the file and the remedy.

Sources: MNIST by Yann LeCun and Corinna Cortes, CC BY-SA 3.0, http://yann.lecun.com/exdb/mnist.
Tiny Shakespeare, public domain, https://github.com/karpathy/char-rnn.
"""

import bz2
import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Literal, NamedTuple


class DataError(RuntimeError):
    """A data file is not available. The message names the file and the remedy."""


class DataFile(NamedTuple):
    """What an intact file looks like: its path relative to its folder, its size in bytes, and its SHA-256 checksum."""

    name: str
    size: int
    sha256: str


ASSETS = Path(__file__).parent / "assets"

# Written by tools/make_embedded_data.py. An MNIST file holds all labels, then all pixels, one byte each.
MNIST_SMALL_FILES = {
    "train": DataFile(
        "mnist_small_train.bz2", 1_405_756, "a27524ad439fad8a13e417830a9fe9fe310a9d7ee2e8cd6ef1c31f8849270aa0"
    ),
    "test": DataFile(
        "mnist_small_test.bz2", 283_157, "c6ee1cbc6cf8ca3261e6a851294c6f4e5abd7622b8ebd57c409ce99d146a30c9"
    ),
}
SHAKESPEARE_SMALL_FILE = DataFile(
    "tinyshakespeare.txt.bz2", 328_477, "1167258cfe426cf0bcf2967609a7fabd9162b8e65d72f26f417abca677c220da"
)

# Relative to the data root, in the layout of torchvision.datasets.MNIST.
MNIST_FILES = (
    DataFile(
        "MNIST/raw/train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    DataFile(
        "MNIST/raw/train-labels-idx1-ubyte",
        60_008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    DataFile(
        "MNIST/raw/t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    DataFile(
        "MNIST/raw/t10k-labels-idx1-ubyte",
        10_008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
SHAKESPEARE_FILE = DataFile(
    "tinyshakespeare/input.txt",
    1_115_394,
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the full data: ``root``, else the environment's SCIFORMER_DATA, else the user's cache folder.

    The cache folder is ``$XDG_CACHE_HOME/sciformer``, or ``~/.cache/sciformer`` where that variable is not set.

    Raises:
        DataError: if the path begins with the home folder of a user who is unknown or has none.
    """
    if root is None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        root = os.environ.get("SCIFORMER_DATA") or f"{cache}/sciformer"
    try:
        return Path(root).expanduser()
    except RuntimeError as error:
        raise DataError(
            f"The home folder in {root} cannot be found. Name the data's folder in the environment variable "
            "SCIFORMER_DATA."
        ) from error


class DataRow(NamedTuple):
    """One data file: its name, its path, its state, and how many bytes of it exist."""

    name: str
    path: Path
    state: Literal["embedded", "whole", "missing", "damaged"]
    size: int


def describe(root: str | Path | None = None) -> list[DataRow]:
    """One row for each file, embedded files first. Reads every file, changes none, and needs no network."""
    small = [_describe(ASSETS, file, "embedded") for file in (*MNIST_SMALL_FILES.values(), SHAKESPEARE_SMALL_FILE)]
    return small + [_describe(data_root(root), file, "whole") for file in (*MNIST_FILES, SHAKESPEARE_FILE)]


def full_digits_at_hand(root: str | Path | None = None) -> bool:
    """Whether all of MNIST lies whole in the data root, so that it can be read without a network."""
    return all(_describe(data_root(root), file, "whole").state == "whole" for file in MNIST_FILES)


def _describe(folder: Path, file: DataFile, state_if_intact: Literal["embedded", "whole"]) -> DataRow:
    state: Literal["embedded", "whole", "missing", "damaged"]
    try:
        content, fault = _read(folder, file)
    except OSError:
        content, fault = b"", "cannot be read"
    state = "missing" if fault == MISSING else "damaged" if fault else state_if_intact
    return DataRow(file.name, folder / file.name, state, len(content))


def fetch(root: str | Path | None = None) -> None:
    """Fetch those files of MNIST and Tiny Shakespeare that are missing from the data root or damaged there.

    Raises:
        DataError: if a file cannot be read, fetched or saved.
    """
    full_mnist(root)
    full_shakespeare(root)


def full_mnist(root: str | Path | None = None) -> dict[str, bytes]:
    """The contents of the four MNIST files by name, fetched first if any of them is missing or damaged.

    Raises:
        DataError: if a file cannot be read, fetched or saved.
    """
    return _cached(data_root(root), MNIST_FILES, _download_mnist)


def full_shakespeare(root: str | Path | None = None) -> bytes:
    """The content of Tiny Shakespeare in the data root, fetched first if it is missing or damaged.

    Raises:
        DataError: if the file cannot be read, fetched or saved.
    """
    return _cached(data_root(root), (SHAKESPEARE_FILE,), _download_shakespeare)[SHAKESPEARE_FILE.name]


MISSING = "is missing"


def _read(folder: Path, file: DataFile) -> tuple[bytes, str]:
    """A file's content and its fault, which is "" for an intact file.

    Raises:
        OSError: if something with the file's name exists but cannot be read.
    """
    try:
        content = (folder / file.name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b"", MISSING
    if len(content) < file.size:
        return content, f"is cut short ({len(content):,} of {file.size:,} bytes)"
    if hashlib.sha256(content).hexdigest() != file.sha256:
        return content, "is altered (its SHA-256 is not that of the original)"
    return content, ""


def embedded(file: DataFile) -> bytes:
    """The decompressed content of a file that is part of the package.

    Raises:
        DataError: if the file is missing, damaged or cannot be read.
    """
    try:
        content, fault = _read(ASSETS, file)
    except OSError as error:
        content, fault = b"", f"cannot be read ({error.strerror})"
    if fault:
        raise DataError(f"The package's own file {ASSETS / file.name} {fault}. Reinstall sciformer.")
    return _decompressed(content)


#: Cached because the digits are often loaded several times and decompressing them takes half a second.
_decompressed = lru_cache(maxsize=4)(bz2.decompress)


def _cached(root: Path, files: Sequence[DataFile], download: Callable[[Path], None]) -> dict[str, bytes]:
    """The contents of files in the data root, all of them fetched first if any is missing or damaged."""
    contents, faulty = {}, []
    for file in files:
        path = root / file.name
        try:
            contents[file.name], fault = _read(root, file)
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error.strerror}). Make it readable, or remove it, and it is fetched again."
            ) from error
        if fault:
            faulty.append(path)
        if fault and fault != MISSING:
            warnings.warn(f"{path} {fault}; it is fetched again.", stacklevel=4)
    return _fetch(root, files, faulty, download) if faulty else contents


def _fetch(
    root: Path, files: Sequence[DataFile], faulty: Sequence[Path], download: Callable[[Path], None]
) -> dict[str, bytes]:
    """Download into a temporary folder on the same disk, check every file, and only then move them into ``root``."""
    folder = faulty[0].parent
    names = ", ".join(path.name for path in faulty)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = tempfile.TemporaryDirectory(prefix=".download-", dir=folder)
    except OSError as error:
        raise DataError(
            f"{names} cannot be saved, because the folder {folder} cannot be written ({error.strerror}). "
            "Pass another folder as root, or name one in the environment variable SCIFORMER_DATA."
        ) from error
    try:
        with staging as temporary:  # removed at the end of this block, even after an error or Ctrl-C
            download(Path(temporary))
            contents = {}
            for file in files:
                contents[file.name], fault = _read(Path(temporary), file)
                if fault:
                    raise OSError(f"what came for {Path(file.name).name} {fault}")
            for file in files:
                os.replace(Path(temporary, file.name), root / file.name)
    except (OSError, RuntimeError, HTTPException) as error:
        raise DataError(
            f"{names} could not be fetched into {folder} ({' '.join(str(error).split())}). Check the network and "
            "the free disk space and try again, or copy the files there yourself; the embedded data need neither."
        ) from error
    return contents


# torchvision is imported only where it is needed: importing it takes longer than loading the data.
def _download_mnist(folder: Path) -> None:
    from torchvision.datasets import MNIST

    MNIST(folder, download=True)


def _download_shakespeare(folder: Path) -> None:
    from torchvision.datasets.utils import download_url

    path = folder / SHAKESPEARE_FILE.name
    download_url(SHAKESPEARE_URL, path.parent, path.name)
