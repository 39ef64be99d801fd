"""Reads the output of the fabtests: tables, machine-readable rows and errors, of both sides of a pair.

``[name] bytes [xfers] iters total time RATE usec/xfer [Mxfers/sec]``. RATE is Gb/sec (1e9 bits per second)
until 2016-02 and MB/sec (1e6 bytes per second) since; Mxfers/sec was added after MB/sec, and `xfers` removed
in 2014-10. Machine-readable rows (``-m``) have all digits: ``- { xfer_size: 64, iterations: 10000, … }``.
From `show_perf` and `show_perf_mr` in fabtests/common/shared.c.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from fabbench.benchmarks import Reading
from fabbench.benchmarks.command_line import CommandLine, Syntax
from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.libfabric import facts
from fabbench.benchmarks.libfabric.facts import Range, exact_count, logged_facts, truncated_size
from fabbench.benchmarks.libfabric.pair_reader import PairExecution, PairProcess, PairReader
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Line, Marker, Point, Record, Stream
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS

_REAL_MR = r"(?:\d+\.\d{6}|-?inf|-?nan)"
_HEADER = lazy(
    r"\s*(?P<name>name\s+)?bytes\s+(?P<xfers>xfers\s+)?iters\s+total\s+time\s+(?P<unit>MB/sec|Gb/sec)\s+usec/xfer"
    r"(?P<rate>\s+Mxfers/sec)?\s*"
)
_MACHINE = lazy(
    r"\s*(?:- )?\{ xfer_size: (?P<size>\d+), iterations: (?P<iters>\d+), total: (?P<total>\d+), "
    rf"time: (?P<time>{_REAL_MR}), (?P<unit>MB|Gb)/sec: (?P<bandwidth>{_REAL_MR}), "
    rf"usec/xfer: (?P<latency>{_REAL_MR})(?:(?:, )?Mxfers/sec: (?P<rate>{_REAL_MR}))? \}}\s*"
)
_REST = lazy(rf".*\s{facts.REAL}s\s*{facts.REAL}\s*{facts.REAL}(?:\s*{facts.REAL})?\s*|.*usec/xfer: [^{{}}]*\}}\s*")
_MACHINE_START = lazy(r"\s*(?:- )?\{ xfer_size:.*")


class FabtestLayout(NamedTuple):
    """The columns of a table."""

    name: bool = False
    xfers: bool = False
    unit: str = "MB/sec"
    rate: bool = True


class FabtestRow(NamedTuple):
    """The tokens of one row, as printed."""

    size: str
    iters: str
    total: str
    time: str
    bandwidth: str
    latency: str
    rate: str = ""
    name: str = ""
    xfers: str = ""
    unit: str = "MB/sec"
    machine: bool = False  # whether it is machine-readable: nothing is truncated

    def text(self, name_width: int = 50) -> str:
        """Return the row of a table exactly as the program prints it."""
        before = f"{self.name:<{name_width}}" if self.name else ""
        xfers = f"{self.xfers:<8}" if self.xfers else ""
        rate = f"{self.rate:>11}" if self.rate else ""
        return (
            f"{before}{self.size:<8}{xfers}{self.iters:<8}{self.total:<8}{self.time:>8}s"
            f"{self.bandwidth:>10}{self.latency:>11}{rate}"
        )


def read_header(text: str) -> FabtestLayout | None:
    """Read the header of a table; None for any other text."""
    match = _HEADER.fullmatch(text)
    return (
        FabtestLayout(bool(match["name"]), bool(match["xfers"]), match["unit"], bool(match["rate"])) if match else None
    )


def read_row(text: str, layout: FabtestLayout) -> FabtestRow | None:
    """Read a complete row of a table; None for any other text."""
    match = _pattern(layout).fullmatch(text)
    return _row(match, layout.unit) if match else None


def read_machine_row(text: str) -> FabtestRow | None:
    """Read a complete machine-readable row; None for any other text."""
    match = _MACHINE.fullmatch(text)
    return _row(match, f"{match['unit']}/sec", machine=True) if match else None


def _row(match: re.Match[str], unit: str, *, machine: bool = False) -> FabtestRow:
    cells = match.groupdict(default="")
    return FabtestRow._make([*(cells.get(name, "") for name in FabtestRow._fields[:-2]), unit, machine])


def row_size(row: FabtestRow, *, requested: int | None, iterations: int | None, times: facts.Range) -> facts.Size:
    """Return the size that a row measured: see `known_size`."""
    if row.machine:
        return facts.Size(int(row.size), exact=True)
    product = facts.by_product(row.bandwidth, row.latency, megabytes=_megabytes(row))
    others = (facts.by_total(row.total, row.iters, requested=iterations, times=times), product)
    return facts.known_size(row.size, requested=requested, others=others)


def fits(row: FabtestRow, size: facts.Size, *, iterations: int | None, times: facts.Range) -> bool:
    """Return whether the figures of a row are consistent, within their printed precision: see `row_size`."""
    figures = facts.PrintedRow(row.iters, row.total, row.time, row.bandwidth, row.latency, row.rate)
    return figures.fits(facts.sizes_of(row.size, size), requested=iterations, times=times, megabytes=_megabytes(row))


def measured(row: FabtestRow, *, one_way: bool) -> dict[str, float]:
    """Return the row's metrics in base units, without those that are rounded to zero or not numbers.

    `one_way`: usec/xfer is half a round trip. Otherwise it is the time per transfer, with many in flight.
    """
    megabytes = row.unit == "MB/sec"
    rate = facts.number(row.bandwidth, "e6" if megabytes else "e9")
    values = {
        "latency" if one_way else "time": facts.number(row.latency, "e-6"),
        "bandwidth": rate if megabytes or rate is None else rate / 8,
        "message_rate": facts.number(row.rate, "e6") if row.rate else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _megabytes(row: FabtestRow) -> float:
    return RATE_UNITS[row.unit.removesuffix("ec")] / RATE_UNITS["MB/s"]


def is_damaged(text: str, layout: FabtestLayout | None) -> bool:
    """Return whether this is the remains of a row."""
    if layout is None or _MACHINE_START.fullmatch(text):
        return _MACHINE_START.fullmatch(text) is not None
    cells = text.split()
    # A name alone could be any word: the size identifies a row.
    return (not layout.name or len(cells) > 1) and is_remains(cells, _cells(layout))


@cache
def _cells(layout: FabtestLayout) -> tuple[re.Pattern[str], ...]:
    cells = [facts.SIZE, facts.COUNT, facts.SIZE, f"{facts.REAL}s", facts.REAL, facts.REAL]
    if layout.rate:
        cells.append(facts.REAL)
    if layout.xfers:
        cells.insert(1, facts.COUNT)
    if layout.name:
        cells.insert(0, r"\S+")
    return tuple(map(re.compile, cells))


@cache
def _pattern(layout: FabtestLayout) -> re.Pattern[str]:
    name, xfers = r"(?P<name>\S+)\s+" if layout.name else "", rf"\s+(?P<xfers>{facts.COUNT})" if layout.xfers else ""
    # Two decimals show where a number ends: one that fills its column touches the one before.
    rate = rf"\s*(?P<rate>{facts.REAL})" if layout.rate else ""
    return re.compile(
        rf"\s*{name}(?P<size>{facts.SIZE}){xfers}\s+(?P<iters>{facts.COUNT})\s+(?P<total>{facts.SIZE})\s+(?P<time>{facts.REAL})s"
        rf"\s*(?P<bandwidth>{facts.REAL})\s*(?P<latency>{facts.REAL}){rate}\s*"
    )


_PROGRAMS = (
    r"fi_(?:(?:rdm|msg|dgram|rma|rc|ud|efa)_\w*?(?:pingpong|bw|rma|lat|atomic|tx_completion)\w*"
    r"|rdm_atomic|rma_\w+|multi_recv|unmap_mem|ubertest)"
)
"""A pattern for the programs' names, since 2014. Other fabtests are functional tests and measure nothing."""

