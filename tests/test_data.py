"""The data: what is embedded, what is fetched, and all that can go wrong on the way, with real files and servers.

Tiny Shakespeare is served whole by a server of this machine. MNIST is stood in for by a set of 5 + 3 digits in the
original format, so that torchvision's own download, with its checksums and unpacking, is what runs.
"""

import bz2
import gzip
import hashlib
import math
import os
import re
import runpy
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections import Counter
from datetime import date
from http.client import BadStatusLine
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torchvision.datasets import MNIST

from sciformer import data
from sciformer.data import (
    DATE_FORMS,
    FIRST_DAY,
    ISO_DATES,
    LAST_DAY,
    LETTERS,
    WRITTEN_DATES,
    DataError,
    DataFile,
    DateForm,
    Vocabulary,
    affine,
    augmentation,
    batches,
    clustered_tokens,
    dates,
    fetching,
    lookup,
    random_affine,
    reversals,
    token_rows,
    windows,
)

FULL = os.environ.get("SCIFORMER_DATA")
needs_full = pytest.mark.skipif(not FULL, reason="SCIFORMER_DATA names no folder with the full data")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")
# The share of each digit in all of MNIST.
MNIST_SHARES = {
    "train": [0.0987, 0.1124, 0.0993, 0.1022, 0.0974, 0.0904, 0.0986, 0.1044, 0.0975, 0.0992],
    "test": [0.0980, 0.1135, 0.1032, 0.1010, 0.0982, 0.0892, 0.0958, 0.1028, 0.0974, 0.1009],
}
TEXT = bz2.decompress((data.ASSETS / data.SHAKESPEARE_SMALL_FILE.name).read_bytes())


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# --- a server of this machine, and none ------------------------------------------------------------------------------


class Server(HTTPServer):
    """Serves ``contents`` by file name; ``body`` may send something else than the whole content."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.contents: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.body = lambda content: content

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up early is part of these tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = Path(self.path).name
        self.server.requests.append(name)
        content = self.server.contents[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(self.server.body(content))

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    """A server with Tiny Shakespeare and a tiny MNIST, which the package takes for the real addresses."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        server.contents["input.txt"] = TEXT
        monkeypatch.setattr(fetching, "SHAKESPEARE_URL", server.url + "input.txt")
        monkeypatch.setattr(MNIST, "mirrors", [server.url])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def no_network(monkeypatch):
    """Addresses at which nothing listens."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as bound:  # bound, so that nobody else gets the port, but not listening
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
        monkeypatch.setattr(fetching, "SHAKESPEARE_URL", url + "input.txt")
        monkeypatch.setattr(MNIST, "mirrors", [url])
        yield


def idx(values: torch.Tensor) -> bytes:
    """MNIST's format: a magic number (8 for bytes, then the number of axes), the sizes, the bytes."""
    return struct.pack(f">{1 + values.dim()}I", 8 * 256 + values.dim(), *values.shape) + bytes(
        values.flatten().tolist()
    )


@pytest.fixture
def tiny_mnist(monkeypatch) -> dict[str, bytes]:
    """Four files of 5 + 3 digits, whose checksums the package takes for the real ones."""
    torch.manual_seed(0)
    contents = {}
    for prefix, count in (("train", 5), ("t10k", 3)):
        contents[f"MNIST/raw/{prefix}-images-idx3-ubyte"] = idx(torch.randint(256, (count, 28, 28)))
        contents[f"MNIST/raw/{prefix}-labels-idx1-ubyte"] = idx(torch.arange(count))
    known = [DataFile(name, len(c), hashlib.sha256(c).hexdigest()) for name, c in contents.items()]
    monkeypatch.setattr(fetching, "MNIST_FILES", tuple(known))
    return contents


@pytest.fixture
def tiny_server(server, tiny_mnist, monkeypatch) -> Server:
    zipped = {f"{Path(name).name}.gz": gzip.compress(content) for name, content in tiny_mnist.items()}
    monkeypatch.setattr(MNIST, "resources", [(name, hashlib.md5(z).hexdigest()) for name, z in zipped.items()])
    server.contents |= zipped
    return server


