"""Records are whole or refused, and the command line says what went wrong in one line."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from sciformer import EnergyWellScore, NoPositions, cli, data
from sciformer.data.files import written_whole
from sciformer.lab import experiments, records, search, settings, trainers
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.records import describe_record, load_record, record, results_folder
from sciformer.positions import POSITIONS
from sciformer.scores import SCORES
from sciformer.teach import plotting
from sciformer.training import TrainConfig

NAME = "mnist-image-transformer"
TINY = ["--embed-dim", "8", "--num-heads", "2", "--num-layers", "1", "--profile", "quick", "--device", "cpu"]


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
        train = TrainConfig(**{**recorded[arm]["train"], "betas": tuple(recorded[arm]["train"]["betas"])})
        assert as_json(type(setting)(**{**recorded[arm], "train": train})) == as_json(setting)
    assert content["name"], content["profile"] == (name, profile)
    for key in ("device", "versions", "commit", "seconds", "date"):
        assert content[key], f"{key} is missing"
    for run in content["runs"]:
        assert run["curves"]["loss"][-1][0] == arms[run.get("arm")].train.steps


PROFILES = get_args(settings.Profile)


def test_every_file_in_results_is_a_known_record():
    known = {records.record_file(name, profile) for name in (*EXPERIMENTS, "search") for profile in PROFILES}
    assert {path.name for path in results_folder().glob("*.json")} <= known | {"benchmarks.json"}


def test_full_image_transformer_keeps_to_its_budget():
    model = experiments.MNIST_IMAGE_TRANSFORMER["full"].model()
    assert sum(p.numel() for p in model.parameters()) <= 210_000


@pytest.mark.parametrize("profile", PROFILES)
def test_pixel_models_keep_to_the_published_budget(profile):
    arms = experiments.MNIST_PIXELS[profile]
    sizes = {arm: sum(p.numel() for p in setting.model().parameters()) for arm, setting in arms.items()}
    assert sizes["published"] == 59_404
    assert sizes["distance"] <= 59_404
    assert all(arms[arm].positions == "none" for arm in ("distance", "published"))
    assert arms["published"].model().blocks[1].attention.score.strength.tolist() == pytest.approx([0.1])


def test_published_pixel_model_by_hand():
    """Post-norm with torch's own layer, whose output projection is set to do nothing, and no norm before the end."""
    torch.manual_seed(0)
    ours = experiments.MNIST_PIXELS["quick"]["published"].model().eval()
    images = torch.randn(2, 1, 14, 14)
    tokens = images.flatten(1)[..., None] @ ours.to_sequence.projection.weight[:, 0, 0].T
    tokens = tokens + ours.to_sequence.projection.bias
    for block in ours.blocks:
        projections = block.attention.q_proj, block.attention.k_proj, block.attention.v_proj
        query, key, value = (projection(tokens) for projection in projections)
        place = torch.arange(196)
        scores = query @ key.mT / 8 - block.attention.score.strength * (place[:, None] - place).abs()
        tokens = block.attention_norm(tokens + scores.softmax(dim=-1) @ value)
        hidden = torch.relu(block.feed_forward.up(tokens))
        tokens = block.feed_forward_norm(tokens + block.feed_forward.down(hidden))
    torch.testing.assert_close(ours(images), ours.classifier.linear(tokens.mean(dim=1)))


def test_pixels_are_pooled_and_scaled():
    setting = experiments.MNIST_PIXELS["quick"]["distance"]
    images, labels = next(setting.training_batches(seed=0))
    assert images.shape == (24, 1, 14, 14)
    assert (images.min(), images.max()) == (-1, 1)
    plain, same_labels = next(super(settings.PixelSetting, setting).training_batches(seed=0))
    torch.testing.assert_close(images[3, 0, 5, 6], plain[3, 0, 10:12, 12:14].mean() * 2 - 1)
    assert torch.equal(labels, same_labels)
    assert setting.test_batches()[0][0].shape == (1000, 1, 14, 14)


