"""Reads what one process of perftest prints, from its banner to the rule below its rows.

Several may share a terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from fabbench.benchmarks import processes
from fabbench.benchmarks.events import Ahead, End, Events, Header, Note, Setting, Statement
from fabbench.benchmarks.executions import MIXED_TABLES, Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.perftest import lines, rows
from fabbench.benchmarks.tables import NEVER, Row
from fabbench.model.compat import override
from fabbench.model.log import NO_STEP, Finding, Point, Record
from fabbench.model.mappings import first_of

_OF_TABLE = frozenset({"header", "sum"})
"""Lines with which rows begin."""
_OF_SERVER = frozenset({"banner", "waiting"})
"""Lines that only a server prints."""
_WHOLE_SETUP = frozenset({"Number of qps", "Connection type", "Mtu", "Link type"})


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
    "header": Stage.TABLE,
    "sum": Stage.TABLE,
}
"""Kind of a line → when a process prints it; others: at any time."""


@dataclass(slots=True, eq=False)
class Process(processes.Process):
    """What one process printed.

    Where two print into one text in turns, nothing shows which row is whose: none is read.
    """

    told: dict[str, dict[str, None]] = field(default_factory=dict)
    """Kind of a line that it printed → the values of such lines: names of settings, queue pairs."""
    is_refused: bool = False
    """Whether its rows are not read."""

    @property
    def stage(self) -> Stage:
        """How much it has printed."""
        stages = (_STAGES.get(kind, Stage.START) for kind in self.told)
        return max(stages, default=Stage.START)

    @property
    def has_title(self) -> bool:
        """Whether its title was read."""
        return "title" in self.told

    # -- the other side

    @property
    @override
    def side(self) -> str:
        # Empty if the text names neither or both.
        commands = [*self.told.get("command", ())]
        named_sides = set(commands[-1:])
        if self.stream.side:
            named_sides.add(self.stream.side)
        if not _OF_SERVER.isdisjoint(self.told):
            named_sides.add("server")
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
        if not self.case or not self.has_title or "both" in self.told:
            return ""
        setup = self.told.get("setup", {}).keys()
        depths = setup & {"TX depth", "RX depth"}
        if depths == {"TX depth"}:
            return "client"
        # That there is no depth counts only where no line of the set-up is missing.
        is_whole = "send" not in self.case and setup >= _WHOLE_SETUP
        if depths == {"RX depth"} or (is_whole and not depths):
            return "server"
        return ""

    @override
    def is_peer(self, other: processes.Process) -> bool:
        if not isinstance(other, Process):
            return False
        # What is local here is remote there; addresses show it best, the sides if one has none.
        addresses = self.addresses
        of_other = other.addresses[::-1]
        if all(addresses) and all(of_other):
            return addresses == of_other
        return {self.side, other.side} == {"server", "client"}

    @property
    def addresses(self) -> Sequence[Mapping[str, None]]:
        """The queue pairs that it printed as local, and as remote ones."""
        return [self.told.get(end, {}) for end in ("local", "remote")]

    @property
    @override
    def is_told_by_peer(self) -> bool:
        # Nothing else tells processes apart but what they print.
        return not self.stream.rank and not self.stream.side and self.step is NO_STEP

    @property
    @override
    def shows_run(self) -> bool:
        # Above a table, and above an error, stands all that shows the side of a process.
        return self.stage == Stage.TABLE or bool(self.record.failures)

    # -- what lines say

    @override
    def is_ended_by(self, events: Events) -> bool:
        notes = (event for event in events if isinstance(event, Note))
        return any(map(self._is_ended_by, notes))

    def _is_ended_by(self, note: Note) -> bool:
        # Whether a kind of line can only belong to a later process.
        has_failed = bool(self.record.failures)
        stage = _STAGES.get(note.kind, self.stage)  # a line without one may come at any time
        if note.kind == "command":
            # All output of a background server may be below the client's command: that one is of
            # the other side.
            is_repeated = note.value in self.told.get("command", ())
            return is_repeated or has_failed or stage < self.stage
        if note.kind in _OF_TABLE:
            # One header without rows yet, or among tables that mix, is of this process.
            return bool(self.rows or self.record.damaged) and not self.is_refused
        if note.kind == "title" and self.has_title and self.stage < Stage.TABLE:
            # A second title shows that two print in turns, unless the first has failed.
            return has_failed
        return stage < self.stage

    @override
    def add(self, statement: Statement) -> None:
        match statement:
            case Note():
                self._act_on(statement)
                self.told.setdefault(statement.kind, {})[statement.value] = None
            case Header():
                self._add_header(statement)
            case _:
                processes.Process.add(self, statement)

    def _act_on(self, note: Note) -> None:
        match note.kind:
            case "title":
                self._add_title(note.value)
            case "gid":  # one that is an IPv4 address, which InfiniBand has not
                if "IB" in self.reported.get("link", {}):
                    self.add(finding("link-differs"))
            case "results":  # the heading of each side's share, with --report-both
                self._refuse_rows(finding("shares-unread"))
            case "rule":
                self._end_table()
            # The summary of a script; the value names fabtests where its figures are of that
            case "sum":
                self.record.benchmark = note.value or self.record.benchmark

    def _add_title(self, program: str) -> None:
        if self.has_title:  # of two that print in turns
            self._refuse_rows(finding(MIXED_TABLES))
        if not self.case.startswith("raw_ethernet"):  # whose title is that of ib_send
            self.record.case = program

    def _refuse_rows(self, why: Finding) -> None:
        """Read no rows: what they are is not known."""
        if not self.is_refused:
            self.add(why)
        self.is_refused = True

    def _end_table(self) -> None:
        if self.rows:  # else the rule is above the table
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
            if self.headers_read:  # of two tables that mix
                self._refuse_rows(finding(MIXED_TABLES))
            # A table with a rule above it has one below it, too: the end that is expected.
            self.record.finished = False if "rule" in self.told else None
            # All layouts of a header have the same metrics: only their cells' decimals differ.
            is_latency = any(column.metric == "latency" for column in header.layouts[0])
            if is_latency and "cycles" in self.told:
                self._refuse_rows(finding("unit-cycles"))
            labels |= self._table_labels(is_latency=is_latency)
        self.add(Setting(labels=labels))
        processes.Process.add(self, header)
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
        if "both" in self.told:
            return "bi"
        return "uni" if self.has_title else ""

    # -- rows

    @override
    def count_row(self, row: Row) -> Sequence[Point]:
        above = self.rows[-1].size if self.rows else 0
        if self.has_title and row.size < above:
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
        is_indented = any(self.told.get("header", ()))
        return not (is_indented and begins_with_digit) and Execution.fits(self, row)

    @override
    def finish(self) -> Record:
        record = Execution.finish(self)
        sizes = {row.size for row in self.rows}
        repeats_one_size = len(self.rows) > 1 == len(sizes)  # as --run_infinitely does
        if repeats_one_size:  # no end is expected: without one, `finished` is None, not False
            record.finished = record.finished or None
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
        case None if execution is None and lines.RULE.fullmatch(text):
            return (Ahead((Note("rule"),)),)
    return events


TABLE = Table(
    benchmark="perftest",
    program="perftest",
    events=_events,
    fits=rows.fits,
    points=rows.points,
)
