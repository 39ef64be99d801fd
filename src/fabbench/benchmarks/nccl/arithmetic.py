"""Whether rows of nccl-tests are consistent: size, count and type, time, algbw and busbw. Pure.

The formulas by program, with the source lines that define them: docs/formats.md.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from fabbench.benchmarks.consistency import ALL_REDUCE, GATHERING, SAME, BandwidthFormula, Formula, RateCheck, Ratios
from fabbench.model.log import Point

_OLD, _UNSIZED = BandwidthFormula("n", "1"), BandwidthFormula("", "n")
_SHAPES: Mapping[str, tuple[BandwidthFormula, ...]] = {
    "all_reduce": (ALL_REDUCE,),
    # Up to 2.0.0 one rank's own share was not counted.
    "all_gather": (GATHERING, _OLD),
    "reduce_scatter": (GATHERING, _OLD),
    "alltoall": (GATHERING,),
    "scatter": (GATHERING,),
    "gather": (GATHERING,),
    "broadcast": (SAME,),
    "reduce": (SAME,),
    "sendrecv": (SAME,),
    "hypercube": (_OLD,),
    # The bytes are those of the rank with the most data: the size does not determine them.
    "alltoallv": (_UNSIZED,),
}
_ALL = (ALL_REDUCE, GATHERING, SAME, _OLD)

R = TypeVar("R")


class TableArithmetic(Generic[R]):
    """Checks the rows of one table against the formula of their collective. R is the type of a row."""

    def __init__(self) -> None:
        self.multiple = 0  # the size as a multiple of the count's bytes; 0: unknown
        self.rates: RateCheck[int] = RateCheck()
        self._rows: list[tuple[R, int]] = []  # rows until the formula is settled, with their multiples
        self._uneven = False
        self.unexplained = False  # whether there were rows that fit no known formula

    def fits(self, row: R, size: int, unit: int, ratios: Sequence[Ratios]) -> bool:
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


def is_of_ranks(formula: Formula, case: str | None, ranks: int) -> bool:
    """Return whether a table's formula is that of its collective (None: of any) on this number of ranks."""
    return formula.bus is None or formula in {shape.of(ranks) for shape in _SHAPES.get(case or "", _ALL)}


_BY_LABELS: Mapping[tuple[bool, bool], Mapping[str, BandwidthFormula]] = {
    (True, False): {"all_reduce": ALL_REDUCE, "reduce_scatter": GATHERING, "sendrecv": SAME},
    (True, True): {"reduce": SAME},
    (False, True): {"broadcast": SAME, "scatter": GATHERING, "gather": GATHERING},
    (False, False): {"all_gather": GATHERING, "alltoall": GATHERING},
}
"""Whether rows have an operation, and a root → the collectives that print such rows."""
_ONE_SIDED = {"sendrecv", "alltoall"}  # their data are checked out of place only (nccl-tests' reportErrors)


def case_by_figures(points: Sequence[Point], formula: Formula, ranks: int | None) -> str | None:
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


def _implied(formula: Formula, shape: BandwidthFormula) -> tuple[int, ...]:
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
