"""The command line says what went wrong in one line, and never hides a bug behind one."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from interrupts import heed_ctrl_c

from sciformer import cli, data
from sciformer.functional import InputError
from sciformer.lab import claims, records, search, trainers
from sciformer.lab.claims import tables
from sciformer.lab.experiments import ADDITIVE_2X2, EXPERIMENTS
from sciformer.lab.records import load_record
from sciformer.lab.settings import ImageSetting
from sciformer.positions import POSITIONS
from sciformer.teach import plotting

ROOT, NAME = Path(__file__).parents[1], "mnist-image-transformer"


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


@pytest.mark.attack
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--memory", "0", "0 is below 1"),
        ("--memory", "-5", "-5 is below 1"),
        ("--seconds", "nan", "nan is not a finite number above 0"),
        ("--seconds", "inf", "inf is not a finite number above 0"),
        ("--seconds", "0", "0 is not a finite number above 0"),
        ("--seed", 30 * "9", "is above 9223372036854775807"),
    ],
)
def test_limits_of_no_use_are_refused_with_the_option(capsys, option, value, message):
    with pytest.raises(SystemExit) as left:
        run(capsys, "grade", "submission.py", option, value)
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert f"argument {option}: " in said
    assert message in said


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


TINY = ["--embed-dim", "8", "--num-heads", "2", "--num-layers", "1", "--profile", "quick", "--device", "cpu"]


def test_train_writes_what_it_says(tmp_path, capsys):
    out = tmp_path / "run"
    status, printed, _ = run(capsys, "train", "mnist", "--steps", 5, "--lr", 0.001, "--out", out, *TINY)
    assert status == 0
    assert printed.startswith("test accuracy ")
    assert sorted(f.name for f in out.iterdir()) == ["README.md", "history.json", "loss.png", "model.safetensors"]
    content = json.loads((out / "history.json").read_text())
    assert len(content["loss"]) == 5
    assert content["config"]["train"]["lr"] == 0.001
    assert content["config"]["embed_dim"] == 8
    assert "positions.table" in safetensors.torch.load_file(out / "model.safetensors")


@pytest.mark.parametrize("options", [[], ["--compile"]])
@pytest.mark.parametrize("command", [("train", "mnist"), ("record", NAME)])
def test_compile_reaches_the_training(tmp_path, monkeypatch, capsys, command, options):
    asked = []

    def fit(model, batches, loss_fn, config, *arguments, **others):
        asked.append(config.compile)
        raise FloatingPointError("seen")

    monkeypatch.setattr(trainers, "fit", fit)
    run(capsys, *command, "--steps", 1, "--profile", "quick", "--device", "cpu", "--out", tmp_path, *options)
    assert set(asked) == {bool(options)}


TINY_TEXT = ["--embed-dim", 8, "--num-heads", 2, "--num-layers", 1, "--profile", "quick", "--device", "cpu"]


@pytest.mark.parametrize("positions", [*POSITIONS, "rotary"])
@pytest.mark.usefixtures("short_text")
def test_train_shakespeare(tmp_path, monkeypatch, capsys, positions):
    """One cell of the two by two; without --out it goes to a folder of its own."""
    monkeypatch.chdir(tmp_path)
    arguments = ("--positions", positions, "--attention", "distance", "--steps", 3, "--length", 16, "--dropout", 0.1)
    status, printed, _ = run(capsys, "train", "shakespeare", *arguments, *TINY_TEXT)
    assert status == 0
    assert printed.startswith("validation loss ")
    folder = tmp_path / "runs" / f"shakespeare-{positions}-distance-0"
    assert sorted(f.name for f in folder.iterdir()) == ["README.md", "history.json", "loss.png", "model.safetensors"]
    content = json.loads((folder / "history.json").read_text())
    assert (
        content["config"] | {"positions": positions, "score": "distance", "length": 16, "dropout": 0.1}
        == (content["config"])
    )
    assert [step for step, _ in content["curves"]["validation loss"]] == [1, 2, 3]
    assert content["metrics"]["lowest validation loss"] <= content["metrics"]["validation loss"]


@pytest.mark.usefixtures("short_text")
def test_a_text_shorter_than_one_batch_is_refused(capsys):
    status, _, error = run(capsys, "train", "shakespeare", "--length", 500, *TINY_TEXT)
    assert status == 1
    assert "12 chunks of 500 tokens need a text of 6500 or more, got 2000 tokens" in error


def test_the_commands_of_notebook_09_train_the_arms_of_the_record(tmp_path, monkeypatch):
    """The table that says what the published flags are called here."""
    text = (ROOT / "notebooks_py" / "09_additive_attention.py").read_text(encoding="utf-8")
    rows = [line.strip("# |\n").split(" | ") for line in text.splitlines() if "| `python -m sciformer train" in line]
    assert [row[2] for row in rows] == list(ADDITIVE_2X2["full"])
    trained = []

    def train(setting, seed, **options):
        trained.append(setting)
        raise InputError("that was enough")

    monkeypatch.setitem(cli.TASKS, "shakespeare", (*cli.TASKS["shakespeare"][:1], train, "validation loss"))
    monkeypatch.chdir(tmp_path)
    for sinusoidal, additive, arm, command in rows:
        positions, score = (
            "sinusoidal" if "true" in sinusoidal else "learned",
            "separable" if "true" in additive else "dot",
        )
        assert arm == f"{positions}, {score}"
        cli.main(command.strip("`").split()[3:])
    assert trained == list(ADDITIVE_2X2["full"].values())


def test_train_resumes_from_its_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ("train", "mnist", "--steps", 4, "--checkpoint", tmp_path / "c.pt", *TINY)
    first, again = run(capsys, *arguments), run(capsys, *arguments)
    assert first[0] == again[0] == 0
    assert first[1].splitlines()[0] == again[1].splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "mnist", "--patch-size", "5"), "image_size 28 is not divisible by patch_size 5"),
        (("train", "mnist", "--num-heads", "3"), "embed_dim 64 is not divisible by num_heads 3"),
        (("train", "mnist", "--steps", "0"), "got 0 steps"),
        (("train", "mnist", "--batch-size", "20000"), "20000"),
        (("train", "mnist", "--length", "64"), "--length is no option of mnist"),
        (("train", "mnist", "--positions", "rotary"), "'rotary' is unknown; there are sinusoidal, learned, none"),
        (("train", "shakespeare", "--patch-size", "7"), "--patch-size is no option of shakespeare"),
        (("train", "mnist", "--device", "nonsense"), "--device 'nonsense' is unknown"),
        (("train", "mnist", "--device", "cuda:99"), "--device cuda:99: this machine has "),
        (("train", "mnist", "--device", "cuda:-1"), "--device 'cuda:-1' is unknown"),
        (("train", "mnist", "--device", "meta"), "--device meta: models train on cpu, cuda or mps"),
        (("train", "mnist", "--device", "xla"), "--device xla: models train on cpu, cuda or mps"),
        (("train", "mnist", "--device", "mps:3"), "--device mps:3: there is only one mps"),
        (("train", "mnist", "--device", "cpu", "--embed-dim", "1000000"), "this training needs "),
        (("train", "mnist", "--device", "cpu", "--batch-size", "100000000"), "this training needs "),
        (("train", "shakespeare", "--device", "cpu", "--length", "100000000"), "this training needs "),
        (("search", "--storage", "sqlite://"), "storage 'sqlite://' keeps nothing"),
        (("search", "--storage", "/dev/full"), "Not a regular file: '/dev/full'"),
        (("claims", "--write", "/dev/full"), "Not a regular file: '/dev/full'"),
        (("assignment", "/dev/zero", "--out", "."), "Not a regular file: '/dev/zero'"),
        (("data", "--root", "~nouser"), "The home folder in ~nouser cannot be found"),
        (("record", "mnist"), f"no experiment 'mnist'; there are {NAME}"),
        (("record",), "record what?"),
        (("record", NAME, "--seeds", "0"), "at least 1 seed, got 0"),
        (("record", NAME, "--steps", "3"), "give it an --out"),
        (("record", "dates", "--profile", "long"), "no profile 'long' of it; there are quick, full"),
        (("train", "shakespeare", "--profile", "long"), "shakespeare has no long profile; there are quick, full"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    status, printed, error = run(capsys, *arguments)
    assert status == 1
    assert printed == ""
    assert error.startswith("sciformer: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("option", ["--embed-dim", "--num-layers", "--length"])
def test_a_size_below_1_is_refused_with_the_option(capsys, option):
    with pytest.raises(SystemExit):
        run(capsys, "train", "shakespeare", option, "-64")
    assert f"argument {option}: -64 is below 1" in capsys.readouterr().err


def test_what_cannot_be_written_is_told_before_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainers, "fit", lambda *arguments, **options: pytest.fail("it trains"))
    (tmp_path / "file").touch()
    for arguments in (("train", "mnist"), ("record", NAME)):
        status, _, error = run(capsys, *arguments, "--steps", "1", "--out", tmp_path / "file")
        assert status == 1
        assert error.startswith("sciformer: [Errno")


def test_record_list(capsys):
    status, printed, _ = run(capsys, "record", "--list")
    assert status == 0
    every = {name: each.settings for name, each in EXPERIMENTS.items()} | {"search": search.SEARCH}
    assert [line.split()[:2] for line in printed.splitlines()] == [
        [name, profile] for name, profiles in every.items() for profile in profiles
    ]


def test_record_list_predicts_what_the_readme_does(tmp_path, capsys):
    _, printed, _ = run(capsys, "record", "--list", "--out", tmp_path)
    lines = {tuple(line.split()[:2]): line for line in printed.splitlines()}
    for row in tables.predictions_table().splitlines()[2:]:
        name, _, *predicted, _ = row.strip("| ").split(" | ")
        for cell in (cell for cell in predicted if cell != "–"):
            assert cell in lines[name.strip("`"), "full"]


def test_record_list_of_another_folder(tmp_path, capsys):
    status, printed, _ = run(capsys, "record", "--list", "--out", tmp_path)
    assert status == 0
    assert all("not recorded yet" in line for line in printed.splitlines())


def test_record_draws_every_arm(tmp_path, monkeypatch, capsys, tiny_pixels):
    drawn = []
    bands = plotting.bands
    monkeypatch.setattr(
        plotting, "bands", lambda runs, **options: drawn.append((runs, options)) or bands(runs, **options)
    )
    out = ("--out", tmp_path, "--device", "cpu")
    status, printed, _ = run(capsys, "record", "mnist-pixels", "--profile", "quick", "--seeds", 2, "--steps", 4, *out)
    assert status == 0
    written = [tmp_path / "mnist-pixels.quick.json", tmp_path / "mnist-pixels.quick.png"]
    assert printed.splitlines() == [f"written: {path}" for path in written]
    assert set(tmp_path.iterdir()) == set(written)
    ((runs, options),) = drawn
    assert list(runs) == tiny_pixels
    assert options["x"] == [0.25, 0.5, 0.75, 1.0]
    last = [r["metrics"]["test accuracy"] for r in load_record("mnist-pixels", "quick", tmp_path)["runs"][:2]]
    assert runs["distance"][:, -1].tolist() == pytest.approx(last)


def test_record_list_goes_on_after_a_damaged_record(tmp_path, monkeypatch, capsys):
    for name in (NAME, "search"):
        (tmp_path / f"{name}.json").write_text("{")
    for module in (records, search):
        monkeypatch.setattr(module, "results_folder", lambda: tmp_path)
    status, printed, _ = run(capsys, "record", "--list")
    assert status == 0
    damaged = [line for line in printed.splitlines() if "not recorded yet" not in line]
    for name, line in zip((NAME, "search"), damaged, strict=True):
        assert re.match(rf"{name} +full +DAMAGED: .+{name}\.json is not a whole record", line)


def test_data_shows_what_is_where(tmp_path, capsys):
    status, printed, _ = run(capsys, "data", "--root", tmp_path)
    assert status == 0
    assert printed.count("embedded") == 3
    assert printed.count("missing") == len(data.MNIST_FILES) + 1


def test_places_are_shown_without_what_lies_above(tmp_path):
    assert cli.short(data.ASSETS / "a.bz2") == Path("sciformer/data/assets/a.bz2")
    assert cli.short(Path.home() / ".cache" / "b") == Path("~/.cache/b")
    assert cli.short(tmp_path / "c") == tmp_path / "c"


def test_data_says_when_it_cannot_fetch(tmp_path, capsys, monkeypatch):
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])
    status, _, error = run(capsys, "data", "--fetch", "--root", tmp_path)
    assert status == 1
    assert "could not be fetched" in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_doctor_says_what_a_bug_report_needs(capsys):
    status, printed, _ = run(capsys, "doctor")
    assert status == 0
    for word in ("sciformer", "python", "torch", "ipywidgets", "cuda", "threads", "profile", "embedded"):
        assert word in printed


@pytest.mark.parametrize(
    ("policy", "threads", "words"),
    [("passive", 2, "sleep while they wait"), ("", 2, "set OMP_WAIT_POLICY=PASSIVE"), ("", 1, "sleep while they wait")],
)
def test_doctor_says_whether_waiting_threads_spin(policy, threads, words, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert words in run(capsys, "doctor")[1]


def test_claims_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "TABLES", {"claims": lambda: "| new |"})
    monkeypatch.setattr(claims, "claims_table", lambda: "| printed |")
    assert cli.main(["claims"]) == 0
    assert capsys.readouterr().out == "| printed |\n"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- claims -->\nold\nold\n<!-- end of claims -->\nafter\n")
    for _ in range(2):
        assert cli.main(["claims", "--write", str(page)]) == 0
        assert page.read_text() == "before\n<!-- claims -->\n\n| new |\n\n<!-- end of claims -->\nafter\n"
    page.write_text("nothing")
    assert cli.main(["claims", "--write", str(page)]) == 1
    assert "no table belongs here" in capsys.readouterr().err
    page.write_text("<!-- claims -->\n")
    assert cli.main(["claims", "--write", str(page)]) == 1
    assert "the table of claims is missing its marks" in capsys.readouterr().err


def page(path, end="\n"):
    path.write_bytes(f"be–fore{end}<!-- claims -->{end}old{end}<!-- end of claims -->{end}after".encode())
    return path


@pytest.fixture
def one_table(monkeypatch):
    monkeypatch.setattr(tables, "TABLES", {"claims": lambda: "| néw |"})


@pytest.mark.attack
@pytest.mark.skipif(os.name != "posix", reason="permissions and symbolic links as on POSIX")
@pytest.mark.parametrize("permissions", [0o600, 0o664, 0o444])
@pytest.mark.usefixtures("one_table")
def test_a_page_behind_a_link_is_renewed_and_the_link_and_its_permissions_stay(tmp_path, capsys, permissions):
    target, link = page(tmp_path / "page.md"), tmp_path / "link.md"
    target.chmod(permissions)
    link.symlink_to("page.md")
    assert run(capsys, "claims", "--write", link)[0] == 0
    assert link.is_symlink()
    assert "| néw |" in target.read_text(encoding="utf-8")
    assert target.stat().st_mode & 0o777 == permissions
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.md", "page.md"]


@pytest.mark.usefixtures("one_table")
def test_a_page_keeps_its_ends_of_lines(tmp_path, capsys):
    path = page(tmp_path / "page.md", end="\r\n")
    assert run(capsys, "claims", "--write", path)[0] == 0
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n") == 6


@pytest.mark.attack
def test_what_cannot_be_written_later_is_told_before_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainers, "fit", lambda *arguments, **options: pytest.fail("it trains"))
    commands = dict.fromkeys(cli.RUN_FILES, ("train", "mnist"))
    commands |= {f"{NAME}.quick.json": ("record", NAME, "--steps", 1), "search.quick.json": ("search", "--trials", 1)}
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        status, _, error = run(capsys, *command, "--out", tmp_path, "--profile", "quick", "--device", "cpu")
        assert (status, "Not a regular file" in error, error.count("\n")) == (1, True, 1)
        (tmp_path / name).rmdir()


@pytest.mark.attack
def test_a_disk_that_fills_up_while_it_trains_is_one_line(small_disk, capsys):
    size = ("--embed-dim", 64, "--num-heads", 2, "--num-layers", 3, "--profile", "quick", "--device", "cpu")
    status, _, error = run(capsys, "train", "mnist", "--steps", 1, "--out", small_disk, *size)
    assert status == 1
    assert error.splitlines()[-1].startswith("sciformer: [Errno 28] No space left on device: '")
    assert "Traceback" not in error
    assert list(small_disk.iterdir()) == []


@pytest.mark.attack
def test_without_a_home_it_says_what_to_set(monkeypatch, capsys):
    pwd = pytest.importorskip("pwd")

    def nobody(number):
        raise KeyError(number)

    for name in ("HOME", "XDG_CACHE_HOME", "SCIFORMER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for command in ("data", "doctor"):
        status, _, error = run(capsys, command)
        assert (status, error.count("\n")) == (1, 1)
        assert "home folder in ~/.cache/sciformer cannot be found. Name the data's folder in" in error
    monkeypatch.setenv("SCIFORMER_DATA", "/data")
    assert run(capsys, "doctor")[0] == 0


@pytest.mark.attack
@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_ctrl_c_is_one_line(tmp_path):
    command = [sys.executable, "-m", "sciformer", "train", "mnist", "--steps", "100000", "--out", tmp_path / "out"]
    running = subprocess.Popen(
        [*command, *TINY],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "out").exists() and time.monotonic() < deadline:  # the last that happens before it trains
        time.sleep(0.05)
    time.sleep(2)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130
    assert error.splitlines()[-1] == "sciformer: interrupted"
    assert "Traceback" not in error
    assert list((tmp_path / "out").iterdir()) == []


#: A sitecustomize.py that presses Ctrl-C when the import of a module begins: no test depends on the machine's speed.
PRESS_CTRL_C = """
import os, signal, sys

