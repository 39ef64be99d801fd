"""Reads a server and a client of libfabric's tools, whose tables are alike, by process and pair.

Both print to one log: to streams of their own, one after the other, or in steps between fabbench's
markers.

Sizes and totals are 1024-based and truncated to one decimal digit, or none from 10 up: 1500 bytes
are ``1.4k`` (`size_str`). Counts are 1000-based and truncated (`cnt_str`). Times and rates have two
decimals, and usec/xfer is a C float. The code is the same in util/pingpong.c and
fabtests/common/shared.c.
"""

import getopt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import NamedTuple, TypeAlias

from fabbench.benchmarks import processes
from fabbench.benchmarks.commands import read_command_line, whole_number
from fabbench.benchmarks.consistency import ANYTHING, Printed, printed, product
from fabbench.benchmarks.events import (
    Begin,
    Error,
    Events,
    Header,
    Note,
    RowLine,
    Setting,
    Statement,
)
from fabbench.benchmarks.executions import MIXED_TABLES, Execution
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.processes import ProcessesReader, reported_by
from fabbench.benchmarks.tables import Cells, Row, columns_of
from fabbench.catalog.systems import rows_of
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Point, Record, fact_text
from fabbench.model.mappings import first_of, without
from fabbench.model.messages import with_remark
from fabbench.model.patterns import lazy

_TIMED_OUT = lazy(r"\s*\d+s timeout expired.*")
# The names of 2014 and 2015 only repeat the size.
_NAME_OF_SIZE = lazy(r"[\d.]+[kmg]?_(?:lat|bw)|custom")
_ENDPOINT = re.compile(r"fi_(msg|rdm|dgram)_")

Options: TypeAlias = tuple[str, str, str]
"""The short and long options of programs, as getopt takes them.

Then the letters of those whose value may be omitted: ``-E`` and ``-E=4000``.
"""


def read_command(
    text: str, program: re.Pattern[str], valid_options: Options, case: str | None = None
) -> Events | None:
    """Read a line that starts a program: its side, endpoint (-e), size (-S) and iterations (-I).

    None for a line that only names it, or with invalid arguments. `case`: the case, if it is not
    named after the program.
    """
    command = read_command_line(text, program)
    if command is None:
        return None
    short, long, optional = valid_options
    # getopt has no values that may be omitted: such options are left out, and say nothing here.
    may_omit_value = tuple(f"-{letter}" for letter in optional)
    readable_words = [
        word for word in command.words if not (may_omit_value and word.startswith(may_omit_value))
    ]
    try:
        options, operands = getopt.gnu_getopt(readable_words, short, long.split())
    except getopt.GetoptError:
        return None
    # A client has one operand, the server's address; several words are prose about the program.
    if len(operands) > 1 or command.program in operands:
        return None
    values = dict(options)
    facts = {
        "side": "client" if operands else "server",
        "endpoint": values.get("-e") or endpoint_of(command.program),
    }
    size = whole_number(values, "-S")
    iterations = whole_number(values, "-I")
    return (
        Begin(),
        Setting(case or command.program, facts, size=size, iterations=iterations),
    )


def error_lines(programs: str, sources: str) -> re.Pattern[str]:
    """Return a pattern for error lines with a source file, and of programs that cannot start.

    In this order: a message, a call that returned an error, and what the loader, the shell or
    getopt says. `programs`, `sources`: patterns of their names.
    """
    return lazy(
        rf"\[error\] (?:\d+:)?(?:fabtests:)?(?:\S*/)?{sources}:\d+.*"
        rf"|[\w/]+(?:\([^()]*\))?(?:\(\))?: (?:\S*/)?{sources}:\d+ ?, ret=-?\d+.*"
        rf"|(?:\S+: )*(?:line \d+: )?(?:\S*/)?(?:lt-)?{programs}: (?:error while "
        r"loading|(?:command )?not found"
        r"|invalid option|option requires|unrecognized option|No such file).*"
    )


_GLUED = lazy(r"(?<=\.\d\d)(?=\d)|(?<=\.\d\ds)(?=\d)")


