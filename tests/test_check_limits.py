"""Somebody's code runs for its seconds and no longer, whatever else the machine does."""

import sys
import time

import pytest

from sciformer.check.limits import TimeUp, limited

WAITS = 0.3


def waiting():
    time.sleep(WAITS)
    return "done"


def working():
    while True:
        pass


def test_on_the_clock_waiting_counts():
    with pytest.raises(TimeUp):
        limited(waiting, 0.1)
    assert limited(waiting, 20.0) == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the work of a thread")
def test_with_patience_only_work_counts():
    assert limited(waiting, 0.1, patience=200.0) == "done"
    with pytest.raises(TimeUp):
        limited(working, 0.1, patience=10_000.0)  # it would take a quarter of an hour on the clock


def test_patience_ends():
    with pytest.raises(TimeUp):
        limited(lambda: time.sleep(60.0), 0.1, patience=2.0)


def test_what_the_call_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 / 0, 5.0, patience=2.0)
