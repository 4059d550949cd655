"""Time by a clock that the test moves, and memory by tensors of known size."""

import itertools
from functools import partial

import pytest
import torch

from sciformer.lab import measuring

MEGABYTE = 2**18  # numbers in float32


def test_the_median_leaves_the_warm_up_out(monkeypatch):
    """Each computation moves the clock by as much as it takes; the first turn of both is slow."""
    now, calls = 0.0, []

    def takes(name, seconds):
        durations = itertools.chain([100.0], itertools.repeat(seconds))

        def run():
            nonlocal now
            calls.append(name)
            now += next(durations)

        return run

    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now)
    assert measuring.median_seconds_in_turns([takes("a", 1.0), takes("b", 3.0)], 1) == [1.0, 3.0]
    assert [sorted(calls[:2]), sorted(calls[2:])] == [["a", "b"]] * 2, "they take turns"
    assert measuring.median_seconds(takes("c", 2.0), 2) == 2.0
    assert calls[4:] == ["c"] * 3


def test_the_fastest_time_is_the_one_that_nothing_disturbed(monkeypatch):
    now, durations = 0.0, iter([100.0, 3.0, 2.0, 5.0])  # the first warms up

    def run():
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now)
    assert measuring.fastest_seconds_in_turns([run], 3) == [2.0]


def test_no_computation_always_comes_after_the_same_one():
    calls = []
    measuring.median_seconds_in_turns([partial(calls.append, name) for name in "abc"], 20)
    rounds = [calls[start : start + 3] for start in range(0, len(calls), 3)]
    assert all(sorted(turns) == ["a", "b", "c"] for turns in rounds)
    assert len({tuple(turns) for turns in rounds}) == 6, "all orders"


@pytest.mark.parametrize(
    ("run", "megabytes"),
    [
        (lambda: torch.zeros(MEGABYTE), 1),
        (lambda: [torch.zeros(MEGABYTE) for _ in range(3)], 3),
        (lambda: [torch.zeros(MEGABYTE).sum() for _ in range(3)], 1),
    ],
    ids=["one", "three at a time", "three in turn"],
)
def test_the_peak_is_what_is_held_at_a_time(run, megabytes):
    assert measuring.peak_bytes(run, "cpu") == pytest.approx(megabytes * 2**20, abs=1000)


def test_what_was_there_before_does_not_count():
    kept = []
    for _ in range(3):
        peak = measuring.peak_bytes(lambda: kept.append(torch.zeros(MEGABYTE)), "cpu")
        assert peak == pytest.approx(2**20, abs=1000)
