"""A column's logs → figures: which rows count, what identifies them, and how repeats pool. Pure.

Rails, which are pairs of network devices, have figures of their own.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Labels, Log, Metric, Outcome, Point
from fabbench.model.mappings import Names, distinct, gathered, map_values
from fabbench.model.units import Scale, scale
from fabbench.model.values import frozen

if TYPE_CHECKING:
    from fabbench.model.plan import Variant

MUST_MATCH = (
    "benchmark",
    "case",
    "ranks",
    "hosts",
    "gpus_per_host",
    "dtype",
    "redop",
    "direction",
    "way",
    "endpoint",
)
"""Fields in which columns may not differ, unless that is allowed."""
RAIL = "device"
"""The network device of a row: rows of several devices are no repeats of each other."""
CARRIERS = ("library", "transport")
"""What moved the data, and what carried them.

Columns are compared by them, and runs of one column that differ in one are no repeats.
"""
FIELDS = (*MUST_MATCH, "root", "scope", "operation", "batch", RAIL)
"""All fields that distinguish rows of one size."""
KEYS = (*FIELDS, *CARRIERS)
UNKNOWN = "unknown"
"""The case of runs that do not state theirs: never the same as a known one."""
UNUSABLE = frozenset(Outcome) - {Outcome.OK, Outcome.TRUNCATED, Outcome.UNPROVEN}
"""Outcomes whose numbers are never shown as a column's figures."""
SMALL = 64 << 10
"""Below this size, the time says more than the rate."""
_EQUAL_BY_CHANCE = 4
"""So few figures of two executions may be equal by chance; tables of more are copies."""
_FINE = 1e-5
"""A figure of which the printed step is less than this part is not equal by chance either."""
_BENCHMARK = KEYS.index("benchmark")
_CASE = KEYS.index("case")
Key = tuple[str, ...]
"""One value for each of `KEYS`; empty: unknown."""
_Pooled: TypeAlias = "dict[Key, list[list[Row]]]"
"""Key → for each column, its rows that have this key."""


@frozen
class Column:
    """What is compared: the logs of one configuration, or of one file. Several logs are repeats."""

    label: str
    logs: tuple[Log, ...]
    source: str
    label_given: bool = False
    variant: "Variant | None" = None
    max_repeats: int | None = None
    """The maximum number of repeats, for a run that checked its verdicts after each one."""


class Row(NamedTuple):
    """A row that counts, and which of its column's executions printed it."""

    execution: int
    """Counts from 0, in the order of the column's logs."""
    point: Point


class Figure(NamedTuple):
    """What one column has for one size: the median of its repeats, in the metric's base unit."""

    value: float
    n: int  # How many figures it is the median of
    low: float  # The least of them, and the greatest
    high: float
    step: float
    """The step in which the benchmark prints such a number.

    0: it does not round, or it is not known.
    """
    executions: tuple[tuple[int, float], ...] = ()
    """Each execution that has the size, and its own figure."""


@dataclass(slots=True, kw_only=True)
class ColumnRows:
    """The rows of one column that count, by what distinguishes them.

    Grows while the column is read.
    """

    logs: Sequence[Log]
    """All logs of the column."""
    rows: dict[Key, list[Row]] = field(default_factory=dict)
    empty: int = 0
    """How many rows of size 0 were left out."""
    placements: set[str] = field(default_factory=set)
    """Placements that the column's rows have, whether they count or not."""
    hidden: list[Log] = field(default_factory=list)
    """Logs whose rows do not count, because of their outcome."""
    copies: int = 0
    """How many logs were left out, because they repeat the table of another."""

    def known(self, name: str) -> tuple[str, ...]:
        """Return every known value of a field, in order.

        The benchmark and the case are also known of logs without rows that count.
        """
        index = KEYS.index(name)
        values = [key[index] for key in self.rows]
        if name in {"benchmark", "case"}:
            values += [getattr(log, name) for log in self.logs]
        return distinct(filter(None, values))

    def metrics(self) -> set[str]:
        """Return every metric that the rows have."""
        return _metrics(row for rows in self.rows.values() for row in rows)


