"""Splits the lines of a log into perftest processes, and groups them into executions of server and client."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import UNKNOWN_TEST, unmeasured
from fabbench.benchmarks.perftest import findings, process_output
from fabbench.benchmarks.perftest import text as perftest_text
from fabbench.benchmarks.perftest.process_output import ProcessOutput
from fabbench.benchmarks.perftest.table_formats import Number, RowContext, exact, plain, points, read_header
from fabbench.benchmarks.perftest.text import PerftestStatement, Stage, read_command
from fabbench.model.compat import override
from fabbench.model.log import Line, Marker, Point, Record, Stream
from fabbench.model.patterns import lazy

_NUMBERS = frozenset({"qps", "mtu", "gid_index", "iterations", "status"})
EFA_DATAGRAMS = "EFA UD"
"""The fact `transport` of unreliable datagrams over EFA, which perftest prints like InfiniBand's."""
# rdma-core names no other device like this: an InfiniBand device is ibp0s1, a RoCE device rocep0s1.
_EFA_DEVICES = lazy(r"(?:rdmap\d+s\d+|efa_\d+)(?:, (?:rdmap\d+s\d+|efa_\d+))*")


class PerftestExecution:
    """One execution: what its server and its client print."""

    def __init__(self, execution: str = "") -> None:
        self.execution = execution
        self.processes: list[ProcessOutput] = []
        self.step: Marker | None = None
        self._together = ""

    def begin(self, marker: Marker) -> None:
        """Begin a step of an execution that fabbench started."""
        self.step = marker
        self._together = self._together or marker.facts.get("together", "")

    def finish(self) -> Record:
        """Return the record."""
        for process in self.processes:
            process.end()
        results = [process.results for process in self.processes]
        case = next((process.case for process in self.processes if process.case), None)
        record = Record(benchmark="perftest", case=case, finished=self._finished())
        numbered = sorted((entry for each in results for entry in each.points), key=lambda entry: entry[0])
        record.points = [point for _, point in numbered]
        record.damaged = sorted(row for each in results for row in each.damaged)
        failures = sorted((entry for each in results for entry in each.failures), key=lambda entry: entry[0])
        record.failures = list(dict.fromkeys(sentence for _, sentence in failures))
        record.findings = list({finding: None for each in results for finding in each.findings})
        if findings.CYCLES not in record.findings:
            record.findings += unmeasured(point.size for point in record.points if not point.metrics)
        if record.points and record.case is None and findings.AMBIGUOUS_WAY not in record.findings:
            record.findings.append(UNKNOWN_TEST)
        record.incomplete = next((process.incomplete for process in self.processes if process.incomplete), "")
        record.wrong = sum(each.wrong for each in results)
        record.off_fabric = next((process.off_fabric for process in self.processes if process.off_fabric), "")
        record.facts = dict(self._facts())
        if self._together:
            record.facts["together"] = self._together
        if record.facts.get("transport") == "UD" and _EFA_DEVICES.fullmatch(str(record.facts.get("device"))):
            record.facts["transport"] = EFA_DATAGRAMS
        if record.facts.get("transport") == "RawEth" and record.case:
            record.case = f"raw_ethernet_{record.case.rpartition('_')[2]}"
        return record

    def _finished(self) -> bool | None:
        # A process whose end is missing has finished if the other end of its connection has, with the same sizes.
        verdicts = {
            process.finished is not False
            or any(
                other.finished and other.is_other_end(process) and _sizes(other) == _sizes(process)
                for other in self.processes
            )
            for process in self.processes
            if process.results.points and process.finished is not None
        }
        return all(verdicts) if verdicts else None

    def _facts(self) -> Iterator[tuple[str, str | int]]:
        values: dict[str, dict[str, None]] = {}
        for process in self.processes:
            for name, value in process.results.facts:
                values.setdefault(name, {})[value] = None
        for name, each in values.items():
            value = ", ".join(each)
            if len(each) > 1 and name in {"iterations", "cpu_util"}:
                continue  # they make sense only with a single value
            if name in _NUMBERS and value.isascii() and value.isdigit():
                yield name, int(value[:18])
            else:
                yield name, value


def _sizes(process: ProcessOutput) -> set[int]:
    return {point.size for _, point in process.results.points}