def place(root: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


# --- what is embedded ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "count"), [("train", 10_000), ("test", 2_000)])
def test_small_mnist(split, count):
    images, labels = data.mnist(split)
    assert (images.shape, images.dtype) == ((count, 1, 28, 28), torch.float32)
    assert (labels.shape, labels.dtype) == ((count,), torch.int64)
    assert (images.min(), images.max()) == (0, 1)
    counts = labels.bincount(minlength=10)
    expected = count * torch.tensor(MNIST_SHARES[split])
    assert len(counts) == 10
    assert ((counts - expected).abs() < 3 * expected.sqrt()).all()  # three standard deviations of a random sample
    assert 0.12 < images.mean() < 0.14  # MNIST itself: 0.1307
    assert images[:, :, :2].mean() < 0.001  # the margin is black: rows are rows and no pixel is taken for a label


def test_small_mnist_can_be_told_apart():
    """Labels belong to their images: the nearest class mean is right for four digits in five."""
    (images, labels), (test_images, test_labels) = data.mnist("train"), data.mnist("test")
    means = torch.stack([images[labels == digit].flatten(1).mean(dim=0) for digit in range(10)])  # (10, 784)
    nearest = torch.cdist(test_images.flatten(1), means).argmin(dim=1)
    assert 0.78 < (nearest == test_labels).float().mean() < 0.86


def test_shakespeare_split():
    (train, vocabulary), (val, same) = data.shakespeare("train"), data.shakespeare("val")
    assert (len(train), len(val), len(vocabulary)) == (1_003_854, 111_540, 65)
    assert train.dtype == val.dtype == torch.int64
    assert vocabulary == same
    assert list(vocabulary.characters) == sorted(set(vocabulary.characters))
    assert (vocabulary.decode(train) + vocabulary.decode(val)).encode() == TEXT
    assert hashlib.sha256(TEXT).hexdigest() == data.SHAKESPEARE_FILE.sha256
    assert vocabulary.decode(train[:14]) == "First Citizen:"


def test_vocabulary():
    vocabulary = Vocabulary.of("hello")
    assert vocabulary == Vocabulary("ehlo")
    assert len(vocabulary) == 4
    assert_close(vocabulary.encode("hole"), torch.tensor([1, 3, 2, 0]))
    assert_close(vocabulary.encode(""), torch.tensor([], dtype=torch.int64))
    assert vocabulary.decode(torch.tensor([1, 3, 2, 0])) == vocabulary.decode([1, 3, 2, 0]) == "hole"
    with pytest.raises(ValueError, match="'!' at place 4 is not in the vocabulary"):
        vocabulary.encode("hell!?")
    for token in (-1, 4):
        with pytest.raises(ValueError, match=rf"token {token} at place 1 is not in 0\.\.3"):
            vocabulary.decode([0, token])
    with pytest.raises(AttributeError):
        vocabulary.characters = "abc"


def test_wrong_split_and_size():
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'val'"):
        data.mnist("val")
    with pytest.raises(ValueError, match="size must be 'small' or 'full', got 'large'"):
        data.mnist(size="large")
    with pytest.raises(ValueError, match="split must be 'train' or 'val', got 'test'"):
        data.shakespeare("test")


@pytest.fixture
def assets(tmp_path, monkeypatch) -> Path:
    folder = Path(shutil.copytree(data.ASSETS, tmp_path / "assets"))
    monkeypatch.setattr(fetching, "ASSETS", folder)
    return folder


@pytest.mark.parametrize("fault", ["cut short", "altered", "missing", "cannot be read"])
def test_damaged_asset(assets, fault):
    for name, load in (
        ("mnist_small_test.bz2", lambda: data.mnist("test")),
        ("tinyshakespeare.txt.bz2", data.shakespeare),
    ):
        path = assets / name
        content = path.read_bytes()
        path.unlink()
        if fault == "cut short":
            path.write_bytes(content[:-1])
        elif fault == "altered":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif fault == "cannot be read":
            path.mkdir()
        with pytest.raises(DataError, match=rf"{name} .*{fault}.*Reinstall sciformer"):
            load()
        state = {row.name: row.state for row in data.describe(assets)}[name]
        assert state == ("missing" if fault == "missing" else "damaged")
    assert data.mnist("train")[0].shape == (10_000, 1, 28, 28)  # the others still serve


@needs_full
def test_embedded_data_are_made_again_byte_for_byte(tmp_path, monkeypatch):
    tool = Path(__file__).parents[1] / "tools" / "make_embedded_data.py"
    monkeypatch.setattr(sys, "argv", [str(tool), str(tmp_path)])
    runpy.run_path(str(tool), run_name="__main__")
    made = files_below(tmp_path)
    assert made == {name: c for name, c in files_below(data.ASSETS).items() if name.endswith(".bz2")}
    assert len(made) == 3


# --- the data root ---------------------------------------------------------------------------------------------------


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("SCIFORMER_DATA", str(tmp_path / "environment"))
    assert data.data_root(tmp_path / "argument") == data.data_root(str(tmp_path / "argument")) == tmp_path / "argument"
    assert data.data_root() == tmp_path / "environment"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert data.data_root("~/here") == tmp_path / "here"
    for unset in ("", None):  # an empty variable counts as none
        for name in ("SCIFORMER_DATA", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False) if unset is None else monkeypatch.setenv(name, unset)
        assert data.data_root() == tmp_path / ".cache" / "sciformer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.data_root() == tmp_path / "cache" / "sciformer"


# --- the full sets ---------------------------------------------------------------------------------------------------


@needs_full
@pytest.mark.parametrize(("split", "count"), [("train", 60_000), ("test", 10_000)])
def test_full_mnist_is_torchvisions_and_holds_the_small_one(split, count):
    (images, labels), (small_images, small_labels) = data.mnist(split, size="full", root=FULL), data.mnist(split)
    assert images.shape == (count, 1, 28, 28)
    theirs = MNIST(FULL, train=split == "train")
    assert torch.equal(images[:, 0], theirs.data / 255)
    assert torch.equal(labels, theirs.targets)

    def samples(images, labels):
        return Counter(zip(map(bytes, (255 * images).round().byte().numpy()), labels.tolist(), strict=True))

    # Each digit of the small set is in the full one with its label, and none more often than there.
    assert samples(small_images, small_labels) <= samples(images, labels)


@needs_full
def test_full_shakespeare_equals_the_embedded_one():
    (tokens, vocabulary), (embedded, same) = data.shakespeare(root=FULL), data.shakespeare()
    assert torch.equal(tokens, embedded)
    assert vocabulary == same


def test_shakespeare_is_fetched_once(server, tmp_path, recwarn):
    tokens, vocabulary = data.shakespeare("val", root=tmp_path / "new" / "root")
    assert torch.equal(tokens, data.shakespeare("val")[0])
    assert files_below(tmp_path) == {str(Path("new/root/tinyshakespeare/input.txt")): TEXT}
    served = len(server.requests)
    assert data.shakespeare("train", root=tmp_path / "new" / "root")[1] == vocabulary
    assert len(server.requests) == served
    assert not recwarn.list  # of a damaged file


def test_mnist_is_fetched_once(tiny_server, tiny_mnist, tmp_path):
    images, labels = data.mnist("train", size="full", root=tmp_path)
    assert (images.shape, labels.tolist()) == ((5, 1, 28, 28), [0, 1, 2, 3, 4])
    assert (
        bytes((images * 255).round().byte().flatten().tolist()) == tiny_mnist["MNIST/raw/train-images-idx3-ubyte"][16:]
    )
    assert files_below(tmp_path) == {str(Path(name)): content for name, content in tiny_mnist.items()}
    served = len(tiny_server.requests)
    assert data.mnist("test", size="full", root=tmp_path)[1].tolist() == [0, 1, 2]
    assert len(tiny_server.requests) == served


def test_describe_and_fetch(tiny_server, tiny_mnist, tmp_path):
    def states():
        return [row.state for row in data.describe(tmp_path)]

    assert states() == ["embedded"] * 3 + ["missing"] * 5
    assert files_below(tmp_path) == {}  # looking changes nothing
    data.fetch(tmp_path)
    assert states() == ["embedded"] * 3 + ["whole"] * 5
    for row in data.describe(tmp_path):
        assert row.size == row.place.stat().st_size
    served = len(tiny_server.requests)
    data.fetch(tmp_path)
    assert len(tiny_server.requests) == served


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content[:-7], r"is cut short \(1,115,387 of 1,115,394 bytes\)"),
        (lambda content: b"", r"is cut short \(0 of 1,115,394 bytes\)"),
        (lambda content: b"X" + content[1:], "is altered"),
        (lambda content: content + b"\n", "is altered"),
    ],
)
def test_damaged_file_is_fetched_again(server, tmp_path, damage, words):
    place(tmp_path, {"tinyshakespeare/input.txt": damage(TEXT)})
    assert data.describe(tmp_path)[-1].state == "damaged"
    with pytest.warns(UserWarning, match=f"input.txt {words}.*; it is fetched again") as caught:
        data.shakespeare(root=tmp_path)
    assert caught[0].filename == __file__  # the warning points at the reader's own line
    assert files_below(tmp_path) == {str(Path("tinyshakespeare/input.txt")): TEXT}


