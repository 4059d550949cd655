"""tools/gpu_day.sh records every full profile on one GPU: its order, what it says, how it goes on after a break."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.records import load_record

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tools" / "gpu_day.sh"
FULL = [name for name, experiment in EXPERIMENTS.items() if "full" in experiment.settings]

#: Plays Python: writes down what it is asked for, and remembers in its folder what is recorded.
PLAYED_PYTHON = """#!/usr/bin/env bash
cd "$(dirname "$0")"
shift 2  # -m sciformer
echo "$*" >> asked
name=$2
[ "$1" = search ] && name=search
if [ "$*" = "record --list --out results" ]; then
    for name in $(cat names); do
        state="not recorded yet; predicted: 7 min on T4"
        grep -qx "$name" recorded && state="3 seed(s), T4"
        grep -qx "$name" damaged && state="DAMAGED: not a whole record"
        printf '%-24s full   %s\\n' "$name" "$state"
    done
elif grep -qx "$name" breaks; then
    : > breaks
    kill $PPID
elif grep -qx "$name" fails; then
    exit 1
else
    echo "$name" >> recorded
fi
"""


@pytest.fixture
def played(tmp_path):
    """A folder with a Python that plays, in which nothing is recorded yet."""
    for name in ("asked", "recorded", "damaged", "breaks", "fails"):
        (tmp_path / name).touch()
    (tmp_path / "names").write_text("\n".join([*FULL, "search"]))
    (tmp_path / "python").write_text(PLAYED_PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def gpu_day(python, *arguments):
    environment = {**os.environ, "PYTHON": str(python), "PYTHONPATH": str(ROOT)}
    command = ["bash", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def asked(folder):
    """What Python was asked to record since this was last called, and whether to renew the tables."""
    lines = (folder / "asked").read_text().splitlines()
    (folder / "asked").write_text("")
    assert lines.pop(0) == "record --list --out results"
    return [line.split()[1] if line.startswith("record") else line.split()[0] for line in lines]


def test_it_records_every_full_profile_once_and_says_what_is_predicted(played):
    result = gpu_day(played / "python")
    assert result.returncode == 0, result.stderr
    lines = (played / "asked").read_text().splitlines()
    assert f"record {FULL[0]} --profile full --out results --device cuda" in lines
    assert lines[-2] == "search --profile full --out results --device cuda"
    assert lines[-1] == "claims --write docs/measured.md results/README.md"
    assert sorted(asked(played)[:-2]) == sorted(FULL)
    for name in FULL:
        assert f"  {name}: not recorded yet; predicted: 7 min on T4" in result.stdout


def test_it_goes_on_where_it_was_broken_off(played):
    (played / "breaks").write_text("masked-images\n")
    assert gpu_day(played / "python").returncode == -15
    *before, last = asked(played)
    assert last == "masked-images"
    result = gpu_day(played / "python")
    assert result.returncode == 0, result.stderr
    *after, search, tables = asked(played)
    assert (after[0], search, tables) == ("masked-images", "search", "claims")
    assert sorted(before + after) == sorted(FULL)
    assert gpu_day(played / "python").returncode == 0
    assert asked(played) == ["claims"]


def test_a_damaged_record_is_made_anew(played):
    (played / "recorded").write_text("\n".join([*FULL, "search"]))
    (played / "damaged").write_text("dates")
    assert gpu_day(played / "python").returncode == 0
    assert asked(played) == ["dates", "claims"]


def test_what_fails_keeps_nothing_else_from_its_record_and_leaves_the_tables_for_later(played):
    """Tables that are renewed make the checkout dirty, and what was kept of the failed ones would begin anew."""
    (played / "fails").write_text("dates\nsearch\n")
    result = gpu_day(played / "python")
    assert result.returncode == 1
    assert result.stderr.startswith("failed: dates search; the same command tries these again")
    assert sorted(asked(played)) == sorted([*FULL, "search"])
    (played / "fails").write_text("")
    assert gpu_day(played / "python").returncode == 0
    assert asked(played) == ["dates", "search", "claims"]


def test_its_rehearsal_records_into_its_own_folder(tmp_path):
    """The real thing, for the one experiment that is not there yet; the pages with tables are written beside it."""
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    missing = "mnist-image-transformer"
    for path in (ROOT / "results").glob("*.quick.json"):
        if path.name != f"{missing}.quick.json":
            shutil.copy(path, folder)
    before = {
        path: path.read_bytes()
        for path in [ROOT / "docs" / "measured.md", *(ROOT / "results").glob("*")]
        if path.is_file()
    }
    result = gpu_day(sys.executable, "--rehearse", folder)
    assert result.returncode == 0, result.stderr
    record = load_record(missing, "quick", folder)
    assert (record["seeds"], record["config"]["train"]["steps"]) == ([0], 1)
    assert result.stdout.count("is recorded in") == len(FULL)  # the others, and the search
    assert result.stdout.count(" predicted: ") >= len(FULL)
    for table in ("docs/measured.md", "results/README.md"):
        assert f"written: {folder / table}" in result.stdout
    assert all(path.read_bytes() == content for path, content in before.items())
