"""Scores that are multiplied so that attention is equally sharp before training."""

from dataclasses import replace

import pytest
import torch

from sciformer.data import mnist
from sciformer.functional import InputError
from sciformer.lab.experiments import EXPERIMENTS, experiment
from sciformer.lab.records import load_record, record
from sciformer.lab.settings import ImageSetting
from sciformer.lab.sharpness import ScaledScore, factor_of_sharpness, scaled, sharpness
from sciformer.scores import SCORES
from sciformer.training import TrainConfig

TINY = ImageSetting(
    size="small",
    patch_size=7,
    embed_dim=16,
    num_heads=2,
    num_layers=2,
    expansion=2,
    batch_size=8,
    train=TrainConfig(steps=2, lr=1e-2, warmup_steps=1),
    held_out=100,
)


def digits():
    return torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("score", SCORES)
def test_a_scaled_score_is_the_score_times_its_factor(score):
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    if SCORES[score](3, 7).compares_positions:
        query = key = torch.randn(2, 3, 5, 7)
    many = ScaledScore(3, 7, score=SCORES[score], factor=2.5)
    torch.testing.assert_close(many(query, key), 2.5 * many.score(query, key))


def test_sharpness_is_1_for_equal_weights_and_the_number_of_keys_for_a_single_one():
    equal = replace(TINY, score_options={"scale": 0.0}).model().eval()
    assert sharpness(equal, digits()) == pytest.approx(1)
    single = replace(TINY, score_options={"scale": 1e6}).model().eval()
    assert sharpness(single, digits()) == pytest.approx(16, rel=0.02)


@pytest.mark.parametrize("score", SCORES)
def test_every_score_starts_as_sharp_as_wanted(score):
    setting = replace(TINY, score=score)
    factor = factor_of_sharpness(setting, 3, 2.0)
    torch.manual_seed(3)
    start = scaled(setting, factor).model().eval()
    assert sharpness(start, mnist("train")[0][:20]) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(("options", "wanted"), [({}, 17.0), ({"scale": 0.0}, 2.0)])
def test_a_sharpness_that_no_factor_gives_is_refused(options, wanted):
    with pytest.raises(InputError, match=f"no factor gives the attention of dot a sharpness of {wanted}"):
        factor_of_sharpness(replace(TINY, score_options=options), 0, wanted)


def test_a_record_says_the_factor_and_how_sharp_the_attention_became(tmp_path, monkeypatch):
    name = "equally-sharp"
    arms = {"dot": TINY, "inverse_square_well": replace(TINY, score="inverse_square_well")}
    monkeypatch.setitem(EXPERIMENTS, name, replace(experiment(name), settings={"quick": arms}))
    record(name, "quick", seeds=1, out=tmp_path)
    for one in load_record(name, "quick", tmp_path)["runs"]:
        assert set(one["metrics"]) == {"validation accuracy", "test accuracy"}
        (factor,), (after,) = one["details"]["factor"], one["details"]["sharpness after training"]
        assert factor == pytest.approx(factor_of_sharpness(arms[one["arm"]], 0, 3.0))
        assert 1 <= after <= 16
