"""Carries out a plan: lines go from the hosts to the store, and through the parser to the watcher.

A line is stored before it is parsed or shown. However a run ends, what was measured until then is judged and
returned.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from fabbench.counters.execution_counters import ExecutionCounters, Pair, PrintedCounters, expected_nics
from fabbench.counters.snapshot import Snapshot, Traffic, difference, read_snapshot
from fabbench.evidence.judge import refusal, with_counters
from fabbench.execution.session import FloodedError, OutputLimit
from fabbench.launchers import Allocation
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LogParser, Result
from fabbench.model.errors import FabbenchError, MachineError
from fabbench.model.log import MARKER_SIGN, Ending, Log, Point, own_line, read_marker
from fabbench.model.plan import Execution, Plan
from fabbench.runs.store import ExecutionWriter, RunWriter, nothing_read

EVERY_S = 2.0  # how often watchers are updated; less often where sampling takes long
_MAX_SHARE = 20  # sampling takes at most one part in this many of the time

View = Callable[[Mapping[str, Traffic]], None]
"""Called with the traffic of the fabric's NICs since the last call, by host, in a thread."""


class CounterSampler:
    """Samples the NIC counters of an allocation during one execution."""

    def __init__(self, allocation: Allocation, execution: Execution, view: View | None) -> None:
        self._allocation = allocation
        self._view = view
        hosts = allocation.inventory.hosts_for_variant(execution.configuration.variant)
        self.counters = ExecutionCounters(asked=expected_nics(execution, hosts), hosts={})
        self._printed = PrintedCounters(execution.id)
        self._cut = Prefixes().cut
        self._names = [hosts[0].name] if any(host.virtual for host in hosts) else [host.name for host in hosts]
        self._before: Mapping[str, Snapshot] = {}
        self._last = self._before
        self._next = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def begin(self) -> ExecutionCounters:
        """Take the snapshot before the execution, and start sampling."""
        self._last = self._before = self._take_snapshots()
        self._next = time.monotonic() + EVERY_S
        if self._view is not None:
            sampling = partial(self._keep_sampling, self._view)
            threading.Thread(target=sampling, name="fabbench counters", daemon=True).start()
        return self._counted({})

    def printed(self, line: str) -> bool:
        """Read a line of the execution. Return whether it holds counters that a job's script printed."""
        marker = read_marker(self._cut(line)[0]) if MARKER_SIGN in line else None
        if marker is None or marker.kind != "nics":
            return False
        self._printed.take(marker)
        return True

    def end(self) -> ExecutionCounters:
        """Take the snapshot after the execution. The watcher gets no more updates."""
        with self._lock:
            self._over.set()
        if self._printed.counters is not None:
            self.counters = self._printed.counters
            return self.counters
        return self._counted(self._take_snapshots())

    def _counted(self, after: Mapping[str, Snapshot]) -> ExecutionCounters:
        names = dict.fromkeys([*self._names, *self._before, *after])
        hosts = {name: Pair(self._before.get(name), after.get(name)) for name in names}
        self.counters = replace(self.counters, hosts=hosts)
        return self.counters

    def _snapshots(self) -> dict[str, Snapshot]:
        return {host: read_snapshot(lines) for host, lines in self._allocation.counters().items() if lines}

    def _take_snapshots(self) -> dict[str, Snapshot]:
        """Take snapshots of all hosts that answer; record the error if there are none."""
        try:
            return self._snapshots()
        except (FabbenchError, OSError) as error:
            failures = dict.fromkeys((*self.counters.failures, str(error)))
            self.counters = replace(self.counters, failures=tuple(failures))
            return {}

    def _keep_sampling(self, view: View) -> None:
        while not self._over.wait(max(0.0, self._next - time.monotonic())):
            started, now = time.monotonic(), dict[str, Snapshot]()
            with suppress(FabbenchError, OSError):
                now = self._snapshots()
            moved = {host: difference(self._last[host], taken) for host, taken in now.items() if host in self._last}
            ended = time.monotonic()
            self._next = max(started + EVERY_S, ended + _MAX_SHARE * (ended - started))
            self._last, traffic = now, self.counters.of_fabric(moved)
            with self._lock:
                if not self._over.is_set():
                    view(traffic)


_NETWORK_LINES = ("Using network", "Selected provider", "Selected Provider", "NET/IB : Using", "NET/Socket : Using")
_EXTRA_OUTPUT = 1 << 16  # allowance in bytes and lines for output between steps
_INTERRUPTED = "fabbench was interrupted before this execution ended."


class Watcher(Protocol):
    """Is notified of events as they happen."""

    def begin(self, execution: Execution, number: int) -> None:
        """Handle the start of an execution; `number` counts from 1."""

    def point(self, execution: Execution, point: Point) -> None:
        """Handle a row."""

    def read(self, execution: Execution, log: Log) -> None:
        """Handle the log of a program whose output has ended; an execution may have several."""

    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        """Handle the end of an execution, with its judged logs."""

    def notify(self, sentence: str) -> None:
        """Handle a report of what is undecided, if repeats continue until everything is decided."""

    @property
    def nics(self) -> View | None:
        """Function to call every few seconds with the traffic of the NICs; None if there is none."""


