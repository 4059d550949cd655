"""``python -m sciformer speedrun``: train a submission and hold it to the rules."""

import argparse
from pathlib import Path
from typing import Any

from sciformer.cli.options import PROCESSES, Whole
from sciformer.data.files import check_regular, check_writable


def add_speedrun(commands: Any) -> None:
    """The command and its options."""
    own = commands.add_parser("speedrun", help="how soon a submission reaches nanoGPT's loss; see docs/speedrun.md")
    own.add_argument("action", choices=("check",), help="train it and hold it to the rules")
    own.add_argument(
        "file", type=Path, metavar="FILE.py", help="with train(text, vocab_size, seed), which gives a model"
    )
    own.add_argument("--seeds", type=Whole(1, PROCESSES), default=3, help="how many; %(default)s if not given")
    own.add_argument("--record", metavar="TEXT", help="keep the result beside the file; TEXT says what is new in it")
    own.set_defaults(command=run_speedrun)


def run_speedrun(options: argparse.Namespace) -> None:
    """Train every seed of a submission, and say what it reaches.

    Raises:
        InputError: if the file is no submission, or its model breaks a rule.
    """
    from sciformer.lab import speedrun

    check_regular(options.file)
    if options.record is not None:  # what cannot be written is reported before the training
        check_writable(options.file.with_suffix(".json"))
    speedrun.load_submission(options.file)
    attempts = []
    for seed in range(options.seeds):
        attempts.append(speedrun.attempt(options.file, seed))
        print(f"seed {seed}: {speedrun.describe(attempts[-1:])}", flush=True)
    print(f"all:    {speedrun.describe(attempts)}")
    if options.record is not None:
        print(f"written: {speedrun.write_record(options.file, options.record, attempts)}")
