"""All_reduce benchmarks of torch.distributed: Modal's and ml-engineering's reports, and their many copies.

The forms, and the units by version: torch_text.py. There is no closing line. NCCL's debug text around a
report is read elsewhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fabbench.benchmarks import Benchmark, Reading, Shortcut
from fabbench.benchmarks import torch_text as text_of
from fabbench.benchmarks.torch_text import Announced, Rate, Result, Row
from fabbench.markers import Marker
from fabbench.model import Damaged, Finding, Labels, Line, Point, Record, Severity, Stream
from fabbench.units import format_size

_FAILED = re.compile(
    r"(?:\[rank\d+\]: ?)?torch\.(?:distributed|multiprocessing)\.[\w.]*(?:Error|Exception)\b.*"
    r"|ModuleNotFoundError: No module named 'torch'.*"
)
_FAILED_INSIDE = re.compile(
    r"(?:\[rank\d+\]: ?)?(?:[a-z_]\w*\.)*[A-Z]\w*Error: .*|!!! No payload (?:of \w+ )?was measured !!!"
)
_STOPPED = re.compile(r"!!! Stopped .*before .* ran out of memory on some rank !!!")
_MAIN: Labels = {}


@dataclass(slots=True)
class _Report:
    """One report while it is being read."""

    record: Record
    size: int | None = None
    columns: tuple[str, ...] = ()
    """Of its table; empty: there is none yet."""
    expects_table: bool = False
    rates: dict[str, Rate] = field(default_factory=dict)
    """The result lines so far."""
    stdevs: dict[str, Rate] = field(default_factory=dict)

    def result(self, result: Result) -> None:
        """Take in a result line of the sentence form."""
        self.rates[result.metric] = result.rate
        if (
            abs(result.rate.value - result.again.value)
            > result.rate.half_step + result.again.half_step * 1.01
        ):
            self._find(
                "rate-mismatch",
                f"The printed {result.metric} is {result.rate.digits} {result.rate.unit} and also "
                f"{result.again.digits} {result.again.unit}, which is not the same.",
            )
        if result.stdev is not None:
            self.stdevs[result.metric] = result.stdev

    def point(self, rates: dict[str, Rate], size: int) -> Point:
        """Make the point of one size, and check that its figures fit each other."""
        ranks = self.record.facts.get("ranks")
        algbw, busbw = rates.get("algbw"), rates.get("busbw")
        if self.record.case == "all_reduce" and isinstance(ranks, int) and ranks and algbw and busbw:
            factor = 2 * (ranks - 1) / ranks
            if abs(busbw.value - factor * algbw.value) > 1.01 * (busbw.half_step + factor * algbw.half_step):
                self._find(
                    "row-arithmetic",
                    f"At {format_size(size)} the printed busbw ({busbw.digits} {busbw.unit}) is not the "
                    f"algbw ({algbw.digits} {algbw.unit}) times 2(n-1)/n with {ranks} ranks.",
                )
        metrics = tuple(name for name in ("algbw", "busbw") if name in rates)
        return Point(size, _MAIN, metrics, tuple(rates[name].value for name in metrics))

    def row(self, row: Row) -> Sequence[Point]:
        """Take in a row of the table form."""
        size = self.size if row.size is None else row.size
        if size is None:
            self._find(
                "size-unknown", "The table has no payload column, and the line that states it is missing."
            )
            return ()
        points = [self.point(row.rates, size)] if row.rates else []
        points += [Point(size, {"stat": stat}, ("time",), (time,)) for stat, time in row.times.items()]
        self.record.points += points
        return points

    def finish(self) -> Record:
        """End the report. Results that only begin are given, and the rest is missing."""
        if self.rates:
            self.record.finished = False
            self.flush()
        return self.record

    def flush(self) -> Sequence[Point]:
        """Make the points of the result lines read so far."""
        rates, stdevs = self.rates, self.stdevs
        self.rates, self.stdevs = {}, {}
        if self.size is None:
            return ()
        points = [self.point(rates, self.size)]
        points += [
            Point(self.size, {"stat": "stdev"}, (metric,), (stdev.value,)) for metric, stdev in stdevs.items()
        ]
        self.record.points += points
        return points

    def _find(self, code: str, meaning: str) -> None:
        if all(finding.code != code for finding in self.record.findings):
            self.record.findings.append(Finding(code=code, severity=Severity.WARNING, meaning=meaning))


class TorchReader:
    """Reads one stream group. Each rank that prints a report has its own."""

    def __init__(self) -> None:
        self._reports: dict[Stream, _Report] = {}
        self._environment: dict[Stream, dict[str, str | int]] = {}

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line; None if it is nothing of a report."""
        text, stream = line.text, line.stream
        if "The " in text and (announced := text_of.read_sentence(text)) is not None:
            return self._begin(stream, announced)
        if "|" in text and (columns := text_of.read_header(text)) is not None:
            return self._table(stream, columns)
        if text.startswith("- software: ") and (versions := text_of.read_environment(text)) is not None:
            self._environment[stream] = versions
            return None
        if "torch" in text and _FAILED.fullmatch(text):
            return self._fail(line, self._reports.get(stream) or self._any())
        report = self._reports.get(stream)
        return self._inside(line, report) if report is not None else None

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give no quick way: a report has a few rows."""
        del rank
        return None

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Begin another execution at each step. How it ends is not known before the text does."""
        return self.close() if marker.kind == "begin" else ()

    def close(self) -> Sequence[Reading]:
        """Give the reports that are still open."""
        reports, self._reports, self._environment = self._reports, {}, {}
        return [report.finish() for report in reports.values()]

    # ------------------------------------------------------------ lines

    def _begin(self, stream: Stream, announced: Announced) -> Sequence[Reading]:
        """Begin a report with its sentence."""
        before = self._reports.pop(stream, None)
        versions = self._environment.pop(stream, {})
        record = Record(
            benchmark="torch", case=announced.case, facts={**announced.facts, **versions}, finished=None
        )
        self._reports[stream] = _Report(record, announced.size, expects_table=announced.table)
        if announced.rounded:
            record.findings.append(
                Finding(
                    code="size-truncated",
                    severity=Severity.NOTE,
                    meaning=f"The payload has three decimals in print; {announced.size} bytes are assumed.",
                )
            )
        return [before.finish()] if before is not None else []

    def _table(self, stream: Stream, columns: tuple[str, ...]) -> Sequence[Reading]:
        """Begin a table, and with it a report unless one was waiting for its table."""
        report = self._reports.get(stream)
        out: Sequence[Reading] = []
        if report is None or not report.expects_table:
            out = self._begin(stream, Announced("all_reduce", {}))
            report = self._reports[stream]
        report.columns, report.expects_table = columns, False
        return out

    def _inside(self, line: Line, report: _Report) -> Sequence[Reading] | None:
        """Read what counts only inside a report."""
        text, record = line.text, report.record
        if report.columns and "|" in text:
            row = text_of.read_row(text, report.columns)
            if row is not None:
                return report.row(row)
            if text_of.is_row_cut(text, report.columns):
                record.damaged.append(Damaged(line.number, text))
                return ()
        elif "bw: " in text and (result := text_of.read_result(text)) is not None:
            report.result(result)
            return report.flush() if len(report.rates) == 2 else ()
        elif text_of.is_result_cut(text):
            record.damaged.append(Damaged(line.number, text))
            return ()
        if _STOPPED.fullmatch(text):
            record.findings.append(
                Finding(
                    code="range-reduced",
                    severity=Severity.WARNING,
                    meaning="The sweep ended early, because memory was short.",
                    line=text.strip(),
                    advice="Ask for sizes that fit, or free GPU memory.",
                )
            )
            return ()
        return self._fail(line, report) if _FAILED_INSIDE.fullmatch(text) else None

    def _fail(self, line: Line, report: _Report | None) -> Sequence[Reading]:
        """Take note of an error; it may be all that there is of a report."""
        if report is None:
            report = self._reports[line.stream] = _Report(
                Record(benchmark="torch", case="all_reduce", finished=None)
            )
        words = " ".join(line.text.split())
        sentence = f"torch said: {words if len(words) <= 300 else words[:299] + '…'}"
        if sentence not in report.record.failures:
            report.record.failures.append(sentence)
        return ()

    def _any(self) -> _Report | None:
        """Give the report that is open in another stream: any rank's error is its failure."""
        return next(iter(self._reports.values()), None)


class Torch:
    """The all_reduce benchmarks in torch."""

    name: Final = "torch"
    joins_groups: Final = False

    def reader(self) -> TorchReader:
        """Give a fresh reader."""
        return TorchReader()


BENCHMARK: Benchmark = Torch()
