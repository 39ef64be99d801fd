"""Commands about the runs of a store: ``runs``, ``show``, ``history``, ``baseline``."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.commands import SuggestingGroup, complete_run
from fabbench.cli.options import COMPARED, FILTERS, LISTED, output_file, results, takes, written_age
from fabbench.model.errors import Exit, RequestError, worst
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_time

if TYPE_CHECKING:
    from fabbench.analysis.aggregate import Column
    from fabbench.runs.store import StoredRun
    from fabbench.runs.summary import Summary


_HEADER = (
    *("ID", "NAME", "FOLDER", "BENCHMARK", "TARGET", "NODES"),
    *("CONFIGURATIONS", "SIZES", "PEAK", "GATE", "WHEN", "OUTCOME"),
)
_OPTIONAL = frozenset({"NAME", "FOLDER", "GATE"})  # Columns that are left out if they are empty for all runs
_SPARE = ("FOLDER", "NODES", "SIZES", "TARGET", "NAME", "BENCHMARK", "GATE")  # Left out where there is no room


@click.group("runs", cls=SuggestingGroup, invoke_without_command=True)
@takes("store", *FILTERS, "since", "wide")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Only the newest N runs.")
@results(LISTED, "How to write the list.")
@click.pass_context
def runs(ctx: click.Context, /, store: Path, limit: int | None, form: str, *, wide: bool, **filters: Any) -> None:
    """List past runs, the newest first. `fabbench show ID` prints one, `fabbench runs rm` removes some.

    PEAK is the best value of the first configuration.

    Example: fabbench runs --benchmark nccl --since 7d
    """
    from fabbench.report.table import Overview, Table

    if ctx.invoked_subcommand is not None:
        return
    chosen = list(islice(_chosen(store, **filters), limit))
    columns = zip(_HEADER, *(_row(run, form) for run in chosen), strict=True)
    shown = [column for column in columns if column[0] not in _OPTIONAL or any(column[1:])]
    header, *rows = ([cell or "-" for cell in row] for row in zip(*shown, strict=True))
    empty = f"No run in {store} matches." if any(filters.values()) else f"No runs in {store}."
    table = Table(header=header, rows=rows, ruled=False)
    records = [_record(store, run) for run in chosen]
    overview = Overview(name="runs", table=table, records=records)
    terminal.print_list(overview, form, empty, spare=_SPARE, wide=wide)
    for run in chosen:
        terminal.say_damage(run.path, run.damaged)


@runs.command("rm", short_help="Remove runs from the store.")
@click.argument("refs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@takes("store", *FILTERS)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Remove all but the newest N runs.")
@takes("older_than", "yes")
def remove(
    refs: tuple[str, ...], store: Path, keep: int | None, older_than: timedelta | None, *, yes: bool, **filters: Any
) -> Exit:
    """Remove runs from the store: those named, or those that --keep and --older-than select.

    With both, a run has to be older, and not among the newest N. A run in progress is kept. What runs have
    left in a cluster is removed by `fabbench clean`.

    Example: fabbench runs rm --keep 20 --yes
    """
    from fabbench.runs.inputs import open_runs
    from fabbench.runs.store import StoredRun, remove_run

    if bool(refs) == (keep is not None or older_than is not None) or (refs and any(filters.values())):
        raise RequestError("Name the runs to remove, or pass --keep or --older-than.", hint="--keep 0 removes all.")
    if refs:
        found = list({run.path: run for run in open_runs(refs, store)}.values())
    else:
        rest = islice(_chosen(store, **filters), keep or 0, None)
        found = [StoredRun(store / run.path) for run in rest if older_than is None or _age(run) > older_than]
    found = list(_removable(found, store))
    if not found:
        terminal.say("Nothing to remove.")
        return Exit.FINE
    for run in found:
        terminal.say(f"{run.id}  {run.benchmark}  {format_time(run.created)}")
    paths = [run.path for run in found]
    return terminal.remove(paths, lambda each: list(map(remove_run, each)), "Pass --yes to remove them.", yes=yes)


@runs.command("export", short_help="Write what runs measured as CSV, JSON lines or Parquet.")
@click.argument("refs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@takes("store", *FILTERS, "since")
@results(("csv", "jsonl", "parquet"), "Format: CSV, a JSON object per line, or Parquet.")
def export(refs: tuple[str, ...], store: Path, form: str, **filters: Any) -> Exit:
    """Write what runs measured, one row per sample, in base units: all runs, or those named or chosen.

    Samples of executions that are not ok are written too, with their outcome. A damaged run is left out, and
    the exit status is 3. Parquet needs -o, and pyarrow (fabbench[parquet]).

    Example: fabbench runs export --benchmark nccl --since 30d -o nccl.csv
    """
    from fabbench.runs.export import csv_pieces, json_lines, write_parquet
    from fabbench.runs.inputs import open_runs
    from fabbench.runs.store import StoredRun
    from fabbench.runs.sweep_store import require_executions

    if refs and any(filters.values()):
        raise RequestError("Give run ids or filters, not both.", hint="Leave one of them out.")
    found = [require_executions(run) for run in open_runs(refs, store)] or [
        StoredRun(store / run.path) for run in _chosen(store, **filters)
    ]
    damaged = [run for run in found if run.damage]
    sound = [run for run in found if not run.damage]
    file = output_file(click.get_current_context())
    if form == "parquet" and file is not None:
        write_parquet(sound, file)
    else:
        sys.stdout.writelines(json_lines(sound) if form == "jsonl" else csv_pieces(sound))
    return worst(*(terminal.say_damage(run.path.name, run.damage[:1], ", and was left out") for run in damaged))


def _removable(found: Sequence["StoredRun"], store: Path) -> Iterator["StoredRun"]:
    """Yield the runs that may be removed, and print why others are kept."""
    from fabbench.runs.baselines import baselines
    from fabbench.runs.store import in_progress

    named = {each.folder(store).resolve(): each.name for each in baselines(store)}
    for run in found:
        name = named.get(run.path.resolve())
        if in_progress(run.path):
            terminal.say(f"{run.id} may be in progress, and is kept.")
        elif name is not None:
            terminal.say(f"{run.id} is the baseline {name}, and is kept.")
        else:
            yield run


def _chosen(store: Path, *, since: timedelta | None = None, **wanted: str | None) -> Iterator["Summary"]:
    """Yield the runs of a store that match, newest first."""
    from fabbench.runs.summary import summaries

    for run in summaries(store, terminal.files_progress):
        known = {"benchmark": run.setup.benchmark, "target": run.setup.target, "name": run.name}
        named = all(value is None or value == known[name] for name, value in wanted.items())
        if named and (since is None or _age(run) <= since):
            yield run


def _age(run: "Summary") -> timedelta:
    """Return how old a run is, by the time in its name."""
    return datetime.now(UTC) - datetime.fromisoformat(run.path.rpartition("/")[2].partition("-")[0])


def _row(run: "Summary", form: str) -> tuple[str, ...]:
    labels = [configuration.label for configuration in run.setup.configurations]
    return (
        run.id,
        run.name,
        run.folder,
        run.setup.benchmark,
        run.setup.target,
        str(len(run.setup.hosts) or ""),
        ", ".join(labels) if form != "table" or len(labels) < 3 else listed(labels, 1),
        run.sizes,
        run.peak,
        run.gate,
        written_age(_age(run)) if form == "table" else format_time(run.created),
        ", ".join((*(f"{count} {each}" for each, count in run.outcomes.items()), *["damaged"][: len(run.damaged)])),
    )


def _record(store: Path, run: "Summary") -> dict[str, object]:
    setup, path = run.setup, str(store / run.path)
    about = {"benchmark": setup.benchmark, "target": setup.target, "hosts": list(setup.hosts)}
    arms = [configuration.label for configuration in setup.configurations]
    own = {name: getattr(run, name) for name in ("created", "sizes", "peak", "gate", "outcomes", "damaged")}
    return {"id": run.id, "name": run.name, "path": path, **about, "arms": arms, **own}


@click.command("show")
@click.argument("named", metavar="[RUN|LOG]", default="last", shell_complete=complete_run)
@click.option("--from-job", type=click.IntRange(1), metavar="ID", help="Show what a Slurm job printed, not a run.")
@click.option("--login", metavar="HOST", help="Slurm login node of --from-job (ssh host). Default: this machine.")
@results(COMPARED, "How to write its comparison; json also has the executions.")
@takes("metric", "sizes", "store")
def show(named: str, form: str, metric: str | None, sizes: range | None, store: Path, **job: Any) -> Exit:
    """Print a run: what was requested, its executions and their outcomes, its comparison, nodes and NICs.

    RUN is a directory, an id, the beginning or the end of one, or `last` (the default). Results are read again from the
    benchmark's own output, even if the run was stopped. A Slurm job outlives a killed `fabbench run`: --from-job.
    Of anything else that `compare` takes (a log, RUN:CONFIG, a table of results), the comparison is printed.
    """
    from fabbench.runs.inputs import whole_runs
    from fabbench.runs.load_columns import load, load_job
    from fabbench.runs.store import StoredRun

    if job["login"] and not job["from_job"]:
        raise RequestError("--login has no effect without --from-job.", hint="Leave it out, or add --from-job ID.")
    if job["from_job"]:
        state, columns = load_job(str(job["from_job"]), job["login"])
        terminal.notify(state)
        return _show_columns(columns, form, metric, sizes)
    runs = whole_runs(named, store)
    if len(runs) != 1:
        return _show_columns(load(named, store=store), form, metric, sizes)
    if form == "html":
        return terminal.write_page(runs, metric, sizes)
    run = StoredRun(runs[0])
    return (_show_run if run.sweep is None else _show_sweep)(run, form, metric, sizes)


def _show_run(stored: "StoredRun", form: str, metric: str | None, sizes: range | None) -> Exit:
    from fabbench.report import render_comparison
    from fabbench.runs.document import plain
    from fabbench.runs.load_columns import columns_within, stored_columns
    from fabbench.runs.report_pages import stored_comparison

    columns = stored_columns(stored)
    comparison = stored_comparison(columns_within(columns, sizes), metric) if columns else None
    logs = {column.label: column.logs for column in columns}
    readable = form in {"markdown", "terminal"}
    for line in _described(stored) if readable else ():
        terminal.write_line(line)
    if form == "json":
        document = {
            "format": 1,
            "id": stored.id,
            "path": str(stored.path),
            **{name: plain(getattr(stored, name)) for name in ("created", "name", "command", "request")},
            "executions": list(_executions(stored)),
            "damaged": list(stored.damage),
            "comparison": comparison and json.loads(render_comparison(comparison, form, configurations=logs)),
        }
        terminal.write_json(document)
    elif comparison is not None:
        terminal.print_comparison(comparison, form, logs=logs)
    elif readable:
        click.echo("Nothing was measured.")
    if readable:
        _write_tables(stored, form)
    measured = any(execution.logs for execution in stored.executions)
    return terminal.say_damage(stored.path.name, stored.damage) or (Exit.FINE if measured else Exit.UNTRUSTED)


def _show_columns(columns: "Sequence[Column]", form: str, metric: str | None, sizes: range | None) -> Exit:
    from fabbench.analysis.compare import compare
    from fabbench.runs.load_columns import columns_within

    comparison = compare(columns_within(columns, sizes), metric=metric, allow=("endpoint",))
    terminal.print_comparison(comparison, form)
    return comparison.status


def _show_sweep(run: "StoredRun", form: str, metric: str | None, sizes: range | None) -> Exit:
    from fabbench.cli.sweep_command import AnswerOptions, print_sweep
    from fabbench.report.sweep_report import FORMATS
    from fabbench.runs.sweep_store import stored_sweep

    if form not in FORMATS:
        raise RequestError(f"{run.id} is a sweep: --format {form} has no effect.", hint=f"One of {', '.join(FORMATS)}.")
    for flag in (flag for flag, value in (("--metric", metric), ("--size", sizes)) if value is not None):
        raise RequestError(f"{run.id} is a sweep: {flag} has no effect.", hint="Leave it out.")
    sweep = stored_sweep(run)
    if run.command and form in {"markdown", "terminal"}:
        terminal.write_line(f"$ {run.command_line}")
        click.echo()
    print_sweep(sweep, AnswerOptions(form=form), whole=run.verdict is not None)
    return terminal.say_damage(run.path.name, sweep.damage)


def _executions(run: "StoredRun") -> Iterator[dict[str, Any]]:
    for execution in run.executions:
        yield {
            **{name: getattr(execution, name) for name in ("id", "begun", "finished")},
            "arm": execution.configuration,
            "logs": [
                {
                    **{name: getattr(log, name) for name in ("outcome", "reason", "facts")},
                    "sizes": len({point.size for point in log.points}),
                    "findings": [f"{finding.severity}: {finding.meaning}" for finding in log.findings],
                }
                for log in execution.logs
            ],
            "nics": list(_moved(run, execution.id)),
        }


def _described(run: "StoredRun") -> Iterator[str]:
    hosts, target = ", ".join(run.hosts) or "unknown", run.target or "unknown"
    yield from [f"$ {run.command_line}"] if run.command else []
    named = f" {run.name!r}" if run.name else ""
    yield f"Run {run.id}{named}: {run.benchmark} on {target} ({hosts}), {run.created}"
    yield from [f"Image: {run.image}"] if run.image else []
    yield f"Configurations: {', '.join(map(str, run.configurations))}"
    yield from (f"Variant {name}: {variant}" for name, variant in run.variants.items())
    yield f"Options: {' '.join(_words(run)) or 'none'}"
    yield f"Directory: {run.path}"
    yield ""
    for execution in _executions(run):
        if not execution["begun"]:
            yield f"{execution['id']}: not begun"
        shown: set[str] = set()  # what the NICs show is in every log of an execution
        for log in execution["logs"]:
            reason = f": {log['reason']}" if log["reason"] else ""
            yield f"{execution['id']}: {log['outcome']}{reason} ({counted(log['sizes'], 'size')})"
            yield from (f"  {finding}" for finding in log["findings"] if finding not in shown)
            shown.update(log["findings"])
    yield ""


def _words(run: "StoredRun") -> Iterator[str]:
    """Yield the benchmark's options as they are typed; of a sweep of sizes and sizes, those that apply."""
    from fabbench.benchmarks import runnable
    from fabbench.model.options import declared

    try:
        known = declared(runnable(run.benchmark).work_type() or object)
    except RequestError:  # a plug-in that is not here
        known = {}
    for name, value in run.options.items():
        swept = name in {"min_bytes", "max_bytes", "factor"} and run.options.get("sizes")
        flag = known[name].long if name in known else f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif value not in (None, "", [], False) and not swept:
            values = value.split(",") if name == "sizes" else value if isinstance(value, list) else [value]
            yield from (f"{flag} {each:g}" if isinstance(each, float) else f"{flag} {each}" for each in values)


