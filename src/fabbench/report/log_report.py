"""Logs as text: tables for people, rows for CSV, JSON, and the diagnosis of one log alone. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fabbench.analysis.curve import curve_line, with_curve
from fabbench.benchmarks import benchmark_named
from fabbench.evidence.known_errors import causes
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, NCCL_DEBUG, Finding, Labels, Log, Outcome, Point, Severity
from fabbench.model.units import Scale, format_size, scale
from fabbench.report import json_contract
from fabbench.report.expectations import expectation_lines, expectation_record, expectations_of_log
from fabbench.report.json_contract import sample_pieces
from fabbench.report.table import CSV_FORMATS, RAW_CSV, Table, row_text, terminal_pieces, to_markdown, write_rows
from fabbench.report.templates import rendered

FORMATS = ("table", "json", "csv", "raw-csv", "markdown")

LABELS = (
    "placement", "dtype", "redop", "root", "scope", "stat", "way", "direction", "side", "rank", "device",
    "endpoint", "operation", "batch",
)  # fmt: skip
"""Every label of the contract, in the order of columns."""

CSV_HEADER = ("source", "benchmark", "case", "outcome", "size", *LABELS, "metric", "value", "unit")

_COARSE = 1e7  # Two decimals of GB/s, in bytes per second
_SIDEWAYS = ("placement", "stat", "side")  # Labels that become columns, like the metric; the others are on the left
_DIAGNOSED = (
    "transport", "network", "provider", "fabric", "domain", "nics", "link", "gdr", "protocol", "pxn",
    "algorithms", "channels", "nvls", "sharp", "interface", "plugin", "libfabric", "nccl", "nvshmem",
)  # fmt: skip
"""Facts that belong to a diagnosis, the most telling first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWriter:
    """Writes logs one at a time, in pieces: a log may be large."""

    log: Callable[[Log], Iterator[str]]
    opening: str = ""
    separator: str = ""
    closing: Callable[[Iterable[tuple[str, str]]], str] = lambda errors: ""  # noqa: ARG005
    """Takes the sources that could not be read, with the reasons."""


def log_writer(form: str, *, color: bool = False, width: int | None = None) -> LogWriter:
    """Return the writer of one of `FORMATS`; `color` and `width` are for `table`."""
    if form == "json":
        opening, separator, closing = json_contract.OPENING, json_contract.SEPARATOR, json_contract.closing
        return LogWriter(log=json_contract.log_pieces, opening=opening, separator=separator, closing=closing)
    if form in CSV_FORMATS:
        return LogWriter(log=partial(_csv_pieces, raw=form == RAW_CSV), opening=write_rows(CSV_HEADER, ()))
    if form == "markdown":
        return LogWriter(log=lambda log: map(to_markdown, log_tables(log)), separator="\n")
    if form == "table":
        return LogWriter(log=lambda log: terminal_pieces(log_tables(log), color=color, width=width), separator="\n")
    raise RequestError(f"Unknown format {form}.", hint=f"One of {', '.join(FORMATS)}.")


def _csv_pieces(log: Log, *, raw: bool) -> Iterator[str]:
    """Write samples as rows of CSV."""
    head = row_text((log.source, log.benchmark or "", log.case or "", log.outcome.value), raw=raw)
    sample = f"{head.replace('%', '%%')},%d,%s,%s,%r,%s\n"
    return sample_pieces(log, sample, lambda labels: row_text(tuple(labels.get(name, "") for name in LABELS), raw=raw))


def log_records(log: Log) -> Iterator[dict[str, object]]:
    """Yield a row for each sample, for CSV."""
    head = {"source": log.source, "benchmark": log.benchmark, "case": log.case, "outcome": log.outcome.value}
    for sample in log.samples():
        figure = {"metric": sample.metric, "value": sample.value, "unit": METRICS[sample.metric].unit}
        yield {**head, "size": sample.size, **sample.labels, **figure}


def log_tables(log: Log) -> list[Table]:
    """Return one table of a log's rows, with notes about the log below it."""
    rows = _Rows(log)
    header, cells = (rows.header(), rows) if log.points else ((), ())
    notes = [*rows.notes(), *log_notes(log)]
    return [Table(title=_heading(log) + rows.peak(), header=header, rows=cells, align=rows.aligns(), notes=notes)]


def _heading(log: Log) -> str:
    """Return the source, the case and the outcome; next to `ok` the codes of warnings and errors."""
    heading = f"{log.source}: {log.case or log.benchmark or 'no benchmark'}: {log.outcome.value}"
    codes = dict.fromkeys(found.code for found in log.findings if found.severity is not Severity.NOTE)
    return f"{heading}, but {', '.join(codes)}" if codes and log.outcome is Outcome.OK else heading


def log_notes(log: Log) -> Iterator[str]:
    """Yield the reason of the outcome, facts, expectations, findings, and rows that could not be read."""
    if log.reason:
        yield f"{log.outcome.value}: {log.reason}"
    if log.facts:
        yield ", ".join(f"{name} {value}" for name, value in log.facts.items())
    yield from expectation_lines(log)
    for found in log.findings:
        yield sentence(found)
    for row in log.damaged:
        yield f"line {row.line} could not be read or trusted: {row.text[:120]}"


def sentence(found: Finding) -> str:
    """Write a finding in one line."""
    line = f" [{found.line.strip()[:120]}]" if found.line else ""
    advice = f" {found.advice}" if found.advice else ""
    return f"{found.severity.value}: {found.meaning}{advice}{line}"


