"""Records are whole or refused, and what has finished is never trained twice."""

import json
import random
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hand_made import write_record

from sciformer import cli
from sciformer.lab import records, settings
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.metrics import METRICS
from sciformer.lab.records import describe_record, load_record, record, results_folder
from sciformer.training import TrainConfig

NAME = "mnist-image-transformer"


def as_json(setting):
    """A setting as a record holds it."""
    return json.loads(json.dumps(asdict(setting)))


@pytest.mark.parametrize(
    ("name", "profile"), [(name, profile) for name, each in EXPERIMENTS.items() for profile in each.settings]
)
def test_committed_records_are_whole_and_of_todays_setting(name, profile):
    content = load_record(name, profile)
    if content is None:
        pytest.skip(f"{name}, {profile} profile: not recorded yet")
    arms = EXPERIMENTS[name].arms(profile)
    recorded = {None: content["config"]} if None in arms else content["config"]
    assert list(recorded) == list(arms)
    for arm, setting in arms.items():
        # What a setting has got since the record was made had its default then.
        # Whether it was compiled is how it was trained, not what; nor is how many digits it was judged on.
        as_today = {"betas": tuple(recorded[arm]["train"]["betas"]), "compile": setting.train.compile}
        train = TrainConfig(**(recorded[arm]["train"] | as_today))
        trained = {name: value for name, value in recorded[arm].items() if name != "test_size"}
        assert as_json(type(setting)(**{**trained, "train": train})) == as_json(setting)
    assert content["name"], content["profile"] == (name, profile)
    for key in ("device", "versions", "commit", "seconds", "date"):
        assert content[key], f"{key} is missing"
    for run in content["runs"]:
        assert run["curves"]["loss"][-1][0] == arms[run.get("arm")].train.steps


PROFILES = get_args(settings.Profile)


def test_every_file_in_results_is_a_known_record():
    known = {records.record_file(name, profile) for name in (*EXPERIMENTS, "search") for profile in PROFILES}
    assert {path.name for path in results_folder().glob("*.json")} <= known | {
        "benchmarks.json",
        "predictions.json",
        "steps.json",
    }


