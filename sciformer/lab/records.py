"""Records of experiments: the JSON files in ``results/``.

A record holds all seeds of an experiment and is written only when every one of them has finished.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from sciformer.data.fetching import full_digits_at_hand
from sciformer.data.files import check_writable, written_whole
from sciformer.functional import InputError
from sciformer.lab.experiments import experiment
from sciformer.lab.forms import Form, read_json
from sciformer.lab.metrics import known_metric, mean_and_error
from sciformer.lab.settings import Profile, on_all_test_digits
from sciformer.lab.trainers import Run, thinned
from sciformer.lab.workers import worker_pool

#: The form of a run in a record, and of a record.
RUN: Form = {
    "arm?": str,
    "seed": int,
    "parameters": int,
    "metrics": {str: float},
    "details?": {str: list},
    "curves": {"loss": [(int, float)], str: [(int, float)]},
    "seconds": float,
}
RECORD: Form = {
    "name": str,
    "profile": str,
    "arms?": [str],
    "config": dict,
    "seeds": [int],
    "runs": [RUN],
    "seconds": float,
    "device": str,
    "versions": {str: str},
    "commit?": str,
    "date": str,
}


class UnfinishedRecord(Exception):
    """Some runs of a record failed; those that finished are kept."""


def record(
    name: str,
    profile: Profile,
    *,
    seeds: int | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    out: Path | None = None,
    steps: int | None = None,
    compiled: bool = False,
) -> Path:
    """Train every seed of every arm of an experiment and write its record.

    Every run is kept as soon as it has finished, in a folder beside the record, and a long one is saved on the way. So
    when one fails, or the machine goes down, the next call trains only what is missing, provided that settings, commit,
    versions and device are the same. The folder is removed when the record is complete. The record's "seconds" are
    those of the call that completed it; those of a run include the time before an interruption.

    Where the full MNIST is at hand, models that were trained on the small one are judged on all 10,000 test digits,
    too, as the record's settings say ("test_size"): with 2,000, the digits that happen to be among them add ± 0.2
    points to an accuracy of 99 %.

    Args:
        seeds: how many for each arm, if not as many as the experiment says.
        jobs: how many runs train at the same time, each in a process of its own.
        out: folder of the record; :func:`results_folder` where it is not given.
        steps: train for that many steps instead, for a rehearsal.
        compiled: pass every model through ``torch.compile``.

    Returns:
        The file written.

    Raises:
        InputError: if the experiment is unknown or there is no seed.
        UnfinishedRecord: if some runs failed; the others were trained all the same.
        ChildProcessError: if one of several processes was killed.
        OSError: before the first run, if the record cannot be written.
    """
    what = experiment(name)
    arms = what.arms(profile)
    if steps is not None:
        arms = {arm: replace(setting, train=setting.train.with_steps(steps)) for arm, setting in arms.items()}
    if compiled:
        arms = {arm: replace(setting, train=replace(setting.train, compile=True)) for arm, setting in arms.items()}
    if full_digits_at_hand():
        arms = {arm: on_all_test_digits(setting) for arm, setting in arms.items()}
    all_seeds = range(what.seeds if seeds is None else seeds)
    if not all_seeds:
        raise InputError(f"a record needs at least 1 seed, got {seeds}")
    tasks = [(arm, setting, seed) for arm, setting in arms.items() for seed in all_seeds]
    path = (out or results_folder()) / record_file(name, profile)
    where, kept, began = environment(device), kept_runs(path), time.perf_counter()
    check_writable(path)  # what cannot be written is reported before the training
    kept.mkdir(exist_ok=True)
    run = what.run if jobs == 1 else partial(what.run, progress=False)  # their bars would write over each other
    attempt = partial(_attempt, run, device, where, kept)
    if jobs == 1:
        runs = [attempt(*task) for task in tasks]
    else:
        with worker_pool(min(jobs, len(tasks)), threads=torch.get_num_threads()) as pool:
            runs = list(tqdm(pool.map(attempt, *zip(*tasks, strict=True)), "runs", len(tasks)))
    _check_finished(name, tasks, runs, kept)
    configs = {arm: asdict(setting) for arm, setting in arms.items()}
    content = {
        "name": name,
        "profile": profile,
        **({"config": configs[None]} if None in arms else {"arms": list(arms), "config": configs}),
        "seeds": list(all_seeds),
        "runs": runs,
        "seconds": round(time.perf_counter() - began, 1),
        **where,
    }
    with written_whole(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(kept)
    return path


def _check_finished(
    name: str, tasks: list[tuple[str | None, Any, int]], runs: list[dict[str, Any] | Exception], kept: Path
) -> None:
    failed = [(arm, seed, run) for (arm, _, seed), run in zip(tasks, runs, strict=True) if isinstance(run, Exception)]
    if failed:
        arm, seed, error = failed[0]
        raise UnfinishedRecord(
            f"{len(failed)} of {len(tasks)} runs failed, the first is {'' if arm is None else f'{arm}, '}seed {seed}: "
            f"{error}. The others are kept in {kept}; record {name} again to train what is missing"
        ) from error


def kept_runs(path: Path) -> Path:
    """The folder beside a record in which its finished runs wait for the others."""
    return path.with_suffix(".runs")


def _attempt(
    run: Callable[..., Run],
    device: torch.device | str,
    where: dict[str, Any],
    kept: Path,
    arm: str | None,
    setting: Any,
    seed: int,
) -> dict[str, Any] | Exception:
    """One run: kept from before, or trained and kept now, or the error that ended it."""
    path = kept / f"{'run' if arm is None else arm}, seed {seed}.json"
    known = json.loads(json.dumps({"setting": asdict(setting), **where, "date": None}))
    if (kept_run := _kept_run(path, known)) is not None:
        return kept_run
    fingerprint = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:12]
    checkpoint = path.with_name(f"{path.stem}, {fingerprint}.pt")  # other code must not go on from it
    try:
        summary = _summary(partial(run, checkpoint=checkpoint), device, arm, setting, seed)
    except Exception as error:  # whatever it is, it must not cost what the other runs have found
        return error
    with written_whole(path) as beside:
        beside.write_text(json.dumps({"known": known, "run": summary}) + "\n", encoding="utf-8")
    checkpoint.unlink(missing_ok=True)
    return summary


def _kept_run(path: Path, known: dict[str, Any]) -> dict[str, Any] | None:
    """A run that has finished before, if its file is whole and it was trained with what is known now."""
    try:
        content = read_json(path, {"known": dict, "run": RUN})
    except (InputError, FileNotFoundError):
        return None
    return content["run"] if content["known"] == known else None


def _summary(
    run: Callable[..., Run], device: torch.device | str, arm: str | None, setting: Any, seed: int
) -> dict[str, Any]:
    result = run(setting, seed, device=device)
    curves = {"loss": thinned(result.history.loss)}
    return {
        **({} if arm is None else {"arm": arm}),
        "seed": seed,
        "parameters": sum(p.numel() for p in result.model.parameters()),
        "metrics": result.metrics,
        "details": result.details,
        "curves": curves | result.history.metrics,
        "seconds": round(result.history.seconds, 1),
    }


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Where a measurement comes from: device, versions, threads, commit."""
    on_cuda = torch.device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else f"CPU, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    if not (here.parents[1] / ".git").exists():
        return None  # installed, perhaps inside a repository of somebody else's
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None  # without git