_SYNTAX = Syntax(
    names=_PROGRAMS,
    short="B:P:s:a:C:F:O:f:d:p:KD:i:HRe:M:I:QS:mc:t:w:lo:rvkj:W:UT:n:hxu:",
    long=(
        *("pin-core=", "timeout=", "debug-assert", "data-progress=", "control-progress=", "max-msg-size="),
        *("use-fi-more", "threading=", "no-rx-cq-data", "expect-error=", "sync-comp="),
    ),
    optional="bE",
)
_ARGUMENTS = lazy(rf"(?:--- # )?\s*(?:\S*/)?(?:lt-)?(?P<program>{_PROGRAMS})(?P<rest> .*)")
_ENDPOINT = lazy(r"fi_(msg|rdm|dgram)_")
# FT_ERR and FT_PRINTERR, by the directories of the sources; and messages of programs that cannot start.
_ERROR = lazy(
    r"\[error\] (?:\d+:)?fabtests:\S+:\d+: .*"
    r"|(?:fi|ft|eq|cq)_\w+(?:\([^()]*\))?\(\): (?:\S*/)?"
    r"(?:common|benchmarks|functional|ubertest|simple|streaming)/\w+\.c:\d+ ?, ret=-?\d+.*"
    rf"|(?:\S*/)?(?:lt-)?{_PROGRAMS}: (?:error while loading|(?:command )?not found|invalid option"
    r"|option requires|unrecognized option|No such file).*"
    rf"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?{_PROGRAMS}: (?:command not found|not found|No such file).*"
)
# Too common to begin an execution, but meaningful inside one.
_ERROR_INSIDE = lazy(
    r"Event queue read -?\d+.*|(?:fi|ft)_\w+(?:\(.*\))?:? (?:\S+\.c:\d+ ?, ret=)?-\d+(?: \(.*)?"
    r"|(?:eq|cq|\w+ fi_cq)_readerr.*|\w+(?:\([^()]*\))?\(\): \S+\.c:\d+ ?, ret=-?\d+.*|Usage:\s*"
)
_TIMED_OUT = lazy(r"\d+s timeout expired.*")
_WRONG = lazy(r"Data check error .*")
_BANNER = lazy(r"\s*[A-Z][\w ]*: \S.*")
_PROVIDER = lazy(r"\s*[Pp]rovider: ([a-z][\w;-]*)\s*")
_MAY_BEGIN = lazy(r"bytes |xfer_size|fi_|fabtests:|rovider:|\.\d\ds *\d")


