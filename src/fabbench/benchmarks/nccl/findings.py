"""What nccl-tests' figures say as a whole: findings, and whether the sweep and its average are complete. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.benchmarks.consistency import ALL_REDUCE, GATHERING, SAME, BandwidthFormula, Formula, note, warning
from fabbench.benchmarks.nccl.table import Table, shapes
from fabbench.model.log import Finding, Point, Record
from fabbench.model.units import format_size

MISSING, MISMATCH = "sizes-missing", "average-mismatch"  # findings that prove that the log is incomplete
_BY_LABELS: Mapping[tuple[bool, bool], Mapping[str, BandwidthFormula]] = {
    (True, False): {"all_reduce": ALL_REDUCE, "reduce_scatter": GATHERING, "sendrecv": SAME},
    (True, True): {"reduce": SAME},
    (False, True): {"broadcast": SAME, "scatter": GATHERING, "gather": GATHERING},
    (False, False): {"all_gather": GATHERING, "alltoall": GATHERING},
}
"""Whether rows have an operation, and a root → the collectives that print such rows."""
_ONE_SIDED = {"sendrecv", "alltoall"}  # their data are checked out of place only (nccl-tests' reportErrors)


@dataclass(slots=True)
class PrintedSweep:
    """The sweep that the banner announces, and later statements about it."""

    requested: tuple[int, int, int, str] | None = None  # minBytes, maxBytes, step, `factor` or `bytes`
    reduced: int = 0  # maxBytes after nccl-tests reduced it; 0: not reduced
    reduced_line: str = ""
    average: str = ""
    average_line: str = ""
    exact: bool = False  # whether figures have six decimals, as in JSON

    def note(self, kind: str, text: str, words: Sequence[str]) -> None:
        """Note a statement."""
        if kind == "config":
            self.requested = (int(words[0]), int(words[1]), int(words[2]), words[3])
        elif kind == "reducing":
            self.reduced, self.reduced_line = int(words[0]), text
        elif kind == "average":
            self.average, self.average_line = words[0], text


def place_facts(ranks: int, hosts: Sequence[str]) -> dict[str, str | int]:
    """Return where ranks ran. `hosts`: those of the ranks that the log lists."""
    names, facts = {*hosts}, dict[str, str | int]()
    if hosts:
        facts["ranks"] = ranks
    if hosts and len(hosts) == ranks:
        facts["hosts"] = len(names)
        facts |= {"gpus_per_host": ranks // len(names)} if ranks % len(names) == 0 else {}
    return facts


def conclude(record: Record, sweep: PrintedSweep, tables: Sequence[Table], ranks: int | None) -> None:
    """Add what all rows together show. `ranks`: those of the tables, if all are listed."""
    formula = next((table.formula for table in tables if table.formula is not None), None)
    known = [table.checked for table in tables if table.checked is not None]
    if known:
        record.facts["checked"] = "yes" if any(known) else "no"
    if record.case is None and record.points and formula is not None:
        record.case = _case_by_figures(record.points, formula, ranks)
    record.findings += _findings(record, sweep)
    if any(table.unexplained for table in tables):
        meaning = "The log does not name the collective, and the figures of its rows fit no known one."
        advice = "Keep the command line, or the line `Collective test starting`, in the log."
        record.findings.append(warning("row-arithmetic", meaning, advice))
    missing = (finding.meaning for finding in record.findings if finding.code in {MISSING, MISMATCH})
    record.incomplete = next(missing, "")
    known_formulas = {shape.of(ranks) for shape in shapes(record.case)} if ranks is not None else {formula}
    if formula is not None and formula.bus is not None and formula not in known_formulas:
        record.incomplete = (
            f"The busbw of the rows is {formula.bus:.4g} x algbw, which is not that of {ranks} ranks: "
            "they are rows of another run."
        )


def _findings(record: Record, sweep: PrintedSweep) -> Iterator[Finding]:
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
    if sweep.requested is not None and record.finished and record.points:
        yield from _missing(record.points, sweep.requested, sweep.reduced)
    yield from _average(record, sweep)


def _is_alone(record: Record) -> bool:
    """Return whether every busbw is 0, and an algbw is not: the factor of collectives is 0 for one rank."""
    if any(values[2] for _, _, names, values in record.points if names[2:3] == ("busbw",)):
        return False
    return any(values[1] >= 1e9 for _, _, names, values in record.points if names[1:3] == ("algbw", "busbw"))


def _missing(points: Sequence[Point], requested: tuple[int, int, int, str], reduced: int) -> Iterator[Finding]:
    # Sizes of gather-like collectives are rounded to a multiple of the ranks: only their number is certain.
    low, high, step, kind = requested
    expected, size, last = 0, low, min(high, reduced or high)
    if kind == "factor" and (step <= 1 or not low):
        return
    while size <= last and expected <= 100_000:
        expected += 1
        size = size * step if kind == "factor" else size + max(step, 1)
    sizes = [point.size for point in points]
    found = len({*sizes} - {0})
    # Sizes of 0 repeat, and two byte steps may be rounded to the same size.
    if found + sizes.count(0) < expected and (kind == "factor" or len(points) < expected):
        meaning = f"The sweep should have {expected} sizes, but the log has rows of {found}."
        yield warning(MISSING, meaning, "Check whether a pipe, a terminal or an editor dropped lines.")


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


def _case_by_figures(points: Sequence[Point], formula: Formula, ranks: int | None) -> str | None:
    """Return the collective that a table's rows can only be of; None if there are several."""
    labels = points[0].labels
    reduces, rooted = labels.get("redop", "none") != "none", labels.get("root", "-1") != "-1"
    checked = {point.labels.get("placement"): "wrong" in point.metrics for point in points}
    one_sided = checked.get("out-of-place") and not checked.get("in-place", True)
    fitting = [
        case
        for case, shape in _BY_LABELS[reduces, rooted].items()
        if shape.of(_implied(formula, shape) if ranks is None else ranks) == formula
        and not (one_sided if case not in _ONE_SIDED else checked.get("in-place", False))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _implied(formula: Formula, shape: BandwidthFormula) -> int:
    """Return the number of ranks for which a collective may have a formula."""
    top = {"n": 1, "2n": 2}.get(shape.bus, 0)
    return round(top / (top - formula.bus)) if formula.bus is not None and formula.bus < top else 2
