"""What an option accepts: each of these turns the text behind it into a value, or says what is wrong with it."""

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from sciformer.functional import InputError

#: No size, number of steps or of trials is larger: the sums of what they cost stay whole numbers of 64 bits.
LARGEST = 100_000_000
#: Most processes that are started at the same time.
PROCESSES = max(16, 4 * (os.cpu_count() or 1))


@dataclass(frozen=True)
class Whole:
    """A whole number from ``least`` to ``most``, as an option's type."""

    least: int
    most: int

    def __call__(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number") from None
        if number < self.least:
            raise argparse.ArgumentTypeError(f"{number} is below {self.least}")
        if number > self.most:
            raise argparse.ArgumentTypeError(f"{number} is above {self.most}")
        return number


#: A size; a number of steps or trials, whose least the command itself knows; a seed of torch's generators.
size = Whole(1, LARGEST)
count = Whole(-LARGEST, LARGEST)
torch_seed = Whole(-(2**63), 2**63 - 1)


def positive(text: str) -> float:
    """A finite number above 0, as an option's type.

    Raises:
        ArgumentTypeError: if it is none.
    """
    if not 0 < (number := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return number


def probability(text: str) -> float:
    """A number from 0 to 1, as an option's type.

    Raises:
        ArgumentTypeError: if it is none.
    """
    if not 0 <= (number := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} does not lie in 0..1")
    return number


@dataclass(frozen=True)
class FileEndingIn:
    """A path whose name ends so, as an option's type: what is written cannot replace a file of another kind."""

    ending: str

    def __call__(self, text: str) -> Path:
        if not text.endswith(self.ending) or text == self.ending:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} does not end in {self.ending}")
        return Path(text)


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, that nothing can be trained on, or that this machine does not have.

    Raises:
        InputError: naming it.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"--device {name!r} is unknown") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"--device {name}: models train on cpu, cuda or mps")
    if device.type == "cuda":
        if not 0 <= (device.index or 0) < torch.cuda.device_count():
            raise InputError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA GPUs")
    elif device.index not in (None, 0):
        raise InputError(f"--device {name}: there is only one {device.type}")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"--device {name}: this machine has no GPU of Apple's that torch can use")