def cells(text: str) -> Cells:
    """Return the cells of a row.

    There is no blank between full columns, and decimals show where each ends.
    """
    return Cells(_GLUED.sub(" ", text))


def endpoint_of(program: str) -> str:
    """Return the endpoint type that a program is named after; empty: it has several."""
    match = _ENDPOINT.match(program)
    return match[1] if match is not None else ""


_INFO_LINE = lazy(r"\s++(\w++):\s*+((?:\S++\s++(?=\S))*\S*+)\s*+")
_SECTION = lazy(r"\s*(fi_\w+_attr|nic|fi_info):.*")
_INFO_FACTS = {
    (row["section"], row["name"]): (row["fact"], row["pattern"])
    for row in rows_of("info.csv", "fabbench.benchmarks.libfabric")
}
"""Section and name → fact, and the pattern of its value."""

LOG_SETTINGS: Mapping[str, str] = {
    "FI_LOG_LEVEL": "info",
    "FI_LOG_PROV": "core,efa",
    "FI_LOG_SUBSYS": "core,ep_ctrl",
}
"""Environment that makes libfabric write these lines, at set-up, which is not timed."""

_LOG_LINE = lazy(
    r"libfabric:\d+:(?:\d+:)?(?:[^:]*:)?(?:core:\w+:\S*<info> Opened fabric: (?P<fabric>\S+)"
    r"|efa:\w+:\S*<info> QP enabled! .*domain_name: (?P<domain>[^,\s]+).*)"
)


