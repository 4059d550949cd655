"""A metric says itself how it is printed and on which side it is better; its name says nothing."""

import json
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sciformer import metrics
from sciformer.data import clustered_tokens
from sciformer.lab import claims, experiments
from sciformer.lab.metrics import METRICS, Metric, known_metric
from sciformer.lab.records import describe_record, results_folder
from sciformer.lab.trainers import LENGTHS


def test_every_recorded_metric_is_known():
    records = [json.loads(path.read_text()) for path in results_folder().glob("*.json")]
    names = {name for content in records for run in content.get("runs", []) for name in run["metrics"]}
    assert len(names) > 15
    assert names <= set(METRICS)
    assert all(name == metric.name for name, metric in METRICS.items())


def test_every_length_that_is_measured_is_known():
    for arms in experiments.SHAKESPEARE_LENGTHS.values():
        for setting in arms.values():
            for factor in LENGTHS:
                assert known_metric(f"validation loss at {factor * setting.length}").better == "lower"


def test_every_metric_of_a_table_is_known():
    quoted = {metric for metrics in claims.QUOTED.values() for metric in metrics}
    assert quoted | set(claims.BAKE_OFFS.values()) <= set(METRICS)


def test_an_unknown_metric_is_refused_and_the_known_ones_are_named():
    for refused in (
        lambda: known_metric("loss of time"),
        lambda: claims.compare_values({0: 1.0, 1: 2.0}, 2.0, "loss of time"),
        lambda: describe_record("dates", "loss of time", "quick"),
    ):
        with pytest.raises(ValueError, match=r"no metric 'loss of time'; there are accuracy, .*, loss, .*, peak MB"):
            refused()


def test_a_metric_that_was_not_recorded_is_refused():
    with pytest.raises(ValueError, match="mnist-pixels has recorded no 'peak MB' of arm 'distance'"):
        describe_record("mnist-pixels", "peak MB", "quick", arm="distance")


@pytest.mark.parametrize(
    ("metric", "values", "described", "differences"),
    [
        (Metric("share", "%", 1, "higher", scale=100), [0.1, 0.3], "20.0 ± 10.0 %", "+20.0 ± 10.0 points"),
        (Metric("distance covered", "km", 0, "higher"), [-3.0, -1.0], "−2 ± 1 km", "−2 ± 1 km"),
        (Metric("no loss at all", "", 3, "higher"), [0.5], "0.500", "+0.500"),
    ],
)
def test_how_a_metric_is_printed(metric, values, described, differences):
    """Two values a and b have the mean (a + b)/2 with the standard error |a - b|/2."""
    assert metric.describe(values) == described
    assert metric.describe_differences(values) == differences


def test_the_better_side():
    assert Metric("no loss at all", "", 3, "higher").gain(0.5) == 0.5
    assert Metric("accuracy of the clock", "s", 3, "lower").gain(0.5) == -0.5
    with pytest.raises(ValueError, match="attention distance has no better side"):
        claims.compare_values({0: 1.0, 1: 2.0}, 2.0, "attention distance")
    for relation, gain in (("lower", 0.5), ("higher", -0.5), ("no higher", 0.5)):
        assert claims.compare_values({0: 1.0, 1: 2.0}, 2.0, "attention distance", relation).gain == gain
    assert claims.compare_values({0: 1.0, 1: 2.0}, 2.0, "accuracy", "lower").gain == 0.5
    assert claims.is_better_low("validation loss")
    assert not claims.is_better_low("test accuracy")


def test_accuracy_and_confusion_by_hand():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 1.0]])
    labels = torch.tensor([0, 1, 1])
    assert metrics.accuracy(logits, labels).item() == pytest.approx(2 / 3)
    assert metrics.confusion_matrix(logits.argmax(-1), labels, 2).tolist() == [[1, 0], [1, 1]]
    for strange in (torch.tensor([0, 1, 2]), torch.tensor([0, 1, -1])):
        for predicted, true in ((strange, labels), (labels, strange)):
            with pytest.raises(ValueError, match=f"a class {strange[-1]}, and 2 classes are 0..1"):
                metrics.confusion_matrix(predicted, true, 2)


def test_agreement_of_sequences_that_differ_in_length():
    wanted = torch.tensor([[1, 5, 6, 2, 0], [1, 5, 2, 0, 0]])
    assert metrics.agreement(wanted, wanted).all()
    assert metrics.agreement(wanted[1:, :3], wanted[1:]).tolist() == [[True] * 5]
    too_short, too_long = wanted[:, :3], torch.cat([wanted, torch.tensor([[0], [7]])], dim=1)
    assert metrics.agreement(too_short, wanted).tolist() == [[True, True, True, False, True], [True] * 5]
    assert metrics.agreement(too_long, wanted).all(dim=1).tolist() == [True, False]
    padded = torch.tensor([[1, 5, 9, 9]])
    for written, other in ((padded, padded[:, :2]), (padded[:, :2], padded)):
        assert metrics.agreement(written, other, pad=9).tolist() == [[True] * 4]
        assert metrics.agreement(written, other).tolist() == [[True, True, False, False]]


def test_attention_distance_by_hand():
    looks_at_itself, looks_at_the_first = torch.eye(4), torch.eye(4)[[0, 0, 0, 0]]
    weights = torch.stack([looks_at_itself, looks_at_the_first]).expand(3, 2, 4, 4)
    assert metrics.attention_distance(weights).tolist() == [0, (0 + 1 + 2 + 3) / 4]
    assert metrics.attention_distance(weights, width=2).tolist() == [0, (0 + 1 + 1 + 2) / 4]


