"""Random search over an image transformer's hyper-parameters, with Optuna.

Every finished trial stands in a storage, a file or a database. So a search that was killed goes on where it was, and
several processes or machines work on one search. Trials are judged on digits held out of the training digits.

Optuna is needed for searching alone; to look at a recorded search it is not.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sciformer.data.files import check_regular, written_whole
from sciformer.functional import InputError
from sciformer.lab.forms import Form, read_json
from sciformer.lab.records import environment, record_file, results_folder
from sciformer.lab.settings import ImageSetting, Profile
from sciformer.lab.trainers import train_to_choose
from sciformer.lab.workers import worker_pool
from sciformer.training import TrainConfig

#: What Optuna's study of a search is called, and how each line of its journal begins.
STUDY, LINE_START = "search", b'{"op_code":'


@dataclass(frozen=True)
class Between:
    """Any number from ``low`` to ``high``, drawn uniformly or, with ``log``, uniformly in its logarithm."""

    low: float
    high: float
    log: bool = False


#: The hyper-parameters by name, and what each is drawn from: a few values, or a range.
Space = Mapping[str, tuple[Any, ...] | Between]

#: ``tokens`` is the sequence length: squares of 28, 14, 7, 4 or 2 pixels. Tokens are ``heads`` × ``head_dim`` wide.
SPACE: Space = {
    "tokens": (1, 4, 16, 49, 196),
    "heads": (1, 2, 4, 8),
    "head_dim": (4, 8, 16),
    "blocks": (1, 2, 3, 4),
    "expansion": (1, 2, 4),
    "dropout": Between(0.0, 0.3),
    "bias": (False, True),
    "lr": Between(1e-4, 3e-2, log=True),
}


@dataclass(frozen=True)
class SearchSetting:
    """One search: what all trials share, and what they differ in.

    Args:
        base: data, batches, steps and everything else that is not searched.
        looks: how often a trial is evaluated while it trains, and may be pruned.
        free_trials: how many trials run to their end before any may be pruned.
        seed: of the draws; the same seed gives trial number n the same hyper-parameters in any process.
    """

    base: ImageSetting
    space: Space = field(default_factory=lambda: dict(SPACE))
    looks: int = 4
    free_trials: int = 5
    seed: int = 0


#: The form of a trial in the record of a search, and of the record.
TRIAL: Form = {
    "number": int,
    "choice": dict,
    "looks": [(int, float)],
    "pruned": bool,
    "parameters": int,
    "seconds": float,
}
RECORD: Form = {
    "name": str,
    "profile": str,
    "config": dict,
    "count": int,
    "trials": [TRIAL],
    "seconds": float,
    "device": str,
    "versions": {str: str},
    "commit?": str,
    "date": str,
}


def _shared(steps: int, **changes: Any) -> ImageSetting:
    """What is not searched; patch_size and those after it are drawn for each trial."""
    base = ImageSetting(
        size="small",
        patch_size=4,
        embed_dim=32,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=64,
        train=TrainConfig(steps=steps, warmup_steps=steps // 10),
        held_out=2000,
    )
    return replace(base, **changes)


SEARCH: dict[Profile, SearchSetting] = {
    "quick": SearchSetting(_shared(300)),
    "full": SearchSetting(_shared(5000, size="full", batch_size=256, held_out=10_000)),
}
#: How many trials a search has, if nobody says otherwise.
TRIALS = 60


@dataclass(frozen=True)
class Trial:
    """One finished trial.

    Args:
        choice: its hyper-parameters.
        looks: step and validation accuracy, from 0 to 1, of each evaluation.
        pruned: whether it was stopped early, or its loss was no longer finite.
        parameters: how many the model has.
    """

    number: int
    choice: dict[str, Any]
    looks: list[tuple[int, float]]
    pruned: bool
    parameters: int
    seconds: float

    @property
    def accuracy(self) -> float:
        """At its last look; 0 if it never got to one."""
        return self.looks[-1][1] if self.looks else 0.0

    @property
    def first_look(self) -> float:
        """What all trials have, the pruned ones too, after the same number of steps."""
        return self.looks[0][1] if self.looks else 0.0


def setting_of(base: ImageSetting, choice: Mapping[str, Any]) -> ImageSetting:
    """The setting of a trial: what all share, with its own hyper-parameters; those that it lacks stay.

    Raises:
        InputError: if there is no such hyper-parameter, or so many tokens are no square that tiles 28 × 28 pixels.
    """
    if unknown := set(choice) - set(SPACE):
        raise InputError(f"unknown hyper-parameter {', '.join(sorted(unknown))}; there are {', '.join(SPACE)}")
    own = {
        "tokens": (28 // base.patch_size) ** 2,
        "heads": base.num_heads,
        "head_dim": base.embed_dim // base.num_heads,
        "blocks": base.num_layers,
        "lr": base.train.lr,
        **choice,
    }
    side = math.isqrt(own["tokens"])
    if side < 1 or side**2 != own["tokens"] or 28 % side:
        raise InputError(f"{own['tokens']} tokens are no square that tiles 28 × 28 pixels")
    return replace(
        base,
        patch_size=28 // side,
        num_heads=own["heads"],
        embed_dim=own["heads"] * own["head_dim"],
        num_layers=own["blocks"],
        train=replace(base.train, lr=own["lr"]),
        **{name: choice[name] for name in ("expansion", "dropout", "bias") if name in choice},
    )


def _optuna() -> Any:
    """Optuna, which only a search needs."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("random search needs Optuna: pip install optuna", name="optuna") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a line for each trial, and why one fails, is ours to print
    return optuna


