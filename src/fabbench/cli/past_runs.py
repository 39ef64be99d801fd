"""Commands about the runs of a store: ``runs``, ``show``, ``history``."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.commands import SuggestingGroup
from fabbench.cli.options import FILTERS, results, takes, written_age
from fabbench.model.errors import Exit, RequestError
from fabbench.model.formats import FORMATS
from fabbench.model.mappings import Names, distinct, without_none
from fabbench.model.messages import listed, tally
from fabbench.model.units import Sizes, format_time

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.counters.execution_counters import ExecutionCounters
    from fabbench.logs.signs import Unread
    from fabbench.model.log import Log
    from fabbench.report.table import Cells, Table
    from fabbench.runs.store import StoredRun
    from fabbench.runs.summary import FullSummary, Summary


_HEADER = [
    "ID",
    "NAME",
    "BENCHMARK",
    "TARGET",
    "NODES",
    "CONFIGURATIONS",
    "SIZES",
    "PEAK",
    "GATE",
    "WHEN",
    "OUTCOME",
]
_OPTIONAL_COLUMNS = frozenset({"NAME", "GATE"})  # Left out if they are empty for all runs
_ENDS_WITH_FABBENCH = frozenset({"local", "ssh"})  # Launchers whose programs do
_MAX_CONFIGURATIONS = 2  # Configurations that a row of the table names


@click.group("runs", cls=SuggestingGroup, invoke_without_command=True)
@takes("store", *FILTERS, "since")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Only the newest N runs. (In `run`, -n is --iterations.)",
)
@results("list", "How to write the list.")
@click.pass_context
def runs(
    ctx: click.Context,
    /,
    store: Path,
    limit: int | None,
    form: str,
    **filters: Any,
) -> None:
    """List past runs, the newest first.

    `fabbench show ID` prints one, `fabbench runs rm` removes some. Certificates of `accept` and
    watches are among them. PEAK is the best value of the first configuration.

    Example: fabbench runs --benchmark nccl --since 7d
    """
    from fabbench.report.table import Overview, render_overview
    from fabbench.runs.directories import is_readable

    if ctx.invoked_subcommand is not None:
        return
    chosen = _runs_and_documents(store, **filters)[:limit]
    table = _table_of_runs(chosen, form)
    if chosen or form != "text":
        records = [_run_record(store, run) for run in chosen]
        terminal.show(render_overview, Overview(name="runs", table=table, records=records), form)
    elif not is_readable(store):
        terminal.say(f"No runs: {store} is no directory that can be read.")
    elif any(filters.values()):
        terminal.say(f"No run in {store} matches.")
    else:
        terminal.say(f"No runs in {store}.")
    for run in chosen:
        terminal.say_damage(run.path, run.damaged)


@runs.command("rm", short_help="Remove runs from the store.")
@click.argument("refs", metavar="[RUN]...", nargs=-1, type=click.Path())
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="Remove all but the newest N runs."
)
@takes("older_than", "yes", "store")
def remove(
    refs: Names,
    keep: int | None,
    older_than: timedelta | None,
    store: Path,
    *,
    yes: bool,
) -> Exit:
    """Remove runs from the store: those named, or those that --keep and --older-than select.

    With both, a run has to be older, and not among the newest N. A run in progress is kept.
    Certificates and watches are removed like runs. What runs have left in a cluster is removed by
    `fabbench clean`.

    Example: fabbench runs rm --keep 20 --yes
    """
    from fabbench.runs.documents import document_path
    from fabbench.runs.inputs import open_run
    from fabbench.runs.store import StoredRun, in_progress, remove_run

    # Either runs are named, or options select them; not both, and not neither.
    if bool(refs) == (keep is not None or older_than is not None):
        raise RequestError(
            "Name the runs to remove, or pass --keep or --older-than: one of these.",
            hint="--keep 0 removes all.",
        )
    selected = [
        document_path(store, reference) or open_run(reference, store).path for reference in refs
    ]
    if not refs:
        least = timedelta.min if older_than is None else older_than  # `min`: all
        # All but the newest `keep`, and of these the ones that are old enough
        rest = _runs_and_documents(store)[keep or 0 :]
        selected = [store / each.path for each in rest if _age(each) > least]
    paths = []
    for path in distinct(selected):  # a run may be named twice
        if path.is_dir() and in_progress(StoredRun(path)):
            terminal.say(f"{path.name} may be in progress, and is kept.")
        else:
            terminal.say(path.stem)
            paths.append(path)
    if not paths:
        terminal.say("Nothing to remove.")
        return Exit.FINE
    return terminal.remove(
        paths, lambda each: list(map(remove_run, each)), "Pass --yes to remove them.", yes=yes
    )


def _runs_and_documents(store: Path, **filters: Any) -> "list[Summary]":
    """Return the runs, certificates and watches of a store that match, newest first."""
    from fabbench.runs.documents import document_summaries

    matching = [*_matching_runs(store, **filters)]
    matching += _matching_runs(store, document_summaries(store), **filters)
    return sorted(matching, key=attrgetter("created"), reverse=True)


def _matching_runs(
    store: Path,
    among: Iterable["Summary"] | None = None,
    *,
    since: timedelta | None = None,
    figures: bool = False,
    **wanted: str | None,
) -> Iterator["Summary"]:
    """Yield the runs of a store that match, newest first; or those `among` some.

    `wanted`: attribute → value; `figures`: with what `history` needs of each run.
    """
    from fabbench.runs.summary import summaries

    given = without_none(wanted)
    if among is None:
        among = summaries(store, terminal.files_progress, figures=figures)
    for run in among:
        of_run = {name: getattr(run, name) for name in given}
        if of_run == given and (since is None or _age(run) <= since):
            yield run


def _age(run: "Summary") -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(run.created)


def _table_of_runs(runs: Sequence["Summary"], form: str) -> "Table":
    """Return a row for each run, without optional columns that would be empty."""
    from fabbench.report.table import Table

    rows = [_run_row(run, form) for run in runs]
    kept = [
        index
        for index, name in enumerate(_HEADER)
        if name not in _OPTIONAL_COLUMNS or any(row[index] for row in rows)
    ]
    header = [_HEADER[index] for index in kept]
    cells = [[row[index] or "-" for index in kept] for row in rows]
    return Table(header=header, rows=cells, keys=1, ruled=False)  # The key is the ID


def _run_row(run: "Summary", form: str) -> "Cells":
    """Return the cells of `_HEADER`: a table has short ones, the other formats whole ones."""
    is_table = form == "text"
    configurations = ", ".join(run.arms)
    if is_table and len(run.arms) > _MAX_CONFIGURATIONS:
        configurations = listed(run.arms, limit=1)
    outcomes = [tally(run.outcomes), "damaged" if run.damaged else ""]
    return (
        run.id,
        run.name,
        run.benchmark,
        run.target,
        str(len(run.hosts) or ""),
        configurations,
        run.sizes,
        run.peak,
        run.gate,
        written_age(_age(run)) if is_table else format_time(run.created),
        ", ".join(filter(None, outcomes)),
    )


_DATED = {"log": "the log", "name": "the file name", "mtime": "the file's last change"}
"""What the time of a log is from, in words."""
_SUMMARY_FIELDS = ("benchmark", "target", "hosts", "arms", "created", "sizes")
_RESULT_FIELDS = ("peak", "gate", "outcomes", "damaged")


def _run_record(store: Path, run: "Summary") -> dict[str, object]:
    from fabbench.report.table import picked

    # As --format json has it: the path so that it can be opened from here
    path = str(store / run.path)
    record: dict[str, object] = {"id": run.id, "name": run.name, "path": path}
    return record | picked(run, *_SUMMARY_FIELDS, *_RESULT_FIELDS)


@click.command("show")
@click.argument("named", metavar="[RUN|LOG]", default="last", type=click.Path())
@results("comparison", "How to write its comparison; json also has the executions.")
@takes("metric", "sizes", "store")
def show(
    named: str,
    form: str,
    metric: str | None,
    sizes: Sizes | None,
    store: Path,
) -> Exit:
    """Print a run: its request, executions, outcomes, comparison, nodes and NICs.

    RUN is a directory, an id, the beginning or the end of one, or `last` (the default). Results are
    read again from the benchmark's own output, even if the run was stopped. The id of a certificate
    or a watch prints what `fabbench accept` or `watch` found. Of anything else that `compare` takes
    (a log, RUN:CONFIG, a table of results), the comparison is printed.
    """
    from fabbench.analysis.compare import compare
    from fabbench.runs.inputs import whole_runs
    from fabbench.runs.load_columns import columns_within, load
    from fabbench.runs.store import StoredRun

    status = terminal.show_document(named, store, form)
    if status is not None:
        return status
    runs = whole_runs(named, store)
    if len(runs) != 1:  # a log, a table, RUN:CONFIG, or several: only compared
        columns = columns_within(load(named, store=store), sizes)
        # Fabrics may differ in the type of endpoint that suits each
        comparison = compare(columns, metric=metric, allow=("endpoint",))
        terminal.print_comparison(comparison, form)
        return comparison.status
    if form == "html":
        return terminal.write_page(runs, metric, sizes)
    run = StoredRun(runs[0])
    if run.sweep is not None:
        return _show_sweep(run, form, metric, sizes)
    return _show_run(run, form, metric, sizes)


def _show_run(stored: "StoredRun", form: str, metric: str | None, sizes: Sizes | None) -> Exit:
    from fabbench.runs.load_columns import columns_within, stored_columns
    from fabbench.runs.report_pages import stored_comparison

    columns = stored_columns(stored)
    comparison = None
    if columns:
        comparison = stored_comparison(columns_within(columns, sizes), metric=metric)
    if form == "json":
        terminal.write_json(_run_document(stored, comparison))
    elif form in {"markdown", "text"}:
        _write_readable(stored, comparison, form)
    elif comparison is not None:
        terminal.print_comparison(comparison, form)
    _say_what_may_go_on(stored)
    measured = any(execution.logs for execution in stored.executions)
    damaged = terminal.say_damage(stored.path.name, stored.damage)
    if damaged:  # a status other than 0
        return damaged
    return Exit.FINE if measured else Exit.UNTRUSTED


def _say_what_may_go_on(run: "StoredRun") -> None:
    """Say where to look for a job that a killed fabbench has left."""
    from fabbench.runs.store import is_unfinished

    where = run.request.where.get("launcher", "local")
    if where not in _ENDS_WITH_FABBENCH and is_unfinished(run):
        terminal.notify(
            f"Not finished: if fabbench was killed, its job (fabbench-…) may still wait or run in "
            f"{where}. The commands of {where} end it; `fabbench clean` finds those of Slurm and "
            "Kubernetes."
        )


def _write_readable(run: "StoredRun", comparison: "Comparison | None", form: str) -> None:
    """Write what a run is, its comparison, and its nodes and NICs."""
    from fabbench.report.table import to_markdown, to_terminal
    from fabbench.report.templates import template
    from fabbench.runs.report_pages import nic_tables, node_tables

    about = template("show.txt").render(run=run, executions=_execution_records(run))
    for line in about.splitlines():
        terminal.write_line(line)
    if comparison is not None:
        terminal.print_comparison(comparison, form)
    else:
        click.echo("Nothing was measured.")
    for table in (*node_tables(run), *nic_tables(run)):
        text = to_markdown(table)
        if form == "text":
            text = terminal.drawn(to_terminal, [table])
        terminal.write_drawn(f"\n{text}")


def _run_document(run: "StoredRun", comparison: "Comparison | None") -> dict[str, Any]:
    from fabbench.report import render_comparison
    from fabbench.report.table import picked
    from fabbench.runs.document import plain

    about = picked(run, "created", "name", "command", "request")
    compared = None  # Nothing was measured
    if comparison is not None:
        compared = json.loads(render_comparison(comparison, "json"))
    return {
        "format": 1,
        "id": run.id,
        "path": str(run.path),
        **plain(about),
        "executions": list(_execution_records(run)),
        "damaged": list(run.damage),
        "comparison": compared,
    }


def _show_sweep(run: "StoredRun", form: str, metric: str | None, sizes: Sizes | None) -> Exit:
    from fabbench.cli.sweep_command import DiagnosisOptions, print_sweep
    from fabbench.runs.store import stored_sweep

    if form not in FORMATS["sweep"] or metric or sizes:
        formats = ", ".join(FORMATS["sweep"])
        raise RequestError(
            f"{run.id} is a sweep: it has no --metric and no --size, and is written as {formats}.",
            hint=f"fabbench show {run.id} prints it.",
        )
    sweep = stored_sweep(run)
    if run.command and form in {"markdown", "text"}:
        terminal.write_line(f"$ {run.command_line}")
        click.echo()
    # Its status is not that of `show`. A sweep that has ended has a verdict: all was tested
    print_sweep(sweep, DiagnosisOptions(form=form), whole=run.verdict is not None)
    return terminal.say_damage(run.path.name, sweep.damage)


def _execution_records(run: "StoredRun") -> Iterator[dict[str, Any]]:
    from fabbench.report.table import picked

    for execution in run.executions:
        counters = run.counters(execution.id)
        yield {
            **picked(execution, "id", "begun", "finished"),
            "arm": execution.configuration,
            "logs": [_log_record(log) for log in execution.logs],
            "nics": [] if counters is None else list(_nic_records(counters)),
        }


def _log_record(log: "Log") -> dict[str, Any]:
    from fabbench.report.table import picked

    findings = [f"{finding.severity}: {finding.meaning}" for finding in log.findings]
    sizes = {point.size for point in log.points}
    about = picked(log, "outcome", "reason", "facts")
    return {**about, "sizes": len(sizes), "findings": findings}


def _nic_records(counters: "ExecutionCounters") -> Iterator[dict[str, Any]]:
    from fabbench.report.table import picked

    of_fabric = counters.of_fabric(counters.traffic())  # Without NICs that do not carry it
    for host, traffic in of_fabric.items():
        for nic in traffic.nics:
            yield {
                "host": host,
                **picked(nic, "kind", nic="name", tx_bytes="tx", rx_bytes="rx"),
                "seconds": traffic.seconds,
            }


@click.command("history")
@click.argument("metric", metavar="METRIC[@SIZES]")
@click.argument("inputs", metavar="[LOG]...", nargs=-1, type=click.Path())
@takes("where", "since", "sizes", "store")
@results("history")
def show_history(metric: str, sizes: Sizes | None, form: str, store: Path, **chosen: Any) -> Exit:
    """Show how a metric changed over the runs of a store, or over logs, and with which run.

    Runs of the same benchmark, options, configuration, target, number and types of nodes are one
    series. It has the median of each run's repeats that are ok: at SIZES, or the best of all sizes
    or of those of --size. LOG is a file, or a directory of them, and counts as a run: a log's time
    is that of the first line with one, else the date in its path, else the file's last change. A
    change of level is reported with its first run, and with what else changed then: versions,
    image, nodes, environment; or as a slow drift. In 200 runs without a change, looked at after
    each, the chance that one is ever reported is 5% at most, if neighboring runs correlate by at
    most 0.7, or 0.5 with some outliers.

    -o history.html is a page with a plot for each series.

    Example: fabbench history busbw@1G --where name=nightly

    Example: fabbench history busbw nights/*.log
    """
    from fabbench.report.history_report import headline, render_history
    from fabbench.runs.history import history, parse_metric, parse_where

    name, sizes = parse_metric(metric, sizes)
    filters = parse_where(chosen["where"])
    left_out: list[Unread] = []
    # None: runs of the store are shown. Empty: no file that was named is a good log
    logs = _dated_logs(chosen["inputs"], store, left_out) if chosen["inputs"] else None
    runs = list(_matching_runs(store, logs, since=chosen["since"], figures=True))
    result = history(runs, name, sizes, filters)
    for run in runs:
        terminal.say_damage(run.path, run.damaged, ", and left out")
    if logs and runs and not (result.series or filters):
        raise RequestError(f"No log has {metric}.", hint="`fabbench parse LOG` shows what it has.")
    if not result.series and logs != []:
        terminal.notify(f"No run in {store} matches." if logs is None else "No log matches.")
    if result.series or form in {"csv", "json"}:
        terminal.show(render_history, result, form, answer=[headline(result)])
    status = terminal.say_unread(left_out)
    # Each log is left out because of its outcome
    return Exit.UNTRUSTED if logs == [] and status is Exit.FINE else status


def _dated_logs(names: Sequence[str], store: Path, left_out: "list[Unread]") -> "list[FullSummary]":
    """Return log files as runs, and say what their times are from; others are `left_out`."""
    from fabbench.logs.signs import none_found
    from fabbench.runs.inputs import sources_of
    from fabbench.runs.log_summaries import log_summaries

    logs = log_summaries(sources_of(names, store), left_out)
    for dated, words in _DATED.items():
        files = [log.id for log in logs if log.dated == dated]
        if files:
            terminal.notify(f"Time from {words}: {listed(files)}.")
    if not (logs or left_out):  # As of a directory whose files are of no benchmark
        left_out += none_found(names, ())
    return logs