def results_folder() -> Path:
    """Where the records lie: inside an installed package, beside it in a checkout."""
    inside = Path(__file__).parents[1] / "results"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "results"


def record_file(name: str, profile: Profile) -> str:
    """File name of a record; that of the full profile, the real experiment, is just the name."""
    return f"{name}.json" if profile == "full" else f"{name}.{profile}.json"


def load_record(name: str, profile: Profile = "full", folder: Path | None = None) -> dict[str, Any] | None:
    """A record, or None if that run has not been made. It is read once and shared: whoever changes it copies it first.

    Raises:
        InputError: if the experiment is unknown, or the file is not a whole record.
    """
    experiment(name)
    path = (folder or results_folder()) / record_file(name, profile)
    if not path.exists():
        return None
    file = path.stat()
    return _whole_record(path, name, profile, (file.st_ino, file.st_size, file.st_mtime_ns))


@lru_cache(maxsize=64)
def _whole_record(path: Path, name: str, profile: Profile, version: tuple[int, int, int]) -> dict[str, Any]:
    """What a file holds as long as it is the same version of it: tables ask for most records many times."""
    try:
        content = read_json(path, RECORD)
        _check_whole(content, name, profile)
    except InputError as error:
        raise InputError(f"{path} is not a whole record ({error}); record {name} again") from error
    return content


