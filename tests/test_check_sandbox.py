"""Attacks on the grader, each made for real: what a submission can reach, and what becomes of grader and class."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import bubblewrap
import pytest
from interrupts import heed_ctrl_c

import sciformer
from sciformer.check import EXERCISES, grading, running, sandbox
from sciformer.check.report import read_report, table, write_report
from sciformer.cli import main
from sciformer.exercises.ways import nb02
from sciformer.functional import InputError

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(not bubblewrap.WORKS, reason="bubblewrap is not installed here, or not allowed"),
]

RIGHT = Path(nb02.__file__).read_text().split("\n\n\ndef test_attention")[0]
PACKAGE = Path(sciformer.__file__).parent
SECRET = "a-token-that-nobody-hands-in"
#: In the command line of the processes that try to outlive their submission, so that they can be found.
MARK = f"987654321.{os.getpid()}"

# Attempts, each of which raises an OSError or says False where it is held; by name, with what the test puts in.
ATTEMPTS = {
    "read a classmate's submission": "open({classmate!r}).read()",
    "list the folder of the submissions": "os.listdir({folder!r})",
    "read the report": "open({report!r}).read()",
    "read a file in the home folder": "open({home!r} + '/token').read()",
    "read the environment": "os.environ.get('COURSE_TOKEN')",
    "read the environment of the parent": "{secret!r}.encode() in open('/proc/1/environ', 'rb').read()",
    "find other processes": "len([p for p in os.listdir('/proc') if p.isdigit()]) > 4",
    "write sitecustomize.py among the libraries": "open(torch_parent + '/sitecustomize.py', 'w')",
    "write sitecustomize.py into the standard library": "open(os.path.dirname(os.__file__) + '/sitecustomize.py', 'w')",
    "change the package": "open(sciformer.__file__, 'a')",
    "write into the root": "open('/anything', 'w')",
    "write into /dev": "open('/dev/anything', 'w')",
    "write into /etc": "open('/etc/anything', 'w')",
    "change the kernel's settings": "open('/proc/sys/kernel/core_pattern', 'w')",
    "write the memory of the parent": "open('/proc/1/mem', 'r+b')",
    "fill the temporary folder": "fill('/tmp/large')",
    "fill the shared memory": "fill('/dev/shm/large')",
    "open a socket to the world": "socket.create_connection(('1.1.1.1', 53), 1)",
    "open a socket to the grader's machine": "socket.create_connection(('127.0.0.1', {port}), 1)",
    "connect to a service's socket": "connect({service!r})",
    "mount a file system": "libc.mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0",
    "make the root writable": "libc.mount(None, b'/', None, 32 | 4096, None) == 0",
    "enter a new user namespace": "libc.unshare(0x10000000) == 0",
    "see a control group": "os.listdir('/sys/fs/cgroup')",
    "raise its own limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "rewind the pipe to the grader": "any(rewound(fd) for fd in range(3, 64))",
    "trace its parent": "libc.ptrace(16, 1, None, None) == 0",
    "write into its parent": "libc.process_vm_writev(1, None, 0, None, 0, 0) == 0",
    "read the grader's keys": "libc.syscall(250, 0, -3, 1) > 0",
    "make a device": "os.mknod('/tmp/sda', 0o60600, os.makedev(8, 0)) or open('/tmp/sda', 'rb').read(1)",
}
TRIES = """
import ctypes, os, resource, socket, sciformer, torch
torch_parent = os.path.dirname(os.path.dirname(torch.__file__))
libc = ctypes.CDLL(None)


def fill(path):
    with open(path, "wb") as file:
        for _ in range(20):
            file.write(bytes(2**20))
    return True


def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)
    return True


def rewound(fd):
    try:
        os.lseek(fd, 0, 0)
        return os.readlink(f"/proc/self/fd/{fd}") != "/dev/null"
    except OSError:
        return False


def tried(attempt):
    try:
        return bool(attempt())
    except (OSError, ValueError) as error:
        return False


