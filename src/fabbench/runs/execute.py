"""Carry out a plan: lines from the hosts into the store, and through the parser to the watcher.

A line is in the store before anybody sees what it says. However a run ends, what was measured until then is
judged and returned.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from fabbench.counters.execution_counters import (
    ExecutionCounters,
    Pair,
    PrintedCounters,
    expected_nics,
    judged,
)
from fabbench.counters.snapshot import Snapshot, Traffic, difference, read_snapshot
from fabbench.evidence.judge import refusal
from fabbench.execution.session import FloodedError, OutputLimit
from fabbench.launchers import Allocation
from fabbench.logs.demux import RestartDetector
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LogParser, Result
from fabbench.model.compat import override
from fabbench.model.errors import FabbenchError
from fabbench.model.log import MARKER_SIGN, Ending, Log, Point, own_line, read_marker
from fabbench.model.plan import Execution, Plan
from fabbench.runs.store import ExecutionWriter, RunWriter, nothing_read

EVERY_S = 2.0
"""How often those who watch are told; seldomer where looking takes its time."""
_PART = 20
"""Looking takes at most one part in so many of the time."""

View = Callable[[Mapping[str, Traffic]], None]
"""Is told what the NICs of the fabric moved since it was last told, by host. May be called in a thread."""


class CounterSampler:
    """The NICs of a place during one execution."""

    def __init__(self, allocation: Allocation, execution: Execution, view: View | None) -> None:
        self._allocation = allocation
        self._view = view
        self._remote = allocation.remote
        hosts = allocation.inventory.seen_by(execution.configuration.variant)
        expected, among = expected_nics(execution, hosts)
        self.counters = ExecutionCounters(expected=expected, among=among, hosts={})
        self._printed = PrintedCounters(execution.id)
        self._cut = Prefixes().cut
        self._names = (
            [hosts[0].name] if any(host.virtual for host in hosts) else [host.name for host in hosts]
        )
        self._last: Mapping[str, Snapshot] = {}
        self._next = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def begin(self) -> ExecutionCounters:
        """Take the snapshot before the execution, and begin to look."""
        taken = self._taken()
        pairs = {name: Pair(taken.get(name), None) for name in self._all(taken)}
        self.counters = replace(self.counters, hosts=pairs)
        self._last, self._next = taken, time.monotonic() + EVERY_S
        if self._view is not None and self._remote:
            threading.Thread(target=self._look_on, name="fabbench counters", daemon=True).start()
        return self.counters

    def look(self) -> None:
        """Tell who watches, if it is time. For between lines; where a thread looks, this does nothing."""
        if self._view is not None and not self._remote and time.monotonic() >= self._next:
            self._look(self._view)

    def printed(self, line: str) -> bool:
        """Read a line of the execution; return whether it holds counters that a job's script printed."""
        marker = read_marker(self._cut(line)[0]) if MARKER_SIGN in line else None
        if marker is None or marker.kind != "nics":
            return False
        self._printed.take(marker)
        return True

    def end(self) -> ExecutionCounters:
        """Take the snapshot after the execution. Nobody is told anything from now on."""
        with self._lock:
            self._over.set()
        if self._printed.counters is not None:
            self.counters = self._printed.counters
            return self.counters
        taken = self._taken()
        pairs = self.counters.hosts
        before = {name: pairs[name].before if name in pairs else None for name in self._all(taken, pairs)}
        self.counters = replace(
            self.counters, hosts={name: Pair(first, taken.get(name)) for name, first in before.items()}
        )
        return self.counters

    def _all(self, *found: Mapping[str, object]) -> Sequence[str]:
        return list(dict.fromkeys([*self._names, *(name for names in found for name in names)]))

    def _taken(self) -> dict[str, Snapshot]:
        """Take a snapshot of all hosts that answer; note why there is none of any."""
        try:
            return {
                host: read_snapshot(lines) for host, lines in self._allocation.counters().items() if lines
            }
        except (FabbenchError, OSError) as error:
            failures = dict.fromkeys((*self.counters.failures, str(error)))
            self.counters = replace(self.counters, failures=tuple(failures))
            return {}

    def _look_on(self) -> None:
        """Look until the execution is over."""
        view = self._view
        while view is not None and not self._over.wait(max(0.0, self._next - time.monotonic())):
            self._look(view)

    def _look(self, view: View) -> None:
        begun = time.monotonic()
        try:
            lines = self._allocation.counters()
        except (FabbenchError, OSError):
            lines = {}
        now = {host: read_snapshot(texts) for host, texts in lines.items() if texts}
        moved = {
            host: difference(self._last[host], taken) for host, taken in now.items() if host in self._last
        }
        ended = time.monotonic()
        self._next = max(begun + EVERY_S, ended + _PART * (ended - begun))
        self._last = now
        own = self.counters.of_fabric(moved)
        with self._lock:
            if not self._over.is_set():
                view(own)


