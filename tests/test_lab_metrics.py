"""A metric says itself how it is printed and on which side it is better; its name says nothing."""

import json

import pytest

from sciformer.lab import claims, experiments
from sciformer.lab.metrics import METRICS, Metric, known_metric
from sciformer.lab.records import describe_record, results_folder
from sciformer.lab.trainers import LENGTHS


def test_every_recorded_metric_is_known():
    records = [json.loads(path.read_text()) for path in results_folder().glob("*.json")]
    names = {name for content in records for run in content.get("runs", []) for name in run["figures"]}
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
        lambda: claims.against([1.0, 2.0], [2.0, 4.0], "loss of time"),
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
        claims.against([1.0, 2.0], [2.0, 4.0], "attention distance")
    for relation, expected in (("lower", True), ("higher", False)):
        assert claims.against([1.0, 2.0], [2.1, 3.0], "attention distance", relation)[0] is expected
    assert claims.against([1.0, 2.0], [2.1, 3.0], "accuracy", "lower")[0]
    assert claims.is_better_low("validation loss")
    assert not claims.is_better_low("test accuracy")