def _metrics(rows: Iterable[Row]) -> set[str]:
    # A column has few shapes however many rows it has.
    return set().union(*{row.point.metrics for row in rows})


def is_hidden(log: Log, unusable: Collection[Outcome]) -> bool:
    """Return whether a log's figures do not count. A truncated log may be off-fabric as well."""
    return not {log.outcome, *log.also}.isdisjoint(unusable)


def column_rows(
    column: Column, *, placement: str, unusable: Collection[Outcome] = UNUSABLE
) -> ColumnRows:
    """Collect the rows of a column that count, and how many or which others do not.

    Those of usable logs that have a size and the tool's main figure, of one placement.

    Where both sides of a pair printed a row, the client's counts, because the client drives the
    exchange. Equal tables are copies and count once, unless fabbench's markers are those of several
    executions.
    """
    reading = ColumnRows(logs=column.logs)
    logs_that_count: list[Log] = []
    for execution, log in enumerate(column.logs):
        if is_hidden(log, unusable):
            reading.hidden.append(log)
            continue
        if is_copy(log, logs_that_count):
            reading.copies += 1
            continue
        logs_that_count.append(log)
        by_key = gathered(_rows_that_count(log, placement, reading))
        for key, points in by_key.items():
            rows = reading.rows.setdefault(key, [])
            rows.extend(Row(execution, point) for point in _client_first(points))
    return reading


def is_copy(log: Log, counted: Sequence[Log]) -> bool:
    """Return whether a log repeats one that already counts: its table, or all that it says.

    Nothing tells two executions without figures that say the same from copies.
    """
    if not log.points:
        return any(replace(other, source=log.source) == log for other in counted)
    return _is_telling(log) and any(_have_equal_tables(log, other) for other in counted)


def _is_telling(log: Log) -> bool:
    """Return whether its figures are so many, or one is so exact, that no others equal them."""
    if sum(len(point.values) for point in log.points) > _EQUAL_BY_CHANCE:
        return True
    benchmark = str(log.benchmark)
    return any(
        0 < printed_step(benchmark, each.metric, [each.value]) < each.value * _FINE
        for each in log.samples
        if math.isfinite(each.value)
    )


def _have_equal_tables(log: Log, other: Log) -> bool:
    # fabbench's own markers tell repeats with equal tables from copies of one.
    if (log.case, log.execution) != (other.case, other.execution):
        return False
    return log.points == other.points


def _client_first(points: Sequence[Point]) -> list[Point]:
    """Return the client's points, then those of sizes that the client did not print."""
    client = [point for point in points if point.labels.get("side") == "client"]
    sizes = {point.size for point in client}
    return [*client, *(point for point in points if point.size not in sizes)]


def pooled_figures(rows: Iterable[Row], metric: Metric, benchmark: str) -> dict[int, Figure]:
    """Pool the rows of each size: size → the median of all its figures, and how they spread.

    A number that is not finite counts as not measured.
    """
    values: dict[int, dict[int, list[float]]] = {}  # size → execution → its figures
    for execution, point in rows:
        for name, value in zip(point.metrics, point.values, strict=True):
            if name == metric.name and math.isfinite(value):
                values.setdefault(point.size, {}).setdefault(execution, []).append(value)
    figures = {}
    for size, by_execution in sorted(values.items()):
        every = [value for each in by_execution.values() for value in each]
        medians = map_values(median, by_execution)
        figures[size] = Figure(
            median(every),
            n=len(every),
            low=min(every),
            high=max(every),
            step=printed_step(benchmark, metric.name, every),
            executions=tuple(medians.items()),
        )
    return figures


def compare_with_each_rail(pooled: _Pooled, rail_index: int) -> None:
    """Move the rows of a column without rails to the key of each rail that other columns have.

    There they are beside the rows of that rail, which are compared with them.
    Element `rail_index` of a key is the rail. Keys that no column has rows of any more are removed.
    """

    def without_rail(key: Key) -> Key:
        bare = list(key)
        bare[rail_index] = ""
        return tuple(bare)

    railed = [key for key in pooled if key[rail_index]]
    for bare in [key for key in pooled if not key[rail_index]]:
        _move_to_rails(pooled, bare, [key for key in railed if without_rail(key) == bare])
        if not any(pooled[bare]):
            del pooled[bare]