_SETTLING = (
    "Using network",
    "Selected provider",
    "Selected Provider",
    "NET/IB : Using",
    "NET/Socket : Using",
)
_AROUND = 1 << 16
"""Bytes and lines that are allowed for what stands around steps."""
_INTERRUPTED = "fabbench was interrupted before this execution ended."


class Watcher(Protocol):
    """Is notified of what happens, as it happens."""

    def begin(self, execution: Execution, number: int) -> None:
        """Take note that an execution begins; `number` counts from 1."""

    def point(self, execution: Execution, point: Point) -> None:
        """Take note of a row."""

    def read(self, execution: Execution, log: Log) -> None:
        """Take note that the output of a program was read to its end; an execution may have several."""

    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        """Take note that an execution has ended, and of how it is judged."""

    def looked(self, sentence: str) -> None:
        """Take note of what is undecided, where repeats go on until nothing is."""

    @property
    def nics(self) -> View | None:
        """Who is told every few seconds what the NICs move; None: nobody."""


class NullWatcher(Watcher):
    """A watcher that shows nothing, and passes on what NICs move to `nics`, if there is one."""

    def __init__(self, nics: View | None = None) -> None:
        self._nics = nics

    @override
    def begin(self, execution: Execution, number: int) -> None:
        pass

    @override
    def point(self, execution: Execution, point: Point) -> None:
        pass

    @override
    def read(self, execution: Execution, log: Log) -> None:
        pass

    @override
    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        pass

    @override
    def looked(self, sentence: str) -> None:
        pass

    @property
    @override
    def nics(self) -> View | None:
        return self._nics


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """What came of a plan."""

    logs: Mapping[str, tuple[Log, ...]]
    """Label of a configuration → its judged logs, in order."""
    interrupted: bool = False
    failure: FabbenchError | None = None
    """What made it impossible to go on."""


def carry_out(  # noqa: PLR0913 - a run, who looks on, and how it ends early
    plan: Plan,
    allocation: Allocation,
    writer: RunWriter,
    watcher: Watcher,
    *,
    keep_going: bool = False,
    enough: Callable[[int, Mapping[str, Sequence[Log]]], bool] | None = None,
) -> PlanResult:
    """Run all executions in order. Ctrl-C and errors end it early; they are part of the result.

    `enough` says after each execution whether it was the last that it takes.

    An execution on the wrong network is aborted at once, unless `keep_going`.
    """
    logs: dict[str, list[Log]] = {configuration.label: [] for configuration in plan.configurations}
    interrupted, failure = False, None
    try:
        for number, execution in enumerate(plan.executions, 1):
            watcher.begin(execution, number)
            with writer.execution(execution) as stored:
                running = RunningExecution(execution, stored, watcher, stops_off_fabric=not keep_going)
                done = running.run(
                    plan.benchmark, allocation, CounterSampler(allocation, execution, watcher.nics)
                )
            interrupted, failure = running.interrupted, running.failure
            logs[execution.configuration.label] += done
            watcher.end(execution, done)
            if interrupted or failure is not None:
                break
            if enough is not None and enough(number, logs):
                writer.decided(plan.executions[:number])
                break
    except KeyboardInterrupt:
        interrupted = True
    except FabbenchError as error:
        failure = error
    done_logs = {label: tuple(found) for label, found in logs.items()}
    return PlanResult(logs=done_logs, interrupted=interrupted, failure=failure)


