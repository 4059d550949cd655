"""The command line says what went wrong in one line, and never hides a bug behind one."""

from dataclasses import replace

import pytest

from sciformer import cli, data
from sciformer.functional import InputError
from sciformer.lab import records
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.settings import ImageSetting

NAME = "mnist-image-transformer"


def run(capsys, *arguments):
    """Exit status, stdout, stderr."""
    status = cli.main([str(a) for a in arguments])
    return status, *capsys.readouterr()


def fails_with(error):
    """A function that raises this error, whatever it is called with."""

    def fail(*arguments, **options):
        raise error

    return fail


BUGS = {
    "plain": ValueError("planted"),
    "key": KeyError("planted"),
    "file of the package": FileNotFoundError(2, "planted", str(cli.PACKAGE / "planted")),
    "no file": OSError("planted"),
    "module of the package": ModuleNotFoundError("planted", name="sciformer.planted"),
}


@pytest.mark.parametrize("kind", BUGS)
def test_a_planted_bug_is_a_traceback_and_not_one_line(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.setattr(ImageSetting, "model", fails_with(BUGS[kind]))
    with pytest.raises(type(BUGS[kind]), match="planted"):
        run(capsys, "train", "mnist", "--out", tmp_path)
    assert capsys.readouterr().err == ""


def test_an_error_that_python_raises_in_our_code_is_a_bug(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ImageSetting, "model", lambda self: int("planted"))
    with pytest.raises(ValueError, match="invalid literal for int"):
        run(capsys, "train", "mnist", "--out", tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        InputError("planted"),
        data.DataError("planted"),
        FloatingPointError("planted"),
        PermissionError(13, "planted", "out/of/reach"),
        ModuleNotFoundError("planted", name="optuna"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_users_is_one_line_and_with_debug_a_traceback(tmp_path, monkeypatch, capsys, error):
    monkeypatch.setattr(ImageSetting, "model", fails_with(error))
    arguments = ("train", "mnist", "--out", tmp_path)
    assert run(capsys, *arguments) == (1, "", f"sciformer: {error}\n")
    with pytest.raises(type(error), match="planted") as shown:
        run(capsys, "--debug", *arguments)
    assert shown.traceback[-1].name == "fail"


def test_what_ended_a_run_decides_whose_error_an_unfinished_record_is(tmp_path, monkeypatch, capsys):
    def record(error):
        monkeypatch.setitem(EXPERIMENTS, NAME, replace(EXPERIMENTS[NAME], run=fails_with(error)))
        return run(capsys, "record", NAME, "--profile", "quick", "--seeds", 1, "--out", tmp_path, "--device", "cpu")

    status, _, message = record(FloatingPointError("diverged"))
    assert status == 1
    assert "1 of 1 runs failed, the first is seed 0: diverged" in message
    with pytest.raises(records.UnfinishedRecord, match="seed 0: a bug") as raised:
        record(ValueError("a bug"))
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--dropout", "1.5", "1.5 does not lie in 0..1"),
        ("--dropout", "nan", "nan does not lie in 0..1"),
        ("--dropout", "much", "invalid probability value: 'much'"),
    ],
)
def test_what_is_no_probability_is_refused_with_the_option(capsys, option, value, message):
    with pytest.raises(SystemExit):
        run(capsys, "train", "mnist", option, value)
    assert f"argument {option}: {message}" in capsys.readouterr().err


def test_no_jobs_are_refused_with_the_option(capsys):
    with pytest.raises(SystemExit):
        run(capsys, "record", NAME, "--jobs", 0)
    assert "argument --jobs: 0 is below 1" in capsys.readouterr().err


def test_a_page_that_is_no_text_is_refused(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_bytes(b"\xff\xfe")
    status, _, message = run(capsys, "claims", "--write", page)
    assert status == 1
    assert "page.md is not a text file" in message
    assert page.read_bytes() == b"\xff\xfe"