_MEAN = lazy(r"\s*Mean BW peak: (\d+\.\d+) Gb/s, Mean BW avg: (\d+\.\d+) Gb/s\s*", re.ASCII)
_TOTAL = lazy(r"\s*Total BW: (\d+(?:\.\d+)?) ?GB/s\s*", re.ASCII)


class ScriptSummary:
    """Reads summary lines of scripts that run a benchmark on every device and print one figure.

    `Mean BW peak: 734.26 Gb/s, Mean BW avg: 733.92 Gb/s` is the mean of `ib_write_bw` over all devices, in
    bits; `Total BW: 278GB/s` is the sum of `fi_rma_bw` over all EFA domains, in bytes, both directions added
    (both from modal-labs/multinode-training-guide: health-checks/modal_bw_ib.py and modal_bw_efa.py). The
    size is not stated, and is given as 0.
    """

    def __init__(self, benchmark: str) -> None:
        self.record = Record(benchmark=benchmark, finished=None, facts={"size": "unknown"})

    def add(self, line: Line) -> list[Point]:
        """Return the points of a line that `summarized_benchmark` recognizes."""
        mean, total = _MEAN.fullmatch(line.text), _TOTAL.fullmatch(line.text)
        if mean is not None:
            results = [
                Number("bandwidth", stat, "", exact(text, Decimal(125_000_000)))
                for stat, text in zip(("peak", ""), mean.groups(), strict=True)
            ]
            new = points(0, results, RowContext(rank=line.stream.rank))
            reason = "A script's summary: the mean over all devices."
        elif total is not None:
            results = [Number("bandwidth", "", "", exact(total[1], Decimal(1_000_000_000)))]
            new = points(0, results, RowContext(rank=line.stream.rank, direction="bi"))
            reason = "A script's summary: the sum over all devices, both directions added."
        else:
            return []
        finding = findings.no_size(reason, line.text.strip())
        if not any(known.meaning == finding.meaning for known in self.record.findings):
            self.record.findings.append(finding)
        self.record.points += new
        return new


def summarized_benchmark(text: str) -> str:
    """Return the benchmark whose figure a summary line states; empty for any other line."""
    if _MEAN.fullmatch(text):
        return "perftest"
    return "fabtests" if _TOTAL.fullmatch(text) else ""


_HEADER = PerftestStatement("header", Stage.TABLE)
_COMMAND = PerftestStatement("command", Stage.START)