class Press:
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press)
"""


@pytest.mark.attack
@pytest.mark.parametrize(
    "command", [["-m", "sciformer"], [str(Path(sys.executable).with_name("sciformer"))]], ids=["module", "script"]
)
@pytest.mark.parametrize("module", ["torch", "torch.nn", "sciformer.cli"])
def test_ctrl_c_during_the_imports_is_one_line(command, module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(PRESS_CTRL_C.format(module=module))
    run = subprocess.run(
        [sys.executable, *command, "doctor"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=heed_ctrl_c,
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "sciformer: interrupted\n")


@pytest.mark.attack
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_output_that_cannot_be_written_is_one_line(monkeypatch, capsys):
    with open("/dev/full", "w") as full:  # which is closed as Python's end would, and raises if anything is left
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["record", "--list"]) == 1
        assert capsys.readouterr().err == "sciformer: [Errno 28] No space left on device\n"


@pytest.mark.attack
def test_output_that_nobody_reads_on_is_no_error(monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert cli.main(["record", "--list"]) == 1
        assert capsys.readouterr().err == ""


@pytest.mark.attack
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_that_lacks_letters_shows_what_it_can(monkeypatch, tmp_path, encoding):
    monkeypatch.setenv("SCIFORMER_PROGRESS", str(tmp_path / "none.json"))  # other tests have solved all exercises
    shown = io.BytesIO()
    with io.TextIOWrapper(shown, encoding=encoding) as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert cli.main(["progress", "--folder", str(ROOT)]) == 0
        assert rb"\u25a1" in shown.getvalue()  # an open exercise
