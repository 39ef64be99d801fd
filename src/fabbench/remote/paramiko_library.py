"""Loading paramiko so that it never writes to the terminal, and calling it where Ctrl-C may arrive.

Python runs signal handlers in the main thread, between any two bytecodes. If a handler raises within
paramiko, a lock of the connection may stay held, and the cleanup over that connection waits forever. So in
the main thread, short calls of paramiko finish before an interrupt is handled, and calls that wait are made
by another thread, which no handler interrupts.
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
    """Load paramiko without the warnings of some combinations with cryptography, and silence its logger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # paramiko imports invoke for `Match exec` in its own ssh_config parser, but works without. It would
        # take a third of the loading time.
        with _hidden("invoke"):
            import paramiko as loaded
    # Logs of its threads (including tracebacks) would reach stderr; the errors are raised anyway.
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    return loaded


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make a module that is not loaded yet appear uninstalled."""
    if name in sys.modules:
        yield
        return
    # None makes an import fail with ModuleNotFoundError.
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
    """Defer the signals that end a command to the end of the block, which must be short and not wait.

    In threads other than the main one, where no handler runs, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []

    def defer(number: int, _frame: FrameType | None) -> None:
        deferred.append(number)

    # A signal that is ignored, or ends the program at once, stays as it is.
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in ours:
            signal.signal(number, defer)
        yield
    finally:
        for number, handler in ours.items():
            # The handlers themselves may have changed them before all of ours were installed.
            if signal.getsignal(number) is defer:
                signal.signal(number, handler)
    for received in deferred:
        signal.raise_signal(received)


def apart(call: Callable[[], _T]) -> _T:
    """Make a call that may wait, and return or raise its result. An interrupt ends the wait, not the call.

    In threads other than the main one, it is called directly.
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
