"""MNIST and Tiny Shakespeare: real data, there without a network, and never silently damaged.

Two tiers:

- The package carries Tiny Shakespeare whole and a small MNIST of 10,000 + 2,000 digits (``assets/``).
- All of MNIST is fetched once into the data root and kept there.

Every file is compared with its SHA-256 before a single byte of it is used. What goes wrong ends in a ``DataError``
that names the file and what to do about it.

Sources: MNIST by Yann LeCun and Corinna Cortes, CC BY-SA 3.0, http://yann.lecun.com/exdb/mnist.
Tiny Shakespeare, public domain, https://github.com/karpathy/char-rnn.
"""

import bz2
import hashlib
import math
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from http.client import HTTPException
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


class DataError(RuntimeError):
    """A data file cannot be had. The message names the file and the remedy."""


# ---------------------------------------------------------------------------------------------------------------------
# The files
# ---------------------------------------------------------------------------------------------------------------------


class DataFile(NamedTuple):
    """What a whole file looks like: its path below its folder, its size in bytes, and its checksum."""

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

# Below the data root, in the layout of torchvision.datasets.MNIST.
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
    """The folder of the full data: ``root``, else the environment's SCIFORMER_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("SCIFORMER_DATA") or f"{cache}/sciformer").expanduser()


# ---------------------------------------------------------------------------------------------------------------------
# The data sets
# ---------------------------------------------------------------------------------------------------------------------


def mnist(
    split: Literal["train", "test"] = "train",
    *,
    size: Literal["small", "full"] = "small",
    root: str | Path | None = None,
) -> tuple[Float[Tensor, "N 1 28 28"], Int[Tensor, "N"]]:
    """Handwritten digits: images in [0, 1], white (1) on black (0), and which digit each one is.

    ``"small"`` is embedded in the package: 10,000 digits to train on and 2,000 to test on, sampled from all of MNIST.
    ``"full"`` is all 60,000 and 10,000, fetched on first use (11.6 MB) with ``torchvision.datasets.MNIST``.

    Source: MNIST, Yann LeCun and Corinna Cortes, CC BY-SA 3.0.

    Args:
        root: the folder of the full set, see ``data_root``; the small set does not look there.

    Returns:
        Images (N, 1, 28, 28) float32 and labels (N,) int64.

    Raises:
        ValueError: if ``split`` or ``size`` is none of the above.
        DataError: if the data cannot be had whole, see there.
    """
    _check_choice("split", split, ("train", "test"))
    _check_choice("size", size, ("small", "full"))
    if size == "small":
        content = _embedded(MNIST_SMALL_FILES[split])
        count = len(content) // (1 + 28 * 28)
        labels, pixels = content[:count], content[count:]
    else:
        # The bytes that were checked are the bytes that are used, so no second reading can bring in other ones.
        files = _cached(data_root(root), MNIST_FILES, _download_mnist)
        prefix = {"train": "train", "test": "t10k"}[split]
        pixels = files[f"MNIST/raw/{prefix}-images-idx3-ubyte"][16:]  # after the header: magic number and 3 sizes
        labels = files[f"MNIST/raw/{prefix}-labels-idx1-ubyte"][8:]  # after the header: magic number and 1 size
    # A bytearray, because torch shares its memory and would warn about bytes, which cannot be written.
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 1, 28, 28).float() / 255
    return images, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()


@dataclass(frozen=True)
class Vocabulary:
    """The characters that a text is made of; a token is a character's place among them.

    >>> vocabulary = Vocabulary.of("hello")
    >>> vocabulary.characters
    'ehlo'
    >>> vocabulary.encode("hole")
    tensor([1, 3, 2, 0])
    """

    characters: str

    @classmethod
    def of(cls, text: str) -> "Vocabulary":
        """The distinct characters of a text, sorted."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Int[Tensor, "N"]:
        """Text to tokens, int64.

        Raises:
            ValueError: naming the first character that is not in the vocabulary, and its place.
        """
        token_of = {character: token for token, character in enumerate(self.characters)}
        if unknown := set(text) - token_of.keys():
            place = min(text.index(character) for character in unknown)
            raise ValueError(f"character {text[place]!r} at place {place} is not in the vocabulary")
        return torch.tensor([token_of[character] for character in text], dtype=torch.int64)

    def decode(self, tokens: Int[Tensor, "N"] | Sequence[int]) -> str:
        """Tokens to text.

        Raises:
            ValueError: naming the first token that is no place in the vocabulary, and its place.
        """
        tokens = torch.as_tensor(tokens).tolist()
        for place, token in enumerate(tokens):
            if not 0 <= token < len(self):
                raise ValueError(f"token {token} at place {place} is not in 0..{len(self) - 1}")
        return "".join(self.characters[token] for token in tokens)


