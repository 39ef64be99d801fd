"""Worker threads that process items concurrently, until all are done or the caller stops.

Also the queue of lines that threads pass on.

Ctrl-C reaches only the main thread. It sets an event that the waits of the threads check: see
`fabbench.launchers.DivisibleAllocation`.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from fabbench.execution.background import in_background
from fabbench.execution.session import Program
from fabbench.model.errors import MachineError
from fabbench.model.mappings import distinct
from fabbench.model.values import T

U = TypeVar("U")
Results: TypeAlias = Mapping[str, T | MachineError]
"""Host, or whatever else is named → what work on it returned, or why it failed."""

_HOSTS = 32
"""How many hosts are processed concurrently."""
PARTS = 64
"""How many parts of a sweep are."""
_MAX_SHOWN = 5
_STOPPING_S = 1.0
"""How long to wait for the threads of an interrupted call: one may hang in a name lookup."""
_WAKE_S = 0.25
_ENDING_S = 60.0
"""How long `concurrently` waits for its threads: each ends the programs that it has started."""


class WorkerPool(Generic[T, U]):
    """Threads that process the items of a list; one that hangs does not keep fabbench alive."""

    def __init__(
        self,
        items: Sequence[T],
        work: Callable[[T], U],
        *,
        workers: int,
        name: str,
        stopped: threading.Event | None = None,
    ) -> None:
        """`name` is what the threads are called. Once `stopped` is set, they take no more items."""
        self._work = work
        self._stopped = stopped or threading.Event()
        self._todo: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[T, U] | BaseException] = queue.SimpleQueue()
        for item in items:
            self._todo.put(item)
        self._threads = [
            threading.Thread(
                target=self._process_items, name=f"fabbench {name} {number}", daemon=True
            )
            for number in range(min(workers, len(items)))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def result(self) -> tuple[T, U]:
        """Wait for the next result. Raise the error of an item that failed."""
        while True:
            # Not one long wait: a Ctrl-C just before it would be handled only after it.
            with suppress(queue.Empty):
                done = self._done.get(timeout=_WAKE_S)
                break
        if isinstance(done, BaseException):
            raise done
        return done

    def stop(self) -> None:
        """Take no more items."""
        self._stopped.set()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, at most for so long."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join(max(deadline - time.monotonic(), 0))

    def _process_items(self) -> None:
        while not self._stopped.is_set():
            try:
                item = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._done.put((item, self._work(item)))
            except BaseException as error:  # noqa: BLE001 - raised in the thread that reads results
                self._done.put(error)


def concurrently(
    items: Sequence[T],
    work: Callable[[T], U],
    ended: threading.Event,
    workers: int = PARTS,
) -> Generator[tuple[T, U], None, None]:
    """Call `work` with each item, and yield items and results as they come.

    Leaving it early, as Ctrl-C does, sets `ended` and waits until work in progress has ended. Raise
    the error of an item that failed.
    """
    pool = WorkerPool(items, work, workers=workers, name="part", stopped=ended)
    try:
        pool.start()
        for _ in items:  # As many results as items, in the order in which they come
            yield pool.result()
    except BaseException:
        pool.stop()
        pool.join(_ENDING_S)
        raise


def map_hosts(
    items: Mapping[str, U],
    work: Callable[[U], T],
    workers: int = _HOSTS,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], object] = lambda: None,
) -> dict[str, T | MachineError]:
    """Call `work` with each item, and return name → result or MachineError. Raise any other error.

    `on_progress` gets the number of items done; `stop` unblocks work in progress if the caller is
    interrupted.
    """

    def attempt(item: tuple[str, U]) -> T | MachineError:
        try:
            return work(item[1])
        except MachineError as error:
            return error

    pool = WorkerPool(tuple(items.items()), attempt, workers=workers, name="host")
    results: dict[str, T | MachineError] = {}
    try:
        pool.start()
        while len(results) < len(items):
            (name, _), result = pool.result()
            results[name] = result
            if on_progress is not None:
                on_progress(len(results))
    except BaseException:
        pool.stop()
        stop()
        pool.join(_STOPPING_S)
        stop()  # again, for work that started just before
        raise
    return {name: results[name] for name in items}


def require_all(results: Results[T]) -> dict[str, T]:
    """Return the results. Raise MachineError with the errors and hints of all hosts that failed."""
    if failures := failed(results):
        raise _error_of_all(failures)
    return succeeded(results)


def failed(results: Results[T]) -> dict[str, MachineError]:
    """Return why work failed, of what it failed for."""
    return {name: error for name, error in results.items() if isinstance(error, MachineError)}


def succeeded(results: Results[T]) -> dict[str, T]:
    """Return the results of work that did not fail."""
    return {
        name: result for name, result in results.items() if not isinstance(result, MachineError)
    }


def _error_of_all(failures: Mapping[str, MachineError]) -> MachineError:
    """Return one error with the sentences and the hints of the first that failed.

    A hint that is the same for all is said once, different ones with the names of their hosts.
    """
    shown = list(failures)[:_MAX_SHOWN]
    sentences = [str(failures[name]) for name in shown]
    more = len(failures) - len(shown)
    if more:
        sentences.append(f"And {more} more hosts.")
    hints = {name: failures[name].hint for name in shown if failures[name].hint}
    if len(set(hints.values())) > 1:
        hints = {name: f"For {name}: {hint}" for name, hint in hints.items()}
    hint = " ".join(distinct(filter(None, hints.values())))
    return MachineError(" ".join(sentences), hint=hint or None)


_MAX_QUEUED = 8
"""Items. The next one blocks, and with it the connection and the remote programs that print."""


class Item(NamedTuple):
    """What a thread passes on: lines, the end of a program, or an error."""

    program: Program | None = None  # None: a debug file
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
        """Add an item as soon as there is room. Raise QueueClosedError if no thread reads."""
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._items.put(item, timeout=_WAKE_S)
                return
        raise QueueClosedError

    def get(self, timeout_s: float) -> Item | None:
        """Return the next item; None: none in time. Raise the error of a thread that failed."""
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
            with suppress(QueueClosedError):
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - raised in the thread that reads
                    self.put(Item(error=error))

        in_background(guarded, name="follows")