_ONE_WAY = lazy(r"pingpong|_lat")  # in names of programs that send one message at a time back and forth
# The names of 2014 and 2015 only repeat the size.
_NO_NAME = lazy(r"[\d.]+[kmg]?_(?:lat|bw)|custom")


def _read_arguments(text: str) -> CommandLine | None:
    """Read the argument vector above machine-readable rows: ``fi_rdm_bw -m :``, or ``--- # fi_rdm_bw -m`` (2014)."""
    match = _ARGUMENTS.fullmatch(text)
    if match is None or not (text.startswith("--- # ") or text.rstrip().endswith(" :")):
        return None
    return _SYNTAX.read_arguments(match["program"], match["rest"].rstrip().removesuffix(" :").split())


@dataclass(slots=True, kw_only=True)
class FabtestProcess(PairProcess):
    """A process of a fabtest, and the layout of its table."""

    layout: FabtestLayout | None = None  # None: there is no table, or its rows are machine-readable


class FabtestExecution(PairExecution[FabtestProcess]):
    """One execution of a fabtest, read line by line."""

    mirrored = ("Connection reset by peer", "Connection refused", "Broken pipe")

    def __init__(self, execution: str) -> None:
        super().__init__(execution, Record(benchmark="fabtests", finished=None))

    @property
    @override
    def program(self) -> str:
        return self.record.case or ""

    @override
    def begin(self, marker: Marker) -> None:
        super().begin(marker)
        self.record.case = self.record.case or marker.facts.get("program")

    @override
    def set_command(self, process: FabtestProcess, command: CommandLine) -> None:
        self.record.case = self.record.case or command.program
        super().set_command(process, command)

    @override
    def endpoint(self, command: CommandLine) -> str:
        # Most programs have only one, and are named after it.
        named = _ENDPOINT.match(command.program)
        return command.endpoint or (named[1] if named else "")

    @override
    def is_damaged(self, text: str, process: FabtestProcess) -> bool:
        return is_damaged(text, process.layout)

    @override
    def row_point(self, line: Line, process: FabtestProcess) -> Point | Damaged | None:
        row = self._whole_row(line, process)
        if row is None:
            return None
        process.rows += 1
        command, known, way = process.command, self.program, 2 if "pingpong" in self.program else 1
        several = not known or known.endswith(("_mt", "ubertest")) or "_efa_" in known
        times = Range(1, 1 << 20) if several else Range(way, way)  # transfers per iteration
        requested, size_ = (command.iterations, command.size) if command else (None, None)
        size = row_size(row, requested=size_, iterations=requested, times=times)
        # Newer programs have options to send both ways: only for ping-pongs is the number certain.
        either = times if times.low == 2 else Range(1, max(times.high, 2))
        if not fits(row, size, iterations=requested, times=either):
            return Damaged(line.number, line.text)
        if not size.exact:
            self.record.findings.append(truncated_size(row.size, size.value))
        self.iterations.add(exact_count(row.iters, requested))
        twice = fits(row, size, iterations=requested, times=Range(2, 2))
        one_way = bool(_ONE_WAY.search(self.program)) if self.program else twice
        values = measured(row, one_way=one_way)
        labels = self.labels(
            process,
            way="one-way" if "pingpong" in self.program else "",
            name="" if _NO_NAME.fullmatch(row.name) else row.name,
        )
        return Point(size.value, labels, tuple(values), tuple(values.values()))

    def _whole_row(self, line: Line, process: FabtestProcess) -> FabtestRow | None:
        """Read a row of the open table. The rest of a torn row may look like a row with a shorter name."""
        layout = process.layout
        row = read_row(line.text, layout) if layout else read_machine_row(line.text)
        if row is not None and (not layout or not layout.name or line.text.strip() in {row.text(), row.text(10)}):
            return row
        if _REST.fullmatch(line.text) and not is_damaged(line.text, layout):
            self.record.damaged.append(Damaged(line.number, line.text))
        return None

    @override
    def info(self, text: str, stream: Stream) -> bool:
        if text.strip() == "fi_info:" and self.process(stream) is not None:
            self.begin_info(stream)
        return super().info(text, stream)

    def library(self, text: str, stream: Stream) -> bool:
        """Read a line of libfabric's own log; return whether it was one."""
        if not text.startswith("libfabric:"):
            return False
        requested = self.step.facts.get("provider", "") if self.step is not None else ""
        for fact, value in logged_facts(text, requested):
            self.report(fact, value, stream)
        return True


