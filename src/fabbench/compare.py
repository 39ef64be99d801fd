"""Columns of logs → one comparison. Pure, and the only place that pairs figures and takes ratios.

Columns are arms of a run, or files; the last one is the base. Rows are told apart by their size and by
`pool.FIELDS`. A field of which every column has one value at most separates nothing; the others split the
comparison into sections, one table each.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fabbench.errors import Exit, RequestError
from fabbench.model import METRICS, Finding, Log, Metric, Outcome, Point
from fabbench.pool import (
    FIELDS,
    RAIL,
    REFUSED,
    UNUSABLE,
    Column,
    Figure,
    Key,
    Reading,
    beside_rails,
    figures,
    read,
)
from fabbench.units import Scale, scale

__all__ = ["PLACEMENTS", "Column", "Comparison", "Figure", "Row", "Section", "Summary", "compare"]

PLACEMENTS = ("out-of-place", "in-place")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of one column as a whole."""

    label: str
    source: str
    label_given: bool
    outcome: Outcome
    """The worst of its logs'."""
    reasons: tuple[str, ...]
    """Why its logs are not all ok: one sentence for each that is not."""
    executions: int
    facts: Mapping[str, tuple[str | int, ...]]
    """Every value of each fact of its logs, in order of appearance."""
    fields: Mapping[str, tuple[str, ...]]
    """Every known value of each of `pool.FIELDS`."""
    empty: int
    """How many rows of size 0 were left out."""
    hidden: int
    """How many of its logs are not shown, because of their outcome."""
    findings: tuple[Finding, ...] = ()
    """What its logs show besides figures, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One size. `figures` and `ratios` have one element for each column."""

    size: int
    figures: tuple[Figure | None, ...]
    ratios: tuple[float | None, ...]
    """How many times better than the base; None for the base itself, and where there is no ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The rows of one key set: what becomes one table."""

    key: Mapping[str, str]
    """The fields that tell it from the comparison's other sections."""
    outcomes: tuple[Outcome, ...]
    """For each column, the worst outcome of the logs that belong here."""
    shown: tuple[bool, ...]
    """For each column, whether its figures may be shown; its outcome stands there if not."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Columns side by side. Values are in the metric's base unit; `scale` says how to write them."""

    metric: Metric
    scale: Scale
    placement: str
    """Empty: the rows have none."""
    columns: tuple[Summary, ...]
    sections: tuple[Section, ...]
    status: Exit

    @property
    def base(self) -> Summary:
        """The column with which the others are compared."""
        return self.columns[-1]


def compare(
    columns: Sequence[Column],
    *,
    metric: str | None = None,
    placement: str = "out-of-place",
    allow: Collection[str] = (),
    only_ok: bool = False,
) -> Comparison:
    """Put columns side by side, size by size; repeats pool to the median.

    `metric` is chosen from the benchmark unless named. `allow` names fields that may differ. With
    `only_ok` a column that is not ok shows its outcome, also where it is only truncated or unproven.
    Raises RequestError for columns that differ in what matters, and for a request that makes no sense.
    """
    allowed = _check_request(columns, metric, placement, allow)
    unusable = frozenset(Outcome) - {Outcome.OK} if only_ok else UNUSABLE
    readings = [read(column, placement=placement, unusable=unusable) for column in columns]
    summaries = tuple(_summary(column, reading) for column, reading in zip(columns, readings, strict=True))
    _refuse(summaries, allowed)
    chosen = METRICS[metric] if metric else _default_metric(readings)
    _require(chosen, readings, placement)
    split = _split(summaries, allowed)
    cells = _cells(readings, split, chosen)
    written = _scale(cells, summaries, chosen)
    ratio = partial(_ratio, metric=chosen, written=written)
    sections = tuple(
        _section(key, found, [_here(column.logs, key) for column in columns], unusable, ratio)
        for key, found in cells.items()
    )
    trusted = not any(reading.hidden for reading in readings)
    return Comparison(
        metric=chosen,
        scale=written,
        placement=placement if any(placement in reading.placements for reading in readings) else "",
        columns=summaries,
        sections=sections,
        status=Exit.FINE if trusted else Exit.UNTRUSTED,
    )


