"""The programs of nccl-tests, how their rates are computed, and what whole tables show. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    GATHERING,
    SAME,
    BandwidthFormula,
    Formula,
    choose_formula,
    powers,
    ratios,
    unmeasured,
)
from fabbench.benchmarks.events import Note
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.nccl.rows import Sample
from fabbench.catalog.systems import rows_of
from fabbench.model.log import Finding, Point, Record
from fabbench.model.mappings import gathered, most_common
from fabbench.model.units import format_size

if TYPE_CHECKING:
    from fabbench.benchmarks.nccl.lines import Device

MISSING = "sizes-missing"
MISMATCH = "average-mismatch"
_INCOMPLETE = frozenset({MISSING, MISMATCH, "not-a-number"})
"""Findings that prove that the log is incomplete."""

COLLECTIVES: Mapping[str, Sequence[BandwidthFormula]] = gathered(
    (row["program"], BandwidthFormula(row["share"], row["bus"]))
    for row in rows_of("formulas.csv", "fabbench.benchmarks.nccl")
)
"""How the programs compute rates; the first formula is that of present releases."""
_ANY = (ALL_REDUCE, GATHERING, SAME, *COLLECTIVES["hypercube"])


def _formulas_of(case: str | None) -> Sequence[BandwidthFormula]:
    """Return the formulas that a case may have; those of all if it is not known."""
    return COLLECTIVES.get(case or "", _ANY)


class Arithmetic:
    """How the figures of a table are computed."""

    def __init__(self) -> None:
        self.formula: Formula | None = None
        """None: not settled, or the rows fit no known one."""
        self._multiple: int | None = None
        """The usual `Sample.multiple`, of size to count; None: the size tells nothing.

        0: every size is 0.
        """

    def settle(self, samples: Sequence[Sample], case: str | None, ranks: int | None) -> None:
        """Choose the formula that most rows fit. `ranks`: as far as it is stated."""
        is_sized = case != "alltoallv"  # its counts are those of one rank
        # First try the obvious: all rows are as the first one, of the case and ranks stated.
        self._multiple = samples[0].multiple if is_sized else None
        shapes = _formulas_of(case)
        # A first row of size 0 does not show the ratio of the others.
        if ranks is not None and self._multiple != 0:
            for shape in shapes:
                self.formula = shape.of(ranks)
                if all(map(self.fits, samples)):
                    return  # as nearly always
        # Not all rows fit, or the ranks are not stated: what most rows show counts.
        if is_sized:
            multiples = (row.multiple for row in samples if row.multiple > 0)
            self._multiple = most_common(multiples, default=0)
        rows = [ratios(row.size, *side) for row in samples for side in row.sides]
        self.formula = choose_formula(rows, shapes, ranks)

    def fits(self, sample: Sample) -> bool:
        """Return whether a row has the formula, and the usual ratio of size and count."""
        usual = self._multiple  # None: the size tells nothing; 0: every size is 0
        if usual and sample.size != sample.unit * usual:
            return False
        if usual == 0 and sample.multiple < 0:  # one of them is not 0, or they do not divide
            return False
        return self.formula is None or self.formula.agrees(sample.size, sample.sides)


# ---------------------------------------------------------------- what all rows show


def conclude(
    record: Record, formula: Formula | None, ranks: int | None, findings: Iterable[Finding]
) -> None:
    """Add what all rows together show: the case, findings, and whether rows are missing.

    `formula`: None if the rows fit none. `ranks`: those of the table, if all are listed.
    """
    if record.case is None and formula is not None and record.points:
        if _are_of_all_reduce(record.points, formula, ranks):
            record.case = "all_reduce"
        else:
            record.findings.append(finding("test-unknown"))
    record.findings += findings
    if record.points and formula is None:
        record.findings.append(finding("row-arithmetic", "nccl"))
    missing = (found.meaning for found in record.findings if found.code in _INCOMPLETE)
    record.incomplete = next(missing, "")
    if ranks is None or formula is None or formula.bus is None:
        return
    formulas = [shape.of(ranks) for shape in _formulas_of(record.case)]
    if formula not in formulas:
        factor = format(formula.bus, ".4g")
        record.incomplete = (
            f"The busbw of the rows is {factor} x algbw, which is not that of {ranks} ranks: "
            "they are rows of another run."
        )


def findings(record: Record, notes: Mapping[str, Note], *, exact: bool) -> Iterator[Finding]:
    """Yield what rows and notes (kind → note) show.

    `exact`: figures are those of the JSON, with six decimals, and not of a table.
    """
    reducing = notes.get("reducing")
    if reducing is not None:
        size = format_size(int(reducing.value))
        yield finding("range-reduced", "nccl", line=reducing.line, size=size)
    rates = _rates(record.points)
    is_one_rank = record.facts.get("ranks") == 1 or _is_of_one_rank(rates)
    if record.points and is_one_rank:
        yield finding("one-rank", "nccl")
    sizes = {point.size for point in record.points}
    with_rates = {point.size for point in record.points if "busbw" in point.metrics}
    yield from unmeasured(sizes - with_rates)
    if record.facts.get("checked") == "no":
        yield _not_checked(notes.get("validation"))
    if record.finished and record.points and "sweep" in notes:
        yield from _missing_sizes(record.points, notes["sweep"], reducing)
    if "average" in notes:  # printed in GB/s, below the table
        gigabytes = [busbw / 1e9 for _, busbw in rates]
        yield from _check_average(gigabytes, notes["average"], exact=exact)


def _not_checked(validation: Note | None) -> Finding:
    if validation is not None and validation.value != "0":  # the iterations with a check (-c)
        return finding("checks-missing", line=validation.line)
    return finding("not-checked")


def gpu_shared(devices: Sequence["Device"]) -> Iterator[Finding]:
    """Yield a finding if two ranks have one GPU.

    With one visible GPU per rank each is device 0, and the number of a bus is not unique then.
    """
    # Hosts whose ranks see several GPUs, so that numbers tell these apart.
    numbered = {device.host for device in devices if device.number != "0"}
    rank_by_gpu: dict[tuple[str, ...], int] = {}
    for rank, _, host, _, number, bus, _ in devices:
        other = rank_by_gpu.setdefault((host, number, bus), rank)
        # A full PCI address is unique on its host; the bus alone only beside true numbers.
        if other != rank and (host in numbered or ":" in bus):
            yield finding(
                "gpu-shared", ranks=f"{other} and {rank}", number=number, bus=bus, host=host
            )
            return


def _rates(points: Sequence[Point]) -> Sequence[tuple[float, float]]:
    """Return algbw and busbw of the points that have them, behind their time, in bytes/s."""
    return [
        (point.values[1], point.values[2])
        for point in points
        if point.metrics[1:3] == ("algbw", "busbw")
    ]


def _is_of_one_rank(rates: Sequence[tuple[float, float]]) -> bool:
    """Return whether the busbw of fast rows is 0, as the factor of collectives is for one rank.

    That of slow ones may be rounded to 0.
    """
    fastest = max((algbw for algbw, _ in rates), default=0.0)
    # From 1 GB/s on, that of several ranks has at least 0.5 GB/s, which shows in two decimals.
    return fastest >= 1e9 and not any(busbw for _, busbw in rates)


_MOST_SIZES = 100_001  # of a sweep: more are not counted


def _missing_sizes(
    points: Sequence[Point], sweep: Note, reducing: Note | None
) -> Iterator[Finding]:
    """Yield a finding if there are fewer sizes than the sweep has.

    Sizes of gather-like collectives are rounded to a multiple of the ranks: only their number is
    certain. Sizes of 0 repeat, and two byte steps may be rounded to the same size.
    """
    *numbers, kind = sweep.value.split()  # `8 128 2 factor`
    first, last, step = map(int, numbers)
    if reducing is not None:
        last = min(last, int(reducing.value))
    by_factor = kind == "factor"
    planned: Sequence[int] = range(first, last + 1, step or 1)
    if by_factor:
        planned = powers(first, last, step)
    expected = len(planned[:_MOST_SIZES])  # more than that are not expected of any log
    sizes = [point.size for point in points]
    measured = len({*sizes} - {0})
    is_short = measured + sizes.count(0) < expected
    # Of a sweep by bytes, rows (at least one point each) are counted, as sizes may repeat.
    if is_short and (by_factor or len(sizes) < expected):
        yield finding(MISSING, "nccl", expected=expected, measured=measured)


def _check_average(busbws: Sequence[float], average: Note, *, exact: bool) -> Iterator[Finding]:
    """Yield a finding if the printed average is not the mean of both busbw columns, in GB/s.

    As far as their rounding shows.
    """
    stated = float(average.value)
    if not busbws or not math.isfinite(stated):
        return
    mean = math.fsum(busbws) / len(busbws)
    slack = 1e-6  # of the JSON: half of the sixth decimal of the rates, and that of the average
    if not exact:
        # Rates have two decimals as long as they fit, then four digits or more; the average six.
        half_of_a_rate = max(0.005, 5e-5 * max(busbws))
        slack = half_of_a_rate + max(1e-6, 5e-6 * stated)
    if abs(mean - stated) > slack * 1.0001:  # a little more, as floats are not exact
        printed = format(stated, "g")
        computed = format(mean, ".6g")
        yield finding(MISMATCH, line=average.line, printed=printed, computed=computed)


def _are_of_all_reduce(points: Sequence[Point], formula: Formula, ranks: int | None) -> bool:
    """Return whether rows can only be those of all_reduce: no other busbw is above algbw.

    That of two ranks is equal, as in sendrecv, whose data are not checked in place.
    """
    bus = formula.bus or 0.0
    # Of two ranks, both rates are the size divided by the time: the share of data is 1, too.
    may_be_two_ranks = bus == formula.share == 1 and ranks in {None, 2}
    if not may_be_two_ranks:
        return bus > 1
    labels = points[0].labels
    is_rooted = labels.get("root", "-1") != "-1"
    if is_rooted or labels.get("redop", "none") == "none":
        return False
    in_place = [point for point in points if point.labels.get("placement") == "in-place"]
    return any("wrong" in point.metrics for point in in_place)