def test_damaged_mnist_is_fetched_again(tiny_server, tiny_mnist, tmp_path):
    labels = "MNIST/raw/t10k-labels-idx1-ubyte"
    place(tmp_path, tiny_mnist | {labels: tiny_mnist[labels][:-1] + b"\x09"})  # torchvision would not notice
    with pytest.warns(UserWarning, match="t10k-labels-idx1-ubyte is altered"):
        assert data.mnist("test", size="full", root=tmp_path)[1].tolist() == [0, 1, 2]
    assert files_below(tmp_path) == {str(Path(name)): content for name, content in tiny_mnist.items()}


def test_missing_and_no_network(no_network, tiny_mnist, tmp_path):
    with pytest.raises(DataError, match=r"input\.txt could not be fetched .*refused.*Check the network"):
        data.shakespeare(root=tmp_path)
    with pytest.raises(
        DataError, match=r"train-images-idx3-ubyte, .*t10k-labels-idx1-ubyte could not be fetched .*refused"
    ):
        data.mnist(size="full", root=tmp_path)
    with pytest.raises(DataError, match="could not be fetched"):
        data.fetch(tmp_path)
    assert files_below(tmp_path) == {}


def test_damaged_and_no_network_keeps_the_file(no_network, tiny_mnist, tmp_path):
    contents = tiny_mnist | {"MNIST/raw/train-images-idx3-ubyte": b"cut"}
    place(tmp_path, contents)
    with (
        pytest.warns(UserWarning, match="train-images-idx3-ubyte is cut short"),
        pytest.raises(DataError, match="train-images-idx3-ubyte could not be fetched into"),
    ):
        data.mnist(size="full", root=tmp_path)
    assert files_below(tmp_path) == {str(Path(name)): content for name, content in contents.items()}


