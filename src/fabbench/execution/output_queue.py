"""The lines of programs that run at the same time, from the threads that follow them to the one that reads them."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fabbench.execution.session import Program

_MAX_QUEUED = 8  # Items. The next one blocks, and with it the connection and the remote programs that print.
_WAKE_S = 0.25


class Item(NamedTuple):
    """What a thread passes on: lines of a program, or of a debug file (None); the program's end; or an error."""

    program: Program | None = None
    texts: Sequence[str] = ()
    status: int | None = None
    error: Exception | None = None


class QueueClosedError(Exception):
    """No thread reads items any more."""


class OutputQueue:
    """Passes items from the threads that follow programs and files to the one that reads lines."""

    def __init__(self) -> None:
        self._items: queue.Queue[Item] = queue.Queue(_MAX_QUEUED)
        self._closed = threading.Event()

    def put(self, item: Item) -> None:
        """Add an item as soon as there is room. Raise QueueClosedError if no thread reads any more."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=_WAKE_S)
                return
        raise QueueClosedError

    def get(self, timeout_s: float) -> Item | None:
        """Wait for the next item; None if none came in time. Raise the error of a thread that failed."""
        try:
            item = self._items.get(timeout=timeout_s) if timeout_s else self._items.get_nowait()
        except queue.Empty:
            return None
        if item.error is not None:
            raise item.error
        return item

    def leave(self) -> None:
        """Stop reading: threads that wait in `put` end."""
        self._closed.set()

    def follow(self, work: Callable[[], None]) -> None:
        """Call `work` in a separate thread; its error goes to the thread that reads."""

        def guarded() -> None:
            with contextlib.suppress(QueueClosedError):
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - raised in the thread that reads
                    self.put(Item(error=error))

        threading.Thread(target=guarded, daemon=True, name="fabbench follows").start()
