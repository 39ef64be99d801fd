"""Groups perftest's processes into runs of server and client."""

from collections.abc import Iterator, Sequence

from fabbench.benchmarks import LogReadings, Reader
from fabbench.benchmarks.commands import as_fact
from fabbench.benchmarks.executions import join_processes
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.perftest import EFA_DATAGRAMS
from fabbench.benchmarks.perftest.processes import Process, Terminal
from fabbench.model.compat import override
from fabbench.model.log import NO_STEP, Line, Marker, MutableFacts, Record, Stream
from fabbench.model.patterns import lazy

# rdma-core names no other device like this: an InfiniBand device is ibp0s1, a RoCE device rocep0s1.
_EFA_DEVICES = lazy(r"(?:rdmap\d+s\d+|efa_\d+)(?:, (?:rdmap\d+s\d+|efa_\d+))*")


class PerftestReader(Reader):
    """Reads all stream groups together."""

    def __init__(self) -> None:
        self._terminals: dict[Stream, Terminal] = {}
        # Numbers, which ascend, of the runs that are not over → their processes so far
        self._runs: dict[int, list[Process]] = {}
        # The run of the last grouped process of each stream
        self._run_of: dict[Stream, int] = {}
        self._step = NO_STEP
        """The last one that fabbench marked."""

    @override
    def feed(self, line: Line) -> LogReadings | None:
        terminal = self._terminals.get(line.stream)
        if terminal is None:
            terminal = self._terminals[line.stream] = Terminal(line.stream, self._step)
        before = terminal.process  # which the line may end
        readings = terminal.feed(line)
        if readings is None:
            return None
        process = terminal.process
        # A process is grouped as soon as its side is known, or when another one begins.
        ended = [before] if before is not process else []
        with_side = [process] if process is not None and process.is_side_shown else []
        return [*readings, *self._group(*ended, *with_side)]

    @override
    def mark(self, marker: Marker) -> LogReadings:
        if marker.kind != "begin":
            return ()
        # Return what this step ends: the readings of earlier processes.
        is_ours = marker.facts.get("benchmark") == "perftest"
        before = self._step
        # All steps of one execution of fabbench are one run, number 0: it goes on in this step.
        if is_ours and before.execution == marker.execution:
            readings: LogReadings = self._end_terminals()
        else:
            readings = self.close()
            self._runs = {0: []} if is_ours else {}
        self._step = marker if is_ours else NO_STEP
        return readings

    @override
    def close(self) -> LogReadings:
        ended = self._end_terminals()
        runs = self._runs
        self._runs = {}
        self._step = NO_STEP
        return [*ended, *map(_record, runs.values())]

    def _end_terminals(self) -> Sequence[Record]:
        # No stream goes on; return the records that are complete by that.
        ended = self._group(*(terminal.process for terminal in self._terminals.values()))
        self._terminals = {}
        self._run_of = {}
        return ended

    def _group(self, *processes: Process | None) -> Sequence[Record]:
        """Assign processes to their peers' runs, and the k-th ones of all ranks to one.

        Return the records of the runs that are over.
        """
        records: list[Record] = []
        for process in processes:
            if process is not None and not process.is_grouped:
                process.is_grouped = True
                run = self._run_number(process)
                self._runs.setdefault(run, []).append(process)
                self._run_of[process.stream] = run
                over = self._runs.keys() - self._open_runs()
                records += (_record(self._runs.pop(number)) for number in sorted(over))
        return records

    def _run_number(self, process: Process) -> int:
        """Return the number of the run that a process is of, which may be a new one."""
        stream = process.stream
        run_before = self._run_of.get(stream)
        last = max(self._runs, default=-1)  # -1: there is none, and the first is number 0
        new_run = last + 1
        if not stream.rank and not stream.side and self._step is NO_STEP:
            # Nothing tells processes apart but what they print.
            return next(self._runs_of_peers(process), new_run)
        # The next process of a stream is of the next run, unless fabbench's step says that it is of
        # the same; the first one is of the run that others have begun.
        runs_further = 1 if self._step is NO_STEP else 0
        run = max(last, 0) if run_before is None else run_before + runs_further
        others = self._runs.get(run, ())
        return run if all(map(process.may_run_with, others)) else new_run

    def _runs_of_peers(self, process: Process) -> Iterator[int]:
        """Yield the runs of one process that is the other side of `process`."""
        for run, processes in self._runs.items():
            if len(processes) == 1 and processes[0].is_peer(process):
                yield run

    def _open_runs(self) -> set[int]:
        """Return the runs that more processes may be of: the latest one, and each stream's last."""
        return {max(self._runs), *self._run_of.values()}