def _check_whole(content: dict[str, Any], name: str, profile: Profile) -> None:
    """Hold a record of the right form to what it is a record of.

    Raises:
        InputError: if it is of another experiment, lacks a run, or holds one that lacks what others of its arm have.
    """
    if (content["name"], content["profile"]) != (name, profile):
        raise InputError(f"it is of {content['name']}, {content['profile']} profile")
    wanted = [(arm, seed) for arm in content.get("arms", [None]) for seed in content["seeds"]]
    if [(run.get("arm"), run["seed"]) for run in content["runs"]] != wanted or not wanted:
        raise InputError("it lacks some of its seeds")
    measured: dict[str | None, tuple[set[str], dict[str, list[int]]]] = {}
    for run in content["runs"]:
        own = set(run["metrics"]), {metric: [step for step, _ in curve] for metric, curve in run["curves"].items()}
        if measured.setdefault(run.get("arm"), own) != own or not all(run["curves"].values()):
            raise InputError(f"seed {run['seed']} has not the metrics and curves of its arm's first")


def recorded_curves(content: dict[str, Any], metric: str) -> tuple[list[int], dict[str, Float[Tensor, "R T"]]]:
    """What was measured during training: the steps, and for each arm one row per seed. A single arm is "recorded".

    An arm that trains for longer or shorter is measured at the same fractions of its training; the steps are those of
    the first.

    Args:
        content: a record, as :func:`load_record` gives it.
        metric: a name among the curves of its runs, such as "validation loss".
    """
    rows: dict[str, list[list[float]]] = {}
    for run in content["runs"]:
        rows.setdefault(run.get("arm", "recorded"), []).append([value for _, value in run["curves"][metric]])
    steps = [step for step, _ in content["runs"][0]["curves"][metric]]
    return steps, {arm: torch.tensor(values) for arm, values in rows.items()}


def recorded_by_seed(content: dict[str, Any], metric: str, arm: str | None) -> dict[int, float]:
    """The recorded value of a metric for each seed of an arm.

    Raises:
        InputError: if no run has it.
    """
    values = {
        run["seed"]: run["metrics"][metric]
        for run in content["runs"]
        if run.get("arm") == arm and metric in run["metrics"]
    }
    if not values:
        raise InputError(f"{content['name']} has recorded no {metric!r} of arm {arm!r}")
    return values


def recorded_metric(content: dict[str, Any], metric: str, arm: str | None) -> list[float]:
    """The recorded values of a metric, one for each seed of an arm.

    Raises:
        InputError: if no run has it.
    """
    return list(recorded_by_seed(content, metric, arm).values())


def describe_record(name: str, metric: str, profile: Profile = "full", *, arm: str | None = None) -> str:
    """One line for a notebook: mean ± standard error of a metric over the seeds, on what, or 'not recorded yet'.

    Args:
        metric: a name of :data:`~sciformer.lab.metrics.METRICS`.
        arm: which one, in an experiment that has arms.

    Raises:
        InputError: if there is no such metric, or the experiment has no such arm or has not recorded the metric of it.
    """
    known, arms = known_metric(metric), experiment(name).arms(profile)
    if arm not in arms:
        raise InputError(f"{name} has no arm {arm!r}; there are {', '.join(map(str, arms))}")
    title = f"{name}, {profile} profile" if arm is None else f"{name}, {arm}, {profile} profile"
    content = load_record(name, profile)
    if content is None:
        return f"{title}: not recorded yet"
    runs = [run for run in content["runs"] if run.get("arm") == arm]
    described = known.describe(recorded_metric(content, metric, arm))
    return f"{title}: {metric} {described} over {describe_runs(runs)} on {content['device']}"


def describe_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """How many seeds of an arm a record holds, how large the model is, and how long one took."""
    seconds, _ = mean_and_error([run["seconds"] for run in runs])
    return f"{len(runs)} seed{'s' * (len(runs) > 1)}, {runs[0]['parameters']:,} parameters, {seconds:.0f} s each"
