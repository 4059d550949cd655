"""Whatever stands behind its options, the command line answers in one line: no traceback, no flood, no foreign file."""

import argparse
import contextlib
import errno
import io
import json
import os
import random
import resource
import signal
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from PIL import Image

from sciformer import cli
from sciformer.data import fetching
from sciformer.lab import claims, records, search, settings, trainers
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, SHAKESPEARE_CELL
from sciformer.training import fit
from sciformer.training.weights import save_weights

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's devices and limits"),
]

NUMBERS = ["0", "-1", "1", "2", "3", "7", "1.5", "nan", "inf", "-inf", "1e400", "1e-400", "100000000", "99999999999",
           "-99999999999", 30 * "9", 5000 * "9", "0x10", "1_000", "٣"]  # fmt: skip
PATHS = ["", ".", "..", "/", "~", "~nouser", "~nouser/x", "/dev/full", "/dev/zero", "/dev/null", "/dev/full/x",
         "/proc/self/mem", "folder", "text", "text/below", "pipe", "loop", "dangling", "link", "missing/x", 300 * "x",
         300 * "x/", "two\nlines", "\udcff", "\N{RIGHT-TO-LEFT OVERRIDE}", "\033[31m", "%s%n{}", "*", "-"]  # fmt: skip
WORDS = ["mps", "meta", "xla", "cuda", "cuda:99", "cuda:-1", "cpu:7", "mps:3", "hpu", "privateuseone", "cuda:x",
         "sqlite://", "sqlite:///:memory:", "sqlite:////dev/full", "sqlite:///text", "sqlite:///folder", "nosuch://x",
         "redis://127.0.0.1:9", "://", "rotary", "additive", "quick", "long", "mnist-pixels", "full"]  # fmt: skip
SMALL = {
    "train": ["--steps", "1", "--embed-dim", "8", "--num-heads", "2", "--num-layers", "1", "--device", "cpu"],
    "record": ["--steps", "1", "--seeds", "1", "--out", "out", "--device", "cpu"],
    "search": ["--trials", "2", "--device", "cpu"],
    "assignment": ["--out", "out"],
}


