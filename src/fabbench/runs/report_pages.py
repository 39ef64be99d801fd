"""Stored runs, sweeps and logs → what is shown of them.

Comparisons, NIC traffic, pages and sections of a report.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, compare
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.progress import ALLOWED
from fabbench.counters.execution_counters import total
from fabbench.hosts.check.one_host import FACTS
from fabbench.model.errors import Exit, FabbenchError, RequestError
from fabbench.model.hosts import Host
from fabbench.model.log import Log, status_of
from fabbench.model.mappings import distinct
from fabbench.model.messages import listed, tally
from fabbench.model.plan import Command, Execution
from fabbench.model.units import Sizes, format_time
from fabbench.report import nics_table
from fabbench.report.page import RunPage, RunSection, comparison_page, run_section
from fabbench.report.sweep_report import MAX_SVG_ROWS, SweepReport
from fabbench.report.table import Cells, Table, picked
from fabbench.runs.document import TestResult, readable
from fabbench.runs.execute import Notify
from fabbench.runs.inputs import on_cores
from fabbench.runs.load_columns import columns_within, stored_columns
from fabbench.runs.store import PLAN, StoredRun, StoredSweep, stored_sweep
from fabbench.runs.summary import outcomes_of
from fabbench.runs.sweep import readings_of, unfinished
from fabbench.sweep.analyze import diagnosis
from fabbench.sweep.fit import fit
from fabbench.sweep.matrix import matrix_of
from fabbench.sweep.readings import Readings

_RATES = ("busbw", "bandwidth")
_TIMES = ("latency", "time")
"""Metrics that a report plots besides the usual one: the first of each kind, a rate or a time."""
stored_comparison = partial(compare, allow=ALLOWED, only_ok=True)
"""Compares the configurations of one run."""


def nic_tables(run: StoredRun) -> Iterator[Table]:
    """Yield a table of NIC traffic per configuration, of all its executions; none without any."""
    for configuration in run.configurations:
        label = configuration.label
        executions = [each.id for each in run.executions if each.configuration == label]
        counted = list(filter(None, map(run.counters, executions)))
        moved, notes = total(counted)
        if moved:
            several = f", {len(counted)} executions" if len(counted) > 1 else ""
            table = nics_table.table(moved, title=f"NICs: {label}{several}")
            yield replace(table, notes=[*table.notes, *notes])


# ---------------------------------------------------------------- a page


def run_page(run: StoredRun, metric: str | None = None, sizes: Sizes | None = None) -> RunPage:
    """Return the page of a run or a sweep in a report, as far as it can be read."""
    target = run.target or "an unknown target"
    what = f"{run.benchmark} on {target}"
    # Field of the page = attribute of the run
    known = picked(run, "id", "name", hosts="document.hosts", command="command_line")
    known["created"] = format_time(run.created)
    if run.sweep is not None:
        sweep = stored_sweep(run)
        not_tested = "" if run.verdict is not None else unfinished(sweep)
        return RunPage(
            **known,
            about=f"Sweep of {what}, {run.sweep.fabric}",
            outcomes=_outcomes(run, sweep.tests),
            damage=sweep.damage,
            sweep=_report_of_stored(sweep, not_tested),
        )
    columns = stored_columns(run)
    comparisons: list[Comparison] = []
    damage = list(run.damage)
    try:
        if columns:
            comparisons = _comparisons(columns_within(columns, sizes), metric, stored_comparison)
    except FabbenchError as error:
        damage.append(str(error))
    return RunPage(
        **known,
        about=what,
        outcomes=_outcomes(run, [log for execution in run.executions for log in execution.logs]),
        gates=run.gates,
        breaches=run.verdict.breaches if run.verdict else (),
        damage=damage,
        comparisons=comparisons,
        nics=list(nic_tables(run)),
        nodes=list(node_tables(run)),
        programs=_programs(run),
    )


def _outcomes(run: StoredRun, ended: Iterable[Log | TestResult]) -> str:
    return tally(outcomes_of(run, ended)) or "none"


def logs_pages(
    inputs: Sequence[str],
    page: Callable[[Sequence[str]], RunPage],
    notify: Notify,
) -> list[RunPage]:
    """Return the page that compares inputs, such as logs, as `fabbench compare` does.

    If they cannot be compared, a page of each. `page` is `logs_page` with all that is known of
    them. An input that cannot be shown alone either is left out; raise FabbenchError if all are.
    """
    if not inputs:
        return []
    try:
        return [page(inputs)]
    except RequestError as error:
        if len(inputs) == 1:
            raise
        notify(f"{error} Each has its own section.")
    return _page_of_each(inputs, page, notify)


def _page_of_each(
    inputs: Sequence[str],
    page: Callable[[Sequence[str]], RunPage],
    notify: Notify,
) -> list[RunPage]:
    """Return the pages of those that can be shown; raise FabbenchError if none can."""
    pages: list[RunPage] = []
    for each in inputs:
        try:
            pages.append(page([each]))
        except RequestError as error:
            if each is inputs[-1] and not pages:  # none could be shown: the last one says why
                raise
            notify(f"Left out: {each}: {error}")
    return pages


def logs_page(
    inputs: Sequence[str],
    *,
    read: Callable[..., Sequence[Column]],
    metric: str | None,
    sizes: Sizes | None,
    judge: Callable[[Comparison], Verdict | None],
) -> RunPage:
    """Return the page that compares what is `read` of inputs, with what gates `judge` of it."""
    columns = columns_within(read(*inputs), sizes)
    # The configurations of one input count as those of one plan, whose endpoints may differ.
    how = partial(compare, allow=ALLOWED if len(inputs) == 1 else ())
    comparisons = _comparisons(columns, metric, how)
    page = comparison_page(comparisons[0], judge(comparisons[0]))
    return replace(page, comparisons=comparisons)


def _comparisons(
    columns: Sequence[Column], metric: str | None, how: Callable[..., Comparison]
) -> list[Comparison]:
    """Compare by the usual metric, then by one of the other kind.

    A rate besides a time, or vice versa.
    """
    usual = how(columns, metric=metric)
    measured = {name for _, rows in usual.inputs for name in rows.metrics()}
    is_rate = any(each.unit == "B/s" for each in usual.metrics)
    for name in _TIMES if is_rate else _RATES:
        if name in measured:
            return [usual, how(columns, metric=name)]
    return [usual]


def node_tables(run: StoredRun) -> Iterator[Table]:
    """Yield what is recorded of a run's nodes."""
    hosts = [_node_cells(host) for host in run.document.hosts]
    if hosts:
        image = [f"Image: {run.image}."] if run.image else []
        header = ("Node", "Type", "GPUs", "RDMA devices", "Topology", "Versions")
        yield Table(title="Nodes", header=header, rows=hosts, align="llrlll", notes=image)


