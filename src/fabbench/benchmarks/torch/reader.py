"""Reads all_reduce benchmarks of torch.distributed: the reports of all_reduce_bench.py and its copies.

There is no closing line. NCCL's debug text around a report is read elsewhere. There are two families, both
from stas00/ml-engineering's `all_reduce_bench.py`:

Sentences, until 2025-01: ``The average bandwidth of all_reduce with a 4.0GB payload (50 trials, 16 ranks):``
and two result lines. GB and GBps are 1e9, Gbps is 1e9 bits per second.

A Markdown table since then: ``| payload | busbw | algbw |``, with 1024-based payloads. Until 2025-01-22 they
are written as KB, MB, GB, and GBps is 2^30 bytes per second; after that as KiB, MiB, GiB, and GBps is 1e9.
``--profile_stability`` has no payload column, and one row per trial. Since 2026 there may be columns for the
latency of one call.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import ALL_REDUCE, ANYTHING, Printed, is_remains, note, printed, ratios, warning
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Line, Point, Record, Stream
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, format_size

_RATE = r"(?P<{0}>\d+\.\d+) ?(?P<{0}_unit>[KMGT]?[bB]ps)"
_SENTENCE = lazy(
    r"(?:.*\s)?The average bandwidth of (?P<case>\w+) with a (?P<payload>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?P<unit>[KMGT]?i?B) payload \((?P<trials>\d+) trials, (?P<ranks>\d+) ranks\):\s*"
)
_SENTENCE_CUT = lazy(r"(?:.*\s)?The average bandwidth of \w+ (?:with a|over) .*")
_OVER = lazy(
    r"(?:.*\s)?The (?:average bandwidth(?: and the per-call latency)?"
    r"|(?P<payload>\d+(?:\.\d+)?)GiB payload bandwidth) of (?P<case>\w+) over (?P<ranks>\d+) ranks"
    r" \((?:at least )?(?P<warmup>\d+) warmups / (?P<trials>\d+) trials(?:, (?P<method>.*))?\):\s*"
)
_RESULT = lazy(
    rf"(?:.*\s)?(?P<metric>algbw|busbw): {_RATE.format('value')}(?: \(std: (?P<std>\d+\.\d+)\))?"
    rf" \({_RATE.format('bits')}\)\s*"
)
_RESULT_CUT = lazy(r"\s*(?:algbw|busbw):.*")
_ENVIRONMENT = lazy(
    r"- software: `?torch=(?P<torch>[\w.+-]+)`?, `?(?:cuda=(?P<cuda>[\w.]+))`?, "
    r"`?nccl=(?P<nccl>\d+(?:\.\d+)+|\(\d+(?:, \d+)+\))`?.*"
)
_COLUMNS = {
    "payload": lazy(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTPE]?i?B)"),
    "busbw": lazy(_RATE.format("value")),
    "algbw": lazy(_RATE.format("value")),
    "latency median": lazy(r"(?P<us>\d+\.\d)us"),
    "p99": lazy(r"(?P<us>\d+\.\d)us"),
    "mean": lazy(r"(?P<us>\d+\.\d)us"),
    "calls": lazy(r"\d+"),
}
_POWERS = " KMGTPE"
_STATS = {"latency median": "median", "p99": "p99", "mean": "mean"}


class Announcement(NamedTuple):
    """The sentence above the figures."""

    case: str | None
    facts: dict[str, str | int]
    size: int | None = None  # payload of all figures in bytes; None: each row of a table states it
    table: bool = False  # whether a table follows
    rounded: bool = False  # whether the payload is printed with three decimals, so that the exact size is unknown


class Rate(NamedTuple):
    """A rate as printed."""

    digits: str
    unit: str  # the printed unit: ``GBps``, ``Gbps``
    binary: bool = False  # whether G is 2^30, as in the tables of 2025-01

    @property
    def value(self) -> float:
        """In bytes per second."""
        return float(Decimal(self.digits) * self._factor)

    @property
    def printed(self) -> Printed:
        """The range of rates that print like this, in bytes per second."""
        return printed(self.digits).times(float(self._factor))

    @property
    def _factor(self) -> Decimal:
        power = _POWERS.index(self.unit[:-3] or " ")
        if self.binary and "B" in self.unit:
            return Decimal(1024**power)
        return Decimal(RATE_UNITS[f"{self.unit[:-2]}/s"])


class Result(NamedTuple):
    """A result line of the sentence form."""

    metric: str
    rate: Rate
    in_bits: Rate  # the same rate in bits
    stdev: Rate | None


class Row(NamedTuple):
    """A row of the table form."""

    size: int | None  # None: the table has no payload column
    rates: dict[str, Rate]
    times: dict[str, float]  # statistic → latency of one call in seconds


def read_sentence(text: str) -> Announcement | None:
    """Read the sentence above figures, complete or cut off after its first words."""
    facts: dict[str, str | int]
    if (match := _SENTENCE.fullmatch(text)) is not None:
        facts = {"ranks": int(match["ranks"]), "trials": int(match["trials"])}
        size = _size(match["payload"], match["unit"], thousand=1024 if "i" in match["unit"] else 1000)
        rounded = len(match["payload"].partition(".")[2]) == 3
        return Announcement(match["case"], facts, size, rounded=rounded)
    if (match := _OVER.fullmatch(text)) is not None:
        facts = {name: int(match[name]) for name in ("ranks", "trials", "warmup")}
        if match["method"]:
            facts["method"] = match["method"]
        whole = _size(match["payload"], "GiB", thousand=1024) if match["payload"] else None
        return Announcement(match["case"], facts, whole, table=True)
    return Announcement(None, {}) if _SENTENCE_CUT.fullmatch(text) else None


def read_result(text: str) -> Result | None:
    """Read a complete result line."""
    match = _RESULT.fullmatch(text)
    if match is None:
        return None
    rate = Rate(match["value"], match["value_unit"])
    stdev = rate._replace(digits=match["std"]) if match["std"] else None
    return Result(match["metric"], rate, Rate(match["bits"], match["bits_unit"]), stdev)


def read_environment(text: str) -> dict[str, str | int] | None:
    """Read the versions above a report: torch, cuda, nccl."""
    match = _ENVIRONMENT.fullmatch(text)
    if match is None:
        return None
    return {**match.groupdict(), "nccl": ".".join(re.findall(r"\d+", match["nccl"]))}


def read_header(text: str) -> tuple[str, ...] | None:
    """Read the header of a table: its columns in print order."""
    cells = tuple(_cells(text))
    known = {"busbw", "algbw"} <= set(cells) <= set(_COLUMNS) and text.rstrip().endswith("|")
    return cells if known else None


def read_row(text: str, columns: tuple[str, ...]) -> Row | None:
    """Read a complete row. Bandwidths may be blank if there are latencies."""
    cells = _cells(text)
    if len(cells) != len(columns) or not text.rstrip().endswith("|"):
        return None
    matches: dict[str, re.Match[str]] = {}
    for name, cell in zip(columns, cells, strict=True):
        if (match := _COLUMNS[name].fullmatch(cell)) is not None:
            matches[name] = match
        elif cell or name not in {"busbw", "algbw"} or not set(columns) & set(_STATS):
            return None
    size, binary = None, False
    if payload := matches.get("payload"):
        unit = payload["unit"]
        size = _size(payload["number"], unit, thousand=1024)
        binary = len(unit) == 2 and unit != "iB"
    rates = {
        name: Rate(match["value"], match["value_unit"], binary)
        for name in ("algbw", "busbw")
        if (match := matches.get(name))
    }
    times = {stat: float(f"{matches[name]['us']}e-6") for name, stat in _STATS.items() if name in matches}
    return Row(size, rates, times)


def is_row_cut(text: str, columns: tuple[str, ...]) -> bool:
    """Return whether this is an incomplete row, judging by its first cell or by most of its cells."""
    cells = _cells(text)
    return bool(cells) and (
        bool(_COLUMNS[columns[0]].fullmatch(cells[0])) or is_remains(cells, [_COLUMNS[name] for name in columns])
    )


def _cells(text: str) -> list[str]:
    """Split a row of a Markdown table, complete or cut off; empty for any other line."""
    stripped = text.strip()
    if not stripped.startswith("|"):
        return []
    return [cell.strip() for cell in stripped[1:].removesuffix("|").split("|")]


def _size(number: str, unit: str, *, thousand: int) -> int:
    power = _POWERS.index(unit[0]) if unit[0] in _POWERS else 0
    return int((Decimal(number) * thousand**power).to_integral_value())


_FAILED = lazy(r"ModuleNotFoundError: No module named 'torch'.*")
_FAILED_INSIDE = lazy(
    r"(?:\[rank\d+\]: ?)?(?:[a-z_]\w*\.)*[A-Z]\w*Error: .*|!!! No payload (?:of \w+ )?was measured !!!"
)
_STOPPED = lazy(r"!!! Stopped .*before .* ran out of memory on some rank !!!")


@dataclass(slots=True)
class _Report:
    """One report while it is being read."""

    record: Record
    size: int | None = None
    columns: tuple[str, ...] = ()  # columns of its table; empty: no table yet
    expects_table: bool = False
    rates: dict[str, Rate] = field(default_factory=dict)  # the result lines so far
    stdevs: dict[str, Rate] = field(default_factory=dict)

    def result(self, result: Result) -> bool:
        """Add a result line of the sentence form; return False if it contradicts itself."""
        in_bits = result.in_bits.printed
        if not result.rate.printed.overlaps(in_bits.low, in_bits.high):
            self._add_finding(
                "rate-mismatch",
                f"The printed {result.metric} is {result.rate.digits} {result.rate.unit} and also "
                f"{result.in_bits.digits} {result.in_bits.unit}, which is not the same.",
            )
            return False
        self.rates[result.metric] = result.rate
        if result.stdev is not None:
            self.stdevs[result.metric] = result.stdev
        return True

    def point(self, rates: dict[str, Rate], size: int, line: Line) -> list[Point]:
        """Return the point of one size; none, and a damaged row, if its figures contradict each other."""
        ranks = self.record.facts.get("ranks")
        algbw, busbw = rates.get("algbw"), rates.get("busbw")
        if self.record.case == "all_reduce" and isinstance(ranks, int) and ranks and algbw and busbw:
            allowed = ratios(0, ANYTHING, algbw.printed, busbw.printed)
            if not ALL_REDUCE.of(ranks).fits(allowed):
                self._add_finding(
                    "row-arithmetic",
                    f"At {format_size(size)} the printed busbw ({busbw.digits} {busbw.unit}) is not the "
                    f"algbw ({algbw.digits} {algbw.unit}) times 2(n-1)/n with {ranks} ranks.",
                )
                self.damage(line)
                return []
        metrics = tuple(name for name in ("algbw", "busbw") if name in rates)
        return [Point(size, {}, metrics, tuple(rates[name].value for name in metrics))]

    def damage(self, line: Line) -> None:
        self.record.damaged.append(Damaged(line.number, line.text))

    def row(self, row: Row, line: Line) -> Sequence[Point]:
        size = self.size if row.size is None else row.size
        if size is None:
            self._add_finding(
                "size-unknown", "The table has no payload column, and the line that states it is missing."
            )
            return ()
        points = self.point(row.rates, size, line) if row.rates else []
        if row.times.get("median", 0.0) > row.times.get("p99", math.inf):
            self.damage(line)
            return ()
        if row.rates and not points:
            return ()
        points += [Point(size, {"stat": stat}, ("time",), (time,)) for stat, time in row.times.items()]
        self.record.points += points
        return points

    def finish(self) -> Record:
        """End the report. Partial results are kept, and the report counts as unfinished."""
        if self.rates:
            self.record.finished = False
            self.flush(Line(0, ""))
        return self.record

    def flush(self, line: Line) -> Sequence[Point]:
        """Return the points of the result lines read so far; `line` is the last."""
        rates, stdevs = self.rates, self.stdevs
        self.rates, self.stdevs = {}, {}
        if self.size is None:
            return ()
        points = self.point(rates, self.size, line)
        if points:
            points += [Point(self.size, {"stat": "stdev"}, (name,), (stdev.value,)) for name, stdev in stdevs.items()]
        self.record.points += points
        return points

    def _add_finding(self, code: str, meaning: str) -> None:
        if all(finding.code != code for finding in self.record.findings):
            self.record.findings.append(warning(code, meaning))


class TorchReader(Reader):
    """Reads one stream group. Each rank that prints has a report of its own."""

    def __init__(self) -> None:
        self._reports: dict[Stream, _Report] = {}
        self._environment: dict[Stream, dict[str, str | int]] = {}

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text, stream = line.text, line.stream
        if "The " in text and (announced := read_sentence(text)) is not None:
            return self._begin(stream, announced)
        if "|" in text and (columns := read_header(text)) is not None:
            return self._table(stream, columns)
        if text.startswith("- software: ") and (versions := read_environment(text)) is not None:
            self._environment[stream] = versions
            return None
        if "torch" in text and _FAILED.fullmatch(text):
            # An error of any rank is the failure of a report that is open in another stream.
            return self._fail(line, self._reports.get(stream) or next(iter(self._reports.values()), None))
        report = self._reports.get(stream)
        return self._inside(line, report) if report is not None else None

    @override
    def close(self) -> Sequence[Reading]:
        reports, self._reports, self._environment = self._reports, {}, {}
        return [report.finish() for report in reports.values()]

    def _begin(self, stream: Stream, announced: Announcement) -> Sequence[Reading]:
        before = self._reports.pop(stream, None)
        versions = self._environment.pop(stream, {})
        record = Record(benchmark="torch", case=announced.case, facts={**announced.facts, **versions}, finished=None)
        self._reports[stream] = _Report(record, announced.size, expects_table=announced.table)
        if announced.rounded:
            record.findings.append(
                note(
                    "size-truncated", f"The payload is printed with three decimals: {announced.size} bytes are assumed."
                )
            )
        return [before.finish()] if before is not None else []

    def _table(self, stream: Stream, columns: tuple[str, ...]) -> Sequence[Reading]:
        report = self._reports.get(stream)
        out: Sequence[Reading] = []
        if report is None or not report.expects_table:
            out = self._begin(stream, Announcement("all_reduce", {}))
            report = self._reports[stream]
        report.columns, report.expects_table = columns, False
        return out

    def _inside(self, line: Line, report: _Report) -> Sequence[Reading] | None:
        text, record = line.text.strip(), report.record
        if report.columns and "|" in text:
            if (row := read_row(text, report.columns)) is not None:
                return report.row(row, line)
            if is_row_cut(text, report.columns):
                report.damage(line)
                return ()
        elif "bw: " in text and (result := read_result(text)) is not None:
            if not report.result(result):
                report.damage(line)
            return report.flush(line) if len(report.rates) == 2 else ()
        elif _RESULT_CUT.fullmatch(text):
            report.damage(line)
            return ()
        if _STOPPED.fullmatch(text):
            record.findings.append(
                warning(
                    "range-reduced",
                    "The sweep ended early because memory ran out.",
                    "Choose sizes that fit, or free GPU memory.",
                    line=text.strip(),
                )
            )
            return ()
        return self._fail(line, report) if _FAILED_INSIDE.fullmatch(text) else None

    def _fail(self, line: Line, report: _Report | None) -> Sequence[Reading]:
        if report is None:
            report = self._reports[line.stream] = _Report(Record(benchmark="torch", case="all_reduce", finished=None))
        sentence = f"torch said: {quoted(line.text)}"
        if sentence not in report.record.failures:
            report.record.failures.append(sentence)
        return ()
