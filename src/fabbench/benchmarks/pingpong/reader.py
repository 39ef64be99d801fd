"""Reads the output of fi_pingpong: tables, ``-v`` text and errors, of both sides of a pair.

A row is ``%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f``, with sizes truncated to one decimal digit (1500 bytes
are ``1.4k``). Units: MB/sec is 1e6 bytes per second, both directions added; usec/xfer is one-way. No digits
are invented.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabbench.benchmarks import Reading
from fabbench.benchmarks.command_line import Syntax
from fabbench.benchmarks.consistency import is_remains, warning
from fabbench.benchmarks.libfabric.facts import (
    COUNT,
    REAL,
    SIZE,
    PrintedRow,
    Range,
    Size,
    by_product,
    by_total,
    count_range,
    exact_count,
    known_size,
    number,
    sizes_of,
    truncated_size,
)
from fabbench.benchmarks.libfabric.pair_reader import PairExecution, PairProcess, PairReader
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Damaged, Line, Marker, Point, Record, Stream
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size

HEADER = ("bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec")

# There is no blank between full columns; suffixes and decimals show where each ends.
_ROW = lazy(
    rf"\s*(?P<size>{SIZE})\s+(?P<sent>{COUNT})\s*(?P<sign>[=+-])(?P<ack>{COUNT})\s+(?P<total>{SIZE})"
    rf"(?:\s+|(?<=[kmg]))(?P<time>{REAL})s\s*(?P<bandwidth>{REAL})\s*(?P<latency>{REAL})\s*(?P<rate>{REAL})\s*"
)
_CELLS = tuple(lazy(pattern) for pattern in (SIZE, COUNT, f"[=+-]{COUNT}", SIZE, f"{REAL}s", REAL, REAL, REAL))
_BOTH_WAYS = Range(2, 2)


class PingpongRow(NamedTuple):
    """The tokens of one row, as printed."""

    size: str
    sent: str
    sign: str  # `=`: everything was acknowledged; `+`: `ack` messages were not; `-`: `ack` too many were
    ack: str
    total: str
    time: str
    bandwidth: str
    latency: str
    rate: str

    def layout(self) -> str:
        """Return the row exactly as the program prints it."""
        return (
            f"{self.size:<8}{self.sent:<8}{self.sign}{self.ack:<8}{self.total:<8}{self.time:>8}s"
            f"{self.bandwidth:>10}{self.latency:>11}{self.rate:>11}"
        )


def read_row(text: str) -> PingpongRow | None:
    """Read a complete row; None for any other text."""
    match = _ROW.fullmatch(text)
    return PingpongRow(*match.groups()) if match else None


def is_header(text: str) -> bool:
    """Return whether this is the header of the table, complete or cut off after two or more columns."""
    words = text.split()
    begins = tuple(words[:2]) == HEADER[:2] and len(words) <= len(HEADER)
    return begins and all(name.startswith(word) for name, word in zip(HEADER, words, strict=False))


def fits(row: PingpongRow, size: Size, *, sent: int | None) -> bool:
    """Return whether the figures of a row are consistent. `sent`: as in `row_size`."""
    figures = PrintedRow(row.sent, row.total, row.time, row.bandwidth, row.latency, row.rate)
    acks_match = row.sign != "=" or row.ack == row.sent
    return acks_match and figures.fits(sizes_of(row.size, size), requested=sent, times=_BOTH_WAYS)


def row_size(row: PingpongRow, *, requested: int | None = None, sent: int | None = None) -> Size:
    """Return the size that a row measured.

    `requested` and `sent` are the requested size and number of messages: they count if they print like the
    row. Otherwise, the other columns narrow down a truncated size: `total`, and MB/sec times usec/xfer, which
    is the size again.
    """
    others = (by_total(row.total, row.sent, requested=sent, times=_BOTH_WAYS), by_product(row.bandwidth, row.latency))
    return known_size(row.size, requested=requested, others=others)


USUAL_SETUP_S = 0.035  # set-up of a reliable datagram endpoint over a network, as measured with libfabric 1.17 and 2.4
SHARED_MEMORY_SETUP_S = 0.0002
SETUP_SHARE = 0.01  # a figure with a larger share of set-up than this is flagged


def setup_s(endpoint: str, provider: str) -> float:
    """Return the seconds of set-up that the first row of a process includes.

    Connected (``msg``) endpoints connect before timing starts, datagrams do not connect at all.
    """
    if endpoint != "rdm":
        return 0.0
    return SHARED_MEMORY_SETUP_S if provider == "shm" else USUAL_SETUP_S


PROGRAM = "fi_pingpong"
_SYNTAX = Syntax(names=PROGRAM, short="B:P:d:p:f:e:s:I:S:m:chv6")
_METRICS = (("latency", "latency", "e-6"), ("bandwidth", "bandwidth", "e6"), ("message_rate", "rate", "e6"))
_DEBUG = lazy(r"\[debug\] \S*pingpong\.c:\d+ ?: ?(.*)")
_ERROR = lazy(
    r"\[error\] (?:\S*/)?pingpong\.c:\d+.*"
    r"|[\w/]+(?:\(\))?: (?:\S*/)?pingpong\.c:\d+ ?, ret=-?\d+.*"
    r"|(?:\S*/)?fi_pingpong: (?:error while loading|(?:command )?not found|invalid option|option requires"
    r"|unrecognized option|No such file).*"
    r"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?fi_pingpong: (?:command not found|not found|No such file).*"
)
# Too common to begin an execution, but meaningful inside one.
_ERROR_INSIDE = lazy(
    r"Unknown endpoint : .*|Unknown transmit mode.*|Error at iteration=\d+ size=\d+ byte=\d+.*"
    r"|\d+s timeout expired.*|Usage:\s*"
)
_USAGE = lazy(r"\s+fi_pingpong \[OPTIONS\].*")
_SIDE_TITLE = lazy(r"\W*(server|client) (?:log|output)\W*", re.IGNORECASE)
# Any other line is irrelevant, unless an fi_info block is waiting for its rest.
_MAY_MATTER = lazy(r"^\s*\d|pingpong|#sent|\[debug\]|\[error\]|Unknown |Error at |timeout|Usage")
_MAY_BEGIN = lazy(r"pingpong|#sent|\d +[=+-]\d")


@dataclass(slots=True, kw_only=True)
class PingpongProcess(PairProcess):
    """A process of fi_pingpong."""

    debug_seen: bool = False  # whether its first ``-v`` line was seen


class PingpongExecution(PairExecution[PingpongProcess]):
    """One execution of fi_pingpong, read line by line."""

    mirrored = ("remote connection closed", "Connection reset by peer", "failed to connect")
    default_program = PROGRAM

    def __init__(self, execution: str) -> None:
        super().__init__(execution, Record(benchmark="pingpong", case="pingpong", finished=None))
        self._setup_sizes: list[int] = []  # sizes whose figure includes connection set-up

    @property
    @override
    def program(self) -> str:
        return PROGRAM

    @override
    def begin(self, marker: Marker) -> None:
        super().begin(marker)
        if marker.facts.get("endpoint"):
            self.report("endpoint", marker.facts["endpoint"], NO_STREAM)

    def has(self, side: str, stream: Stream, *, starting: bool) -> bool:
        """Return whether debug text of `side` is from a known process; set the side of one that has none.

        `starting`: it is the first text of a process, so a process that already printed it is another one.
        """
        for process in self.processes:
            if process.stream == stream and not (process.table and starting) and process.side in {side, ""}:
                if starting and process.debug_seen:
                    continue
                process.side = side
                process.debug_seen = process.debug_seen or starting
                return True
        return False

    @override
    def is_damaged(self, text: str, process: PingpongProcess) -> bool:
        return is_remains(text.split(), _CELLS) and not (process.rows and text.strip() == "0")

    @override
    def row_point(self, line: Line, process: PingpongProcess) -> Point | Damaged | None:
        row = read_row(line.text)
        if row is None:
            return None
        process.rows += 1
        requested, sent = (process.command.size, process.command.iterations) if process.command else (None, None)
        size = row_size(row, requested=requested, sent=sent)
        if not fits(row, size, sent=sent):
            return Damaged(line.number, line.text)
        if not size.exact:
            self.record.findings.append(truncated_size(row.size, size.value))
        if row.sign != "=" and int(row.ack.rstrip("kmb")):
            messages = f"messages of {format_size(size.value)} were"
            self.record.failures.append(
                f"{row.ack} of {row.sent} {messages} not acknowledged."
                if row.sign == "+"
                else f"{row.ack} more {messages} acknowledged than the {row.sent} sent."
            )
        values = {name: number(getattr(row, column), exponent) for name, column, exponent in _METRICS}
        measured = {name: value for name, value in values.items() if value is not None}
        self._note_iterations(row, process, size.value, measured.get("latency"))
        labels = self.labels(process, sent=row.sent, time=f"{row.time}s")
        return Point(size.value, labels, tuple(measured), tuple(measured.values()))

    def _note_iterations(self, row: PingpongRow, process: PingpongProcess, size: int, latency: float | None) -> None:
        count = exact_count(row.sent, process.command.iterations if process.command else None)
        if count is not None:
            self.iterations.add(count)
        # Only the first row can include the set-up.
        if process.rows != 1 or latency is None:
            return
        minimum = count if count is not None else count_range(row.sent).low
        provider = self.reported.first("provider").partition(";")[0]
        setup = setup_s(self.reported.first("endpoint"), provider)
        if setup > SETUP_SHARE * latency * 2 * minimum and size not in self._setup_sizes:
            self._setup_sizes.append(size)

    @override
    def fail(self, text: str, stream: Stream) -> None:
        words = text.strip()
        if not words.startswith(("Usage:", f"{PROGRAM} [OPTIONS]")) or not self.record.failures:
            super().fail(text, stream)
        if self.step is not None and words.startswith("Error at iteration="):
            # Both sides of a step check the same data, so the network is at fault, not the command line.
            self.record.wrong += 1

    @override
    def finish(self) -> Record:
        record = super().finish()
        if self._setup_sizes:
            sizes = ", ".join(map(format_size, self._setup_sizes))
            record.findings.append(
                warning(
                    "setup-time",
                    f"Connection set-up may be more than 1 % of the figure at {sizes}.",
                    "Use more iterations, or -e msg where the provider has it.",
                )
            )
        return record


class PingpongReader(PairReader[PingpongExecution]):
    """Reads one stream group."""

    benchmark = "pingpong"
    new_execution = PingpongExecution

    def __init__(self) -> None:
        super().__init__()
        self._side_title = ""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text = line.text
        current = self.current
        matters = (_MAY_BEGIN if current is None else _MAY_MATTER).search(text) is not None
        if current is not None and not matters:
            matters = current.expects_more(line.stream) or any(process.table for process in current.processes)
        used = matters and self._read(line)
        if not used and (title := _SIDE_TITLE.fullmatch(text)):
            self._side_title = title[1].lower()
        return self.take_readings() or (() if used else None)

    @override
    def close(self) -> Sequence[Reading]:
        self._side_title = ""
        return super().close()

    def _read(self, line: Line) -> bool:
        """Read one line, or one of several printed as one; return whether it comes from fi_pingpong."""
        text, stream = line.text, line.stream
        if text[:1].isdigit() and self._inside(line):
            return True
        if (debug := _DEBUG.fullmatch(text)) is not None:
            self._debug(debug[1], stream)
        elif _ERROR.fullmatch(text) or _USAGE.fullmatch(text):
            self.open_execution().fail(text, stream)
        elif self.current is not None and self.current.info(text, stream):
            pass
        elif self._begins_table(text, stream):
            self.open_table(PingpongProcess(stream=stream, side=stream.side or self._side_title), self._side_title)
            self._side_title = ""
            self.read_row(line)
        elif (command := _SYNTAX.read(text)) is not None:
            self.add(PingpongProcess(stream=stream, side=command.side, command=command))
        else:
            return self._inside(line)
        return True

    def _begins_table(self, text: str, stream: Stream) -> bool:
        """Return whether a table begins here, with its header or, if that is missing, with a row."""
        if is_header(text):
            return True
        if self.current is not None and self.current.in_table(stream):
            return False
        row = read_row(text)
        return row is not None and row.layout() == text.strip()

    def _inside(self, line: Line) -> bool:
        """Read a line that counts only while an execution is open; return whether it did."""
        if self.current is None or self.read_row(line):
            return self.current is not None
        if _ERROR_INSIDE.fullmatch(line.text):
            self.current.fail(line.text, line.stream)
            return True
        return self.current.remains(line)

    def _debug(self, text: str, stream: Stream) -> None:
        execution = self.open_execution()
        side, starting = "", text.startswith("- dst_addr")
        if starting:
            side = "server" if "[None]" in text else "client"
        elif text.startswith(("SERVER:", "CLIENT:")):
            side = text[:6].lower()
        elif text.startswith("Selected endpoint: "):
            execution.report("endpoint", text.removeprefix("Selected endpoint: ").strip().lower(), stream)
        elif text.startswith("Running pingpong test with fi_info"):
            execution.begin_info(stream)
        if side and not execution.has(side, stream, starting=starting):
            self.add(PingpongProcess(stream=stream, side=side))
