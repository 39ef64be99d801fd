"""Reads what one process of perftest prints, from its banner to the rule below its rows.

Several may share a terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
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
from fabbench.benchmarks.executions import MIXED_TABLES, Execution, Table, read_any_line
from fabbench.benchmarks.perftest import lines, rows
from fabbench.benchmarks.tables import NEVER, Layout, Row
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Finding, Line, Marker, Record, Stream

_OTHER = {"local": "remote", "remote": "local"}
_WHOLE_SETUP = frozenset({"Number of qps", "Connection type", "Mtu", "Link type"})
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
    step: Marker | None = None
    stage: Stage = Stage.START
    titled: bool = False
    headed: bool = False
    indented: bool = False
    """Whether the names of columns are."""
    both: bool = False
    """Whether both sides send."""
    cycles: bool = False
    is_refused: bool = False
    """Whether its rows are not read."""
    sides: list[str] = field(default_factory=list)
    """Those that the command line, banners and headings name."""
    setup: set[str] = field(default_factory=set)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    """`local` or `remote` → queue pairs."""
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
        if len(named) > 1:
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

    def may_run_with(self, other: "Process") -> bool:
        """Return whether the two may be of one program: one may not say of which it is."""
        return not self.case or not other.case or self.case == other.case

    def is_peer(self, other: "Process") -> bool:
        """Return whether these two are the server and the client of one run."""
        if not self.may_run_with(other):
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
            return has_table and not self.is_refused
        if self.stage == Stage.TABLE:
            return True
        if kind == "title" and self.titled:
            return bool(self.record.failures)
        return stage == Stage.START < self.stage

    def reach(self, kind: str) -> None:
        """Note a kind of line."""
        self.stage = max(self.stage, _STAGES.get(kind, Stage.START))
        self.is_known = self.is_known or kind in _SHOWS_SIDE

    def hear(self, event: Event) -> None:
        """Add what a line says."""
        match event:
            case Note(kind="gid"):
                self._check_link()
            case Note():
                self._note(event)
            case Header():
                self._add_header(event)
            case Error():
                speaker = f"The {self.side}" if self.side else "perftest"
                self.add(Fail(f"{speaker} said: {event.text}"))
            case _:
                self.add(cast("Statement", event))

    def _note(self, note: Note) -> None:
        value = note.value
        match note.kind:
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
                self.addresses.setdefault(note.kind, set()).add(value)
            case "results":
                self._refuse(lines.SHARES)
            case "rule":
                self._end_table()
            case "sum":
                self.record.benchmark = value or self.record.benchmark

    def _add_title(self, program: str) -> None:
        if self.titled:
            self._refuse(MIXED_TABLES)
        self.titled = True
        if not self.case.startswith("raw_ethernet"):
            self.record.case = program

    def _check_device(self, device: str) -> None:
        if self.step is not None and not self.record.off_fabric:
            self.record.off_fabric = self.step.contradiction("device", device, self.stream.side)

    def _check_link(self) -> None:
        """Hold the link to a GID that is an IPv4 address."""
        if self.record.facts.get("link") == "IB":
            self.add(lines.LINK_AND_GID)

    def _refuse(self, why: Finding) -> None:
        """Read no rows: what they are is not known."""
        if not self.is_refused:
            self.add(why)
        self.is_refused = True

    def _end_table(self) -> None:
        if self.headed and self.rows:
            self._end_rows()
            self.add(Setting(last_size=0))
            self.add(End())

    def _end_rows(self) -> None:
        """Read no more rows: those that follow are of a table whose heading is missing."""
        self.layouts = [(*layout, NEVER) for layout in self.layouts]

    def _add_header(self, header: Header) -> None:
        labels = {"rank": self.stream.rank}
        if not header.is_row:
            if self.headed:
                self._refuse(MIXED_TABLES)
            self.headed = True
            labels |= self._table_labels(header.layouts)
        self.add(Setting(labels=labels))
        self.add(header)
        if self.is_refused:
            self._end_rows()

    def _table_labels(self, layouts: Sequence[Layout]) -> Mapping[str, str]:
        is_latency = any(column.metric == "latency" for column in layouts[0])
        if is_latency and self.cycles:
            self._refuse(lines.CYCLES)
        return {
            "way": self._way() if is_latency else "",
            "direction": "" if is_latency else self._direction(),
            "side": self.side,
            "device": self.step.facts.get("device", "") if self.step is not None else "",
        }

    def _way(self) -> str:
        """Return which part of the round trip is printed (`rtt_factor` in the source)."""
        if not self.case:
            return ""
        is_round = not {"read", "atomic"}.isdisjoint(self.case.split("_"))
        return "round-trip" if is_round else "one-way"

    def _direction(self) -> str:
        if not self.case.endswith("_bw"):
            return ""
        if self.both:
            return "bi"
        return "uni" if self.titled else ""

    # -- rows

    def take(self, printed: RowLine) -> Sequence[Reading]:
        """Add a row; return its points."""
        row = self.read(printed)
        if row is None:
            return ()
        above = self.rows[-1:]
        if self.titled and above and row.size < above[0].size:
            # Below a title are the rows of one process: this one's heading is missing.
            self._end_rows()
            self.damage(row.line)
            return ()
        return self.count(row) if self.accepts(row) else ()

    @override
    def fits(self, row: Row) -> bool:
        # The second half of a row that was torn within its size has no indent.
        begins_with_digit = row.line.text[:1].isdecimal()
        return not (self.indented and begins_with_digit) and Execution.fits(self, row)

    @override
    def finish(self) -> Record:
        record = Execution.finish(self)
        is_endless = len(self.rows) > 1 == len(self.sizes)
        if is_endless:  # no end is expected
            record.finished = record.finished or None
        if lines.IWARP in self.setup:  # its connections are named as InfiniBand's are
            record.facts["transport"] = "iWARP"
        return record


def _events(text: str, execution: Execution | None) -> Events | None:
    events = lines.read(text, is_inside=execution is not None)
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

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Return what a line completes; None if it is not of perftest."""
        blanks = line.text.replace("\xa0", " ").replace("&nbsp;", " ")
        return self._read(line._replace(text=lines.MARKS.sub("", blanks)))

    def _read(self, line: Line) -> Sequence[Reading] | None:
        process = self.process
        may_fail = process is not None
        events = read_any_line(TABLE, line, process, may_fail=may_fail)
        if process is not None:
            match events:
                case (RowLine() as row,):
                    return process.take(row)
        notes = [event for event in events or () if isinstance(event, Note)]
        if notes:
            readings: Sequence[Reading] | None = self._add(line, notes, events or ())
        else:
            readings = self._add_other(events)
        self._note_rule(line.text, notes)
        return readings

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

    def _add(self, line: Line, notes: Sequence[Note], events: Events) -> Sequence[Reading]:
        kind, side, *_ = notes[0]
        process = self._process_of(kind, side)
        process.reach(kind)
        if kind == "header":
            if not process.headed or self._is_ruled:
                process.record.finished = False if self._is_ruled else None
            process.indented = line.text[:1].isspace()
        readings: Sequence[Reading] = ()
        for event in events:
            if isinstance(event, RowLine):
                readings = process.take(event)
            else:
                process.hear(event)
        return readings

    def _process_of(self, kind: str, side: str) -> Process:
        """Return the process that a kind of line is of, which may begin with it."""
        before = self.process
        if before is not None and not before.ends_before(kind, side):
            return before
        record = Record(benchmark="perftest")
        process = Process(TABLE, record, stream=self._stream, step=self._step)
        if self._step is not None and "together" in self._step.facts:
            record.facts["together"] = self._step.facts["together"]
        for stated in self._ahead:
            process.add(stated)
        self._ahead.clear()
        self.process = process
        return process
