"""Logs as text: tables for people, rows for CSV, JSON, and the diagnosis of one log alone. Pure."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fabbench.benchmarks import benchmark_named
from fabbench.evidence.known_errors import causes
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, NCCL_DEBUG, Labels, Log, Outcome, Severity
from fabbench.model.units import Scale, format_size, parse_size, scale
from fabbench.report.expectations import expectation_record, expectations_of_log, of_key
from fabbench.report.table import (
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
    from fabbench.analysis.curve import Prediction

FORMATS = ("table", "json", "csv", "markdown")

LABELS = (
    "placement", "dtype", "redop", "root", "scope", "stat", "way", "direction", "side", "rank", "device",
    "endpoint", "operation", "batch",
)  # fmt: skip
"""Every label of the contract, in the order of columns."""

_POINTS_A_PIECE = 512
CSV_HEADER = ("source", "benchmark", "case", "outcome", "size", *LABELS, "metric", "value", "unit")

_COARSE = 1e7  # Two decimals of GB/s: the scale of a benchmark that never prints a rate finer
_SIDEWAYS = (
    "placement",
    "stat",
    "side",
)  # Labels that become columns, like the metric; the others are on the left
_DIAGNOSED = (
    "transport", "network", "provider", "fabric", "domain", "nics", "link", "gdr", "protocol", "pxn",
    "algorithms", "channels", "nvls", "sharp", "interface", "plugin", "libfabric", "nccl", "nvshmem",
)  # fmt: skip
"""Facts that belong to a diagnosis, the most telling first."""


class LogWriter(NamedTuple):
    """Writes logs one at a time, in pieces: a log may be large.

    `closing` takes sources without a log, and why.
    """

    log: Callable[[Log], Iterator[str]]
    opening: str = ""
    separator: str = ""
    closing: Callable[[Iterable[tuple[str, str]]], str] = lambda errors: ""  # noqa: ARG005


def log_writer(form: str, *, color: bool = False, width: int | None = None) -> LogWriter:
    """Return the writer of one of `FORMATS`; `color` and `width` are for `table`."""
    if form == "json":
        return LogWriter(_json_pieces, '{"format":1,"logs":[\n', _NEXT, _json_end)
    if form == "csv":
        return LogWriter(_csv_pieces, opening=csv_text([CSV_HEADER]))
    if form == "markdown":
        return LogWriter(lambda log: map(to_markdown, log_tables(log)), separator="\n")
    if form == "table":
        return LogWriter(
            lambda log: terminal_pieces(log_tables(log), color=color, width=width), separator="\n"
        )
    raise RequestError(f"Unknown format {form}.", hint=f"One of {', '.join(FORMATS)}.")


_NEXT = ",\n"
_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _json_pieces(log: Log) -> Iterator[str]:
    """Write a log as an element of `logs` of the public contract (docs/formats.md)."""
    head = {**_head(log), "damaged": [row._asdict() for row in log.damaged]}
    yield _json(head)[:-1] + ',"samples":['
    begin = f'{{"case":{_json(log.case)},"size":'

    def around(labels: Labels, metric: str) -> tuple[str, str]:
        before = f',"labels":{_json(dict(labels))},"metric":"{metric}","value":'
        return before, f',"unit":"{METRICS[metric].unit}"}}'

    for number, piece in enumerate(_sample_pieces(log, begin, around, _NEXT)):
        yield (_NEXT if number else "\n") + piece
    yield "]}"


def _json_end(errors: Iterable[tuple[str, str]]) -> str:
    return f'],\n"errors":{_json([{"source": source, "reason": reason} for source, reason in errors])}}}\n'


def _head(log: Log) -> dict[str, Any]:
    return {
        **picked(log, "source", "benchmark", "case", "outcome", "reason"),
        "facts": dict(log.facts),
        "findings": list(map(asdict, log.findings)),
        "expectations": [expectation_record(found) for found in expectations_of_log(log)],
    }


def _csv_pieces(log: Log) -> Iterator[str]:
    def around(labels: Labels, metric: str) -> tuple[str, str]:
        return f",{_cells(*map(labels.get, LABELS))},{metric},", f",{METRICS[metric].unit}\n"

    return _sample_pieces(
        log, _cells(log.source, log.benchmark, log.case, log.outcome.value) + ",", around
    )


@lru_cache(maxsize=256)  # a few sets of labels are those of all logs
def _cells(*cells: str | None) -> str:
    return csv_text([cells]).removesuffix("\n")


def _sample_pieces(
    log: Log, begin: str, around: Callable[[Labels, str], tuple[str, str]], separator: str = ""
) -> Iterator[str]:
    """Write samples in pieces.

    `begin`, the size, and the value with what is `around` it by its labels and metric.
    """
    known = dict[tuple[int, tuple[str, ...]], list[tuple[str, str]]]()
    for start in range(0, len(log.points), _POINTS_A_PIECE):
        texts = []
        for size, labels, metrics, values in log.points[start : start + _POINTS_A_PIECE]:
            key, head = (id(labels), metrics), f"{begin}{size}"
            if (same := known.get(key)) is None:
                same = known[key] = [around(labels, metric) for metric in metrics]
            for (left, right), value in zip(same, values, strict=True):
                texts.append(f"{head}{left}{value!r}{right}")
        if texts:
            yield separator.join(texts)


def log_records(log: Log) -> Iterator[dict[str, object]]:
    """Yield what applies of the columns of CSV, for each sample."""
    head = {
        "source": log.source,
        "benchmark": log.benchmark,
        "case": log.case,
        "outcome": log.outcome.value,
    }
    for size, labels, metrics, values in log.points:
        for metric, value in zip(metrics, values, strict=True):
            yield {
                **head,
                "size": size,
                **labels,
                "metric": metric,
                "value": value,
                "unit": METRICS[metric].unit,
            }


def log_tables(log: Log) -> list[Table]:
    """Return one table of a log's rows, with notes about the log below it.

    There is a line per size and its labels, and a column per metric and side. Labels that do not
    differ, and counts of wrong elements that are all 0, get no column. Text is built on access: a
    log may have a million lines.
    """
    lines, sides, largest = _lines(log)
    values = {name: {labels.get(name, "") for _, labels, _ in lines} for name in LABELS}
    same = [
        f"{name} {''.join(some)}"
        for name, some in values.items()
        if len(some) == 1 and "" not in some
    ]
    benchmark, scales = benchmark_named(log.benchmark), dict[str, Scale]()
    for metric, (most, _) in largest.items():
        step = min(benchmark.printed_steps(metric, most), default=0.0)
        scales[metric] = scale(
            METRICS[metric].unit, most, coarse=benchmark.one_scale and step >= _COARSE
        )

    def figure(key: _Key, line: _Line) -> str:
        return scales[key[-1]].text(line[2][key]) if key in line[2] else ""

    columns: list[TableColumn] = [("Size", "r", lambda line: format_size(line[0]))]
    columns += [
        (name, "l", partial(lambda name, line: line[1].get(name, ""), name))
        for name in LABELS
        if len(values[name]) > 1
    ]
    for key in dict.fromkeys(
        (*side, metric) for side, metrics in sides.items() for metric in metrics
    ):
        *side, metric = key
        if metric != "wrong" or largest["wrong"][0]:
            words, unit = (
                " ".join([metric, *(filter(None, side) if len(sides) > 1 else ())]),
                scales[metric].unit,
            )
            columns.append(
                (f"{words} ({unit})" if unit != "count" else words, "d", partial(figure, key))
            )
    rates = [
        (scales[name], *largest[name])
        for name in ("busbw", "bandwidth")
        if largest.get(name, (0.0, 0))[0]
    ]
    peak = [
        f", peak {unit.quantity(most)} at {format_size(size)}" for unit, most, size in rates[:1]
    ]
    notes = [*([f"every row: {', '.join(same)}"] if same else []), *log_notes(log)]
    return [
        table_of(columns if lines else [], lines, title=_heading(log) + "".join(peak), notes=notes)
    ]


_Key: TypeAlias = tuple[str, ...]
"""A column: the values of `_SIDEWAYS`, and the metric."""
_Line: TypeAlias = tuple[int, Labels, dict[_Key, float]]


def _lines(
    log: Log,
) -> tuple[list[_Line], dict[_Key, dict[str, None]], dict[str, tuple[float, int]]]:
    """Return the lines, side → its metrics, and metric → the largest value and its size.

    A point measured several times (`-N`) has several lines.
    """
    lines, sides = list[_Line](), dict[_Key, dict[str, None]]()
    largest, newest = dict[str, tuple[float, int]](), dict[tuple[object, ...], dict[_Key, float]]()
    for size, labels, metrics, values in log.points:
        left = {name: value for name, value in labels.items() if name not in _SIDEWAYS}
        side = tuple(labels.get(name, "") for name in _SIDEWAYS)
        key = (size, *left.items())
        cells = newest.get(key)
        if cells is None or any((*side, metric) in cells for metric in metrics[:1]):
            cells = newest[key] = {}
            lines.append((size, left, cells))
        for metric, value in zip(metrics, values, strict=True):
            cells[*side, metric] = value
            sides.setdefault(side, {})[metric] = None
            largest[metric] = max((value, size), largest.get(metric, (0.0, 0)))
    return lines, sides, largest


def _heading(log: Log) -> str:
    """Return the source, the case and the outcome.

    Next to `ok` the codes of warnings and errors.
    """
    heading = f"{log.source}: {log.case or log.benchmark or 'no benchmark'}: {log.outcome.value}"
    codes = dict.fromkeys(
        found.code for found in log.findings if found.severity is not Severity.NOTE
    )
    return f"{heading}, but {', '.join(codes)}" if codes and log.outcome is Outcome.OK else heading


def log_notes(log: Log) -> Iterator[str]:
    """Yield the reason of the outcome, facts, expectations, findings, and rows that could not be read."""
    if log.reason:
        yield f"{log.outcome.value}: {log.reason}"
    if log.facts:
        yield ", ".join(f"{name} {value}" for name, value in log.facts.items())
    yield from (
        f"expectation{of_key(each)}: {each.sentence()}" for each in expectations_of_log(log)
    )
    for found in log.findings:
        line = f"[{found.line.strip()[:120]}]" if found.line else ""
        yield " ".join(
            filter(None, (f"{found.severity.value}: {found.meaning}", found.advice, line))
        )
    for row in log.damaged:
        yield f"line {row.line} could not be read or trusted: {row.text[:120]}"


def diagnosis_record(log: Log) -> dict[str, object]:
    """Return a diagnosis as plain data.

    The outcome, facts with the lines that prove them, findings.
    """
    from fabbench.analysis.curve import curve_line, with_curve

    log = with_curve(log)
    return {
        **_head(log),
        "facts": {name: str(value) for name, value in log.facts.items()},
        "evidence": dict(log.evidence),
        "causes": [
            picked(cause, "against", "decide", code="found.code") for cause in causes(log)[0]
        ],
        "curve": curve_line(log),
    }


def diagnosis(log: Log) -> list[str]:
    """Return the lines of a diagnosis."""
    from fabbench.analysis.curve import curve_line, with_curve

    log = with_curve(log)
    likely, others = causes(log)
    text = rendered(
        "explain.txt",
        log=log,
        heading=_heading(log),
        network_shown=benchmark_named(
            "nccl" if log.case == NCCL_DEBUG else log.benchmark
        ).network_shown,
        facts={name: str(log.facts.get(name, "unknown")) for name in _DIAGNOSED},
        expectations=expectations_of_log(log),
        of_key=of_key,
        curve=curve_line(log),
        likely=likely,
        others=others,
    )
    return [line.rstrip() for line in str(text).splitlines()]


def read_wanted(text: str) -> tuple[int, int]:
    """Read ``4G`` or ``4G@32``: size and nodes, 0 for those of each log. Raise RequestError."""
    size, at, nodes = text.partition("@")
    with suppress(ValueError):
        wanted = (parse_size(size), int(nodes) if at else 0)
        if wanted[0] > 0 and wanted[1] >= bool(at):
            return wanted
    raise RequestError(
        f"--predict {text!r} is neither SIZE nor SIZE@NODES.", hint="Such as 4G, or 4G@32."
    )


def predictions(
    logs: Sequence[Log], targets: Sequence[tuple[int, int]]
) -> Iterator[Mapping[str, object]]:
    """Yield each prediction as plain data, with its sentence as `text`."""
    from fabbench.analysis.curve import predict, predict_nodes, series_of

    groups: dict[tuple[object, ...], list[Log]] = {}
    for log in logs:
        groups.setdefault(
            (log.case or log.benchmark, log.benchmark, log.facts.get("transport")), []
        ).append(log)
    for size, nodes in targets:
        for (name, *_), some in groups.items() if nodes else ():
            yield _record(
                f"{name} between {nodes} nodes", size, nodes, predict_nodes(some, size, nodes)
            )
        for log in logs if not nodes else ():
            for series in series_of(log)[:1]:
                yield _record(
                    f"{log.source}: {log.case or log.benchmark}", size, None, predict(series, size)
                )


def _record(where: str, size: int, nodes: int | None, found: "Prediction") -> Mapping[str, object]:
    at, rates = format_size(size), scale("B/s", found.rate)
    figures = (
        f"{rates.quantity(found.rate)} (95 %: {rates.text(found.low)} to "
        f"{rates.quantity(found.high)})"
    )
    said = (
        f"predicted at {at}: {figures}."
        if not found.refused
        else f"no prediction at {at}: {found.refused}."
    )
    figure = picked(found, "rate", "low", "high") if not found.refused else {}
    return {
        "size": size,
        "nodes": nodes,
        **figure,
        "refused": found.refused,
        "text": f"{where}: {said}",
    }