def shakespeare(
    split: Literal["train", "val"] = "train", *, root: str | Path | None = None
) -> tuple[Int[Tensor, "N"], Vocabulary]:
    """Tiny Shakespeare, character by character: 1,115,394 of them, 65 distinct.

    ``"train"`` is the first 90 % (1,003,854), ``"val"`` the rest (111,540): the standard split. The vocabulary is that
    of the whole text. Source: Andrej Karpathy's char-rnn; public domain.

    Args:
        root: None reads the copy that is embedded in the package. A folder reads ``tinyshakespeare/input.txt`` in it,
            which is fetched on first use (1.1 MB).

    Returns:
        Tokens (N,) int64 and the vocabulary that decodes them.

    Raises:
        ValueError: if ``split`` is none of the above.
        DataError: if the text cannot be had whole.
    """
    _check_choice("split", split, ("train", "val"))
    if root is None:
        content = _embedded(SHAKESPEARE_SMALL_FILE)
    else:
        content = _cached(data_root(root), (SHAKESPEARE_FILE,), _download_shakespeare)[SHAKESPEARE_FILE.name]
    text = content.decode()
    vocabulary = Vocabulary.of(text)
    cut = len(text) * 9 // 10
    return vocabulary.encode(text[:cut] if split == "train" else text[cut:]), vocabulary


def _check_choice(name: str, given: str, wanted: Sequence[str]) -> None:
    if given not in wanted:
        raise ValueError(f"{name} must be {' or '.join(map(repr, wanted))}, got {given!r}")


# ---------------------------------------------------------------------------------------------------------------------
# What is there, and fetching the rest
# ---------------------------------------------------------------------------------------------------------------------


class DataRow(NamedTuple):
    """One file of the data: where it is, in which state, and how many bytes of it are there."""

    name: str
    place: Path
    state: Literal["embedded", "whole", "missing", "damaged"]
    size: int


def describe(root: str | Path | None = None) -> list[DataRow]:
    """One row for each file, embedded ones first. Reads all of them, changes none, and needs no network."""
    embedded = [_describe(ASSETS, file, "embedded") for file in (*MNIST_SMALL_FILES.values(), SHAKESPEARE_SMALL_FILE)]
    return embedded + [_describe(data_root(root), file, "whole") for file in (*MNIST_FILES, SHAKESPEARE_FILE)]


def _describe(folder: Path, file: DataFile, state_if_whole: Literal["embedded", "whole"]) -> DataRow:
    state: Literal["embedded", "whole", "missing", "damaged"]
    try:
        content, fault = _read(folder, file)
    except OSError:
        content, fault = b"", "cannot be read"
    state = "missing" if fault == MISSING else "damaged" if fault else state_if_whole
    return DataRow(file.name, folder / file.name, state, len(content))


def fetch(root: str | Path | None = None) -> None:
    """Fetch all of MNIST and Tiny Shakespeare into the data root, as far as they are not there whole.

    Raises:
        DataError: if one of them cannot be had whole.
    """
    _cached(data_root(root), MNIST_FILES, _download_mnist)
    _cached(data_root(root), (SHAKESPEARE_FILE,), _download_shakespeare)


