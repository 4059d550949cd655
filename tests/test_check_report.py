"""What was graded is never lost, and a report deceives nobody who reads it."""

import io
import json
import os
import subprocess
import sys

import pytest

from sciformer.check.command import show
from sciformer.check.grading import Grade, Result, visible
from sciformer.check.report import read_report, table, write_report
from sciformer.functional import InputError

RESULT = Result("masked_weights", 1, 1, "correct", "correct: √D", "masked_weights: correct\n  two lines", ("none",))
GRADES = [
    Grade("one.py", (RESULT, RESULT), ("a \udc80 note",), "abc"),
    Grade("tw\x1b[2Jo \u202e\n.py", (RESULT,), ("\U000e0041",), "def"),
    Grade("three.py", (), ("not graded",), "ghi"),
]


def test_a_report_has_a_line_for_each_submission_and_comes_back_as_it_was(tmp_path):
    path = tmp_path / "grades.json"
    write_report(GRADES, 7, path)
    assert read_report(path) == (7, GRADES)
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(GRADES) + 2
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "√D" in text
    entries = json.loads(text)["submissions"]
    assert [(e["points"], e["out_of"], e["graded"]) for e in entries] == [(2, 2, True), (1, 1, True), (0, 0, False)]


def test_a_table_shows_what_a_terminal_would_obey():
    lines = table(GRADES).splitlines()
    assert len(lines) == 6
    assert "tw\\x1b[2Jo \\u202e\\n.py" in lines[3]
    assert lines[-1].split() == ["three.py", "total", "-", "not", "graded"]
    assert all(line.isprintable() for line in lines[2:])


@pytest.mark.parametrize(
    "code", [*range(0x20), 0x7F, 0x85, 0x9B, 0x200E, 0x2028, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF]
)
def test_every_control_character_is_written_out(code):
    shown = visible(f"a{chr(code)}b")
    assert shown.isprintable() or code == ord("\n")
    assert visible("a√b é") == "a√b é"


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"seed": 7, "submissions": [{}]}', '{"seed": "x", "submissions": []}']
)
def test_what_is_no_report_cannot_be_resumed(tmp_path, content):
    path = tmp_path / "grades.json"
    path.write_text(content)
    with pytest.raises(InputError, match="is not a report of grades"):
        read_report(path)


def test_a_terminal_that_knows_few_characters_is_enough(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    show("divided by √D, é")
    assert written.getvalue() == b"divided by \\u221aD, \xe9\n"


def test_nobody_need_read_to_the_end():
    code = "from sciformer.check.command import show\nfor n in range(20_000): show('a line to read')"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"a line to read\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can make a disk that is full")
def test_on_a_full_disk_the_last_report_stays(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        path = tmp_path / "grades.json"
        write_report(GRADES, 7, path)
        with pytest.raises(InputError, match=r"grades\.json cannot be written: No space left on device"):
            write_report(GRADES * 100, 7, path)
        assert read_report(path) == (7, GRADES)
        assert [file.name for file in tmp_path.iterdir()] == ["grades.json"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)
