"""Run somebody's code for a few seconds at most."""

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TimeUp(SystemExit):
    """The time was up. A SystemExit, so that no ``except Exception`` in the code swallows it."""


def limited(call: Callable[[], T], seconds: float) -> T:
    """What ``call()`` returns or raises, or :class:`TimeUp`.

    The call runs in a thread of its own, which works on every system and in every notebook server. When time is up an
    exception is raised inside it. Code that is stuck outside Python cannot be reached so and is left behind.

    Raises:
        TimeUp: when the call takes longer than ``seconds``.
    """
    result: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            result.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
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
