"""A stored run → what is shown of it: its comparison, NIC traffic, and page in a report."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import ColumnSummary, Comparison, compare
from fabbench.analysis.footnotes import versions_of
from fabbench.counters.execution_counters import ExecutionCounters, total
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.log import Log
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Configuration
from fabbench.model.units import format_sizes, format_time
from fabbench.report import nics_table
from fabbench.report.table import Table
from fabbench.runs.document import decode, read
from fabbench.runs.folders import VERDICT
from fabbench.runs.parse_file import within
from fabbench.runs.store import StoredExecution, StoredRun
from fabbench.runs.summary import gate_of, outcomes

if TYPE_CHECKING:
    from fabbench.report.page import RunPage

_OTHER_METRICS = ("busbw", "bandwidth", "latency", "time")
"""Metrics that a report plots besides the usual one: the first of each kind, a rate or a time."""
_MAX_PROGRAMS = 12


def stored_column(run: StoredRun, configuration: Configuration, logs: Sequence[Log]) -> Column:
    """Return a configuration of a run as a column. Its verdicts keep the significance level of the run."""
    return Column(
        label=configuration.label,
        logs=tuple(logs),
        source=f"run {run.id}",
        variant=run.variant(configuration),
        max_repeats=run.max_repeats,
    )


def stored_columns(run: StoredRun) -> list[Column]:
    """Return the configurations of a run with results."""
    measured = ((each, run.logs(each.label)) for each in run.configurations)
    return [stored_column(run, configuration, logs) for configuration, logs in measured if logs]


def columns_within(columns: Sequence[Column], sizes: range | None) -> list[Column]:
    """Return columns with the rows of some sizes; None: of all. Raise RequestError if none has any."""
    found = [replace(each, logs=tuple(within(log, sizes) for log in each.logs)) for each in columns]
    if sizes is not None and not any(log.points for each in found for log in each.logs):
        known = format_sizes(point.size for each in columns for log in each.logs for point in log.points)
        raise RequestError("Nothing was measured at the sizes of --size.", hint=f"Measured: {known or 'nothing'}.")
    return found


def stored_comparison(columns: Sequence[Column], metric: str | None = None) -> Comparison:
    """Compare the configurations of one run. Raise RequestError."""
    return compare(columns, metric=metric, allow=("endpoint",), only_ok=True)


def counters_of(run: StoredRun, execution: str) -> ExecutionCounters | None:
    """Read the counters of an execution. Damaged ones are a finding of its logs, and ignored here."""
    try:
        return run.counters(execution)
    except MachineError:
        return None


def nic_tables(run: StoredRun) -> Iterator[Table]:
    """Yield a table of NIC traffic per configuration; none without counters."""
    for configuration in run.configurations:
        own = [each.id for each in run.executions if each.configuration == configuration.label]
        known = [counters for execution in own if (counters := counters_of(run, execution))]
        moved, notes = total(known)
        if moved:
            several = f", {len(known)} executions" if len(known) > 1 else ""
            table = nics_table.table(moved, title=f"NICs: {configuration.label}{several}")
            yield replace(table, notes=[*table.notes, *notes])


# ---------------------------------------------------------------- a page


def run_page(
    run: StoredRun, metric: str | None = None, sizes: range | None = None, *, brief: bool = False
) -> "RunPage":
    """Return the page of a run in a report, as far as it can be read; `brief`: with one metric only."""
    from fabbench.report.page import RunPage

    columns, damage = columns_within(stored_columns(run), sizes), list(run.damage)
    comparisons: list[Comparison] = []
    try:
        if columns:
            comparisons = [stored_comparison(columns, metric)] if brief else _comparisons(columns, metric)
    except FabbenchError as error:
        damage.append(str(error))
    summaries = comparisons[0].columns if comparisons else ()
    return RunPage(
        id=run.id,
        name=run.name,
        about=f"{run.benchmark} on {run.target or 'an unknown target'}",
        created=format_time(run.created),
        outcomes=", ".join(f"{count} {each}" for each, count in outcomes(run).items()) or "none",
        gates=gate_of(run),
        breaches=_breaches(run),
        damage=damage,
        comparisons=comparisons,
        nics=list(nic_tables(run)),
        nodes=list(_nodes(run, summaries)),
        command=run.command_line,
        programs=_programs(run),
    )


def _breaches(run: StoredRun) -> tuple[str, ...]:
    if run.verdict is None:
        return ()
    breaches = read(run.path / VERDICT).get("breaches")
    return tuple(map(str, breaches)) if isinstance(breaches, list) else ()


def _comparisons(columns: Sequence[Column], metric: str | None) -> list[Comparison]:
    """Compare by the usual metric, then by one of the other kind: a rate besides a time, or vice versa."""
    usual = stored_comparison(columns, metric)
    known = {name for _, rows in usual.inputs for name in rows.metrics()}
    rate = any(each.unit == "B/s" for each in usual.metrics)
    other = [name for name in _OTHER_METRICS if name in known and (name in {"latency", "time"}) is rate]
    return [usual, *(stored_comparison(columns, name) for name in other[:1])]


def _nodes(run: StoredRun, columns: Sequence[ColumnSummary]) -> Iterator[Table]:
    listed_hosts = run.document.get("hosts")
    known = listed_hosts if isinstance(listed_hosts, list) else []
    hosts = [_node(host) for host in known if isinstance(host, dict)]
    if hosts:
        image = [f"Image: {run.image}."] if run.image else []
        header = ("Node", "Type", "GPUs", "RDMA devices", "Versions")
        yield Table(title="Nodes", header=header, rows=hosts, align="llrll", notes=image)
    stated = ((column, name) for column in columns for name in versions_of(column))
    versions = [(column.label, name, "/".join(map(str, column.facts[name]))) for column, name in stated]
    if versions:
        title = "Versions, as the logs state them"
        yield Table(title=title, header=("Configuration", "Library", "Version"), rows=versions)


def _node(host: Mapping[str, Any]) -> tuple[str, ...]:
    devices, versions = (host.get(key) for key in ("devices", "versions"))
    kinds = devices if isinstance(devices, dict) else {}
    known = versions if isinstance(versions, dict) else {}
    return (
        str(host.get("name") or "unknown"),
        str(host.get("instance_type") or "-"),
        str(host.get("gpus") or "-"),
        listed([f"{name} ({kind})" for name, kind in kinds.items()], 8) or "-",
        ", ".join(f"{name} {version}" for name, version in known.items()) or "-",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredCommand:
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredStep:
    commands: tuple[_StoredCommand, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredSteps:
    steps: tuple[_StoredStep, ...] = ()


def _programs(run: StoredRun) -> dict[str, Sequence[str]]:
    """Return the programs that each configuration's first execution started."""
    first: dict[str, StoredExecution] = {}
    for execution in run.executions:
        if execution.begun:
            first.setdefault(execution.configuration, execution)
    return {label: lines for label, execution in first.items() if (lines := _command_lines(execution))}


def _command_lines(execution: StoredExecution) -> list[str]:
    try:
        plan = decode(_StoredSteps, read(execution.path / "plan.json"), f"exec/{execution.id}/plan.json")
    except MachineError:
        return []  # reported in the run's damage
    lines = [
        " ".join((*(f"{name}={shlex.quote(value)}" for name, value in each.env.items()), shlex.join(each.argv)))
        for step in plan.steps
        for each in step.commands
    ]
    lines = list(dict.fromkeys(lines))
    more = len(lines) - _MAX_PROGRAMS
    return [*lines[:_MAX_PROGRAMS], *([f"# and {counted(more, 'more command')}"] if more > 0 else [])]
