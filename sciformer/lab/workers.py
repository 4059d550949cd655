"""Processes that work side by side, and that never outlive the one that started them."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
from tqdm import tqdm


@contextmanager
def worker_pool(workers: int, *, threads: int) -> Iterator[Executor]:
    """Fresh processes, of ``threads`` threads each, that run what is submitted.

    They end with this process, whatever ends it, and an error in the block ends them at once, in the midst of their
    tasks. Ctrl-C, which a terminal sends to every process of a command, reaches only this one.

    Raises:
        ChildProcessError: if a worker is killed, by an operating system that is out of memory, for instance.
    """
    context = get_context("spawn")
    # A worker notices the end of this process by the end of a pipe whose other end only this process holds.
    watched, held = context.Pipe(duplex=False)
    with watched, held:
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(threads, watched))
        try:
            with _interrupts_wait():
                for _ in range(workers):  # a task without work for each, as workers start when they are needed
                    pool.submit(int)
            yield pool
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process was killed, perhaps because the memory ran out; what had finished is kept, and the "
                "same command goes on from there"
            ) from error
        except BaseException:
            held.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Processes that start inside never see Ctrl-C; this one sees it at the end."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(threads: int, watched: Connection) -> None:
    def leave_with_the_parent() -> None:
        with suppress(EOFError, OSError):
            watched.recv()
        os._exit(1)

    threading.Thread(target=leave_with_the_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its own is shared by processes, and nobody would remove it where a worker leaves
    torch.set_num_threads(threads)
