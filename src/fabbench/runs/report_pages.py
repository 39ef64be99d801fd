"""Stored runs and sweeps → their pages and sections in a report; many are made on all cores."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS
from fabbench.model.units import format_time
from fabbench.report.page import RunPage, RunSection, run_section
from fabbench.report.svg import MAX_ROWS
from fabbench.report.sweep_report import SweepReport
from fabbench.runs.load_columns import columns_within, stored_columns
from fabbench.runs.parse_on_cores import on_cores
from fabbench.runs.store import StoredRun
from fabbench.runs.stored_results import run_page
from fabbench.runs.sweep_store import StoredSweep, stored_sweep
from fabbench.runs.sweep_tests import unfinished
from fabbench.sweep.analyze import diagnosis
from fabbench.sweep.fit import fit
from fabbench.sweep.matrix import matrix_of
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import SweepResult


def sweep_page(run: StoredRun) -> RunPage:
    """Return the page of a sweep in a report. Raise MachineError if the sweep cannot be read."""
    sweep = stored_sweep(run)
    outcomes = Counter(each.outcome for each in sweep.tests)
    return RunPage(
        id=run.id,
        name=run.name,
        about=f"Sweep of {run.benchmark} on {run.target or 'an unknown target'}, {sweep.document.fabric}",
        created=format_time(run.created),
        outcomes=", ".join(f"{count} {each}" for each, count in outcomes.items()) or "none",
        damage=[*run.damage, *sweep.damage],
        command=run.command_line,
        sweep=_report(sweep, "" if run.verdict is not None else unfinished(sweep)),
    )


def _report(sweep: StoredSweep, left: str) -> SweepReport | None:
    document, results = sweep.document, sweep.results
    if not any(each.figure for each in results):
        return None
    readings = Readings(METRICS[document.metric], document.nodes, group_of=document.group_of)
    report = sweep_report(
        readings, results, tolerance=document.tolerance, confidence=document.confidence, rows=MAX_ROWS
    )
    return replace(report, unfinished=left)


def sweep_report(
    readings: Readings, results: Iterable[SweepResult], *, tolerance: float, confidence: float, rows: int
) -> SweepReport:
    """Diagnose results, with a matrix of about `rows` rows. The results are added to `readings`."""
    for result in results:
        readings.add(result)
    fitted = fit(readings, tolerance=tolerance)
    diagnosed = diagnosis(readings, fitted, confidence=confidence)
    matrix = matrix_of(readings, fitted, diagnosed, max_rows=rows)
    return SweepReport(diagnosis=diagnosed, metric=readings.metric, matrix=matrix)


_CHUNK = 8
MANY = 100
"""With more runs, a page has one metric each, as browsers would take long to open it."""
BRIEF = f"Of more than {MANY} runs one metric each is shown, the usual one or that of --metric."


class StoredSection(NamedTuple):
    """A run as a section of a report, and its problems."""

    section: RunSection
    path: Path
    damage: Sequence[str]
    measured: bool  # any log


def stored_sections(
    runs: Sequence[Path],
    metric: str | None = None,
    sizes: range | None = None,
    *,
    first: int = 1,
    cores: int | None = None,
) -> Iterator[StoredSection]:
    """Return an iterator of the sections of runs in order, numbered from `first`."""
    if len(runs) == 1 and (run := StoredRun(runs[0])).sweep is None:
        columns_within(stored_columns(run), sizes)  # of several, a section says that it has none
    render = partial(_section, metric, sizes, brief=len(runs) > MANY)
    numbers = range(first, first + len(runs))
    return on_cores(render, runs, numbers, cores=cores, chunk=_CHUNK)


def _section(metric: str | None, sizes: range | None, path: Path, number: int, *, brief: bool) -> StoredSection:
    run = StoredRun(path)
    if run.sweep is not None:
        if metric is not None or sizes is not None:
            raise RequestError(f"{run.id} is a sweep: --metric and --size have no effect.", hint="Leave them out.")
        page = sweep_page(run)
        return StoredSection(run_section(page, number), path, page.damage, page.sweep is not None)
    section = run_section(run_page(run, metric, sizes, brief=brief), number)
    return StoredSection(section, path, run.damage, any(execution.logs for execution in run.executions))
