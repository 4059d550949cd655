"""What was measured of single steps on a GPU: read, added up, and shown."""

import pytest

from sciformer.lab import steps
from sciformer.lab.experiments import experiment
from sciformer.lab.steps import Step, described_steps, kept_steps


def test_what_was_measured_belongs_to_arms_that_there_are():
    for name, arms in kept_steps().items():
        assert arms.keys() <= {arm or "" for arm in experiment(name).arms("full")}
        assert all(0 < step.seconds < 10 and 0 < step.peak_bytes < 80e9 for step in arms.values())


def test_the_time_of_a_record_is_that_of_all_steps_of_all_arms(monkeypatch):
    names = list(experiment("mnist-pixels").arms("full"))
    monkeypatch.setattr(steps, "kept_steps", lambda: {"mnist-pixels": {arm: Step(0.06, 1) for arm in names}})
    assert described_steps("mnist-pixels") == "60 ms a step, 117 min"  # 5 arms × 5 seeds × 4,690 steps


@pytest.mark.parametrize("name", ["search", "dates", "energy-wells"])
def test_where_an_arm_is_not_measured_nothing_is_said(name, monkeypatch):
    some = {"energy-wells": {"dot": Step(0.04, 1)}}
    monkeypatch.setattr(steps, "kept_steps", lambda: some)
    assert described_steps(name) == "–"