class RunningExecution:
    """One execution that is going on."""

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
        self._begun = RestartDetector()

    def run(self, benchmark: str, allocation: Allocation, nics: CounterSampler) -> tuple[Log, ...]:
        """Run the execution, and judge it however it ends."""
        ending = self._executed(benchmark, allocation, nics)
        self._counted(nics)
        self._take(self._parser.close(ending))
        logs = tuple(self._logs) or (nothing_read(benchmark, self._output, self._execution.proof, ending),)
        logs = judged(logs, nics.counters if nics.counters.hosts else None)
        try:
            self._writer.finish(ending, logs)
        except FabbenchError as error:
            self.failure = self.failure or error
        return logs

    def _executed(self, benchmark: str, allocation: Allocation, nics: CounterSampler) -> Ending:
        """Run the execution, and return how it ended."""
        execution = self._execution
        try:
            # It may have to make the machines ready; its lines come later.
            with closing(allocation.execute(execution)) as lines:
                self._writer.counters(nics.begin())
                return self._follow(lines, benchmark, nics)
        except KeyboardInterrupt:
            self.interrupted = True
            return Ending(stopped=_INTERRUPTED, planned_sizes=execution.planned_sizes)
        except FabbenchError as error:
            self.failure = error
            return Ending(
                stopped=f"fabbench could not continue: {error}", planned_sizes=execution.planned_sizes
            )

    def _counted(self, nics: CounterSampler) -> None:
        """Store what the NICs moved."""
        try:
            self._writer.counters(nics.end())
        except KeyboardInterrupt:
            self.interrupted = True
        except FabbenchError as error:
            self.failure = self.failure or error

    def _follow(self, lines: Generator[str, None, Ending], benchmark: str, nics: CounterSampler) -> Ending:
        """Store each line, then read it. Closing `lines` early ends what runs."""
        # Sessions and scripts count too, and end the step. This is for whatever else prints.
        limit = OutputLimit(above=_AROUND)
        while True:
            try:
                line = next(lines)
                limit.count(line)
            except StopIteration as end:
                ending: Ending = end.value
                return ending
            except FloodedError as flood:
                return self._flooded(flood)
            if nics.printed(line):
                continue
            if self._begun.restarted(line):
                self._begin_anew()
            self._writer.write(line)
            self._take(self._parser.feed(line))
            nics.look()
            if self._stops_off_fabric and (why := self._off_fabric(line, benchmark)):
                return Ending(refused=why, planned_sizes=self._execution.planned_sizes)

    def _flooded(self, flood: FloodedError) -> Ending:
        """Say in the log why it ends."""
        why = f"The execution was aborted: {flood}."
        self._writer.write(own_line(why))
        self._take(self._parser.feed(own_line(why)))
        return Ending(timed_out=why, planned_sizes=self._execution.planned_sizes)

    def _begin_anew(self) -> None:
        """Forget what was measured: a job that was requeued begins the execution again."""
        self._writer.begin_anew()
        self._parser = LogParser(str(self._output), proof=self._execution.proof)
        self._logs.clear()

    def _off_fabric(self, line: str, benchmark: str) -> str:
        """Return why the execution need not go on, once a line settles the network."""
        if not any(word in line for word in _SETTLING):
            return ""
        why = refusal(self._parser.stated(), self._execution.proof, benchmark)
        return f"{why} fabbench then aborted it." if why else ""

    def _take(self, read: list[Result]) -> None:
        for result in read:
            if isinstance(result, Log):
                self._logs.append(result)
                self._watcher.read(self._execution, result)
            else:
                self._watcher.point(self._execution, result)