def test_pixels_that_grow(tmp_path, monkeypatch):
    """Small digits first, so many times the steps; then the same weights, with half the slopes, on large ones."""
    setting = experiments.MNIST_784["long"]
    tiny = replace(setting, size="small", pooling=7, score_options=setting.score_options | {"width": 4})
    small = tiny.coarse()
    assert (small.width, small.score_options["width"], small.train.steps, small.train.lr) == (2, 2, 9000, 0.02)
    assert small.coarse_steps == 0
    model = small.model()
    large = trainers.enlarged(model, tiny)
    assert large(torch.zeros(1, 1, 4, 4)).shape == (1, 10)
    for (name, before), after in zip(model.named_parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(after, before / 2 if name.endswith("strength") else before)

    monkeypatch.setitem(EXPERIMENTS, "mnist-784", replace(EXPERIMENTS["mnist-784"], settings={"long": tiny}))
    record("mnist-784", "long", steps=2, out=tmp_path)
    (run,) = load_record("mnist-784", "long", tmp_path)["runs"]
    assert run["parameters"] == 53_594
    assert set(run["figures"]) == {"test accuracy", "test accuracy enlarged", "test accuracy on small digits"}
    assert [run["curves"]["loss"][-1][0], run["details"]["loss on small digits"][-1][0]] == [2, 180]


@pytest.fixture
def tiny_pixels(monkeypatch):
    """The pixel experiment with settings that take no time."""
    arms = {
        arm: replace(setting, pooling=7, score_options=setting.score_options | {"width": 4} if score else {})
        for arm, setting in experiments.MNIST_PIXELS["quick"].items()
        for score in [setting.score_options]
    }
    monkeypatch.setitem(EXPERIMENTS, "mnist-pixels", replace(EXPERIMENTS["mnist-pixels"], settings={"quick": arms}))
    return list(arms)


def test_record_of_arms(tmp_path, monkeypatch, tiny_pixels):
    record("mnist-pixels", "quick", seeds=2, steps=2, out=tmp_path)
    content = load_record("mnist-pixels", "quick", tmp_path)
    assert content["arms"] == list(content["config"]) == tiny_pixels
    assert [(run["arm"], run["seed"]) for run in content["runs"]] == [(arm, n) for arm in tiny_pixels for n in (0, 1)]
    for run in content["runs"]:
        layers, heads = (2, 1) if run["arm"] == "published" else (3, 4)
        distances = torch.tensor(run["details"]["attention distance"])
        assert distances.shape == (layers, heads)
        assert run["figures"]["attention distance"] == pytest.approx(distances.mean().item())
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
    assert all(0 <= run["figures"]["test accuracy"] <= 1 for run in content["runs"])


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
    assert cli.record_state("mnist-pixels", "quick") == "not recorded yet, 4 of 15 runs"

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
    for commit in ("one", "one", "other"):
        monkeypatch.setattr(records, "_commit", lambda commit=commit: commit)
        with pytest.raises(records.UnfinishedRecord, match="power cut"):
            record("mnist-784", "long", steps=2, out=tmp_path)
    power = True
    record("mnist-784", "long", steps=2, out=tmp_path)
    assert found == [[False, False], [True, True], [False, False], [True, True]]
    assert [file.name for file in tmp_path.iterdir()] == ["mnist-784.long.json"]
    (resumed,) = load_record("mnist-784", "long", tmp_path)["runs"]
    assert resumed["figures"] == whole.run(replace(tiny, train=tiny.train.with_steps(2)), 0, progress=False).figures


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file"
    with written_whole(path) as beside:
        beside.write_text("old")

    def interrupted():
        with written_whole(path) as beside:
            beside.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in path.parent.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_record_of_a_seed_can_be_repeated(tmp_path):
    paths = [record(NAME, "quick", seeds=1, steps=3, out=tmp_path / name) for name in "ab"]
    first, second = (json.loads(path.read_text())["runs"][0] for path in paths)
    assert first["curves"] == second["curves"]
    assert first["figures"] == second["figures"]


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


def test_what_is_not_recorded_says_so(tmp_path, monkeypatch):
    assert load_record(NAME, "full", tmp_path) is None
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    assert describe_record(NAME, "test accuracy") == f"{NAME}, full profile: not recorded yet"
    with pytest.raises(ValueError, match=f"no experiment 'mnist'; there are {NAME}"):
        load_record("mnist")


def test_describe_record_gives_mean_and_standard_error(tmp_path, monkeypatch):
    runs = [{"seed": n, "figures": {"a": v}, "seconds": 3.0, "parameters": 1000} for n, v in enumerate((0.9, 0.94))]
    content = {"runs": runs, "seeds": [0, 1], "device": "CPU"}
    (tmp_path / f"{NAME}.json").write_text(json.dumps(content))
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    line = f"{NAME}, full profile: a 92.00 ± 2.00 % over 2 seeds, 1,000 parameters, 3 s each on CPU"
    assert describe_record(NAME, "a") == line


def run(capsys, *arguments):
    """Exit status, stdout, stderr."""
    status = cli.main([str(a) for a in arguments])
    return status, *capsys.readouterr()


def test_train_writes_what_it_says(tmp_path, capsys):
    out = tmp_path / "run"
    status, printed, _ = run(capsys, "train", "mnist", "--steps", 5, "--lr", 0.001, "--out", out, *TINY)
    assert status == 0
    assert printed.startswith("test accuracy ")
    assert sorted(f.name for f in out.iterdir()) == ["history.json", "loss.png", "model.pt"]
    content = json.loads((out / "history.json").read_text())
    assert len(content["loss"]) == 5
    assert content["config"]["train"]["lr"] == 0.001
    assert content["config"]["embed_dim"] == 8
    assert "positions.table" in torch.load(out / "model.pt", weights_only=True)


TINY_TEXT = ["--embed-dim", 8, "--num-heads", 2, "--num-layers", 1, "--profile", "quick", "--device", "cpu"]


def test_a_share_of_the_text_is_its_beginning():
    setting = replace(experiments.SHAKESPEARE_CELL["quick"], text_share=0.001, length=8, batch_size=100)
    tokens, vocabulary = data.shakespeare("train")
    beginning = vocabulary.decode(tokens[: round(len(tokens) / 1000)])
    inputs, _ = next(setting.training_batches(seed=0))  # most of it, in pieces
    places = [beginning.find(vocabulary.decode(piece)) for piece in inputs]
    assert min(places) >= 0
    assert max(places) > 0.9 * len(beginning)


@pytest.fixture
def short_text(monkeypatch):
    """Tiny Shakespeare's first 2,000 characters in both splits, so that a look at the validation loss takes no time."""
    tokens, vocabulary = data.shakespeare()
    for module in (settings, trainers):
        monkeypatch.setattr(module, "shakespeare", lambda split="train": (tokens[:2000], vocabulary))


@pytest.mark.parametrize("positions", [*POSITIONS, "rotary"])
@pytest.mark.usefixtures("short_text")
def test_train_shakespeare(tmp_path, monkeypatch, capsys, positions):
    """One cell of the two by two; without --out it goes to a folder of its own."""
    monkeypatch.chdir(tmp_path)
    arguments = ("--positions", positions, "--attention", "distance", "--steps", 3, "--length", 16, "--dropout", 0.1)
    status, printed, _ = run(capsys, "train", "shakespeare", *arguments, *TINY_TEXT)
    assert status == 0
    assert printed.startswith("validation loss ")
    folder = tmp_path / "runs" / f"shakespeare-{positions}-distance-0"
    assert sorted(f.name for f in folder.iterdir()) == ["history.json", "loss.png", "model.pt"]
    content = json.loads((folder / "history.json").read_text())
    assert (
        content["config"] | {"positions": positions, "score": "distance", "length": 16, "dropout": 0.1}
        == (content["config"])
    )
    assert [step for step, _ in content["metrics"]["validation loss"]] == [1, 2, 3]
    assert content["figures"]["lowest validation loss"] <= content["figures"]["validation loss"]


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_language_models_keep_to_nanogpts_size(profile):
    """0.8M and 10.7M parameters; in the two by two, separable attention adds its weights to that."""
    size = {"quick": 804_096, "full": 10_745_088}[profile]
    for setting in experiments.SHAKESPEARE[profile].values():
        model = setting.model()
        assert sum(p.numel() for p in model.parameters()) <= size + 3_000 * (profile == "quick")  # token shifts
        assert (setting.positions == "rotary") == isinstance(model.positions, NoPositions)
    for setting in experiments.ADDITIVE_2X2[profile].values():
        extra = setting.num_layers * setting.embed_dim * (setting.score == "separable")
        table = setting.length * setting.embed_dim * (setting.positions == "sinusoidal")
        read_out = 65 * setting.embed_dim
        assert sum(p.numel() for p in setting.model().parameters()) == size + read_out + extra - table
    plain = experiments.SHAKESPEARE[profile]["plain"]
    assert (plain.train.steps, plain.batch_size, plain.length) == {"quick": (2000, 12, 64), "full": (5000, 64, 256)}[
        profile
    ]


def test_the_long_language_model_keeps_to_the_full_ones_budget():
    full = experiments.SHAKESPEARE["full"]["plain"]
    for setting in experiments.SHAKESPEARE["long"].values():
        assert setting.length == full.length
        assert setting.train.steps <= full.train.steps
        assert sum(p.numel() for p in setting.model().parameters()) <= 10_745_088


def test_lengths_are_judged_by_models_that_can_look_so_far(tmp_path, monkeypatch, short_text):
    tiny = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "length": 8, "max_length": 64, "batch_size": 2}
    arms = {arm: replace(setting, **tiny) for arm, setting in experiments.SHAKESPEARE_LENGTHS["quick"].items()}
    name = "shakespeare-lengths"
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": arms}))
    record(name, "quick", seeds=1, steps=2, out=tmp_path)
    content = load_record(name, "quick", tmp_path)
    assert content["arms"] == ["distance", "sinusoidal", "learned", "none", "rotary", "sinusoidal, small start"]
    for one in content["runs"]:
        assert {f"validation loss at {n}" for n in (8, 16, 32, 64)} < set(one["figures"])
        assert one["figures"]["validation loss at 8"] == pytest.approx(one["figures"]["validation loss"], rel=1e-5)
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    line = describe_record(name, "validation loss at 64", "quick", arm="rotary")
    assert re.match(r"shakespeare-lengths, rotary, quick profile: validation loss at 64 \d\.\d{3} over 1 seed, ", line)


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("arms", [experiments.ENERGY_WELLS, experiments.ENERGY_WELLS_TEXT], ids=["images", "text"])
def test_arms_of_energy_wells_differ_in_the_score_alone(arms, profile):
    """Beside the sharpness of each head and, where tokens have a weight, a vector for each head, nothing is added."""
    arms = arms[profile]
    assert len(arms) == 10
    plain = sum(p.numel() for p in arms["dot"].model().parameters())
    for name, setting in arms.items():
        assert replace(setting, score="dot", score_options={}) == arms["dot"]
        model = setting.model()
        extra = sum(p.numel() for p in model.parameters()) - plain
        scores = [block.attention.score for block in model.blocks]
        assert extra == sum(p.numel() for score in scores for p in score.parameters())
        assert extra <= setting.num_layers * (setting.embed_dim + setting.num_heads)
        if isinstance(scores[0], EnergyWellScore):
            assert name == f"{scores[0].well.name}, {scores[0].form}"
        else:
            assert (scores[0].scale == 0) == (name == "uniform")


