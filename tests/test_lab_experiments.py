"""Experiments keep to the published sizes, and their arms differ in what is compared alone."""

import itertools
from dataclasses import asdict, replace
from typing import get_args

import pytest
import torch
from torch import nn

from sciformer import EnergyWellScore, NoPositions, SquaredReLU
from sciformer.fast import attention
from sciformer.lab import experiments, settings
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.scores import SCORES, WRAPPERS

PROFILES = get_args(settings.Profile)


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


@pytest.mark.parametrize("profile", experiments.SHARP_START)
def test_a_sharp_start_is_the_dot_product_times_seven_and_differs_in_nothing_else(profile):
    plain, sharp = experiments.SHARP_START[profile].values()
    assert replace(sharp, score_options={}) == plain
    assert plain == replace(experiments.CAPSTONE[profile]["digits"], train=plain.train)
    scores = [setting.model().blocks[0].attention.score for setting in (plain, sharp)]
    query, key = torch.randn(2, 1, plain.num_heads, 3, plain.embed_dim // plain.num_heads)
    torch.testing.assert_close(scores[1](query, key), 7 * scores[0](query, key))


def test_placed_pixels_differ_in_how_they_are_placed():
    """The same model and training for all, but for the convolutions, which have the fewest parameters."""
    arms = experiments.MNIST_PIXELS_POSITIONS["quick"]
    changed = {"score", "score_options", "positions"}
    models = [
        {name: value for name, value in asdict(setting).items() if name not in changed}
        for arm, setting in arms.items()
        if arm != "convolutions"
    ]
    assert all(model == models[0] for model in models)
    assert models[0]["held_out"] == 2000
    sizes = {arm: sum(p.numel() for p in setting.model().parameters()) for arm, setting in arms.items()}
    assert sizes["convolutions"] == min(sizes.values())
    blocks = arms["line, one slope"].model().blocks
    assert all(block.attention.score.strength.tolist() == pytest.approx([0.1]) for block in blocks)
    free, by_hand = (
        arms[f"grid, {start}"].model().blocks[0].attention.score.strength
        for start in ("four slopes a head", "set by hand")
    )
    assert free.unique().tolist() == pytest.approx([0.1])
    assert free.shape == by_hand.shape == (4, 4)
    images = torch.rand(2, 1, 14, 14)
    assert arms["convolutions"].model()(images).shape == (2, 10)


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
        position = torch.arange(196)
        scores = query @ key.mT / 8 - block.attention.score.strength * (position[:, None] - position).abs()
        tokens = block.attention_norm(tokens + scores.softmax(dim=-1) @ value)
        hidden = torch.relu(block.feed_forward.up(tokens))
        tokens = block.feed_forward_norm(tokens + block.feed_forward.down(hidden))
    torch.testing.assert_close(ours(images), ours.classifier.linear(tokens.mean(dim=1)))


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_language_models_keep_to_nanogpts_size(profile):
    """0.8M and 10.7M parameters; in the published two by two, separable attention adds its weights to that."""
    size = {"quick": 804_096, "full": 10_745_088}[profile]
    for setting in experiments.SHAKESPEARE[profile].values():
        model = setting.model()
        assert sum(p.numel() for p in model.parameters()) <= size + 3_000 * (profile == "quick")  # token shifts
        assert (setting.positions == "rotary") == isinstance(model.positions, NoPositions)
    arms = experiments.ADDITIVE_2X2["full"] if profile == "full" else experiments.ADDITIVE_LITTLE_TEXT["quick"]
    for setting in arms.values():
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


def test_what_is_published_on_one_token_differs_in_the_axes_and_the_rate_alone():
    arms = experiments.ONE_TOKEN["quick"]
    plain, exchanged = arms["linear"], arms["exchanged"]
    assert (plain.batch_first, exchanged.batch_first, arms["in order"].batch_first) == (None, False, True)
    assert all(replace(arms[arm], batch_first=None) == plain for arm in ("exchanged", "in order"))
    assert replace(arms["exchanged, rate 0.001"], train=exchanged.train) == exchanged
    assert arms["exchanged, rate 0.001"].train == replace(exchanged.train, lr=exchanged.train.lr / 10)
    assert replace(arms["transformer"], patch_size=4) == experiments.WELL_IMAGES["quick"]
    assert arms["transformer"].model().to_sequence.num_tokens == 1
    for arm, setting in experiments.ONE_TOKEN["long"].items():
        longer = {"size": "full", "held_out": 12_000, "train": arms[arm].train.with_steps(7500)}
        assert setting == replace(arms[arm], **longer)


def test_with_the_axes_exchanged_an_answer_depends_on_the_other_digits():
    arms = experiments.ONE_TOKEN["quick"]
    torch.manual_seed(0)
    exchanged, in_order = arms["exchanged"].model(), arms["in order"].model()
    in_order.load_state_dict(exchanged.state_dict())
    digits = torch.rand(3, 1, 28, 28)
    alone = [torch.cat([model(digit[None]) for digit in digits]) for model in (exchanged, in_order)]
    torch.testing.assert_close(alone[0], alone[1])
    torch.testing.assert_close(in_order(digits), alone[1])
    assert (exchanged(digits) - alone[0]).abs().amax(dim=1).min() > 1e-3


def test_a_well_with_one_token_is_the_linear_classifier():
    """Without matrices of its own, a well returns the digit, whatever it scores."""
    torch.manual_seed(0)
    linear, tokens = experiments.ONE_TOKEN["quick"]["linear"].model(), torch.rand(3, 1, 784)
    for form in ("gradient", "field"):
        output, _ = attention(EnergyWellScore(1, 784, form=form), *[tokens[:, None]] * 3)
        torch.testing.assert_close(linear[-1](output[:, 0, 0]), linear(tokens.unflatten(-1, (28, 28))))


def test_digits_as_one_token_are_tested_in_batches_like_those_of_training():
    setting = experiments.ONE_TOKEN["quick"]["exchanged"]
    batches = setting.test_batches()
    whole = torch.cat([images for images, _ in experiments.WELL_IMAGES["quick"].test_batches()])
    assert [len(images) for images, _ in batches] == [len(labels) for _, labels in batches] == [64] * 31 + [16]
    torch.testing.assert_close(torch.cat([images for images, _ in batches]), 2 * whole - 1)
    assert next(setting.training_batches(0))[0].aminmax() == (-1, 1)


BAKE_OFFS = {name: each for name, each in EXPERIMENTS.items() if name.startswith("bake-off")}


@pytest.mark.parametrize(("name", "profile"), [(n, p) for n, each in BAKE_OFFS.items() for p in each.settings])
def test_bake_offs_compare_nothing_but_the_score(name, profile):
    """The score's own parameters, α, w and λ, are the only difference in parameters: under one in a hundred."""
    arms = EXPERIMENTS[name].arms(profile)
    assert list(arms) == list(SCORES)
    assert all(replace(setting, score="dot") == arms["dot"] for setting in arms.values())
    sizes = {}
    for arm, setting in arms.items():
        model = setting.model()
        assert (arm, setting.score, setting.score_options, setting.gain) == (arm, arm, {}, 1)
        scores = [module for key, module in model.named_modules() if key.endswith("attention.score")]
        assert len(scores) == getattr(setting, "num_layers", 1)
        own = sum(p.numel() for score in scores for p in score.parameters())
        sizes[arm] = sum(p.numel() for p in model.parameters())
        assert sizes[arm] - own == sizes["dot"]
    assert max(sizes.values()) < 1.01 * sizes["dot"]


def test_each_rung_of_the_ladder_adds_one_thing_to_the_rung_below():
    rungs = list(experiments.SHAKESPEARE_LADDER["quick"].values())
    changed = [
        {key for key, value in asdict(rung).items() if value != asdict(below)[key]}
        for below, rung in itertools.pairwise(rungs)
    ]
    assert changed == [{"positions"}, {"normalized"}, {"squared_relu"}, {"train"}, {"token_shift"}]
    assert all(rung.train.steps == rungs[0].train.steps for rung in rungs)


def test_arms_without_decay_and_with_more_are_the_last_rung_in_all_else():
    rung = experiments.SHAKESPEARE_LADDER["quick"]["token shift"]
    for arms, share in ((experiments.SHAKESPEARE_DECAY, 1.0), (experiments.DECAY_LITTLE_TEXT, 1 / 50)):
        here = replace(rung, text_share=share)
        for arm, setting in arms["quick"].items():
            decay = {"no decay": 0.0, "the rung's decay": 0.1, "ten times the decay": 1.0}[arm]
            assert setting == replace(here, train=replace(here.train, weight_decay=decay))


def test_the_rung_of_the_squared_relu_changes_the_activation_alone():
    plain = experiments.SHAKESPEARE_LADDER["quick"]["plain"]
    kinds = [
        [type(module) for module in setting.model().modules()] for setting in (plain, replace(plain, squared_relu=True))
    ]
    assert {pair for pair in zip(*kinds, strict=True) if pair[0] != pair[1]} == {(nn.GELU, SquaredReLU)}


RECIPES = {"recipes-images": experiments.RECIPES_IMAGES, "recipes-text": experiments.RECIPES_TEXT}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_compared_in_one_model_that_starts_as_plain_attention(name):
    """But for standardised rows, which are another thing from the start. What is learned is the score's own alone."""
    arms = RECIPES[name]["quick"]
    assert list(arms) == ["dot", *WRAPPERS]
    models = {}
    for arm, setting in arms.items():
        assert replace(setting, score="dot", score_options={}) == arms["dot"]
        torch.manual_seed(0)
        models[arm] = setting.model().double().eval()
        own = {key for key, _ in models[arm].named_parameters() if ".score." in key}
        assert own == models[arm].state_dict().keys() - models["dot"].state_dict().keys()
    inputs = torch.rand(2, 1, 28, 20).double() if name == "recipes-images" else torch.randint(65, (2, 64))
    with torch.no_grad():
        for model in models.values():  # a read-out of zeros would make all of them alike
            torch.manual_seed(1)
            for key, parameter in model.named_parameters():
                if ".score." not in key:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        outputs = {arm: model(inputs) for arm, model in models.items()}
    for arm in WRAPPERS:
        alike = torch.allclose(outputs[arm], outputs["dot"], rtol=1e-8, atol=1e-8)
        assert alike == (arm != "standardized"), arm


def test_the_cropped_digits_are_neither_squares_nor_cut_into_squares():
    setting = experiments.RECIPES_IMAGES["quick"]["dot"]
    images, labels = next(setting.training_batches(seed=0))
    assert (images.shape, labels.shape) == ((32, 1, 28, 20), (32,))
    assert (setting.model().to_sequence.patch_size, setting.model().to_sequence.num_tokens) == ((7, 5), 16)
    whole = experiments.WELL_IMAGES["quick"].test_batches()
    assert all(
        torch.equal(ours, all_of[..., 4:24])
        for (ours, _), (all_of, _) in zip(setting.test_batches(), whole, strict=True)
    )
    assert torch.cat([x for x, _ in setting.held_out_batches()]).shape == (2000, 1, 28, 20)


def test_the_text_that_rates_are_chosen_on_is_not_trained_on():
    setting = experiments.RECIPES_TEXT["quick"]["dot"]
    whole = settings.shakespeare("train")[0]
    held_out = setting.held_out_text()
    assert len(held_out) == pytest.approx(len(whole) / 9, abs=1)
    assert torch.equal(held_out, whole[-len(held_out) :])
    with pytest.raises(ValueError, match=r"nothing to choose by: text_share is 1\.0"):
        replace(setting, text_share=1.0).held_out_text()