# ---------------------------------------------------------------------------------------------------------------------
# Reading, checking, downloading
# ---------------------------------------------------------------------------------------------------------------------

MISSING = "is missing"


def _read(folder: Path, file: DataFile) -> tuple[bytes, str]:
    """A file's content, and what is wrong with it, which is "" for a whole file.

    Raises:
        OSError: if there is something in the file's place that cannot be read.
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


def _embedded(file: DataFile) -> bytes:
    """The content of a file that the package carries, decompressed."""
    try:
        content, fault = _read(ASSETS, file)
    except OSError as error:
        content, fault = b"", f"cannot be read ({error.strerror})"
    if fault:
        raise DataError(f"The package's own file {ASSETS / file.name} {fault}. Reinstall sciformer.")
    return _decompressed(content)


#: Some of the digits' readers ask for them again and again, and unpacking takes half a second.
_decompressed = lru_cache(maxsize=4)(bz2.decompress)


def _cached(root: Path, files: Sequence[DataFile], download: Callable[[Path], None]) -> dict[str, bytes]:
    """The contents of the files below the data root, fetched first if one of them is missing or damaged."""
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
            warnings.warn(f"{path} {fault}; it is fetched again.", stacklevel=3)
    return _fetch(root, files, faulty, download) if faulty else contents


def _fetch(
    root: Path, files: Sequence[DataFile], faulty: Sequence[Path], download: Callable[[Path], None]
) -> dict[str, bytes]:
    """Download into a temporary folder beside the files' place, check, and only then move in."""
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
        with staging as temporary:  # removed at the end of this block, also after an error or Ctrl-C
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


# torchvision is imported where it is needed: that takes longer than loading the data.
def _download_mnist(folder: Path) -> None:
    from torchvision.datasets import MNIST

    MNIST(folder, download=True)


def _download_shakespeare(folder: Path) -> None:
    from torchvision.datasets.utils import download_url

    place = folder / SHAKESPEARE_FILE.name
    download_url(SHAKESPEARE_URL, place.parent, place.name)


# ---------------------------------------------------------------------------------------------------------------------
# Batches
# ---------------------------------------------------------------------------------------------------------------------


def batches(
    *tensors: Tensor,
    batch_size: int,
    seed: int,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> Iterator[tuple[Tensor, ...]]:
    """Shuffled batches without end, in a new order every epoch; the last incomplete batch of an epoch is dropped.

    All randomness comes from a generator of its own, so that the same seed gives the same batches whatever else draws
    random numbers: a run that was interrupted can go on exactly where it stopped.

    Args:
        tensors: of one common length N, on any device.
        augment: called as ``augment(batch, generator)`` on each batch of the first tensor, e.g. ``random_affine``.

    Yields:
        One (batch_size, ...) tensor for each of ``tensors``.

    Raises:
        ValueError: if the tensors differ in length, or ``batch_size`` is not in 1..N.
    """
    lengths = [len(tensor) for tensor in tensors]
    if len(set(lengths)) != 1:
        raise ValueError(f"batches needs tensors of one common length, got lengths {lengths}")
    if not 1 <= batch_size <= lengths[0]:
        raise ValueError(f"batch_size must lie in 1..{lengths[0]}, the number of samples, got {batch_size}")
    # A generator function of its own, so that the errors above come from the call and not from the first batch.
    return _batches(tensors, batch_size, torch.Generator().manual_seed(seed), augment)


def _batches(
    tensors: tuple[Tensor, ...],
    batch_size: int,
    generator: torch.Generator,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None,
) -> Iterator[tuple[Tensor, ...]]:
    while True:
        order = torch.randperm(len(tensors[0]), generator=generator)
        for start in range(0, len(order) - batch_size + 1, batch_size):
            chosen = order[start : start + batch_size]
            first, *others = (tensor[chosen.to(tensor.device)] for tensor in tensors)
            yield (augment(first, generator) if augment else first, *others)


def text_batches(
    tokens: Int[Tensor, "N"], length: int, *, batch_size: int, seed: int
) -> Iterator[tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]]:
    """Batches of text without end, each with the same text one token later, as a language model's targets.

    In each pass the text is cut anew, from a random place on, into pieces that come in random order, so that no token
    is read twice in a pass; what does not fill a piece or a batch is left out of it. Randomness comes from a generator
    of its own, as in :func:`batches`.

    Args:
        tokens: the text, on any device.
        length: tokens in a piece, L.

    Yields:
        Inputs and targets.

    Raises:
        ValueError: if the text has not enough tokens for one batch, or a size is below 1.
    """
    needed = batch_size * length + length  # the first piece may start up to L - 1 tokens late; one more for the target
    if min(length, batch_size) < 1 or len(tokens) < needed:
        raise ValueError(
            f"{batch_size} pieces of {length} tokens need a text of {needed} or more, got {len(tokens)} tokens"
        )
    return _text_batches(tokens, length, batch_size, torch.Generator().manual_seed(seed))


