"""A stored sweep → what is said of it: its answer, and its page in a report."""

from collections import Counter
from collections.abc import Iterable

from fabbench.model.log import METRICS
from fabbench.model.units import format_time
from fabbench.report.heat_map import MOST_SVG_ROWS
from fabbench.report.page import RunPage
from fabbench.report.sweep_report import SweepReport
from fabbench.runs.store import StoredRun
from fabbench.runs.summary import summary
from fabbench.runs.sweep_store import StoredSweep, stored_sweep
from fabbench.sweep.analyze import diagnosis
from fabbench.sweep.fit import fit
from fabbench.sweep.matrix import matrix_of
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import SweepResult


def sweep_page(run: StoredRun) -> RunPage:
    """Return what a report says of a sweep. Raise MachineError where it cannot be read."""
    sweep = stored_sweep(run.path)
    document = sweep.document
    outcomes = Counter(each.outcome for each in sweep.tests)
    return RunPage(
        id=run.id,
        name=run.name,
        about=f"Sweep of {run.benchmark} on {run.target or 'an unknown target'}, {document.fabric}",
        created=format_time(run.created),
        outcomes=", ".join(f"{count} {each}" for each, count in outcomes.items()) or "none",
        gates=summary(run).gate,
        damage=[*run.damage, *sweep.damage],
        command=run.command_line,
        programs={},
        sweep=_report(sweep),
    )


def _report(sweep: StoredSweep) -> SweepReport | None:
    """Return the answer; None: no test has a figure."""
    document, results = sweep.document, [each.result for each in sweep.tests]
    if not any(each.figure for each in results):
        return None
    readings = Readings(METRICS[document.metric], document.nodes, group_of=document.group_of)
    return sweep_report(
        readings,
        results,
        tolerance=document.tolerance,
        confidence=document.confidence,
        rows=MOST_SVG_ROWS,
    )


def sweep_report(
    readings: Readings, results: Iterable[SweepResult], *, tolerance: float, confidence: float, rows: int
) -> SweepReport:
    """Return what results say, with a matrix of about so many rows. `readings` take the results."""
    for result in results:
        readings.add(result)
    found = fit(readings, tolerance=tolerance)
    said = diagnosis(readings, found, confidence=confidence)
    matrix = matrix_of(readings, found, said, most=rows)
    return SweepReport(diagnosis=said, metric=readings.metric, matrix=matrix)
