"""Rows of columns → groups that become one table each, every group with a metric that suits it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fabbench.errors import RequestError
from fabbench.model import METRICS, Metric, Point
from fabbench.pool import FIELDS, RAIL, Figure, Reading, beside_rails, figures
from fabbench.units import Scale, scale

_BENCHMARK, _CASE = FIELDS.index("benchmark"), FIELDS.index("case")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What a section is made of."""

    key: Sequence[tuple[str, str]]
    """Fields that tell it from other groups, and their values."""
    metric: Metric
    cells: Sequence[Mapping[int, Figure]]
    """For each column, its figures by size."""


def split(columns: Sequence[Mapping[str, Sequence[str]]], allowed: Collection[str]) -> tuple[str, ...]:
    """Name the fields that make groups. `columns` has every known value of each of `FIELDS`."""
    several = {name for name in FIELDS if any(len(fields[name]) > 1 for fields in columns)}
    differing = {
        name
        for name in FIELDS
        if name not in {*allowed, RAIL} and len({value for fields in columns for value in fields[name]}) > 1
    }
    return tuple(name for name in FIELDS if name in several | differing)


def groups(readings: Sequence[Reading], by: Sequence[str], metric: str | None = None) -> Sequence[Group]:
    """Sort the rows of all columns by some of `FIELDS`. Without a metric each group gets its own.

    There is always one group: an empty one where no row counts.
    """
    indices = [FIELDS.index(name) for name in by]
    pooled: dict[tuple[str, ...], list[list[Point]]] = {}
    programs: dict[tuple[str, ...], tuple[str, str]] = {}
    for column, reading in enumerate(readings):
        for key, points in reading.points.items():
            short = tuple(key[index] for index in indices)
            programs.setdefault(short, (key[_BENCHMARK], key[_CASE]))
            pooled.setdefault(short, [[] for _ in readings])[column].extend(points)
    if RAIL in by:
        beside_rails(pooled, by.index(RAIL))
    if not pooled:
        nothing = tuple("" for _ in by)
        programs[nothing] = _known(readings, "benchmark"), _known(readings, "case")
        pooled[nothing] = [[] for _ in readings]
    benchmarks = [_known([reading], "benchmark") for reading in readings]
    found = []
    for short, columns in pooled.items():
        chosen = METRICS[metric] if metric else _default_metric(*programs[short], columns)
        cells = [figures(points, chosen, name) for points, name in zip(columns, benchmarks, strict=True)]
        found.append(Group(key=tuple(zip(by, short, strict=True)), metric=chosen, cells=cells))
    return found


def _known(readings: Sequence[Reading], name: str) -> str:
    return next((value for reading in readings for value in reading.known(name)), "")


def _default_metric(benchmark: str, case: str, columns: Sequence[Sequence[Point]]) -> Metric:
    """Choose by benchmark and case, among the metrics that every column with rows has.

    Where rows have none of the usual metrics, what they have counts.
    """
    between_two = case.startswith("shmem_") and "latency" in case
    wanted: tuple[str, ...] = ("busbw", "bandwidth", "latency", "time")
    if benchmark == "pingpong" or case.endswith(("_lat", "pingpong")) or between_two:
        wanted = ("latency", "bandwidth")
    elif case.endswith("_bw"):
        wanted = ("bandwidth", "busbw")
    found = [{name for shape in {point.metrics for point in points} for name in shape} for points in columns]
    filled = [metrics for metrics in found if metrics]
    shared = (name for name in wanted if all(name in metrics for metrics in filled))
    partly = (name for name in (*wanted, *METRICS) if any(name in metrics for metrics in filled))
    return METRICS[next(shared, next(partly, wanted[0]))]


def require(metric: str | None, readings: Sequence[Reading], placement: str) -> None:
    """Raise RequestError if no row has the metric that was named, or the placement."""
    found = {name for reading in readings for name in reading.metrics()}
    placements = {name for reading in readings for name in reading.placements}
    if metric is not None and found and metric not in found:
        raise RequestError(f"No row has {metric}.", hint=f"The rows have {', '.join(sorted(found))}.")
    if not found and placements - {placement}:
        raise RequestError(
            f"No row is {placement}.", hint=f"Use --placement {' or '.join(sorted(placements))}."
        )


def scales(found: Sequence[Group], *, coarse: bool) -> Mapping[str, Scale]:
    """Give the scale of each metric by its name: the same in every group, so that tables can be compared."""
    largest: dict[Metric, float] = {}
    for group in found:
        values = [figure.value for column in group.cells for figure in column.values()]
        largest[group.metric] = max([largest.get(group.metric, 0.0), *values])
    return {metric.name: scale(metric.unit, value, coarse=coarse) for metric, value in largest.items()}