class NullWatcher:
    """A watcher that shows nothing, but passes NIC traffic to `nics` if given."""

    def __init__(self, nics: View | None = None) -> None:
        self.nics = nics

    def begin(self, *_: Any, **__: Any) -> None:
        """Ignore an event."""

    point = read = end = notify = begin


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The result of a plan."""

    logs: Mapping[str, tuple[Log, ...]]  # Label of a configuration → its judged logs, in order
    interrupted: bool = False
    failure: FabbenchError | None = None
    missing: int = 0  # executions that were not finished, of those that were wanted


def carry_out(  # noqa: PLR0913 - a run, its watcher, and how it ends early
    plan: Plan,
    allocation: Allocation,
    writer: RunWriter,
    watcher: Watcher,
    *,
    keep_going: bool = False,
    should_stop: Callable[[int, Mapping[str, Sequence[Log]]], bool] | None = None,
) -> PlanResult:
    """Run all executions in order. Ctrl-C and errors end it early; they are part of the result.

    `should_stop` returns after each execution whether it was the last one needed. An execution on the wrong
    network is aborted at once, unless `keep_going`.
    """
    logs: dict[str, list[Log]] = {configuration.label: [] for configuration in plan.configurations}
    interrupted, failure, missing = False, None, len(plan.executions)
    try:
        for number, execution in enumerate(plan.executions, 1):
            watcher.begin(execution, number)
            done = writer.kept.get(execution.id, ())
            if not done:
                with writer.execution(execution) as stored:
                    running = RunningExecution(execution, stored, watcher, stops_off_fabric=not keep_going)
                    done = running.run(plan.benchmark, allocation, CounterSampler(allocation, execution, watcher.nics))
                interrupted, failure = running.interrupted, running.failure
            missing -= not interrupted and failure is None
            logs[execution.configuration.label] += done
            watcher.end(execution, done)
            if interrupted or failure is not None:
                break
            if should_stop is not None and should_stop(number, logs):
                missing = 0
                writer.decided(plan.executions[:number])
                break
    except KeyboardInterrupt:
        interrupted = True
    except FabbenchError as error:
        failure = error
    frozen = {label: tuple(each) for label, each in logs.items()}
    return PlanResult(logs=frozen, interrupted=interrupted, failure=failure, missing=missing)


class RunningExecution:
    """One execution in progress."""

    def __init__(
        self, execution: Execution, writer: ExecutionWriter, watcher: Watcher, *, stops_off_fabric: bool
    ) -> None:
        self.interrupted = False
        self.failure: FabbenchError | None = None
        self._stops_off_fabric = stops_off_fabric
        self._execution = execution
        self._writer = writer
        self._watcher = watcher
        self._output = writer.path / "output.log"
        self._parser = LogParser(str(self._output), proof=execution.proof)
        self._logs: list[Log] = []

    def run(self, benchmark: str, allocation: Allocation, nics: CounterSampler) -> tuple[Log, ...]:
        """Run the execution, and judge it however it ends."""
        ending = self._run(benchmark, allocation, nics)
        try:
            self._writer.counters(nics.end())
        except KeyboardInterrupt:
            self.interrupted = True
        except FabbenchError as error:
            self.failure = self.failure or error
        self._take(self._parser.close(ending))
        logs = tuple(self._logs) or (nothing_read(benchmark, self._output, self._execution.proof, ending),)
        logs = with_counters(logs, nics.counters if nics.counters.hosts else None)
        try:
            self._writer.finish(ending)
        except FabbenchError as error:
            self.failure = self.failure or error
        return logs

    def _run(self, benchmark: str, allocation: Allocation, nics: CounterSampler) -> Ending:
        execution = self._execution
        try:
            # It may have to prepare the machines first; its lines come later.
            with closing(allocation.execute(execution)) as lines:
                self._writer.counters(nics.begin())
                return self._follow(lines, benchmark, nics)
        except KeyboardInterrupt:
            self.interrupted = True
            return Ending(stopped=_INTERRUPTED, planned_sizes=execution.planned_sizes)
        except FabbenchError as error:
            self.failure = error
            why, lost = f"fabbench could not continue: {error}", isinstance(error, MachineError)
            return Ending(stopped=why, lost=lost, planned_sizes=execution.planned_sizes)

    def _follow(self, lines: Generator[str, None, Ending], benchmark: str, nics: CounterSampler) -> Ending:
        """Store each line, then parse it. Closing `lines` early ends the execution."""
        # Sessions and scripts count too, and end the step. This limits all other output.
        limit = OutputLimit(above=_EXTRA_OUTPUT)
        while True:
            try:
                line = next(lines)
                limit.count(line)
            except StopIteration as end:
                ending: Ending = end.value
                return ending
            except FloodedError as flood:
                why = f"The execution was aborted: {flood}."
                self._writer.write(own_line(why))
                self._take(self._parser.feed(own_line(why)))
                return Ending(timed_out=why, planned_sizes=self._execution.planned_sizes)
            if nics.printed(line):
                continue
            self._writer.write(line)
            self._take(self._parser.feed(line))
            if self._stops_off_fabric and (why := self._off_fabric(line, benchmark)):
                return Ending(refused=why, planned_sizes=self._execution.planned_sizes)

    def _off_fabric(self, line: str, benchmark: str) -> str:
        """Return why the execution need not continue, once a line shows the network."""
        if not any(word in line for word in _NETWORK_LINES):
            return ""
        why = refusal(self._parser.network_so_far(), self._execution.proof, benchmark)
        return f"{why} fabbench then aborted it." if why else ""

    def _take(self, results: list[Result]) -> None:
        for result in results:
            if isinstance(result, Log):
                self._logs.append(result)
                self._watcher.read(self._execution, result)
            else:
                self._watcher.point(self._execution, result)
