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
from fabbench.execution.background import in_background
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.errors import FabbenchError
from fabbench.model.hosts import Host
from fabbench.model.log import MARKER_SIGN, read_marker
from fabbench.model.mappings import HostLines, distinct
from fabbench.model.plan import Execution

Read: TypeAlias = Callable[[], HostLines]
"""Returns the counters of hosts that answer, as lines."""
View: TypeAlias = Callable[[Mapping[str, Traffic]], None]
"""Gets the traffic since its last call, by host, in a thread."""
EVERY_S = 2.0
"""How often a view is called; less often where sampling takes long."""
_PAUSE_FACTOR = 20
"""How many times as long as sampling took the pause after it is at least."""


class NicSampler:
    """Samples the NIC counters of the hosts of an execution."""

    def __init__(
        self, execution: Execution, hosts: Sequence[Host], read: Read, view: View | None = None
    ) -> None:
        self.counters = ExecutionCounters(asked=expected_nics(execution, hosts), hosts={})
        self._read = read
        self._view = view
        # Virtual hosts are parts of one machine.
        machines = hosts[:1] if any(host.virtual for host in hosts) else hosts
        self._names = [host.name for host in machines]
        self._printed = PrintedCounters(execution.id)
        self._cut = Prefixes().cut  # Returns the text of a line, and where it is from
        self._before: dict[str, Snapshot] = {}  # Host → its counters before the execution
        self._failures: dict[str, None] = {}  # Sentences, each once
        self._lock = threading.Lock()
        self._sampling_over = threading.Event()

    def begin(self) -> ExecutionCounters:
        """Take the snapshot before the execution, and start sampling if there is a view."""
        self._before = self._snapshots()
        if view := self._view:
            in_background(self._sample_until_end, view, name="counters")
        return self._record_difference(after={})  # all that is known if the execution is lost

    def take_printed(self, line: str) -> bool:
        """Keep the counters that a job's script printed, if a line has them; return whether."""
        if MARKER_SIGN not in line:
            return False
        text, *_ = self._cut(line)
        marker = read_marker(text)
        if marker is None or marker.kind != "nics":
            return False
        self._printed.take(marker)
        return True

    def end(self) -> ExecutionCounters:
        """Take the snapshot after the execution. The view gets no more updates."""
        with self._lock:
            self._sampling_over.set()
        # What the job's own script printed is of the nodes that ran it.
        self.counters = self._printed.counters or self._record_difference(self._snapshots())
        return self.counters

    def _record_difference(self, after: Mapping[str, Snapshot]) -> ExecutionCounters:
        """Pair the snapshots before and `after` by host; a host without one has None there."""
        names = distinct([*self._names, *self._before, *after])
        hosts = {name: Pair(self._before.get(name), after.get(name)) for name in names}
        failures = tuple(self._failures)
        self.counters = replace(self.counters, hosts=hosts, failures=failures)
        return self.counters

    def _snapshots(self) -> dict[str, Snapshot]:
        """Take snapshots of all hosts that answer; record the error if there are none."""
        try:
            printed = self._read()
            return {host: read_snapshot(lines) for host, lines in printed.items() if lines}
        except (FabbenchError, OSError) as error:
            self._failures[str(error)] = None
            return {}

    def _sample_until_end(self, view: View) -> None:
        """Call the view again and again with what moved, until the execution is over."""
        last = self._before
        wait_s = EVERY_S
        while not self._sampling_over.wait(wait_s):
            started = time.monotonic()
            now = self._snapshots()
            in_both = [host for host in now if host in last]
            moved = {host: difference(last[host], now[host]) for host in in_both}
            took_s = time.monotonic() - started
            last = now
            # Where sampling takes long it is seldom, so that it is no load beside the benchmark.
            wait_s = max(EVERY_S - took_s, _PAUSE_FACTOR * took_s)
            with self._lock:  # after `end` the view gets none
                if not self._sampling_over.is_set():
                    view(self.counters.of_fabric(moved))
