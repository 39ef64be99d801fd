"""Runs pieces of work concurrently in threads, until all are done or the caller stops.

Ctrl-C reaches only the main thread. It sets an event that the waits of the threads check: see
`fabbench.launchers.DivisibleAllocation`.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")

WORKERS = 64
"""Number of pieces of work done at once."""
_WAKE_S = 0.25
_ENDING_S = 60.0
"""How long threads may take to stop: each ends the programs that it has started."""


class _Workers(Generic[T, U]):
    """Worker threads that process the items of a list, and return the result of each."""

    def __init__(self, items: Sequence[T], work: Callable[[T], U], ended: threading.Event) -> None:
        self._work, self._ended = work, ended
        self._todo: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[T, U | BaseException]] = queue.SimpleQueue()
        for item in items:
            self._todo.put(item)
        self._threads = [
            threading.Thread(target=self._run, name=f"fabbench part {number}", daemon=True)
            for number in range(min(WORKERS, len(items)))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def result(self) -> tuple[T, U]:
        """Wait for the next result. Raise the error of a piece of work that failed."""
        while True:
            # Not one long wait: a Ctrl-C just before it would be handled only after it.
            with contextlib.suppress(queue.Empty):
                item, result = self._done.get(timeout=_WAKE_S)
                break
        if isinstance(result, BaseException):
            raise result
        return item, result

    def end(self) -> None:
        """Make the threads stop, and wait for that."""
        self._ended.set()
        deadline = time.monotonic() + _ENDING_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0))

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                item = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._done.put((item, self._work(item)))
            except BaseException as error:  # noqa: BLE001 - raised in the thread that reads results
                self._done.put((item, error))


def concurrently(
    items: Sequence[T], work: Callable[[T], U], ended: threading.Event
) -> Generator[tuple[T, U], None, None]:
    """Call `work` with each item, and yield items and results as they come.

    Leaving it early, as Ctrl-C does, sets `ended` and waits until work in progress has ended. Raise the error
    of a piece of work that failed.
    """
    pool = _Workers(items, work, ended)
    try:
        pool.start()
        for _ in items:
            yield pool.result()
    except BaseException:
        pool.end()
        raise


def in_turn(items: Sequence[T], work: Callable[[T], U]) -> Generator[tuple[T, U], None, None]:
    """Call `work` with one item after another, in this thread."""
    for item in items:
        yield item, work(item)
