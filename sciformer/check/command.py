"""``python -m sciformer grade``, which may be interrupted, and writes to whatever terminal there is."""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sciformer.check.grading import Grade, grade
from sciformer.check.report import read_report, table, write_report
from sciformer.functional import InputError


def run_grade(options: argparse.Namespace) -> None:
    """Grade submissions; write the report as it grows, then print a table.

    Raises:
        InputError: if a report is to be resumed with another seed.
    """
    seed, known = read_report(options.out) if options.resume else (options.seed, [])
    if options.seed not in (None, seed):
        raise InputError(f"{options.out} was graded with --seed {seed}, and can be resumed with no other")
    seed = secrets.randbits(32) if seed is None else seed
    grades: list[Grade] = []

    def report(so_far: list[Grade]) -> None:
        grades[:] = so_far
        write_report(so_far, seed, options.out)

    try:
        with ended_by_signals():
            grade(
                options.files,
                seed,
                module=options.exercises,
                answers=options.answers,
                seconds=options.seconds,
                memory=options.memory,
                jobs=options.jobs,
                unsandboxed=options.unsandboxed,
                known=known,
                report=report,
            )
    except BaseException:  # an interruption, a full disk
        if grades:
            show(table(grades))
            show(f"stopped: {sum(one.graded for one in grades)} of {len(grades)} are graded; --resume goes on")
        raise
    show(table(grades))
    show(f"written: {options.out}")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A process that is told to end, or whose terminal is closed, cleans up first as it does after Ctrl-C."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show(text: str) -> None:
    """Print what any terminal can show, and nothing more once nobody reads on, as after ``| head``."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
