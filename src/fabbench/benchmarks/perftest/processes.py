"""Reads what one process of perftest prints, from its banner to the rule below its rows.

Several may share a terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast

from fabbench.benchmarks import LogReadings
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
from fabbench.benchmarks.executions import MIXED_TABLES, Execution, Table, read_any_line
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.perftest import lines, rows
from fabbench.benchmarks.tables import NEVER, Row
from fabbench.model.compat import override
from fabbench.model.log import NO_STEP, NO_STREAM, Finding, Line, Marker, Point, Record, Stream
from fabbench.model.mappings import first_of

_OTHER = {"local": "remote", "remote": "local"}
_WHOLE_SETUP = frozenset({"Number of qps", "Connection type", "Mtu", "Link type"})
_SHOWS_SIDE = frozenset({"header", "sum", "failure"})
"""Above these stands all that shows the side of a process."""


_MAY_FOLLOW_RULE = frozenset({"cpu", "warning"})
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

    Where two print into one text in turns, nothing shows which row is whose: none is read.
    """

    stream: Stream = NO_STREAM
    step: Marker = NO_STEP  # fabbench's own, in which it was started
    stage: Stage = Stage.START
    has_title: bool = False
    has_header: bool = False  # Whether names of columns were read
    indented: bool = False
    """Whether the names of columns are."""
    is_both_ways: bool = False
    """Whether both sides send."""
    is_in_cycles: bool = False  # Whether -C makes times those of the CPU's clock
    is_refused: bool = False
    """Whether its rows are not read."""
    sides: list[str] = field(default_factory=list)
    """Those that the command line, banners and headings name."""
    setup: set[str] = field(default_factory=set)  # Names of the settings above its table
    addresses: dict[str, set[str]] = field(default_factory=dict)
    """`local` or `remote` → queue pairs."""
    is_side_shown: bool = False
    """Whether all that shows its side has been read."""
    is_grouped: bool = False
    """Whether it belongs to a run."""

    @property
    def case(self) -> str:
        """The program; empty if it is not known."""
        return self.record.case or ""

    # -- the other side

    @property
    def side(self) -> str:
        """`server` or `client`; empty if the text names neither or both."""
        named_sides = {*self.sides, self.stream.side} - {""}
        if len(named_sides) > 1:
            return ""
        side_of_setup = self._shown_side()
        if named_sides == {"server"} and side_of_setup == "client":
            # A truncated command line has no server address, and looks like that of the server.
            return ""
        return first_of(named_sides, side_of_setup)

    def _shown_side(self) -> str:
        """Return the side that the set-up shows.

        TX is the sender's, RX the receiver's, both if both send; a server that is written to or
        read has neither.
        """
        if not self.case or not self.has_title or self.is_both_ways:
            return ""
        depths = self.setup & {"TX depth", "RX depth"}
        if depths == {"TX depth"}:
            return "client"
        # That there is no depth counts only where no line of the set-up is missing.
        is_whole = "send" not in self.case and self.setup >= _WHOLE_SETUP
        if depths == {"RX depth"} or (is_whole and not depths):
            return "server"
        return ""

    def is_other_end(self, other: "Process") -> bool:
        """Return whether the printed addresses are the two ends of the same queue pairs."""
        # What is local here is remote there; one end alone proves nothing.
        swapped = {_OTHER[end]: pairs for end, pairs in self.addresses.items()}
        return len(swapped) > 1 and swapped == other.addresses

    def may_run_with(self, other: "Process") -> bool:
        """Return whether the two may be of one program: one may not say of which it is."""
        return not self.case or not other.case or self.case == other.case

    def is_peer(self, other: "Process") -> bool:
        """Return whether these two are the server and the client of one run.

        Their addresses show it best; without, the sides do.
        """
        if not self.may_run_with(other):
            return False
        if len(self.addresses) == len(other.addresses) == 2:  # each printed local and remote ones
            return self.is_other_end(other)
        return {self.side, other.side} == {"server", "client"}

    # -- what lines say

    def ends_before(self, kind: str, value: str) -> bool:
        """Return whether a kind of line can only belong to a later process.

        `value`: of its note; only that of a command counts, its side.
        """
        has_begun = bool(self.stage or self.record.failures)
        if kind == "command":
            # All output of a background server may be below the client's command: that one is of
            # the other side.
            return has_begun or self.sides[:1] == [value]
        stage = _STAGES.get(kind)
        if stage is None or not has_begun:
            return False
        if kind == "header":
            # One header without rows yet, or among tables that mix, is of this process.
            has_table = self.has_header and bool(self.rows or self.record.damaged)
            return has_table and not self.is_refused
        if self.stage == Stage.TABLE:
            return True
        if kind == "title" and self.has_title:
            # A second title shows that two print in turns, unless the first has failed.
            return bool(self.record.failures)
        # A banner ends a process that has printed more; other lines may come late.
        return stage == Stage.START < self.stage

    def reach_stage_of(self, kind: str) -> None:
        """Note that a kind of line was printed: its stage, and whether the side is shown by now."""
        self.stage = max(self.stage, _STAGES.get(kind, Stage.START))
        self.is_side_shown = self.is_side_shown or kind in _SHOWS_SIDE

    def add_events(self, events: Events) -> Sequence[Point]:
        """Add what a line says; return the points of a row."""
        return [point for event in events for point in self._add_event(event)]

    def _add_event(self, event: Event) -> Sequence[Point]:
        match event:
            case RowLine():
                return self.add_row(event)
            case Note(kind="gid"):  # one that is an IPv4 address
                self._check_link_beside_gid()
            case Note():
                self._add_note(event)
            case Header():
                self._add_header(event)
            case Error():
                speaker = f"The {self.side}" if self.side else "perftest"
                self.add(Fail(f"{speaker} said: {event.text}"))
            case _:
                self.add(cast("Statement", event))
        return ()

    def _add_note(self, note: Note) -> None:
        """Add what a note states (`value`), by the kind of its line."""
        value = note.value
        match note.kind:
            case "command":
                self.sides = [value]
            case "banner" | "waiting":
                self.sides = [*dict.fromkeys([*self.sides, "server"])]
            case "title":
                self._add_title(value)
            case "both":
                self.is_both_ways = bool(value)
            case "cycles":
                self.is_in_cycles = bool(value)
            case "setup":
                self.setup.add(value)
            case "device":
                self._check_device(value)
            case "local" | "remote":
                self.addresses.setdefault(note.kind, set()).add(value)
            case "results":  # the heading of each side's share, with --report-both
                self._refuse_rows(finding("shares-unread"))
            case "rule":
                self._end_table()
            # The summary of a script; the value names fabtests where its figures are of that
            case "sum":
                self.record.benchmark = value or self.record.benchmark

    def _add_title(self, program: str) -> None:
        if self.has_title:  # of two that print in turns
            self._refuse_rows(finding(MIXED_TABLES))
        self.has_title = True
        if not self.case.startswith("raw_ethernet"):  # whose title is that of ib_send
            self.record.case = program

    def _check_device(self, device: str) -> None:
        contradiction = self.step.contradiction("device", device, self.stream.side)
        self.record.off_fabric = self.record.off_fabric or contradiction

    def _check_link_beside_gid(self) -> None:
        """Add a finding if a GID that is an IPv4 address follows an InfiniBand link."""
        if self.record.facts.get("link") == "IB":
            self.add(finding("link-differs"))

    def _refuse_rows(self, why: Finding) -> None:
        """Read no rows: what they are is not known."""
        if not self.is_refused:
            self.add(why)
        self.is_refused = True

    def _end_table(self) -> None:
        if self.has_header and self.rows:  # else the rule is above the table
            self._end_rows()
            self.add(Setting(last_size=0))  # the rule proves the end: no size is expected
            self.add(End())

    def _end_rows(self) -> None:
        """Read no more rows: those that follow are of a table whose heading is missing."""
        self.layouts = [(*layout, NEVER) for layout in self.layouts]

    def _add_header(self, header: Header) -> None:
        # Labels of all rows below it; none are read where it shows that they mix, or have no unit.
        labels = {"rank": self.stream.rank}
        if not header.is_row:  # a row without a header, of a summary, has no labels of a table
            if self.has_header:  # of two tables that mix
                self._refuse_rows(finding(MIXED_TABLES))
            self.has_header = True
            # All layouts of a header have the same metrics: only their cells' decimals differ.
            is_latency = any(column.metric == "latency" for column in header.layouts[0])
            if is_latency and self.is_in_cycles:
                self._refuse_rows(finding("unit-cycles"))
            labels |= self._table_labels(is_latency=is_latency)
        self.add(Setting(labels=labels))
        self.add(header)
        if self.is_refused:
            self._end_rows()

    def _table_labels(self, *, is_latency: bool) -> Mapping[str, str]:
        """Return the labels of all rows of a table; an empty one is not known, or not of it."""
        return {
            "way": self._way() if is_latency else "",
            "direction": "" if is_latency else self._direction(),
            "side": self.side,
            "device": self.step.facts.get("device", ""),
        }

    def _way(self) -> str:
        """Return which part of the round trip is printed (`rtt_factor` in the source).

        Empty: the program is not known. Of reads and atomics it is all: they return something.
        """
        if not self.case:
            return ""
        is_round = not {"read", "atomic"}.isdisjoint(self.case.split("_"))
        return "round-trip" if is_round else "one-way"

    def _direction(self) -> str:
        """Return `bi` or `uni`; empty: not known, for only a title shows that there is just one."""
        if not self.case.endswith("_bw"):
            return ""
        if self.is_both_ways:
            return "bi"
        return "uni" if self.has_title else ""

    # -- rows

    @override
    def count_row(self, row: Row) -> Sequence[Point]:
        above = self.rows[-1:]  # the last row so far, if there is one
        if self.has_title and above and row.size < above[0].size:
            # Below a title are the rows of one process: this one's heading is missing.
            self._end_rows()
            self.damage(row.line)
            return ()
        return Execution.count_row(self, row)

    @override
    def fits(self, row: Row) -> bool:
        # Whether the row is whole, and its figures are consistent.
        # The second half of a row that was torn within its size has no indent.
        begins_with_digit = row.line.text[:1].isdecimal()
        return not (self.indented and begins_with_digit) and Execution.fits(self, row)

    @override
    def finish(self) -> Record:
        record = Execution.finish(self)
        sizes = {row.size for row in self.rows}
        repeats_one_size = len(self.rows) > 1 == len(sizes)  # as --run_infinitely does
        if repeats_one_size:  # no end is expected: without one, `finished` is None, not False
            record.finished = record.finished or None
        if lines.IWARP in self.setup:  # its connections are named as InfiniBand's are
            record.facts["transport"] = "iWARP"
        return record