fallen = []
"""

DAEMON = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{MARK}"])
    os._exit(0)
subprocess.Popen(["sleep", "{MARK}"], start_new_session=True)
"""
FLOODS = """
import os
def flood():
    for fd in range(3, 64):
        try:
            while True:
                os.write(fd, b'{"failed": "x"}\\n' * 4096)
        except OSError:
            pass
flood()
"""
LONG_LINE = FLOODS.replace("""b'{"failed": "x"}\\n' * 4096""", "b'[' * 65536")
HOLDS = """
import re
re.match("(a*)*b", "a" * 60)
"""
EXPANDS = """
import sys
def huge(seen):
    large = {"dtype": "float32", "shape": [10**9], "content": "AAAAAA=="}
    call = {"output": large, "again": large, "inputs": {}}
    return {"calls": [call], "gradients": {}, "problem": None}
sys.modules["__main__"].encode_observation = huge
"""
EXPANDED_ANSWER = """
def masked_weights(scores, mask):
    return torch.zeros(1).expand(10**9)
"""
FAMILY = """
import os, signal
def signals():
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        os.kill(os.getppid(), number)
        os.kill(1, number)
    os.kill(-1, signal.SIGKILL)
try:
    signals()
except OSError:
    pass
"""
FORKS = """
import os, time
def forks():
    while True:
        try:
            if os.fork() == 0:
                time.sleep(60)
        except OSError:
            return
forks()
"""
STAY = FORKS.replace("time.sleep(60)", "time.sleep(60), os._exit(0)")  # so that no process gives up its place
CHILDREN = """
import os, time
def children():
    for _ in range(6):
        if os.fork() == 0:
            held = bytearray(400 * 2**20)  # as much as one process may
            held[::4096] = bytes(len(held[::4096]))
            time.sleep(10)
            os._exit(0)
    ended = [os.waitpid(-1, 0)[1] for _ in range(6)]
    raise RuntimeError(f"{sum(status == 9 for status in ended)} killed")
children()
"""
CONTROLS = "def masked_weights(s, m): raise ValueError('\\x1b]0;title\\x07\\x1b[2J \\u202egnorw \\u2066')\n"

#: Wrong answers, each with the checker in its own process made to say otherwise.
FORGERIES = {
    "no gradient, and the checker says there is one": """
import torch
from sciformer.check import exercise, gradients
exercise._reached = lambda *a: {"scores", "query", "key", "value"}
exercise.gradients = lambda inputs, result, seed: {n: torch.ones_like(x) for n, x in inputs.items() if x is not None}
def masked_weights(s, m):
    return (s if m is None else s.masked_fill(~m, float("-inf"))).softmax(-1).detach()
""",
    "changes its input, and the checker sees none": """
from sciformer.check import exercise, values
exercise.same = values.same = lambda one, two: True
def masked_weights(s, m):
    s[~m] = float("-inf")
    return s.softmax(dim=-1)
""",
    "takes its time, and the checker has no limit": """
import time
from sciformer.check import limits, observing
observing.limited = limits.limited = lambda call, seconds, patience=1.0: call()
def masked_weights(s, m):
    time.sleep(40)
    return s.masked_fill(~m, float("-inf")).softmax(dim=-1)
""",
    "the judge says yes": """
from sciformer.check.exercise import Exercise, Observation, Problem
Exercise.judge = lambda *a: print("correct")
Exercise.observe = lambda *a: Observation(problem=Problem("correct", "correct"))
def masked_weights(s, m): return s
""",
}


def filled(**values):
    attempts = {name: attempt.format(**values) for name, attempt in ATTEMPTS.items()}
    tries = "".join(f"if tried(lambda: {attempt}): fallen.append({n})\n" for n, attempt in enumerate(attempts.values()))
    return f"{TRIES}{tries}raise RuntimeError(f'fell: {{fallen}}')\n{RIGHT}"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """What became of every attack, by name; all graded in one class, with right answers before and after."""
    folder = tmp_path_factory.mktemp("class")
    home = tmp_path_factory.mktemp("home")
    (home / "token").write_text(SECRET)
    report = tmp_path_factory.mktemp("reports") / "grades.json"
    report.write_text("{}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as service,
    ):
        patch.setenv("COURSE_TOKEN", SECRET)
        patch.setattr(sandbox, "SPACE", 16)
        service.bind(str(home / "service"))
        service.listen()
        attempts = filled(
            classmate=str(folder / "first.py"),
            folder=str(folder),
            report=str(report),
            home=str(home),
            secret=SECRET,
            port=server.getsockname()[1],
            service=str(home / "service"),
        )
        submissions = {
            "first": RIGHT,
            "tries": attempts,
            "daemon": DAEMON + RIGHT,
            "floods": FLOODS + RIGHT,
            "long line": LONG_LINE + RIGHT,
            "holds": HOLDS + RIGHT + "\ndef masked_weights(s, m): return re.match('(a*)*b', 'a' * 60)\n",
            "expands": EXPANDS + RIGHT,
            "expanded answer": RIGHT + EXPANDED_ANSWER,
            "family": FAMILY + RIGHT,
            "forks": FORKS + RIGHT,
            "stay": STAY + RIGHT,
            "controls \x1b[2J\u202e": CONTROLS,
            **{name: "import torch\n" + content for name, content in FORGERIES.items()},
            "last": RIGHT,
        }
        for name, content in submissions.items():
            (folder / f"{name}.py").write_text(content)
        files = [folder / f"{name}.py" for name in submissions]
        grades = grading.grade(files, 7, seconds=10, memory=2048, jobs=2)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {Path(one.file).stem: one for one in grades} | {"MB grown": grown, "all": grades, "folder": folder}


