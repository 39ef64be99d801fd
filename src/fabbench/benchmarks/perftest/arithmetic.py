"""Whether the numbers of one row fit each other: bandwidth is size times message rate. Pure.

``BW = size * iterations * Hz / (cycles * factor)`` and ``MsgRate = iterations * Hz / (cycles * 1e6)`` in the
source, also for sums of two directions. So a unit that is labelled wrongly, or not stated, shows.
"""

from collections.abc import Iterable
from decimal import Decimal

from fabbench.benchmarks.perftest.tables import UNITS, Row

_HALF_PRINTED = Decimal("0.5000001")


def fits(bandwidth: Decimal, rate: Decimal, size: int, factor: Decimal) -> bool | None:
    """Tell whether a bandwidth (`factor` B/s each) fits a message rate in 1e6/s, as both are rounded.

    None where the print left too little of them to tell.
    """
    slack = [_HALF_PRINTED.scaleb(int(number.as_tuple().exponent)) for number in (bandwidth, rate)]
    if not size or bandwidth <= slack[0] * 4 or rate <= slack[1] * 4:
        return None
    bytes_each = Decimal(size) * 1_000_000
    low, high = (rate - slack[1]) * bytes_each, (rate + slack[1]) * bytes_each
    return (bandwidth - slack[0]) * factor <= high and (bandwidth + slack[0]) * factor >= low


def row_fits(row: Row) -> bool | None:
    """Tell whether a bandwidth row is true in the unit of its header; None: nobody can tell."""
    bandwidth, rate = row.cell("bandwidth"), row.cell("message_rate")
    if bandwidth is None or rate is None or row.layout.unit not in UNITS:
        return None
    return fits(bandwidth, rate, row.size, UNITS[row.layout.unit])


def unit_of(
    bandwidth: Decimal, rate: Decimal, size: int, units: Iterable[str] = ("MiB/sec", "Gb/sec")
) -> str:
    """Name the only unit in which the numbers fit each other; empty: none, or more than one."""
    verdicts = {unit: fits(bandwidth, rate, size, UNITS[unit]) for unit in units}
    if None in verdicts.values():
        return ""
    fitting = [unit for unit, verdict in verdicts.items() if verdict]
    return fitting[0] if len(fitting) == 1 else ""


def way_of(average_us: Decimal, per_second: Decimal) -> str:
    """Name the way that a duration run's latency is of: the rate counts round trips, whatever the latency is.

    Empty where the two fit neither (both are rounded to two decimals).
    """
    product = average_us * per_second / 1_000_000
    if not average_us or not per_second:
        return ""
    slack = (Decimal("0.0051") / average_us + Decimal("0.0051") / per_second) * product + Decimal("0.001")
    for way, expected in (("one-way", Decimal("0.5")), ("round-trip", Decimal(1))):
        if abs(product - expected) <= min(slack, Decimal("0.2")):
            return way
    return ""
