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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import NamedTuple, TypeAlias, cast

from fabbench.benchmarks import LogReadings, Reader, Reading
from fabbench.benchmarks.commands import read_command_line, whole_number
from fabbench.benchmarks.consistency import ANYTHING, Printed, printed, product
from fabbench.benchmarks.events import (
    NO_FACTS,
    Ahead,
    Begin,
    Error,
    Event,
    Events,
    Fail,
    Header,
    RowLine,
    Setting,
    Statement,
)
from fabbench.benchmarks.executions import (
    MIXED_TABLES,
    Execution,
    Table,
    join_processes,
    read_any_line,
)
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import Cells, Row, columns_of
from fabbench.catalog.systems import rows_of
from fabbench.model.compat import override
from fabbench.model.log import (
    NO_STEP,
    NO_STREAM,
    Facts,
    Finding,
    Line,
    Marker,
    Point,
    Record,
    Severity,
    Stream,
    fact_text,
)
from fabbench.model.mappings import first_of
from fabbench.model.messages import quoted, with_remark
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
    """Read a line that starts a program; None for a line that only names it.

    `case`: the case, if it is not named after the program.
    """
    command = read_command_line(text, program)
    setting = read_arguments(*command, valid_options) if command is not None else None
    if setting is None:
        return None
    return (Begin(), setting._replace(case=case or setting.case))


def read_arguments(program: str, words: list[str], valid_options: Options) -> Setting | None:
    """Read the arguments of a program: its side, endpoint (-e), size (-S) and iterations (-I).

    None if they are not valid.
    """
    short, long, optional = valid_options
    # getopt has no values that may be omitted: such options are left out, and say nothing here.
    may_omit_value = tuple(f"-{letter}" for letter in optional)
    readable_words = [
        word for word in words if not (may_omit_value and word.startswith(may_omit_value))
    ]
    try:
        options, operands = getopt.gnu_getopt(readable_words, short, long.split())
    except getopt.GetoptError:
        return None
    # A client has one operand, the server's address; several words are prose about the program.
    if len(operands) > 1 or program in operands:
        return None
    values = dict(options)
    side = "client" if operands else "server"
    facts = {"side": side, "endpoint": values.get("-e") or endpoint_of(program)}
    size = whole_number(values, "-S")
    return Setting(program, facts, size=size, iterations=whole_number(values, "-I"))


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
    step = _DECIMAL[cell.lstrip("0123456789")]
    low = int(cell.rstrip("kmb")) * step
    return _only_requested(Range(low, low + step - 1), requested)


def size_range(cell: str, requested: Given = None) -> Range:
    """Return the sizes in bytes that a truncated cell may stand for.

    Of them only that of the command line, where it states one.
    """
    base = _BINARY[cell.lstrip("0123456789.")]
    whole, _, digit = cell.rstrip("kmg").partition(".")
    units = int(whole)
    tenths = units * 10 + int(digit or 0)
    tenths_above = (units + 1) * 10
    if base > 1 and units < 10:  # then a decimal is printed
        tenths_above = tenths + 1
    low = _rounded_up_quotient(tenths * base, divisor=10)
    high = _rounded_up_quotient(tenths_above * base, divisor=10) - 1
    return _only_requested(Range(low, high), requested)


