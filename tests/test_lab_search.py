"""A search finishes as many trials as asked for, whatever kills it on the way, and says what it cannot use."""

import json
import math
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

from sciformer import cli, data
from sciformer.lab import experiments, search, settings, trainers
from sciformer.lab.search import Between, SearchSetting, Trial, explained, finished, groups_of, importance, setting_of
from sciformer.teach import plotting
from sciformer.training import TrainConfig

ROOT = Path(__file__).parents[1]


def tiny(steps=4, **changes):
    """A search whose trials take no time; only the smallest models are drawn."""
    base = search.SEARCH["quick"].base
    base = replace(base, train=TrainConfig(steps=steps), batch_size=4, held_out=40)
    space = {**search.SPACE, "tokens": (1, 4), "heads": (1, 2), "head_dim": (4,), "blocks": (1,)}
    return SearchSetting(base, space, **{"looks": 4, "free_trials": 2, **changes})


@pytest.fixture
def few_digits(monkeypatch):
    digits = {split: tuple(x[:200] for x in data.mnist(split)) for split in ("train", "test")}
    monkeypatch.setattr(settings, "mnist", lambda split, size: digits[split])


@pytest.fixture(params=["journal", "sqlite"])
def storage(request, tmp_path):
    return str(tmp_path / "new" / "s.journal") if request.param == "journal" else f"sqlite:///{tmp_path}/s.db"


@pytest.mark.usefixtures("few_digits")
def test_a_search_goes_on_where_it_was(storage):
    seen = []
    first = search.search(tiny(), 3, storage=storage, on_trial=lambda done: seen.append(len(done)))
    assert seen == [1, 2, 3]
    study = search.open_study(tiny(), storage)
    study.ask()  # a trial under way whose process is gone
    again = search.search(tiny(), 5, storage=storage)
    assert again[:3] == first
    assert [trial.number for trial in again] == [0, 1, 2, 4, 5]
    assert search.search(tiny(), 2, storage=storage) == again
    for trial in again:
        assert set(trial.choice) == set(search.SPACE)
        assert [step for step, _ in trial.looks] == list(range(1, len(trial.looks) + 1))
        assert trial.pruned == (len(trial.looks) < 4)
        assert 0 <= trial.accuracy == trial.looks[-1][1] <= 1
        assert trial.parameters == sum(p.numel() for p in setting_of(tiny().base, trial.choice).model().parameters())


@pytest.mark.usefixtures("few_digits")
def test_a_trial_is_its_number(tmp_path):
    """The same seed draws and trains the same trial number n; another seed another one."""
    runs = [search.search(tiny(seed=s), 2, storage=tmp_path / f"{n}.journal") for n, s in enumerate((0, 0, 1))]
    bare = [[replace(trial, seconds=0.0) for trial in run] for run in runs]
    assert bare[0] == bare[1]
    assert bare[0][0].choice != bare[2][0].choice
    assert bare[0][0].choice != bare[0][1].choice


@pytest.mark.usefixtures("few_digits")
def test_what_does_not_learn_is_given_up(tmp_path, monkeypatch):
    """The best so far is below the median of the whole trials at the same look. At the last look nobody is."""
    rows = [[0.5, 0.6, 0.7, 0.8], [0.6, 0.7, 0.8, 0.9]]  # medians 0.55, 0.65, 0.75, 0.85
    rows += [[0.5], [0.7, 0.5, 0.72], [0.6, 0.7, 0.8, 0.1]]  # below at look 1; best so far below at look 3; never

    def train(setting, seed, *, on_look, **options):
        for step, value in enumerate(rows[seed], start=1):
            on_look(step, value)
        return trainers.Run(seed, torch.nn.Identity(), trainers.History(), {"validation accuracy": value})

    monkeypatch.setattr(search, "train_to_choose", train)
    trials = search.search(tiny(), 5, storage=tmp_path / "s.journal")
    assert [[value for _, value in trial.looks] for trial in trials] == rows
    assert [trial.pruned for trial in trials] == [False, False, True, True, False]


