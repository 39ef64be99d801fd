"""Groups perftest's processes into executions of server and client."""

from collections.abc import Sequence

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import UNKNOWN_TEST, unmeasured
from fabbench.benchmarks.perftest.process import KNOWN, Process, Terminal
from fabbench.benchmarks.perftest.tables import AMBIGUOUS_WAY, CYCLES
from fabbench.model.compat import override
from fabbench.model.log import Line, Marker, Point, Record, Stream
from fabbench.model.patterns import lazy

EFA_DATAGRAMS = "EFA UD"
"""The fact `transport` of unreliable datagrams over EFA, which perftest prints like InfiniBand's."""
# rdma-core names no other device like this: an InfiniBand device is ibp0s1, a RoCE device rocep0s1.
_EFA_DEVICES = lazy(r"(?:rdmap\d+s\d+|efa_\d+)(?:, (?:rdmap\d+s\d+|efa_\d+))*")


class PerftestExecution:
    """One execution: what its server and its client print."""

    def __init__(self, name: str = "") -> None:
        self.name = name  # as fabbench's markers name it
        self.processes: list[Process] = []

    def finish(self) -> Record:
        """Return the record."""
        for process in self.processes:
            process.finish()
        records = [process.record for process in self.processes]
        benchmark = records[0].benchmark if records else "perftest"
        record = Record(benchmark=benchmark, facts=self._facts(), finished=self._finished())
        printed = [each for process in self.processes for each in zip(process.rows, process.points, strict=True)]
        printed.sort(key=lambda each: each[0].line.number)
        record.points = [point for _, points in printed for point in points]
        record.damaged = sorted(row for each in records for row in each.damaged)
        record.failures = list(dict.fromkeys(sentence for each in records for sentence in each.failures))
        record.findings = list(dict.fromkeys(finding for each in records for finding in each.findings))
        record.incomplete = next((each.incomplete for each in records if each.incomplete), "")
        record.off_fabric = next((each.off_fabric for each in records if each.off_fabric), "")
        record.wrong = sum(each.wrong for each in records)
        record.case = next((each.case for each in records if each.case), None)
        if record.facts.get("transport") == "RawEth" and record.case:
            record.case = f"raw_ethernet_{record.case.rpartition('_')[2]}"
        if any("latency" in point.metrics and "way" not in point.labels for point in record.points):
            record.facts["way"] = "ambiguous"
            record.findings.append(AMBIGUOUS_WAY)
        elif record.points and record.case is None and "size" not in record.facts:
            record.findings.append(UNKNOWN_TEST)
        if CYCLES not in record.findings:
            record.findings += unmeasured(point.size for point in record.points if not point.metrics)
        return record

    def _finished(self) -> bool | None:
        # A process whose end is missing has finished if the other end of its connection has, with the same sizes.
        ended = [each for each in self.processes if each.finished]
        verdicts = {
            each.finished or any(other.is_other_end(each) and other.sizes == each.sizes for other in ended)
            for each in self.processes
            if each.rows and each.finished is not None
        }
        return all(verdicts) if verdicts else None

    def _facts(self) -> dict[str, str | int]:
        values: dict[str, dict[str | int, None]] = {}
        for process in self.processes:
            for name, value in process.record.facts.items():
                values.setdefault(name, {})[value] = None
        facts = {
            name: ", ".join(map(str, each)) if len(each) > 1 else next(iter(each)) for name, each in values.items()
        }
        rows = [row for process in self.processes for row in process.rows]
        # They make sense only with a single value.
        for name in ("iterations", "cpu_util"):
            if len(cells := {row.cell(name) for row in rows} - {""}) == 1:
                facts[name] = int(*cells) if name == "iterations" else cells.pop()
        if facts.get("transport") == "UD" and _EFA_DEVICES.fullmatch(str(facts.get("device"))):
            facts["transport"] = EFA_DATAGRAMS
        return facts


class PerftestReader(Reader):
    """Reads all stream groups together."""

    def __init__(self) -> None:
        self._terminals: dict[Stream, Terminal] = {}
        self._executions: list[PerftestExecution] = []
        self._execution_of: dict[Stream, PerftestExecution] = {}
        self._running: PerftestExecution | None = None  # the one whose steps fabbench marked
        self._step: Marker | None = None  # the last one

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        terminal, stream = self._terminals.get(line.stream), line.stream
        if terminal is None:
            terminal = self._terminals[stream] = Terminal(stream, self._step)
        before = terminal.process
        readings = terminal.feed(line)
        points = None if readings is None else [reading for reading in readings if isinstance(reading, Point)]
        if (process := terminal.process) is not None and process is not before:
            execution = self._execution_of[stream] = self._choose_execution(stream)
            execution.processes.append(process)
        if process is None or terminal.kind not in KNOWN or self._running is not None:
            return points
        return [*(points or ()), *self._settle(process)]

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        # All steps of an execution form one record.
        if marker.kind != "begin":
            return ()
        running, ours = self._running, marker.facts.get("benchmark") == "perftest"
        same = ours and running is not None and running.name == marker.execution
        before = () if same else self.close()
        self._close_terminals()
        if ours:
            running = running if running is not None and same else PerftestExecution(marker.execution)
            self._running, self._step, self._executions = running, marker, [running]
        return before

    @override
    def close(self) -> Sequence[Reading]:
        self._close_terminals()
        executions, self._executions, self._running, self._step = self._executions, [], None, None
        return [each.finish() for each in executions if each.processes or each.name]

    def _close_terminals(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()
        self._terminals, self._execution_of = {}, {}

    def _choose_execution(self, stream: Stream) -> PerftestExecution:
        """Return the execution of a stream's next process: the k-th processes of all streams form one.

        A process without a tag may turn out to be the other side.
        """
        if self._running is not None:
            return self._running
        old, known = self._execution_of.get(stream), self._executions
        if old is None and known:
            return known[-1]
        at = known.index(old) + 1 if old in known else len(known)
        if at == len(known):
            known.append(PerftestExecution())
        return known[at]

    def _settle(self, process: Process) -> Sequence[Record]:
        """Assign a process to an execution now that its side is known; return the executions that have ended."""
        stream, executions = process.stream, self._executions
        at = executions.index(self._execution_of[stream])
        if at and executions[at].processes == [process] and not (stream.rank or stream.side):
            before = executions[at - 1]
            others = [each for each in before.processes if each.stream == stream]
            if len(others) == 1 and others[0].is_peer(process):
                before.processes.append(process)
                self._execution_of[stream] = before
                del executions[at]
        ended = list[Record]()
        while len(executions) > 1 and executions[0] not in self._execution_of.values():
            ended.append(executions.pop(0).finish())
        return ended
