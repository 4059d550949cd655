"""``python -m sciformer``: the commands by which models are trained, measured and shown, and answers graded."""

import argparse
import io
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import torch

from sciformer import data
from sciformer.check import EXERCISES, GradedLater, grading
from sciformer.check.assignment import write_assignment
from sciformer.check.command import run_grade
from sciformer.cli.classes import add_class, add_progress
from sciformer.cli.errors import PACKAGE, drop_output, is_user_error, one_line
from sciformer.cli.export import add_export
from sciformer.cli.options import (
    LARGEST,
    PROCESSES,
    Whole,
    check_device,
    count,
    positive,
    probability,
    size,
    torch_seed,
)
from sciformer.cli.runs import RUN_FILES, add_runs, write_run
from sciformer.cli.speedrun import add_speedrun
from sciformer.data.files import check_regular, check_writable, written_whole
from sciformer.functional import InputError
from sciformer.lab import experiments, predictions, records, search, steps, trainers
from sciformer.lab.settings import Profile
from sciformer.lab.settings import profile as default_profile
from sciformer.positions import POSITIONS
from sciformer.scores import SCORES
from sciformer.training import distributed

#: Options of ``train`` that change a setting's field of the same name.
MODEL_OPTIONS = (
    "batch_size", "patch_size", "length", "embed_dim", "num_heads", "num_layers", "score", "positions", "dropout"
)  # fmt: skip
#: What the doctor reports the versions of.
PACKAGES = ("sciformer", "torch", "torchvision", "numpy", "matplotlib", "ipywidgets", "jupyterlab", "nbval", "jupytext")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. The user's errors are one line on stderr and exit status 1; ``--debug`` shows the traceback.

    Raises:
        Exception: whatever is not the user's, for it is a bug; with ``--debug`` any error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack a letter
    debug = False
    try:
        try:
            options = parser().parse_args(arguments)
            debug = options.debug
            check_device(getattr(options, "device", "cpu"))
            options.command(options)
        finally:
            if sys.stdout is not None:  # which has been closed
                sys.stdout.flush()
    except KeyboardInterrupt:
        print("sciformer: interrupted", file=sys.stderr)
        return 130  # as shells count what Ctrl-C has ended
    except BrokenPipeError:  # nobody reads on, as after `| head`
        drop_output()
        return 1
    except Exception as error:
        if debug or not is_user_error(error):
            raise
        drop_output()
        print(f"sciformer: {one_line(error)}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="sciformer", description="A course that teaches attention by building it.")
    top.add_argument("--debug", action="store_true", help="show the traceback of every error")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for command in (_add_train(commands), _add_record(commands), _add_search(commands)):
        command.add_argument("--profile", choices=get_args(Profile), help="size of the experiment")
        command.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add_runs(commands)
    add_export(commands)
    _add_claims(commands)
    for command in (_add_assignment(commands), _add_grade(commands)):
        command.add_argument("--exercises", type=Path, metavar="FILE.py", help="exercises of your own")
    add_speedrun(commands)
    add_class(commands)
    _add_data(commands)
    add_progress(commands)
    doctor = commands.add_parser("doctor", help="versions, device, threads, data: paste it into a bug report")
    doctor.set_defaults(command=run_doctor)
    return top


def _add_train(commands: Any) -> argparse.ArgumentParser:
    train = commands.add_parser("train", help="train one model and print how good it is")
    train.add_argument("task", choices=["mnist", "shakespeare"])
    train.add_argument("--seed", type=torch_seed, default=0)
    train.add_argument("--steps", type=count, help="number of updates")
    train.add_argument("--lr", type=positive, help="peak learning rate")
    train.add_argument("--batch-size", type=size)
    train.add_argument("--patch-size", type=size, help="mnist: 1 makes every pixel a token")
    train.add_argument("--length", type=size, help="shakespeare: tokens in the context window")
    train.add_argument("--embed-dim", type=size)
    train.add_argument("--num-heads", type=size)
    train.add_argument("--num-layers", type=Whole(1, 1000))
    train.add_argument("--score", "--attention", choices=list(SCORES))
    train.add_argument("--positions", choices=[*POSITIONS, "rotary"], help="rotary: shakespeare only")
    train.add_argument("--dropout", type=probability)
    train.add_argument("--checkpoint", type=Path, help="save here now and then; go on from here if it exists")
    train.add_argument(
        "--out", type=Path, help="folder for the weights, history, losses and card of the model; runs/… if not given"
    )
    train.add_argument("--compile", action="store_true", help="use torch.compile: slower to start, then faster")
    train.set_defaults(command=run_train)
    return train


def _add_record(commands: Any) -> argparse.ArgumentParser:
    record = commands.add_parser("record", help="train every seed of an experiment and write results/NAME.json")
    record.add_argument("name", nargs="?", help="which experiment; see --list")
    record.add_argument("--list", action="store_true", help="what there is, and what is recorded")
    record.add_argument(
        "--seeds", type=Whole(-LARGEST, 10_000), help="how many seeds, if not the experiment's own number"
    )
    record.add_argument("--jobs", type=Whole(1, PROCESSES), default=1, help="how many seeds train at the same time")
    record.add_argument("--out", type=Path, help="folder for the record; with --list, that of the records to look at")
    record.add_argument("--steps", type=count, help="a rehearsal of so many steps; needs --out")
    record.add_argument("--compile", action="store_true", help="use torch.compile: slower to start, then faster")
    record.set_defaults(command=run_record)
    return record


def _add_search(commands: Any) -> argparse.ArgumentParser:
    look = commands.add_parser("search", help="random search over the hyper-parameters of an image transformer")
    look.add_argument(
        "--trials",
        type=count,
        default=search.TRIALS,
        help="how many are to be finished in all; %(default)s if not given",
    )
    look.add_argument(
        "--workers", type=Whole(-LARGEST, PROCESSES), default=1, help="how many trials train at the same time"
    )
    look.add_argument("--storage", help="journal file, or sqlite:///… or another URL; runs/search.….journal")
    look.add_argument("--seed", type=torch_seed, default=0, help="of the draws")
    look.add_argument("--steps", type=count, help="steps of a trial, if not the profile's own number")
    look.add_argument("--out", type=Path, help="folder to write the record of the search to")
    look.set_defaults(command=run_search)
    return look


def _add_claims(commands: Any) -> None:
    claims = commands.add_parser("claims", help="the claims, what was measured, and the verdicts, as Markdown")
    claims.add_argument(
        "--write", type=Path, nargs="+", metavar="PAGE.md", help="renew the tables of these files instead"
    )
    claims.set_defaults(command=run_claims)


def _add_assignment(commands: Any) -> argparse.ArgumentParser:
    assignment = commands.add_parser("assignment", help="write the student version of notebooks")
    assignment.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    assignment.add_argument("--out", type=Path, required=True, help="folder to write to")
    assignment.add_argument("--nbgrader", action="store_true", help="with nbgrader's metadata and test cells")
    assignment.set_defaults(command=run_assignment)
    return assignment


def _add_grade(commands: Any) -> argparse.ArgumentParser:
    grade = commands.add_parser("grade", help="grade submitted notebooks and .py files")
    grade.add_argument("files", nargs="+", type=Path, metavar="FILE")
    grade.add_argument("--out", type=Path, default=Path("grades.json"), help="the report; grades.json if not given")
    grade.add_argument("--seconds", type=positive, default=120, help="time for one submission, besides its answers")
    grade.add_argument("--memory", type=size, default=4096, help="MB for one submission, on Linux")
    grade.add_argument("--seed", type=torch_seed, help="of the inputs; a fresh one if not given")
    grade.add_argument("--jobs", type=Whole(1, PROCESSES), default=1, help="how many submissions run at a time")
    grade.add_argument("--resume", action="store_true", help="grade only what the report lacks, or what has changed")
    grade.add_argument(
        "--answers", type=Path, metavar="FILE.py", help="right answers to --exercises, kept from students"
    )
    grade.add_argument("--unsandboxed", action="store_true", help="run submissions with all rights that you have")
    grade.set_defaults(command=run_grade)
    return grade


def _add_data(commands: Any) -> None:
    show = commands.add_parser("data", help="what data is where; fetch the full sets")
    show.add_argument("--root", type=Path, help="folder of the data, in place of SCIFORMER_DATA or the cache")
    show.add_argument("--fetch", action="store_true", help="download what is missing or damaged")
    show.set_defaults(command=run_data)


#: What ``train`` can train: the setting of each profile, the function that trains it, and the metric to report.
TASKS: dict[str, tuple[dict[Profile, Any], Callable[..., trainers.Run], str]] = {
    "mnist": (experiments.MNIST_IMAGE_TRANSFORMER, trainers.train_image_transformer, "test accuracy"),
    "shakespeare": (experiments.SHAKESPEARE_CELL, trainers.train_language, "validation loss"),
}


def run_train(options: argparse.Namespace) -> None:
    """Train one seed of a task's setting, with whatever the options change.

    Raises:
        InputError: if an option does not belong to the task.
    """
    settings, train, metric = TASKS[options.task]
    setting = settings[chosen_profile(options, settings, options.task)]
    config = replace(setting.train, compile=options.compile)
    config = config if options.steps is None else config.with_steps(options.steps)
    changes = {"train": config if options.lr is None else replace(config, lr=options.lr)}
    for name in MODEL_OPTIONS:
        if (value := getattr(options, name)) is not None:
            if not hasattr(setting, name):
                raise InputError(f"--{name.replace('_', '-')} is no option of {options.task}")
            changes[name] = value
    setting = replace(setting, **changes)
    name = f"{options.task}-{setting.positions}-{setting.score}-{options.seed}"
    folder = options.out or Path("runs") / name
    check_memory(setting, options.device)
    for file in RUN_FILES:  # what cannot be written is reported before the training
        check_writable(folder / file)
    with distributed.process_group(options.device) as device:
        run = train(setting, options.seed, device=device, checkpoint=options.checkpoint)
        first = distributed.rank() == 0
    if not first:
        return
    parameters = sum(p.numel() for p in run.model.parameters())
    print(f"{metric} {run.metrics[metric]:.4f} with {parameters:,} parameters,")
    print(f"seed {run.seed}, {setting.train.steps} steps in {run.history.seconds:.0f} s on {options.device}")
    write_run(run, setting, options.task, metric, folder)


def chosen_profile(options: argparse.Namespace, settings: Mapping[Profile, Any], name: str) -> Profile:
    """The profile that was asked for, or the course's own.

    Raises:
        InputError: if there is no setting for it.
    """
    profile = options.profile or default_profile()
    if profile not in settings:
        raise InputError(f"{name} has no {profile} profile; there are {', '.join(settings)}")
    return profile


def check_memory(setting: Any, device: str) -> None:
    """Refuse a model that no training on this device can hold, before the machine runs out of memory over it.

    Raises:
        InputError: saying what it needs at the least, and what there is.
    """
    needed = predictions.least_bytes(setting)
    if torch.device(device).type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    elif hasattr(os, "sysconf"):
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return
    if needed > there:
        raise InputError(f"this training needs {needed / 1e9:,.0f} GB or more, and there are {there / 1e9:,.0f} GB")


def run_record(options: argparse.Namespace) -> None:
    """Write a record, or list them.

    Raises:
        InputError: if no experiment is named, or a rehearsal would be written among the results.
    """
    if options.list:
        for name, experiment in experiments.EXPERIMENTS.items():
            for profile in experiment.settings:
                print(f"{name:24} {profile:6} {record_state(name, profile, options.out)}")
        for profile in search.SEARCH:
            print(f"{'search':24} {profile:6} {search_state(profile, options.out)}")
        return
    if options.name is None:
        raise InputError(f"record what? There are {', '.join(experiments.EXPERIMENTS)}")
    if options.steps is not None and options.out is None:
        raise InputError("a rehearsal (--steps) is no result: give it an --out of its own")
    path = records.record(
        options.name,
        options.profile or default_profile(),
        seeds=options.seeds,
        device=options.device,
        jobs=options.jobs,
        out=options.out,
        steps=options.steps,
        compiled=options.compile,
    )
    print(f"written: {path}")
    print(f"written: {draw_record(path)}")


def run_search(options: argparse.Namespace) -> None:
    """Search until so many trials are finished; say what was found.

    Raises:
        InputError: if the search has no such profile, or there is no trial or no worker.
    """
    profile = chosen_profile(options, search.SEARCH, "search")
    setting = replace(search.SEARCH[profile], seed=options.seed)
    if options.steps is not None:
        train = setting.base.train.with_steps(options.steps)
        setting = replace(setting, base=replace(setting.base, train=train))
    storage = options.storage or Path("runs") / f"search.{profile}.journal"
    if options.out is not None:  # what cannot be written is reported before the search
        check_writable(options.out / records.record_file("search", profile))

    def report(done: list[search.Trial]) -> None:
        best = max(trial.accuracy for trial in done)
        print(f"{len(done)} of {options.trials} finished, best {100 * best:.2f} %", flush=True)

    trials = search.search(
        setting, options.trials, storage=storage, workers=options.workers, device=options.device, on_trial=report
    )
    best = max(trials, key=lambda trial: trial.accuracy)
    print(f"{len(trials)} trials finished, {sum(trial.pruned for trial in trials)} of them given up on the way")
    print(f"best: trial {best.number}, validation accuracy {best.accuracy:.4f}, {best.parameters:,} parameters")
    for name, value in best.choice.items():
        print(f"  {name:10} {f'{value:.3g}' if isinstance(value, float) else value}")
    if options.out is not None:
        print(f"written: {search.write_search(setting, profile, trials, options.out, options.device)}")


def record_state(name: str, profile: Profile, folder: Path | None = None) -> str:
    """What a folder, or ``results/``, holds of an experiment, how far it got, or what is wrong with its file."""
    folder = folder or records.results_folder()
    try:
        content = records.load_record(name, profile, folder)
    except InputError as error:
        return f"DAMAGED: {error}"
    if content is not None:
        arms = f"{len(content['arms'])} arms, " if "arms" in content else ""
        return f"{arms}{len(content['seeds'])} seed(s), {content['device']}, {content['date']}, {content['commit']}"
    finished = len(list(records.kept_runs(folder / records.record_file(name, profile)).glob("*.json")))
    what = experiments.experiment(name)
    state = f"not recorded yet{f', {finished} of {what.seeds * len(what.arms(profile))} runs' if finished else ''}"
    return state + (predicted_cost(name) if profile == "full" else "")


def predicted_cost(name: str) -> str:
    """What the full profile of an experiment will cost, as the end of its state."""
    times = [
        f"{predictions.duration(predictions.minutes_to_record(name, gpu))} on {gpu.name}" for gpu in predictions.GPUS
    ]
    parameters, operations, memory, size_of_gpu = predictions.counted(name)
    counted = f"{parameters} parameters, {operations} TFLOP a step, {memory} (a GPU of {size_of_gpu})"
    measured = steps.described_steps(name)
    by_steps = "" if measured == "–" else f"; by steps measured on an H100: {measured}"
    return f"; predicted: {', '.join((counted, *times))}{by_steps}"


def search_state(profile: Profile, folder: Path | None = None) -> str:
    """What a folder, or ``results/``, holds of the random search, or what is wrong with its file."""
    try:
        found = search.load_search(profile, folder)
    except InputError as error:
        return f"DAMAGED: {error}"
    if found is None:
        return "not recorded yet" + (predicted_cost("search") if profile == "full" else "")
    trials, content = found
    return f"{len(trials)} trials, {content['device']}, {content['date']}, {content['commit']}"


def run_claims(options: argparse.Namespace) -> None:
    """Print the table of claims, or renew the tables of some files.

    Raises:
        InputError: if a file is no text, or has no marks of a table.
    """
    from sciformer.lab import claims

    if options.write is None:
        print(claims.claims_table())
        return
    for path in options.write:
        check_regular(path)
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a text file: {error}") from error
        renewed = claims.with_tables(text.replace("\r\n", "\n"))
        if "\r\n" in text:
            renewed = renewed.replace("\n", "\r\n")
        with written_whole(path.resolve()) as beside:  # a link to a page stays one
            beside.write_bytes(renewed.encode())
        print(f"written: {path}")


def draw_record(path: Path) -> Path:
    """Draw what was measured on the way, mean and standard error of each arm, beside the record."""
    from sciformer.teach import plotting

    content = json.loads(path.read_text(encoding="utf-8"))
    metric = next(name for name in content["runs"][0]["curves"] if name != "loss")
    steps, runs = records.recorded_curves(content, metric)
    title = f"{content['name']}, {content['profile']} profile, {len(content['seeds'])} seed(s)"
    picture = path.with_suffix(".png")
    share = [step / steps[-1] for step in steps]  # arms may differ in their steps
    drawn = plotting.bands(runs, x=share, xlabel="share of the training", ylabel=metric, title=title)
    with written_whole(picture) as beside:
        plotting.figure_of(drawn).savefig(beside, dpi=150, format="png")
    return picture


def run_assignment(options: argparse.Namespace) -> None:
    """Write student versions."""
    exercises = grading.known_exercises(options.exercises)
    for notebook in options.notebooks:
        check_regular(notebook)
        path, count = write_assignment(notebook, options.out, exercises, nbgrader=options.nbgrader)
        print(f"written: {path}, {count} exercises")
    own = [exercise for name, exercise in exercises.items() if EXERCISES.get(name) is not exercise]
    if own and all(isinstance(exercise, GradedLater) for exercise in own):  # the file holds no right answer
        shutil.copy(options.exercises, options.out)
        print(f"written: {options.out / options.exercises.name}, which the notebook imports")


def run_data(options: argparse.Namespace) -> None:
    """Show the data, after fetching what is missing if asked to."""
    if options.fetch:
        data.fetch(options.root)
    for row in data.describe(options.root):
        print(f"{row.name:36} {row.state:9} {row.size / 1e6:6.1f} MB  {short(row.path)}")


def short(path: Path) -> Path:
    """A path as a bug report needs it: from the package or from the user's home, without what lies above."""
    if path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE.parent)
    try:
        home = Path.home()
    except RuntimeError:  # nobody's home
        return path
    return "~" / path.relative_to(home) if path.is_relative_to(home) else path


def while_waiting() -> str:
    """What threads without work do, and what to change if they keep their core from other programs."""
    if os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE" or torch.get_num_threads() == 1:
        return "which sleep while they wait"
    return "which spin while they wait: beside other programs set OMP_WAIT_POLICY=PASSIVE before torch is imported"


def run_doctor(options: argparse.Namespace) -> None:
    """Print what a bug report needs."""
    system = f"{platform.system()} {platform.machine()}"
    print(f"python     {platform.python_version()}, {system}")
    for package in PACKAGES:
        try:
            print(f"{package:10} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            print(f"{package:10} not installed")
    print(f"cuda       {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}")
    print(f"mps        {'yes' if torch.backends.mps.is_available() else 'none'}")
    print(f"threads    {torch.get_num_threads()} of {os.cpu_count()} cores, {while_waiting()}")
    print(f"profile    {default_profile()}")
    run_data(argparse.Namespace(fetch=False, root=None))