@pytest.mark.usefixtures("few_digits")
def test_a_loss_that_is_not_finite_ends_a_trial(tmp_path, monkeypatch):
    def train(setting, seed, *, on_look, **options):
        raise FloatingPointError

    monkeypatch.setattr(search, "train_to_choose", train)
    (trial,) = search.search(tiny(), 1, storage=tmp_path / "s.journal")
    assert (trial.pruned, trial.looks, trial.accuracy, trial.first_look) == (True, [], 0.0, 0.0)


RUN = """
import pickle
import sys
from pathlib import Path

from sciformer.lab import search

if __name__ == "__main__":
    setting, trials, options = pickle.loads(Path(sys.argv[1]).read_bytes())
    search.search(setting, trials, **options)
"""


def start(tmp_path, trials, **options):
    """A search in a process of its own."""
    script, task = tmp_path / "run.py", tmp_path / "task"
    script.write_text(RUN)
    task.write_bytes(pickle.dumps((tiny(), trials, options)))
    return subprocess.Popen([sys.executable, script, task], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds=500):
    for _ in range(10 * seconds):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing happened for {seconds} seconds")


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def test_a_killed_search_loses_no_finished_trial(tmp_path):
    """Its two workers leave with it, two others take over, and there are as many trials in the end as asked for."""
    path = tmp_path / "s.journal"
    running = start(tmp_path, 400, storage=path, workers=2)
    try:
        wait_for(lambda: sum('"state":1' in line or '"state":2' in line for line in lines_of(path)) >= 3)
    finally:
        running.send_signal(signal.SIGKILL)
        running.communicate()
    size = -1
    while size != (size := path.stat().st_size):
        time.sleep(3)
    before = finished(search.open_study(tiny(), path))
    assert 3 <= len(before) < 400
    with path.open("a") as file:
        file.write('{"op_code":6,"worker_id":"half a li')  # as a power cut may leave it
    total = len(before) + 4
    again = start(tmp_path, total, storage=path, workers=2)
    _, error = again.communicate(timeout=580)
    assert again.returncode == 0, error
    after = finished(search.open_study(tiny(), path))
    assert len(after) == total
    assert {trial.number: trial for trial in after}.items() >= {trial.number: trial for trial in before}.items()
    study = search.open_study(tiny(), path)
    processes = {trial.user_attrs["process"] for trial in study.trials if trial.user_attrs.get("process")}
    assert len(processes) >= 3


def test_two_searches_share_a_storage(tmp_path):
    path = tmp_path / "s.journal"
    both = [start(tmp_path, 6, storage=path) for _ in range(2)]
    for one in both:
        _, error = one.communicate(timeout=580)
        assert one.returncode == 0, error
    after = finished(search.open_study(tiny(), path))
    assert 6 <= len(after) <= 7  # one may have been under way when the last was finished
    assert len({trial.number for trial in after}) == len(after)


@pytest.mark.parametrize(("trials", "workers"), [(0, 1), (-1, 1), (1, 0)])
def test_no_trials_and_no_workers_are_refused(tmp_path, trials, workers):
    with pytest.raises(ValueError, match=f"at least 1 trial and 1 worker, got {trials} and {workers}"):
        search.search(tiny(), trials, workers=workers, storage=tmp_path / "s.journal")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["nosuch://host/search", "sqlite:////no/such/folder/s.db", "mysql+none://x"])
def test_an_unknown_storage_is_refused(address):
    with pytest.raises(ValueError, match="cannot be opened"):
        search.open_study(tiny(), address)


OWN = '{"op_code":0,"worker_id":"a","study_name":"search","directions":[2]}\n'
FOREIGN = {
    "letter": "a letter, and no journal",
    "settings": '{"my": "settings"}',
    "settings of several lines": '{\n "my": "settings"\n}',
    "brace": "{",
    "objects": "{}\n{}\n",
    "list": "[1]\n",
    "number": "12\n",
    "text": '"op_code"\n',
    "zero": "\x00\n",
    "no whole line": OWN[:-1],
    "beginning of a line": '{"op_code":',
    "another study's journal": OWN.replace('"search"', '"mine"'),
    "notes below a journal": OWN + "and some notes of mine",
    "settings below a journal": OWN + '{"my": "settings"}',
    "many brackets": OWN + 100_000 * "[" + "\n",
    "no utf-8": OWN + "\udcff\n",
}


