"""Loading paramiko, so that it never writes to the terminal; and calling it where Ctrl-C may come.

Python runs signal handlers in the main thread, between any two of its steps. Where a handler raises within
paramiko, a lock of the connection may stay taken, and what cleans up over that connection waits forever. So
in the main thread short calls of paramiko end before an interrupt is heard, and calls that wait are made by
another thread, which no handler interrupts.
"""

import functools
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import TypeVar


@functools.cache
def paramiko() -> ModuleType:
    """Load paramiko without the warnings of some pairs of it and cryptography, and silence its logger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # paramiko tries this for `Match exec` in its own reader of configurations, and does without. It would
        # be a third of the time that loading takes.
        with _hidden("invoke"):
            import paramiko as loaded
    # What its threads log (tracebacks too) would reach stderr; the errors are raised as well.
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    return loaded


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make a module that is not loaded yet look as if it were not installed."""
    if name in sys.modules:
        yield
        return
    # None is what an import takes for "there is none".
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


_T = TypeVar("_T")
_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_POLL_S = 0.25


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the signals that end a command wait for the end of the block. For what is short, and does not wait.

    In other threads than the main one, where no handler runs, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def wait(number: int, _frame: FrameType | None) -> None:
        waiting.append(number)

    # A signal that is ignored, or ends the program at once, stays as it is.
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in ours:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in ours.items():
            # The handlers themselves may have changed them, while ours were not yet all in place.
            if signal.getsignal(number) is wait:
                signal.signal(number, handler)
    for heard in waiting:
        signal.raise_signal(heard)


def apart(call: Callable[[], _T]) -> _T:
    """Make a call that may wait; an interrupt ends the waiting, not the call. Return or raise what it does.

    In other threads than the main one it is simply called.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: Future[_T] = Future()

    def make() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            result.set_exception(error)

    threading.Thread(target=make, name="fabbench ssh call", daemon=True).start()
    while not result.done():
        try:
            result.exception(_POLL_S)
        except NotYet:
            continue
    return result.result()
