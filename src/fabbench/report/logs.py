"""Logs as tables for people, and as rows for CSV. Pure."""

from collections.abc import Iterator

from fabbench.model import METRICS, Finding, Labels, Log, Point
from fabbench.report.table import Table
from fabbench.units import Scale, format_size, scale

LABELS = (
    "placement", "dtype", "redop", "root", "scope", "stat", "way", "direction", "side", "rank", "device",
    "endpoint",
)  # fmt: skip
"""Every label of the contract, in the order of columns."""

CSV_HEADER = ("source", "benchmark", "case", "outcome", "size", *LABELS, "metric", "value", "unit")

_SIDEWAYS = ("placement", "stat", "side")
"""Labels that become columns, next to the metric; the others are on the left."""


def records(log: Log) -> Iterator[dict[str, object]]:
    """Give a row for each sample, for CSV."""
    head = {"source": log.source, "benchmark": log.benchmark, "case": log.case, "outcome": log.outcome.value}
    for sample in log.samples():
        unit = METRICS[sample.metric].unit
        yield {
            **head,
            "size": sample.size,
            **sample.labels,
            "metric": sample.metric,
            "value": sample.value,
            "unit": unit,
        }


def tables(log: Log) -> list[Table]:
    """Give one table of a log's rows, with what the log says under it."""
    title = f"{log.source}: {log.case or log.benchmark or 'no benchmark'}: {log.outcome.value}"
    rows = _Rows(log)
    return [
        Table(
            title=title,
            header=rows.header() if log.points else (),
            rows=rows.rows() if log.points else (),
            align=rows.aligns(),
            notes=[*rows.notes(), *notes(log)],
        )
    ]


def notes(log: Log) -> Iterator[str]:
    """Say the reason of the outcome, the facts, what was found, and which rows could not be read."""
    if log.reason:
        yield f"{log.outcome.value}: {log.reason}"
    if log.facts:
        yield ", ".join(f"{name} {value}" for name, value in log.facts.items())
    for found in log.findings:
        yield sentence(found)
    for row in log.damaged:
        yield f"line {row.line} could not be read: {row.text[:120]}"


def sentence(found: Finding) -> str:
    """Write a finding in one line."""
    line = f" [{found.line.strip()[:120]}]" if found.line else ""
    advice = f" {found.advice}" if found.advice else ""
    return f"{found.severity.value}: {found.meaning}{advice}{line}"


class _Rows:
    """Arranges points: a line for each size and its labels, a column for each metric and side.

    Labels that do not differ, and counts of wrong elements that are all 0, are no columns.
    A point measured several times (`-N`) has several lines.
    """

    def __init__(self, log: Log) -> None:
        self._columns: dict[tuple[str, ...], dict[str, None]] = {}
        self._lines: list[tuple[int, Labels, dict[tuple[str, ...], float]]] = []
        self._largest: dict[str, float] = {}
        newest: dict[tuple[object, ...], dict[tuple[str, ...], float]] = {}
        for point in log.points:
            self._add(point, newest)
        told = {name: {labels.get(name, "") for _, labels, _ in self._lines} for name in LABELS}
        self._left = [name for name in LABELS if len(told[name]) > 1]
        self.same = {
            name: next(iter(told[name])) for name in LABELS if len(told[name]) == 1 and "" not in told[name]
        }
        if not self._largest.get("wrong"):
            for metrics in self._columns.values():
                metrics.pop("wrong", None)
        coarse = log.benchmark == "nccl"
        self._scales: dict[str, Scale] = {
            metric: scale(METRICS[metric].unit, largest, coarse=coarse and metric != "time")
            for metric, largest in self._largest.items()
        }

    def _add(self, point: Point, newest: dict[tuple[object, ...], dict[tuple[str, ...], float]]) -> None:
        left = {name: value for name, value in point.labels.items() if name not in _SIDEWAYS}
        side = tuple(point.labels.get(name, "") for name in _SIDEWAYS)
        key = (point.size, *left.items())
        cells = newest.get(key)
        if cells is None or (*side, point.metrics[0]) in cells:
            cells = newest[key] = {}
            self._lines.append((point.size, left, cells))
        for metric, value in zip(point.metrics, point.values, strict=True):
            cells[*side, metric] = value
            self._columns.setdefault(side, {})[metric] = None
            self._largest[metric] = max(value, self._largest.get(metric, 0.0))

    def _keys(self) -> Iterator[tuple[str, ...]]:
        return ((*side, metric) for side, metrics in self._columns.items() for metric in metrics)

    def header(self) -> list[str]:
        """Name the columns; those of a side (or statistic) carry its name."""
        several = len(self._columns) > 1
        names = []
        for *side, metric in self._keys():
            unit = self._scales[metric].unit
            words = [metric, *(word for word in side if word and several)]
            names.append(" ".join(words) + (f" ({unit})" if unit != "count" else ""))
        return ["Size", *self._left, *names]

    def rows(self) -> list[list[str]]:
        """Give the cells; empty where nothing was measured."""
        keys = list(self._keys())
        return [
            [
                format_size(size),
                *(labels.get(name, "") for name in self._left),
                *(self._scales[key[-1]].text(cells[key]) if key in cells else "" for key in keys),
            ]
            for size, labels, cells in self._lines
        ]

    def notes(self) -> Iterator[str]:
        """Name the labels that all rows share."""
        if self.same:
            yield "every row: " + ", ".join(f"{name} {value}" for name, value in self.same.items())

    def aligns(self) -> str:
        """Numbers to the right."""
        return "r" + "l" * len(self._left) + "r" * len(list(self._keys()))
