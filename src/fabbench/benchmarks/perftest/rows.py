"""The tables of perftest: their columns, and what a row measured. Pure.

It prints each column with a fixed number of decimals (perftest_parameters.h, RESULT_FMT and
REPORT_FMT since 2013): a number with fewer is cut off, and two numbers that lost the tab between
them can be separated. Bandwidth is size times message rate, also for sums of two directions.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from fabbench.benchmarks.consistency import Printed, product
from fabbench.benchmarks.tables import (
    NEVER,
    SIZE,
    UNKNOWN,
    Column,
    Layout,
    Row,
    columns_of,
    is_ascending,
    rate_agrees,
    read_columns,
    stat_labels,
)
from fabbench.model.log import Point
from fabbench.model.patterns import lazy

_COLUMNS = columns_of("perftest")
_ITERATIONS = _COLUMNS["#?iterations"]
_SIX_DECIMALS = _COLUMNS[r"msgrate\[mpps\]"].cell
_GBPS = 125e6
"""Bytes per second."""
_TRIPS = "way=round-trip"
_GAP = lazy(r"(?<=\])\s*|\s{2,}|\t|(?<=#bytes)\s+|(?<=#sl)\s+|(?<=iterations)\s+")

# The only lines of scripts, of ib_write_bw and fi_rma_bw (modal-labs/multinode-training-guide,
# health-checks).
_MEANS: Layout = (
    Column(cell="Mean BW peak:"),
    Column("bandwidth", _GBPS, "peak"),
    Column(cell="Gb/s, Mean BW avg:"),
    Column("bandwidth", _GBPS),
    Column(cell="Gb/s"),
)
_TOTAL: Layout = (
    Column(cell="Total BW:"),
    Column("bandwidth", 1e9, "direction=bi"),
    Column(cell="GB/s", joined=True),
)
SUMMARIES: Sequence[Layout] = (_MEANS, _TOTAL)


@lru_cache(maxsize=256)
def read_header(text: str) -> Sequence[Layout]:
    """Return the layouts of the rows below a header; empty for any other line."""
    names = [name for name in _GAP.split(text) if name.strip()]
    layout = read_columns(names, _COLUMNS)
    begins_with_size = layout[:1] == (SIZE,)
    # The iterations are second, or third behind `#sl`.
    if not begins_with_size or _ITERATIONS not in layout[1:3]:
        return ()
    first = layout.index(_ITERATIONS) + 1
    counts = layout[:first]
    figures = layout[first:]
    if UNKNOWN in figures:
        return ((*counts, NEVER),)  # it is cut off: no row below it can be read
    # Wide figures leave no blank between them.
    joined = (column._replace(joined=True) for column in figures[1:])
    usual = (*counts, *figures[:1], *joined)
    # Gb/sec below 0.1 have six decimals.
    small = tuple(map(_small_bandwidth, usual))
    return tuple(dict.fromkeys((usual, small)))


def _small_bandwidth(column: Column) -> Column:
    """Return the column with six decimals, if it is one of Gb/sec."""
    is_bandwidth = column.factor == _GBPS
    return column._replace(cell=_SIX_DECIMALS) if is_bandwidth else column


# ---------------------------------------------------------------- what a row measured

_ROUND_TRIPS = {"one-way": 0.5, "round-trip": 1.0}
"""What a latency is → round trips in it."""


def _ways(row: Row) -> Sequence[str]:
    """Return what a latency may be: `one-way`, `round-trip`, both, or, if it contradicts, neither.

    Its product with the rate of round trips shows it, where that is printed.
    """
    stated = row.labels.get("way")
    ways = [stated] if stated else [*_ROUND_TRIPS]
    latency = row.main("latency")
    rate = row.figures.get(_TRIPS, {}).get("message_rate")
    if latency is None or rate is None or not latency.value or not rate.value:
        return ways
    return [way for way in ways if _is_number_of_trips(_ROUND_TRIPS[way], latency, rate)]


def _is_number_of_trips(trips: float, latency: Printed, rate: Printed) -> bool:
    """Return whether a latency times a rate of round trips is this number, within 0.2 %.

    Not where the printed digits leave so wide a range that it proves nothing: a factor of 4. (The
    smallest latency, 0.01 us, leaves one of 3: 0.005 to 0.015.)
    """
    low, high = product(latency, rate)
    is_precise = 1.002 * high < 4 * low
    return is_precise and 0.998 * low <= trips <= 1.002 * high


def fits(row: Row) -> bool:
    """Return whether the figures of a row can be those of one measurement."""
    has_way = bool(_ways(row))
    fits_rate = rate_agrees(row) is not False
    return has_way and _fits_peak(row) and fits_rate and is_ascending(row)


def _fits_peak(row: Row) -> bool:
    # Whether the peak is not below the average; as far as their printed digits tell.
    bandwidth = row.main("bandwidth")
    peak = row.figures.get("peak", {}).get("bandwidth")
    if bandwidth is None or peak is None or not peak.value:  # zero: not measured
        return True
    return peak.high >= bandwidth.low


def points(row: Row) -> list[Point]:
    """Return the points of a row: one for all figures with the same labels.

    perftest prints zero for what it did not measure (`BW peak`), or for what is below the last
    decimal.
    """
    points: list[Point] = []
    for stat, of_stat in row.figures.items():
        metrics = tuple(metric for metric in of_stat if of_stat[metric].is_measured())
        if metrics or not stat:  # the main figures keep their point, which shows that none counts
            way = _way_label(row) if "latency" in of_stat else {}
            labels = {**row.labels, **_level_label(row), **way, **stat_labels(stat)}
            values = tuple(of_stat[metric].value for metric in metrics)
            points.append(Point(row.size, labels, metrics, values))
    return points


def _level_label(row: Row) -> Mapping[str, str]:
    level = row.cell("sl")
    return {"name": f"sl {level}"} if level else {}


def _way_label(row: Row) -> Mapping[str, str]:
    ways = _ways(row)  # no label where it may be either
    return {"way": ways[0]} if len(ways) == 1 else {}