# ---------------------------------------------------------------- processes → a record


def _record(processes: Sequence[Process]) -> Record:
    # The record of a run: what its server and client printed, of each rail or rank.
    record = Record(benchmark="perftest", facts={})
    for process in processes:
        _merge(record, process.finish())
    record.facts = _facts(processes)
    record.finished = _is_finished(processes)
    join_processes(record, processes)
    _name_transport(record)
    _add_doubts(record)
    return record


def _merge(record: Record, other: Record) -> None:
    """Add what a process reported."""
    record.benchmark = other.benchmark  # fabtests where a script's summary is of it
    record.case = record.case or other.case
    record.incomplete = record.incomplete or other.incomplete
    record.off_fabric = record.off_fabric or other.off_fabric
    record.wrong += other.wrong
    record.damaged += other.damaged
    record.failures += (failure for failure in other.failures if failure not in record.failures)
    record.findings += (found for found in other.findings if found not in record.findings)


def _facts(processes: Sequence[Process]) -> MutableFacts:
    """Return the facts of all processes; different values of one are joined by commas."""
    values: dict[str, dict[str | int, None]] = {}  # fact → its different values, in order
    for process in processes:
        for name, value in process.record.facts.items():
            values.setdefault(name, {})[value] = None
    facts: MutableFacts = {}
    for name, different in values.items():
        first, *others = different
        facts[name] = ", ".join(map(str, different)) if others else first
    # These make sense only with a single value.
    rows = [row for process in processes for row in process.rows]
    for name in ("iterations", "cpu_util"):
        cells = {row.cell(name) for row in rows} - {""}  # empty: the table has no such column
        match [*cells]:
            case [cell]:
                facts[name] = as_fact(cell)
    return facts


def _is_finished(processes: Sequence[Process]) -> bool | None:
    """Return whether all processes with rows have finished; None: no end is expected."""
    of_tables = [process.record.finished for process in processes if process.rows]
    expected = [finished for finished in of_tables if finished is not None]
    return all(expected) if expected else None


def _name_transport(record: Record) -> None:
    """Tell apart what perftest prints alike: the transports called UD, and two programs."""
    facts = record.facts
    transport = facts.get("transport")
    if transport == "UD" and _EFA_DEVICES.fullmatch(str(facts.get("device"))):
        facts["transport"] = EFA_DATAGRAMS
    # raw_ethernet_bw prints the title of ib_send_bw.
    if transport == "RawEth" and record.case in {"ib_send_bw", "ib_send_lat"}:
        record.case = record.case.replace("ib_send", "raw_ethernet")


def _add_doubts(record: Record) -> None:
    """Add findings about what is unknown: the way of a time, or the test."""
    latencies = [point for point in record.points if "latency" in point.metrics]
    # Only the summary of a script sets this fact, to unknown: its finding is there already.
    is_of_summary = "size" in record.facts
    # One way or round trip: nothing says it. That finding has the advice on an unknown test, too.
    if any("way" not in point.labels for point in latencies):
        record.facts["way"] = "ambiguous"
        record.findings.append(finding("way-ambiguous"))
    elif record.points and record.case is None and not is_of_summary:
        record.findings.append(finding("test-unknown"))