def _rounded_up_quotient(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


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
    if not transfers or not _is_one_measurement(row, sizes):
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
    if digit not in {"", "5"} or not _transfers(row, only_size, counts):
        return False
    return _is_one_measurement(row, only_size)


def _transfers(row: Row, sizes: Range, counts: Range) -> Sequence[int]:
    """Return how many transfers per iteration fit the printed total and time; empty: none do.

    1, 2, or, for many, the upper end of `_MANY`. `counts`: of iterations.
    """
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
    figures: dict[str, Printed] = {}
    metrics = {"time": time_metric, "bandwidth": "bandwidth", "message_rate": "message_rate"}
    for name, metric in metrics.items():
        figure = row.main(name)
        if figure is not None and figure.is_measured():
            figures[metric] = figure
    return figures


@dataclass(slots=True, eq=False)
class Process(Execution):
    """What a process prints into a stream, or the two of a pair.

    `size` and `iterations` are those of the command line.
    """

    step: Marker = NO_STEP
    stream: Stream = NO_STREAM
    side: str = ""
    """Of the table that comes next, or is read; empty: unknown."""
    sides: list[str] = field(default_factory=list)
    """Those that command lines and headings name: a table of each."""
    section: str = ""
    """Of the open fi_info block."""

    def is_subject_of(self, setting: Setting, *, has_header: bool, begins: bool) -> bool:
        """Return whether a line is about it; if not, it is about another one in its stream.

        `setting`: what the line states. `begins`: whether it is a command line.
        """
        # A line that names another program is not about it.
        if setting.case and self.record.case and setting.case != self.record.case:
            return False
        side = setting.facts.get("side")
        if side and side not in self.sides:
            is_first = not self.sides and not self.headers_read
            # In a stream that nothing names, both sides of a pair may print.
            return is_first or (len(self.sides) == 1 and self.stream == NO_STREAM)
        if not side and not has_header:  # a fact of the process that prints here
            return True
        # Each side prints one table, and has one command line.
        is_table_due = self.headers_read < max(len(self.sides), 1)
        return is_table_due and not (side and begins)

    def expect_table_of(self, side: str) -> None:
        """Note the side of a table to come (empty: the line does not say one).

        Where those of both come, which is whose is not known. A stream of one side says it best.
        """
        if side and side not in self.sides:
            self.sides.append(side)
            tables_to_come = len(self.sides) - self.headers_read
            self.side = side if tables_to_come == 1 else ""
        self.side = self.stream.side or self.side


@dataclass(slots=True)
class Pair:
    """One execution of a server and a client while it is read."""

    table: Table
    record: Record
    name: str = ""  # in fabbench's markers; empty without markers
    step: Marker = NO_STEP
    processes: list[Process] = field(default_factory=list)
    # The process that prints to each stream now
    current: dict[Stream, Process] = field(default_factory=dict)
    reported: dict[str, dict[str, str]] = field(default_factory=dict)
    """Fact → value → the side that first reported it: both do, in every step."""

    @property
    def is_open(self) -> bool:
        """Whether anything has begun it."""
        return bool(self.name or self.processes)

    @property
    def is_mixed(self) -> bool:
        """Whether it is more than one pair: of two endpoint types, or with a third stream."""
        streams = {process.stream for process in self.processes if process.rows}
        endpoints = self.reported.get("endpoint", {})
        return len(streams) > 2 or len(endpoints) > 1

    def process_at(self, stream: Stream, *, begins: bool = False) -> Process:
        """Return the process that prints to a stream: a new one if none does yet, or one begins.

        A step of fabbench states the size and iterations of its command line.
        """
        if begins or stream not in self.current:
            stated = self.step.facts
            process = Process(
                self.table,
                self.record,
                size=whole_number(stated, "size"),
                iterations=whole_number(stated, "iterations"),
                step=self.step,
                stream=stream,
                side=stream.side,
            )
            self.processes.append(process)
            self.current[stream] = process
        return self.current[stream]

    def report(self, fact: str, value: str, side: str) -> None:
        """Record a fact that a process of a side (empty: unknown) reports; empty values are none.

        Another domain than that of fabbench's step is not what was to be measured.
        """
        if value:
            self.reported.setdefault(fact, {}).setdefault(value, side)
        if fact == "domain":
            self.record.off_fabric = self.record.off_fabric or self.step.contradiction(
                "domain", value, side
            )

    def first_value(self, fact: str) -> str:
        """Return the first value of a fact; empty: not reported."""
        return first_of(self.reported.get(fact, {}), "")

    def iteration_ranges(self) -> set[Range]:
        """Return the ranges of iterations that its rows print: one range if all are alike."""
        return {
            count_range(row.cell("count"), process.iterations)
            for process in self.processes
            for row in process.rows
        }


class PairReader(Reader):
    """Reads the executions of one program or a family of programs."""

    table: Table
    """Theirs: a subclass states it."""

    def __init__(self) -> None:
        self._pair = Pair(self.table, self.table.record())
        self._heading: Facts = NO_FACTS
        """What a line above the next table states of it."""

    def judge(self, pair: Pair) -> None:
        """Add what only the whole execution shows; usually rows and messages say it all."""

    @override
    def feed(self, line: Line) -> LogReadings | None:
        pair = self._pair
        process = pair.process_at(line.stream) if pair.is_open else None
        # Inside a block of fi_info, its lines come first.
        if process is not None and process.section and self._read_information(line.text, process):
            return ()
        is_open = process is not None  # else an error may be of any program
        events = read_any_line(self.table, line, process, may_fail=is_open)
        readings = None if events is None else self._assemble(events, line)
        if line.text.endswith("fi_info:") and self._pair.is_open:  # a block of it begins
            self._pair.process_at(line.stream).section = "fi_info"
            return readings or ()
        return readings

    @override
    def mark(self, marker: Marker) -> LogReadings:
        """Read a marker of a fabbench script; return the results of the pair that it ends."""
        facts = marker.facts
        begins = marker.kind == "begin"
        is_ours = begins and facts.get("benchmark") == self.table.benchmark
        is_same = self._pair.name == marker.execution
        # The steps of one execution are of one pair; any other step that begins ends it.
        before = self.close() if begins and not (is_ours and is_same) else ()
        pair = self._pair
        if is_ours:
            pair.name = marker.execution
            program = facts.get("program", "")
            pair.record.case = pair.record.case or facts.get("program")
            if "together" in facts:  # this pair ran at the same time as others
                pair.record.facts["together"] = facts["together"]
            endpoint = facts.get("endpoint") or endpoint_of(program)
            pair.report("endpoint", endpoint, side="")
        if is_ours or pair.name == marker.execution:  # a step begins or ends, and its processes do
            pair.step = marker if is_ours else NO_STEP
            pair.current.clear()
        return before

    @override
    def close(self) -> LogReadings:
        # End the pair: what all its processes printed is one record. Then a new one may begin.
        pair = self._pair
        self._pair = Pair(self.table, self.table.record())
        self._heading = NO_FACTS
        if not pair.is_open:
            return ()
        record = pair.record
        iterations = [*pair.iteration_ranges()]  # also of rows that the checks below remove
        for process in pair.processes:
            process.checked()  # which moves stray rows to the damaged ones
        if pair.is_mixed:
            record.findings.append(finding(MIXED_TABLES))
            record.finished = False
        join_processes(record, pair.processes)
        self.judge(pair)
        _add_reported_facts(pair)
        match iterations:
            case [Range(low, high)] if low == high:  # one number in all rows, which is certain
                record.facts["iterations"] = low
        return (record,)

    # -- what a line means

    def _assemble(self, events: Events, line: Line) -> LogReadings | None:
        """Add events to the process that they are about, which may begin or end a pair.

        None for a heading, which is kept for the next table: the line may be another benchmark's.
        """
        match events:
            case (Ahead((Setting() as heading,)),):
                self._heading = heading.facts
                return None
        has_header = any(isinstance(event, Header) for event in events)
        if has_header:
            events = [Setting(facts=self._heading), *events]
            self._heading = NO_FACTS
        settings = [event for event in events if isinstance(event, Setting)]
        setting = first_of(settings, Setting())
        # A process prints one table, and a command line names its program.
        begins = any(isinstance(event, Begin) for event in events)
        may_begin_process = has_header or setting.case is not None
        readings: list[Reading] = []
        if may_begin_process and not self._pair.process_at(line.stream).is_subject_of(
            setting, has_header=has_header, begins=begins
        ):
            readings += self._begin_process(line.stream)
        process = self._pair.process_at(line.stream)
        process.expect_table_of(fact_text(setting.facts, "side"))
        for event in events:
            readings += self._add(event, process)
        return readings

    def _begin_process(self, stream: Stream) -> LogReadings:
        """Begin another process of a stream; return what ends with that.

        It is of a new pair, except in a step, which may have several processes per stream.
        """
        before = self.close() if self._pair.step is NO_STEP else ()
        self._pair.process_at(stream, begins=True)
        return before

    def _add(self, event: Event, process: Process) -> LogReadings:
        """Add what a line says to the process that it is about."""
        match event:
            case RowLine():
                return self._points_of_row(event, process)
            case Setting():
                self._add_setting(event, process)
            case Error():
                self._add_error(event.text, process)
            case Begin():
                pass  # `_assemble` has begun the process
            case _:
                process.add(cast("Statement", event))
        return ()

    def _add_setting(self, setting: Setting, process: Process) -> None:
        """Add settings: what a process reports about itself is kept by its side."""
        for name, value in setting.facts.items():
            if name != "side":
                self._pair.report(name, str(value), process.side)
        process.add(setting._replace(facts=NO_FACTS))

    def _add_error(self, text: str, process: Process) -> None:
        record = self._pair.record
        program = self.table.program or record.case or "The program"
        if process.side:  # which of the two it was says more
            program = f"The {process.side}"
        sentence = f"{program} said: {quoted(text)}"
        if _TIMED_OUT.fullmatch(text):
            record.timed_out = record.timed_out or sentence
        else:
            process.add(Fail(sentence))

    # -- blocks of fi_info

    def _read_information(self, text: str, process: Process) -> bool:
        """Read a line of a block of fi_info; return False for one behind the block, not read."""
        section = _SECTION.fullmatch(text)
        information = _INFO_LINE.fullmatch(text)
        if section is not None:
            process.section = section[1]
        elif information is not None:
            fact = _fact_of_information(process.section, *information.groups())
            self._pair.report(*fact, process.side)
        else:
            process.section = ""
        return bool(process.section)

    # -- rows

    def _points_of_row(self, printed: RowLine, process: Process) -> Sequence[Point]:
        """Return the points of a row.

        None of one that is damaged: `process` notes those that contradict themselves, or the rest
        of their table.
        """
        row = process.read(printed)
        measured = measure(row, process.size, process.iterations)
        if measured is None:  # its figures contradict each other
            process.damage(row.line)
            return ()
        if not measured.exact:
            printed_size = row.cell("bytes")
            process.record.findings.append(
                finding("size-truncated", "libfabric", printed=printed_size, size=measured.size)
            )
        row = row._replace(
            size=measured.size,
            labels=dict(self._labels(row, process)),
            figures={"": measured.figures},  # the main ones: there are no statistics
        )
        return process.count_row(row)

    def _labels(self, row: Row, process: Process) -> Iterator[tuple[str, str]]:
        # Of the fabtests, ping-pongs print one-way times. fi_pingpong, whose table has a case of
        # its own, prints no other ones, and has no such label.
        is_pingpong = "pingpong" in (row.record.case or "")
        labels = {
            "side": process.side,
            "rank": process.stream.rank,
            "endpoint": self._pair.first_value("endpoint"),
            "way": "one-way" if is_pingpong and not self.table.case else "",
            **row.labels,
            "device": process.step.facts.get("device", ""),
        }
        for name, label in labels.items():
            if label and not _NAME_OF_SIZE.fullmatch(label):  # which only repeats the size
                yield (name, label)


def _fact_of_information(section: str, name: str, printed: str) -> tuple[str, str]:
    """Return the fact in a line of fi_info, and its value; empty: it is not read.

    `section`: the structure that the line is of; `name` and `printed`: its two columns.
    """
    # (?!) matches nothing.
    fact, pattern = _INFO_FACTS.get((section, name), ("", "(?!)"))
    match = re.fullmatch(pattern, printed)
    value = match[1] if match is not None else ""
    if fact == "endpoint":
        return (fact, value.lower())
    if fact == "libfabric" and value:  # providers of libfabric 1.18 print 118
        major = value[:-2]
        minor = int(value[-2:])
        return (fact, f"{major}.{minor}")
    return (fact, value)


def _add_reported_facts(pair: Pair) -> None:
    """Add the facts that processes reported, and whether they differ in their provider."""
    facts = pair.record.facts
    for name, values in pair.reported.items():  # value → the side that reported it
        if name.endswith("_address"):  # addresses are as the client sees them, if one shows any
            clients = [value for value, side in values.items() if side == "client"]
            facts[name] = (clients or [*values])[0]
        else:
            facts[name] = ", ".join(values)
    providers = pair.reported.get("provider", {})
    if len(providers) > 1:
        facts["transport"] = "mixed"
        pair.record.findings.append(_mixed_providers(providers))
    elif providers:
        facts["transport"] = pair.first_value("provider")


def _mixed_providers(providers: Mapping[str, str]) -> Finding:
    used = ", ".join(starmap(with_remark, providers.items()))
    meaning = f"The processes did not use one provider: {used}."
    return Finding(code="mixed-provider", severity=Severity.ERROR, meaning=meaning)
