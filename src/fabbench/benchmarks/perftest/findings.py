"""Whether the numbers of one row are consistent, and findings about rows and text. Pure.

Bandwidth is size times message rate: ``BW = size * iterations * Hz / (cycles * factor)`` and ``MsgRate =
iterations * Hz / (cycles * 1e6)`` in the source, also for sums of two directions. This reveals a unit that is
mislabeled or not stated.
"""

from decimal import Decimal

from fabbench.benchmarks.consistency import printed
from fabbench.benchmarks.perftest.table_formats import UNITS, PerftestRow
from fabbench.model.log import Finding, Severity
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.units import format_size


def fits(bandwidth: str, rate: str, size: int, factor: Decimal) -> bool | None:
    """Return whether a printed bandwidth (in units of `factor` B/s) fits a printed message rate in 1e6/s.

    None if too few digits are printed to tell.
    """
    volume, messages = printed(bandwidth), printed(rate)
    if not size or any(number.value <= 4 * (number.value - number.low) for number in (volume, messages)):
        return None
    each = float(factor) / 1e6 / size
    return messages.overlaps(volume.low * each, volume.high * each)


def row_is_consistent(row: PerftestRow) -> bool | None:
    """Return whether a bandwidth row is consistent in the unit of its header; None: unknown."""
    bandwidth, rate = row.cell("bandwidth"), row.cell("message_rate")
    if bandwidth is None or rate is None or row.layout.unit not in UNITS:
        return None
    return fits(str(bandwidth), str(rate), row.size, UNITS[row.layout.unit])


def is_ordered(row: PerftestRow) -> bool:
    """Return whether the statistics of a row can be those of one measurement: no peak below the average."""
    peak, average = row.cell("bandwidth", "peak"), row.cell("bandwidth")
    if peak and average and printed(str(peak)).high < printed(str(average)).low:
        return False
    times = [
        time for stat in ("min", "median", "p99", "p99.9", "max") if (time := row.cell("latency", stat)) is not None
    ]
    mean, minimum, maximum = (row.cell("latency", stat) for stat in ("", "min", "max"))
    inside = mean is None or minimum is None or maximum is None or minimum <= mean <= maximum
    return inside and times == sorted(times)


def consistent_unit(bandwidth: Decimal, rate: Decimal, size: int) -> str:
    """Return the only unit in which the numbers are consistent; empty: none, or more than one."""
    mib, gigabit = (fits(str(bandwidth), str(rate), size, UNITS[unit]) for unit in ("MiB/sec", "Gb/sec"))
    if mib is None or gigabit is None or mib == gigabit:
        return ""
    return "MiB/sec" if mib else "Gb/sec"


def consistent_way(average_us: Decimal, per_second: Decimal) -> str:
    """Return `one-way` or `round-trip`: what the latency of a duration run is. The rate counts round trips.

    Empty if the two fit neither (both are rounded to two decimals).
    """
    product = average_us * per_second / 1_000_000
    if not average_us or not per_second:
        return ""
    slack = (Decimal("0.0051") / average_us + Decimal("0.0051") / per_second) * product + Decimal("0.001")
    for way, expected in (("one-way", Decimal("0.5")), ("round-trip", Decimal(1))):
        if abs(product - expected) <= min(slack, Decimal("0.2")):
            return way
    return ""


def mismatch(row: PerftestRow, text: str) -> Finding | None:
    """Return the finding that a bandwidth is size times message rate in a unit other than the header's."""
    bandwidth, rate = row.cell("bandwidth"), row.cell("message_rate")
    true = consistent_unit(bandwidth, rate, row.size) if bandwidth and rate else ""
    if not true:
        return None
    return Finding(
        code="unit-mismatch",
        severity=Severity.WARNING,
        meaning=f"At {format_size(row.size)} the printed bandwidth does not fit size and message rate "
        f"in {row.layout.unit}, as the header states, but in {true}.",
        line=text[:LONGEST_QUOTE],
        advice="Such rows are left out as damaged; check what changed the header.",
    )


AMBIGUOUS_WAY = Finding(
    code="way-ambiguous",
    severity=Severity.NOTE,
    meaning="The log has neither title nor command line: write and send tests print half of a round trip, "
    "read and atomic tests all of it.",
    advice="Keep perftest's title (or the command line) in the log.",
)
AMBIGUOUS_UNIT = Finding(
    code="unit-ambiguous",
    severity=Severity.WARNING,
    meaning="perftest's JSON records no unit, and size, bandwidth and message rate do not imply it: "
    "the bandwidth is left out.",
    advice="Keep the printed table, whose header states the unit.",
)
CYCLES = Finding(
    code="unit-cycles",
    severity=Severity.WARNING,
    meaning="Times were printed in CPU cycles, and the log does not show how long one is: they are left out.",
    advice="Run without -C.",
)
BOTH_SIDES = Finding(
    code="both-sides",
    severity=Severity.NOTE,
    meaning="Client and server printed their rows into one text: each measurement is there twice.",
)
OLD_LAYOUT = Finding(
    code="median-only",
    severity=Severity.NOTE,
    meaning="This perftest (before 2016) prints no average: the main figure is t_typical, the median.",
)


def cpu_frequency(text: str) -> Finding:
    """Return the finding that perftest's clock may be off."""
    return Finding(
        code="cpu-frequency",
        severity=Severity.NOTE,
        meaning="perftest measures in CPU cycles, and the CPUs' frequencies differ.",
        line=text[:LONGEST_QUOTE],
        advice="Set the CPUs' governor to performance, or run with -F knowing that figures may be off.",
    )


def warning(message: str, text: str) -> Finding:
    """Return a finding that passes on perftest's own warning."""
    return Finding(
        code="perftest-warning",
        severity=Severity.WARNING,
        meaning=f"perftest warned: {message[:LONGEST_QUOTE]}",
        line=text[:LONGEST_QUOTE],
    )


def no_size(reason: str, text: str) -> Finding:
    """Return the finding that a figure has no size, preceded by `reason`."""
    return Finding(
        code="size-unstated",
        severity=Severity.NOTE,
        meaning=f"{reason} The size is not stated: it is given as 0.",
        line=text[:LONGEST_QUOTE],
        advice="Keep perftest's own table in the log.",
    )