def kinds(one):
    return {result.exercise: result.kind for result in one.results}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_a_submission_reaches_for_is_out_of_its_reach(attacked, attempt):
    (note,) = attacked["tries"].notes
    fallen = json.loads(note.split("fell: ")[-1])
    assert list(ATTEMPTS).index(attempt) not in fallen
    assert attacked["tries"].points == 6


@pytest.mark.parametrize("name", ["first", "last"])
def test_others_get_their_points(attacked, name):
    assert attacked[name].points == 6
    assert attacked[name].notes == ()


def command_lines():
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield process.read_bytes().decode(errors="replace")
        except OSError:
            continue


def test_a_daemon_does_not_outlive_its_submission(attacked):
    assert attacked["daemon"].points == 6
    assert attacked["daemon"].notes == ()  # it was started, and nothing went wrong
    assert not [line for line in command_lines() if MARK in line]


@pytest.mark.parametrize("name", ["floods", "long line"])
def test_a_flooded_pipe_costs_only_the_statement_that_floods_it(attacked, name):
    assert [note for note in attacked[name].notes if note != "x"] in (
        ["flood(): it ended its process: it wrote to the grader in the place of the worker"],
        ["flood(): it ended its process: it closed the connection to the grader, or said too much"],
        ["flood(): cut off, it took too long"],
    )
    assert attacked[name].points == 6


def test_code_that_holds_the_interpreter_is_killed_and_the_rest_is_graded(attacked):
    one = attacked["holds"]
    assert one.notes == ('re.match("(a*)*b", "a" * 60): cut off, it took too long',)
    assert kinds(one) == {"masked_weights": "too slow", "scaled_dot_product": "correct", "future_leaks": "correct"}


def test_a_tensor_that_pretends_to_be_large_costs_nothing(attacked):
    assert set(kinds(attacked["expands"]).values()) == {"incomplete"}
    assert kinds(attacked["expanded answer"])["masked_weights"] == "raises"
    assert attacked["expanded answer"].points == 5
    assert attacked["MB grown"] < 300


def test_a_submission_cannot_end_what_started_it(attacked):
    assert attacked["family"].points == 6


@pytest.mark.parametrize("name", ["forks", "stay"])
def test_forking_without_end_ends(attacked, name):
    assert attacked[name].points == 6


@pytest.mark.parametrize("name", FORGERIES)
def test_a_checker_that_is_made_to_lie_changes_no_grade(attacked, name):
    assert attacked[name].points == 0


def test_the_terminal_and_the_reader_are_not_deceived(attacked, tmp_path):
    grades = [one for one in attacked["all"] if "controls" in one.file]
    assert len(grades) == 1
    write_report(grades, 7, tmp_path / "grades.json")
    for text in (table(grades), (tmp_path / "grades.json").read_text(encoding="utf-8")):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "\\u202egnorw" in text
    assert read_report(tmp_path / "grades.json") == (7, grades)


def test_all_that_a_class_leaves_is_removed(attacked):
    assert not list(Path("/sys/fs/cgroup").rglob(f"sciformer-{os.getpid()}-*"))
    assert len(list(attacked["folder"].iterdir())) == len(attacked["all"])


@pytest.mark.parametrize("seconds", [2])
def test_the_time_of_a_submission_is_kept(seconds):
    runner = running.Runner(None, seconds, 2048, 7, 1, sandboxed=True)
    clock = time.monotonic()
    runner.check()
    start = time.monotonic() - clock
    clock = time.monotonic()
    seen, _ = runner.observe([HOLDS * 3 + RIGHT], {"masked_weights": "masked_weights"}, EXERCISES)
    starts = 4  # after each statement that holds it, and in the beginning
    assert time.monotonic() - clock < 3 * starts * start + seconds + 3 * running._GRACE + 1
    assert seen["masked_weights"].problem is None


@pytest.mark.long
@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK), reason="control groups cannot be made here")
def test_memory_is_limited_for_all_processes_of_a_submission_together():
    runner = running.Runner(None, 60, 512, 7, 1, sandboxed=True)
    _, notes = runner.observe([CHILDREN + RIGHT], {"masked_weights": "masked_weights"}, EXERCISES)
    (note,) = notes
    assert "killed" in note
    assert "0 killed" not in note


