"""The same work on many hosts at once, by a few threads."""

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
"""How many hosts are worked on concurrently."""

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
    """Connect to hosts, and say for each name what came of it. Hosts behind a jump host share its one.

    `on_progress` gets the number of hosts done. Ctrl-C (any exception in this thread) closes all connections
    at once and is passed on.
    """
    jumps: dict[SshSettings, Connection] = {}
    made = {one.name: _connection(one, jumps, accept_new=accept_new) for one in settings}

    def connect(connection: Connection) -> Connection:
        connection.connect()
        return connection

    try:
        return _work(made, connect, workers, on_progress, stop=lambda: _close(made, jumps))
    finally:
        for connection in made.values():
            if not connection.alive:
                connection.close()


def map_hosts(
    items: Mapping[str, U], what: Callable[[U], T], workers: int = WORKERS
) -> dict[str, T | MachineError]:
    """Call `what` with each host, and return name → result or MachineError. Raise any other error."""
    return _work(items, what, workers)


def _connection(
    settings: SshSettings, jumps: dict[SshSettings, Connection], *, accept_new: bool
) -> Connection:
    """Make a connection, with those to its jump hosts shared with the others'."""
    via: Connection | None = None
    for jump in settings.jumps:
        if jump not in jumps:
            jumps[jump] = Connection(jump, accept_new=accept_new, via=via)
        via = jumps[jump]
    return Connection(settings, accept_new=accept_new, via=via)


def _close(made: Mapping[str, Connection], jumps: Mapping[SshSettings, Connection]) -> None:
    for connection in (*made.values(), *jumps.values()):
        connection.close()


class _Crew(Generic[T, U]):
    """Threads that take items and do something with each. One that hangs does not keep us from ending."""

    def __init__(self, items: Mapping[str, U], what: Callable[[U], T], workers: int) -> None:
        self._what = what
        self._stopped = threading.Event()
        self._todo: queue.SimpleQueue[tuple[str, U]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[str, T | Exception]] = queue.SimpleQueue()
        for item in items.items():
            self._todo.put(item)
        names = (f"fabbench ssh {number}" for number in range(min(workers, len(items))))
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def result(self) -> tuple[str, T | MachineError]:
        """Wait for the next result. Raises any error but MachineError."""
        while True:
            # Not one long wait: a Ctrl-C just before it would be seen after it.
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
        """Wait for the threads to end, a moment: one may hang in a look-up of a name."""
        deadline = time.monotonic() + _STOPPING_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0))

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                name, item = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._done.put((name, self._what(item)))
            except Exception as error:  # noqa: BLE001 - raised, or given, in the thread that asked
                self._done.put((name, error))


def _work(
    items: Mapping[str, U],
    what: Callable[[U], T],
    workers: int,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], None] = lambda: None,
) -> dict[str, T | MachineError]:
    """Do something with each item. `stop` wakes up what is going on, should the caller be interrupted."""
    crew = _Crew(items, what, workers)
    found: dict[str, T | MachineError] = {}
    try:
        crew.start()
        while len(found) < len(items):
            name, one = crew.result()
            found[name] = one
            if on_progress is not None:
                on_progress(len(found))
    except BaseException:
        crew.stop()
        stop()
        crew.join()
        stop()  # for one that began just before
        raise
    return {name: found[name] for name in items}
