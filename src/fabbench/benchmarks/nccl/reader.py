"""Reads the text output of nccl-tests (`all_reduce_perf` and its siblings), v1.0 to 2.19.

A line is a row, in whole or in pieces (`torn`), or says something (`lines`); of copies that print
side by side, one is read (`copies`). The formats by version: docs/formats.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from fabbench.benchmarks import LogReadings, Reader, Reading, Shortcut
from fabbench.benchmarks.consistency import ranks_of_hosts
from fabbench.benchmarks.events import Fail, Note, RowLine
from fabbench.benchmarks.executions import Execution, Table, whole_row
from fabbench.benchmarks.nccl.collectives import Arithmetic, conclude, findings, gpu_shared
from fabbench.benchmarks.nccl.copies import Copies, may_be_row
from fabbench.benchmarks.nccl.lines import Device, ParsedLine, Stage, read_command, read_line
from fabbench.benchmarks.nccl.rows import (
    UNNAMED,
    Sample,
    one_sided,
    points,
    sample,
)
from fabbench.benchmarks.nccl.shortcut import fast_rows, models_of
from fabbench.benchmarks.nccl.torn import Rows, TornRows
from fabbench.benchmarks.tables import row_texts
from fabbench.model.compat import override
from fabbench.model.log import Facts, Line, Point, Record
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy
from fabbench.model.units import parse_whole

_COMMENT = lazy(r"#[\s#]*+(?!\d)")
_ROWS_TO_SETTLE = 64
_DIGIT = lazy(r"\d")
_LONG_COMMENT = lazy("#.{70}")
"""One that may go on in the next line: a terminal ended it."""
NO_MPI = (
    "The program was built without MPI: independent copies ran side by side, each with a "
    "table of its own."
)

TABLE = Table(benchmark="nccl", points=points, finished=False)


@dataclass(eq=False)
class NcclExecution(Execution):
    """One execution. Several streams (ranks) may print its lines; one prints the table."""

    copies: Copies = field(default_factory=Copies)
    torn: TornRows = field(default_factory=lambda: TornRows(UNNAMED))
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    unsettled: list[tuple[Line, Sample]] | None = field(default_factory=list)
    """The first rows, by which the arithmetic is settled. None: it is."""
    remains: list[Line] = field(default_factory=list)
    """Rows that could not be read."""
    wrong_sides: int = 0
    """Sides of rows (out-of-place, in-place) whose data failed the check."""
    has_checks: bool | None = None
    """Whether rows state the result of a data check; None: there are no rows."""
    channels_by_algorithm: dict[str, int] = field(default_factory=dict)
    """`ALGORITHM/PROTOCOL` → the channels of its last row."""
    shortcut: Shortcut | None = None
    """A fast path for more rows of its table."""

    # -- what lines say

    def add_line(self, parsed: ParsedLine, rank: str = "") -> None:
        """Add what a line of a rank says, which is no row."""
        if not self.copies.note_line(parsed, rank):
            return  # the header of a copy's table: of several, one is read
        for event in parsed.events:
            if isinstance(event, Device):
                self.copies.note_device(event)
            else:
                self.add(event)
        if parsed.kind in {"header", "units"}:  # both say what columns rows have
            layout = self.layouts[0]  # its figures have the columns that all layouts have
            self.torn = TornRows(self.layouts)
            self.shortcut = fast_rows(layout, models_of(layout), self.add_sample)

    def ranks(self) -> int | None:
        """Return the number of ranks, by the highest one that is listed.

        None: no device is listed, or those of several groups or copies are.
        """
        devices = self.copies.devices
        groups = {device.group for device in devices.values()}
        is_one_group = len(groups) == 1 and not self.copies.are_several
        return max(devices) + 1 if is_one_group else None

    # -- rows

    def ended_above(self, parsed: ParsedLine, rank: str) -> bool:
        """Return whether this execution ended above a line, which can only be of a later one."""
        finished = self.record.finished is True
        has_rows = bool(self.points)
        return self.copies.is_of_later(parsed, rank, has_rows=has_rows, finished=finished)

    def fast_path(self, rank: str) -> Shortcut | None:
        """Return a fast path for more rows of a rank; None if the next one may be special."""
        is_usual = self.torn.held is None and self.copies.is_inside_table(rank)
        return self.shortcut if is_usual else None

    def is_no_row(self, text: str) -> bool:
        """Return whether a line is neither a row nor part of one."""
        if self.copies.printer is None:  # no table has begun, so that no row can be torn
            return not may_be_row(text)
        return self.torn.held is None and _COMMENT.match(text) is not None

    def read_rows(self, line: Line) -> Rows | None:
        """Return the rows that a line completes; None if it is no part of a table.

        If no header was seen, because a filter removed it, only a whole row counts.
        """
        rank = line.stream.rank
        copies = self.copies
        if copies.is_row_of_other_copy(line):
            return ()  # it is of nccl-tests, and does not count
        if not copies.is_printer(rank):
            return None
        rows = self.torn.feed(line, closed=copies.is_closed(rank))
        if copies.printer is None:  # no header was seen
            if not self.torn.has_whole(rows or ()):
                self.torn = TornRows(UNNAMED)
                return None
            self.layouts = UNNAMED
            copies.printer = rank
        return rows

    def add_rows(self, rows: Rows) -> Sequence[Point]:
        """Add rows, or what is left of some; return the points of those that count."""
        points: list[Point] = []
        for row in rows:
            if isinstance(row, RowLine):
                points += self._add_row(row)
            else:
                self.remains.append(row.line)
                self.damage(row.line)
        if points:
            self.copies.note_counted_rows()
        return points

    def _add_row(self, printed: RowLine) -> Sequence[Point]:
        row = self.read(printed)
        points = self.table.points(row)
        measured = sample(printed, row.figures)._replace(points=points)
        models_of(self.layouts[0]).learn(printed, measured)  # for the fast path
        channels = parse_whole(row.cell("channels"))
        if channels is not None:  # the row says how NCCL moved the data
            name = f"{row.cell('algorithm')}/{row.cell('protocol')}"
            self.channels_by_algorithm[name.upper()] = channels
        return self.add_sample(row.line.number, row.line.text, measured)

    def add_sample(self, number: int, text: str, row: Sample) -> Sequence[Point]:
        """Add a whole row; return its points, unless it contradicts those above.

        The first rows are collected, to choose the arithmetic that all have to fit.
        """
        if self.unsettled is not None:
            self.unsettled.append((Line(number, text), row))
        elif not self.arithmetic.fits(row):
            self.damage(Line(number, text))
            return ()
        self.points.append(row.points)
        self.wrong_sides += row.wrong
        self.has_checks = row.checked or bool(self.has_checks)
        if self.unsettled is not None and len(self.unsettled) == _ROWS_TO_SETTLE:
            self.settle_arithmetic()
        return row.points

    def settle_arithmetic(self) -> None:
        """Choose the arithmetic that the rows so far fit, and take back those that do not."""
        rows = self.unsettled or []
        self.unsettled = None
        if not rows:
            return
        samples = [row for _, row in rows]
        self.arithmetic.settle(samples, self.record.case, self.ranks())
        self.points.clear()
        for line, row in rows:
            if self.arithmetic.fits(row):
                self.points.append(row.points)
            else:
                self.damage(line)

    @override
    def damage(self, line: Line) -> None:
        text = " ".join(line.text.split())
        super().damage(line._replace(text=text))

    def add_rows_damaged_alike(self) -> Sequence[Point]:
        """Add rows that seem damaged, if all are so alike that this is their layout, and no damage.

        All have one label before them, or the figures of one side. Return their points; none if a
        row was read as usual, or they differ.
        """
        lines = self.remains
        damaged = self.record.damaged
        are_all = len(lines) == len(damaged)
        if self.points or not are_all or len(lines) < 2:
            return ()
        label, *_ = _DIGIT.split(lines[0].text, maxsplit=1)  # what stands before the size
        rows = [self._row_behind(label, line) for line in lines]
        whole = [row for row in rows if row is not None]
        layouts = {row.layout for row in whole}
        if len(whole) < len(rows) or len(layouts) > 1:
            return ()
        damaged.clear()
        return [*chain.from_iterable(map(self._add_row, whole))]

    def _row_behind(self, label: str, line: Line) -> RowLine | None:
        """Return the row behind a label, with both sides or a single one; None if it is none."""
        row = line._replace(text=line.text.removeprefix(label))
        sides = one_sided(self.layouts, row.text)
        return whole_row(row, [*self.layouts, *sides])

    # -- the end

    @override
    def finish(self) -> Record:
        """Complete the record: failures, devices and facts, then what all rows together show."""
        record = self.record
        notes = {note.kind: note for note in self.notes}
        if "usage" in notes:  # its program's name, if nothing else names it
            record.case = record.case or notes["usage"].value
        self.settle_arithmetic()
        self.shortcut = None  # it refers to this execution: a cycle would keep its rows
        super().finish()
        # FAILED counts checks (row × side × rank); without a footer, the rows are the only source.
        record.wrong = record.wrong or self.wrong_sides
        self._add_failures(notes)
        devices = [*self.copies.devices.values()]
        record.hosts = frozenset(device.host for device in devices)
        record.processes = [device.process for device in devices if device.pid]
        record.gpus = frozenset(device.gpu for device in devices)
        record.facts |= _facts_of_devices(devices)
        record.findings += gpu_shared(devices)
        if self.channels_by_algorithm:
            channels = max(self.channels_by_algorithm.values())
            algorithms = "+".join(sorted(self.channels_by_algorithm))
            record.facts |= {"algorithms": algorithms, "channels": channels}
        if self.has_checks is not None:
            record.facts["checked"] = "yes" if self.has_checks else "no"
        # Whether there is a device line of each rank: then their number is certain.
        is_listed = len(self.copies.devices) == record.facts.get("ranks")
        # Only the columns of the JSON have a number of decimals.
        exact = any(column.decimals for layout in self.layouts for column in layout)
        of_figures = findings(record, notes, exact=exact)
        conclude(
            record,
            self.arithmetic.formula,
            ranks=self.ranks() if is_listed else None,
            findings=of_figures,
        )
        return record

    def _add_failures(self, notes: Mapping[str, Note]) -> None:
        record = self.record
        if "usage" in notes and not record.points:
            self.add(Fail("The program printed its usage text instead of running."))
        if "timeout" in notes:
            limit = notes["timeout"]
            quote = limit.line[:200]
            record.timed_out = f"nccl-tests' own time limit of {limit.value} s expired: {quote}"
        # The chain of calls that failed names no cause: it counts where nothing else does.
        if "chain" in notes and not record.failures and not record.wrong:
            chain = notes["chain"].line[:LONGEST_QUOTE]
            self.add(Fail(f"nccl-tests ended with an error: {chain}"))
        if self.copies.are_several:
            record.failures.insert(0, NO_MPI)


def _facts_of_devices(devices: Sequence[Device]) -> Facts:
    """Return `ranks`, `hosts` and `gpus_per_host` if every rank is listed, and several `groups`."""
    if not devices:
        return {}
    ranks = max(device.rank for device in devices) + 1
    facts = {"ranks": ranks}
    hosts = {device.host for device in devices}
    if len(devices) == ranks:  # else some lines are missing
        facts |= ranks_of_hosts(ranks, len(hosts))
    groups = len({device.group for device in devices})
    if groups > 1:
        facts["groups"] = groups
    return facts


class NcclReader(Reader):
    """Splits the lines of a stream group into executions, and reads each."""

    def __init__(self) -> None:
        self._execution: NcclExecution | None = None
        self._case_ahead: str | None = None
        """The case of the last command line: about the execution that begins next; None: none."""
        self._is_foreign = False
        """Whether the lines are of another program that prints the same ones."""
        self._wrapped = ""
        """The last line, if it may go on in the next: a terminal ended it."""

    @override
    def feed(self, line: Line) -> LogReadings | None:
        # Return what the line completes: points of rows, and the record of an execution that ended
        # above it. None: it is not of nccl-tests.
        if "|" in line.text:  # of a table in Markdown, the cells
            line = line._replace(text=row_texts(line.text)[-1])
        if self._execution is None and not may_be_row(line.text):
            return self._read_no_row(line)
        execution = self._execution or self._new_execution()
        if execution.is_no_row(line.text):
            return self._read_no_row(line)
        before: list[Reading] = []
        if execution.copies.begins_other_run(line):
            before += self._end_execution()
            execution = self._new_execution()
            execution.copies.begins_other_run(line)  # only to note its size there, too
        rows = execution.read_rows(line)
        if rows is None:  # no part of a table: a whole row that is held did not go on
            before += execution.add_rows(execution.torn.release_whole_row())
            readings = self._read_no_row(line)
            return [*before, *(readings or ())] if before else readings
        if execution is not self._execution:  # a new one begins with this row
            self._open_execution(execution)
        return [*before, *execution.add_rows(rows)]

    def _read_no_row(self, line: Line) -> LogReadings | None:
        """Read a line that is no row; one that ends an execution returns what that measured.

        None: it is not of nccl-tests, though it may name the program of the next execution.
        """
        text = line.text
        # It may be the end of a long line that a terminal has wrapped.
        parsed = read_line(text) or read_line(self._wrapped + text)
        may_go_on = parsed is None and _LONG_COMMENT.match(text)
        self._wrapped = text if may_go_on else ""
        if parsed is None:
            self._case_ahead = read_command(text) or self._case_ahead
            return None
        if parsed.stage is Stage.BANNER:  # only a banner tells the programs apart
            self._is_foreign = parsed.kind == "foreign"
        if self._is_foreign:
            return self._end_execution() or None
        rank = line.stream.rank
        execution = self._execution
        before: LogReadings = ()
        if execution is not None and execution.ended_above(parsed, rank):
            before = self._end_execution()
        opened = self._execution or self._open_execution(self._new_execution())
        opened.add_line(parsed, rank)
        return before

    @override
    def shortcut(self, rank: str) -> Shortcut | None:
        return self._execution.fast_path(rank) if self._execution is not None else None

    @override
    def close(self) -> LogReadings:
        readings = self._end_execution()
        self._case_ahead = None
        self._is_foreign = False
        return readings

    def _new_execution(self) -> NcclExecution:
        # It is not open yet: only a row or a line of nccl-tests opens it.
        record = Record(benchmark="nccl", case=self._case_ahead)
        return NcclExecution(TABLE, record)

    def _open_execution(self, execution: NcclExecution) -> NcclExecution:
        """Begin an execution: the command line was about it."""
        self._execution = execution
        self._case_ahead = None
        return execution

    def _end_execution(self) -> list[Reading]:
        """Close the open execution; return the points of its last rows, and its record."""
        execution = self._execution
        self._execution = None
        if execution is None:
            return []
        last_points = execution.add_rows(execution.torn.release_held())
        return [*last_points, *execution.add_rows_damaged_alike(), execution.finish()]