def test_what_is_shown_can_be_read_wherever_it_stands_and_not_written(tmp_path):
    (tmp_path / "one").write_text("read")
    tries = f"cat /tmp/deep/one /grader/one; echo $HOME {tmp_path}/*; "
    tries += "echo x > /tmp/deep/one || echo held > /tmp/two; cat /tmp/two"
    shown = {"/tmp/deep/one": tmp_path / "one", "/grader/one": tmp_path / "one"}
    with sandbox.refused_calls() as fd:
        command = sandbox.inside(["/bin/sh", "-c", tries], shown=shown, environment={}, refusing=fd)
        done = subprocess.run(command, pass_fds=[fd], capture_output=True, text=True, check=True)
    assert done.stdout == f"readread/tmp {tmp_path}/*\nheld\n"
    assert (tmp_path / "one").read_text() == "read"


# The grader's own end.


def started(folder, *more, cwd=None):
    """A grader in a process of its own, with a report in a folder of its own."""
    command = [sys.executable, "-m", "sciformer", "grade", *more, "--out", str(folder / "grades.json"), "--seed", "7"]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=cwd or folder, env=environment, text=True, preexec_fn=heed_ctrl_c, **pipes)


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def graded_in(folder):
    path = folder / "grades.json"
    return [one.graded for one in read_report(path)[1]] if path.exists() else []


@pytest.mark.parametrize("options", [[], ["--unsandboxed"]], ids=["", "without a sandbox"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_the_grader_its_workers_end_and_what_is_graded_stays(tmp_path, number, options):
    if options and number == signal.SIGKILL:
        pytest.skip("nothing can help there")
    (tmp_path / "1.py").write_text(RIGHT)
    (tmp_path / "2.py").write_text(f"import os\nos.execvp('sleep', ['sleep', '{MARK}'])\n{RIGHT}")
    grader = started(tmp_path, "1.py", "2.py", *options)
    wait_for(lambda: any(MARK in line for line in command_lines()))
    assert graded_in(tmp_path) == [True, False]
    grader.send_signal(number)
    printed, _ = grader.communicate(timeout=60)
    assert grader.returncode != 0
    if number != signal.SIGKILL:
        assert "total               6/6" in printed
        assert "not graded" in printed
        assert "1 of 2 are graded; --resume goes on" in printed
    wait_for(lambda: not any(MARK in line for line in command_lines()), 10)
    assert graded_in(tmp_path) == [True, False]


def test_a_report_is_resumed(tmp_path):
    for name in ("1.py", "2.py", "3.py"):
        (tmp_path / name).write_text(RIGHT)
    out = tmp_path / "grades.json"
    files = [str(tmp_path / name) for name in ("1.py", "2.py", "3.py")]
    assert main(["grade", *files[:2], "--out", str(out), "--seed", "7"]) == 0
    first = out.read_text().splitlines()
    changed = out.read_text().replace("masked_weights: correct", "kept from before")
    out.write_text(changed)
    (tmp_path / "2.py").write_text(f"# changed\n{RIGHT}")
    assert main(["grade", *files, "--out", str(out), "--resume"]) == 0
    seed, grades = read_report(out)
    assert seed == 7
    assert [one.points for one in grades] == [6, 6, 6]
    assert [one.results[0].message for one in grades] == [
        "kept from before", "masked_weights: correct", "masked_weights: correct"
    ]  # fmt: skip
    assert len(first) == 4
    assert main(["grade", *files, "--out", str(out), "--resume", "--seed", "8"]) == 1


@pytest.mark.parametrize("name", ["random.py", "glob.py", "signal.py", "torch.py"])
def test_a_submission_is_never_imported_by_the_grader(tmp_path, monkeypatch, name):
    trap = "import os\nopen(os.environ.get('TRAP', '/dev/null'), 'w').write('sprung')\n"
    (tmp_path / name).write_text(trap + RIGHT)
    monkeypatch.setenv("TRAP", str(tmp_path / "trap"))
    grader = started(tmp_path, name)
    printed, errors = grader.communicate(timeout=300)
    assert "6/6" in printed, errors
    assert not (tmp_path / "trap").exists()


def test_without_bubblewrap_nothing_is_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "right.py").write_text(RIGHT)
    monkeypatch.setenv("PATH", "")
    assert main(["grade", str(tmp_path / "right.py"), "--out", str(tmp_path / "grades.json")]) == 1
    assert "bubblewrap is not installed" in capsys.readouterr().err
    with pytest.raises(InputError, match="--unsandboxed"):
        sandbox.bubblewrap()
