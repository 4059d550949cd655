"""Workers never outlive the command that started them, however it ends, and one that is killed is one line."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from interrupts import heed_ctrl_c

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc, as Linux has it"),
]

ROOT = Path(__file__).parents[1]
LONG = ["--profile", "quick", "--steps", "100000", "--device", "cpu"]


def processes(session):
    """The processes of a session that are still alive, by number, and the command line of each."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (folder / "cmdline").read_text()
        except OSError:  # it has just ended
            continue
        if int(own) == session and state not in "ZX":
            found[int(folder.name)] = command
    return found


def workers(session):
    """Those that work: not the command itself, and not the process in which Python notes what is to be cleaned up."""
    return [pid for pid, command in processes(session).items() if "spawn_main" in command]


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened for {seconds} seconds"
        time.sleep(0.05)


def begin(tmp_path, command):
    """A command with two workers, in a session of its own, as soon as these are there."""
    arguments = {
        "record": ["record", "mnist-image-transformer", "--seeds", "4", "--jobs", "2", "--out", tmp_path],
        "search": ["search", "--trials", "4", "--workers", "2", "--storage", tmp_path / "s.journal"],
    }[command]
    running = subprocess.Popen(
        [sys.executable, "-m", "sciformer", *arguments, *LONG],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    wait_for(lambda: len(workers(running.pid)) == 2 or running.poll() is not None)
    return running


def told(running):
    """What a command said at its end, without the bar of its progress."""
    _, error = running.communicate(timeout=60)
    return re.sub(r".*\r|runs: .*\n", "", error).strip()


@pytest.mark.parametrize("seconds", [0, 6], ids=["as they start", "as they train"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda value: value.name)
def test_no_worker_stays_behind(tmp_path, how, seconds):
    """Ctrl-C goes to all processes of a terminal's command; the other two are sent to the parent alone."""
    running = begin(tmp_path, "record")
    time.sleep(seconds)
    assert len(workers(running.pid)) == 2
    (os.killpg if how == signal.SIGINT else os.kill)(running.pid, how)
    said = told(running)
    assert "Traceback" not in said
    if how == signal.SIGINT:
        assert said == "sciformer: interrupted"
    assert running.returncode == (130 if how == signal.SIGINT else -how)
    wait_for(lambda: not processes(running.pid), seconds=20)


@pytest.mark.parametrize("command", ["record", "search"])
def test_a_worker_that_is_killed_is_one_line(tmp_path, command):
    running = begin(tmp_path, command)
    time.sleep(3)
    os.kill(workers(running.pid)[0], signal.SIGKILL)
    assert told(running) == (
        "sciformer: a worker process was killed, perhaps because the memory ran out; what had finished is kept, and "
        "the same command goes on from there"
    )
    assert running.returncode == 1
    wait_for(lambda: not processes(running.pid), seconds=20)