class _Rows(Sequence[Sequence[str]]):
    """Arranges points: a line per size and its labels, a column per metric and side.

    Labels that do not differ, and counts of wrong elements that are all 0, get no column.
    A point measured several times (`-N`) has several lines. Text is built on access: a log may have a million.
    """

    def __init__(self, log: Log) -> None:
        self._columns: dict[tuple[str, ...], dict[str, None]] = {}
        self._lines: list[tuple[int, Labels, dict[tuple[str, ...], float]]] = []
        self._largest: dict[str, tuple[float, int]] = {}  # metric → value, and its size
        newest: dict[tuple[object, ...], dict[tuple[str, ...], float]] = {}
        for point in log.points:
            self._add(point, newest)
        values = {name: {labels.get(name, "") for _, labels, _ in self._lines} for name in LABELS}
        self._left = [name for name in LABELS if len(values[name]) > 1]
        self.same = {name: next(iter(some)) for name, some in values.items() if len(some) == 1 and "" not in some}
        if not self._largest.get("wrong", (0.0, 0))[0]:
            for metrics in self._columns.values():
                metrics.pop("wrong", None)
        self._scales: dict[str, Scale] = {
            metric: scale(METRICS[metric].unit, largest, coarse=_coarse(log, metric, largest))
            for metric, (largest, _) in self._largest.items()
        }

    def _add(self, point: Point, newest: dict[tuple[object, ...], dict[tuple[str, ...], float]]) -> None:
        left = {name: value for name, value in point.labels.items() if name not in _SIDEWAYS}
        side = tuple(point.labels.get(name, "") for name in _SIDEWAYS)
        key = (point.size, *left.items())
        cells = newest.get(key)
        if cells is None or any((*side, metric) in cells for metric in point.metrics[:1]):
            cells = newest[key] = {}
            self._lines.append((point.size, left, cells))
        for metric, value in zip(point.metrics, point.values, strict=True):
            cells[*side, metric] = value
            self._columns.setdefault(side, {})[metric] = None
            self._largest[metric] = max((value, point.size), self._largest.get(metric, (0.0, 0)))

    def _keys(self) -> Iterator[tuple[str, ...]]:
        return ((*side, metric) for side, metrics in self._columns.items() for metric in metrics)

    def header(self) -> list[str]:
        several = len(self._columns) > 1
        names = []
        for *side, metric in self._keys():
            unit = self._scales[metric].unit
            words = [metric, *(word for word in side if word and several)]
            names.append(" ".join(words) + (f" ({unit})" if unit != "count" else ""))
        return ["Size", *self._left, *names]

    @override
    def __len__(self) -> int:
        return len(self._lines)

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        size, labels, cells = self._lines[index]
        figures = (self._scales[key[-1]].text(cells[key]) if key in cells else "" for key in self._keys())
        return [format_size(size), *(labels.get(name, "") for name in self._left), *figures]

    def peak(self) -> str:
        """Return the largest rate with its size, as the end of a heading; empty without one."""
        metric = next((name for name in ("busbw", "bandwidth") if self._largest.get(name, (0.0, 0))[0]), "")
        value, size = self._largest.get(metric, (0.0, 0))
        return f", peak {self._scales[metric].quantity(value)} at {format_size(size)}" if metric else ""

    def notes(self) -> Iterator[str]:
        if self.same:
            yield "every row: " + ", ".join(f"{name} {value}" for name, value in self.same.items())

    def aligns(self) -> str:
        return "r" + "l" * len(self._left) + "d" * len(list(self._keys()))


def _coarse(log: Log, metric: str, largest: float) -> bool:
    """Return whether the benchmark never prints a rate finer than two decimals of GB/s."""
    benchmark = benchmark_named(log.benchmark)
    return benchmark.one_scale and min(benchmark.printed_steps(metric, largest), default=0.0) >= _COARSE


def diagnosis_record(log: Log) -> dict[str, object]:
    """Return a diagnosis as plain data: the outcome, facts with the lines that prove them, findings."""
    log = with_curve(log)
    return {
        **json_contract.picked(log, "source", "benchmark", "case", "outcome", "reason"),
        "facts": {name: str(value) for name, value in log.facts.items()},
        "evidence": dict(log.evidence),
        "findings": [json_contract.finding(found) for found in log.findings],
        "causes": [
            {"code": cause.found.code, "against": cause.against, "decide": cause.decide} for cause in causes(log)[0]
        ],
        "curve": curve_line(log),
        "expectations": [expectation_record(found) for found in expectations_of_log(log)],
    }


def diagnosis(log: Log) -> list[str]:
    """Return the lines of a diagnosis."""
    log = with_curve(log)
    likely, others = causes(log)
    known = [(name, str(log.facts[name])) for name in _DIAGNOSED if log.facts.get(name, "unknown") != "unknown"]
    text = rendered(
        "explain.txt",
        log=log,
        heading=_heading(log),
        network_shown=benchmark_named("nccl" if log.case == NCCL_DEBUG else log.benchmark).network_shown,
        facts=known,
        width=max((len(value) for _, value in known), default=0),
        expectations=list(expectation_lines(log)),
        curve=curve_line(log),
        likely=likely,
        others=others,
        decide=next((cause.decide for cause in likely[:2] if cause.decide), ""),
    )
    return [line.rstrip() for line in str(text).splitlines()]