class PerftestReader(Reader):
    """Reads all stream groups together."""

    def __init__(self) -> None:
        self._executions: list[PerftestExecution] = []
        self._processes: dict[Stream, ProcessOutput] = {}
        self._execution_of: dict[Stream, PerftestExecution] = {}
        self._step: PerftestExecution | None = None
        self._summary: ScriptSummary | None = None
        self._side_title = ""
        self._version = ""
        self._rules: set[Stream] = set()  # streams whose last unread line was a rule
        self._readings: list[Reading] = []

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        inside = bool(self._executions) or self._summary is not None
        matters = perftest_text.may_matter(line.text) if inside else perftest_text.may_begin(line.text)
        process = self._processes.get(line.stream)
        matters = matters or (process is not None and process.stage is Stage.TABLE)
        if not matters:
            self._note_outside(line)
            return None
        line = line._replace(text=plain(line.text))
        if not self._read(line):
            self._note_outside(line)
            return None
        self._rules.discard(line.stream)
        return self._take_readings()

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        # All steps of an execution form one record.
        step = self._step
        if marker.kind == "begin":
            ours = marker.facts.get("benchmark") == "perftest"
            if not (ours and step is not None and step.execution == marker.execution):
                self._finish()
                step = PerftestExecution(marker.execution) if ours else None
                self._executions = [step] if step is not None else []
            self._step = step
            self._processes, self._execution_of = {}, {}
            if step is not None:
                step.begin(marker)
        elif step is not None and step.execution == marker.execution:
            step.step = None
        return self._take_readings()

    @override
    def close(self) -> Sequence[Reading]:
        self._finish()
        self._side_title, self._version = "", ""
        self._rules.clear()
        return self._take_readings()

    def _read(self, line: Line) -> bool:
        """Read one line; return whether it comes from perftest."""
        text, stream = line.text, line.stream
        process = self._processes.get(stream)
        if process is not None:
            results = process.json(line)
            results = process.row(line) if results is None else results
            if results is not None:
                self._readings += results
                return True
        layout = read_header(text)
        if layout is not None:
            self._process(_HEADER, stream).begin_table(layout, line, ruled=stream in self._rules)
            self._settle_execution(stream)
        elif (statement := perftest_text.read(text)) is not None:
            self._state(statement, line)
        elif process_output.begins(text):
            process = self._process(PerftestStatement("json", Stage.START), stream)
            process.begin_json(line)
            self._readings += process.json(line) or ()
        elif (command := read_command(text)) is not None:
            self._process(_COMMAND, stream, new=True).set_command(command)
        elif (summarized := summarized_benchmark(text)) != "":
            if self._summary is not None and self._summary.record.benchmark != summarized:
                self._finish()
            self._summary = self._summary or ScriptSummary(summarized)
            self._readings += self._summary.add(line)
        elif process is not None and (statement := perftest_text.read_in_execution(text)) is not None:
            self._state(statement, line)
        else:
            return False
        return True

    def _state(self, statement: PerftestStatement, line: Line) -> None:
        self._process(statement, line.stream).add_statement(statement, line)
        if statement.context in {"failure", "status", "at"}:
            self._settle_execution(line.stream)

    def _note_outside(self, line: Line) -> None:
        """Record what a line outside of processes states about the output that follows."""
        self._side_title = perftest_text.side_title(line.text) or self._side_title
        self._version = perftest_text.read_version(line.text) or self._version
        if perftest_text.is_rule(line.text):
            self._rules.add(line.stream)
        elif line.text.strip():
            self._rules.discard(line.stream)

    def _process(self, statement: PerftestStatement, stream: Stream, *, new: bool = False) -> ProcessOutput:
        """Return the process that a statement belongs to: that of the stream, or a new one."""
        process = self._processes.get(stream)
        if process is not None and not new and (process.announced_only or not process.ended_by(statement)):
            return process
        step = self._step.step if self._step is not None else None
        fresh = ProcessOutput(stream, side=stream.side or self._side_title, step=step)
        fresh.has_preamble = process is not None or (stream in self._rules and statement.begins_setup)
        self._side_title = ""
        execution = self._choose_execution(stream, first=process is None)
        if self._version:
            fresh.results.add_fact("perftest", self._version)
        execution.processes.append(fresh)
        self._processes[stream], self._execution_of[stream] = fresh, execution
        return fresh

    def _choose_execution(self, stream: Stream, *, first: bool) -> PerftestExecution:
        """Return the execution of a stream's next process: the k-th processes of all streams form one.

        A process without a tag may turn out to be the other side.
        """
        if self._step is not None:
            return self._step
        if first and self._executions:
            return self._executions[-1]
        old = self._execution_of.get(stream)
        at = self._executions.index(old) + 1 if old in self._executions else len(self._executions)
        if at == len(self._executions):
            self._executions.append(PerftestExecution())
        return self._executions[at]

    def _settle_execution(self, stream: Stream) -> None:
        """Assign a process to an execution now that its side is known; finish executions that have ended."""
        if self._step is not None:
            return
        execution = self._execution_of[stream]
        at = self._executions.index(execution)
        if at and execution.processes == [self._processes[stream]] and not (stream.rank or stream.side):
            before = self._executions[at - 1]
            others = [process for process in before.processes if process.stream == stream]
            if len(others) == 1 and others[0].is_peer(execution.processes[0]):
                before.processes += execution.processes
                self._execution_of[stream] = before
                del self._executions[at]
        while len(self._executions) > 1 and self._executions[0] not in self._execution_of.values():
            self._readings.append(self._executions.pop(0).finish())

    def _finish(self) -> None:
        executions, self._executions = self._executions, []
        self._readings += [execution.finish() for execution in executions if execution.processes or execution.execution]
        self._processes, self._execution_of, self._step = {}, {}, None
        if self._summary is not None:
            self._readings.append(self._summary.record)
            self._summary = None

    def _take_readings(self) -> Sequence[Reading]:
        out, self._readings = self._readings, []
        return out
