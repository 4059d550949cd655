"""Files that are there whole or not at all."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` to write to; move it to ``path`` if the block succeeds, else remove it.

    The old file stays at ``path`` until the new one is complete on the disk. Each writer has a temporary file of its
    own, so of several at once the last one wins and none mixes with another. A file that is replaced hands on its
    permissions; a new file has those that the umask leaves; until it is whole, nobody but its owner can open it. A
    symbolic link at ``path`` is itself replaced: the file that it led to is never written to. Missing folders are made.
    Only a writer that is killed outright leaves its temporary file behind, which ends in ``.partial``.

    Raises:
        OSError: if the folder cannot be made or written, the disk is full, or something other than a file is at
            ``path``, such as a folder or a device. It names ``path`` if it would name no file.
    """
    path = Path(path)
    with _temporary_beside(path) as beside:
        handed_on = path if path.is_file() and not path.is_symlink() else beside
        mode = stat.S_IMODE(handed_on.stat().st_mode)
        beside.chmod(stat.S_IRUSR | stat.S_IWUSR)
        try:
            yield beside
            with beside.open("r+b") as file:
                os.fsync(file.fileno())
            beside.chmod(mode)
            os.replace(beside, path)
        except OSError as error:
            if error.errno is not None and error.filename is None:  # writing to an open file names none
                error.filename = str(path)
            raise


def check_writable(path: str | Path) -> None:
    """Find out now whether ``written_whole`` can write to ``path``, and change nothing there.

    Raises:
        OSError: if the folder cannot be made or written, or something other than a file is at ``path``.
    """
    with _temporary_beside(Path(path)):
        pass


def check_regular(path: Path) -> None:
    """Refuse to read or replace what is no file: a folder, a pipe that never ends, a device such as /dev/zero.

    Raises:
        OSError: if something is there that is no regular file and no symbolic link to one.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    check_regular(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    beside.touch(exist_ok=False)  # fails if the name is taken, by a symbolic link, for instance
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)
