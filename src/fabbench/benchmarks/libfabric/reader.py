"""Reads a server and a client of libfabric's tools, whose tables are alike, on the engine of tables.

Both print to one log: to streams of their own, one after the other, or in steps between fabbench's markers.

Sizes and totals are 1024-based and truncated to one decimal digit, or none from 10 up: 1500 bytes are
``1.4k`` (`size_str`). Counts are 1000-based and truncated (`cnt_str`). Times and rates have two decimals, and
usec/xfer is a C float. The code is the same in util/pingpong.c and fabtests/common/shared.c.
"""

import getopt
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, cast

from fabbench.benchmarks import Reading
from fabbench.benchmarks.consistency import ANYTHING, Printed, printed, product, unmeasured, warning
from fabbench.benchmarks.engine import (
    Cells,
    Column,
    Execution,
    Layout,
    Row,
    Statement,
    Table,
    TableReader,
    read_words,
)
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Finding, Line, Marker, Record, Severity, Stream
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_TIMED_OUT = lazy(r"\s*\d+s timeout expired.*")
# The names of 2014 and 2015 only repeat the size.
_NO_NAME = lazy(r"[\d.]+[kmg]?_(?:lat|bw)|custom")
_ENDPOINT = re.compile(r"fi_(msg|rdm|dgram)_")

Options: TypeAlias = tuple[str, str, str]
"""The short and long options of programs, as getopt takes them, and the letters of those whose value may be omitted
(``-E`` and ``-E=4000``)."""


def read_command(text: str, program: re.Pattern[str], known: Options) -> Statement | None:
    """Read a line that starts a program; None for a line that only names it."""
    command = read_words(text, program)
    said = read_arguments(*command, known) if command else None
    return said._replace(begins=True) if said is not None else None


def read_arguments(program: str, words: list[str], known: Options) -> Statement | None:
    """Read the arguments of a program: its side, endpoint, size and iterations.

    None if they are not valid.
    """
    short, long, optional = known
    kept = [word for word in words if not (word[:1] == "-" and word[1:2] and word[1] in optional)]
    try:
        options, operands = getopt.gnu_getopt(kept, short, long.split())
    except getopt.GetoptError:
        return None
    given, side = dict(options), "client" if operands else "server"
    facts = {"side": side, "endpoint": given.get("-e") or endpoint_of(program)}
    said = Statement(case=program, facts=facts, size=_whole(given, "-S"), end=_whole(given, "-I"))
    return said if len(operands) < 2 else None


def error_lines(programs: str, sources: str) -> re.Pattern[str]:
    """Return a pattern for error lines that name a source file, and for those of programs that cannot start."""
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
    return named[1] if (named := _ENDPOINT.match(program)) else ""


