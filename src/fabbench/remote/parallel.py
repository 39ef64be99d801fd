"""Runs the same work on many hosts concurrently, in a few threads."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fabbench.execution.worker_pool import WorkerPool
from fabbench.model.errors import MachineError
from fabbench.remote.ssh_transport import SshTransport

WORKERS = 32  # Number of hosts that are processed concurrently

_STOPPING_S = 1.0  # How long to wait for the threads of an interrupted call: one may hang in a name lookup

T = TypeVar("T")
U = TypeVar("U")


def connect_all(
    hosts: Sequence[SshTransport], on_progress: Callable[[int], None] | None = None
) -> dict[str, SshTransport | MachineError]:
    """Connect to hosts: name → connection or error. `on_progress` gets the number of hosts done.

    Ctrl-C (any exception in this thread) closes all connections at once and is passed on.
    """

    def connect(host: SshTransport) -> SshTransport:
        host.connect()
        return host

    def close() -> None:
        for host in hosts:
            host.close()

    return map_hosts({host.name: host for host in hosts}, connect, WORKERS, on_progress, stop=close)


def map_hosts(
    items: Mapping[str, U],
    work: Callable[[U], T],
    workers: int = WORKERS,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], None] = lambda: None,
) -> dict[str, T | MachineError]:
    """Call `work` with each item, and return name → result or MachineError. Raise any other error.

    `on_progress` gets the number of items done; `stop` unblocks work in progress if the caller is interrupted.
    """

    def attempt(item: tuple[str, U]) -> T | MachineError:
        try:
            return work(item[1])
        except MachineError as error:
            return error

    pool = WorkerPool(tuple(items.items()), attempt, workers=workers, name="ssh")
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