class AtOnce:
    """Does what is submitted, and starts no process."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future

    map = staticmethod(map)


def after_one_step(step, model):
    raise FloatingPointError("diverged")


@pytest.fixture
def stubbed(monkeypatch, tmp_path):
    """A folder of traps, and commands that do all but train on, fetch, and compute tables.

    Trainings end after their first step, in this process. What ``grade`` runs has tests of its own.
    """
    digits = {split: tuple(x[:600] for x in fetching_digits(split)) for split in ("train", "test")}
    for module in (settings, trainers):
        monkeypatch.setattr(module, "mnist", lambda split, size="small": digits[split])
    monkeypatch.setattr(trainers, "fit", lambda m, b, loss, c, look, **o: fit(m, b, loss, c, after_one_step, **o))
    small = replace(search.SEARCH["quick"], base=replace(search.SEARCH["quick"].base, held_out=100))
    monkeypatch.setitem(search.SEARCH, "quick", small)
    for module in (records, search):
        monkeypatch.setattr(module, "worker_pool", lambda *_, **__: contextlib.nullcontext(AtOnce()))
    monkeypatch.setattr(claims.tables, "TABLES", {"claims": lambda: "| table |"})
    monkeypatch.setattr(claims, "claims_table", lambda: "| table |")
    monkeypatch.setattr(cli, "run_grade", lambda options: None)

    def download(folder):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(fetching, "_download_mnist", download)
    monkeypatch.setattr(fetching, "_download_shakespeare", download)
    folder = tmp_path / "here"
    (folder / "folder").mkdir(parents=True)
    (folder / "text").write_text("{not yours")
    (folder / "link").symlink_to("/dev/zero")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    os.mkfifo(folder / "pipe")
    trained(folder / "run", replace(MNIST_IMAGE_TRANSFORMER["quick"], embed_dim=8, num_heads=2, num_layers=1))
    trained(folder / "writer", replace(SHAKESPEARE_CELL["quick"], embed_dim=8, num_heads=2, num_layers=1))
    Image.new("L", (40, 40), "white").save(folder / "picture.png")
    monkeypatch.chdir(folder)
    return folder


def trained(folder, setting):
    """What ``train`` leaves behind."""
    save_weights(setting.model(), folder / "model.safetensors")
    history = {"seed": 0, "config": asdict(setting), "metrics": {}, "loss": [1.0], "curves": {}, "seconds": 1.0}
    (folder / "history.json").write_text(json.dumps(history))


def fetching_digits(split):
    from sciformer.data import mnist

    return mnist(split)


@contextlib.contextmanager
def limits(seconds, gigabytes):
    """Inside, whoever runs for so long is sent Ctrl-C, and whoever asks for so much more memory gets none."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + gigabytes * 10**9, hard))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def answer(arguments):
    """Exit status and what was said on stderr."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said), limits(seconds=5, gigabytes=4):
        try:
            status = cli.main(arguments)
        except SystemExit as error:
            status = error.code
    return status, said.getvalue()


def check(arguments, folder):
    """One command: what is wrong with its answer, if anything."""
    try:
        status, said = answer(arguments)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    lines = [line.rpartition("\r")[2] for line in said.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("train:", "runs:"))]
    if (folder / "text").read_text() != "{not yours":
        return "changed a foreign file"
    if status == 0 or (status == 130 and lines == ["sciformer: interrupted"]):
        return ""
    if status == 1 and len(lines) == 1 and lines[0].startswith("sciformer: "):
        return "took too much memory" if "not enough memory" in lines[0] else ""
    if status == 2 and lines[0].startswith("usage: ") and ": error: " in "\n".join(lines):
        return ""
    return f"status {status}: {said[:300]!r}"


def commands():
    """Every subcommand, and its options as the parser has them."""
    (found,) = [a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction)]
    for name, command in found.choices.items():
        yield name, [action for action in command._actions if not isinstance(action, argparse._HelpAction)]


def nasty(action):
    """What to try behind an option."""
    if action.nargs == 0:
        return [None]
    names = [str(choice) for choice in action.choices or ()]
    kinds = {int: NUMBERS, float: NUMBERS, Path: PATHS}.get(action.type, NUMBERS if action.type else PATHS + WORDS)
    return [*names, *kinds]


def behind(action, value):
    """An option and a value, as they are typed."""
    if not action.option_strings:
        return ["--", value]
    return [action.option_strings[0]] if value is None else [f"{action.option_strings[0]}={value}"]


def lists_of(name, actions):
    """Argument lists of a subcommand: every option with every value by itself, and 60 mixtures."""
    draw = random.Random(name)
    required = [action for action in actions if not action.option_strings and action.nargs != "?"]
    fill = {
        "task": ["mnist", "shakespeare"],
        "notebooks": ["text"],
        "files": ["text"],
        "report": ["text"],
        "action": ["check"],
        "file": ["text"],
        "run": ["run", "writer", "folder", "text"],
        "pictures": ["picture.png", "text"],
    }
    options = [action for action in actions if action.option_strings and action.dest != "compile"]
    start = [name, *SMALL.get(name, [])]

    def whole(given, positions):
        positional = [p for action in required for p in [positions.get(action.dest) or draw.choice(fill[action.dest])]]
        optional = [
            positions[a.dest] for a in actions if a.nargs == "?" and not a.option_strings and a.dest in positions
        ]
        return [*start, *given, "--", *positional, *optional] if positional or optional else [*start, *given]

    named = {"name": "mnist-image-transformer"} if name == "record" else {}
    for action in options:
        for value in nasty(action):
            yield whole(behind(action, value), named)
    for action in actions:
        if not action.option_strings:
            for value in nasty(action):
                yield whole([], {action.dest: value})
    for _ in range(60 if options else 0):
        chosen = draw.sample(options, min(len(options), draw.randrange(2, 5)))
        yield whole([part for action in chosen for part in behind(action, draw.choice(nasty(action)))], named)


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_no_arguments_bring_a_traceback(name, stubbed, request):
    """With ``-m attack`` all lists, which takes minutes; else 40 of each subcommand, the same ones each time."""
    failed = {}
    tried = list(lists_of(name, COMMANDS[name])) or [[name]]
    if request.config.option.markexpr != "attack":
        tried = random.Random(0).sample(tried, min(40, len(tried)))
    for arguments in tried:
        if wrong := check(arguments, stubbed):
            failed[" ".join(argument[:60] for argument in arguments)] = wrong
    assert failed == {}, f"{len(failed)} of {len(tried)}"