def test_masked_images_are_probed(tmp_path, monkeypatch):
    """With 50 digits to train on and 20 to test; the probes of pixels need no training, so every seed has the same."""
    digits = {split: tuple(x[:count] for x in data.mnist(split)) for split, count in (("train", 50), ("test", 20))}
    for module in (settings, trainers):
        monkeypatch.setattr(module, "mnist", lambda split, size: digits[split])
    name = "masked-images"
    tiny = replace(experiments.MASKED_IMAGES["quick"], embed_dim=8, num_heads=2, num_layers=1, batch_size=10)
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": tiny}))
    record(name, "quick", seeds=2, steps=2, out=tmp_path)
    first, second = load_record(name, "quick", tmp_path)["runs"]
    assert list(first["figures"]) == [
        "probe accuracy", "probe accuracy of pixels", "probe accuracy untrained", "test loss"
    ]  # fmt: skip
    assert all(0 <= value <= 1 for value in first["figures"].values())
    assert first["figures"]["probe accuracy of pixels"] == second["figures"]["probe accuracy of pixels"]
    assert first["curves"]["test loss"][-1][1] == first["figures"]["test loss"] != second["figures"]["test loss"]


@pytest.mark.parametrize("task", ["reversal", "dates"])
def test_sequence_models_are_judged_on_what_was_kept_for_testing(tmp_path, monkeypatch, task):
    tiny = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "batch_size": 4, "examples": 50}
    whole = EXPERIMENTS[task].arms("quick")
    arms = {arm: replace(setting, **tiny) for arm, setting in whole.items()}
    monkeypatch.setitem(EXPERIMENTS, task, replace(EXPERIMENTS[task], settings={"quick": arms.get(None, arms)}))
    asked = []
    monkeypatch.setattr(
        trainers, "exact_match", lambda model, setting, texts, answers: asked.append((texts, answers)) or 0.5
    )
    record(task, "quick", seeds=1, steps=2, out=tmp_path)
    content = load_record(task, "quick", tmp_path)
    assert content.get("arms", [None]) == list(whole)
    kinds = {"reversal": ["", " at ten times the length"], "dates": ["", " on new forms", " on new days and forms"]}
    for one in content["runs"]:
        assert list(one["figures"]) == [f"test exact match{kind}" for kind in kinds[task]]
        assert one["curves"]["exact match of 1,000"] == [[1, 0.5], [2, 0.5]]
    assert len(asked) == len(arms) * (2 + len(kinds[task]))
    setting = next(iter(arms.values()))
    for texts, answers in asked:
        source, target = setting.tokens(texts, answers)
        assert max(source.shape[1], target.shape[1]) <= setting.max_length
        if task == "reversal":
            assert not set(texts) & set(data.reversals(50, seed=0, longest=10)[0])
            assert answers == [text[::-1] for text in texts]
    assert [len(texts) for texts, _ in asked[:3]] == [1000, 1000, 10_000]