def logged_facts(text: str, requested: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for the facts in a line of libfabric's own log (FI_LOG_LEVEL=info).

    `requested` is the provider of the command line (``-p``): libfabric can use no other, and it
    counts once a fabric is opened that is not named after another. EFA must name itself; it also
    opens `shm`. ``Opened fabric`` is from `fi_fabric` of src/fabric.c, ``QP enabled!`` from the
    provider efa (efa_base_ep.c).
    """
    line = _LOG_LINE.fullmatch(text)
    if line is None:
        return
    fabric, domain = line.groups("")
    if domain:
        yield "provider", "efa"
        yield "domain", domain
    elif (fabric, requested) != ("shm", "efa"):
        yield "fabric", fabric
        provider = _provider_of(fabric, requested)
        if provider:
            yield "provider", provider


def _provider_of(fabric: str, requested: str) -> str:
    """Return the provider of an opened fabric; empty: not known.

    Other providers' fabrics are not named after them: then the requested one is believed, unless
    that is EFA.
    """
    family, _, _ = fabric.lower().partition("-")
    if family in {"efa", "shm"}:
        return family
    return "" if requested == "efa" else requested


COLUMNS = columns_of("libfabric")
"""Name in a header → column."""

_BINARY = {
    "": 1,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
}
_DECIMAL = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


Given: TypeAlias = int | None
"""A number of the command line; None: it is not stated."""


class Range(NamedTuple):
    """The smallest and the largest number that a printed one may stand for."""

    low: int
    high: int


def count_range(cell: str, requested: Given) -> Range:
    """Return the counts that a truncated cell may stand for: ``1k`` is 1000 to 1999.

    Of them only that of the command line, where it states one.
    """
    return _only_requested(_printed_range(cell, _DECIMAL, Decimal(1)), requested)


def size_range(cell: str, requested: Given = None) -> Range:
    """Return the sizes in bytes that a truncated cell may stand for.

    Of them only that of the command line, where it states one.
    """
    has_decimal = cell[1:2] in {".", "k", "m", "g"}  # from 10 up, and of bytes, none is printed
    step = Decimal("0.1") if has_decimal else Decimal(1)
    return _only_requested(_printed_range(cell, _BINARY, step), requested)


def _printed_range(cell: str, units: Mapping[str, int], step: Decimal) -> Range:
    """Return the numbers that are truncated to a cell. `step`: up to the next one in its unit."""
    digits = cell.rstrip("kmgb")
    unit = units[cell[len(digits) :]]
    number = Decimal(digits)
    low = ceil(number * unit)
    next_one = ceil((number + step) * unit)
    return Range(low, next_one - 1)


def _only_requested(printed_range: Range, requested: Given) -> Range:
    """Return the number of the command line alone; `_NO_NUMBER` if it would print differently.

    The whole range where the command line states none.
    """
    low, high = printed_range
    if requested is None:
        return printed_range
    return Range(requested, requested) if low <= requested <= high else _NO_NUMBER


_ONE_WAY = lazy(r"pingpong|_lat")
"""In names of programs that send one message at a time back and forth."""
_SEVERAL = lazy(r".*(?:_mt|ubertest)|fi_efa_.*")
"""Names of programs that send several messages per iteration."""
_NO_NUMBER = Range(low=1, high=0)
"""Empty: the number of the command line would not print like this."""
_ONCE = Range(low=1, high=1)
_TWICE = Range(low=2, high=2)
_MANY = Range(low=3, high=1 << 20)


class Measured(NamedTuple):
    """What a row measured."""

    size: int
    exact: bool
    """Whether no other size prints like this."""
    figures: Mapping[str, Printed]
    """Metrics in base units, without those that are rounded to zero or not numbers."""


def measure(row: Row, size: Given, count: Given) -> Measured | None:
    """Return what a row measured; None if its figures contradict each other.

    `size` and `count` are those of the command line.
    """
    sizes = size_range(row.cell("bytes"), size)
    counts = count_range(row.cell("count"), count)
    transfers = _transfers(row, sizes, counts)
    if not transfers:
        return None
    program = row.record.case or ""
    # usec/xfer is the latency of one way, or the time per transfer of many. Where the program is
    # not known, two transfers per iteration, there and back, show the first.
    is_one_way = _ONE_WAY.search(program) if program else 2 in transfers
    is_exact = sizes.low == sizes.high or _is_exactly_as_printed(row, sizes.low, counts)
    time_metric = "latency" if is_one_way else "time"
    return Measured(sizes.low, is_exact, _figures(row, time_metric))


def _is_exactly_as_printed(row: Row, size: int, counts: Range) -> bool:
    """Return whether a printed size can be taken literally (`size`, in bytes).

    That is whole units such as ``64k``, or a half such as ``1.5m`` as in ``-S all``, if the other
    columns fit it: any other decimal is truncated.
    """
    number = row.cell("bytes").rstrip("kmg")
    _, _, digit = number.partition(".")
    only_size = Range(size, size)
    return digit in {"", "5"} and bool(_transfers(row, only_size, counts))


def _transfers(row: Row, sizes: Range, counts: Range) -> Sequence[int]:
    """Return how many transfers per iteration fit the printed total and time; empty: none do.

    1, 2, or, for many, the upper end of `_MANY`. `counts`: of iterations.
    """
    if not _is_one_measurement(row, sizes):
        return ()
    total = size_range(row.cell("total"))
    seconds = row.cell("elapsed").removesuffix("s")
    elapsed = printed(seconds)
    time = row.main("time") or ANYTHING  # of one transfer
    fitting: list[int] = []
    for per_iteration in _possible_transfers(row.record.case or ""):
        fewest = counts.low * per_iteration.low
        most = counts.high * per_iteration.high
        moved = Range(fewest * sizes.low, most * sizes.high)
        fits_total = moved.low <= total.high and total.low <= moved.high
        fits_elapsed = elapsed.overlaps(fewest * time.low, most * time.high)
        if fits_total and fits_elapsed:
            fitting.append(per_iteration.high)
    return fitting


def _possible_transfers(program: str) -> Sequence[Range]:
    """Return how many transfers per iteration a program may make, by its name (empty: unknown)."""
    if _ONE_WAY.search(program):
        return (_TWICE,)  # there and back
    if _SEVERAL.fullmatch(program):
        return (_ONCE, _TWICE, _MANY)
    # A program that is not known may be one that sends back and forth.
    return (_ONCE,) if program.endswith("_bw") else (_ONCE, _TWICE)


def _is_one_measurement(row: Row, sizes: Range) -> bool:
    """Return whether the rates can be those of the time of one transfer."""
    time = row.main("time") or ANYTHING
    slack = abs(time.value) * 2.0**-23  # a C float has 24 bits, whatever decimals are printed
    time = Printed(time.value, time.low - slack, time.high + slack)
    # In that time the bandwidth moves the size, and the message rate makes one transfer.
    least, most = product(row.main("bandwidth") or ANYTHING, time)
    is_of_size = least <= sizes.high and sizes.low <= most
    low, high = product(row.main("message_rate") or ANYTHING, time)
    return is_of_size and low <= 1 <= high


def _figures(row: Row, time_metric: str) -> Mapping[str, Printed]:
    """Return the metrics that were measured. `time_metric`: what a transfer's time is called."""
    names = {"time": time_metric, "bandwidth": "bandwidth", "message_rate": "message_rate"}
    figures = {metric: row.main(metric) for metric in names}
    measured: dict[str, Printed] = {}
    for metric, figure in figures.items():
        if figure is not None and figure.is_measured():
            measured[names[metric]] = figure
    return measured


@dataclass(slots=True, eq=False)
class Process(processes.Process):
    """What a process prints into a stream that is named, or the two of a pair into another one."""

    next_side: str = ""
    """That of the table that comes next, or is read; empty: unknown."""
    sides: list[str] = field(default_factory=list)
    """Those that lines have told."""
    section: str = ""
    """The structure whose lines follow, in a block of fi_info; empty: none."""

    @property
    @override
    def side(self) -> str:  # that of its stream says it best
        return self.stream.side or self.next_side

    @override
    def is_ended_by(self, events: Events) -> bool:
        settings = [event for event in events if isinstance(event, Setting)]
        has_header = any(isinstance(event, Header) for event in events)
        begins = any(isinstance(event, Begin) for event in events)
        cases = {setting.case for setting in settings} - {None}
        if not has_header and not cases:  # what it reports
            return False
        sides_told = filter(None, map(_side_of, settings))
        side = first_of(sides_told, "")
        sides = {*self.sides, side} - {""}
        # In a stream that nothing names, both sides of a pair may print.
        most_sides = 2 if self.stream == NO_STREAM else 1
        is_of_other = bool(self.case) and bool(cases - {self.case})
        if is_of_other or len(sides) > most_sides:
            return True
        if not side and not has_header:  # a fact of the process that prints here
            return False
        # Each side prints one table, and has one command line.
        is_table_due = self.headers_read < max(len(sides), 1)
        return not is_table_due or (begins and side in self.sides)

    @override
    def add_events(self, events: Events) -> Sequence[Point]:
        self.section = ""
        return processes.Process.add_events(self, events)

    @override
    def add(self, statement: Statement) -> None:
        match statement:
            case Note(kind="section"):
                self.section = statement.value
            case Setting(facts={"side": side}):
                self._expect_table_of(str(side))
                facts = without(statement.facts, ["side"])
                processes.Process.add(self, statement._replace(facts=facts))
            case Error(text=text) if _TIMED_OUT.fullmatch(text):
                self.record.timed_out = self.record.timed_out or self.said(text)
            case _:
                processes.Process.add(self, statement)

    def _expect_table_of(self, side: str) -> None:
        """Note the side of a table to come (empty: the line does not say one).

        Where those of both come, which is whose is not known.
        """
        if side and side not in self.sides:
            self.sides.append(side)
            tables_to_come = len(self.sides) - self.headers_read
            self.next_side = side if tables_to_come == 1 else ""

    # -- rows

    @override
    def add_row(self, printed: RowLine) -> Sequence[Point]:
        row = self.read(printed)
        measured = measure(row, self.size, self.iterations)
        if measured is None:  # its figures contradict each other
            self.damage(row.line)
            return ()
        if not measured.exact:
            printed_size = row.cell("bytes")
            found = finding("size-truncated", "libfabric", printed=printed_size, size=measured.size)
            self.add(found)
        row = row._replace(
            size=measured.size,
            labels=dict(self._labels(row)),
            figures={"": measured.figures},  # the main ones: there are no statistics
        )
        return self.count_row(row)

    def _labels(self, row: Row) -> Iterator[tuple[str, str]]:
        # Of the fabtests, ping-pongs print one-way times. fi_pingpong, whose table has a case of
        # its own, prints no other ones, and has no such label.
        is_pingpong = "pingpong" in self.case
        labels = {
            "side": self.side,
            "rank": self.stream.rank,
            "endpoint": self._endpoint(),
            "way": "one-way" if is_pingpong and not self.table.case else "",
            **row.labels,
            "device": self.step.facts.get("device", ""),
        }
        for name, label in labels.items():
            if label and not _NAME_OF_SIZE.fullmatch(label):  # which only repeats the size
                yield (name, label)

    def _endpoint(self) -> str:
        """Return the endpoint type that it, or another process of its run, reports."""
        for process in (self, *self.run):
            for name in process.reported.get("endpoint", ()):
                return str(name)
        return ""


def _side_of(setting: Setting) -> str:
    return fact_text(setting.facts, "side")


class PairReader(ProcessesReader):
    """Reads the executions of one program or a family of programs."""

    process = Process

    @override
    def judge(self, record: Record, run: Sequence[processes.Process]) -> None:
        reported = reported_by(run)
        endpoints = reported.get("endpoint", {})
        streams = {process.stream for process in run if process.rows}
        if len(streams) > 2 or len(endpoints) > 1:  # more than one pair
            record.findings.append(finding(MIXED_TABLES))
            record.finished = False
        for name, values in reported.items():  # value → the side that reported it
            clients = [value for value, side in values.items() if side == "client"]
            if name.endswith("_address"):  # addresses are as the client sees them, if any shows one
                record.facts[name] = (clients or [*values])[0]
        used = reported.get("provider", {})
        if len(used) > 1:
            record.facts["transport"] = "mixed"
            sides = used.items()
            remarks = [with_remark(str(name), side) for name, side in sides]
            found = finding("mixed-provider", used=", ".join(remarks))
            record.findings.append(found)
        elif used:
            record.facts["transport"] = first_of(used, "")
        ranges = {
            count_range(row.cell("count"), process.iterations)
            for process in run
            for row in process.rows
        }
        match [*ranges]:
            case [Range(low, high)] if low == high:  # one number in all rows, which is certain
                record.facts["iterations"] = low


# ---------------------------------------------------------------- blocks of fi_info


EventsOf: TypeAlias = Callable[[str, Execution | None], Events | None]


def with_information(events_of: EventsOf) -> EventsOf:
    """Return what lines mean, also those of a block of fi_info."""

    def events(text: str, execution: Execution | None) -> Events | None:
        section = execution.section if isinstance(execution, Process) else ""
        told = _information(text, section) if section else None
        if told is not None:
            return told
        own = events_of(text, execution)
        if text.endswith("fi_info:") and not (own is None and execution is None):
            return [*(own or ()), Note("section", "fi_info")]
        return own

    return events


def _information(text: str, section: str) -> Events | None:
    """Return what a line of a block of fi_info tells; None for one behind the block."""
    begun = _SECTION.fullmatch(text)
    if begun is not None:
        return (Note("section", begun[1]),)
    line = _INFO_LINE.fullmatch(text)
    if line is None:
        return None
    fact, value = _fact_of_information(section, *line.groups())
    return (Note("section", section), Setting(facts={fact: value}))


def _fact_of_information(section: str, name: str, printed: str) -> tuple[str, str]:
    """Return the fact in a line of fi_info, and its value; empty: it is not read.

    `section`: the structure that the line is of; `name` and `printed`: its two columns.
    """
    # (?!) matches nothing.
    fact, pattern = _INFO_FACTS.get((section, name), ("", "(?!)"))
    match = re.fullmatch(pattern, printed)
    value = ".".join(match.groups()) if match is not None else ""
    return (fact, value.lower() if fact == "endpoint" else value)
