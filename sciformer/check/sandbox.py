"""A sandbox for a process and everything that it starts: bubblewrap's namespaces, and a control group where one may.

Inside, there is no network, no other process and no file but the system's and Python's, which are read-only; the
environment is empty but for what is set here. A temporary folder of limited size is all that can be written to. When
the process that asked for the sandbox ends, however it ends, everything inside is killed.
"""

import os
import platform
import secrets
import shutil
import site
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from sciformer.functional import InputError

#: MB in each of the temporary folders.
SPACE = 256
#: Processes and threads in one sandbox.
PROCESSES = 512
#: MB that a worker's libraries take, which are not the submission's to answer for.
LIBRARIES = 1024

#: By processor, its number and those of the calls to refuse: ptrace, process_vm_readv and _writev, add_key,
#: request_key, keyctl, bpf, perf_event_open, userfaultfd, io_uring_setup.
_CALLS = {
    "x86_64": (0xC000003E, (101, 310, 311, 248, 249, 250, 321, 298, 323, 425)),
    "aarch64": (0xC00000B7, (117, 270, 271, 217, 218, 219, 280, 241, 282, 425)),
}
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts", "/etc/localtime", "/sys/devices/system/cpu")
_GROUPS = Path("/sys/fs/cgroup")


def bubblewrap() -> str:
    """Where bubblewrap is.

    Raises:
        InputError: if it is not installed.
    """
    found = shutil.which("bwrap")
    if found is None:
        raise InputError(
            "bubblewrap is not installed, and without it a submission could read, change and send whatever you can. "
            "Install it (Debian, Ubuntu: apt-get install bubblewrap), or grade with --unsandboxed what you trust"
        )
    return found


def inside(
    command: list[str], *, shown: Mapping[str, Path], environment: Mapping[str, str], refusing: int
) -> list[str]:
    """A command that runs another one in a sandbox, in its temporary folder ``/tmp``.

    Args:
        refusing: the file descriptor of :func:`refused_calls`, which the command inherits.
        shown: files and folders to be seen inside, read-only, by the path that they have there.
        environment: all of it, beside HOME, PATH and the like.
    """
    space = ["--size", str(SPACE * 2**20)]
    own = {"HOME": "/tmp", "USER": "student", "LANG": "C.UTF-8", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    options = [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--seccomp", str(refusing), "--hostname", "sandbox", "--clearenv"),
    ]
    if site.ENABLE_USER_SITE:
        own["PYTHONUSERBASE"] = site.getuserbase()
    for name, value in {**own, **environment}.items():
        options += ["--setenv", name, value]
    options += ["--proc", "/proc", "--dev", "/dev", *space, "--tmpfs", "/dev/shm", *space, "--tmpfs", "/tmp"]
    for folder in (*_SYSTEM, *_SETTINGS):
        link = os.path.islink(folder)
        options += ["--symlink", os.readlink(folder), folder] if link else ["--ro-bind-try", folder, folder]
    for folder in _python():  # which may be in /tmp
        options += ["--ro-bind", folder, folder]
    for name, path in shown.items():
        options += ["--ro-bind", str(path), name]
    for folder in ("/proc", "/dev", "/"):  # for root, the kernel's settings in /proc would be there to be written
        options += ["--remount-ro", folder]
    return [bubblewrap(), *options, "--chdir", "/tmp", "--", *command]


def _python() -> list[str]:
    """The folders of the interpreter and of its libraries, where the system's do not hold them."""
    libraries = Path(torch.__file__).parents[1]
    found = [sys.prefix, sys.exec_prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), str(libraries)]
    if site.ENABLE_USER_SITE:
        found += filter(os.path.isdir, [site.getusersitepackages()])
    return [folder for folder in dict.fromkeys(found) if not Path(folder).is_relative_to("/usr")]


def is_shown(path: Path) -> bool:
    """Whether every sandbox shows a file, as one of the system's, of Python's or of this package's."""
    folders = [*_SYSTEM, *_python(), str(Path(__file__).parents[1])]
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in folders)


@contextmanager
def refused_calls() -> Iterator[int]:
    """A file descriptor from which bubblewrap reads which system calls to refuse, as a program of the kernel's filter.

    They are those with which a process could take over the first one of the sandbox, which the system kills when the
    grader ends, and a few that Python never needs and that attacks on the kernel begin with. On a processor whose
    numbers are not known here nothing is refused.
    """
    allow, refuse, kinds = 0x7FFF0000, 0x00050001, {"load": 0x20, "equal": 0x15, "at least": 0x35, "return": 0x06}
    architecture, calls = _CALLS.get(platform.machine(), (None, ()))
    program: list[tuple[str, int, int, int]] = [("return", 0, 0, allow)]
    if architecture is not None:
        end = len(calls) + 1  # the last line but one allows, the last one refuses
        program = [("load", 0, 0, 4), ("equal", 0, end + 2, architecture), ("load", 0, 0, 0)]
        program += [("at least", end, 0, 0x40000000)]  # another numbering of the same calls
        program += [("equal", end - 1 - n, 0, number) for n, number in enumerate(calls)]
        program += [("return", 0, 0, allow), ("return", 0, 0, refuse)]
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"):
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(b"".join(struct.pack("HBBI", kinds[kind], *rest) for kind, *rest in program))
        yield reading


@contextmanager
def memory_group(megabytes: int) -> Iterator[list[str]]:
    """Where control groups may be made: the beginning of a command that runs in one with so much memory in all.

    It also holds the number of processes. Elsewhere the beginning is empty, and each process has only its own limit.
    """
    groups: list[Path] = []
    try:
        for parents, limits in _groups(megabytes):
            groups += next(filter(None, (_make(parent, limits) for parent in parents)), [])
        join = 'while [ "$1" != -- ]; do echo $$ 2> /dev/null > "$1"; shift; done; shift; exec "$@"'
        yield ["/bin/sh", "-c", join, "sh", *(str(group / "cgroup.procs") for group in groups), "--"] if groups else []
    finally:
        for group in groups:
            _remove(group)


def _groups(megabytes: int) -> Iterator[tuple[list[Path], dict[str, int]]]:
    """The limits to set, and the groups of this process below which a group with them may be made."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            own = path.lstrip("/")
            if number == "0" and (_GROUPS / "cgroup.controllers").exists():  # version 2
                # A group that has processes may have no groups with limits below it, but the group above it may.
                above = [(_GROUPS / own).parent] if own else []
                yield [_GROUPS / own, *above], {"memory.max": megabytes * 2**20, "pids.max": PROCESSES}
            elif "memory" in controllers.split(","):
                yield [_GROUPS / "memory" / own], {"memory.limit_in_bytes": megabytes * 2**20}
            elif "pids" in controllers.split(","):
                yield [_GROUPS / "pids" / own], {"pids.max": PROCESSES}


def _make(parent: Path, limits: Mapping[str, int]) -> list[Path]:
    """A new group with limits; none where it is not ours to make."""
    group = parent / f"sciformer-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        group.mkdir()
    except OSError:
        return []
    try:
        for file, value in limits.items():
            (group / file).write_text(str(value), encoding="utf-8")
    except OSError:
        group.rmdir()
        return []
    for file, limit in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", limits.get("memory.limit_in_bytes"))):
        with suppress(OSError):  # where swap is counted
            (group / file).write_text(str(limit), encoding="utf-8")
    return [group]


def _remove(group: Path) -> None:
    """Remove a control group as soon as the last of its processes, which were killed, is gone."""
    for _ in range(1500):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
