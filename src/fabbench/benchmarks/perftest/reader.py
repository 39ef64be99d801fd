"""Reads perftest's processes, and groups them into executions of server and client.

A process prints from its banner to the rule below its rows. Several may share a terminal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import UNKNOWN_TEST, is_remains, rows_after_restart, unmeasured, warning
from fabbench.benchmarks.engine import Execution, Layout, Row, Statement, Table, TableReader, cell_patterns
from fabbench.benchmarks.perftest import EFA_DATAGRAMS, tables
from fabbench.benchmarks.perftest import text as perftest_text
from fabbench.benchmarks.perftest.text import FACTS, STAGES, TABLE, read_command
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Line, Marker, Point, Record, Stream
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_OTHER = {"server": "client", "client": "server", "local": "remote", "remote": "local"}
_UPPER_HALF = frozenset({"Device", "Number of qps", "Connection type"})  # of the set-up: no rule is above the lower one
_LONGEST = 20_000  # characters of JSON
_KNOWN = frozenset({"header", "sum", "at", "status", "failure", "error"})
"""Kinds of lines above which everything stands that shows the side of a process."""


@dataclass(slots=True)
class Process(Execution):
    """What one process printed. Two processes that share a terminal without tags may print into one."""

    stream: Stream = NO_STREAM
    stage: int = 0
    preamble: bool = False  # whether perftest, or the program that started it, printed anything above the set-up
    titled: bool = False
    headed: bool = False
    both: bool = False
    cycles: bool = False
    copies: int = 1  # number of processes that print into this text, as far as their titles and headers show
    sides: list[str] = field(default_factory=list)  # those that the command line, banners and headings name
    setup: set[str] = field(default_factory=set)
    addresses: dict[str, set[str]] = field(default_factory=dict)  # `local` or `remote` → queue pairs
    share: str = ""  # `local` or `remote`: the table below is what one side sent
    rules: int = 0  # rules below rows
    failed_side: str = ""

    @property
    def case(self) -> str:
        """The program; empty if it is not known."""
        return self.record.case or ""

    @property
    def sizes(self) -> set[int]:
        """The sizes of its rows."""
        return {row.size for row in self.rows}

    @property
    def finished(self) -> bool | None:
        """Whether the rule below its rows was read; None: not expected, as in excerpts or endless runs."""
        endless = len(self.rows) > 1 and len(self.sizes) == 1 and self.copies == 1
        return None if not self.record.finished and endless else self.record.finished

    @property
    def is_closed(self) -> bool:
        """Whether rows that follow belong to another table, whose heading is missing."""
        return self.rules > 0 and self.copies == 1

    @property
    def side(self) -> str:
        """`server` or `client`; empty if the text names neither or both."""
        sides, shown = {*self.sides, self.stream.side} - {""}, ""
        if self.copies > 1 or len(sides) > 1:
            return ""
        # TX is the sender's, RX the receiver's, both if both send.
        depths = self.setup & {"TX depth", "RX depth"}
        if self.case and self.titled and not self.both and len(depths) == 1:
            shown = "client" if "TX depth" in depths else "server"
        elif self.case and self.titled and not self.both and not depths and "send" not in self.case:
            # The lines before and after the missing line show that it was not removed.
            shown = "server" if {"Number of qps", "Connection type", "Mtu", "Link type"} <= self.setup else ""
        # A truncated command line has no server address, and looks like that of the server.
        return "" if sides == {"server"} and shown == "client" else next(iter(sides), shown)

    def is_other_end(self, other: "Process") -> bool:
        """Return whether the printed addresses are the two ends of the same queue pairs."""
        ends = {_OTHER[end]: pairs for end, pairs in self.addresses.items()}
        return len(ends) > 1 and ends == other.addresses

    def is_peer(self, other: "Process") -> bool:
        """Return whether these two are the server and the client of one run."""
        if self.case != other.case and self.case and other.case:
            return False
        if len(self.addresses) == len(other.addresses) == len(("local", "remote")):
            return self.is_other_end(other)
        return {self.side, other.side} == {"server", "client"}

    def ends_before(self, kind: str, side: str = "") -> bool:
        """Return whether a kind of line can only belong to a later process; `side`: that of a command."""
        stage = STAGES.get(kind)
        if kind == "command":
            # All output of a background server may be below the client's command.
            return bool(self.stage or self.record.failures) or self.sides[:1] == [side]
        if stage is None or not (self.stage or self.record.failures):
            return False
        if kind == "header":
            return self.headed and bool(self.rows or self.record.damaged) and self.copies == 1
        if self.stage == TABLE:
            return kind != "address" or self.copies == 1
        return bool(self.record.failures) if kind == "title" and self.titled else stage == 0 < self.stage

    def finish(self) -> None:
        """End the text: below a title are the rows of one process, and others are of a table that lost its header."""
        lost = rows_after_restart([row.size for row in self.rows]) if self.titled and self.copies == 1 else ()
        for at in sorted(lost, reverse=True):
            self.damage(self.rows.pop(at).line)
            del self.points[at]
        if self.copies > 1 and len({row.cells for row in self.rows}) < len(self.rows):
            self.record.findings.append(tables.BOTH_SIDES)
        if self.rows and not self.titled and self.preamble and self.setup:
            self.record.incomplete = "The title above perftest's set-up is missing."


class Terminal(TableReader):
    """Reads what the processes of one stream print, one after another."""

    def __init__(self, stream: Stream, step: Marker | None) -> None:
        super().__init__(
            Table(
                benchmark="perftest", statement=self._say, fits=self._fits, remains=self._remains, points=tables.points
            )
        )
        self.process: Process | None = None
        self.kind = ""  # of the last line
        self._stream, self._step = stream, step
        self._line = Line(0, "")
        self._indent = ""
        self._ruled = False  # whether the last line was a rule, and not below rows
        self._repeats = False  # whether the line that says what its figures are is to be read again, as a row
        self._json = self._version = ""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        line = line._replace(text=tables.plain(line.text))
        readings = () if self._json else self._feed(line)
        if self._json and self.process is not None:
            self._json += f"{line.text}\n"
            lines = [line._replace(text=text) for text in tables.lines_of(self._json)] if "}" in line.text else []
            if lines:
                self.process.record.damaged.pop()
            if lines or len(self._json) > _LONGEST:
                self._json, readings = "", [reading for each in lines for reading in self._feed(each) or ()]
                self.process.stage = TABLE
        return readings

    def _feed(self, line: Line) -> Sequence[Reading] | None:
        self._line, self.kind = line, ""
        readings = super().feed(line)
        if self._repeats:
            self._repeats, readings = False, super().feed(line)
        if (text := line.text.strip()) and self.kind not in {"cpu", "warning"}:
            self._ruled = perftest_text.RULE.fullmatch(text) is not None and not (self.process and self.process.rules)
        if readings is None and (version := perftest_text.VERSION.fullmatch(text)) is not None:
            self._version = version[1]
        return readings

    def _fits(self, row: Row) -> bool:
        process, indent, known = self.process, _indent(row.line.text), self._indent
        # The second half of a row that was torn within its size has no indent.
        if process is None or process.is_closed or (known and not indent):
            return False
        self._indent = indent
        return tables.fits(row)

    def _remains(self, text: str, layout: Layout) -> bool:
        cells = text.split()
        # Whole numbers alone may be those of another program.
        other = all(map(str.isdigit, cells)) and _indent(text) != self._indent
        columns = tuple(tables.FIGURE if "." in column.cell else column for column in layout)
        return not other and not (self.process and self.process.is_closed) and is_remains(cells, cell_patterns(columns))

    def _say(self, text: str, _: Execution | None) -> Statement | None:
        process, match, command = self.process, None, None
        layouts: Sequence[Layout] = ()
        setup: Mapping[str, str] = {}
        if "#bytes" in text and (layouts := tables.read_header(text, cycles=bool(process and process.cycles))):
            kind = "header"
        elif (match := (perftest_text.INSIDE if process else perftest_text.ANYWHERE).fullmatch(text)) is not None:
            kind = match.lastgroup or ""
        elif "_" in text and (command := read_command(text)) is not None:
            kind = "command"
        elif setup := perftest_text.read_setup(text, inside=process is not None):
            kind = "setup"
        else:
            return None
        begins = process is None or process.ends_before(kind, command.side if command is not None else "")
        if process is None or begins:
            preamble = process is not None or kind in {"command", "json"}
            preamble |= self._ruled and not _UPPER_HALF.isdisjoint(setup)
            process = self.process = Process(Record(benchmark="perftest"), stream=self._stream, preamble=preamble)
            facts = {"perftest": self._version, "together": self._step.facts.get("together") if self._step else ""}
            process.record.facts |= {name: value for name, value in facts.items() if value}
        process.stage = max(process.stage, STAGES.get(kind, 0))
        self.kind = kind
        if layouts:
            said = self._header(process, layouts)
        elif command is not None:
            process.sides, process.both = [command.side], not command.flags.isdisjoint({"b", "bidirectional"})
            process.cycles = not command.flags.isdisjoint({"C", "report-cycles"})
            said = Statement(case=command.program)
        else:
            said = self._other(process, kind, match) if match is not None else self._setup(process, setup)
        return said._replace(begins=begins, execution=process)

    def _header(self, process: Process, layouts: Sequence[Layout]) -> Statement:
        if process.headed:
            process.copies = 2
        if not process.headed or self._ruled:
            process.record.finished = False if self._ruled else None
        process.headed, process.rules = True, 0
        self._indent = _indent(self._line.text)
        cycles = any(column.metric == "cycles" for column in layouts[0])
        timed = cycles or any(column.metric == "latency" for column in layouts[0])
        side, direction = process.side, ""
        if process.share:
            # What one side sent, in a test of both directions. Which side depends on who printed it.
            side, direction = (_OTHER.get(side, "") if process.share == "remote" else side) or process.share, "uni"
        elif process.case.endswith("_bw"):
            direction = "bi" if process.both else "uni" if process.titled else ""
        # It prints half of the round trip, or all of it (`rtt_factor` in the source).
        way = "round-trip" if {"read", "atomic"} & {*process.case.split("_")} else "one-way" if process.case else ""
        device = self._step.facts.get("device", "") if self._step is not None else ""
        measured = {"way": way} if timed else {"direction": direction}
        labels = {**measured, "side": side, "rank": self._stream.rank, "device": device}
        process.labels = {label: value for label, value in labels.items() if value}
        return Statement(layouts=layouts, finding=tables.CYCLES if cycles else None)

    def _setup(self, process: Process, setup: Mapping[str, str]) -> Statement:
        process.setup |= setup.keys()
        if self._step is not None and (device := setup.get("Device")):
            other = self._step.other("device", device, self._stream.side)
            process.record.off_fabric = process.record.off_fabric or other
        facts: dict[str, str | int] = {}
        for name in setup.keys() & FACTS.keys():
            value = setup[name].partition("[")[0]
            facts[FACTS[name]] = int(value[:18]) if value.isascii() and value.isdigit() else value
        if setup.get("Transport type") == "IW" or process.record.facts.get("transport") == "iWARP":
            facts["transport"] = "iWARP"  # its connections are named as InfiniBand's are
        finding = tables.AMBIGUOUS_UNIT if facts.get("unit") == "ambiguous" else None
        if "size" in facts:
            finding = tables.no_size("perftest's JSON has no row (--output was given).", "")
        return Statement(facts=facts, finding=finding)

    def _other(self, process: Process, kind: str, match: re.Match[str]) -> Statement:
        """Return the meaning of a line that is neither a header nor a command nor of the set-up."""
        line, said = match[0].strip(), Statement()
        if kind == "title":
            process.copies += process.titled
            process.titled, process.both = True, match["both"] is not None
            program = f"ib_{match['verb'].lower().removeprefix('rdma_')}_{'bw' if match['figure'] == 'BW' else 'lat'}"
            said = Statement(case=None if process.case.startswith("raw_ethernet") else program)
        elif kind in {"banner", "waiting"} and "server" not in process.sides:
            process.sides.append("server")
        elif kind == "address":
            process.addresses.setdefault(match["end"], set()).add(match["pair"])
        elif kind == "results":
            process.share, process.headed, process.rules = match["of"].lower(), False, 0
        elif kind == "rule" and process.headed and process.rows:
            process.rules += 1
            said = Statement(finished=process.rules >= process.copies)
        elif kind == "sum":
            layout, process.record.benchmark, direction, meaning = tables.SUMMARIES[line.split()[0]]
            labels = {"direction": direction, "rank": self._stream.rank}
            process.labels, self._repeats = {label: value for label, value in labels.items() if value}, True
            finding, facts = tables.no_size(meaning, line), {"size": "unknown"}
            said = Statement(layouts=(layout,), finished=None, finding=finding, facts=facts)
        elif kind == "json":
            process.damage(self._line)  # until it has been read to its end
            self._json = "\n"
        elif kind == "cpu" and all(each.code != "cpu-frequency" for each in process.record.findings):
            said = Statement(finding=tables.cpu_frequency(line))
        elif kind == "warning" and "BW peak won't be measured" not in line:
            meaning = f"perftest warned: {match['message'][:LONGEST_QUOTE]}"
            said = Statement(finding=warning("perftest-warning", meaning, line=line[:LONGEST_QUOTE]))
        elif kind == "wrong":
            said = Statement(wrong=max(int(match["errors"][:9]), 1))
        elif kind in {"at", "status", "failure", "error"}:
            said = self._failed(process, kind, match)
        return said

    def _failed(self, process: Process, kind: str, match: re.Match[str]) -> Statement:
        process.failed_side = match["failed"] or process.failed_side
        facts, said = dict[str, str | int](), " ".join(match[0].split())[:LONGEST_QUOTE]
        side = process.failed_side if kind in {"at", "status"} else process.side
        who = f"The {side}" if side else "perftest"
        if kind == "status":
            number, syndrome = int(match["number"]), match["syndrome"]
            facts = {"status": number, "syndrome": syndrome}
            # It is more specific than the line above it.
            general = f" with error at {side}."
            process.record.failures = [each for each in process.record.failures if not each.endswith(general)]
            meaning = perftest_text.MEANINGS.get(number, "see ibv_wc_status")
            said = f"completion with status {number} ({meaning}), syndrome {syndrome}"
        sentence = f"{who} reported: {said}." if kind in {"at", "status"} else f"{who} said: {said}"
        return Statement(facts=facts, failure=sentence)


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


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
            record.findings.append(tables.AMBIGUOUS_WAY)
        elif record.points and record.case is None and "size" not in record.facts:
            record.findings.append(UNKNOWN_TEST)
        if tables.CYCLES not in record.findings:
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
        if process is None or terminal.kind not in _KNOWN or self._running is not None:
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