def test_record_of_arms(tmp_path, monkeypatch, tiny_pixels):
    record("mnist-pixels", "quick", seeds=2, steps=2, out=tmp_path)
    content = load_record("mnist-pixels", "quick", tmp_path)
    assert content["arms"] == list(content["config"]) == tiny_pixels
    assert [(run["arm"], run["seed"]) for run in content["runs"]] == [(arm, n) for arm in tiny_pixels for n in (0, 1)]
    for run in content["runs"]:
        layers, heads = (2, 1) if run["arm"] == "published" else (3, 4)
        distances = torch.tensor(run["details"]["attention distance"])
        assert distances.shape == (layers, heads)
        assert run["metrics"]["attention distance"] == pytest.approx(distances.mean().item())
        assert ("strength" in run["details"]) == (content["config"][run["arm"]]["score"] == "distance")
    assert torch.tensor(content["runs"][0]["details"]["strength"]).shape == (3, 4, 4)
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    line = describe_record("mnist-pixels", "test accuracy", "quick", arm="distance")
    assert re.match(
        r"mnist-pixels, distance, quick profile: test accuracy [\d.]+ ± [\d.]+ % over 2 seeds, 26,138 par", line
    )
    with pytest.raises(ValueError, match="no arm None; there are distance, sinusoidal, learned, none, published"):
        describe_record("mnist-pixels", "test accuracy", "quick")
    content["runs"].pop(3)
    (tmp_path / "mnist-pixels.quick.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="lacks some of its seeds"):
        load_record("mnist-pixels", "quick", tmp_path)


@pytest.mark.parametrize("jobs", [1, 2])
def test_record_is_written_whole(tmp_path, jobs):
    path = record(NAME, "quick", seeds=2, jobs=jobs, steps=3, out=tmp_path)
    content = load_record(NAME, "quick", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name] == [f"{NAME}.quick.json"]
    assert content["seeds"] == [run["seed"] for run in content["runs"]] == [0, 1]
    assert content["config"]["train"]["steps"] == 3
    losses = [run["curves"]["loss"] for run in content["runs"]]
    assert [step for step, _ in losses[0]] == [1, 2, 3]
    assert losses[0] != losses[1]
    assert all(0 <= run["metrics"]["test accuracy"] <= 1 for run in content["runs"])


@pytest.mark.parametrize(("at_hand", "size", "count"), [(True, "full", 10_000), (False, None, 2_000)])
def test_where_all_test_digits_are_at_hand_a_record_is_judged_on_them(tmp_path, monkeypatch, at_hand, size, count):
    sizes = []

    def mnist(split, *, size):
        sizes.append((split, size))
        return real_mnist(split)  # the small set, whatever was asked for

    real_mnist = settings.mnist
    monkeypatch.setattr(settings, "mnist", mnist)
    monkeypatch.setattr(records, "full_digits_at_hand", lambda: at_hand)
    record(NAME, "quick", seeds=1, steps=1, out=tmp_path)
    content = load_record(NAME, "quick", tmp_path)
    assert (content["config"]["size"], content["config"]["test_size"]) == ("small", size)
    assert set(sizes) == {("train", "small"), ("test", size or "small")}
    assert METRICS["test accuracy"].examples(content["config"]) == count


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_has_finished_outlives_a_run_that_fails(tmp_path, monkeypatch, tiny_pixels, capfd, jobs):
    """One arm asks for more positions than there are; the others are trained, kept, and not trained again."""
    whole = EXPERIMENTS["mnist-pixels"]
    arms = whole.arms("quick")
    broken = arms | {"learned": replace(arms["learned"], embed_dim=7)}
    monkeypatch.setitem(EXPERIMENTS, "mnist-pixels", replace(whole, settings={"quick": broken}))
    message = r"1 of 5 runs failed, the first is learned, seed 0: embed_dim 7 is not divisible by num_heads 4\. The "
    with pytest.raises(records.UnfinishedRecord, match=message):
        record("mnist-pixels", "quick", seeds=1, steps=1, jobs=jobs, out=tmp_path)
    bars = set(re.findall(r"(\w+): +\d+%", capfd.readouterr().err))
    assert bars == {"train" if jobs == 1 else "runs"}  # those of several processes would write over each other
    kept = tmp_path / "mnist-pixels.quick.runs"
    assert {file.name for file in kept.iterdir()} == {f"{a}, seed 0.json" for a in tiny_pixels if a != "learned"}
    assert load_record("mnist-pixels", "quick", tmp_path) is None
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    assert cli.record_state("mnist-pixels", "quick") == f"not recorded yet, 4 of {5 * whole.seeds} runs"

    trained = []

    def run(setting, seed, **options):
        trained.append(setting.positions)
        return whole.run(setting, seed, **options)

    monkeypatch.setitem(EXPERIMENTS, "mnist-pixels", replace(whole, settings={"quick": arms}, run=run))
    record("mnist-pixels", "quick", seeds=1, steps=1, out=tmp_path)
    assert trained == ["learned"]
    assert [one["arm"] for one in load_record("mnist-pixels", "quick")["runs"]] == tiny_pixels
    assert not kept.exists()


def test_a_kept_run_of_another_setting_is_trained_anew(tmp_path, monkeypatch, tiny_pixels):
    whole = EXPERIMENTS["mnist-pixels"]
    broken = whole.arms("quick") | {"published": replace(whole.arms("quick")["published"], num_heads=3)}
    monkeypatch.setitem(EXPERIMENTS, "mnist-pixels", replace(whole, settings={"quick": broken}))
    with pytest.raises(records.UnfinishedRecord):
        record("mnist-pixels", "quick", seeds=1, steps=1, out=tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "mnist-pixels", whole)
    record("mnist-pixels", "quick", seeds=1, steps=2, out=tmp_path)
    runs = load_record("mnist-pixels", "quick", tmp_path)["runs"]
    assert [one["curves"]["loss"][-1][0] for one in runs] == [2] * len(tiny_pixels)


def test_a_run_that_is_broken_off_goes_on_where_it_was_saved_but_not_from_other_code(tmp_path, monkeypatch):
    """The second call finds both trainings of the growing pixels done; a third, of another commit, starts anew."""
    whole = EXPERIMENTS["mnist-784"]
    setting = replace(whole.settings["long"], size="small", pooling=7, coarse_steps=2)
    tiny = replace(setting, score_options=setting.score_options | {"width": 4})
    found, power = [], False

    def run(setting, seed, *, checkpoint, **options):
        found.append([file.exists() for file in (checkpoint, Path(f"{checkpoint}.small"))])
        result = whole.run(setting, seed, checkpoint=checkpoint, **options)
        if not power:
            raise RuntimeError("power cut")
        return result

    monkeypatch.setitem(EXPERIMENTS, "mnist-784", replace(whole, settings={"long": tiny}, run=run))
    monkeypatch.setattr(records, "full_digits_at_hand", lambda: False)
    for commit in ("one", "one", "other"):
        monkeypatch.setattr(records, "_commit", lambda commit=commit: commit)
        with pytest.raises(records.UnfinishedRecord, match="power cut"):
            record("mnist-784", "long", seeds=1, steps=2, out=tmp_path)
    power = True
    record("mnist-784", "long", seeds=1, steps=2, out=tmp_path)
    assert found == [[False, False], [True, True], [False, False], [True, True]]
    assert [file.name for file in tmp_path.iterdir()] == ["mnist-784.long.json"]
    (resumed,) = load_record("mnist-784", "long", tmp_path)["runs"]
    assert resumed["metrics"] == whole.run(replace(tiny, train=tiny.train.with_steps(2)), 0, progress=False).metrics


def test_record_of_a_seed_can_be_repeated(tmp_path):
    paths = [record(NAME, "quick", seeds=1, steps=3, out=tmp_path / name) for name in "ab"]
    first, second = (json.loads(path.read_text())["runs"][0] for path in paths)
    assert first["curves"] == second["curves"]
    assert first["metrics"] == second["metrics"]


@pytest.mark.parametrize("damage", [lambda t: t[: len(t) // 2], lambda t: "", lambda t: "[1, 2]", lambda t: "{}"])
def test_a_cut_record_is_refused(tmp_path, damage):
    path = record(NAME, "quick", seeds=1, steps=1, out=tmp_path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=rf"{NAME}\.quick\.json is not a whole record"):
        load_record(NAME, "quick", tmp_path)


def test_a_record_without_all_its_seeds_is_refused(tmp_path):
    path = record(NAME, "quick", seeds=2, steps=1, out=tmp_path)
    content = json.loads(path.read_text())
    content["runs"].pop()
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="lacks some of its seeds"):
        load_record(NAME, "quick", tmp_path)


def parts(value, *names):
    """Every part of what a JSON file holds: the keys that lead to it."""
    if names:
        yield names
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(part, *names, name)


@pytest.mark.attack
def test_a_record_that_is_changed_anywhere_is_refused(tmp_path):
    """A part of another kind, or none: 600 drawn at random, but for what may be of any kind."""
    original = (results_folder() / "mnist-pixels.quick.json").read_text()
    free = {"config", "details", "commit"}
    places = [p for p in parts(json.loads(original)) if not free & set(p)]
    draw, path = random.Random(0), tmp_path / "mnist-pixels.quick.json"
    for place in draw.sample(places, 600):
        content = json.loads(original)
        *above, last = place
        holder = content
        for name in above:
            holder = holder[name]
        wrong = {str: 7, int: 7.5, float: "7"}.get(type(holder[last]), 7)
        holder[last] = draw.choice([wrong, float("nan"), []] if holder[last] else [wrong, float("nan")])
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"is not a whole record \("):
            load_record("mnist-pixels", "quick", tmp_path)
    path.write_text(original)
    assert load_record("mnist-pixels", "quick", tmp_path)["seeds"]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("device"), "it has no device"),
        (lambda c: c["runs"][0].pop("seconds"), r"runs\[0\] has no seconds"),
        (lambda c: c["runs"][0]["metrics"].update(x=1), "seed 1 has not the metrics and curves of its arm's first"),
        (lambda c: c["runs"][1]["curves"]["loss"].pop(), "seed 1 has not the metrics and curves"),
        (lambda c: [run["curves"]["loss"].clear() for run in c["runs"]], "seed 0 has not the metrics and curves"),
        (lambda c: c["runs"].reverse(), "it lacks some of its seeds"),
        (lambda c: c.update(seeds=[], runs=[]), "it lacks some of its seeds"),
        (lambda c: c.update(profile="quick"), f"it is of {NAME}, quick profile"),
        (lambda c: c.update(name="dates"), "it is of dates, full profile"),
    ],
)
def test_a_record_that_is_not_what_it_should_be_says_why(tmp_path, change, message):
    path = write_record(tmp_path, NAME, "full", {None: ("test accuracy", [0.9, 0.94])})
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load_record(NAME, "full", tmp_path)


