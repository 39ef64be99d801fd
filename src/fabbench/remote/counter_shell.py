"""The NIC counters of hosts, again and again, from one shell on each: nothing is written there."""

import time
from collections.abc import Iterator, Mapping

from fabbench.counters.snapshot import SNAPSHOT, Snapshot, read_snapshot
from fabbench.counters.watch import HostSamples
from fabbench.execution.worker_pool import Results, map_hosts
from fabbench.model.errors import MachineError
from fabbench.remote.transport import ProcessStream, Transport

_ANSWER_S = 10.0
_END = "fabbench ends"
_READ = b"fabbench_counters; echo fabbench ends\n"


class CounterShell:
    """A shell on a host, which ends with the connection."""

    def __init__(self, connection: Transport | MachineError) -> None:
        """Start nothing yet."""
        self._connection = connection
        self._stream: ProcessStream | None = None

    def read(self) -> Snapshot:
        """Read all counters. Raise MachineError."""
        if isinstance(self._connection, MachineError):
            raise self._connection
        if self._stream is None:
            self._stream = self._connection.open(("sh", "-s"))
            self._stream.send(SNAPSHOT.encode())
        self._stream.send(_READ)
        lines = self._stream.answer(self._connection.name, _ANSWER_S, last=_END)
        if _END not in lines:
            raise MachineError(f"No counters came within {_ANSWER_S:.0f} s.")
        # Without `_END`. The loopback counts: a job of one host may use it
        return read_snapshot(lines[:-1], loopback=True)


def rounds(
    connections: Results[Transport],
    hosts: Mapping[str, HostSamples],
    every_s: float,
    for_s: float,
) -> Iterator[Mapping[str, str]]:
    """Sample all hosts at once, and again, into `hosts`; yield those that failed so far → why.

    Those are left out from then on; it ends after `for_s`, or when no host is left.
    """
    shells = {name: CounterShell(each) for name, each in connections.items()}
    failed: dict[str, str] = {}
    due = time.monotonic()
    end = due + for_s + every_s / 2  # A sample due at the very end is still taken
    while shells:
        for name, result in map_hosts(shells, CounterShell.read, len(shells)).items():
            if isinstance(result, Snapshot):
                hosts[name].take(result)
            else:
                failed[name] = str(result)
                shells.pop(name)
        yield failed
        due += every_s
        if due > end:
            return
        time.sleep(max(0.0, due - time.monotonic()))
