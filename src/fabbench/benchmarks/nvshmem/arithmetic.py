"""Whether rows of the perftests fit each other: size, latency, algbw and busbw; statistics in order. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    ANYTHING,
    GATHERING,
    SAME,
    Printed,
    RateCheck,
    Ratios,
    Shape,
    is_ordered,
    printed,
    ratios,
)
from fabbench.benchmarks.nvshmem import text
from fabbench.benchmarks.nvshmem.layouts import NvshmemRow

_SHAPES: Mapping[str, Sequence[Shape]] = {
    "reduction": (ALL_REDUCE,),
    "bcast": (SAME,),
    **dict.fromkeys(text.GATHERING, (GATHERING,)),
}
_ORDER = ("min", "mean", "max")


def contradictions(rows: Sequence[tuple[str | None, NvshmemRow]], ranks: int | None) -> Iterator[int]:
    """Yield the positions of rows, each with its job, whose figures contradict each other.

    `ranks`: the number of PEs, where all of them told theirs.
    """
    checks: dict[str, RateCheck[int]] = {}
    for at, (job, row) in enumerate(rows):
        found = _ratios(row)
        if not _is_ordered(row):
            yield at
        elif found is not None:
            checks.setdefault(text.collective(job), RateCheck()).fits(at, (found,))
    for kind, check in checks.items():
        yield from check.settle(_SHAPES.get(kind, (ALL_REDUCE, GATHERING, SAME)), ranks)


def _ratios(row: NvshmemRow) -> Ratios | None:
    """Return what the figures of a collective allow; None for any other row."""
    cells = {figure.metric: printed(figure.token) for figure in row.figures if not figure.labels}
    if not {"latency", "algbw", "busbw"} <= cells.keys():
        return None
    latency, algbw, busbw = cells["latency"], cells["algbw"].times(1e3), cells["busbw"].times(1e3)
    # A rate of GB/s is a thousand bytes in a microsecond.
    return ratios(row.size, latency if latency.value else ANYTHING, algbw, busbw)


def _is_ordered(row: NvshmemRow) -> bool:
    """Return whether the statistics of a row can be of one measurement."""
    main = next((figure.metric for figure in row.figures), "")
    found: dict[str, Printed] = {}
    for figure in row.figures:
        stat = dict(figure.labels).get("stat", "")
        if figure.metric == main and set(dict(figure.labels)) <= {"stat"}:
            found["mean" if stat in {"", "mean"} else stat] = printed(figure.token)
    return is_ordered(*(found[stat] for stat in _ORDER if stat in found))