def _text_batches(
    tokens: Tensor, length: int, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    steps = torch.arange(length + 1)
    while True:
        first = int(torch.randint(length, (), generator=generator))
        starts = torch.arange(first, len(tokens) - length, length)
        starts = starts[torch.randperm(len(starts), generator=generator)]
        for some in starts[: len(starts) // batch_size * batch_size].split(batch_size):
            pieces = tokens[(some[:, None] + steps).to(tokens.device)]  # (B, L + 1)
            yield pieces[:, :-1], pieces[:, 1:]


# ---------------------------------------------------------------------------------------------------------------------
# Augmentation
# ---------------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def affine(
    images: Float[Tensor, "B C H W"],
    *,
    degrees: Float[Tensor, "B"],
    zoom: Float[Tensor, "B"],
    shift: Float[Tensor, "B 2"],
) -> Float[Tensor, "B C H W"]:
    r"""Turn, zoom, then shift each image by its own amount: bilinear, with zeros where the image does not reach.

    The pixel at p, measured from the centre, shows what was at

    .. math:: p' = R^{-1} (p - t) / z, \qquad R^{-1} = \begin{pmatrix} \cos θ & -\sin θ \\ \sin θ & \cos θ \end{pmatrix}

    (with y pointing down, as rows do).

    Args:
        degrees: θ, counter-clockwise, in degrees.
        zoom: z, a factor; 2 shows the image twice as large.
        shift: t, in pixels: to the right, and down.

    Returns:
        The new images, in the images' dtype and on their device, without a gradient.
    """
    height, width = images.shape[-2:]
    half = images.new_tensor([width / 2, height / 2])  # pixels in one unit of grid_sample's coordinates
    angle = degrees.to(half) * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    inverse = torch.stack([cos, -sin, sin, cos], dim=-1).view(-1, 2, 2) / zoom.to(half)[:, None, None]  # (B, 2, 2)
    offset = -inverse @ shift.to(half)[:, :, None]  # (B, 2, 1)
    # From pixels to grid_sample's coordinates, in which the image reaches from -1 to 1 in both directions.
    theta = torch.cat([inverse * half / half[:, None], offset / half[:, None]], dim=-1)  # (B, 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)  # (B, H, W, 2)
    return F.grid_sample(images, grid, align_corners=False)


def random_affine(
    images: Float[Tensor, "B C H W"],
    generator: torch.Generator,
    *,
    degrees: float = 10.0,
    translate: float = 2.0,
    scale: float = 0.1,
) -> Float[Tensor, "B C H W"]:
    """Turn, zoom and shift each image by its own random amount, all uniformly distributed; see ``affine``.

    Args:
        generator: on the CPU, whatever the images' device, so that every device sees the same numbers.
        degrees: the angle lies in ±degrees.
        translate: the shift lies in ±translate pixels, in both directions.
        scale: the zoom lies in 1 ± scale.

    Raises:
        ValueError: if ``scale`` is not in [0, 1), since the zoom could then be 0.
    """
    if not 0 <= scale < 1:
        raise ValueError(f"scale must lie in [0, 1), got {scale}")
    draws = 2 * torch.rand(len(images), 4, generator=generator) - 1  # (B, 4) in [-1, 1)
    return affine(images, degrees=degrees * draws[:, 0], zoom=1 + scale * draws[:, 1], shift=translate * draws[:, 2:])


# ---------------------------------------------------------------------------------------------------------------------
# Small tasks
# ---------------------------------------------------------------------------------------------------------------------


def lookup(
    count: int, *, seed: int, pairs: int = 8, num_keys: int = 32, num_values: int = 10
) -> tuple[Int[Tensor, "N P"], Int[Tensor, "N P"], Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Pairs of a key and a value, then one of the keys again; the answer is the value that stood beside it.

    In a sequence no key occurs twice, a value may. All is drawn uniformly.

    Args:
        count: number of sequences, N.
        pairs: number of pairs in a sequence, P.

    Returns:
        Keys (N, P), values (N, P), the key that is asked for (N,) and the answer (N,), all int64.

    Raises:
        ValueError: if there are fewer keys than pairs, or any of the sizes is below 1.
    """
    if min(count, pairs, num_values) < 1 or num_keys < pairs:
        raise ValueError(
            f"lookup needs 1 or more of everything and a key for each pair, got count {count}, pairs {pairs}, "
            f"num_keys {num_keys}, num_values {num_values}"
        )
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(count, num_keys, generator=generator).argsort(dim=-1)[:, :pairs]  # (N, P), each key once
    values = torch.randint(num_values, (count, pairs), generator=generator)  # (N, P)
    place = torch.randint(pairs, (count, 1), generator=generator)  # (N, 1)
    return keys, values, keys.gather(1, place).squeeze(1), values.gather(1, place).squeeze(1)


def clustered_tokens(
    count: int, *, seed: int, clusters: int = 4, size: int = 8, spread: float = 0.15, high: float = 4.0
) -> tuple[Float[Tensor, "N L 2"], Int[Tensor, "N L"], Float[Tensor, "N L"]]:
    """Sets of tokens in the plane, in clusters of high and of low importance.

    The clusters' centres stand evenly on a circle of radius 1, turned at random; around them the tokens are normally
    distributed. In each set, half of the clusters (with an odd number the smaller half), drawn at random, are of high
    importance. The tokens of a cluster follow one another.

    Args:
        count: number of sets, N.
        clusters: number of clusters in a set, K.
        size: number of tokens in a cluster; a set has L = K · size.
        spread: standard deviation of x and y around a centre.
        high: importance of a token in a cluster of high importance; in the others it is 1.

    Returns:
        Positions (N, L, 2), the number of each token's cluster (N, L), from 0, and each token's importance (N, L).

    Raises:
        ValueError: if there is no set, no token in a cluster or fewer than two clusters.
    """
    if min(count, size) < 1 or clusters < 2:
        raise ValueError(
            f"clustered_tokens needs a set, 2 clusters and a token in each, got count {count}, clusters {clusters}, "
            f"size {size}"
        )
    generator = torch.Generator().manual_seed(seed)
    turn = torch.rand(count, 1, generator=generator)  # (N, 1), in whole turns
    angle = 2 * math.pi * (turn + torch.arange(clusters) / clusters)  # (N, K)
    centres = torch.stack((angle.cos(), angle.sin()), dim=-1)  # (N, K, 2)
    important = torch.rand(count, clusters, generator=generator).argsort(dim=-1) < clusters // 2  # (N, K)
    labels = torch.arange(clusters).repeat_interleave(size).repeat(count, 1)  # (N, L)
    noise = spread * torch.randn(count, clusters * size, 2, generator=generator)  # (N, L, 2)
    importance = torch.where(important, high, 1.0).repeat_interleave(size, dim=1)  # (N, L)
    return centres.repeat_interleave(size, dim=1) + noise, labels, importance


def token_rows(texts: Sequence[str], vocabulary: Vocabulary) -> Int[Tensor, "N L"]:
    """Each text as a row of tokens, filled up behind with the vocabulary's first, which stands for padding.

    Raises:
        ValueError: naming the first character that is not in the vocabulary, and its text.
    """
    token_of = {character: token for token, character in enumerate(vocabulary.characters)}
    width = max(map(len, texts), default=0)
    try:
        rows = [[token_of[character] for character in text] + [0] * (width - len(text)) for text in texts]
    except KeyError as error:
        strange = next(text for text in texts if error.args[0] in text)
        raise ValueError(f"character {error.args[0]!r} of {strange!r} is not in the vocabulary") from None
    return torch.tensor(rows, dtype=torch.int64).view(len(texts), width)


#: What an encoder–decoder writes with: padding, start and end are tokens 0, 1 and 2. Then the letters.
LETTERS = Vocabulary("_<>abcdefghijklmnopqrstuvwxyz")


def reversals(count: int, *, seed: int, shortest: int = 1, longest: int = 10) -> tuple[list[str], list[str]]:
    """Random letters, and the same letters from last to first.

    The length is drawn uniformly, and so are five letters of which a string is made: letters often stand twice in a
    row, and a model cannot find its place by them. Both sides are made of :data:`LETTERS`.

    Args:
        count: number of strings.
        shortest, longest: how many letters a string has.

    Returns:
        The strings and what they are reversed.

    Raises:
        ValueError: if there is no string, or not 1 <= ``shortest`` <= ``longest``.
    """
    if count < 1 or not 1 <= shortest <= longest:
        raise ValueError(
            f"reversals needs 1 string or more and 1 <= shortest <= longest, got count {count}, shortest {shortest}, "
            f"longest {longest}"
        )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    pool = torch.randint(3, len(LETTERS), (count, 5), generator=generator)
    letters = pool.gather(1, torch.randint(5, (count, longest), generator=generator)).tolist()
    texts = ["".join(LETTERS.characters[n] for n in row[:length]) for row, length in zip(letters, lengths, strict=True)]
    return texts, [text[::-1] for text in texts]


_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

#: The first and the last day that :func:`dates` draws.
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)

#: What written dates are made of, and what ISO 8601 is made of; padding, start and end come first in both.
WRITTEN_DATES = Vocabulary("_<> ,-./0123456789ABCDEFGJLMNOPRSTUVWYabcdeghilmnoprstuvy")
ISO_DATES = Vocabulary("_<>-0123456789")


class DateForm(NamedTuple):
    """How a date is written.

    Args:
        weekday: whether it begins with the day of the week, "Tue ".
        order: which comes first: "dmy", "mdy" or "ymd".
        day: how 5 March looks: "5", "05" or "5th".
        month: "March", "Mar", "MAR", "3" or "03".
        separator: what stands between day, month and year.
    """

    weekday: bool
    order: str
    day: str
    month: str
    separator: str

    def write(self, day: date) -> str:
        """A date in this form."""
        name = _MONTHS[day.month - 1]
        ending = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        parts = {
            "d": {"5": f"{day.day}", "05": f"{day.day:02}", "5th": f"{day.day}{ending}"}[self.day],
            "m": {
                "March": name,
                "Mar": name[:3],
                "MAR": name[:3].upper(),
                "3": f"{day.month}",
                "03": f"{day.month:02}",
            }[self.month],
            "y": f"{day.year}",
        }
        weekday = f"{_WEEKDAYS[day.weekday()]} " if self.weekday else ""
        return weekday + self.separator.join(parts[part] for part in self.order)


#: Every form. Where the month is a number, the separator tells the order: 3/5/1985 is March 5, 5.3.1985 is too.
DATE_FORMS = [
    DateForm(*pieces)
    for pieces in product(
        (False, True), ("dmy", "mdy", "ymd"), ("5", "05", "5th"), ("March", "Mar", "MAR"), (" ", "-", ".", "/", ", ")
    )
] + [
    DateForm(weekday, order, day, month, separator)
    for weekday, (order, separator), day, month in product(
        (False, True), (("mdy", "/"), ("dmy", "."), ("ymd", "-")), ("5", "05"), ("3", "03")
    )
]


def dates(
    count: int,
    *,
    seed: int,
    days: Literal["train", "test"] = "train",
    forms: Literal["train", "test"] = "train",
) -> tuple[list[str], list[str]]:
    """Days from 1900 to 2099, written in one of many forms, and the same days in ISO 8601.

    Every tenth day and every eleventh form is kept for testing. Each piece of a form that is kept, such as its
    separator or its way to write the month, is known from other forms: what is new is how they come together. The five
    ways to write a month are equally likely, then the forms that have it; so are the days.

    Args:
        count: number of dates.
        days: ``"train"`` or ``"test"``, which never occur in training in any form.
        forms: ``"train"`` or ``"test"``, in which nothing is written in training.

    Returns:
        The dates as written, made of :data:`WRITTEN_DATES`, and in ISO 8601, made of :data:`ISO_DATES`.

    Raises:
        ValueError: if there is no date, or a split is none of the above.
    """
    if count < 1:
        raise ValueError(f"dates needs 1 date or more, got {count}")
    _check_choice("days", days, ("train", "test"))
    _check_choice("forms", forms, ("train", "test"))
    generator = torch.Generator().manual_seed(seed)
    ordinals = [n for n in range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1) if (n % 10 == 0) == (days == "test")]
    kept = [form for n, form in enumerate(DATE_FORMS) if (n % 11 == 0) == (forms == "test")]
    alike = Counter(form.month for form in kept)
    weights = torch.tensor([1 / alike[form.month] for form in kept])
    chosen_days = torch.randint(len(ordinals), (count,), generator=generator).tolist()
    chosen_forms = torch.multinomial(weights, count, replacement=True, generator=generator).tolist()
    drawn = [(date.fromordinal(ordinals[n]), kept[m]) for n, m in zip(chosen_days, chosen_forms, strict=True)]
    return [form.write(day) for day, form in drawn], [day.isoformat() for day, _ in drawn]


# ---------------------------------------------------------------------------------------------------------------------
# Time series
# ---------------------------------------------------------------------------------------------------------------------


def windows(
    series: Float[Tensor, "T"], context: int, horizon: int
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N F"]]:
    """Every stretch of a series: ``context`` values to forecast from, and the ``horizon`` values that follow them.

    Window n is past = series[n : n + C] and future = series[n + C : n + C + F], so there are N = T - C - F + 1 of them,
    and neighbours share all but one value. To keep a part of the series out, cut the series before it is windowed: a
    window that crosses the cut carries one side into the other.

    Args:
        context: C, how many values a forecast may look at.
        horizon: F, how many values it has to give.

    Returns:
        The past (N, C) and the future (N, F), both views of the series.

    Raises:
        ValueError: if ``series`` is not one-dimensional, ``context`` or ``horizon`` is below 1, or the series is too
            short for one window.
    """
    if series.dim() != 1 or min(context, horizon) < 1:
        raise ValueError(
            f"windows needs a series of shape (T,), a context and a horizon of 1 or more, got shape "
            f"{tuple(series.shape)}, context {context}, horizon {horizon}"
        )
    if len(series) < context + horizon:
        raise ValueError(
            f"context {context} and horizon {horizon} need {context + horizon} values, the series has {len(series)}"
        )
    stretches = series.unfold(0, context + horizon, 1)  # (N, C + F)
    return stretches[:, :context], stretches[:, context:]
