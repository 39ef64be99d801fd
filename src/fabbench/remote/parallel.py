"""Runs the same work on many hosts concurrently, in a few threads."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Connection
from fabbench.remote.ssh_config import SshSettings

WORKERS = 32
"""Number of hosts that are processed concurrently."""

_STOPPING_S = 1.0
_WAKE_S = 0.25

T = TypeVar("T")
U = TypeVar("U")


def connect_all(
    settings: Sequence[SshSettings],
    *,
    accept_new: bool,
    workers: int = WORKERS,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Connection | MachineError]:
    """Connect to hosts: name → connection or error. Hosts behind a jump host share its connection.

    `on_progress` gets the number of hosts done. Ctrl-C (any exception in this thread) closes all connections
    at once and is passed on.
    """
    jumps: dict[SshSettings, Connection] = {}
    connections = {one.name: _connection(one, jumps, accept_new=accept_new) for one in settings}

    def connect(connection: Connection) -> Connection:
        connection.connect()
        return connection

    try:
        return _work(connections, connect, workers, on_progress, stop=lambda: _close(connections, jumps))
    finally:
        for connection in connections.values():
            if not connection.alive:
                connection.close()


def map_hosts(
    items: Mapping[str, U], work: Callable[[U], T], workers: int = WORKERS
) -> dict[str, T | MachineError]:
    """Call `work` with each item, and return name → result or MachineError. Raise any other error."""
    return _work(items, work, workers)


def _connection(
    settings: SshSettings, jumps: dict[SshSettings, Connection], *, accept_new: bool
) -> Connection:
    """Make a connection, sharing the connections to its jump hosts with the others."""
    via: Connection | None = None
    for jump in settings.jumps:
        if jump not in jumps:
            jumps[jump] = Connection(jump, accept_new=accept_new, via=via)
        via = jumps[jump]
    return Connection(settings, accept_new=accept_new, via=via)


def _close(connections: Mapping[str, Connection], jumps: Mapping[SshSettings, Connection]) -> None:
    for connection in (*connections.values(), *jumps.values()):
        connection.close()


class _Pool(Generic[T, U]):
    """Worker threads that process items. One that hangs does not keep fabbench from exiting."""

    def __init__(self, items: Mapping[str, U], work: Callable[[U], T], workers: int) -> None:
        self._work = work
        self._stopped = threading.Event()
        self._todo: queue.SimpleQueue[tuple[str, U]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[str, T | Exception]] = queue.SimpleQueue()
        for item in items.items():
            self._todo.put(item)
        names = (f"fabbench ssh {number}" for number in range(min(workers, len(items))))
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def result(self) -> tuple[str, T | MachineError]:
        """Wait for the next result. Raise any error but MachineError."""
        while True:
            # Not one long wait: a Ctrl-C just before it would be handled only after it.
            with contextlib.suppress(queue.Empty):
                name, result = self._done.get(timeout=_WAKE_S)
                break
        if isinstance(result, Exception) and not isinstance(result, MachineError):
            raise result
        return name, result

    def stop(self) -> None:
        """Take no more items."""
        self._stopped.set()

    def join(self) -> None:
        """Wait briefly for the threads to end: one may hang in a name lookup."""
        deadline = time.monotonic() + _STOPPING_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                name, item = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._done.put((name, self._work(item)))
            except Exception as error:  # noqa: BLE001 - raised or returned in the calling thread
                self._done.put((name, error))


def _work(
    items: Mapping[str, U],
    work: Callable[[U], T],
    workers: int,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], None] = lambda: None,
) -> dict[str, T | MachineError]:
    """Call `work` with each item. `stop` unblocks work in progress if the caller is interrupted."""
    pool = _Pool(items, work, workers)
    results: dict[str, T | MachineError] = {}
    try:
        pool.start()
        while len(results) < len(items):
            name, result = pool.result()
            results[name] = result
            if on_progress is not None:
                on_progress(len(results))
    except BaseException:
        pool.stop()
        stop()
        pool.join()
        stop()  # again, for work that started just before
        raise
    return {name: results[name] for name in items}
