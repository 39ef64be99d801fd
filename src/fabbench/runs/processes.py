"""Processes of our own that read and write logs side by side: what only computes, on all cores."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fabbench.model.plugins import PluginWarning

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


@contextmanager
def processes(count: int) -> Iterator["ProcessPoolExecutor"]:
    """Start processes, and end them, also where the block is left early."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(count, initializer=_begin_process, initargs=(os.getpid(),)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)  # and wait: the interpreter would meet its thread half gone


def _begin_process(main: int) -> None:
    """End with the main process, and leave Ctrl-C to it, and what it has warned of already."""
    import multiprocessing
    import signal

    from fabbench.execution.process import end_with_parent

    # Else its parent is a server of processes, which ends with the main one.
    end_with_parent(main if multiprocessing.get_start_method() == "fork" else os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", PluginWarning)