def _moved(run: "StoredRun", execution: str) -> Iterator[dict[str, Any]]:
    """Yield what each NIC of the fabric moved in an execution, in base units; null: not known."""
    from fabbench.runs.report_pages import counters_of

    counted = counters_of(run, execution)
    for host, traffic in counted.of_fabric(counted.traffic()).items() if counted else ():
        for nic in traffic.nics:
            moved = {"tx_bytes": nic.tx, "rx_bytes": nic.rx, "seconds": traffic.seconds}
            yield {"host": host, "nic": nic.name, "kind": nic.kind, **moved}


def _write_tables(run: "StoredRun", form: str) -> None:
    from fabbench.report.table import to_markdown, to_terminal
    from fabbench.runs.report_pages import nic_tables, node_tables

    for table in (*node_tables(run), *nic_tables(run)):
        drawn = terminal.drawn(to_terminal, [table]) if form == "terminal" else to_markdown(table)
        terminal.write_drawn(f"\n{drawn}")


@click.command("history")
@click.argument("metric", metavar="METRIC[@SIZE]")
@takes("where", "since", "sizes", "store", "wide")
@results(("markdown", "csv", "json", "html", "terminal"))
def show_history(metric: str, sizes: range | None, form: str, store: Path, **chosen: Any) -> None:
    """Show how a metric changed over the runs of a store, and with which run.

    Runs of the same benchmark, options, configuration, target, number and types of nodes are one series. It
    has the median of each run's repeats that are ok: at SIZE, or the best of all sizes or of those of --size.
    A change of level is reported with its first run, and with what else changed then: versions, image, nodes,
    environment; or as a slow drift. In 200 runs without a change, looked at after each, the chance that one is
    ever reported is 5% at most, if neighboring runs correlate by at most 0.8, or 0.5 with some outliers.

    -o history.html is a page with a plot for each series.

    Example: fabbench history busbw@1G --where name=nightly
    """
    from fabbench.report.history_report import NAMED, history_table, render_history
    from fabbench.runs.history import history, parse_metric, parse_where
    from fabbench.runs.summary import summaries

    name, sizes = parse_metric(metric, sizes)
    filters = parse_where(chosen["where"])
    since: timedelta | None = chosen["since"]
    every = summaries(store, terminal.files_progress, figures=True)
    runs = [run for run in every if since is None or _age(run) <= since]
    result = history(runs, name, sizes, filters)
    for run in runs:
        terminal.say_damage(run.path, run.damaged, ", and left out")
    if not result.series:
        terminal.notify(f"No run in {store} matches.")
        if form in {"markdown", "terminal", "html"}:
            return
    if form == "terminal":
        table = history_table(result)
        terminal.print_table(table, (*NAMED, *result.distinguishing(NAMED))[::-1], wide=chosen["wide"])
    else:
        terminal.show(render_history, result, form)


