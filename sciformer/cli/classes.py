"""``python -m sciformer class`` and ``progress``: what a class did, and how far a reader is."""

import argparse
from pathlib import Path
from typing import Any, get_args

from sciformer.check import EXERCISES, classbook, progress
from sciformer.check.command import show
from sciformer.check.report import read_report
from sciformer.cli.options import FileEndingIn, probability
from sciformer.data.files import check_regular, check_writable, written_whole
from sciformer.functional import InputError


def add_class(commands: Any) -> None:
    """The command and its options."""
    own = commands.add_parser("class", help="which mistakes a class made, and its points for Canvas or Moodle")
    own.add_argument("report", type=Path, help="what grade wrote")
    own.add_argument("--keep", choices=get_args(classbook.Keep), default="best", help="which counts of several")
    own.add_argument("--late", type=probability, default=1.0, help="what a late submission is worth, from 0 to 1")
    own.add_argument("--picture", type=FileEndingIn(".png"), metavar="FILE.png", help="draw the mistakes")
    own.add_argument("--roster", type=Path, metavar="FILE.csv", help="Canvas's gradebook or Moodle's grading worksheet")
    own.add_argument("--column", default="sciformer", help="name of the assignment in Canvas's gradebook")
    own.add_argument(
        "--out", type=FileEndingIn(".csv"), metavar="FILE.csv", help="the roster with the points filled in"
    )
    own.set_defaults(command=run_class)


def add_progress(commands: Any) -> None:
    """The command and its options."""
    own = commands.add_parser("progress", help="which exercises are solved, in the folder of the notebooks")
    own.add_argument("--folder", type=Path, default=Path(), help="where the notebooks are (default: here)")
    own.add_argument(
        "--picture", type=FileEndingIn(".png"), metavar="FILE.png", help="draw the course with what is solved"
    )
    own.set_defaults(command=run_progress)


def run_progress(options: argparse.Namespace) -> None:
    """Show what is solved, and draw it where asked to.

    Raises:
        InputError: if the folder does not exist.
    """
    if not options.folder.is_dir():
        raise InputError(f"--folder {options.folder} is no folder")
    print(progress.overview(EXERCISES, options.folder))
    if options.picture is not None:
        from sciformer.teach import plotting

        titles: dict[str, str] = {}
        for exercise in EXERCISES.values():
            titles.setdefault(exercise.notebook, exercise.reference.__module__.rpartition(".")[2].replace("_", " "))
        with written_whole(options.picture) as beside:
            plotting.course(progress.states(EXERCISES, options.folder), titles).savefig(beside, dpi=150, format="png")
        print(f"written: {options.picture}")


def run_class(options: argparse.Namespace) -> None:
    """Show which mistakes a class made; draw them, and fill in a platform's table, where asked to.

    Raises:
        InputError: if the report or the table is none, or one of --roster and --out is missing.
    """
    if (options.roster is None) != (options.out is None):
        raise InputError("--roster and --out go together: the platform's table, and where it is written filled in")
    check_regular(options.report)
    _, grades = read_report(options.report)
    chosen = classbook.handed_in(grades, keep=options.keep, late=options.late)
    found = classbook.tallies(chosen)
    show(classbook.mistakes_table(found, len(chosen)))
    if options.picture is not None:
        from sciformer.teach import plotting

        check_writable(options.picture)
        with written_whole(options.picture) as beside:
            plotting.mistakes(found).savefig(beside, dpi=150, format="png")
        show(f"written: {options.picture}")
    if options.roster is not None:
        check_regular(options.roster)
        filled, missing = classbook.fill_in(chosen, options.roster, options.out, options.column)
        show(f"written: {options.out}, {filled} rows filled in")
        if missing:
            show("not in the table: " + ", ".join(missing))