def test_attention_by_lag_by_hand():
    weights = torch.tensor([[[[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]], [[[0.4, 0.1, 0.5], [0.3, 0.1, 0.6]]]])  # (2, 1, 2, 3)
    mean = [[0.3, 0.2, 0.5], [0.2, 0.1, 0.7]]  # from month i ahead to month j, the newest last: i + 3 - j steps
    expected = [mean[0][2], (mean[0][1] + mean[1][2]) / 2, (mean[0][0] + mean[1][1]) / 2, mean[1][0]]
    assert_close(metrics.attention_by_lag(weights), torch.tensor([expected]))


def test_attention_inside_and_between_clusters_by_hand():
    clusters = torch.tensor([[0, 0, 1], [0, 1, 2]])
    rows = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.5, 0.25]])
    weights = torch.stack([rows, torch.eye(3)]).expand(2, 2, 3, 3)  # (B, H, L, L)
    inside = metrics.cluster_concentration(weights, clusters)
    assert_close(inside, torch.tensor([[(0.75 + 0.625 + 0.25) / 3, 1], [(0.5 + 0.5 + 0.25) / 3, 1]]))
    assert_close(metrics.inter_cluster_attention(weights, clusters), 1 - inside)
    important = torch.tensor([[True, True, False], [False, True, False]])
    inside = metrics.cluster_concentration(weights, clusters, queries=important)
    assert_close(inside, torch.tensor([[(0.75 + 0.625) / 2, 1], [0.5, 1]]))
    between = metrics.inter_cluster_attention(weights, clusters, keys=important)
    assert_close(between, torch.tensor([[0.75 / 3, 0], [(0.25 + 0.5) / 3, 0]]))
    between = metrics.inter_cluster_attention(weights, clusters, queries=important, keys=~important)
    assert_close(between, torch.tensor([[(0.25 + 0.375) / 2, 0], [0.125 + 0.375, 0]]))
    nobody = torch.zeros(2, 3, dtype=torch.bool)
    assert metrics.cluster_concentration(weights, clusters, queries=nobody).isnan().all()


def test_uniform_attention_gives_a_cluster_its_share():
    _, clusters, _ = clustered_tokens(2, seed=0, clusters=4, size=5)
    weights = torch.full((2, 3, 20, 20), 1 / 20)
    assert_close(metrics.cluster_concentration(weights, clusters), torch.full((2, 3), 1 / 4))
    assert_close(metrics.inter_cluster_attention(weights, clusters), torch.full((2, 3), 3 / 4))


def test_mean_and_error_by_hand():
    mean, error = metrics.mean_and_error([1.0, 2.0, 3.0])
    assert (mean, error) == (2.0, pytest.approx(1 / math.sqrt(3)))
    assert metrics.mean_and_error([1e9 + 1, 1e9 + 3]) == (1e9 + 2, pytest.approx(1.0))  # float32 counts in steps of 64
    assert math.isnan(metrics.mean_and_error([1.0])[1])
    with pytest.raises(ValueError, match="at least one"):
        metrics.mean_and_error([])


def test_mean_and_half_by_hand():
    """The quantiles stand in every table of Student's t."""
    for n, t in ((4, 3.182), (5, 2.776), (10, 2.262)):
        values = torch.arange(float(n))
        mean, error = metrics.mean_and_error(values)
        assert (
            metrics.mean_and_half(values)
            == metrics.mean_and_half(values.tolist())
            == (mean, pytest.approx(t * error, rel=2e-4))
        )
    assert math.isnan(metrics.mean_and_half([1.0])[1])
    with pytest.raises(ValueError, match="at least one"):
        metrics.mean_and_half([])


def test_power_law_finds_the_exponent():
    exponent, factor = metrics.power_law([(x, 3 * x**1.5) for x in (2, 5, 11, 17)])
    assert (exponent, factor) == pytest.approx((1.5, 3))
    # Three points off a line: the slope that numpy's least squares finds in the logarithms.
    points = [(1, 2.0), (2, 3.0), (8, 40.0)]
    slope, height = np.polyfit(*np.log(points).T, 1)
    assert metrics.power_law(points) == pytest.approx((slope, np.exp(height)))
    assert metrics.power_law([(2, 3.0), (4, 12.0)]) == pytest.approx((2.0, 0.75))  # two points are a line


@pytest.mark.parametrize("points", [[], [(1, 2.0)], [(3, 2.0), (3, 5.0)], [(1, 0.0), (2, 1.0)], [(1, 1.0), (2, -1.0)]])
def test_power_law_refuses_what_has_none(points):
    with pytest.raises(ValueError, match="positive numbers and two different x"):
        metrics.power_law(points)


def test_heads_that_look_one_back_and_behind_the_last_copy():
    """Two heads by hand, in sequences of 5 tokens with periods 2 and 3: one looks back, the other behind the copy."""
    weights = torch.zeros(2, 2, 5, 5)
    weights[:, 0, torch.arange(1, 5), torch.arange(4)] = torch.tensor([1.0, 0.5, 0.0, 0.5])
    for b, p in enumerate((2, 3)):
        for i in range(p, 5):
            weights[b, 1, i, i - p + 1] = i / 10
    assert_close(metrics.previous_token_score(weights)[0], torch.tensor(0.5))
    # In the first sequence the token behind the last copy, of period 2, is also the one just before.
    assert_close(metrics.prefix_matching_score(weights, torch.tensor([2, 3])), torch.tensor([0.2, 0.32]))
    with pytest.raises(ValueError, match="repeat nothing"):
        metrics.prefix_matching_score(weights, torch.tensor([5, 7]))
