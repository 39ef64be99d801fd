"""What nccl-tests' figures say as a whole: findings, and whether the sweep and its average are complete. Pure."""

import math
from collections.abc import Iterator, Mapping

from fabbench.benchmarks.consistency import Formula, Ratios, note, warning
from fabbench.benchmarks.nccl.statements import Statement
from fabbench.benchmarks.nccl.table import COLLECTIVES, Table, shapes
from fabbench.model.log import Finding, Record
from fabbench.model.units import format_size

MISSING, MISMATCH = "sizes-missing", "average-mismatch"  # findings that prove that the log is incomplete


def conclude(record: Record, said: Mapping[str, Statement], table: Table, ranks: int | None) -> None:
    """Add what all rows together show. `said`: the statements; `ranks`: those of the table, if all are listed."""
    formula = table.formula
    if table.checked is not None:
        record.facts["checked"] = "yes" if table.checked else "no"
    if record.case is None and record.points and formula is not None:
        record.case = _case_by_figures(record, formula, ranks)
    record.findings += _findings(record, said, exact=table.layout.check == "exact")
    if record.points and formula is None:
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


def _findings(record: Record, said: Mapping[str, Statement], *, exact: bool) -> Iterator[Finding]:
    if (reduced := said.get("reducing")) is not None:
        size = format_size(int(reduced.words[0]))
        meaning = f"nccl-tests ended the sweep below {size}, less than requested because memory ran out."
        advice = "Choose sizes that fit (-e), or free GPU memory; the exit status does not show this."
        yield warning("range-reduced", meaning, advice, line=reduced.text)
    # The factor of collectives is 0 for one rank.
    rates = [point.values[1:3] for point in record.points if point.metrics[1:3] == ("algbw", "busbw")]
    alone = max(rates, default=(0.0, 0.0))[0] >= 1e9 and not any(bus for _, bus in rates)
    if record.points and (record.facts.get("ranks") == 1 or alone):
        meaning = "One rank only: busbw is 0 by definition, and nothing went over a fabric."
        advice = "Start more ranks, and build nccl-tests with MPI=1 for more than one host."
        yield warning("one-rank", meaning, advice)
    if record.facts.get("checked") == "no":
        meaning = "The data were not checked (-c 0): `0 OK` in the footer says nothing."
        yield note("not-checked", meaning, "Run with -c 1 once.")
    if record.finished and record.points and "config" in said:
        yield from _missing(record, said)
    if "average" in said:
        yield from _average(record, said["average"], exact=exact)


def _missing(record: Record, said: Mapping[str, Statement]) -> Iterator[Finding]:
    # Sizes of gather-like collectives are rounded to a multiple of the ranks: only their number is certain.
    low, high, step = map(int, said["config"].words[:3])
    by_factor = said["config"].words[3] == "factor"
    last = min(high, int(said["reducing"].words[0])) if "reducing" in said else high
    expected, size = 0, low
    if by_factor and (step <= 1 or not low):
        return
    while size <= last and expected <= 100_000:
        expected += 1
        size = size * step if by_factor else size + max(step, 1)
    sizes = [point.size for point in record.points]
    found = len({*sizes} - {0})
    # Sizes of 0 repeat, and two byte steps may be rounded to the same size.
    if found + sizes.count(0) < expected and (by_factor or len(sizes) < expected):
        meaning = f"The sweep should have {expected} sizes, but the log has rows of {found}."
        yield warning(MISSING, meaning, "Check whether a pipe, a terminal or an editor dropped lines.")


def _average(record: Record, average: Statement, *, exact: bool) -> Iterator[Finding]:
    """Compare the printed average with the mean of both busbw columns, as far as their rounding allows."""
    try:
        stated = float(average.words[0])
    except ValueError:
        return
    known = [point.values[2] / 1e9 for point in record.points if point.metrics[2:3] == ("busbw",)]
    if not known or not math.isfinite(stated):
        return
    mean = math.fsum(known) / len(known)
    # Half of the last digit: two decimals as long as they fit, then four or five digits, and two from 1e6 on.
    halves = (0.005 if rate < 999.995 else rate * (5e-5 if rate < 1e6 else 0.05) for rate in known)
    slack = 0.5e-6 if exact else math.fsum(halves) / len(known)
    # The average has six digits (%g), without trailing zeros.
    digits = 0.5e-6 if exact else 0.5 * 10.0 ** (math.floor(math.log10(stated)) - 5) if stated else 1e-6
    if abs(mean - stated) > (slack + digits) * 1.0001:
        meaning = f"The printed average is {stated:g} GB/s, but that of the rows is {mean:.6g} GB/s"
        yield warning(MISMATCH, f"{meaning}: rows are missing or were altered.", line=average.text)


def _case_by_figures(record: Record, formula: Formula, ranks: int | None) -> str | None:
    """Return the collective that a table's rows can only be of; None if there are several."""
    labels = record.points[0].labels
    kind = (labels.get("redop", "none") != "none", labels.get("root", "-1") != "-1")
    checked = {point.labels.get("placement"): "wrong" in point.metrics for point in record.points}
    stated, (share, bus) = [ranks] if ranks is not None else [], (each or 0.0 for each in formula)
    exact = Ratios(share, share, bus, bus)
    one_sided = checked.get("out-of-place") and not checked.get("in-place", True)
    fitting = [
        case
        for case, (known, reduces, rooted, in_place_checked) in COLLECTIVES.items()
        if (reduces, rooted) == kind
        and any(each.of(number) == formula for each in known for number in stated or each.candidates(exact))
        and not (one_sided if in_place_checked else checked.get("in-place", False))
    ]
    return fitting[0] if len(fitting) == 1 else None
