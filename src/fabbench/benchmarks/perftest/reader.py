"""Reads perftest's processes, and groups them into runs of server and client.

A process prints from its banner to the rule below its rows. Several may share a terminal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import UNKNOWN_TEST, unmeasured, warning
from fabbench.benchmarks.engine import Execution, Statement, Table, TableReader
from fabbench.benchmarks.perftest import EFA_DATAGRAMS, lines
from fabbench.benchmarks.perftest.lines import FACTS, STAGES, read_command
from fabbench.benchmarks.tables import Layout, Row
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Line, Marker, Point, Record, Stream
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_OTHER = {"server": "client", "client": "server", "local": "remote", "remote": "local"}
_UPPER_HALF = frozenset(
    {"Device", "Number of qps", "Connection type"}
)  # of the set-up: no rule is above the lower one
_LONGEST = 20_000  # characters of JSON
_LARGEST = 1 << 23  # the last size of -a, where no message is a datagram
_KNOWN = frozenset(
    {"header", "sum", "failure", "error"}
)  # above these stands all that shows a process's side
# rdma-core names no other device like this: an InfiniBand device is ibp0s1, a RoCE device rocep0s1.
_EFA_DEVICES = lazy(r"(?:rdmap\d+s\d+|efa_\d+)(?:, (?:rdmap\d+s\d+|efa_\d+))*")


@dataclass(slots=True, eq=False)
class Process(Execution):
    """What one process printed.

    Two processes that share a terminal without tags may print into one.
    """

    stream: Stream = NO_STREAM
    stage: int = 0
    preamble: bool = (
        False  # whether perftest, or the program that started it, printed anything above the set-up
    )
    titled: bool = False
    headed: bool = False
    both: bool = False
    cycles: bool = False
    copies: int = (
        1  # number of processes that print into this text, as far as their titles and headers show
    )
    sides: list[str] = field(
        default_factory=list
    )  # those that the command line, banners and headings name
    setup: set[str] = field(default_factory=set)
    addresses: dict[str, set[str]] = field(
        default_factory=dict
    )  # `local` or `remote` → queue pairs
    share: str = ""  # `local` or `remote`: the table below is what one side sent
    rules: int = 0  # rules below rows
    known: bool = False  # whether all that shows its side has been read
    grouped: bool = False  # whether it belongs to a run

    @property
    def case(self) -> str:
        """The program; empty if it is not known."""
        return self.record.case or ""

    @property
    def sizes(self) -> set[int]:
        """The sizes of its rows."""
        return {row.size for row in self.rows}

    @property
    def side(self) -> str:
        """`server` or `client`; empty if the text names neither or both."""
        sides, shown = {*self.sides, self.stream.side} - {""}, ""
        if self.copies > 1 or len(sides) > 1:
            return ""
        if self.case and self.titled and not self.both:
            # TX is the sender's, RX the receiver's, both if both send; a server that is written to
            # or read has neither.
            depths = self.setup & {"TX depth", "RX depth"}
            whole = (
                "send" not in self.case
                and {"Number of qps", "Connection type", "Mtu", "Link type"} <= self.setup
            )
            passive = depths == {"RX depth"} or (whole and not depths)
            shown = "client" if depths == {"TX depth"} else "server" if passive else ""
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
        """Return whether a kind of line can only belong to a later process.

        `side`: that of a command.
        """
        stage = STAGES.get(kind)
        if kind == "command":
            # All output of a background server may be below the client's command.
            return bool(self.stage or self.record.failures) or self.sides[:1] == [side]
        if stage is None or not (self.stage or self.record.failures):
            return False
        if kind == "header":
            return self.headed and bool(self.rows or self.record.damaged) and self.copies == 1
        if self.stage == STAGES["header"]:
            return kind != "address" or self.copies == 1
        return (
            bool(self.record.failures)
            if kind == "title" and self.titled
            else stage == 0 < self.stage
        )

    def finish(self) -> None:
        """End the text.

        Below a title are the rows of one process, and others are of a table that lost its header.
        """
        drops = (
            at for at, (one, next_) in enumerate(pairwise(self.rows), 1) if next_.size < one.size
        )
        if self.titled and self.copies == 1 and (lost := next(drops, 0)):
            for row in self.rows[lost:]:
                self.damage(row.line)
            del self.rows[lost:], self.points[lost:]
        if self.copies > 1 and len({row.cells for row in self.rows}) < len(self.rows):
            self.record.findings.append(lines.BOTH_SIDES)
        if (
            self.rows
            and not self.titled
            and self.preamble
            and self.setup
            and "burst" not in self.case
        ):
            self.record.incomplete = "The title above perftest's set-up is missing."
        if len(self.rows) > 1 == self.copies == len(self.sizes):
            self.record.finished = (
                self.record.finished or None
            )  # of an endless run, no end is expected


class Terminal(TableReader):
    """Reads what the processes of one stream print, one after another."""

    def __init__(self, stream: Stream, step: Marker | None) -> None:
        super().__init__(
            Table(benchmark="perftest", statement=self._say, fits=self._fits, points=lines.points)
        )
        self.process: Process | None = None
        self._stream, self._step = stream, step
        self._indented = False  # whether the header of the table is
        self._ruled = False  # whether the last line was a rule, and not below rows
        self._json = ""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        line = line._replace(
            text=lines.MARKS.sub("", line.text.replace("\xa0", " ").replace("&nbsp;", " "))
        )
        readings = () if self._json else super().feed(line)
        if self._json and self.process is not None:
            if self._json == "\n":
                self.process.damage(line)  # until all has been read
            self._json += f"{line.text}\n"
            told = (
                [line._replace(text=text) for text in lines.from_json(self._json)]
                if "}" in line.text
                else []
            )
            if told:
                self.process.record.damaged.pop()
            if told or len(self._json) > _LONGEST:
                read = super().feed
                self._json, readings = (
                    "",
                    [reading for each in told for reading in read(each) or ()],
                )
                self.process.stage = STAGES["header"]
        return readings

    def _fits(self, row: Row) -> bool:
        # The second half of a row that was torn within its size has no indent.
        return lines.fits(row) and (row.line.text[:1].isspace() or not self._indented)

    def _say(self, text: str, _: Execution | None) -> Statement | None:
        process, match, command = self.process, None, None
        layouts: Sequence[Layout] = ()
        setup: Mapping[str, str] = {}
        kind, below_rule = "", self._ruled
        if "#bytes" in text and (
            layouts := lines.read_header(text, cycles=bool(process and process.cycles))
        ):
            kind = "header"
        elif (match := (lines.INSIDE if process else lines.ANYWHERE).fullmatch(text)) is not None:
            kind = match.lastgroup or ""
        elif "_" in text and (command := read_command(text)) is not None:
            kind = "command"
        elif ": " in text and (process or lines.DISTINCT_SETUP.search(text)):
            setup = dict(lines.SETUP.findall(text))
            kind = "setup" if setup else ""
        if text.strip() and kind not in {"cpu", "warning"}:
            self._ruled = text.lstrip().startswith("-" * 20) and not (
                process and process.headed and process.rows
            )
        if not kind:
            match = lines.STATED.fullmatch(text)
            facts = (
                {name: fact.lower() for name, fact in match.groupdict().items() if fact}
                if match
                else {}
            )
            return (
                Statement(above=not process or bool(process.rows), facts=facts) if facts else None
            )
        begins = process is None or process.ends_before(
            kind, command[1] if command is not None else ""
        )
        if process is None or begins:
            preamble = process is not None or kind in {"command", "json"}
            preamble |= below_rule and not _UPPER_HALF.isdisjoint(setup)
            process = self.process = Process(
                Record(benchmark="perftest"), stream=self._stream, preamble=preamble
            )
            if self._step is not None and "together" in self._step.facts:
                process.record.facts |= {"together": self._step.facts["together"]}
        process.stage, process.known = (
            max(process.stage, STAGES.get(kind, 0)),
            process.known or kind in _KNOWN,
        )
        if layouts:
            if not process.headed or below_rule:
                process.record.finished = False if below_rule else None
            self._indented = text[:1].isspace()
            said = self._header(process, layouts)
        elif command is not None:
            program, side, flags = command
            process.sides, process.both = [side], not flags.isdisjoint({"b", "bidirectional"})
            process.cycles = not flags.isdisjoint({"C", "report-cycles"})
            end = _LARGEST if flags & {"a", "all"} and "atomic" not in program else None
            gpu = next(
                (flag[4:8] for flag in flags if flag[:8] in {"use_cuda", "use_rocm", "use_musa"}),
                "",
            )
            said = Statement(case=program, facts={"gpu": gpu} if gpu else {}, end=end)
        else:
            said = (
                self._other(process, kind, match)
                if match is not None
                else self._setup(process, setup)
            )
        return said._replace(begins=begins, execution=process)

    def _header(self, process: Process, layouts: Sequence[Layout]) -> Statement:
        process.copies = 2 if process.headed else process.copies
        process.headed, process.rules = True, 0
        cycles = any(column.metric == "cycles" for column in layouts[0])
        side, way, direction = process.side, "", ""
        if cycles or any(column.metric == "latency" for column in layouts[0]):
            # It prints half of the round trip, or all of it (`rtt_factor` in the source).
            way = (
                "round-trip"
                if {"read", "atomic"} & {*process.case.split("_")}
                else "one-way"
                if process.case
                else ""
            )
        elif process.share or process.case.endswith("_bw"):
            direction = (
                "bi"
                if process.both and not process.share
                else "uni"
                if process.titled or process.share
                else ""
            )
        if process.share:
            # What one side sent, in a test of both directions. Which side depends on who printed
            # it.
            side = (_OTHER.get(side, "") if process.share == "remote" else side) or process.share
        device = self._step.facts.get("device", "") if self._step is not None else ""
        labels = {
            "way": way,
            "direction": direction,
            "side": side,
            "rank": self._stream.rank,
            "device": device,
        }
        return Statement(layouts=layouts, labels=labels, finding=lines.CYCLES if cycles else None)

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
        finding = lines.AMBIGUOUS_UNIT if facts.get("unit") == "ambiguous" else None
        end = None if setup.get("Connection type", "RC") in {"RC", "UC", "XRC", "DC"} else 0
        return Statement(
            facts=facts, finding=lines.NO_SIZE if "size" in facts else finding, end=end
        )

    def _other(self, process: Process, kind: str, match: re.Match[str]) -> Statement:
        line, record, said = match[0].strip(), process.record, Statement()
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
            # Rows that follow belong to another table, whose heading is missing.
            once = process.copies == process.rules == 1
            closed = [(*layout, lines.NEVER) for layout in process.layouts] if once else ()
            said = Statement(finished=process.rules >= process.copies, layouts=closed, end=0)
        elif kind == "sum":
            record.benchmark = "fabtests" if line.startswith("Total") else record.benchmark
            labels, finding = {"rank": self._stream.rank}, lines.NO_SIZE
            said = Statement(
                row=True, layouts=lines.SUMMARIES, finished=None, labels=labels, finding=finding
            )
            said = said._replace(facts={"size": "unknown"})
        elif kind == "json":
            self._json = "\n"
        elif kind == "cpu" and lines.CPU_FREQUENCY not in record.findings:
            said = Statement(finding=lines.CPU_FREQUENCY)
        elif kind == "warning" and "BW peak won't be measured" not in line:
            meaning = f"perftest warned: {match['warning'][:LONGEST_QUOTE]}"
            said = Statement(
                finding=warning("perftest-warning", meaning, line=line[:LONGEST_QUOTE])
            )
        elif kind == "wrong":
            said = Statement(wrong=max(int(match["errors"][:9]), 1))
        elif kind in {"failure", "error"}:
            status, who = match["status"], f"The {process.side}" if process.side else "perftest"
            facts: dict[str, str | int] = (
                {"status": int(status), "syndrome": match["syndrome"]} if status else {}
            )
            meaning = f" ({lines.MEANINGS[status]})" if status in lines.MEANINGS else ""
            said = Statement(
                facts=facts,
                failure=f"{who} said: {' '.join(line.split())[:LONGEST_QUOTE]}{meaning}",
            )
        return said


def _record(processes: Sequence[Process]) -> Record:
    record, values = Record(benchmark="perftest"), dict[str, dict[str | int, None]]()
    for process in processes:
        process.finish()
        each = process.record
        record.benchmark, record.case = each.benchmark, record.case or each.case
        record.incomplete = record.incomplete or each.incomplete
        record.off_fabric = record.off_fabric or each.off_fabric
        record.wrong += each.wrong
        record.damaged += each.damaged
        record.failures += (
            sentence for sentence in each.failures if sentence not in record.failures
        )
        record.findings += (finding for finding in each.findings if finding not in record.findings)
        for name, value in each.facts.items():
            values.setdefault(name, {})[value] = None
    for name in ("iterations", "cpu_util"):  # they make sense only with a single value
        cells = {row.cell(name) for process in processes for row in process.rows} - {""}
        if len(cells) == 1:
            values[name] = {int(cell) if name == "iterations" else cell: None for cell in cells}
    facts = record.facts = {
        name: ", ".join(map(str, each)) if len(each) > 1 else next(iter(each))
        for name, each in values.items()
    }
    if facts.get("transport") == "UD" and _EFA_DEVICES.fullmatch(str(facts.get("device"))):
        facts["transport"] = EFA_DATAGRAMS
    if facts.get("transport") == "RawEth" and record.case in {"ib_send_bw", "ib_send_lat"}:
        record.case = f"raw_ethernet_{record.case.rpartition('_')[2]}"
    record.damaged.sort()
    # A process whose end is missing has finished if the other end of its connection has, with the
    # same sizes.
    ended = [each for each in processes if each.record.finished]
    verdicts = {
        each.record.finished
        or any(other.is_other_end(each) and other.sizes == each.sizes for other in ended)
        for each in processes
        if each.rows and each.record.finished is not None
    }
    record.finished = all(verdicts) if verdicts else None
    printed = [
        each for process in processes for each in zip(process.rows, process.points, strict=True)
    ]
    record.points = [
        point for _, row in sorted(printed, key=lambda each: each[0].line.number) for point in row
    ]
    if any("latency" in point.metrics and "way" not in point.labels for point in record.points):
        record.facts["way"] = "ambiguous"
        record.findings.append(lines.AMBIGUOUS_WAY)
    elif record.points and record.case is None and "size" not in record.facts:
        record.findings.append(UNKNOWN_TEST)
    if lines.CYCLES not in record.findings:
        record.findings += unmeasured(point.size for point in record.points if not point.metrics)
    return record


class PerftestReader(Reader):
    """Reads all stream groups together."""

    def __init__(self) -> None:
        self._terminals: dict[Stream, Terminal] = {}
        self._runs: dict[int, list[Process]] = {}
        self._run_of: dict[Stream, int] = {}
        self._step: Marker | None = None  # the last one that fabbench marked

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        terminal = self._terminals.get(line.stream)
        if terminal is None:
            terminal = self._terminals[line.stream] = Terminal(line.stream, self._step)
        before = terminal.process
        readings = terminal.feed(line)
        out: list[Reading] = [reading for reading in readings or () if isinstance(reading, Point)]
        for process in (before, terminal.process):
            if process is not None and (process.known or process is not terminal.process):
                out += self._group(process)
        return None if readings is None else out

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        if marker.kind != "begin":
            return ()
        ours = marker.facts.get("benchmark") == "perftest"
        same = ours and self._step is not None and self._step.execution == marker.execution
        before = self._end_terminals() if same else self.close()
        if ours and not same:
            self._runs[0] = []
        self._step = marker if ours else None
        return before

    @override
    def close(self) -> Sequence[Reading]:
        before = self._end_terminals()
        runs, self._runs, self._step = self._runs, {}, None
        return [*before, *map(_record, runs.values())]

    def _end_terminals(self) -> Sequence[Record]:
        ended = list[Record]()
        for terminal in self._terminals.values():
            ended += self._group(terminal.process) if terminal.process is not None else ()
            terminal.close()
        self._terminals, self._run_of = {}, {}
        return ended

    def _group(self, process: Process) -> Sequence[Record]:
        """Assign a process to its peer's run, and the k-th ones of all ranks to one.

        Return what has ended.
        """
        stream, before = process.stream, self._run_of.get(process.stream)
        if process.grouped:
            return ()
        process.grouped = True
        if stream.rank or stream.side or self._step is not None:
            run = max(self._runs, default=0) if before is None else before + (self._step is None)
        else:
            first = -1 if before is None or stream.group else before
            alone = {at: those[0] for at, those in self._runs.items() if len(those) == 1}
            peers = (
                at
                for at, each in alone.items()
                if each.is_peer(process) and (at >= first or each.addresses)
            )
            run = next(peers, max(self._runs, default=-1) + 1)
        self._runs.setdefault(run, []).append(process)
        self._run_of[stream] = run
        last, running = (
            max(self._runs),
            set(self._run_of.values()),
        )  # and those whose client may be far below
        running |= {
            at
            for at, those in [*self._runs.items()][-64:]
            if [each.side for each in those] == ["server"]
        }
        return [_record(self._runs.pop(each)) for each in sorted({*self._runs} - {*running, last})]