@pytest.mark.parametrize("body", [lambda content: content[: len(content) // 2], lambda content: b"X" + content[1:]])
def test_server_that_sends_something_else(tiny_server, tmp_path, body):
    tiny_server.body = body
    with pytest.raises(DataError, match=r"input\.txt could not be fetched .*(cut short|altered)"):
        data.shakespeare(root=tmp_path)
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte could not be fetched .*corrupted"):
        data.mnist(size="full", root=tmp_path)
    assert files_below(tmp_path) == {}
    assert list((tmp_path / "tinyshakespeare").iterdir()) == list((tmp_path / "MNIST/raw").iterdir()) == []
    tiny_server.body = lambda content: content
    data.fetch(tmp_path)  # and nothing stands in the way of the next attempt
    assert len(files_below(tmp_path)) == 5


def test_server_that_speaks_no_http(monkeypatch, tmp_path):
    def download(folder):
        raise BadStatusLine("nonsense")

    monkeypatch.setattr(fetching, "_download_shakespeare", download)
    with pytest.raises(DataError, match=r"input\.txt could not be fetched .*nonsense.*Check the network"):
        data.shakespeare(root=tmp_path)


@needs_posix
def test_interrupted_download_leaves_nothing(server, tmp_path):
    def interrupt(content):
        """Ctrl-C in the middle of the second request, the one whose body is read (the first looks for redirections)."""
        if len(server.requests) == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return content[: len(content) // 2]

    server.body = interrupt
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            data.shakespeare(root=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert list((tmp_path / "tinyshakespeare").iterdir()) == []


@needs_posix
def test_disk_error_during_the_download(server, tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a longer file cannot be written
    try:
        with pytest.raises(DataError, match=r"input\.txt could not be fetched .*File too large.*free disk space"):
            data.shakespeare(root=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "tinyshakespeare").iterdir()) == []


def test_folder_in_place_of_a_file(server, tmp_path):
    (tmp_path / "tinyshakespeare/input.txt").mkdir(parents=True)
    with pytest.raises(DataError, match=r"input\.txt cannot be read \(.*\)\. Make it readable, or remove it"):
        data.shakespeare(root=tmp_path)
    assert data.describe(tmp_path)[-1].state == "damaged"
    assert server.requests == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind this user")
def test_without_permission(server, tmp_path):
    place(tmp_path, {"tinyshakespeare/input.txt": TEXT})
    (tmp_path / "tinyshakespeare/input.txt").chmod(0)
    with pytest.raises(DataError, match=r"input\.txt cannot be read \(Permission denied\)"):
        data.shakespeare(root=tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(DataError, match=r"cannot be written \(Permission denied\).*SCIFORMER_DATA"):
        data.shakespeare(root=locked)


@pytest.mark.parametrize("below", ["file", "file/below"])
def test_root_that_cannot_be_written(server, tmp_path, below):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"input\.txt cannot be saved.*cannot be written.*SCIFORMER_DATA"):
        data.shakespeare(root=tmp_path / below)
    assert [row.state for row in data.describe(tmp_path / below)][3:] == ["missing"] * 5
    assert files_below(tmp_path) == {"file": b"not a folder"}
    assert server.requests == []


# --- batches ---------------------------------------------------------------------------------------------------------


def test_batches_cover_each_epoch_once():
    values = torch.arange(23)
    stream = batches(values, -values, batch_size=5, seed=1)
    epochs = [list(islice(stream, 4)) for _ in range(3)]  # 23 = 4 · 5 + 3, and the 3 are dropped
    for epoch in epochs:
        seen = torch.cat([first for first, _ in epoch])
        assert len(seen) == len(seen.unique()) == 20
        for first, second in epoch:
            assert torch.equal(first, -second)
    assert not torch.equal(torch.cat([b[0] for b in epochs[0]]), torch.cat([b[0] for b in epochs[1]]))


def test_batches_depend_on_their_seed_alone():
    images = torch.rand(11, 1, 7, 5)

    def run(seed, disturb):
        stream = batches(images, batch_size=3, seed=seed, augment=random_affine)
        torch.manual_seed(disturb)
        for (batch,) in islice(stream, 7):
            torch.rand(disturb)
            yield batch

    first, second, other = (torch.stack(list(run(*args))) for args in ((5, 1), (5, 17), (6, 1)))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_batches_leave_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    next(batches(torch.ones(7, 1, 5, 5), batch_size=3, seed=0, augment=random_affine))
    assert torch.equal(torch.rand(2), expected)


def test_augment_only_changes_the_first_tensor():
    values = torch.arange(7.0)
    seen = []

    def augment(batch, generator):
        assert isinstance(generator, torch.Generator)
        seen.append(batch)
        return batch + 100

    for first, second in islice(batches(values, values, batch_size=3, seed=0, augment=augment), 5):
        assert torch.equal(first, second + 100)
        assert torch.equal(seen[-1], second)
    assert len(seen) == 5
    assert torch.equal(values, torch.arange(7.0))


def test_batches_errors_come_at_once():
    values = torch.arange(7)
    for batch_size in (0, -1, 8):
        with pytest.raises(ValueError, match=rf"batch_size must lie in 1\.\.7, .*got {batch_size}"):
            batches(values, batch_size=batch_size, seed=0)
    with pytest.raises(ValueError, match=r"got lengths \[7, 5\]"):
        batches(values, values[:5], batch_size=2, seed=0)
    with pytest.raises(ValueError, match=r"got lengths \[\]"):
        batches(batch_size=2, seed=0)
    (batch,) = next(batches(values, batch_size=7, seed=0))  # the largest that is allowed
    assert sorted(batch.tolist()) == list(range(7))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_batches_are_the_same_on_a_gpu():
    images, labels = torch.rand(11, 1, 7, 5), torch.arange(11)
    here = batches(images, labels, batch_size=3, seed=0, augment=random_affine)
    there = batches(images.cuda(), labels.cuda(), batch_size=3, seed=0, augment=random_affine)
    for (x, y), (x_gpu, y_gpu) in islice(zip(here, there, strict=True), 5):
        assert x_gpu.is_cuda
        assert torch.equal(y, y_gpu.cpu())
        assert_close(x_gpu.cpu(), x)


# --- augmentation ----------------------------------------------------------------------------------------------------


def still(count: int) -> dict[str, torch.Tensor]:
    return {"degrees": torch.zeros(count), "zoom": torch.ones(count), "shift": torch.zeros(count, 2)}


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 2, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_affine_that_does_nothing(images):
    assert_close(affine(images, **still(3)), images)
    unmoved = random_affine(images, torch.Generator(), degrees=0, translate=0, scale=0)
    assert_close(unmoved, images)


def test_affine_shifts_each_image_by_its_own_pixels(images):
    shift = torch.tensor([[1.0, 0.0], [0.0, -2.0], [0.0, 0.0]])  # one right; two up; none
    moved = affine(images, **still(3) | {"shift": shift})
    expected = torch.zeros_like(images)
    expected[0, :, :, 1:] = images[0, :, :, :-1]
    expected[1, :, :-2] = images[1, :, 2:]
    expected[2] = images[2]
    assert_close(moved, expected)


def test_affine_turns_counter_clockwise(images):
    square = images[..., :5, :]
    turned = affine(square, **still(3) | {"degrees": torch.tensor([90.0, -90.0, 180.0])})
    for result, image, quarters in zip(turned, square, (1, -1, 2), strict=True):
        assert_close(result, torch.rot90(image, quarters, (-2, -1)), rtol=0, atol=1e-6)
    half_turn = affine(images, **still(3) | {"degrees": torch.full((3,), 180.0)})
    assert_close(half_turn, images.flip(-2, -1), rtol=0, atol=1e-6)


def test_affine_turns_an_oblong_image_in_pixels():
    """A quarter turn of a column that fits both ways: lengths in pixels are kept although the image is not square."""
    image = torch.zeros(1, 1, 7, 5, dtype=torch.float64)
    image[0, 0, 1:6, 2] = torch.tensor([1.0, 2, 3, 4, 5])
    expected = torch.zeros_like(image)
    expected[0, 0, 3] = torch.tensor([1.0, 2, 3, 4, 5])  # what was at the top is now at the left
    assert_close(affine(image, **still(1) | {"degrees": torch.tensor([90.0])}), expected, rtol=0, atol=1e-6)


def test_affine_zooms_then_shifts():
    image = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    image[0, 0, 4, 5] = 1.0  # one pixel right of the centre
    moved = affine(image, degrees=torch.zeros(1), zoom=torch.full((1,), 2.0), shift=torch.tensor([[1.0, 0.0]]))
    assert moved.argmax() == 4 * 9 + 7  # 2 · 1 pixel, and 1 more
    assert_close(moved.sum(), torch.tensor(4.0, dtype=torch.float64))  # twice as large both ways


def test_random_affine_stays_in_its_bounds():
    """A dot one pixel from the centre, seen through the extremes of many draws."""
    images = torch.zeros(500, 1, 15, 15)
    images[:, :, 7, 7] = 1.0
    moved = random_affine(images, torch.Generator().manual_seed(0), degrees=180, translate=2, scale=0)
    pixels = torch.arange(15.0) - 7
    mass = moved.sum(dim=(1, 2, 3))
    down = (moved.sum(dim=(1, 3)) * pixels).sum(dim=1) / mass
    right = (moved.sum(dim=(1, 2)) * pixels).sum(dim=1) / mass
    for shift in (down, right):
        assert 1.9 < shift.max() < 2.3
        assert -2.3 < shift.min() < -1.9
        assert len(shift.unique()) > 400  # every image its own
    assert abs(torch.corrcoef(torch.stack([down, right]))[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("options", "bounds"),
    [({}, (10, 0.1, 2)), ({"degrees": 30.0, "scale": 0.5, "translate": 3.0}, (30, 0.5, 3))],
    ids=["default", "as told"],
)
def test_random_affine_draws_four_numbers_for_each_image(monkeypatch, options, bounds):
    monkeypatch.setattr(augmentation, "affine", lambda images, **amounts: amounts)
    amounts = random_affine(torch.zeros(4000, 1, 5, 5), torch.Generator().manual_seed(0), **options)
    degrees, scale, translate = bounds
    right, down = (amounts["shift"] / translate).unbind(dim=1)
    draws = torch.stack([amounts["degrees"] / degrees, (amounts["zoom"] - 1) / scale, right, down])
    assert draws.abs().max() < 1 + 1e-5
    assert_close(draws.amax(dim=1), torch.ones(4), rtol=0, atol=0.01)
    assert_close(draws.amin(dim=1), -torch.ones(4), rtol=0, atol=0.01)
    assert_close(torch.corrcoef(draws), torch.eye(4), rtol=0, atol=0.06)  # four standard deviations


def test_random_affine_keeps_range_dtype_and_needs_no_gradient(images):
    for dtype in (torch.float32, torch.float64):
        x = images.to(dtype).requires_grad_()
        result = random_affine(x, torch.Generator().manual_seed(0))
        assert (result.shape, result.dtype, result.requires_grad) == (x.shape, dtype, False)
        assert result.min() >= 0
        assert result.max() <= 1
        assert not torch.equal(result, x)


def test_random_affine_refuses_a_zoom_to_nothing(images):
    for scale in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"scale must lie in \[0, 1\), got {scale}"):
            random_affine(images, torch.Generator(), scale=scale)


# --- what importing costs --------------------------------------------------------------------------------------------


def test_small_data_do_not_import_torchvision():
    code = "import sys; from sciformer import data; data.mnist('test'); assert 'torchvision' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_whole_files_give_no_warning(tiny_mnist, tmp_path):
    place(tmp_path, tiny_mnist)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.mnist("test", size="full", root=tmp_path)
        data.mnist("test")
        data.shakespeare("val")


def test_lookup_answers_with_the_value_beside_the_key():
    keys, values, query, answer = lookup(500, seed=0, pairs=5, num_keys=7, num_values=3)
    assert keys.shape == values.shape == (500, 5)
    assert query.shape == answer.shape == (500,)
    for row_keys, row_values, asked, told in zip(*(t.tolist() for t in (keys, values, query, answer)), strict=True):
        assert len(set(row_keys)) == 5
        assert row_values[row_keys.index(asked)] == told
    assert set(keys.flatten().tolist()) == set(range(7))
    assert set(values.flatten().tolist()) == set(range(3))
    place = (keys == query[:, None]).int().argmax(dim=-1)
    assert place.bincount(minlength=5).min() > 60  # of 100 expected


def test_lookup_depends_on_its_seed_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = lookup(20, seed=3), lookup(20, seed=3), lookup(20, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("sizes", [{"count": 0}, {"pairs": 0}, {"num_values": 0}, {"num_keys": 7}])
def test_lookup_refuses_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="lookup needs 1 or more of everything and a key for each pair"):
        lookup(**{"count": 10, "seed": 0, **sizes})


def test_clustered_tokens_are_where_their_clusters_are():
    positions, labels, importance = clustered_tokens(400, seed=0, clusters=5, size=3, spread=0.1, high=2.5)
    assert (positions.shape, labels.shape, importance.shape) == ((400, 15, 2), (400, 15), (400, 15))
    assert labels[7].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    angle = 2 * math.pi * torch.arange(5) / 5
    plan = torch.stack((angle.cos(), angle.sin()), dim=-1)
    centres = positions.view(400, 5, 3, 2).mean(2)
    first = centres[:, 0] / centres[:, 0].norm(dim=-1, keepdim=True)
    turned = torch.stack(
        (
            first[:, 0, None] * plan[:, 0] - first[:, 1, None] * plan[:, 1],
            first[:, 1, None] * plan[:, 0] + first[:, 0, None] * plan[:, 1],
        ),
        dim=-1,
    )
    assert (centres - turned).norm(dim=-1).max() < 0.5
    around = positions.view(400, 5, 3, 2) - centres[:, :, None]
    assert (around.square().sum() / (400 * 5 * 2 * 2)).sqrt().item() == pytest.approx(0.1, rel=0.05)
    assert first.mean(0).norm() < 0.15  # turned every way
    by_cluster = importance.view(400, 5, 3)
    assert (by_cluster == by_cluster[:, :, :1]).all()
    assert ((by_cluster[..., 0] == 2.5).sum(1) == 2).all()
    assert ((by_cluster[..., 0] == 1).sum(1) == 3).all()
    assert (by_cluster[..., 0] == 2.5).float().mean(0).sub(0.4).abs().max() < 0.1


def test_clustered_tokens_depend_on_their_seed_alone():
    first, again, other = (clustered_tokens(3, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("sizes", [{"count": 0}, {"clusters": 1}, {"size": 0}])
def test_clustered_tokens_refuse_impossible_sizes(sizes):
    with pytest.raises(ValueError, match="clustered_tokens needs a set, 2 clusters and a token in each"):
        clustered_tokens(**{"count": 10, "seed": 0, **sizes})


def test_token_rows_are_filled_up_behind():
    vocabulary = Vocabulary("_ab")
    assert token_rows(["ab", "", "b"], vocabulary).tolist() == [[1, 2], [0, 0], [2, 0]]
    assert token_rows([], vocabulary).shape == (0, 0)
    with pytest.raises(ValueError, match="character 'c' of 'bc' is not in the vocabulary"):
        token_rows(["ab", "bc"], vocabulary)


def test_reversals():
    texts, reversed_texts = reversals(2000, seed=0, shortest=2, longest=5)
    assert all(text[::-1] == other for text, other in zip(texts, reversed_texts, strict=True))
    lengths = Counter(map(len, texts))
    assert set(lengths) == {2, 3, 4, 5}
    assert all(count == pytest.approx(500, abs=80) for count in lengths.values())
    assert set("".join(texts)) == set(LETTERS.characters[3:])
    assert max(len(set(text)) for text in reversals(200, seed=0, shortest=20, longest=20)[0]) == 5
    assert reversals(20, seed=3) == reversals(20, seed=3) != reversals(20, seed=4)
    for sizes in ({"count": 0}, {"shortest": 0}, {"shortest": 6, "longest": 5}):
        with pytest.raises(
            ValueError, match="reversals needs 1 string or more and 1 <= shortest <= longest, got count"
        ):
            reversals(**{"count": 10, "seed": 0, **sizes})


def test_dates_by_hand():
    day = date(1985, 3, 22)
    for form, written in [
        (DateForm(False, "dmy", "5", "March", " "), "22 March 1985"),
        (DateForm(True, "mdy", "5th", "MAR", ", "), "Fri MAR, 22nd, 1985"),
        (DateForm(False, "mdy", "05", "03", "/"), "03/22/1985"),
        (DateForm(False, "dmy", "5", "3", "."), "22.3.1985"),
        (DateForm(True, "ymd", "05", "Mar", "-"), "Fri 1985-Mar-22"),
    ]:
        assert form.write(day) == written
        assert form in DATE_FORMS
    form = DateForm(False, "dmy", "5th", "Mar", " ")
    ordinals = [form.write(date(2001, 1, n)).split()[0] for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)]
    assert ordinals == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th", "31st"]


def test_no_date_is_written_like_another():
    """A string of characters means one day, whichever form it was written in."""
    meaning: dict[str, date] = {}
    for day in (date(1905, 3, 5), date(1905, 5, 3), date(2005, 12, 11), date(2005, 11, 12), date(2010, 2, 1)):
        for form in DATE_FORMS:
            assert meaning.setdefault(form.write(day), day) == day


@pytest.mark.parametrize("days", ["train", "test"])
@pytest.mark.parametrize("forms", ["train", "test"])
def test_dates_are_what_they_say_and_keep_to_their_split(days, forms):
    written, iso = dates(3000, seed=0, days=days, forms=forms)
    kept = [form for n, form in enumerate(DATE_FORMS) if (n % 11 == 0) == (forms == "test")]
    for text, answer in zip(written, iso, strict=True):
        day = date.fromisoformat(answer)
        assert FIRST_DAY <= day <= LAST_DAY
        assert (day.toordinal() % 10 == 0) == (days == "test")
        assert text in {form.write(day) for form in kept}
    assert set("".join(written)) <= set(WRITTEN_DATES.characters[3:])
    assert set("".join(iso)) == set(ISO_DATES.characters[3:])
    numeric = sum(re.fullmatch(r"([A-Z][a-z]{2} )?[\d./-]+", text) is not None for text in written)
    assert numeric == pytest.approx(2 / 5 * 3000, abs=120)
    assert sum(answer >= "2000" for answer in iso) == pytest.approx(1500, abs=120)


def test_what_is_new_in_a_form_kept_for_testing_is_how_it_is_put_together():
    known, kept = ([f for n, f in enumerate(DATE_FORMS) if (n % 11 == 0) == test] for test in (False, True))
    assert len(set(DATE_FORMS)) == len(DATE_FORMS) == len(known) + len(kept) == 294
    for field in DateForm._fields:
        assert {getattr(form, field) for form in kept} <= {getattr(form, field) for form in known}


def test_dates_depend_on_their_seed_alone():
    first, again, other = dates(20, seed=3), dates(20, seed=3), dates(20, seed=4)
    assert first == again != other
    assert set("".join(dates(20_000, seed=0)[0])) == set(WRITTEN_DATES.characters[3:])


def test_dates_refuse():
    with pytest.raises(ValueError, match="dates needs 1 date or more, got 0"):
        dates(0, seed=0)
    with pytest.raises(ValueError, match="days must be 'train' or 'test', got 'val'"):
        dates(1, seed=0, days="val")
    with pytest.raises(ValueError, match="forms must be 'train' or 'test', got 'new'"):
        dates(1, seed=0, forms="new")


def test_windows_are_all_stretches_of_a_series():
    past, future = windows(torch.arange(11.0), 3, 5)
    assert past.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert future.tolist() == [[3, 4, 5, 6, 7], [4, 5, 6, 7, 8], [5, 6, 7, 8, 9], [6, 7, 8, 9, 10]]
    past, future = windows(torch.arange(8.0), 3, 5)
    assert (len(past), len(future)) == (1, 1)


def test_windows_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="context 3 and horizon 5 need 8 values, the series has 7"):
        windows(torch.arange(7.0), 3, 5)
    for series, context, horizon in ((torch.zeros(9, 2), 3, 5), (torch.zeros(9), 0, 5), (torch.zeros(9), 3, 0)):
        with pytest.raises(
            ValueError, match=r"windows needs a series of shape \(T,\), a context and a horizon of 1 or more"
        ):
            windows(series, context, horizon)