def open_study(setting: SearchSetting, storage: str | Path) -> Any:
    """The Optuna study of a search, as far as it is done; an empty one where there is none.

    Args:
        storage: the path of a journal file, or the URL of a database such as ``sqlite:///search.db``. Several processes
            on one machine can share a file; for several machines take a database that serves them all.

    Raises:
        ModuleNotFoundError: if Optuna is not installed.
        InputError: if the storage cannot be opened, or holds a search with another setting.
    """
    optuna = _optuna()
    study = optuna.create_study(
        study_name=STUDY,
        storage=_open_storage(str(storage)),
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=setting.free_trials),
        load_if_exists=True,
    )
    today = json.loads(json.dumps(asdict(setting)))
    held = study.user_attrs.get("setting")
    if held is None:
        study.set_user_attr("setting", today)
    elif held != today:
        raise InputError(f"{storage} holds a search with another setting; give this one a --storage of its own")
    return study


def _open_storage(storage: str) -> Any:
    optuna = _optuna()
    if storage in ("sqlite://", "sqlite:///:memory:"):
        raise InputError(f"storage {storage!r} keeps nothing: a search needs a file or a database")
    if "://" in storage:
        patient = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else {}
        try:
            return optuna.storages.RDBStorage(storage, engine_kwargs=patient)
        except Exception as error:  # SQLAlchemy's and each driver's own
            raise InputError(f"storage {storage!r} cannot be opened: {error}".splitlines()[0]) from error
    path = Path(storage).absolute()
    check_regular(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the default kind of lock: it is a link, and on Windows links need rights.
    lock = optuna.storages.journal.JournalFileOpenLock(str(path))
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    with _held(lock):
        _mend(path)
    return optuna.storages.JournalStorage(backend)


@contextmanager
def _held(lock: Any) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _mend(path: Path) -> None:
    """Cut off a last line that was left half written: the next one would be joined to it, and neither could be read."""
    with path.open("rb") as file:
        content = file.read(len(LINE_START))
        content += file.read() if content == LINE_START else b""  # another file may be of any size
    whole = content[: content.rfind(b"\n") + 1]
    half = content[len(whole) :]
    if content and not (_is_journal(whole) and LINE_START.startswith(half[: len(LINE_START)])):
        raise InputError(f"storage {path.name!r} is a file, but no journal of a search")
    if half:
        os.truncate(path, len(whole))


def _is_journal(whole: bytes) -> bool:
    """Whether these lines are those of a journal, begun by a search of ours."""
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
    except (ValueError, RecursionError):
        return False
    known = all(isinstance(line, dict) and "op_code" in line for line in lines)
    return known and bool(lines) and lines[0].get("study_name") == STUDY


def finished(study: Any) -> list[Trial]:
    """The trials that ran to their end or were pruned. One that a kill cut off is neither, and does not count."""
    states = _optuna().trial.TrialState
    return [
        Trial(
            number=trial.number,
            choice=trial.params,
            looks=sorted(trial.intermediate_values.items()),
            pruned=trial.state == states.PRUNED,
            parameters=trial.user_attrs["parameters"],
            seconds=round(trial.duration.total_seconds(), 1),
        )
        for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
    ]


def search(
    setting: SearchSetting,
    trials: int,
    *,
    storage: str | Path,
    workers: int = 1,
    device: torch.device | str = "cpu",
    on_trial: Callable[[list[Trial]], None] = lambda done: None,
) -> list[Trial]:
    """Run trials until so many are finished, those that the storage holds already counted in.

    Kill it at any moment and call it again: no finished trial is lost, and those that were under way are begun anew.
    Where several machines share a storage, each that is still busy at the end may add one trial for each worker.

    Args:
        workers: how many trials run at the same time, each in a process of its own.
        on_trial: called with all finished trials whenever there is a new one.

    Returns:
        The finished trials, in the order in which they were begun.

    Raises:
        ModuleNotFoundError: if Optuna is not installed.
        InputError: if there is no trial or no worker, the seed is out of its range, or the storage is of no use (see
            :func:`open_study`).
    """
    if trials < 1 or workers < 1:
        raise InputError(f"a search needs at least 1 trial and 1 worker, got {trials} and {workers}")
    if not 0 <= setting.seed < 2**15:  # a trial's own seed, a multiple of it and more, has 32 bits
        raise InputError(f"the seed of a search must lie in 0..{2**15 - 1}, got {setting.seed}")
    study = open_study(setting, storage)
    one = partial(_run_one, setting, trials, str(storage), str(device))
    missing = max(0, trials - len(finished(study)))
    if workers == 1:
        for _ in range(missing):
            one()
            on_trial(finished(study))
    else:
        threads = max(1, torch.get_num_threads() // workers)
        with worker_pool(min(workers, max(1, missing)), threads=threads) as pool:
            tasks: list[Future] = [pool.submit(one) for _ in range(missing)]
            for task in as_completed(tasks):
                task.result()
                on_trial(finished(study))
    return finished(study)


def _run_one(setting: SearchSetting, trials: int, storage: str, device: str) -> None:
    """Run one trial, unless others have finished the last one meanwhile."""
    study = open_study(setting, storage)
    if len(finished(study)) < trials:
        study.optimize(partial(_objective, setting, device, study), n_trials=1)


def drawn(setting: SearchSetting, count: int) -> list[ImageSetting]:
    """The settings of a search's first trials, without training one."""
    study = _optuna().create_study()
    return [_draw(setting, study, study.ask()) for _ in range(count)]


def _draw(setting: SearchSetting, study: Any, trial: Any) -> ImageSetting:
    study.sampler = _optuna().samplers.RandomSampler(seed=100_003 * setting.seed + trial.number)
    return setting_of(setting.base, {name: _suggest(trial, name, values) for name, values in setting.space.items()})


def _objective(setting: SearchSetting, device: str, study: Any, trial: Any) -> float:
    optuna = _optuna()
    one = _draw(setting, study, trial)
    trial.set_user_attr("parameters", sum(p.numel() for p in one.model().parameters()))
    trial.set_user_attr("process", os.getpid())

    def look(step: int, value: float) -> None:
        trial.report(value, step)
        if step < one.train.steps and trial.should_prune():
            raise optuna.TrialPruned

    try:
        run = train_to_choose(one, trial.number, device=device, progress=False, looks=setting.looks, on_look=look)
    except FloatingPointError as error:
        raise optuna.TrialPruned from error
    return run.metrics["validation accuracy"]


def _suggest(trial: Any, name: str, values: tuple[Any, ...] | Between) -> Any:
    if isinstance(values, Between):
        return trial.suggest_float(name, values.low, values.high, log=values.log)
    return trial.suggest_categorical(name, values)


def write_search(
    setting: SearchSetting, profile: Profile, trials: Sequence[Trial], folder: Path, device: torch.device | str = "cpu"
) -> Path:
    """Write the record of a search, ``search.quick.json`` or ``search.json``; give its path."""
    content = {
        "name": STUDY,
        "profile": profile,
        "config": asdict(setting),
        "count": len(trials),
        "trials": [asdict(trial) for trial in trials],
        "seconds": round(sum(trial.seconds for trial in trials), 1),
        **environment(device),
    }
    path = folder / record_file("search", profile)
    with written_whole(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def load_search(profile: Profile = "full", folder: Path | None = None) -> tuple[list[Trial], dict[str, Any]] | None:
    """The trials of a recorded search, and the whole record; None if that search has not been made.

    Raises:
        InputError: if the file is not a whole record.
    """
    path = (folder or results_folder()) / record_file("search", profile)
    if not path.exists():
        return None
    try:
        content = read_json(path, RECORD)
        if (content["name"], content["profile"]) != (STUDY, profile):
            raise InputError(f"it is of {content['name']}, {content['profile']} profile")
        if len(content["trials"]) != content["count"] or not content["trials"]:
            raise InputError(f"it has {len(content['trials'])} of {content['count']} trials")
    except InputError as error:
        raise InputError(f"{path} is not a whole record ({error}); record the search again") from error
    trials = [
        Trial(**{name: trial[name] for name in TRIAL} | {"looks": [(step, value) for step, value in trial["looks"]]})
        for trial in content["trials"]
    ]
    return trials, content


def best_so_far(trials: Sequence[Trial]) -> list[float]:
    """The highest accuracy among the first n trials, for n = 1, 2, …"""
    best, course = 0.0, []
    for trial in trials:
        best = max(best, trial.accuracy)
        course.append(best)
    return course


def groups_of(values: Sequence[Any], *, most: int = 5) -> list[int]:
    """Which group each value belongs to: one for each different value, or, if those are many, quarters by size."""
    order = sorted(set(values))
    if len(order) <= most:
        return [order.index(value) for value in values]
    ranks = torch.tensor(values, dtype=torch.float64).argsort().argsort()
    return (4 * ranks // len(values)).tolist()


def explained(groups: Sequence[int], values: Sequence[float]) -> float:
    r"""Share of the variance of ``values`` that goes with the group, minus what chance alone would give.

    .. math:: \varepsilon^2 = 1 - \frac{n - 1}{n - k} \cdot \frac{W}{T}

    for n values in k groups, with the sum of squares W around the groups' means and T around the mean of all. About 0,
    and sometimes below, where the groups do not matter. Source: Kelley 1935 (PNAS 21(9), 554–559).

    Raises:
        InputError: if there are not more values than groups.
    """
    y, group = torch.tensor(values, dtype=torch.float64), torch.tensor(groups)
    members = torch.nn.functional.one_hot(group).double()  # (n, K)
    members = members[:, members.sum(dim=0) > 0]
    n, k = members.shape
    if n <= k:
        raise InputError(f"{n} values in {k} groups leave nothing to compare")
    means = (members.T @ y) / members.sum(dim=0)  # (k,)
    within, whole = (y - members @ means).square().sum(), (y - y.mean()).square().sum()
    return 1 - (n - 1) / (n - k) * (within / whole).item() if whole > 0 else 0.0


def importance(choices: Sequence[Mapping[str, Any]], values: Sequence[float]) -> dict[str, tuple[float, float]]:
    r"""How much of the variance each hyper-parameter explains by itself, with its standard error; the largest first.

    The error is the jackknife's: leave out one trial after the other and see how much the share moves.

    .. math:: \sqrt{\frac{n - 1}{n} \sum_i (\theta_i - \bar\theta)^2}

    Source: Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans, chapter 3.

    Args:
        choices: the hyper-parameters of each trial.
        values: what each trial is judged by, after the same number of steps for all.
    """
    shares, n = {}, len(values)
    for name in choices[0]:
        groups = groups_of([choice[name] for choice in choices])
        share = explained(groups, values)
        without = torch.tensor(
            [explained([*groups[:i], *groups[i + 1 :]], [*values[:i], *values[i + 1 :]]) for i in range(n)]
        )
        shares[name] = share, ((n - 1) / n * (without - without.mean()).square().sum()).sqrt().item()
    return dict(sorted(shares.items(), key=lambda item: -item[1][0]))