class FabtestsReader(PairReader[FabtestExecution]):
    """Reads one stream group."""

    benchmark = "fabtests"
    new_execution = FabtestExecution

    def __init__(self) -> None:
        super().__init__()
        self._provider = ""  # the provider that a banner names, until its table begins

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        used = (self.current is not None or bool(_MAY_BEGIN.search(line.text))) and self._read(line)
        if not used:
            # A banner's provider counts until a line is not a banner.
            provider = _PROVIDER.fullmatch(line.text)
            self._provider = provider[1] if provider else self._provider if _BANNER.fullmatch(line.text) else ""
        return self.take_readings() or (() if used else None)

    @override
    def close(self) -> Sequence[Reading]:
        self._provider = ""
        return super().close()

    def _read(self, line: Line) -> bool:
        """Read one line; return whether it comes from a fabtest."""
        text, stream = line.text, line.stream
        execution = self.current
        if execution is not None and (execution.info(text, stream) or execution.library(text, stream)):
            return True
        layout = read_header(text)
        if layout is not None:
            self._table(stream, layout)
        elif _ERROR.fullmatch(text):
            self.open_execution().fail(text, stream)
        elif (command := _SYNTAX.read(text)) is not None:
            self.add(FabtestProcess(stream=stream, side=command.side, command=command))
        elif (command := _read_arguments(text)) is not None:
            self._arguments(stream, command)
        elif self._begins_without_header(text, stream):
            self._table(stream, None if "xfer_size" in text else FabtestLayout())
            self._inside(line)
        else:
            return self._inside(line)
        return True

    def _begins_without_header(self, text: str, stream: Stream) -> bool:
        if self.current is not None and self.current.in_table(stream):
            return False
        if is_damaged(text, None):
            return True
        # Without a header, only the newest layout can be recognized: its last column implies its unit.
        row = read_row(text, FabtestLayout())
        return row is not None and row.text() == text.strip()

    def _inside(self, line: Line) -> bool:
        """Read a line that counts only while an execution is open; return whether it did."""
        execution = self.current
        if execution is None or self.read_row(line):
            return execution is not None
        if _ERROR_INSIDE.fullmatch(line.text):
            execution.fail(line.text, line.stream)
        elif _TIMED_OUT.fullmatch(line.text):
            execution.record.timed_out = execution.record.timed_out or execution.sentence(line.text, line.stream)
        elif _WRONG.fullmatch(line.text):
            execution.record.wrong += 1
        else:
            return execution.remains(line)
        return True

    def _table(self, stream: Stream, layout: FabtestLayout | None) -> None:
        execution = self.open_table(FabtestProcess(stream=stream, side=stream.side))
        if (process := execution.process(stream)) is not None:
            process.layout = layout
        if self._provider:
            execution.report("provider", self._provider, stream)
            self._provider = ""

    def _arguments(self, stream: Stream, command: CommandLine) -> None:
        process = self.current.process(stream) if self.current is not None else None
        if process is None or process.table or (process.command and process.command != command):
            self.add(FabtestProcess(stream=stream, side=command.side, command=command))
        elif self.current is not None and process.command is None:
            self.current.set_command(process, command)
