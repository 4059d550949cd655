"""Whose an error is: the user's is one line, and a bug keeps its traceback."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import torch

from sciformer.data import DataError
from sciformer.functional import InputError
from sciformer.lab.records import UnfinishedRecord

#: What only some commands need: where one is missing, the error says what to install.
OPTIONAL_PACKAGES = ("optuna", "scipy")
PACKAGE = Path(__file__).parents[1]


def is_user_error(error: BaseException | None) -> bool:
    """Whether an error tells the user what to change, and so needs no traceback; anything else is a bug."""
    match error:
        case InputError() | DataError():  # an input that was refused, data that cannot be had
            return True
        case FloatingPointError() | ChildProcessError():  # a training that diverged, a worker that does not start
            return True
        case RuntimeError() if str(error).startswith("Symlink loop"):  # an OSError from Python 3.13 on
            return True
        case ModuleNotFoundError():
            return error.name in OPTIONAL_PACKAGES
        case FileNotFoundError(filename=str(path)):  # unless it is one that the package should have brought
            return not Path(path).is_relative_to(PACKAGE)
        case OSError(errno=int()):  # a file that cannot be read or written, a disk that is full
            return True
        case UnfinishedRecord():
            return is_user_error(error.__cause__)
    return lacks_memory(error)


def lacks_memory(error: BaseException | None) -> bool:
    """Whether there was not enough memory, which torch says on a CPU by a plain RuntimeError."""
    if isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error):
        return True
    return isinstance(error, MemoryError | torch.OutOfMemoryError)


def one_line(error: BaseException) -> str:
    """What to print of a user's error."""
    return " ".join(f"{'there is not enough memory: ' if lacks_memory(error) else ''}{error}".split())


def drop_output() -> None:
    """Where standard output cannot be written, drop what is left, which Python would try to write at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