def _move_to_rails(pooled: _Pooled, bare: Key, rails: Sequence[Key]) -> None:
    """Move a column's rows from a key without rail to each rail, unless it has rails itself."""
    for column, rows in enumerate(pooled[bare]):
        has_rails = any(pooled[rail][column] for rail in rails)
        if rows and rails and not has_rails:
            for rail in rails:
                pooled[rail][column] = rows
            pooled[bare][column] = []


def _rows_that_count(log: Log, placement: str, reading: ColumnRows) -> Iterator[tuple[Key, Point]]:
    """Yield the rows that count, each with its key; `reading` is told of the others."""
    # Labels are shared between points, so a log has few of them however many rows it has.
    keys: dict[int, Key | None] = {}
    is_sized = any(point.size for point in log.points)  # DeepEP and summaries print no sizes
    for point in log.points:
        labels = point.labels
        if id(labels) not in keys:
            reading.placements.update(filter(None, [labels.get("placement")]))
            counts = _is_main_figure(labels, placement)
            keys[id(labels)] = _key_of(log, labels) if counts else None
        key = keys[id(labels)]
        if key is None:  # a statistic, or of another placement
            continue
        if point.size == 0 and is_sized:
            reading.empty += 1
        else:
            yield key, point


def _is_main_figure(labels: Labels, placement: str) -> bool:
    """Return whether rows with these labels are the tool's main figures, of one placement."""
    return "stat" not in labels and labels.get("placement", placement) == placement


def _key_of(log: Log, labels: Labels) -> Key:
    """Return the key of rows with these labels, which outrank what the log states."""
    known: dict[str, str | int | None] = {**log.facts}
    known["benchmark"] = log.benchmark
    known["case"] = log.case
    known.update(labels)
    # The fact lists the devices of the whole log, the label names the device of one row.
    known[RAIL] = labels.get(RAIL)
    key = [_stated(known.get(name)) for name in KEYS]
    # Unlike other fields, an unknown case is one of its own: never compared as a known one.
    key[_CASE] = key[_CASE] or UNKNOWN
    return tuple(key)


def _stated(value: str | int | None) -> str:
    return "" if value in {None, UNKNOWN} else str(value)


def printed_step(benchmark: str, metric: str, values: Sequence[float]) -> float:
    """Return the coarsest printed step that divides all values.

    0: not known, or finer (JSON is not rounded).
    """
    # The coarsest first
    steps = benchmark_named(benchmark).printed_steps(metric, max(values, default=0.0))

    def multiples(step: float) -> bool:  # whether all values are, but for errors of floats
        steps_of = (value / step for value in values)
        apart = (abs(each - round(each)) for each in steps_of)
        return all(each < 1e-6 for each in apart)

    return next(filter(multiples, steps), 0.0)


@frozen
class RowGroup:
    """The rows of one section."""

    key: Mapping[str, str]
    metric: Metric
    cells: Sequence[Mapping[int, Figure]]
    """For each column, its figures by size."""
    times: Sequence[Mapping[int, Figure]]
    """The times of small sizes, in the same form, where the metric is a rate."""


def section_fields(readings: Sequence[ColumnRows], allowed: Collection[str]) -> Names:
    """Return the fields by which rows are grouped into sections, one for each of their values.

    Those of several values in one column; and those in which columns differ, unless it is allowed
    or expected that they do: then rows that differ in them are compared.
    """
    paired = {*allowed, *CARRIERS, RAIL}

    def splits(name: str) -> bool:  # whether each value of this field has a section of its own
        columns = [reading.known(name) for reading in readings]
        if any(len(values) > 1 for values in columns):
            return True
        every = set().union(*columns)
        # Rows that differ in a `paired` field are compared all the same.
        return name not in paired and len(every) > 1

    return tuple(filter(splits, KEYS))