def _check_request(
    columns: Sequence[Column], metric: str | None, placement: str, allow: Collection[str]
) -> frozenset[str]:
    if not columns:
        raise RequestError("There is nothing to compare.", hint="Name a run, or two log files.")
    for column in columns:
        if not column.logs:
            raise RequestError(f"{column.label} ({column.source}) has no benchmark in it.")
    if metric is not None and metric not in METRICS:
        raise RequestError(f"There is no metric {metric}.", hint=f"One of {', '.join(METRICS)}.")
    if placement not in PLACEMENTS:
        raise RequestError(f"There is no placement {placement}.", hint=f"One of {', '.join(PLACEMENTS)}.")
    allowed = frozenset(name.replace("-", "_") for name in allow)
    for name in sorted(allowed - set(FIELDS)):
        raise RequestError(f"There is no field {name} to allow.", hint=f"One of {', '.join(FIELDS)}.")
    return allowed


def _refuse(columns: Sequence[Summary], allowed: Collection[str]) -> None:
    """Raise RequestError if columns differ in what matters. Unknown against known is no difference."""
    differences = []
    for name in REFUSED:
        known = [(column.label, column.fields[name]) for column in columns if column.fields[name]]
        if name not in allowed and len({frozenset(values) for _, values in known}) > 1:
            differences.append((name, known))
    if not differences:
        return
    told = "; ".join(
        f"{name} is {', '.join(f'{_listed(values)} in {label}' for label, values in known)}"
        for name, known in differences
    )
    ways_out = " ".join(f"--allow {name}" for name, _ in differences)
    raise RequestError(
        f"These cannot be compared as they are: {told}.",
        hint=f"Compare runs of one kind, or compare these anyway with {ways_out}.",
    )


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - 4} more" if len(values) > 5 else ""
    return " and ".join(values) if not more else ", ".join(values[:4]) + more


def _summary(column: Column, reading: Reading) -> Summary:
    facts: dict[str, dict[str | int, None]] = {}
    for log in column.logs:
        for name, value in log.facts.items():
            facts.setdefault(name, {})[value] = None
    bad = [log for log in column.logs if log.outcome is not Outcome.OK]
    return Summary(
        label=column.label,
        source=column.source,
        label_given=column.label_given,
        outcome=_worst(column.logs),
        reasons=tuple(dict.fromkeys(f"{log.outcome}: {log.reason or 'no reason given'}" for log in bad)),
        executions=len(column.logs),
        facts={name: tuple(values) for name, values in facts.items()},
        fields={name: reading.known(name) for name in FIELDS},
        empty=reading.empty,
        hidden=len(reading.hidden),
        findings=tuple({(found.code, found.meaning): found for found in _found(column)}.values()),
    )


def _found(column: Column) -> Iterator[Finding]:
    return (found for log in column.logs for found in log.findings)


def _worst(logs: Sequence[Log]) -> Outcome:
    order = list(Outcome)
    return min((log.outcome for log in logs), key=order.index, default=Outcome.OK)


def _default_metric(readings: Sequence[Reading]) -> Metric:
    """Choose by benchmark and case, among the metrics that every column with rows has."""
    filled = [reading for reading in readings if reading.points]
    benchmark = next((name for reading in readings for name in reading.known("benchmark")), "")
    case = next((name for reading in readings for name in reading.known("case")), "")
    between_two = case.startswith("shmem_") and "latency" in case
    wanted: tuple[str, ...] = ("busbw", "bandwidth", "latency", "time")
    if benchmark == "pingpong" or case.endswith(("_lat", "pingpong")) or between_two:
        wanted = ("latency", "bandwidth")
    elif case.endswith("_bw"):
        wanted = ("bandwidth", "busbw")
    found = [reading.metrics() for reading in filled]
    shared = (name for name in wanted if all(name in metrics for metrics in found))
    partly = (name for name in wanted if any(name in metrics for metrics in found))
    return METRICS[next(shared, next(partly, wanted[0]))]


