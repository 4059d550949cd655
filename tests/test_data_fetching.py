"""Fetching: what is embedded, what is fetched, and all that can go wrong on the way, with real files and servers.

Tiny Shakespeare is served whole by a server of this machine. MNIST is stood in for by a set of 5 + 3 digits in the
original format, so that torchvision's own download, with its checksums and unpacking, is what runs.
"""

import bz2
import gzip
import hashlib
import inspect
import os
import runpy
import shutil
import signal
import socket
import struct
import sys
import threading
import warnings
from collections import Counter
from http.client import BadStatusLine
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from torchvision.datasets import MNIST

from sciformer import data
from sciformer.data import DataError, DataFile, fetching, text

FULL = os.environ.get("SCIFORMER_DATA")
needs_full = pytest.mark.skipif(not FULL, reason="SCIFORMER_DATA names no folder with the full data")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")
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


def put(root: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


# --- what is embedded ------------------------------------------------------------------------------------------------


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
        assert row.size == row.path.stat().st_size
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
def test_damaged_file_is_fetched_again(server, tmp_path, monkeypatch, damage, words):
    for module, name in ((text, "full_shakespeare"), (fetching, "_cached")):  # the type checker adds frames of its own
        monkeypatch.setattr(module, name, inspect.unwrap(getattr(module, name)))
    put(tmp_path, {"tinyshakespeare/input.txt": damage(TEXT)})
    assert data.describe(tmp_path)[-1].state == "damaged"
    with pytest.warns(UserWarning, match=f"input.txt {words}.*; it is fetched again") as caught:
        inspect.unwrap(data.shakespeare)(root=tmp_path)
    assert caught[0].filename == __file__  # the warning points at the reader's own line
    assert files_below(tmp_path) == {str(Path("tinyshakespeare/input.txt")): TEXT}


def test_damaged_mnist_is_fetched_again(tiny_server, tiny_mnist, tmp_path):
    labels = "MNIST/raw/t10k-labels-idx1-ubyte"
    put(tmp_path, tiny_mnist | {labels: tiny_mnist[labels][:-1] + b"\x09"})  # torchvision would not notice
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
    put(tmp_path, contents)
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
    put(tmp_path, {"tinyshakespeare/input.txt": TEXT})
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


def test_whole_files_give_no_warning(tiny_mnist, tmp_path):
    put(tmp_path, tiny_mnist)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.mnist("test", size="full", root=tmp_path)
        data.mnist("test")
        data.shakespeare("val")
