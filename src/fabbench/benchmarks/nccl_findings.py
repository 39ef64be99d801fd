"""What an nccl-tests log shows about itself: sizes that are missing, figures that do not fit. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from fabbench.benchmarks.nccl_arithmetic import consistent
from fabbench.model import Finding, Record, Severity
from fabbench.units import format_size

_MOST_POINTS = 200
"""Points whose arithmetic is checked; later ones were printed by the same code."""


@dataclass(slots=True)
class Sweep:
    """What the banner asked for, and what the text says of it later."""

    asked: tuple[int, int, int, str] | None = None
    """minBytes, maxBytes, step, `factor` or `bytes`."""
    reduced: int = 0
    """maxBytes after nccl-tests reduced it; 0: it did not."""
    reduced_line: str = ""
    average: str = ""
    average_line: str = ""
    rounding: float = 5e-9
    """Seconds by which a short time may be off for being printed."""


def findings(record: Record, sweep: Sweep) -> Iterator[Finding]:
    """Say what a reader of these numbers should know."""
    if sweep.reduced:
        yield Finding(
            code="range-reduced",
            severity=Severity.WARNING,
            meaning=f"nccl-tests ended the sweep below {format_size(sweep.reduced)}, "
            "less than was asked for, because memory was short.",
            line=sweep.reduced_line,
            advice="Ask for sizes that fit (-e), or free GPU memory; the exit status says nothing of this.",
        )
    if record.facts.get("ranks") == 1 and record.points:
        yield Finding(
            code="one-rank",
            severity=Severity.WARNING,
            meaning="One rank only: busbw is 0 by definition, and nothing went over a fabric.",
            advice="Start more ranks, and build nccl-tests with MPI=1 for more than one host.",
        )
    if record.facts.get("checked") == "no":
        yield Finding(
            code="not-checked",
            severity=Severity.NOTE,
            meaning="The data were not checked (-c 0): `0 OK` in the footer says nothing.",
            advice="Run with -c 1 once.",
        )
    yield from _missing(record, sweep)
    yield from _average(record, sweep)
    yield from _arithmetic(record, sweep)


def _missing(record: Record, sweep: Sweep) -> Iterator[Finding]:
    if sweep.asked is None or not record.finished or not record.points:
        return
    low, high, step, kind = sweep.asked
    sizes = set(map(itemgetter(0), record.points))
    last = min(high, sweep.reduced or high)
    # Sizes of gather-like collectives are cut to a multiple of the ranks: only the number is sure.
    expected = 0
    size = low
    while size <= last and expected <= 100_000:
        expected += 1
        size = size * step if kind == "factor" and step > 1 else size + max(step, 1)
        if kind == "factor" and (step <= 1 or not size):
            return
    found = len(sizes - {0})
    zero = sum(1 for point in record.points if not point.size) if 0 in sizes else 0
    if found + zero < expected:
        yield Finding(
            code="sizes-missing",
            severity=Severity.WARNING,
            meaning=f"The sweep should have {expected} sizes, and rows of {found} are here.",
            advice="Look for lines that a pipe, a terminal or an editor took out.",
        )


def _average(record: Record, sweep: Sweep) -> Iterator[Finding]:
    """Compare the printed average with the mean of both busbw columns, as far as its rounding allows."""
    try:
        printed = float(sweep.average)
    except ValueError:
        return
    # time, algbw, busbw[, wrong]: a statistic of -I has one value only.
    known = [values[2] for _, _, _, values in record.points if len(values) > 2]
    mean = sum(known) / len(known) / 1e9 if known else 0.0
    if abs(mean - printed) > 0.011 + 0.0006 * abs(printed):
        yield Finding(
            code="average-mismatch",
            severity=Severity.WARNING,
            meaning=f"The printed average is {printed:g} GB/s, and that of the rows here is {mean:.4g} GB/s: "
            "rows are missing.",
            line=sweep.average_line,
        )


def _arithmetic(record: Record, sweep: Sweep) -> Iterator[Finding]:
    for point in record.points[:_MOST_POINTS]:
        if len(point.values) >= 3 and all(point.values[:2]) and not consistent(point, sweep.rounding):
            time, algbw = point.values[:2]
            yield Finding(
                code="row-arithmetic",
                severity=Severity.WARNING,
                meaning=f"At {format_size(point.size)} the printed algbw ({algbw / 1e9:g} GB/s) does not fit "
                f"size and time ({point.size / time / 1e9:.4g} GB/s).",
            )
            return