@pytest.mark.attack
@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_journal_stays_as_it_is(tmp_path, name):
    path, content = tmp_path / "letter.txt", FOREIGN[name].encode(errors="surrogateescape")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"'letter\.txt' is a file, but no journal of a search"):
        search.open_study(tiny(), path)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.attack
def test_every_cut_of_a_journal_is_mended_or_left_alone(tmp_path):
    """Wherever a power cut ends a journal: whole lines stay, half a line goes, and a file is never emptied."""
    path = tmp_path / "s.journal"
    search.open_study(tiny(), path).ask()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) >= 3
    for size in range(1, len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = whole[: whole.rfind(b"\n", 0, size) + 1]
        if kept:
            search._mend(path)
            assert path.read_bytes() == kept
        else:
            with pytest.raises(ValueError, match="no journal of a search"):
                search._mend(path)
            assert path.read_bytes() == whole[:size]


@pytest.mark.attack
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's devices")
@pytest.mark.parametrize("name", ["/dev/full", "/dev/zero", "/dev/null", "folder", "pipe", "link"])
def test_a_storage_that_is_no_file_is_refused_unread(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError, match="Not a regular file"):
        search.open_study(tiny(), tmp_path / name)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # KB
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "link", "pipe"]


@pytest.mark.attack
def test_a_large_file_that_is_no_journal_is_not_read(tmp_path):
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(23 * 10**9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="no journal of a search"):
        search.open_study(tiny(), path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # KB
    assert path.stat().st_size == 23 * 10**9


def test_another_setting_needs_another_storage(tmp_path):
    path = tmp_path / "s.journal"
    search.open_study(tiny(), path)
    with pytest.raises(ValueError, match="holds a search with another setting"):
        search.open_study(tiny(steps=5), path)


def test_without_optuna_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main(["search", "--storage", str(tmp_path / "s.journal"), "--profile", "quick"]) == 1
    assert capsys.readouterr().err == "sciformer: random search needs Optuna: pip install optuna\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "at least 1 trial and 1 worker, got 0 and 1"),
        (["--workers", "0"], "at least 1 trial and 1 worker, got 60 and 0"),
        (["--storage", "nosuch://x"], "cannot be opened"),
        (["--profile", "long"], "search has no long profile; there are quick, full"),
        (["--steps", "0"], "got 0 steps"),
        (["--seed", "-1"], "the seed of a search must lie in 0..32767, got -1"),
        (["--seed", "32768"], "the seed of a search must lie in 0..32767, got 32768"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert cli.main(["search", *(["--profile", "quick"] if "--profile" not in arguments else []), *arguments]) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert error.startswith("sciformer: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("few_digits")
def test_the_command_tells_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(search.SEARCH, "quick", tiny())
    assert cli.main(["search", "--profile", "quick", "--trials", "2", "--out", "results", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in printed[:2]] == ["1 of 2 finished", "2 of 2 finished"]
    assert printed[-1] == f"written: {Path('results/search.quick.json')}"
    assert Path("runs/search.quick.journal").exists()
    trials, content = search.load_search("quick", Path("results"))
    assert trials == finished(search.open_study(tiny(), "runs/search.quick.journal"))
    assert content["config"] == json.loads(json.dumps(asdict(tiny())))
    for key in ("device", "versions", "commit", "seconds", "date"):
        assert key in content


def test_a_cut_record_is_refused(tmp_path):
    assert search.load_search("quick", tmp_path) is None
    trials = [Trial(n, {"heads": n}, [(1, 0.5)], False, 9, 1.0) for n in range(3)]
    path = search.write_search(tiny(), "quick", trials, tmp_path)
    assert search.load_search("quick", tmp_path)[0] == trials
    content = json.loads(path.read_text())
    other = [{**trial, "parameters": "9"} for trial in content["trials"]]
    changes = (
        {"trials": content["trials"][:2]},
        {"trials": other},
        {"trials": [], "count": 0},
        {"name": "shakespeare"},
    )
    for damaged in (*(json.dumps(content | change) for change in changes), path.read_text()[:500], "{}", "[]"):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"search\.quick\.json is not a whole record"):
            search.load_search("quick", tmp_path)


def test_the_committed_search_is_of_todays_setting():
    for profile, setting in search.SEARCH.items():
        recorded = search.load_search(profile)
        if recorded is not None:
            today = json.loads(json.dumps(asdict(setting)))
            # What a setting has got since the record was made had its default then.
            base = {name: today["base"][name] for name in today["base"].keys() - recorded[1]["config"]["base"].keys()}
            assert {**recorded[1]["config"], "base": recorded[1]["config"]["base"] | base} == today


def test_the_settings_of_trials_are_known_before_they_are_run():
    trials, _ = search.load_search("quick")
    setting = search.SEARCH["quick"]
    known = search.drawn(setting, 1 + max(trial.number for trial in trials))
    for trial in trials:
        assert known[trial.number] == setting_of(setting.base, trial.choice)


def test_hyper_parameters_become_a_setting():
    base = search.SEARCH["quick"].base
    choice = {"tokens": 16, "heads": 8, "head_dim": 16, "blocks": 3, "expansion": 4, "dropout": 0.1, "bias": False}
    own = setting_of(base, {**choice, "lr": 0.02})
    assert (own.patch_size, own.embed_dim, own.num_heads, own.num_layers) == (7, 128, 8, 3)
    assert (own.expansion, own.dropout, own.bias, own.train.lr, own.train.steps) == (4, 0.1, False, 0.02, 300)
    assert own.model().blocks[0].attention.q_proj.bias is None
    assert setting_of(base, {}) == base
    with pytest.raises(ValueError, match="8 tokens are no square"):
        setting_of(base, {"tokens": 8})
    with pytest.raises(ValueError, match="unknown hyper-parameter layers; there are tokens, heads"):
        setting_of(base, {"layers": 2})
    for tokens in search.SPACE["tokens"]:
        assert setting_of(base, {"tokens": tokens}).model().to_sequence.num_tokens == tokens


def test_digits_to_choose_by_are_not_trained_on():
    setting = replace(search.SEARCH["quick"].base, batch_size=8000)
    images, _ = data.mnist("train")
    trained, _ = next(setting.training_batches(seed=0))
    held_out = torch.cat([x for x, _ in setting.held_out_batches()])
    torch.testing.assert_close(held_out, images[8000:])
    torch.testing.assert_close(trained.double().sum(), images[:8000].double().sum())
    with pytest.raises(ValueError, match="nothing to choose by: held_out is 0"):
        replace(setting, held_out=0).held_out_batches()
    with pytest.raises(ValueError, match="nothing to choose by"):
        experiments.MNIST_PIXELS["quick"]["none"].held_out_batches()
    pixels = replace(experiments.MNIST_PIXELS["quick"]["none"], held_out=3).held_out_batches()
    assert pixels[0][0].shape == (3, 1, 14, 14)
    assert pixels[0][0].min() == -1


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_arms_of_the_claims_change_one_thing(profile):
    arms = experiments.SEARCH_CLAIMS[profile]
    base = arms["base"]
    size = {name: sum(p.numel() for p in arm.model().parameters()) for name, arm in arms.items()}
    assert base.held_out > 0
    for name, arm in arms.items():
        assert arm.train == base.train
        assert arm.batch_size == base.batch_size
        if "same size" in name:
            assert abs(size[name] / size["base"] - 1) < 0.1
        changed = {key for key, value in asdict(arm).items() if value != asdict(base)[key]}
        kind = name.rstrip("0123456789 ").split(" ")[0] if "same" not in name else f"{name.split(' ')[0]}, same"
        assert (
            changed
            == {
                "base": set(),
                "heads": {"num_heads", "embed_dim"},
                "head": {"embed_dim"},
                "tokens": {"patch_size"},
                "blocks": {"num_layers"},
                "heads, same": {"num_heads"},
                "blocks, same": {"num_layers", "embed_dim"},
            }[kind]
        )
    assert size["heads 8"] == size["head dimension 16"]


def test_shares_of_the_variance():
    random.seed(0)
    groups = [n % 4 for n in range(400)]
    noise = [random.gauss(0, 1) for _ in groups]
    assert explained(groups, noise) == pytest.approx(0, abs=0.03)
    assert explained(groups, groups) == pytest.approx(1)
    half = [math.sqrt(0.8) * (g - 1.5) + n for g, n in zip(groups, noise, strict=True)]  # variance 0.8 · 1.25 = 1
    assert explained(groups, half) == pytest.approx(0.5, abs=0.06)
    assert explained([0, 0, 1, 1], [1.0, 1.0, 1.0, 1.0]) == 0
    # By hand: within 2 groups of 2: 0.5 + 0.5, in all 10.
    assert explained([5, 5, 9, 9], [1.0, 2.0, 4.0, 5.0]) == pytest.approx(1 - 3 / 2 * 1 / 10)
    with pytest.raises(ValueError, match="3 values in 3 groups"):
        explained([0, 1, 2], [1.0, 2.0, 3.0])


def test_groups():
    assert groups_of([49, 1, 196, 1]) == [1, 0, 2, 0]
    assert groups_of([False, True]) == [0, 1]
    assert groups_of([0.1 * n for n in range(8)]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_importance_finds_what_matters():
    random.seed(0)
    choices = [{"much": random.random(), "little": random.choice([1, 2]), "none": random.random()} for _ in range(80)]
    values = [3 * c["much"] + 0.4 * c["little"] + 0.1 * random.random() for c in choices]
    shares = importance(choices, values)
    assert next(iter(shares)) == "much"
    assert shares["much"][0] > 0.7
    assert all(0 < error < 0.2 for _, error in shares.values())
    assert abs(shares["none"][0]) < 3 * shares["none"][1] + 0.05


def test_the_jackknife_of_a_mean_is_its_standard_error(monkeypatch):
    """The error of importance is the jackknife of whatever the share is; of a mean it is s / √n."""
    monkeypatch.setattr(search, "explained", lambda groups, values: sum(values) / len(values))
    values = [1.0, 4.0, 2.0, 7.0, 3.0]
    (_, error) = importance([{"x": n % 2} for n in range(5)], values)["x"]
    assert error == pytest.approx(torch.tensor(values).std().item() / math.sqrt(5))


def test_best_so_far():
    accuracies = [0.2, 0.5, 0.4, 0.5, 0.9]
    trials = [Trial(n, {}, [(1, value)], False, 1, 1.0) for n, value in enumerate(accuracies)]
    assert search.best_so_far(trials) == [0.2, 0.5, 0.5, 0.5, 0.9]


def test_pictures_of_a_search():
    random.seed(0)
    choices = [
        {
            name: random.choice(values) if isinstance(values, tuple) else random.uniform(values.low, values.high)
            for name, values in search.SPACE.items()
        }
        for _ in range(12)
    ]
    values = [n / 12 for n in range(12)]
    ax = plotting.parallel_coordinates(choices, values, log=["lr"])
    assert [label.get_text() for label in ax.get_xticklabels()] == list(search.SPACE)
    thick = [line for line in ax.lines if line.get_linewidth() == 3]
    assert len(thick) == 1
    figure = plotting.slices(choices, values, log=["lr"])
    assert [ax.get_xlabel() for ax in figure.axes] == list(search.SPACE)
    ax = plotting.trials([[(1, 0.2), (2, 0.4)], [(1, 0.1)], []], [False, True, True])
    assert len(ax.lines) == 5
    ax = plotting.with_errors({"a": {"x": (1.0, 0.1), "y": (2.0, 0.2)}, "b": {"y": (1.5, 0.1)}})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", "y"]
    for drawn in (ax, figure):
        plt.close(plotting.figure_of(drawn))
    plt.close("all")


def test_a_range_and_a_few_values():
    assert isinstance(search.SPACE["lr"], Between)
    assert search.SPACE["lr"].log
    assert all(28 % math.isqrt(tokens) == 0 for tokens in search.SPACE["tokens"])
