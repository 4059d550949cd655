"""Whatever is handed in is read, or it is said why not; and neither takes for ever."""

import json
import os
import time

import pytest

from sciformer.check import EXERCISES
from sciformer.check.submission import LARGEST_FILE, LARGEST_PROGRAM, Submission, read

PROGRAM = "def masked_weights(scores, mask):\n    return 'é'\n"
CHECKED = "!ls\nif True:\n    !pip list\nmine = 1\ncheck.future_leaks(mine)"


def notebook(*sources):
    cells = [{"cell_type": "code", "source": source} for source in sources]
    return json.dumps({"cells": cells, "metadata": {}})


@pytest.mark.parametrize(
    "content",
    [
        PROGRAM.encode(),
        b"\xef\xbb\xbf" + PROGRAM.encode(),
        b"# coding: latin-1\n" + PROGRAM.encode("latin-1"),
        b"#!/usr/bin/env python\n# -*- coding: cp1252 -*-\n" + PROGRAM.encode("cp1252"),
        PROGRAM.replace("\n", "\r\n").encode(),
    ],
    ids=["plain", "byte order mark", "coding line", "coding in the second line", "Windows"],
)
def test_programs_are_read_in_their_encoding(tmp_path, content):
    path = tmp_path / "one.py"
    path.write_bytes(content)
    submission = read(path)
    assert submission.unread is None
    assert "return 'é'" in submission.cells[0]
    assert submission.variables(EXERCISES) == {"masked_weights": "masked_weights"}


@pytest.mark.parametrize(
    ("call", "variable"),
    [
        ("check.future_leaks(mine)", "mine"),
        ("sciformer.check.future_leaks( mine , seed=3)", "mine"),
        ("check.future_leaks(\n    mine,\n)", "mine"),
        ("check.future_leaks(answer=mine)", "future_leaks"),
        ("check.future_leaks(lambda *inputs: True)", "future_leaks"),
        ("check.future_leaks(answers[0])", "future_leaks"),
        ("check.future_leaks.use(mine)", None),
        ("x = check.future_leaks(mine)", None),
        ("# check.future_leaks(mine)", None),
        ("check.another(mine)", None),
    ],
)
def test_what_is_checked_is_found(call, variable):
    found = Submission("one.py", ["!ls", call]).variables(EXERCISES)
    assert found == ({"future_leaks": variable} if variable else {})


def test_looking_for_exercises_takes_no_time_whatever_is_written():
    start = time.process_time()
    for line in ("!a\n", "(", "{[", "a.", "a.a(", "def ", "-", "a" * 100 + " "):
        text = (line * LARGEST_PROGRAM)[:LARGEST_PROGRAM]
        assert Submission("one.py", [text]).variables(EXERCISES) == {}
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["one.ipynb", "ONE.IPYNB", "one.IpyNb"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_notebooks_are_read_whatever_their_suffix(tmp_path, name, mark):
    path = tmp_path / name
    path.write_bytes(mark + notebook(PROGRAM, CHECKED).encode())
    submission = read(path)
    assert submission.variables(EXERCISES) == {"masked_weights": "masked_weights", "future_leaks": "mine"}


def test_what_never_ends_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    for path in (tmp_path / "fifo.py", tmp_path / "zero.py", tmp_path):
        assert read(path).unread == "cannot be read: it is no regular file"


def test_what_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "one.py"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    assert read(path).unread == "cannot be read: it has more than 32 MB"
    path.write_text("x=1\n" * (LARGEST_PROGRAM // 4 + 1))
    assert read(path).unread == "cannot be read: its program has more than 1,048,576 characters"
    path = tmp_path / "pictures.ipynb"
    path.write_text(notebook(PROGRAM)[:-2] + '}, "pictures": "' + "x" * 2 * LARGEST_PROGRAM + '"}')
    assert read(path).unread is None


@pytest.mark.parametrize("content", [b"# coding: nothing\n", b"\xff\xfe", b"x = '\xe9'"])
def test_why_a_file_cannot_be_read_is_said(tmp_path, content):
    (tmp_path / "one.py").write_bytes(content)
    assert read(tmp_path / "one.py").unread.startswith("cannot be read: ")
    assert read(tmp_path / "none.py").unread.startswith("cannot be read: ")