def test_exact_match_counts_what_is_right_to_the_last_character():
    setting = experiments.REVERSAL["quick"]["sinusoidal"]

    class Reverser(nn.Module):
        """Reverses what begins with a letter up to m, and forgets to stop after the rest."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def greedy(self, source, count):
            texts = [data.LETTERS.decode(row).strip("_>") for row in source]
            return data.token_rows([f"<{t[::-1]}{'>' if t[0] < 'n' else 'a'}" for t in texts], data.LETTERS)[
                :, : count + 1
            ]

    texts, answers = data.reversals(1500, seed=0)
    expected = sum(text[0] < "n" for text in texts) / 1500
    assert trainers.exact_match(Reverser(), setting, texts, answers) == pytest.approx(expected)


@pytest.mark.usefixtures("short_text")
def test_a_text_shorter_than_one_batch_is_refused(capsys):
    status, _, error = run(capsys, "train", "shakespeare", "--length", 500, *TINY_TEXT)
    assert status == 1
    assert "12 pieces of 500 tokens need a text of 6500 or more, got 2000 tokens" in error


def test_train_resumes_from_its_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ("train", "mnist", "--steps", 4, "--checkpoint", tmp_path / "c.pt", *TINY)
    first, again = run(capsys, *arguments), run(capsys, *arguments)
    assert first[0] == again[0] == 0
    assert first[1].splitlines()[0] == again[1].splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "mnist", "--patch-size", "5"), "image_size 28 is not divisible by patch_size 5"),
        (("train", "mnist", "--num-heads", "3"), "embed_dim 64 is not divisible by num_heads 3"),
        (("train", "mnist", "--steps", "0"), "got 0 steps"),
        (("train", "mnist", "--batch-size", "20000"), "20000"),
        (("train", "mnist", "--length", "64"), "--length is no option of mnist"),
        (("train", "mnist", "--positions", "rotary"), "'rotary' is unknown; there are sinusoidal, learned, none"),
        (("train", "shakespeare", "--patch-size", "7"), "--patch-size is no option of shakespeare"),
        (("train", "mnist", "--device", "nonsense"), "--device 'nonsense' is unknown"),
        (("train", "mnist", "--device", "cuda:99"), "--device cuda:99: this machine has "),
        (("record", "mnist"), f"no experiment 'mnist'; there are {NAME}"),
        (("record",), "record what?"),
        (("record", NAME, "--seeds", "0"), "at least 1 seed, got 0"),
        (("record", NAME, "--steps", "3"), "give it an --out"),
        (("record", "dates", "--profile", "long"), "no profile 'long' of it; there are quick, full"),
        (("train", "shakespeare", "--profile", "long"), "shakespeare has no long profile; there are quick, full"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    status, printed, error = run(capsys, *arguments)
    assert status == 1
    assert printed == ""
    assert error.startswith("sciformer: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("option", ["--embed-dim", "--num-layers", "--length"])
def test_a_size_below_1_is_refused_with_the_option(capsys, option):
    with pytest.raises(SystemExit):
        run(capsys, "train", "shakespeare", option, "-64")
    assert f"argument {option}: -64 is below 1" in capsys.readouterr().err


def test_what_cannot_be_written_is_told_before_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainers, "fit", lambda *arguments, **options: pytest.fail("it trains"))
    (tmp_path / "file").touch()
    for arguments in (("train", "mnist"), ("record", NAME)):
        status, _, error = run(capsys, *arguments, "--steps", "1", "--out", tmp_path / "file")
        assert status == 1
        assert error.startswith("sciformer: [Errno")


def test_a_commit_is_that_of_the_package(tmp_path, monkeypatch):
    checkout = (Path(records.__file__).parents[1] / ".git").exists()
    assert bool(records.environment()["commit"]) == checkout
    monkeypatch.setattr(records, "__file__", str(tmp_path / "sciformer" / "records.py"))
    assert records.environment()["commit"] is None


def test_record_list(capsys):
    status, printed, _ = run(capsys, "record", "--list")
    assert status == 0
    every = {name: each.settings for name, each in EXPERIMENTS.items()} | {"search": search.SEARCH}
    assert [line.split()[:2] for line in printed.splitlines()] == [
        [name, profile] for name, profiles in every.items() for profile in profiles
    ]


def test_record_draws_every_arm(tmp_path, monkeypatch, capsys, tiny_pixels):
    drawn = []
    bands = plotting.bands
    monkeypatch.setattr(
        plotting, "bands", lambda runs, **options: drawn.append((runs, options)) or bands(runs, **options)
    )
    out = ("--out", tmp_path, "--device", "cpu")
    status, printed, _ = run(capsys, "record", "mnist-pixels", "--profile", "quick", "--seeds", 2, "--steps", 4, *out)
    assert status == 0
    written = [tmp_path / "mnist-pixels.quick.json", tmp_path / "mnist-pixels.quick.png"]
    assert printed.splitlines() == [f"written: {path}" for path in written]
    assert set(tmp_path.iterdir()) == set(written)
    ((runs, options),) = drawn
    assert list(runs) == tiny_pixels
    assert options["x"] == [0.25, 0.5, 0.75, 1.0]
    last = [r["figures"]["test accuracy"] for r in load_record("mnist-pixels", "quick", tmp_path)["runs"][:2]]
    assert runs["distance"][:, -1].tolist() == pytest.approx(last)


def test_record_list_goes_on_after_a_damaged_record(tmp_path, monkeypatch, capsys):
    for name in (NAME, "search"):
        (tmp_path / f"{name}.json").write_text("{")
    for module in (records, search):
        monkeypatch.setattr(module, "results_folder", lambda: tmp_path)
    status, printed, _ = run(capsys, "record", "--list")
    assert status == 0
    damaged = [line for line in printed.splitlines() if "not recorded yet" not in line]
    for name, line in zip((NAME, "search"), damaged, strict=True):
        assert re.match(rf"{name} +full +DAMAGED: .+{name}\.json is not a whole record", line)


BAKE_OFFS = {name: each for name, each in EXPERIMENTS.items() if name.startswith("bake-off")}


@pytest.mark.parametrize(("name", "profile"), [(n, p) for n, each in BAKE_OFFS.items() for p in each.settings])
def test_bake_offs_compare_nothing_but_the_score(name, profile):
    """The score's own numbers, α, w and λ, are the only difference in parameters: under one in a hundred."""
    arms = EXPERIMENTS[name].arms(profile)
    assert list(arms) == list(SCORES)
    assert {replace(setting, score="dot") for setting in map(hashable, arms.values())} == {hashable(arms["dot"])}
    sizes = {}
    for arm, setting in arms.items():
        model = setting.model()
        assert (arm, setting.score, setting.score_options) == (arm, arm, {})
        scores = [module for key, module in model.named_modules() if key.endswith("attention.score")]
        assert len(scores) == setting.num_layers
        own = sum(p.numel() for score in scores for p in score.parameters())
        sizes[arm] = sum(p.numel() for p in model.parameters())
        assert sizes[arm] - own == sizes["dot"]
    assert max(sizes.values()) < 1.01 * sizes["dot"]


