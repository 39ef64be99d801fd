"""Reads what one process of perftest prints, from its banner to the rule below its rows.

Several may share a terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import cast

from fabbench.benchmarks import Reading
from fabbench.benchmarks.events import (
    Ahead,
    End,
    Error,
    Event,
    Events,
    Fail,
    Header,
    Note,
    RowLine,
    Setting,
    Statement,
)
from fabbench.benchmarks.executions import Execution, Table, read_any_line
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.benchmarks.perftest import lines, rows
from fabbench.benchmarks.perftest.json_text import from_json
from fabbench.benchmarks.tables import Layout, Row
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Line, Marker, Record, Stream

_OTHER = {"server": "client", "client": "server", "local": "remote", "remote": "local"}
_UPPER_HALF = frozenset({"Device", "Number of qps", "Connection type"})
"""Of the set-up: no rule is above the lower one."""
_WHOLE_SETUP = frozenset({"Number of qps", "Connection type", "Mtu", "Link type"})
_LONGEST_JSON = 20_000
_SHOWS_SIDE = frozenset({"header", "sum", "failure"})
"""Above these stands all that shows the side of a process."""


_SAYS_NOTHING = frozenset({"cpu", "warning"})
"""They may stand between a rule and what it is above."""


class Stage(IntEnum):
    """How much a process has printed: a line of an earlier stage is of another one."""

    START = 0
    TITLE = 1
    SETUP = 2
    TABLE = 3


_STAGES: Mapping[str, Stage] = {
    "command": Stage.START,
    "banner": Stage.START,
    "json": Stage.START,
    "title": Stage.TITLE,
    "setup": Stage.SETUP,
    "local": Stage.SETUP,
    "remote": Stage.SETUP,
    "waiting": Stage.SETUP,
    "header": Stage.TABLE,
    "sum": Stage.TABLE,
}
"""Kind of a line → when a process prints it; others: at any time."""


@dataclass(slots=True, eq=False)
class Process(Execution):
    """What one process printed.

    Two processes that share a terminal without tags may print into one.
    """

    stream: Stream = NO_STREAM
    step: Marker | None = None
    stage: Stage = Stage.START
    has_preamble: bool = False
    """Whether perftest, or the program that started it, printed anything above the set-up."""
    titled: bool = False
    headed: bool = False
    indented: bool = False
    """Whether the names of columns are."""
    both: bool = False
    """Whether both sides send."""
    cycles: bool = False
    copies: int = 1
    """How many processes print into this text, as far as their titles and headers show."""
    sides: list[str] = field(default_factory=list)
    """Those that the command line, banners and headings name."""
    setup: set[str] = field(default_factory=set)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    """`local` or `remote` → queue pairs."""
    share: str = ""
    """`local` or `remote`: the table below is what one side sent."""
    rules: int = 0
    """Rules below rows."""
    is_known: bool = False
    """Whether all that shows its side has been read."""
    is_grouped: bool = False
    """Whether it belongs to a run."""

    @property
    def case(self) -> str:
        """The program; empty if it is not known."""
        return self.record.case or ""

    @property
    def sizes(self) -> set[int]:
        """The sizes of its rows."""
        return {row.size for row in self.rows}

    # -- the other side

    @property
    def side(self) -> str:
        """`server` or `client`; empty if the text names neither or both."""
        named = {*self.sides, self.stream.side} - {""}
        if self.copies > 1 or len(named) > 1:
            return ""
        shown = self._shown_side()
        if named == {"server"} and shown == "client":
            # A truncated command line has no server address, and looks like that of the server.
            return ""
        return next(iter(named), shown)

    def _shown_side(self) -> str:
        """Return the side that the set-up shows.

        TX is the sender's, RX the receiver's, both if both send; a server that is written to or
        read has neither.
        """
        if not self.case or not self.titled or self.both:
            return ""
        depths = self.setup & {"TX depth", "RX depth"}
        if depths == {"TX depth"}:
            return "client"
        is_whole = "send" not in self.case and self.setup >= _WHOLE_SETUP
        if depths == {"RX depth"} or (is_whole and not depths):
            return "server"
        return ""

    def is_other_end(self, other: "Process") -> bool:
        """Return whether the printed addresses are the two ends of the same queue pairs."""
        ends = {_OTHER[end]: pairs for end, pairs in self.addresses.items()}
        return len(ends) > 1 and ends == other.addresses

    def is_peer(self, other: "Process") -> bool:
        """Return whether these two are the server and the client of one run."""
        if self.case != other.case and self.case and other.case:
            return False
        if len(self.addresses) == len(other.addresses) == 2:
            return self.is_other_end(other)
        return {self.side, other.side} == {"server", "client"}

    # -- what lines say

    def ends_before(self, kind: str, side: str) -> bool:
        """Return whether a kind of line can only belong to a later process.

        `side`: that of a command.
        """
        has_begun = bool(self.stage or self.record.failures)
        if kind == "command":
            # All output of a background server may be below the client's command.
            return has_begun or self.sides[:1] == [side]
        stage = _STAGES.get(kind)
        if stage is None or not has_begun:
            return False
        if kind == "header":
            has_table = self.headed and bool(self.rows or self.record.damaged)
            return has_table and self.copies == 1
        if self.stage == Stage.TABLE:
            return kind not in {"local", "remote"} or self.copies == 1
        if kind == "title" and self.titled:
            return bool(self.record.failures)
        return stage == Stage.START < self.stage

    def reach(self, kind: str) -> None:
        """Note a kind of line."""
        self.stage = max(self.stage, _STAGES.get(kind, Stage.START))
        self.is_known = self.is_known or kind in _SHOWS_SIDE

    def hear(self, said: Event) -> None:
        """Add what a line says."""
        match said:
            case Note(kind="gid"):
                self._check_link()
            case Note():
                self._note(said)
            case Header():
                self._add_header(said)
            case Error():
                speaker = f"The {self.side}" if self.side else "perftest"
                self.add(Fail(f"{speaker} said: {said.text}"))
            case _:
                self.add(cast("Statement", said))

    def _note(self, said: Note) -> None:
        value = said.value
        match said.kind:
            case "command":
                self.sides = [value]
            case "banner" | "waiting":
                self.sides = [*dict.fromkeys([*self.sides, "server"])]
            case "title":
                self._add_title(value)
            case "both":
                self.both = bool(value)
            case "cycles":
                self.cycles = bool(value)
            case "setup":
                self.setup.add(value)
            case "device":
                self._check_device(value)
            case "local" | "remote":
                self.addresses.setdefault(said.kind, set()).add(value)
            case "results":
                self.share = value
                self.headed = False
                self.rules = 0
            case "rule":
                self._end_table()
            case "sum":
                self.record.benchmark = value or self.record.benchmark

    def _add_title(self, program: str) -> None:
        self.copies += self.titled
        self.titled = True
        if not self.case.startswith("raw_ethernet"):
            self.record.case = program

    def _check_device(self, device: str) -> None:
        if self.step is not None and not self.record.off_fabric:
            self.record.off_fabric = self.step.other("device", device, self.stream.side)

    def _check_link(self) -> None:
        """Hold the link to a GID that is an IPv4 address."""
        if self.record.facts.get("link") == "IB":
            self.add(lines.LINK_AND_GID)

    def _end_table(self) -> None:
        if not self.headed or not self.rows:
            return
        self.rules += 1
        if self.copies == self.rules == 1:
            # Rows that follow belong to another table, whose heading is missing.
            self.layouts = [(*layout, rows.NEVER) for layout in self.layouts]
        self.add(Setting(last_size=0))
        if self.rules >= self.copies:
            self.add(End())

    def _add_header(self, header: Header) -> None:
        labels = {"rank": self.stream.rank}
        if not header.is_row:
            self.copies = 2 if self.headed else self.copies
            self.headed = True
            self.rules = 0
            labels |= self._table_labels(header.layouts)
        self.add(Setting(labels=labels))
        self.add(header)

    def _table_labels(self, layouts: Sequence[Layout]) -> Mapping[str, str]:
        is_latency = not rows.printed_metrics(layouts).isdisjoint({"latency", "cycles"})
        return {
            "way": self._way() if is_latency else "",
            "direction": "" if is_latency else self._direction(),
            "side": self._sender(),
            "device": self.step.facts.get("device", "") if self.step is not None else "",
        }

    def _way(self) -> str:
        """Return which part of the round trip is printed (`rtt_factor` in the source)."""
        if not self.case:
            return ""
        is_round = not {"read", "atomic"}.isdisjoint(self.case.split("_"))
        return "round-trip" if is_round else "one-way"

    def _direction(self) -> str:
        if self.share:
            return "uni"
        if not self.case.endswith("_bw"):
            return ""
        if self.both:
            return "bi"
        return "uni" if self.titled else ""

    def _sender(self) -> str:
        """Return the side that the table is about: where both send, the one that did."""
        if self.share == "remote":
            return _OTHER.get(self.side, "remote")
        return self.side or self.share

    # -- rows

    def take(self, printed: RowLine) -> Sequence[Reading]:
        """Add a row; return its points."""
        row = self.consistent(printed)
        return () if row is None else self.count(row)

    @override
    def fits(self, row: Row) -> bool:
        # The second half of a row that was torn within its size has no indent.
        begins_with_digit = row.line.text[:1].isdecimal()
        return not (self.indented and begins_with_digit) and Execution.fits(self, row)

    @override
    def are_mixed(self, rows: Sequence[Row]) -> bool:
        if self.copies > 1:  # client and server print into one text
            return False
        own = rows[: self._first_of_others(rows)]
        return Execution.are_mixed(self, own)

    @override
    def finish(self) -> Record:
        record = Execution.finish(self)
        self._drop_rows_of_others()
        different = {row.cells for row in self.rows}
        is_doubled = len(different) < len(self.rows)
        if self.copies > 1 and is_doubled:
            record.findings.append(lines.BOTH_SIDES)
        is_cut = self.has_preamble and self.setup and not self.titled
        if is_cut and self.rows and "burst" not in self.case:
            record.incomplete = "The title above perftest's set-up is missing."
        is_endless = len(self.rows) > 1 == self.copies == len(self.sizes)
        if is_endless:  # no end is expected
            record.finished = record.finished or None
        if lines.IWARP in self.setup:  # its connections are named as InfiniBand's are
            record.facts["transport"] = "iWARP"
        return record

    def _drop_rows_of_others(self) -> None:
        """Drop rows of a table that lost its header: below a title are the rows of one process."""
        if self.copies > 1:
            return
        first = self._first_of_others(self.rows)
        for lost in self.rows[first:]:
            self.damage(lost.line)
        del self.rows[first:]
        del self.points[first:]

    def _first_of_others(self, rows: Sequence[Row]) -> int:
        """Return the position of the first row of another table; their number if there is none."""
        for at, (row, below) in enumerate(pairwise(rows), 1):
            if self.titled and below.size < row.size:
                return at
        return len(rows)


def _events(text: str, execution: Execution | None) -> Events | None:
    cycles = isinstance(execution, Process) and execution.cycles
    events = lines.read(text, is_inside=execution is not None, cycles=cycles)
    is_about_next = execution is None or execution.rows
    match events:
        case (Setting() as stated,) if is_about_next:
            return (Ahead((stated,)),)
    return events


TABLE = Table(benchmark="perftest", events=_events, fits=rows.fits, points=rows.points)


class Terminal:
    """Reads what the processes of one stream print, one after another."""

    def __init__(self, stream: Stream, step: Marker | None) -> None:
        self.process: Process | None = None
        self._stream = stream
        self._step = step
        self._ahead: list[Setting] = []
        """What was said about the process that begins next."""
        self._is_ruled = False
        """Whether the last line was a rule, and not below rows."""
        self._json = ""
        self._transport = TransportLines()

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Return what a line completes; None if it is not of perftest."""
        blanks = line.text.replace("\xa0", " ").replace("&nbsp;", " ")
        line = line._replace(text=lines.MARKS.sub("", blanks))
        process = self.process
        if process is not None and self._json:
            return self._continue_json(line, process)
        return self._read(line)

    def close(self) -> None:
        """End the open process."""
        if self.process is not None:
            record = self.process.record
            record.facts = {**self._transport.facts(), **record.facts}
        self.process = None
        self._transport = TransportLines()

    def _read(self, line: Line) -> Sequence[Reading] | None:
        process = self.process
        may_fail = process is not None
        events = read_any_line(TABLE, line, process, self._transport, may_fail=may_fail)
        if process is not None:
            match events:
                case (RowLine() as row,):
                    return process.take(row)
        is_below_rule = self._is_ruled
        notes = [event for event in events or () if isinstance(event, Note)]
        self._note_rule(line.text, notes)
        if notes:
            return self._add(line, notes, events or (), is_below_rule=is_below_rule)
        return self._add_other(events)

    def _note_rule(self, text: str, notes: Sequence[Note]) -> None:
        is_passed_over = any(note.kind in _SAYS_NOTHING for note in notes)
        if is_passed_over or not text.strip():
            return
        process = self.process
        is_below_rows = process is not None and process.headed and bool(process.rows)
        self._is_ruled = lines.RULE.fullmatch(text) is not None and not is_below_rows

    def _add_other(self, events: Events | None) -> Sequence[Reading] | None:
        """Add a line without a kind: a fact, or what is left of a row."""
        match events:
            case (Ahead((Setting() as stated,)),):
                self._ahead.append(stated)
                return None
        if self.process is None or events is None:
            return None
        for event in events:
            self.process.hear(event)
        return ()

    def _add(
        self, line: Line, notes: Sequence[Note], events: Events, *, is_below_rule: bool
    ) -> Sequence[Reading]:
        process = self._process_of(notes, is_below_rule=is_below_rule)
        kind = notes[0].kind
        process.reach(kind)
        if kind == "header":
            if not process.headed or is_below_rule:
                process.record.finished = False if is_below_rule else None
            process.indented = line.text[:1].isspace()
        readings: Sequence[Reading] = ()
        for event in events:
            if isinstance(event, RowLine):
                readings = process.take(event)
            else:
                process.hear(event)
        if kind == "json":
            process.damage(line)  # until all has been read
            self._json = "\n"
            return self._continue_json(line, process)
        return readings

    def _process_of(self, notes: Sequence[Note], *, is_below_rule: bool) -> Process:
        """Return the process that a line is of, which may begin with it."""
        before = self.process
        kind, side, *_ = notes[0]
        if before is not None and not before.ends_before(kind, side):
            return before
        self.close()
        setup = {note.value for note in notes if note.kind == "setup"}
        has_title_above = is_below_rule and not _UPPER_HALF.isdisjoint(setup)
        record = Record(benchmark="perftest")
        process = Process(TABLE, record, stream=self._stream, step=self._step)
        process.has_preamble = before is not None or kind in {"command", "json"} or has_title_above
        if self._step is not None and "together" in self._step.facts:
            record.facts["together"] = self._step.facts["together"]
        for stated in self._ahead:
            process.add(stated)
        self._ahead.clear()
        self.process = process
        return process

    def _continue_json(self, line: Line, process: Process) -> Sequence[Reading]:
        self._json += f"{line.text}\n"
        told = [*from_json(self._json)] if "}" in line.text else []
        if not told and len(self._json) <= _LONGEST_JSON:
            return ()
        self._json = ""
        readings: list[Reading] = []
        if told:
            process.record.damaged.pop()
        for text in told:
            readings += self._read(line._replace(text=text)) or ()
        if self.process is not None:
            self.process.stage = Stage.TABLE
        return readings
