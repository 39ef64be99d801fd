"""A column's logs → figures: which rows count, by what they are told apart, and how repeats pool. Pure."""

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.model import Labels, Log, Metric, Outcome, Point
from fabbench.variants import AS_IT_IS, Variant

REFUSED = (
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

FIELDS = (*REFUSED, "root", "scope", "name", RAIL)
"""All fields by which rows of one size are told apart."""

UNUSABLE = frozenset({Outcome.CORRUPT, Outcome.TIMEOUT, Outcome.FAILED, Outcome.OFF_FABRIC, Outcome.SKIPPED})
"""Outcomes whose numbers are never shown as a column's figures."""

Key = tuple[str, ...]
"""One value for each of `FIELDS`; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What is compared: the logs of one arm, or of one file. Several logs are repeats."""

    label: str
    logs: tuple[Log, ...]
    source: str
    label_given: bool = False
    """Whether the label is the user's own word."""
    variant: Variant = AS_IT_IS
    """Of the arm."""


class Figure(NamedTuple):
    """What one column has for one size: the median of its repeats, in the metric's base unit."""

    value: float
    n: int
    low: float
    high: float
    step: float
    """The step in which the benchmark prints such a number; 0: it does not round, or it is not known."""


@dataclass(slots=True, kw_only=True)
class Reading:
    """The rows of one column that count, by what tells them apart. Grows while the column is read."""

    points: dict[Key, list[Point]] = field(default_factory=dict)
    empty: int = 0
    """How many rows of size 0 were left out."""
    placements: set[str] = field(default_factory=set)
    """Placements that the column's rows have, whether they count or not."""
    hidden: list[Log] = field(default_factory=list)
    """Logs whose rows do not count, because of their outcome."""
    programs: dict[tuple[str | None, str | None], None] = field(default_factory=dict)
    """Benchmark and case of every log."""

    def known(self, name: str) -> tuple[str, ...]:
        """Every known value of a field, in order of appearance.

        Of a log without rows that count only its benchmark and case do: what it says else may be cut short.
        """
        index = FIELDS.index(name)
        values: list[str | None] = [key[index] for key in self.points]
        if name in {"benchmark", "case"}:
            values += [program[name == "case"] for program in self.programs]
        return tuple(dict.fromkeys(value for value in values if value))

    def metrics(self) -> set[str]:
        """Every metric that the rows have."""
        shapes = {point.metrics for points in self.points.values() for point in points}
        return {name for shape in shapes for name in shape}


def read(column: Column, *, placement: str, unusable: Collection[Outcome] = UNUSABLE) -> Reading:
    """Collect the rows of a column that count: the tool's main figure, of one placement, with a size.

    Where a pair printed on both sides the client's row counts, because the client drives the exchange.
    """
    reading = Reading()
    for log in column.logs:
        reading.programs[log.benchmark, log.case] = None
        if log.outcome in unusable:
            reading.hidden.append(log)
            continue
        found: dict[Key, dict[str, list[Point]]] = {}
        for key, side, point in _rows(log, placement, reading):
            found.setdefault(key, {}).setdefault(side, []).append(point)
        for key, sides in found.items():
            reading.points.setdefault(key, []).extend(_one_side(sides))
    return reading


def figures(points: Iterable[Point], metric: Metric, benchmark: str) -> dict[int, Figure]:
    """Pool the rows of each size. A number that is not finite counts as not measured."""
    values: dict[int, list[float]] = {}
    for point in points:
        for name, value in zip(point.metrics, point.values, strict=True):
            if name == metric.name and math.isfinite(value):
                values.setdefault(point.size, []).append(value)
    return {
        size: Figure(
            statistics.median(found),
            len(found),
            min(found),
            max(found),
            printed_step(benchmark, metric.name, found),
        )
        for size, found in sorted(values.items())
    }


def beside_rails(pooled: dict[Key, list[list[Point]]], at: int) -> None:
    """Put the points of a column that has no rails beside each of the rails that others have.

    `pooled` has the points of each column by key, of which element `at` is the rail.
    """
    for bare in [key for key in pooled if not key[at]]:
        rails = [key for key in pooled if key[at] and (*key[:at], "", *key[at + 1 :]) == bare]
        for column, points in enumerate(pooled[bare]):
            if points and rails and not any(pooled[rail][column] for rail in rails):
                for rail in rails:
                    pooled[rail][column] = points
                pooled[bare][column] = []
        if not any(pooled[bare]):
            del pooled[bare]


def _rows(log: Log, placement: str, reading: Reading) -> Iterator[tuple[Key, str, Point]]:
    # Labels are shared between points, so a log has few of them however many rows it has.
    keys: dict[int, Key | None] = {}
    for point in log.points:
        labels = point.labels
        if id(labels) not in keys:
            place = labels.get("placement")
            if place:
                reading.placements.add(place)
            counts = "stat" not in labels and place in {None, placement}
            keys[id(labels)] = _key(log, labels) if counts else None
        key = keys[id(labels)]
        if key is None:
            continue
        if point.size == 0:
            reading.empty += 1
            continue
        yield key, labels.get("side", ""), point


def _key(log: Log, labels: Labels) -> Key:
    known: Mapping[str, str | int | None] = {
        **log.facts,
        "benchmark": log.benchmark,
        "case": log.case,
        **labels,
        # As a fact it says which devices a whole log used, and as a label whose a row is.
        RAIL: labels.get(RAIL),
    }
    values = (known.get(name) for name in FIELDS)
    return tuple("" if value in {None, "unknown"} else str(value) for value in values)


def _one_side(sides: dict[str, list[Point]]) -> list[Point]:
    client = sides.get("client")
    if client is None:
        return [point for points in sides.values() for point in points]
    sizes = {point.size for point in client}
    others = (point for side, points in sides.items() if side != "client" for point in points)
    return [*client, *(point for point in others if point.size not in sizes)]


# In base units, coarsest first, as the programs print them: nccl-tests `%6.2f` GB/s, libfabric `%.2f` MB/sec
# (fabtests Gb/sec until 2016) and usec, perftest `%.2f` MiB/s or Gb/s and usec, NVSHMEM `%.3f` GB/s, torch
# two or three decimals of GB/s.
_STEPS: Mapping[tuple[str, str], Sequence[float]] = {
    ("nccl", "busbw"): (1e7,),
    ("nccl", "algbw"): (1e7,),
    ("torch", "busbw"): (1e7, 1e6),
    ("torch", "algbw"): (1e7, 1e6),
    ("nvshmem", "busbw"): (1e6,),
    ("nvshmem", "algbw"): (1e6,),
    ("pingpong", "bandwidth"): (1e4,),
    ("pingpong", "latency"): (1e-8,),
    ("fabtests", "bandwidth"): (1.25e6, 1e4),
    ("fabtests", "latency"): (1e-8,),
    ("perftest", "bandwidth"): (1.25e6, 10485.76),
    ("perftest", "latency"): (1e-8,),
    ("perftest", "message_rate"): (1.0,),
}


def printed_step(benchmark: str, metric: str, values: Sequence[float]) -> float:
    """Say in which step numbers like `values` are printed: the coarsest that they are all multiples of.

    0 where the benchmark's step is not known, or the values are finer (JSON is not rounded).
    """
    steps = _STEPS.get((benchmark, metric), ())
    if benchmark == "nccl" and metric in {"time", "cpu_time"}:
        # Two decimals of us below 100 us, one below 10 ms, then none.
        largest = max(values, default=0.0)
        steps = [step for step, above in ((1e-6, 1e-2), (1e-7, 1e-4), (1e-8, 0.0)) if largest >= above]
    return next((step for step in steps if all(_multiple(value, step) for value in values)), 0.0)


def _multiple(value: float, step: float) -> bool:
    return abs(value / step - round(value / step)) < 1e-6