def hashable(setting):
    """A setting without its dicts, which must be empty or the same for all."""
    changes = {"score_options": None}
    if hasattr(setting, "augmentation"):
        changes["augmentation"] = tuple(setting.augmentation.items())
    return replace(setting, **changes)


@pytest.mark.usefixtures("short_text")
@pytest.mark.parametrize("name", ["bake-off-pixels", "bake-off-text"])
def test_a_bake_off_weighs_each_score(tmp_path, monkeypatch, name):
    """A run of the additive score holds more, and takes longer, than one of the dot product."""
    tiny = {"pooling": 7} if name == "bake-off-pixels" else {"embed_dim": 16, "num_layers": 1}
    whole = EXPERIMENTS[name].arms("quick")
    arms = {arm: replace(whole[arm], **tiny) for arm in ("dot", "additive")}
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": arms}))
    record(name, "quick", seeds=1, steps=2, out=tmp_path)
    dot, additive = (run["figures"] for run in load_record(name, "quick", tmp_path)["runs"])
    assert dot["peak MB"] > 0
    assert dot["step time against dot"] > 0
    assert additive["peak MB"] > dot["peak MB"]
    assert additive["step time against dot"] > dot["step time against dot"] / 2  # a loaded machine says no more


def test_data_shows_what_is_where(tmp_path, capsys):
    status, printed, _ = run(capsys, "data", "--root", tmp_path)
    assert status == 0
    assert printed.count("embedded") == 3
    assert printed.count("missing") == len(data.MNIST_FILES) + 1


def test_places_are_shown_without_what_lies_above(tmp_path):
    assert cli.short(data.ASSETS / "a.bz2") == Path("sciformer/assets/a.bz2")
    assert cli.short(Path.home() / ".cache" / "b") == Path("~/.cache/b")
    assert cli.short(tmp_path / "c") == tmp_path / "c"


def test_data_says_when_it_cannot_fetch(tmp_path, capsys, monkeypatch):
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])
    status, _, error = run(capsys, "data", "--fetch", "--root", tmp_path)
    assert status == 1
    assert "could not be fetched" in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_doctor_says_what_a_bug_report_needs(capsys):
    status, printed, _ = run(capsys, "doctor")
    assert status == 0
    for word in ("sciformer", "python", "torch", "ipywidgets", "cuda", "threads", "profile", "embedded"):
        assert word in printed