def _events(text: str, execution: Execution | None) -> Events | None:
    """Return what a line means.

    A fact below the rows of one process (a version, a GPU) is about the process that begins next.
    """
    events = lines.read(text, is_inside=execution is not None)
    is_about_next = execution is None or execution.rows
    match events:
        case (Setting() as stated,) if is_about_next:
            return (Ahead((stated,)),)
    return events


TABLE = Table(benchmark="perftest", events=_events, fits=rows.fits, points=rows.points)


class Terminal:
    """Reads what the processes of one stream print, one after another."""

    def __init__(self, stream: Stream, step: Marker) -> None:
        self.process: Process | None = None
        self._stream = stream
        self._step = step
        self._ahead: list[Setting] = []
        """What was said about the process that begins next."""
        self._is_below_rule = False
        """Whether the last line was a rule, and not below rows."""

    def feed(self, line: Line) -> LogReadings | None:
        """Return what a line completes; None if it is not of perftest."""
        with_blanks = line.text.replace("\xa0", " ").replace("&nbsp;", " ")
        return self._read_plain(line._replace(text=lines.MARKS.sub("", with_blanks)))

    def _read_plain(self, line: Line) -> LogReadings | None:
        """Read a line without the marks of documents: a row, a line with a kind, or another one.

        A line with a kind has notes, and may begin a process.
        """
        may_fail = self.process is not None
        events = read_any_line(TABLE, line, self.process, may_fail=may_fail)
        notes = [event for event in events or () if isinstance(event, Note)]
        if notes:
            self._turn_to_process_of(notes[0], line)
        readings = self._add(events)
        self._note_rule(line.text, notes)
        return readings

    def _note_rule(self, text: str, notes: Sequence[Note]) -> None:
        """Note whether the next line is below a rule that opens a table, and does not close one."""
        is_passed_over = any(note.kind in _MAY_FOLLOW_RULE for note in notes)
        if is_passed_over or not text.strip():
            return
        process = self.process
        is_below_rows = process is not None and process.has_header and bool(process.rows)
        self._is_below_rule = lines.RULE.fullmatch(text) is not None and not is_below_rows

    def _add(self, events: Events | None) -> LogReadings | None:
        """Add what a line says to the open process.

        None for a fact about the next process: the line may be another benchmark's.
        """
        match events:
            case (Ahead((Setting() as stated,)),):
                self._ahead.append(stated)
                return None
        if self.process is None or events is None:
            return None
        return self.process.add_events(events)

    def _turn_to_process_of(self, note: Note, line: Line) -> None:
        """Turn to the process that a line with a kind (its first note) is of."""
        kind, value, *_ = note
        process = self._process_of(kind, value)
        process.reach_stage_of(kind)
        if kind == "header":
            if not process.has_header or self._is_below_rule:
                # A table with a rule above it has one below it, too: the end that is expected.
                process.record.finished = False if self._is_below_rule else None
            process.indented = line.text[:1].isspace()

    def _process_of(self, kind: str, value: str) -> Process:
        """Return the process that a kind of line is of, which may begin with it.

        `value`: of its note: the side of a command line, or the name of a setting.
        """
        above = self.process
        if above is not None and not above.ends_before(kind, value):
            return above
        if above is not None and above.has_title and kind == "setup" and value not in above.setup:
            # The rest of its set-up: the table above is of another process.
            above.add(finding(MIXED_TABLES))
            above.record.finished = False
        record = Record(benchmark="perftest")
        process = Process(TABLE, record, stream=self._stream, step=self._step)
        if "together" in self._step.facts:
            record.facts["together"] = self._step.facts["together"]
        for stated in self._ahead:
            process.add(stated)
        self._ahead.clear()
        self.process = process
        return process
