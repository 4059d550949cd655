"""What Windows and macOS lack or do otherwise, as far as Linux can show it; docs/platforms.md has the rest."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from sciformer.lab import workers

ROOT = Path(__file__).parents[1]

#: What Python has on Linux, and not on Windows.
UNIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "pty")
UNIX_NAMES = ("os.fork", "os.getuid", "os.killpg", "os.setsid", "signal.SIGKILL", "signal.pthread_sigmask")


def run(code, *options, **environment):
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported_without_what_only_unix_has():
    """What others need of it they have imported before."""
    code = f"""
import asyncio, multiprocessing, os, pkgutil, signal, subprocess, sys
import ipywidgets, matplotlib.pyplot, torch, torch.distributed, torchvision, optuna, scipy.stats
for name in {UNIX_MODULES}:
    sys.modules[name] = None
for name in {UNIX_NAMES}:
    module, name = name.split(".")
    delattr(sys.modules[module], name)
import sciformer
modules = [found.name for found in pkgutil.walk_packages(sciformer.__path__, "sciformer.")]
for name in modules:
    if not name.endswith("__main__"):
        __import__(name)
print(len(modules))
"""
    assert int(run(code)) > 50


def test_workers_start_where_no_signal_can_be_held_back(monkeypatch):
    """As on Windows; they are spawned, never forked, on every system."""
    monkeypatch.setattr(workers, "signal", SimpleNamespace())
    with workers.worker_pool(2, threads=1) as pool:
        assert list(pool.map(abs, [-3, -5, -7])) == [3, 5, 7]


def test_text_is_written_and_read_as_utf_8_wherever_the_package_trains(tmp_path):
    """Python warns where a file is opened in the encoding of the system; of our files that is an error."""
    code = f"""
import sys, warnings
from sciformer import cli
warnings.filterwarnings("error", category=EncodingWarning, module="sciformer")
train = ["train", "shakespeare", "--steps", "2", "--out", {str(tmp_path)!r}]
for arguments in (["record", "--list"], ["claims"], train):
    assert cli.main(arguments) == 0
"""
    run(code, "-X", "warn_default_encoding")
    (card,) = tmp_path.glob("*.md")
    assert card.read_bytes().decode("utf-8")


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split("\0")[:-1]


def test_every_file_can_be_checked_out_on_windows_and_macos():
    names = tracked()
    assert len(names) > 300
    assert [name for name in names if re.search(r'[<>:"\\|?*]|[. ](/|$)', name)] == []
    assert [name for name in names if re.match(r"(con|prn|aux|nul|com\d|lpt\d)$", Path(name).stem, flags=re.I)] == []
    assert len({name.lower() for name in names}) == len(names), "two names that differ in case alone"
    assert max(map(len, names)) < 150  # Windows allows 260 for the whole path


def test_git_never_changes_the_ends_of_lines():
    assert "* text=auto eol=lf" in (ROOT / ".gitattributes").read_text(encoding="utf-8").splitlines()
