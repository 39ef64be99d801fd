"""What perftest's rows and text show that a reader of its numbers should know, in sentences."""

from fabbench.benchmarks.perftest.arithmetic import unit_of
from fabbench.benchmarks.perftest.tables import Row
from fabbench.model import Finding, Severity
from fabbench.units import format_size


def mismatch(row: Row, text: str) -> Finding:
    """Say that a row's bandwidth is not its size times its message rate in the unit of the header."""
    bandwidth, rate = row.cell("bandwidth"), row.cell("message_rate")
    true = unit_of(bandwidth, rate, row.size, ("MiB/sec", "Gb/sec")) if bandwidth and rate else ""
    where = f"At {format_size(row.size)} the printed bandwidth does not fit size and message rate"
    if true:
        return Finding(
            code="unit-mismatch",
            severity=Severity.WARNING,
            meaning=f"{where} in {row.layout.unit}, as the header says, but in {true}.",
            line=text[:300],
            advice="The numbers are given as the header labels them; find out who changed the header.",
        )
    return Finding(
        code="row-arithmetic",
        severity=Severity.WARNING,
        meaning=f"{where}.",
        line=text[:300],
    )


def duration_mismatch(text: str) -> Finding:
    """Say that a duration run's latency does not fit its rate."""
    return Finding(
        code="row-arithmetic",
        severity=Severity.WARNING,
        meaning="The printed latency is not what the round trips per second come to.",
        line=text[:300],
    )


AMBIGUOUS_WAY = Finding(
    code="way-ambiguous",
    severity=Severity.NOTE,
    meaning="Neither title nor command line is here: write and send tests print half of a round trip, "
    "read and atomic tests all of it.",
    advice="Keep perftest's title (or the command line) in the log.",
)
AMBIGUOUS_UNIT = Finding(
    code="unit-ambiguous",
    severity=Severity.WARNING,
    meaning="perftest's JSON records no unit, and size, bandwidth and message rate do not tell it: "
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
    """Say that perftest's clock may be off."""
    return Finding(
        code="cpu-frequency",
        severity=Severity.NOTE,
        meaning="perftest measures in CPU cycles, and the CPUs' frequencies differ.",
        line=text[:300],
        advice="Set the CPUs' governor to performance, or run with -F knowing that figures may be off.",
    )


def warning(said: str, text: str) -> Finding:
    """Pass on a warning of perftest's own."""
    return Finding(
        code="perftest-warning",
        severity=Severity.WARNING,
        meaning=f"perftest warned: {said[:300]}",
        line=text[:300],
    )


def no_size(said: str, text: str) -> Finding:
    """Say that a figure comes without its size."""
    return Finding(
        code="size-unstated",
        severity=Severity.NOTE,
        meaning=f"{said} The size is not stated: it is given as 0.",
        line=text[:300],
        advice="Keep perftest's own table in the log.",
    )