def row_groups(
    readings: Sequence[ColumnRows], by: Sequence[str], metric: str | None = None
) -> Sequence[RowGroup]:
    """Group the rows of all columns by some of `KEYS`.

    `metric` None: the usual one of each group. Without any rows, one empty group.
    """
    indices = [KEYS.index(name) for name in by]
    # A group's key (the values of `by`) → for each column, its rows; and → (benchmark, case).
    pooled: _Pooled = {}
    programs: dict[tuple[str, ...], tuple[str, str]] = {}
    for column, reading in enumerate(readings):
        for key, rows in reading.rows.items():
            group = tuple(key[index] for index in indices)
            programs.setdefault(group, (key[_BENCHMARK], key[_CASE]))
            pooled.setdefault(group, [[] for _ in readings])[column].extend(rows)
    if RAIL in by:
        compare_with_each_rail(pooled, by.index(RAIL))
    if not pooled:
        pooled[("",) * len(by)] = [[] for _ in readings]
    benchmarks = [_first_known([reading], "benchmark") for reading in readings]
    groups = []
    # Of the empty group, which no row has named
    first_program = (_first_known(readings, "benchmark"), _first_known(readings, "case"))
    for group, columns in pooled.items():
        program = programs.get(group, first_program)
        chosen = METRICS[metric] if metric else _default_metric(*program, columns)
        of_benchmarks = list(zip(columns, benchmarks, strict=True))
        times: list[Mapping[int, Figure]] = [{} for _ in columns]
        if chosen.unit == "B/s":
            times = [_small_times(rows, name) for rows, name in of_benchmarks]
        groups.append(
            RowGroup(
                key=dict(zip(by, group, strict=True)),
                metric=chosen,
                cells=[pooled_figures(rows, chosen, name) for rows, name in of_benchmarks],
                times=times,
            )
        )
    return groups


def _small_times(rows: Sequence[Row], benchmark: str) -> Mapping[int, Figure]:
    """Return the times of small sizes, where they say more than a rate; empty: not printed."""
    small = [row for row in rows if row.point.size < SMALL]
    metrics = _metrics(small)
    for name in ("latency", "time"):
        if name in metrics:
            return pooled_figures(small, METRICS[name], benchmark)
    return {}


def _first_known(readings: Sequence[ColumnRows], name: str) -> str:
    return next((value for reading in readings for value in reading.known(name)), "")


def _default_metric(benchmark: str, case: str, columns: Sequence[Sequence[Row]]) -> Metric:
    """Return the first usual metric of a program that every column with rows has.

    Else the first that any of them has. `columns`: the rows of each.
    """
    usual = benchmark_named(benchmark).metrics_of(case)
    filled = [metrics for rows in columns if (metrics := _metrics(rows))]
    for name in usual:
        if all(name in metrics for metrics in filled):
            return METRICS[name]
    known = set().union(*filled)
    partly = (name for name in (*usual, *METRICS) if name in known)
    return METRICS[next(partly, usual[0])]


def require_metric(metric: str | None, readings: Sequence[ColumnRows], placement: str) -> None:
    """Raise RequestError if no row has the requested metric or placement.

    Rows of another placement are in `placements`, and not among those that have metrics.
    """
    metrics = set().union(*(reading.metrics() for reading in readings))
    placements = set().union(*(reading.placements for reading in readings))
    if metric is not None and metrics and metric not in metrics:
        present = ", ".join(sorted(metrics))
        raise RequestError(f"No row has {metric}.", hint=f"The rows have {present}.")
    if not metrics and placements - {placement}:
        present = " or ".join(sorted(placements))
        raise RequestError(f"No row is {placement}.", hint=f"Use --placement {present}.")


def metric_scales(groups: Sequence[RowGroup], *, coarse: bool) -> Mapping[str, Scale]:
    """Return each metric's scale by its name: the same in every group, so that tables compare.

    `coarse`: rates are always in GB/s, with two decimals.
    """
    values: dict[Metric, list[float]] = {}
    for group in groups:
        figures = (figure for column in group.cells for figure in column.values())
        every = values.setdefault(group.metric, [0.0])
        every.extend(figure.value for figure in figures)
    return {
        metric.name: scale(metric.unit, max(every), coarse=coarse)
        for metric, every in values.items()
    }