def _node_cells(host: Host) -> Cells:
    """Return a node's name, type, GPUs, NICs, how devices are attached, and versions.

    What is not known is "-".
    """
    devices = [f"{name} ({kind})" for name, kind in host.devices.items()]
    versions = [f"{name} {version}" for name, version in host.versions.items()]
    summaries = [(fact.name, fact.summary(host.topology)) for fact in FACTS]
    topology = [f"{name}: {text}" for name, text in summaries if text]
    cells = (
        host.name,
        host.instance_type,
        str(host.gpus or ""),
        listed(devices, limit=8),
        "; ".join(topology),
        ", ".join(versions),
    )
    return tuple(text or "-" for text in cells)


def _programs(run: StoredRun) -> dict[str, Sequence[str]]:
    """Return the command lines of each configuration. Damage is reported elsewhere."""
    commands: dict[str, Sequence[str]] = {}
    for execution in run.executions:
        if execution.configuration not in commands:
            planned = readable(execution.path / PLAN, Execution)
            if planned:
                commands[execution.configuration] = _command_lines(planned)
    return commands


def _command_lines(execution: Execution) -> Sequence[str]:
    commands = [command for step in execution.steps for command in step.commands]
    return distinct(map(_command_line, commands))


def _command_line(command: Command) -> str:
    env = (f"{name}={shlex.quote(value)}" for name, value in command.env.items())
    return " ".join([*env, shlex.join(command.argv)])


# ---------------------------------------------------------------- sweeps, and sections of many runs


def _report_of_stored(sweep: StoredSweep, not_tested: str) -> SweepReport | None:
    """Return what a sweep found; None if no test has a figure."""
    document = sweep.document
    results = sweep.results
    if not any(each.is_measured for each in results):
        return None
    readings = readings_of(document, results)
    return sweep_report(readings, document, rows=MAX_SVG_ROWS, unfinished=not_tested)


def sweep_report(readings: Readings, how: Any, *, rows: int, **more: Any) -> SweepReport:
    """Diagnose what was read, with a matrix of about `rows` rows.

    `how` has the tolerance and the confidence.
    """
    fitted = fit(readings, tolerance=how.tolerance)
    diagnosed = diagnosis(readings, fitted, confidence=how.confidence)
    matrix = matrix_of(readings, fitted, diagnosed, max_rows=rows)
    return SweepReport(diagnosis=diagnosed, metric=readings.metric, matrix=matrix, **more)


_RUNS_AT_ONCE = 8  # Runs that a process gets at once
_MAX_RUNS = 100  # Browsers would take long to open a page with more


class StoredSection(NamedTuple):
    """A run as a section of a report, and its problems."""

    section: RunSection
    path: Path
    damage: Sequence[str]
    status: Exit


def stored_sections(
    runs: Sequence[Path],
    metric: str | None = None,
    sizes: Sizes | None = None,
    *,
    first: int = 1,
    cores: int | None = None,
) -> Iterator[StoredSection]:
    """Return an iterator of the sections of runs in order, numbered from `first`.

    Raise RequestError.
    """
    if len(runs) > _MAX_RUNS:
        hint = "Name fewer; `fabbench history METRIC -o history.html` is a page of all."
        raise RequestError(f"A page has {_MAX_RUNS} runs at most, not {len(runs)}.", hint=hint)
    if len(runs) == 1:
        run = StoredRun(runs[0])
        if run.sweep is None:
            # Raises for a run without these sizes; of several runs, its section says so.
            columns_within(stored_columns(run), sizes)
    numbers = range(first, first + len(runs))
    return on_cores(
        partial(_section_of_run, metric, sizes), runs, numbers, cores=cores, chunk=_RUNS_AT_ONCE
    )


def _section_of_run(
    metric: str | None, sizes: Sizes | None, path: Path, number: int
) -> StoredSection:
    # `metric` and `sizes` are what the user asked for (None: the usual, all); `number` is from 1.
    run = StoredRun(path)
    asked = metric is not None or sizes is not None
    if asked and run.sweep is not None:
        raise RequestError(
            f"{run.id} is a sweep: --metric and --size have no effect.", hint="Leave them out."
        )
    page = run_page(run, metric, sizes)
    outcomes = {log.outcome for execution in run.executions for log in execution.logs}
    measured = outcomes or page.sweep  # what was not measured is not trusted
    status = status_of(outcomes) if measured else Exit.UNTRUSTED
    # That its configurations cannot be compared is no damage of a run.
    damage = page.damage if run.sweep else run.damage
    return StoredSection(run_section(page, number), path, damage, status)
