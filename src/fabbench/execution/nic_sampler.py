"""The NIC counters of hosts before and after one execution, and their traffic while it runs."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from fabbench.counters.execution_counters import (
    ExecutionCounters,
    Pair,
    PrintedCounters,
    expected_nics,
)
from fabbench.counters.snapshot import Snapshot, Traffic, difference, read_snapshot
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.errors import FabbenchError
from fabbench.model.hosts import Host
from fabbench.model.log import MARKER_SIGN, read_marker
from fabbench.model.plan import Execution

Read: TypeAlias = Callable[
    [], Mapping[str, Sequence[str]]
]  # Returns the counters of hosts that answer, as lines
View: TypeAlias = Callable[
    [Mapping[str, Traffic]], None
]  # Gets the traffic since its last call, by host, in a thread
EVERY_S = 2.0  # how often a view is called; less often where sampling takes long
_MAX_SHARE = 20  # sampling takes at most one part in this many of the time


class NicSampler:
    """Samples the NIC counters of the hosts of an execution."""

    def __init__(
        self, execution: Execution, hosts: Sequence[Host], read: Read, view: View | None = None
    ) -> None:
        self.counters = ExecutionCounters(asked=expected_nics(execution, hosts), hosts={})
        self._read, self._view = read, view
        self._names = [
            host.name for host in (hosts[:1] if any(each.virtual for each in hosts) else hosts)
        ]
        self._printed, self._cut = PrintedCounters(execution.id), Prefixes().cut
        self._before, self._failures = dict[str, Snapshot](), dict[str, None]()
        self._lock, self._over = threading.Lock(), threading.Event()

    def begin(self) -> ExecutionCounters:
        """Take the snapshot before the execution, and start sampling if there is a view."""
        self._before = self._snapshots()
        if view := self._view:
            threading.Thread(
                target=lambda: self._sample(view), name="fabbench counters", daemon=True
            ).start()
        return self._counted({})

    def printed(self, line: str) -> bool:
        """Read a line of the execution.

        Return whether it holds counters that a job's script printed.
        """
        marker = read_marker(self._cut(line)[0]) if MARKER_SIGN in line else None
        if marker is None or marker.kind != "nics":
            return False
        self._printed.take(marker)
        return True

    def end(self) -> ExecutionCounters:
        """Take the snapshot after the execution. The view gets no more updates."""
        with self._lock:
            self._over.set()
        self.counters = self._printed.counters or self._counted(self._snapshots())
        return self.counters

    def _counted(self, after: Mapping[str, Snapshot]) -> ExecutionCounters:
        names = dict.fromkeys([*self._names, *self._before, *after])
        hosts = {name: Pair(self._before.get(name), after.get(name)) for name in names}
        self.counters = replace(self.counters, hosts=hosts, failures=tuple(self._failures))
        return self.counters

    def _snapshots(self) -> dict[str, Snapshot]:
        """Take snapshots of all hosts that answer; record the error if there are none."""
        try:
            return {host: read_snapshot(lines) for host, lines in self._read().items() if lines}
        except (FabbenchError, OSError) as error:
            self._failures[str(error)] = None
            return {}

    def _sample(self, view: View) -> None:
        last, wait_s = self._before, EVERY_S
        while not self._over.wait(wait_s):
            started, now = time.monotonic(), self._snapshots()
            moved = {
                host: difference(last[host], taken) for host, taken in now.items() if host in last
            }
            took = time.monotonic() - started
            last, wait_s = now, max(EVERY_S - took, _MAX_SHARE * took)
            with self._lock:
                if not self._over.is_set():
                    view(self.counters.of_fabric(moved))