@pytest.mark.attack
@pytest.mark.parametrize("damage", [lambda t: t[:100], lambda t: "", lambda t: "[]", lambda t: '{"known": {}}'])
def test_a_kept_run_that_is_damaged_is_trained_anew(tmp_path, monkeypatch, damage):
    whole, trained = EXPERIMENTS[NAME], []

    def run(setting, seed, **options):
        trained.append(seed)
        if seed == 1 and len(trained) == 2:
            raise FloatingPointError("power cut")
        return whole.run(setting, seed, **options)

    monkeypatch.setitem(EXPERIMENTS, NAME, replace(whole, run=run))
    with pytest.raises(records.UnfinishedRecord):
        record(NAME, "quick", seeds=2, steps=1, out=tmp_path)
    (kept,) = (tmp_path / f"{NAME}.quick.runs").glob("*.json")
    kept.write_text(damage(kept.read_text()))
    record(NAME, "quick", seeds=2, steps=1, out=tmp_path)
    assert trained == [0, 1, 0, 1]


def test_what_is_not_recorded_says_so(tmp_path, monkeypatch):
    assert load_record(NAME, "full", tmp_path) is None
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    assert describe_record(NAME, "test accuracy") == f"{NAME}, full profile: not recorded yet"
    with pytest.raises(ValueError, match=f"no experiment 'mnist'; there are {NAME}"):
        load_record("mnist")


def test_describe_record_gives_mean_and_standard_error(tmp_path, monkeypatch):
    write_record(tmp_path, NAME, "full", {None: ("test accuracy", [0.9, 0.94])})
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    line = f"{NAME}, full profile: test accuracy 92.00 ± 2.00 % over 2 seeds, 1,000 parameters, 3 s each on CPU"
    assert describe_record(NAME, "test accuracy") == line


def test_a_commit_is_that_of_the_package(tmp_path, monkeypatch):
    checkout = (Path(__file__).parents[1] / ".git").exists()
    assert bool(records.environment()["commit"]) == checkout
    monkeypatch.setattr(records, "__file__", str(tmp_path / "sciformer" / "lab" / "records.py"))
    assert records.environment()["commit"] is None