def _whole(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


_INFO_LINE = lazy(r"\s++(\w++):\s*+((?:\S++\s++(?=\S))*\S*+)\s*+")
_SECTION = lazy(r"\s*(fi_\w+_attr|nic|fi_info):.*")
_ADDRESS, _ANY = r"fi_sockaddr_in6?://\[?([^\]]+?)\]?(?::\d+)?", r"(.+)"
_INFO_FACTS = {
    ("fi_info", "src_addr"): ("source_address", _ADDRESS),
    ("fi_info", "dest_addr"): ("dest_address", _ADDRESS),
    ("fi_ep_attr", "type"): ("endpoint", r"(?:FI_EP_)?(.+)"),
    ("fi_domain_attr", "name"): ("domain", _ANY),
    ("fi_fabric_attr", "name"): ("fabric", _ANY),
    ("fi_fabric_attr", "prov_name"): ("provider", _ANY),
    ("fi_fabric_attr", "prov_version"): ("libfabric", r"(\d{3,})\.\d+"),
}  # (section, name) → fact, and the pattern of its value

LOG_SETTINGS: Mapping[str, str] = {
    "FI_LOG_LEVEL": "info",
    "FI_LOG_PROV": "core,efa",
    "FI_LOG_SUBSYS": "core,ep_ctrl",
}
"""Environment that makes libfabric write these lines and few others, at set-up, which is not timed."""

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
    name, domain = line.groups("") if (line := _LOG_LINE.fullmatch(text)) else ("", "")
    if domain:
        yield from (("provider", "efa"), ("domain", domain))
    elif name and (name, requested) != ("shm", "efa"):
        yield "fabric", name
        provider = (
            "efa" if name.lower().partition("-")[0] == "efa" else "shm" if name == "shm" else ""
        )
        if provider or (requested and requested != "efa"):
            yield "provider", provider or requested


_REAL = r"(?:\d{1,18}\.\d\d|-?inf|-?nan)"
_SIZE = r"\d{1,18}(?:\.\d)?[kmg]?"
_COUNT = r"\d{1,18}[kmb]?"
COLUMNS: Mapping[str, Column] = {
    "name": Column("name", cell=r"\S+", label="name"),
    "bytes": Column("bytes", cell=_SIZE),
    "xfers": Column(cell=_COUNT),
    "iters": Column("count", cell=_COUNT),
    "#sent": Column("count", cell=_COUNT, label="sent"),
    "#ack": Column("ack", cell=f"[=+-]{_COUNT}"),
    "total": Column("total", cell=_SIZE),
    "time": Column("elapsed", cell=f"{_REAL}s"),
    "mb/sec": Column("megabytes", cell=_REAL),
    "gb/sec": Column("gigabits", cell=_REAL),
    "usec/xfer": Column("us", cell=_REAL),
    "mxfers/sec": Column("rate", cell=_REAL),
}  # name in a header → column. None is read by the engine alone: `measure` does.

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class Range(NamedTuple):
    """The smallest and the largest number that a printed one may stand for."""

    low: int
    high: int


def count_range(cell: str, requested: int | None) -> Range:
    """Return the counts that print like this: only the one on the command line, if it does."""
    step = _DECIMAL[cell.lstrip("0123456789")]
    low = int(cell.rstrip("kmb")) * step
    return _requested(Range(low, low + step - 1), requested)


def size_range(cell: str, requested: int | None = None) -> Range:
    """Return the sizes in bytes that print like this.

    Only the one on the command line, if it does.
    """
    base = _BINARY[cell[-1] if cell[-1] in _BINARY else ""]
    whole, _, digit = cell.rstrip("kmg").partition(".")
    tenth, start = int(digit or 0), int(whole) * base
    step = -(-(tenth + 1) * base // 10) if base > 1 and int(whole) < 10 else base
    return _requested(Range(start + -(-tenth * base // 10), start + step - 1), requested)


def _requested(printed_range: Range, requested: int | None) -> Range:
    low, high = printed_range
    return (
        Range(requested, requested)
        if requested is not None and low <= requested <= high
        else printed_range
    )


_ONE_WAY = lazy(
    r"pingpong|_lat"
)  # in names of programs that send one message at a time back and forth
_MANY, _ONCE, _TWICE = Range(1, 1 << 20), Range(1, 1), Range(2, 2)


def transfers(program: str) -> Sequence[Range]:
    """Return the fewest and the most transfers per iteration that a program may make, the likely ones first."""
    if "pingpong" in program:
        return (_TWICE,)
    # Newer programs have options to send both ways; some send several messages per iteration.
    several = (
        (_MANY,)
        if not program or program.endswith(("_mt", "ubertest")) or "_efa_" in program
        else ()
    )
    return (_ONCE, _TWICE, *several) if program else (_TWICE, _ONCE, *several)


class Measured(NamedTuple):
    """What a row measured."""

    size: int
    exact: bool  # whether no other size prints like this
    figures: Mapping[
        str, Printed
    ]  # the metrics in base units, without those that are rounded to zero or not numbers


def measure(
    cells: Mapping[str, str], size: int | None, count: int | None, program: str
) -> Measured | None:
    """Return what a row measured; None if its figures contradict each other.

    `size` and `count` are those of the command line. The other columns narrow down a truncated
    size: total = count x size x transfers, and MB/sec x usec/xfer.
    """
    sizes, total = size_range(cells["bytes"], size), size_range(cells["total"])
    counts = count_range(cells["count"], count)
    seconds, elapsed = printed(cells["us"], -6), printed(cells["elapsed"].removesuffix("s"))
    bits, per_second = cells.get("gigabits"), printed(cells.get("rate", "nan"), 6)
    bandwidth = printed(cells["megabytes"], 6) if bits is None else printed(bits, 9).times(0.125)
    slack = abs(seconds.value) * 2.0**-23  # a C float has 24 bits, whatever decimals are printed
    each, (low, high) = Printed(seconds.value, seconds.low - slack, seconds.high + slack), sizes
    if (
        ANYTHING not in {bandwidth, each}
        and math.isfinite(bandwidth.value)
        and math.isfinite(each.value)
    ):
        product_low, product_high = product(bandwidth, each)
        low, high = max(low, math.ceil(product_low)), min(high, math.floor(product_high))
    one = product(per_second, each)
    if not one[0] <= 1 <= one[1]:
        return None
    for times in transfers(program):
        fewest, most = counts.low * times.low, counts.high * times.high
        least, greatest = (
            max(low, -(-total.low // max(most, 1))),
            min(high, total.high // fewest) if fewest else high,
        )
        lasting = ANYTHING in {each, elapsed} or elapsed.overlaps(
            each.low * fewest, each.high * most
        )
        if lasting and least <= greatest:
            break
    else:
        return None
    # ``64k``, or a half such as ``1.5m`` as in ``-S all``, is exact unless shown otherwise.
    plain = least == sizes.low and cells["bytes"].rstrip("kmg").partition(".")[2] in {"", "5"}
    # usec/xfer is the latency of one way, or the time per transfer of many.
    time = "latency" if (_ONE_WAY.search(program) if program else times == _TWICE) else "time"
    named = (
        *((time, cells["us"], seconds), ("bandwidth", bits or cells["megabytes"], bandwidth)),
        ("message_rate", cells.get("rate", "nan"), per_second),
    )
    figures = {
        metric: value for metric, cell, value in named if cell[0].isdigit() and cell.strip("0.")
    }
    return Measured(least, plain or least == greatest, figures)


@dataclass(slots=True, eq=False)
class Process(Execution):
    """What a process prints into a stream, or the two of a pair.

    `size` and `end` are those of the command line.
    """

    step: Marker | None = None
    stream: Stream = NO_STREAM
    side: str = ""  # of the table that comes next, or is read; empty: unknown
    sides: list[str] = field(
        default_factory=list
    )  # those that command lines and headings name: a table of each
    section: str = ""  # of the open fi_info block
    held: tuple[()] | tuple[str, str] = ()  # the fact of its last line, and the value

    def takes(self, said: Statement, side: str) -> bool:
        """Return whether a statement is about it; if not, it is about another one in its stream."""
        if said.case and self.record.case and said.case != self.record.case:
            return False
        due, first = self.tables < max(len(self.sides), 1), not (self.sides or self.tables)
        if side and side not in self.sides:
            return first or (len(self.sides) == 1 and self.stream == NO_STREAM)
        return due and not (side and said.begins) if side or said.layouts else True

    def expect(self, side: str) -> None:
        """Note the side of a table to come.

        Where those of both come, which is whose is not known.
        """
        if side and side not in self.sides:
            self.sides.append(side)
            self.side = side if len(self.sides) - self.tables == 1 else ""
        self.side = self.stream.side or self.side


@dataclass(slots=True)
class Pair:
    """One execution of a server and a client while it is read."""

    record: Record
    is_open: bool = False
    name: str = ""  # in fabbench's markers; empty without markers
    step: Marker | None = None
    processes: list[Process] = field(default_factory=list)
    current: dict[Stream, Process] = field(default_factory=dict)
    counts: set[Range] = field(default_factory=set)  # the iterations of its rows
    reported: dict[str, dict[str, str]] = field(default_factory=dict)
    """Fact → value → the side that first reported it: both do, in every step."""

    def at(self, stream: Stream, *, another: bool = False) -> Process:
        """Return the process that prints to a stream."""
        if another or stream not in self.current:
            given = {} if self.step is None else self.step.facts
            process = Process(self.record, step=self.step, stream=stream, side=stream.side)
            process.size, process.end = _whole(given, "size"), _whole(given, "iterations")
            self.processes.append(process)
            self.current[stream] = process
        return self.current[stream]

    def report(self, fact: str, value: str, side: str) -> None:
        """Record a fact that a process reports about itself."""
        if value:
            self.reported.setdefault(fact, {}).setdefault(value, side)
        if fact == "domain" and self.step is not None:
            self.record.off_fabric = self.record.off_fabric or self.step.other(
                "domain", value, side
            )

    def first(self, fact: str) -> str:
        """Return the first value of a fact; empty: not reported."""
        return next(iter(self.reported.get(fact, {})), "")


class PairReader(TableReader):
    """Reads the executions of one program or a family of programs."""

    table: Table
    newest: Layout

    def __init__(self) -> None:
        super().__init__(self.table)
        self._pair = Pair(self._new({}).record)
        self._line = Line(0, "")
        self._heading = self._line, Statement()  # what a line above the next table states

    def judge(self, pair: Pair) -> None:
        """Add what only the whole execution shows."""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text, self._line = line.text, line
        process = self.execution = self._pair.at(line.stream) if self._pair.is_open else None
        if process is not None and process.section and self._is_information(text, process):
            return ()
        readings = super().feed(line)
        if text.endswith("fi_info:") and self._pair.is_open:
            self._pair.at(line.stream).section = "fi_info"
            return readings or ()
        if readings is None and process is not None and not process.layouts:
            # A row without a header; or its damaged tag does not identify the stream, and it may
            # belong to any table.
            tables = [
                each.layouts[0]
                for each in self._pair.processes
                if each.layouts and each.step == process.step
            ]
            if any(self._table.remains(text, layout) for layout in tables or [self.newest]):
                process.damage(line)
                return ()
        return readings

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        ours = marker.kind == "begin" and marker.facts.get("benchmark") == self._table.benchmark
        another = marker.kind == "begin" and not (ours and self._pair.name == marker.execution)
        before = self.close() if another else ()
        pair, facts = self._pair, marker.facts
        if ours:
            pair.is_open, pair.name, pair.record.case = (
                True,
                marker.execution,
                pair.record.case or facts.get("program"),
            )
            pair.record.facts |= {name: facts[name] for name in ("together",) if name in facts}
            pair.report(
                "endpoint", facts.get("endpoint") or endpoint_of(facts.get("program", "")), ""
            )
        if ours or pair.name == marker.execution:
            pair.step = marker if ours else None
            pair.current.clear()
        return before

    @override
    def close(self) -> Sequence[Reading]:
        pair, self._pair, self._heading = (
            self._pair,
            Pair(self._new({}).record),
            (self._line, Statement()),
        )
        if not pair.is_open:
            return ()
        record = pair.record
        # The points of streams in the order of their lines.
        points = [
            each for one in pair.processes for each in zip(one.rows, self._points(one), strict=True)
        ]
        record.points = [
            point
            for _, row in sorted(points, key=lambda each: each[0].line.number)
            for point in row
        ]
        record.damaged.sort()
        self.judge(pair)
        facts, providers = record.facts, pair.reported.get("provider", {})
        for name, values in pair.reported.items():
            clients = [value for value, side in values.items() if side == "client"]
            # Addresses are as the client sees them.
            facts[name] = (
                (clients or [*values])[0] if name.endswith("_address") else ", ".join(values)
            )
        if providers:
            facts["transport"] = "mixed" if len(providers) > 1 else pair.first("provider")
        if len(providers) > 1:
            used = ", ".join(
                f"{value} ({side})" if side else value for value, side in providers.items()
            )
            meaning = f"The processes did not use one provider: {used}."
            record.findings.append(
                Finding(code="mixed-provider", severity=Severity.ERROR, meaning=meaning)
            )
        if len(pair.counts) == 1 and (only := pair.counts.pop()).low == only.high:
            facts["iterations"] = only.low
        record.findings += unmeasured(point.size for point in record.points if not point.metrics)
        return (record,)

    @override
    def _failure(self, text: str) -> Statement:
        return Statement(failure=text)

    @override
    def _apply(self, said: Statement) -> Sequence[Reading] | None:
        stream, before = self._line.stream, list[Reading]()
        if said.ends:
            return self.close() or None
        if said.above:
            self._heading = self._line, said
            return None
        if said.layouts:
            (line, above), self._heading = self._heading, (self._line, Statement())
            # Only a side is stated from farther away.
            if "side" in above.facts or line.number + 1 == self._line.number:
                said = said._replace(facts={**above.facts, **said.facts})
        side = str(said.facts.get("side", ""))
        if (said.layouts or said.case is not None) and not self._pair.at(stream).takes(said, side):
            if self._pair.step is None:
                before += self.close()
            self._pair.at(stream, another=True)
        pair, process = self._pair, self._pair.at(stream)
        pair.is_open, self.execution = True, process
        process.expect(side)
        for name, value in said.facts.items():
            if isinstance(value, str) and name != "side":
                pair.report(name, value, process.side)
        numbers = {name: value for name, value in said.facts.items() if isinstance(value, int)}
        program = f"The {process.side}" if process.side else self._table.program or pair.record.case
        failure = f"{program or 'The program'} said: {quoted(said.failure)}" if said.failure else ""
        if _TIMED_OUT.fullmatch(said.failure):
            pair.record.timed_out, failure = pair.record.timed_out or failure, ""
        readings = super()._apply(said._replace(begins=False, facts=numbers, failure=failure))
        return [*before, *(readings or ())]

    def _is_information(self, text: str, process: Process) -> bool:
        if process.held:  # its line was complete
            self._pair.report(*process.held, process.side)
        process.held = ()
        if (match := _SECTION.fullmatch(text)) is not None:
            process.section = match[1]
        elif (match := _INFO_LINE.fullmatch(text)) is not None:
            fact, pattern = _INFO_FACTS.get((process.section, match[1]), ("", "(?!)"))
            found = re.fullmatch(pattern, match[2])
            value = found[1].lower() if found and fact == "endpoint" else found[1] if found else ""
            process.held = (
                fact,
                f"{value[:-2]}.{int(value[-2:])}" if value and fact == "libfabric" else value,
            )
        else:
            process.section = ""
        return bool(process.section)

    @override
    def _take(self, row: Row, execution: Execution) -> Sequence[Reading]:
        process, program = cast("Process", execution), execution.record.case or ""
        cells = {column.metric: cell for column, cell in zip(row.layout, row.cells, strict=True)}
        measured = measure(cells, process.size, process.end, program)
        if measured is None:
            process.damage(row.line)
            return ()
        if not measured.exact:
            meaning = (
                f"The program truncated the size to {cells['bytes']}; {measured.size} "
                "bytes are assumed."
            )
            found = warning(
                "size-truncated", meaning, "Keep the command line, with -S, in the log."
            )
            process.record.findings.append(found)
        self._pair.counts.add(count_range(cells["count"], process.end))
        labels = {
            "side": process.side,
            "rank": process.stream.rank,
            "endpoint": self._pair.first("endpoint"),
            "way": "one-way" if "pingpong" in program and not self._table.case else "",
            **row.labels,
            "device": process.step.facts.get("device", "") if process.step is not None else "",
        }
        labels = {
            name: text for name, text in labels.items() if text and not _NO_NAME.fullmatch(text)
        }
        return super()._take(
            row._replace(size=measured.size, labels=labels, figures={"": measured.figures}), process
        )
