"""Whether rows, sweeps and averages of nccl-tests are consistent, and findings about its figures. Pure.

The formulas by program, with the source lines that define them: docs/formats.md.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

from fabbench.benchmarks import consistency
from fabbench.model.log import Finding, Point, Record
from fabbench.model.units import format_size

_OLD, _UNSIZED = consistency.BandwidthFormula("n", "1"), consistency.BandwidthFormula("", "n")
_SHAPES: Mapping[str, tuple[consistency.BandwidthFormula, ...]] = {
    "all_reduce": (consistency.ALL_REDUCE,),
    # Up to 2.0.0 one rank's own share was not counted.
    "all_gather": (consistency.GATHERING, _OLD),
    "reduce_scatter": (consistency.GATHERING, _OLD),
    **dict.fromkeys(("alltoall", "scatter", "gather"), (consistency.GATHERING,)),
    **dict.fromkeys(("broadcast", "reduce", "sendrecv"), (consistency.SAME,)),
    "hypercube": (_OLD,),
    # The bytes are those of the rank with the most data: the size does not determine them.
    "alltoallv": (_UNSIZED,),
}
_ALL = (consistency.ALL_REDUCE, consistency.GATHERING, consistency.SAME, _OLD)

R = TypeVar("R")


class TableArithmetic(Generic[R]):
    """Checks the rows of one table against the formula of their collective. R is the type of a row."""

    def __init__(self) -> None:
        self.multiple = 0  # the size as a multiple of the count's bytes; 0: unknown
        self.rates: consistency.RateCheck[int] = consistency.RateCheck()
        self._rows: list[tuple[R, int]] = []  # rows until the formula is settled, with their multiples
        self._uneven = False
        self.unexplained = False  # whether there were rows that fit no known formula

    def fits(self, row: R, size: int, unit: int, ratios: Sequence[consistency.Ratios]) -> bool:
        """Return whether a row fits, as far as that is known yet. `unit`: the bytes of its count."""
        multiple = _multiple(size, unit)
        if self.rates.is_settled():
            return self._is_usual(multiple) and self.rates.fits(0, ratios)
        self._rows.append((row, multiple))
        return self.rates.fits(len(self._rows) - 1, ratios)

    def settle(self, case: str | None, ranks: int | None, *, end: bool) -> list[R]:
        """Settle the formula once the rows determine it, or at their `end`; return rows that do not fit."""
        if self.rates.is_settled():
            return []
        shapes = _SHAPES.get(case or "", _ALL)
        bad = set(self.rates.settle(shapes, ranks) if end else self.rates.choose_if_ready(shapes, ranks))
        if not self.rates.is_settled():
            return []
        rows, self._rows, self._uneven = self._rows, [], case == "alltoallv"
        self.unexplained = bool(rows) and self.rates.formula is None
        counts = Counter([multiple for _, multiple in rows if multiple > 0])
        self.multiple = max(counts, key=lambda each: counts[each]) if counts and not self._uneven else 0
        return [row for at, (row, multiple) in enumerate(rows) if at in bad or not self._is_usual(multiple)]

    def _is_usual(self, multiple: int) -> bool:
        return self._uneven or multiple == 0 or (multiple > 0 and multiple == (self.multiple or multiple))


def is_of_ranks(formula: consistency.Formula, case: str | None, ranks: int) -> bool:
    """Return whether a table's formula is that of its collective (None: of any) on this number of ranks."""
    return formula.bus is None or formula in {shape.of(ranks) for shape in _SHAPES.get(case or "", _ALL)}


_BY_LABELS: Mapping[tuple[bool, bool], Mapping[str, consistency.BandwidthFormula]] = {
    (True, False): {
        "all_reduce": consistency.ALL_REDUCE,
        "reduce_scatter": consistency.GATHERING,
        "sendrecv": consistency.SAME,
    },
    (True, True): {"reduce": consistency.SAME},
    (False, True): {"broadcast": consistency.SAME, "scatter": consistency.GATHERING, "gather": consistency.GATHERING},
    (False, False): {"all_gather": consistency.GATHERING, "alltoall": consistency.GATHERING},
}
"""Whether rows have an operation, and a root → the collectives that print such rows."""
_ONE_SIDED = {"sendrecv", "alltoall"}  # their data are checked out of place only (nccl-tests' reportErrors)


def case_by_figures(points: Sequence[Point], formula: consistency.Formula, ranks: int | None) -> str | None:
    """Return the collective that a table's rows can only be of; None if there are several."""
    labels = points[0].labels
    reduces, rooted = labels.get("redop", "none") != "none", labels.get("root", "-1") != "-1"
    checked = {point.labels.get("placement"): "wrong" in point.metrics for point in points}
    one_sided = checked.get("out-of-place") and not checked.get("in-place", True)
    fitting = [
        case
        for case, shape in _BY_LABELS[reduces, rooted].items()
        if any(shape.of(number) == formula for number in ((ranks,) if ranks is not None else _implied(formula, shape)))
        and not (one_sided if case not in _ONE_SIDED else checked.get("in-place", False))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _implied(formula: consistency.Formula, shape: consistency.BandwidthFormula) -> tuple[int, ...]:
    """Return the numbers of ranks for which a collective may have a formula."""
    if shape.bus == "1":
        return (2,)
    top = 2 if shape.bus == "2n" else 1
    return (round(top / (top - formula.bus)),) if formula.bus is not None and formula.bus < top else ()


def _multiple(size: int, unit: int) -> int:
    """Return the size as a multiple of `unit`; 0: both are zero; -1: it is not a multiple."""
    if not size and not unit:
        return 0
    return size // unit if unit and size and size % unit == 0 else -1


MISSING, MISMATCH = "sizes-missing", "average-mismatch"  # findings that prove that the log is incomplete
UNEXPLAINED = consistency.warning(
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
        yield consistency.warning(
            "range-reduced",
            f"nccl-tests ended the sweep below {format_size(sweep.reduced)}, "
            "less than requested because memory ran out.",
            "Choose sizes that fit (-e), or free GPU memory; the exit status does not show this.",
            line=sweep.reduced_line,
        )
    if record.points and (record.facts.get("ranks") == 1 or _is_alone(record)):
        yield consistency.warning(
            "one-rank",
            "One rank only: busbw is 0 by definition, and nothing went over a fabric.",
            "Start more ranks, and build nccl-tests with MPI=1 for more than one host.",
        )
    if record.facts.get("checked") == "no":
        yield consistency.note(
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
        yield consistency.warning(
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
        yield consistency.warning(
            MISMATCH,
            f"The printed average is {stated:g} GB/s, but that of the rows is {mean:.6g} GB/s: "
            "rows are missing or were altered.",
            line=sweep.average_line,
        )


def incompleteness(record: Record) -> str:
    """Describe in a sentence what the findings prove to be missing; empty: nothing."""
    missing = (finding.meaning for finding in record.findings if finding.code in {MISSING, MISMATCH})
    return next(missing, "")
