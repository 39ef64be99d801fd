"""Logs as text: tables for people, rows for CSV, JSON, and the diagnosis of one log alone. Pure."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fabbench.benchmarks import benchmark_named
from fabbench.evidence.known_errors import causes
from fabbench.model.log import (
    METRICS,
    NCCL_DEBUG,
    Finding,
    Labels,
    Log,
    Outcome,
    Severity,
)
from fabbench.model.mappings import distinct, map_values
from fabbench.model.units import Scale, format_size, scale
from fabbench.report.expectations import (
    expectation_record,
    expectations_of_log,
    judgement,
    of_key,
)
from fabbench.report.table import (
    PlainData,
    Table,
    TableColumn,
    csv_text,
    picked,
    table_of,
    terminal_pieces,
    to_markdown,
)
from fabbench.report.templates import rendered

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import Verdict

LABELS = (
    "placement", "dtype", "redop", "root", "scope", "stat", "way", "direction", "side", "rank",
    "device", "endpoint", "operation", "batch",
)  # fmt: skip
"""Every label of the contract, in the order of columns."""

_POINTS_A_PIECE = 512
_MAX_QUOTED = 120  # Characters of a line of a log that are quoted
CSV_HEADER = ("source", "benchmark", "case", "outcome", "size", *LABELS, "metric", "value", "unit")

_COARSE_STEP = 1e7  # Two decimals of GB/s: the scale of a benchmark that never prints a rate finer
_SIDEWAYS = ("placement", "stat", "side")
"""Labels that become columns, like the metric; the others are on the left."""


class LogWriter(NamedTuple):
    """Writes logs one at a time, in pieces: a log may be large.

    `closing` takes sources without a log, and why.
    """

    log: Callable[[Log, "Verdict | None"], Iterator[str]]
    opening: str = ""
    separator: str = ""
    closing: Callable[[Iterable[tuple[str, str]]], str] = lambda errors: ""  # noqa: ARG005


@cache  # each log of a call asks for the same one
def log_writer(form: str, *, color: bool = False, width: int | None = None) -> LogWriter:
    """Return the writer of one of the `FORMATS` of lists; `color` and `width` are for text."""
    if form == "json":
        opening = '{"format":1,"logs":[\n'
        return LogWriter(_json_pieces, opening, separator=_JSON_SEPARATOR, closing=_json_end)
    if form == "csv":
        return LogWriter(lambda log, _: _csv_pieces(log), opening=csv_text([CSV_HEADER]))
    if form == "markdown":
        return LogWriter(lambda log, _: map(to_markdown, log_tables(log)), separator="\n")
    drawn = partial(terminal_pieces, color=color, width=width)
    return LogWriter(lambda log, _: drawn(log_tables(log)), separator="\n")


_FigureKey: TypeAlias = tuple[str, ...]
"""A column: the values of `_SIDEWAYS`, and the metric."""
_TextsAround: TypeAlias = Callable[[Labels, str], tuple[str, str]]
"""Labels and a metric → the texts before and after their value."""
_RowKind: TypeAlias = tuple[int, tuple[str, ...]]
"""Rows that share their labels (their id) and metrics."""


class _Largest(NamedTuple):
    """The largest value of a metric, and its size."""

    value: float
    size: int


_NONE_YET = _Largest(value=0.0, size=0)
_JSON_SEPARATOR = ",\n"
_RATES = ("busbw", "bandwidth")
"""Metrics that have a peak: a time has none."""
_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _json_pieces(log: Log, verdict: "Verdict | None" = None) -> Iterator[str]:
    """Write a log as an element of `logs` of the public contract (docs/formats.md)."""
    damaged = [row._asdict() for row in log.damaged]
    head = {**_common_fields(log, verdict), "damaged": damaged}
    yield _json(head)[:-1] + ',"samples":['  # in place of the brace that ends it
    case = _json(log.case)
    begin = f'{{"case":{case},"size":'
    separator = "\n"  # before the first sample
    for piece in _sample_pieces(log, begin, _around_in_json, _JSON_SEPARATOR):
        yield separator + piece
        separator = _JSON_SEPARATOR
    yield "]}"


def _around_in_json(labels: Labels, metric: str) -> tuple[str, str]:
    labels_text = _json(dict(labels))
    unit = METRICS[metric].unit
    return f',"labels":{labels_text},"metric":"{metric}","value":', f',"unit":"{unit}"}}'


def _json_end(errors: Iterable[tuple[str, str]]) -> str:
    records = [{"source": source, "reason": reason} for source, reason in errors]
    text = _json(records)
    return f'],\n"errors":{text}}}\n'


def _common_fields(log: Log, verdict: "Verdict | None") -> PlainData:
    judged = {"gates": list(map(asdict, verdict.results))} if verdict else {}
    expected = expectations_of_log(log)
    return {
        **picked(log, "source", "benchmark", "case", "outcome", "reason"),
        "judgement": judgement(expected),
        "peak": _peak_record(log),
        **judged,
        "facts": dict(log.facts),
        "findings": list(map(asdict, log.findings)),
        "expectations": [expectation_record(found) for found in expected],
    }


def _peak_record(log: Log) -> PlainData | None:
    """Return the highest rate of a log, out of place where both are measured; None without any."""
    # A `stat`, such as a maximum over ranks, is not the rate itself
    main = [point for point in log.points if "stat" not in point.labels]
    out_of_place = [point for point in main if point.labels.get("placement") != "in-place"]
    for metric in _RATES:  # the first of them that the log has
        best = _NONE_YET
        for point in out_of_place or main:
            if metric in point.metrics:
                value = point.values[point.metrics.index(metric)]
                best = max(best, _Largest(value, point.size))
        if best.value:
            return {"metric": metric, "unit": METRICS[metric].unit, **best._asdict()}
    return None


def _csv_pieces(log: Log) -> Iterator[str]:
    begin = _csv_cells(log.source, log.benchmark, log.case, log.outcome.value)
    return _sample_pieces(log, f"{begin},", _around_in_csv)


def _around_in_csv(labels: Labels, metric: str) -> tuple[str, str]:
    cells = _csv_cells(*map(labels.get, LABELS))
    unit = METRICS[metric].unit
    return f",{cells},{metric},", f",{unit}\n"


@lru_cache(maxsize=256)  # a few sets of labels are those of all logs
def _csv_cells(*cells: str | None) -> str:
    return csv_text([cells]).removesuffix("\n")


def _sample_pieces(
    log: Log, begin: str, around: _TextsAround, separator: str = ""
) -> Iterator[str]:
    """Write samples in pieces.

    `begin`, the size, and the value with what is `around` it by its labels and metric. These texts
    are made once per kind of row: points with equal labels share them.
    """
    texts_around: dict[_RowKind, list[tuple[str, str]]] = {}
    for start in range(0, len(log.points), _POINTS_A_PIECE):
        texts: list[str] = []
        for point in log.points[start : start + _POINTS_A_PIECE]:
            head = f"{begin}{point.size}"
            kind = (id(point.labels), point.metrics)  # labels have no hash
            if kind not in texts_around:
                labels = point.labels
                texts_around[kind] = [around(labels, metric) for metric in point.metrics]
            of_metrics = texts_around[kind]
            for (before, after), value in zip(of_metrics, point.values, strict=True):
                texts.append(f"{head}{before}{value!r}{after}")
        if texts:
            yield separator.join(texts)


def log_records(log: Log) -> Iterator[PlainData]:
    """Yield what applies of the columns of CSV, for each sample."""
    head = picked(log, "source", "benchmark", outcome="outcome.value")
    for sample in log.samples:
        figure = sample._asdict()
        labels = figure.pop("labels")
        yield {**head, **figure, **labels}


def log_tables(log: Log) -> list[Table]:
    """Return one table of a log's rows, with notes about the log below it.

    There is a line per size and its labels, and a column per metric and side. Labels that do not
    differ, and counts of wrong elements that are all 0, get no column. Text is built on access: a
    log may have a million lines.
    """
    grid = _grid(log)
    scales = _scales_of_metrics(log, grid.largest)
    columns = _columns(grid, scales)
    notes = list(log_notes(log))
    same = ", ".join(grid.shared())
    if same:
        notes.insert(0, f"every row: {same}")
    title = _title_of(log)
    if peak := _peak_record(log):
        rate = scales[peak["metric"]].quantity(peak["value"])
        size = format_size(peak["size"])
        title += f", peak {rate} at {size}"
    shown = columns if grid.lines else []  # without rows there are only notes
    return [table_of(shown, grid.lines, title=title, notes=notes)]


def _scales_of_metrics(log: Log, largest: Mapping[str, _Largest]) -> dict[str, Scale]:
    """Return metric → the scale of its column."""
    benchmark = benchmark_named(log.benchmark)
    scales: dict[str, Scale] = {}
    for metric, most in largest.items():
        # The finest step in which the benchmark prints it; 0: not known
        step = min(benchmark.printed_steps(metric, most.value), default=0.0)
        # With so coarse a step its rates are in GB/s with two decimals, however small
        coarse = benchmark.one_scale and step >= _COARSE_STEP
        scales[metric] = scale(METRICS[metric].unit, most.value, coarse=coarse)
    return scales


def _columns(grid: "_Grid", scales: Mapping[str, Scale]) -> list[TableColumn]:
    """Return the columns: the size, labels that differ, and each metric of each side."""
    columns: list[TableColumn] = [("Size", "r", lambda line: format_size(line.size))]
    for label, values in grid.labels.items():
        if len(values) > 1:
            columns.append((label, "l", partial(_label_cell, label)))
    several = len(grid.sides) > 1
    for *side, metric in _figure_keys(grid):
        shown_in = scales[metric]
        words = metric
        if several:
            words = " ".join(filter(None, [metric, *side]))
        header = words if shown_in.unit == "count" else f"{words} ({shown_in.unit})"
        figure = partial(_figure_cell, shown_in, (*side, metric))
        columns.append((header, "d", figure))  # numbers, to the right as they are
    return columns


def _figure_keys(grid: "_Grid") -> Iterator[_FigureKey]:
    """Yield the columns of figures; counts of wrong elements only if there are any."""
    for side, metrics in grid.sides.items():
        for metric in metrics:
            if metric != "wrong" or grid.largest[metric].value:
                yield (*side, metric)


def _label_cell(name: str, line: "_Line") -> str:
    return line.labels.get(name, "")


def _figure_cell(unit: Scale, key: _FigureKey, line: "_Line") -> str:
    return unit.text(line.cells[key]) if key in line.cells else ""


class _Line(NamedTuple):
    """A line of a table: a size, the labels on its left, and its cells."""

    size: int
    labels: Labels
    cells: dict[_FigureKey, float]


class _Grid(NamedTuple):
    """What a table shows of a log."""

    lines: list[_Line]
    sides: dict[_FigureKey, dict[str, None]]  # The values of `_SIDEWAYS` → the metrics
    largest: dict[str, _Largest]

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """Return each label → its values, empty where a line has none."""
        return {
            name: distinct(line.labels.get(name, "") for line in self.lines)
            for name in LABELS  # in their order
        }

    def shared(self) -> Iterator[str]:
        """Yield the labels that all lines have, with their values."""
        for name, values in self.labels.items():
            if len(values) == 1 and values[0]:
                yield f"{name} {values[0]}"


def _grid(log: Log) -> _Grid:
    """Return the lines of a log's rows: points that differ only in their side share one.

    A point that is measured several times (`-N`) has several.
    """
    grid = _Grid(lines=[], sides={}, largest={})
    # Size and the labels on the left → the cells of the last line that has them.
    newest: dict[tuple[object, ...], dict[_FigureKey, float]] = {}
    for size, labels, metrics, values in log.points:
        left = dict(labels)
        side = tuple(left.pop(name, "") for name in _SIDEWAYS)
        key = (size, *left.items())
        cells = newest.get(key)
        first = (*side, *metrics[:1])  # The column of its first figure
        if cells is None or first in cells:  # new, or measured once more
            cells = newest[key] = {}
            grid.lines.append(_Line(size, left, cells))
        for metric, value in zip(metrics, values, strict=True):
            cells[*side, metric] = value
            grid.sides.setdefault(side, {})[metric] = None
            largest = grid.largest.get(metric, _NONE_YET)
            grid.largest[metric] = max(_Largest(value, size), largest)
    return grid


def _title_of(log: Log) -> str:
    """Return the source, the case, the outcome, and whether the figures are normal.

    Next to `ok` whether the end of the table is not shown, and the codes of warnings and errors.
    """
    case = log.case or log.benchmark or "no benchmark"
    outcome = log.outcome.value
    judged = judgement(expectations_of_log(log))
    if judged not in {None, "unknown"}:
        outcome = f"{outcome}, {judged}"
        if log.assumed_type:
            outcome = f"{outcome}, {log.assumed_type} assumed"
    if log.outcome is Outcome.TRUNCATED and log.points:
        outcome += f", last size {format_size(log.points[-1].size)}"
    if log.outcome is Outcome.OK and not log.shows_end:
        outcome = f"{outcome}, its end is not shown"
    heading = f"{log.source}: {case}: {outcome}"
    serious = [found.code for found in log.findings if found.severity is not Severity.NOTE]
    if not serious or log.outcome is not Outcome.OK:  # another outcome says enough
        return heading
    codes = ", ".join(distinct(serious))
    return f"{heading}, but {codes}"


def log_notes(log: Log) -> Iterator[str]:
    """Yield the reason of the outcome, facts, expectations, findings, and unreadable rows."""
    if log.reason:
        yield f"{log.outcome}: {log.reason}"
    if log.facts:
        facts = (f"{name} {value}" for name, value in log.facts.items())
        yield ", ".join(facts)
    for each in expectations_of_log(log):
        yield f"expectation{of_key(each)}: {each.sentence()}"
    yield from map(_finding_sentence, log.findings)
    for row in log.damaged:
        text = row.text[:_MAX_QUOTED]
        yield f"line {row.line} could not be read or trusted: {text}"


def _finding_sentence(finding: Finding) -> str:
    line = finding.line.strip()[:_MAX_QUOTED]
    return f"{finding} [{line}]" if line else str(finding)


def diagnosis_record(log: Log, verdict: "Verdict | None" = None) -> PlainData:
    """Return a diagnosis as plain data.

    The outcome, facts with the lines that prove them, findings, and results of gates.
    """
    from fabbench.analysis.curve_findings import curve_line, with_curve

    log = with_curve(log)  # and the findings about its curve
    likely, _ = causes(log)
    return {
        **_common_fields(log, verdict),
        "facts": map_values(str, log.facts),
        "evidence": dict(log.evidence),
        "causes": [picked(cause, "against", "decide", code="finding.code") for cause in likely],
        "curve": curve_line(log),
    }


def diagnosis(log: Log) -> tuple[list[str], list[str]]:
    """Return the lines of a diagnosis, and those that say most of it again, for its end."""
    from fabbench.analysis.curve_findings import curve_line, with_curve

    log = with_curve(log)
    likely, others = causes(log)
    # Debug text without a benchmark, as of a training job, is explained as NCCL's
    benchmark = "nccl" if log.case == NCCL_DEBUG else log.benchmark
    text = rendered(
        "explain.txt",
        log=log,
        heading=_title_of(log),
        network_shown=benchmark_named(benchmark).network_shown,
        expectations=expectations_of_log(log),
        of_key=of_key,
        curve=curve_line(log),
        likely=likely,
        others=others,
    )
    whole, _, answer = str(text).partition("\f")
    return whole.splitlines(), answer.splitlines()
