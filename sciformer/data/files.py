"""Files that are there whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` to write to; move it to ``path`` if the block succeeds, else remove it.

    The old file stays at ``path`` until the new one is complete on the disk. Each writer has a temporary file of its
    own, so of several at once the last one wins and none mixes with another. A file that is replaced hands on its
    permissions; a new file has those that the umask leaves. A symbolic link at ``path`` is itself replaced: the file
    that it led to is never written to. Missing folders are made. Only a writer that is killed outright leaves its
    temporary file behind, which ends in ``.partial``.

    Raises:
        OSError: if the folder cannot be made or written.
    """
    path = Path(path)
    with _temporary_beside(path) as beside:
        yield beside
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(path, beside)
        os.replace(beside, path)


def check_writable(path: str | Path) -> None:
    """Find out now whether ``written_whole`` can write to ``path``, and change nothing there.

    Raises:
        OSError: if the folder cannot be made or written.
    """
    with _temporary_beside(Path(path)):
        pass


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    beside.touch(exist_ok=False)  # fails if the name is taken, by a symbolic link, for instance
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)