@click.group("baseline", cls=SuggestingGroup)
def baseline() -> None:
    """Name runs that others are compared with: `--baseline NAME` of `run` and `compare`.

    `--baseline last-good` needs no name: it is the newest earlier run of the same benchmark, options,
    target, nodes and configuration whose executions are all ok and whose gates passed.
    """


@baseline.command("set", short_help="Name a run.")
@click.argument("name", metavar="NAME")
@click.argument("run", metavar="RUN", shell_complete=complete_run)
@takes("store")
def set_(name: str, run: str, store: Path) -> None:
    """Name a run, or move a name to another run. `fabbench runs rm` keeps runs that have one.

    Example: fabbench baseline set nccl-2.27 last
    """
    from fabbench.runs.baselines import set_baseline

    baseline = set_baseline(name, run, store)
    terminal.say(f"Baseline {name}: {baseline.run}")


@baseline.command("list", short_help="List baselines.")
@results(LISTED, "How to write the list.")
@takes("store")
def list_(form: str, store: Path) -> None:
    """List the names and the runs that they stand for."""
    from fabbench.report.table import Overview, Table
    from fabbench.runs.baselines import baselines

    known = list(baselines(store))
    records = [{"name": each.name, "run": each.run, "exists": each.is_there(store)} for each in known]
    rows = [(each.name, each.run + "  (removed)" * (not each.is_there(store))) for each in known]
    table = Table(header=("NAME", "RUN"), rows=rows, ruled=False)
    overview = Overview(name="baselines", table=table, records=records)
    terminal.print_list(overview, form, f"No baselines in {store}.")


@baseline.command("rm", short_help="Forget names.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@takes("store")
def forget(names: tuple[str, ...], store: Path) -> None:
    """Forget names. The runs stay."""
    from fabbench.runs.baselines import remove_baseline

    for name in names:
        remove_baseline(name, store)
