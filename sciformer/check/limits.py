"""Run somebody's code for a few seconds at most."""

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

#: On a machine that does other things too, a few seconds of work take so many times as long on the clock, at most.
PATIENCE = 6.0

T = TypeVar("T")


class TimeUp(SystemExit):
    """The time was up. A SystemExit, so that no ``except Exception`` in the code swallows it."""


def limited(call: Callable[[], T], seconds: float, patience: float = 1.0) -> T:
    """What ``call()`` returns or raises, or :class:`TimeUp`.

    ``seconds`` are counted on the clock. With a ``patience`` above 1 they are seconds of the call's own work, so that a
    busy machine turns no right answer into a slow one, and the clock sets its limit only at ``patience`` times
    as many. Only Linux counts the work of a thread; elsewhere the clock's limit is the only one.

    The call runs in a thread of its own, which works on every system and in every notebook server. When time is up an
    exception is raised inside it. Code that is stuck outside Python cannot be reached so and is left behind. Where the
    system allows no further thread, as after code that starts processes without end, the call is made in this thread
    and only whoever started this process can limit it, as the grader does.

    Raises:
        TimeUp: when the call takes longer.
    """
    result: list[T] = []
    raised: list[BaseException] = []
    clocks: list[int] = []

    def work() -> None:
        if sys.platform == "linux" and patience > 1:
            clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        try:
            result.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return call()
    end = time.monotonic() + patience * seconds
    worked = 0.0
    try:
        while thread.is_alive() and worked < seconds and (left := end - time.monotonic()) > 0:
            thread.join(min(left, seconds - worked) if clocks else left)
            with suppress(OSError):  # the thread has ended
                worked = time.clock_gettime(clocks[0]) if clocks else 0.0
    finally:  # also when the wait is interrupted by hand
        for _ in range(20):  # a bare `except:` may catch the first ones
            if thread.is_alive():
                ident = ctypes.c_ulong(thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeUp))
                thread.join(0.05)
    if raised:
        raise raised[0]
    if not result:
        raise TimeUp(f"not done after {seconds:g} seconds")
    return result[0]


def end_with_the_parent() -> None:
    """Have this process killed when the one that started it ends, however it ends; only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
