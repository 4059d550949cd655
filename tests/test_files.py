"""A file is there whole or not at all, whoever else writes it, whatever stops the writer."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sciformer.data import files
from sciformer.data.files import check_regular, check_writable, written_whole

pytestmark = pytest.mark.attack
posix = pytest.mark.skipif(os.name != "posix", reason="permissions and symbolic links as on POSIX")

#: Writes lines of one letter many times over, bit by bit, as soon as the other writer is ready, too.
WRITER = """
import runpy, sys, time
from pathlib import Path

written_whole = runpy.run_path(sys.argv[1])["written_whole"]  # by itself: it starts without torch
path, ready, letter, lines = sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
(ready / letter).touch()
deadline = time.monotonic() + 60
while len(list(ready.iterdir())) < 2 and time.monotonic() < deadline:
    time.sleep(0.001)
for _ in range(200):
    with written_whole(path) as beside, beside.open("w") as file:
        for _ in range(lines):
            file.write(100 * letter + "\\n")
            file.flush()
"""


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_two_writers_at_once_never_mix(tmp_path):
    path, ready, lines = tmp_path / "new" / "file", tmp_path / "ready", {"a": 30, "b": 17}
    ready.mkdir()
    whole = {n * (100 * letter + "\n") for letter, n in lines.items()}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, files.__file__, path, ready, letter, str(n)])
        for letter, n in lines.items()
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        seen |= {path.read_text()} if path.exists() else set()
        time.sleep(0.001)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen | {path.read_text()} <= whole
    assert [file.name for file in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_writer_that_fails_leaves_the_old_file_and_no_litter(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def fails():
        with written_whole(path) as beside:
            beside.write_text("half of the n")
            raise error

    with pytest.raises(type(error)):
        fails()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_moved_into_its_place_leaves_no_litter(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()

    def write():
        with written_whole(path) as beside:
            beside.write_text("new")

    with pytest.raises(OSError, match="folder"):
        write()
    assert list(tmp_path.iterdir()) == [path]
    assert list(path.iterdir()) == []


def test_a_file_is_on_the_disk_before_it_replaces_the_old_one(tmp_path, monkeypatch):
    path, events, fsync, replace = tmp_path / "file", [], os.fsync, os.replace

    def watched_fsync(descriptor):
        events.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def watched_replace(source, target):
        events.append(("replace", target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    with written_whole(path) as beside:
        beside.write_text("seven..")
    assert events == [("fsync", 7), ("replace", path)]


@posix
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        with written_whole(tmp_path / "file") as beside:
            beside.write_text("new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o640


@posix
@pytest.mark.parametrize("permissions", [0o600, 0o664, 0o755, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, permissions):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(permissions)
    with written_whole(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "new"
    assert mode(path) == permissions


@posix
def test_a_symbolic_link_is_replaced_and_the_file_that_it_led_to_is_not(tmp_path):
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_text("not yours")
    path.symlink_to(other)
    with written_whole(path) as beside:
        beside.write_text("new")
    assert not path.is_symlink()
    assert path.read_text() == "new"
    assert other.read_text() == "not yours"


@posix
def test_a_symbolic_link_that_leads_nowhere_is_replaced(tmp_path):
    path = tmp_path / "file"
    path.symlink_to(tmp_path / "nothing")
    with written_whole(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_a_link_at_the_name_of_the_temporary_file_is_not_followed(tmp_path, monkeypatch):
    """Neither at a name that could be guessed, nor at the very name, if someone did guess it."""
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_text("not yours")
    (tmp_path / "file.partial").symlink_to(other)
    with written_whole(path) as beside:
        beside.write_text("new")
    assert other.read_text() == "not yours"
    beside.symlink_to(other)
    monkeypatch.setattr("secrets.token_hex", lambda count: beside.suffixes[-2][1:])
    with pytest.raises(FileExistsError), written_whole(path) as again:
        again.write_text("newer")
    assert other.read_text() == "not yours"
    assert path.read_text() == "new"
    assert beside.is_symlink()


def test_whether_a_file_can_be_written_is_found_out_without_a_trace(tmp_path):
    path = tmp_path / "new" / "file"
    check_writable(path)
    assert list(path.parent.iterdir()) == []
    path.write_text("old")
    check_writable(str(path))
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(OSError, match="file"):
        check_writable(path / "below a file")


@posix
def test_a_link_does_not_hand_on_the_permissions_of_what_it_leads_to(tmp_path):
    """Or who plants a link to a file that all may write could write to the new file, too."""
    path, other = tmp_path / "file", tmp_path / "other"
    other.touch()
    other.chmod(0o666)
    path.symlink_to(other)
    before = os.umask(0o022)
    try:
        with written_whole(path) as beside:
            beside.write_text("new")
    finally:
        os.umask(before)
    assert mode(path) == 0o644


@posix
@pytest.mark.parametrize("permissions", [0o600, 0o666])
def test_nobody_else_reads_a_file_before_it_is_whole(tmp_path, permissions):
    path = tmp_path / "file"
    path.touch()
    path.chmod(permissions)
    with written_whole(path) as beside:
        beside.write_text("secret")
        assert mode(beside) == 0o600
    assert mode(path) == permissions


def no_files(folder):
    """A folder, a pipe that nobody writes to, and devices: none of them is ever read or replaced."""
    (folder / "folder").mkdir()
    yield folder / "folder"
    if os.name == "posix":
        os.mkfifo(folder / "pipe")
        (folder / "link").symlink_to("/dev/full")
        yield from (folder / "pipe", folder / "link", *map(Path, ("/dev/full", "/dev/zero", "/dev/null")))


def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path):
    def write():
        with written_whole(path) as beside:
            beside.write_text("new")

    for path in no_files(tmp_path):
        before = path.stat()
        for attempt in (write, lambda: check_writable(path), lambda: check_regular(path)):  # noqa: B023
            with pytest.raises(OSError, match="Not a regular file") as raised:
                attempt()
            assert raised.value.filename == str(path)
        assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".partial")] == []


def test_a_full_disk_is_named_and_leaves_the_old_file(small_disk):
    path = small_disk / "file"
    path.write_text("old")

    def write():
        with written_whole(path) as beside, beside.open("wb", buffering=0) as file:
            for _ in range(3):
                if file.write(bytes(200_000)) < 200_000:  # what is left of the disk
                    file.write(b"more")

    with pytest.raises(OSError, match="No space left on device") as raised:
        write()
    assert raised.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(small_disk.iterdir()) == [path]
