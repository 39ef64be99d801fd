"""Findings about nccl-tests' figures, and whether the sweep and its average are complete. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from fabbench.benchmarks.consistency import note, warning
from fabbench.model.log import Finding, Record
from fabbench.model.units import format_size

MISSING, MISMATCH = "sizes-missing", "average-mismatch"  # findings that prove that the log is incomplete
UNEXPLAINED = warning(
    "row-arithmetic",
    "The log does not name the collective, and the figures of its rows fit no known one.",
    "Keep the command line, or the line `Collective test starting`, in the log.",
)


@dataclass(slots=True)
class PrintedSweep:
    """The sweep that the banner announces, and later statements about it."""

    requested: tuple[int, int, int, str] | None = None  # minBytes, maxBytes, step, `factor` or `bytes`
    reduced: int = 0  # maxBytes after nccl-tests reduced it; 0: not reduced
    reduced_line: str = ""
    average: str = ""
    average_line: str = ""
    exact: bool = False  # whether figures have six decimals, as in JSON


def nccl_findings(record: Record, sweep: PrintedSweep) -> Iterator[Finding]:
    """Yield what users should know about these numbers."""
    if sweep.reduced:
        yield warning(
            "range-reduced",
            f"nccl-tests ended the sweep below {format_size(sweep.reduced)}, "
            "less than requested because memory ran out.",
            "Choose sizes that fit (-e), or free GPU memory; the exit status does not show this.",
            line=sweep.reduced_line,
        )
    if record.points and (record.facts.get("ranks") == 1 or _is_alone(record)):
        yield warning(
            "one-rank",
            "One rank only: busbw is 0 by definition, and nothing went over a fabric.",
            "Start more ranks, and build nccl-tests with MPI=1 for more than one host.",
        )
    if record.facts.get("checked") == "no":
        yield note(
            "not-checked", "The data were not checked (-c 0): `0 OK` in the footer says nothing.", "Run with -c 1 once."
        )
    yield from _missing(record, sweep)
    yield from _average(record, sweep)


def _is_alone(record: Record) -> bool:
    """Return whether every busbw is 0, and an algbw is not: the factor of collectives is 0 for one rank."""
    if any(values[2] for _, _, names, values in record.points if names[2:3] == ("busbw",)):
        return False
    return any(values[1] >= 1e9 for _, _, names, values in record.points if names[1:3] == ("algbw", "busbw"))


def _missing(record: Record, sweep: PrintedSweep) -> Iterator[Finding]:
    if sweep.requested is None or not record.finished or not record.points:
        return
    low, high, step, kind = sweep.requested
    sizes = set(map(itemgetter(0), record.points))
    last = min(high, sweep.reduced or high)
    # Sizes of gather-like collectives are rounded to a multiple of the ranks: only their number is certain.
    expected = 0
    size = low
    while size <= last and expected <= 100_000:
        expected += 1
        size = size * step if kind == "factor" and step > 1 else size + max(step, 1)
        if kind == "factor" and (step <= 1 or not size):
            return
    nonzero = len(sizes - {0})
    zero = sum(1 for point in record.points if not point.size) if 0 in sizes else 0
    # Two byte steps may be rounded to the same size.
    if nonzero + zero < expected and (kind == "factor" or len(record.points) < expected):
        yield warning(
            MISSING,
            f"The sweep should have {expected} sizes, but the log has rows of {nonzero}.",
            "Check whether a pipe, a terminal or an editor dropped lines.",
        )


def _average(record: Record, sweep: PrintedSweep) -> Iterator[Finding]:
    """Compare the printed average with the mean of both busbw columns, as far as their rounding allows."""
    try:
        stated = float(sweep.average)
    except ValueError:
        return
    # time, algbw, busbw[, wrong]: a statistic of -I has one value only.
    known = [values[2] / 1e9 for _, _, names, values in record.points if names[2:3] == ("busbw",)]
    if not known or not math.isfinite(stated):
        return
    mean = math.fsum(known) / len(known)
    # Half of the last digit: two decimals as long as they fit.
    limits = ((999.995, 0.005), (9999.95, 0.05), (999_999.5, 0.5))
    halves = (next((half for limit, half in limits if rate < limit), rate / 2) for rate in known)
    slack = 0.5e-6 if sweep.exact else math.fsum(halves) / len(known)
    # The average has six digits (%g), without trailing zeros.
    digits = 0.5e-6 if sweep.exact else 0.5 * 10.0 ** (math.floor(math.log10(stated)) - 5) if stated else 1e-6
    if abs(mean - stated) > (slack + digits) * 1.0001:
        yield warning(
            MISMATCH,
            f"The printed average is {stated:g} GB/s, but that of the rows is {mean:.6g} GB/s: "
            "rows are missing or were altered.",
            line=sweep.average_line,
        )


def incompleteness(record: Record) -> str:
    """Describe in a sentence what the findings prove to be missing; empty: nothing."""
    missing = (finding.meaning for finding in record.findings if finding.code in {MISSING, MISMATCH})
    return next(missing, "")