def _require(metric: Metric, readings: Sequence[Reading], placement: str) -> None:
    """Raise RequestError if rows were read and none of them has the metric."""
    found = {name for reading in readings for name in reading.metrics()}
    placements = {name for reading in readings for name in reading.placements}
    if found and metric.name not in found:
        raise RequestError(f"No row has {metric.name}.", hint=f"The rows have {', '.join(sorted(found))}.")
    if not found and placements - {placement}:
        raise RequestError(
            f"No row is {placement}.", hint=f"Use --placement {' or '.join(sorted(placements))}."
        )


def _split(columns: Sequence[Summary], allowed: Collection[str]) -> tuple[str, ...]:
    """Name the fields that make sections."""
    several = {name for name in FIELDS if any(len(column.fields[name]) > 1 for column in columns)}
    differing = {
        name
        for name in FIELDS
        if name not in {*allowed, RAIL}
        and len({value for column in columns for value in column.fields[name]}) > 1
    }
    return tuple(name for name in FIELDS if name in several | differing)


def _cells(
    readings: Sequence[Reading], split: Sequence[str], metric: Metric
) -> Mapping[tuple[tuple[str, str], ...], Sequence[Mapping[int, Figure]]]:
    """Sections by their key: for each column, its figures by size."""
    indices = [FIELDS.index(name) for name in split]
    pooled: dict[Key, list[list[Point]]] = {}
    for column, reading in enumerate(readings):
        for key, points in reading.points.items():
            short = tuple(key[index] for index in indices)
            pooled.setdefault(short, [[] for _ in readings])[column].extend(points)
    if RAIL in split:
        beside_rails(pooled, split.index(RAIL))
    if not pooled:
        pooled[tuple("" for _ in split)] = [[] for _ in readings]
    benchmarks = [next(iter(reading.known("benchmark")), "") for reading in readings]
    return {
        tuple(zip(split, key, strict=True)): [
            figures(points, metric, benchmark) for points, benchmark in zip(columns, benchmarks, strict=True)
        ]
        for key, columns in pooled.items()
    }


def _scale(
    cells: Mapping[tuple[tuple[str, str], ...], Sequence[Mapping[int, Figure]]],
    columns: Sequence[Summary],
    metric: Metric,
) -> Scale:
    found = (figure.value for row in cells.values() for column in row for figure in column.values())
    coarse = any({"nccl", "torch"} & set(column.fields["benchmark"]) for column in columns)
    return scale(metric.unit, max(found, default=0.0), coarse=coarse)


def _here(logs: Sequence[Log], key: Sequence[tuple[str, str]]) -> Sequence[Log]:
    """Choose the logs that belong to a section; those of which nothing is known belong to every one."""
    wanted = dict(key)
    return [
        log
        for log in logs
        if log.benchmark in {None, wanted.get("benchmark", log.benchmark)}
        and log.case in {None, wanted.get("case", log.case)}
    ]


def _section(
    key: Sequence[tuple[str, str]],
    columns: Sequence[Mapping[int, Figure]],
    logs: Sequence[Sequence[Log]],
    unusable: Collection[Outcome],
    ratio: Callable[[Figure | None, Figure | None], float | None],
) -> Section:
    outcomes = tuple(_worst(own) for own in logs)
    shown = tuple(outcome not in unusable for outcome in outcomes)
    rows = []
    for size in sorted({size for column in columns for size in column}):
        cells = tuple(
            column.get(size) if visible else None for column, visible in zip(columns, shown, strict=True)
        )
        ratios = (*(ratio(cell, cells[-1]) for cell in cells[:-1]), None)
        rows.append(Row(size=size, figures=cells, ratios=ratios))
    return Section(key=dict(key), outcomes=outcomes, shown=shown, rows=tuple(rows))


def _ratio(new: Figure | None, base: Figure | None, metric: Metric, written: Scale) -> float | None:
    """Say how many times better `new` is; None where one of the two is missing or displays as 0."""
    if new is None or base is None or "0" in {written.text(new.value), written.text(base.value)}:
        return None
    return base.value / new.value if metric.lower_is_better else new.value / base.value
