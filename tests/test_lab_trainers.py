"""Trained models are judged on what was kept for testing, at the lengths and sizes that were asked for."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from sciformer import data
from sciformer.lab import experiments, records, settings, trainers
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.records import describe_record, load_record, record
from sciformer.training import History


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
    record("mnist-784", "long", seeds=1, steps=2, out=tmp_path)
    (run,) = load_record("mnist-784", "long", tmp_path)["runs"]
    assert run["parameters"] == 53_594
    assert set(run["metrics"]) == {"test accuracy", "test accuracy enlarged", "test accuracy on small digits"}
    assert [run["curves"]["loss"][-1][0], run["details"]["loss on small digits"][-1][0]] == [2, 180]


def test_lengths_are_judged_by_models_that_can_look_so_far(tmp_path, monkeypatch, short_text):
    tiny = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "length": 8, "max_length": 64, "batch_size": 2}
    arms = {arm: replace(setting, **tiny) for arm, setting in experiments.SHAKESPEARE_LENGTHS["quick"].items()}
    name = "shakespeare-lengths"
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": arms}))
    record(name, "quick", seeds=1, steps=2, out=tmp_path)
    content = load_record(name, "quick", tmp_path)
    assert content["arms"] == ["distance", "sinusoidal", "learned", "none", "rotary", "sinusoidal, small start"]
    for one in content["runs"]:
        assert {f"validation loss at {n}" for n in (8, 16, 32, 64)} < set(one["metrics"])
        assert one["metrics"]["validation loss at 8"] == pytest.approx(one["metrics"]["validation loss"], rel=1e-5)
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    line = describe_record(name, "validation loss at 64", "quick", arm="rotary")
    assert re.match(r"shakespeare-lengths, rotary, quick profile: validation loss at 64 \d\.\d{3} over 1 seed, ", line)


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
    assert list(first["metrics"]) == [
        "probe accuracy", "probe accuracy of pixels", "probe accuracy untrained", "test loss"
    ]  # fmt: skip
    assert all(0 <= value <= 1 for value in first["metrics"].values())
    assert first["metrics"]["probe accuracy of pixels"] == second["metrics"]["probe accuracy of pixels"]
    assert first["curves"]["test loss"][-1][1] == first["metrics"]["test loss"] != second["metrics"]["test loss"]


@pytest.mark.parametrize("task", ["reversal", "dates", "stories"])
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
    kinds = {
        "reversal": ["", " at ten times the length"],
        "dates": ["", " on new forms", " on new days and forms"],
        "stories": ["", " at twice the length"],
    }
    for one in content["runs"]:
        assert list(one["metrics"]) == [f"test exact match{kind}" for kind in kinds[task]]
        assert one["curves"]["exact match of 1,000"] == [[1, 0.5], [2, 0.5]]
    assert len(asked) == len(arms) * (2 + len(kinds[task]))
    setting = next(iter(arms.values()))
    for texts, answers in asked:
        source, target = setting.tokens(texts, answers)
        assert max(source.shape[1], target.shape[1]) <= setting.max_length
        if task == "reversal":
            assert not set(texts) & set(data.reversals(50, seed=0, longest=10)[0])
            assert answers == [text[::-1] for text in texts]
        if task == "stories":
            assert not set(texts) & set(data.stories(50, seed=0)[0])
    assert [len(texts) for texts, _ in asked[:3]] == [1000, 1000, 10_000]


def test_names_of_digits_are_judged_on_rows_of_test_digits(tmp_path, monkeypatch):
    tiny = {"size": "small", "embed_dim": 8, "num_heads": 2, "num_layers": 1, "batch_size": 4}
    setting = replace(EXPERIMENTS["digit-names"].arms("quick")[None], **tiny)
    monkeypatch.setitem(EXPERIMENTS, "digit-names", replace(EXPERIMENTS["digit-names"], settings={"quick": setting}))
    asked = []
    monkeypatch.setattr(trainers, "exact_match", lambda model, setting, *test: asked.append(test) or 0.5)
    monkeypatch.setattr("sciformer.lab.records.full_digits_at_hand", lambda: False)
    record("digit-names", "quick", seeds=1, steps=2, out=tmp_path)
    (run,) = load_record("digit-names", "quick", tmp_path)["runs"]
    assert run["metrics"] == {"test exact match": 0.5}
    assert run["curves"]["exact match of 1,000"] == [[1, 0.5], [2, 0.5]]
    assert [(len(rows), len(names)) for rows, names in asked] == [(1000, 1000)] * 2 + [(10_000, 10_000)]
    there = {digit.numpy().tobytes() for digit in data.mnist("test")[0]}
    for row in asked[-1][0][:200]:
        assert row[0, :, :28].contiguous().numpy().tobytes() in there


def test_digits_that_are_held_out_are_not_trained_on():
    setting = replace(experiments.DIGIT_NAMES["quick"], size="small", augmentation={}, batch_size=300, held_out=9990)
    images = data.mnist("train")[0]
    first, last = ({digit.numpy().tobytes() for digit in some} for some in (images[:10], images[10:]))
    rows, read, wanted = next(setting.training_batches(0))
    assert {row[0, :, :28].contiguous().numpy().tobytes() for row in rows} == first
    assert {row[0, :, :28].contiguous().numpy().tobytes() for row in setting.held_out_rows(100, 0)[0]} <= last
    assert data.NAME_LETTERS.decode(read[0])[0] == "<"
    assert torch.equal(read[:, 1:], wanted[:, :-1])
    assert (rows.shape, setting.model()(rows[:2], read[:2]).shape) == ((300, 1, 28, 84), (2, *read.shape[1:], 19))
    with pytest.raises(ValueError, match="there is nothing to choose by: held_out is 0"):
        replace(setting, held_out=0).held_out_rows(1, 0)


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
@pytest.mark.parametrize("name", ["bake-off-pixels", "bake-off-text"])
def test_a_bake_off_weighs_each_score(tmp_path, monkeypatch, name):
    """A run of the additive score holds more, and takes longer, than one of the dot product."""
    tiny = {"pooling": 7} if name == "bake-off-pixels" else {"embed_dim": 16, "num_layers": 1}
    whole = EXPERIMENTS[name].arms("quick")
    arms = {arm: replace(whole[arm], **tiny) for arm in ("dot", "additive")}
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": arms}))
    record(name, "quick", seeds=1, steps=2, out=tmp_path)
    dot, additive = (run["metrics"] for run in load_record(name, "quick", tmp_path)["runs"])
    assert dot["peak MB"] > 0
    assert dot["step time against dot"] > 0
    assert additive["peak MB"] > dot["peak MB"]
    assert additive["step time against dot"] > dot["step time against dot"] / 2  # a loaded machine says no more


def test_induction_is_judged_where_the_token_has_been_seen(tmp_path, monkeypatch):
    """A model that can only be right by chance, and one that is told what follows."""
    setting = experiments.INDUCTION["quick"]["dot"]
    tokens, period = setting.sequences(50, seed=1)

    class Oracle(nn.Module):
        def forward(self, inputs):
            p = period[:, None]
            source = (torch.arange(64) - p + 1).clamp(min=0)
            known = torch.nn.functional.one_hot(inputs.gather(1, source), 48).float()
            return known * (torch.arange(64) >= p)[..., None]

        def attention_weights(self, inputs):
            return [torch.eye(64).roll(-1, dims=0).expand(50, 2, 64, 64)]

    right, previous, matching = trainers.induction(Oracle(), tokens, period)
    assert right == 1
    assert (previous.shape, matching.shape) == ((1, 2), (1, 2))
    tiny = replace(setting, embed_dim=8, num_heads=2, examples=50, batch_size=4)
    monkeypatch.setitem(EXPERIMENTS, "induction", replace(EXPERIMENTS["induction"], settings={"quick": {"dot": tiny}}))
    record("induction", "quick", seeds=1, steps=2, out=tmp_path)
    (run,) = load_record("induction", "quick", tmp_path)["runs"]
    assert run["metrics"]["accuracy on repeats"] < 0.2
    scores = torch.tensor(run["details"]["prefix-matching score"])
    assert scores.shape == (2, 2)
    assert run["metrics"]["prefix-matching score"] == pytest.approx(scores.max().item())


@pytest.mark.parametrize("name", ["recipes-images", "recipes-text"])
def test_the_rate_is_chosen_on_what_is_held_out(name, tmp_path, monkeypatch, short_text):
    """A rate of nothing learns nothing, so it is never chosen; every arm trains at every rate, and one is tested."""
    tiny = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "batch_size": 32}
    if name == "recipes-text":
        tiny |= {"length": 16}
    arms = {
        arm: replace(
            setting,
            **tiny,
            train=replace(setting.train, optimizer="adamw", warmup_steps=0),
            score_options=setting.score_options | ({"max_length": 16} if setting.score_options else {}),
        )
        for arm, setting in EXPERIMENTS[name].arms("quick").items()
    }
    run = partial(trainers.train_at_best_rate, rates=(1e-9, 3e-2))
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": arms}, run=run))
    record(name, "quick", seeds=1, steps=60, out=tmp_path)
    content = load_record(name, "quick", tmp_path)
    assert content["arms"] == ["dot", "standardized", "key_bias", "additive_mask", "multiplicative_mask"]
    held_out, tested = {
        "recipes-images": ("validation accuracy", "test accuracy"),
        "recipes-text": ("held-out loss", "validation loss"),
    }[name]
    for one in content["runs"]:
        assert set(one["metrics"]) == {held_out, tested}
        assert one["details"]["learning rate"] == [3e-2]
        (_, idle), (_, learned) = one["details"][f"{held_out} at each rate"]
        assert learned == one["metrics"][held_out]
        assert learned > idle if name == "recipes-images" else learned < idle


def test_pixels_are_measured_before_training_and_after_it(tmp_path, monkeypatch):
    """At a rate of nothing nothing changes; the convolutions, which have no heads, are tested and no more."""
    name = "mnist-pixels-positions"
    tiny = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "pooling": 7}
    arms = {
        arm: replace(
            setting,
            **tiny,
            train=replace(setting.train, warmup_steps=0),
            score_options=setting.score_options | ({"width": 4} if "width" in setting.score_options else {}),
        )
        for arm, setting in EXPERIMENTS[name].arms("quick").items()
        if arm != "grid, set by hand"
    }
    run = partial(trainers.train_pixels_at_best_rate, rates=(1e-12,))
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": arms}, run=run))
    record(name, "quick", seeds=1, steps=2, out=tmp_path)
    for one in load_record(name, "quick", tmp_path)["runs"]:
        metrics, details = one["metrics"], one["details"]
        if one["arm"] == "convolutions":
            assert set(metrics) == {"validation accuracy", "test accuracy"}
            continue
        assert metrics["attention distance"] == pytest.approx(metrics["attention distance before training"])
        assert ("strength" in details) == (arms[one["arm"]].score == "distance")
        if "strength" in details:
            slopes = torch.tensor([details["strength"], details["strength before training"]])
            torch.testing.assert_close(*slopes)
            assert slopes.unique().tolist() == pytest.approx([0.1])


def test_a_rate_at_which_training_diverges_is_not_chosen(monkeypatch):
    losses = {1e-3: 2.0, 1e-2: 1.5, 1e-1: float("nan")}

    def trained(setting, seed, **options):
        rate = setting.train.lr
        return trainers.Run(seed, nn.Identity(), History(seconds=1.0), {"held-out loss": losses[rate]})

    monkeypatch.setattr(trainers, "train_language_to_choose", trained)
    monkeypatch.setattr(trainers, "text_loss", lambda *arguments: 1.6)
    setting = experiments.RECIPES_TEXT["quick"]["dot"]
    run = trainers.train_at_best_rate(setting, 0, rates=tuple(reversed(losses)))
    assert run.details["learning rate"] == [1e-2]
    assert run.metrics == {"held-out loss": 1.5, "validation loss": 1.6}
    assert run.history.seconds == 3.0


def test_the_best_rate_and_gain_are_chosen_on_sequences_held_out(monkeypatch):
    """Of four models, the one that does best on them is tested."""
    setting = experiments.BAKE_OFF_LOOK_UP["quick"]["dot"]
    setting = replace(setting, examples=500, train=setting.train.with_steps(30))
    run = trainers.train_at_best_rate(setting, 0, rates=(1e-4, 3e-2), gains=(1.0, 3.0), progress=False)
    alone = {
        (gain, rate): trainers.train_to_choose(
            replace(setting, gain=gain, train=replace(setting.train, lr=rate)), 0, progress=False, looks=1
        )
        for gain in (1.0, 3.0)
        for rate in (1e-4, 3e-2)
    }
    held_out = {choice: one.metrics["validation accuracy"] for choice, one in alone.items()}
    best = max(held_out, key=held_out.get)
    assert (run.details["gain"], run.details["learning rate"]) == ([best[0]], [best[1]])
    assert run.metrics["validation accuracy"] == held_out[best]
    assert held_out[best] > held_out[1.0, 1e-4]
    assert 0 < run.metrics["test accuracy"] < 1


def test_a_gain_multiplies_scores_by_its_square():
    """Queries and keys are three times as long, so that dot products are nine times as large."""
    setting = experiments.BAKE_OFF_LOOK_UP["quick"]["dot"]
    scores = []
    for gain in (1.0, 3.0):
        torch.manual_seed(0)
        attention = replace(setting, gain=gain).model().attention
        for projection in (attention.q_proj, attention.k_proj):
            torch.nn.init.zeros_(projection.bias)
        tokens = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(0))
        query, key = (p(tokens).unflatten(-1, (2, 16)).transpose(1, 2) for p in (attention.q_proj, attention.k_proj))
        scores.append(attention.score(query, key))
    torch.testing.assert_close(scores[1], 9 * scores[0])


def test_a_look_up_needs_the_query():
    """The answer of a model whose score ignores the query is the same for every queried key but for its own token."""
    keys, values, queried, answer = data.lookup(50, seed=0)
    settings = experiments.BAKE_OFF_LOOK_UP["quick"]
    torch.manual_seed(0)
    for score, differs in (("dot", True), ("separable", False)):
        attention = settings[score].model().attention
        tokens = torch.randn(1, 9, 32)
        changed = tokens.clone()
        changed[:, -1] += torch.randn(32)
        with torch.no_grad():
            weights = [attention(x, need_weights=True)[1][..., -1, :-1] for x in (tokens, changed)]  # on the pairs
        shares = [w / w.sum(dim=-1, keepdim=True) for w in weights]
        assert torch.allclose(*shares, atol=1e-6) != differs
    assert (keys == queried[:, None]).sum(dim=1).eq(1).all()
    assert values.gather(1, (keys == queried[:, None]).int().argmax(dim=1, keepdim=True)).squeeze(1).equal(answer)
