"""``fabbench show``."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.options import takes
from fabbench.cli.output import COMPARED, results
from fabbench.cli.report import write_page
from fabbench.model.errors import Exit, RequestError
from fabbench.model.messages import counted

if TYPE_CHECKING:
    from fabbench.analysis.aggregate import Column
    from fabbench.runs.store import StoredRun


@click.command()
@click.argument("named", metavar="[RUN|LOG]", default="last", shell_complete=complete_run)
@click.option("--from-job", type=click.IntRange(1), metavar="ID", help="Show what a Slurm job printed, not a run.")
@click.option("--login", metavar="HOST", help="Slurm login node of --from-job (ssh host). Default: this machine.")
@results(COMPARED, "How to write its comparison; json also has the executions.")
@takes("metric", "sizes", "store")
def command(named: str, form: str, metric: str | None, sizes: range | None, store: Path, **job: Any) -> None:
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
        _show_columns(columns, form, metric, sizes)
    runs = whole_runs(named, store)
    if len(runs) != 1:
        _show_columns(load(named, store=store), form, metric, sizes)
    if form == "html":
        raise click.exceptions.Exit(write_page(runs, metric, sizes))
    run = StoredRun(runs[0])
    (_show_run if run.sweep is None else _show_sweep)(run, form, metric, sizes)


def _show_run(stored: "StoredRun", form: str, metric: str | None, sizes: range | None) -> None:
    from fabbench.report import render_comparison
    from fabbench.report.json_contract import to_json
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
        click.echo(to_json(document), nl=False)
    elif comparison is not None:
        terminal.print_comparison(comparison, form, logs=logs)
    elif readable:
        click.echo("Nothing was measured.")
    if readable:
        _write_tables(stored, form)
    for sentence in stored.damage:
        terminal.notify(f"{stored.path.name} is damaged: {sentence}")
    if stored.damage or not any(execution.logs for execution in stored.executions):
        raise click.exceptions.Exit(Exit.REFUSED if stored.damage else Exit.UNTRUSTED)


def _show_columns(columns: "Sequence[Column]", form: str, metric: str | None, sizes: range | None) -> NoReturn:
    from fabbench.analysis.compare import compare
    from fabbench.runs.load_columns import columns_within

    comparison = compare(columns_within(columns, sizes), metric=metric, allow=("endpoint",))
    terminal.print_comparison(comparison, form)
    raise click.exceptions.Exit(comparison.status)


def _show_sweep(run: "StoredRun", form: str, metric: str | None, sizes: range | None) -> None:
    from fabbench.cli.sweep_answer import AnswerOptions
    from fabbench.cli.sweep_command import print_sweep
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
    for sentence in sweep.damage:
        terminal.notify(f"{run.path.name} is damaged: {sentence}")
    if sweep.damage:
        raise click.exceptions.Exit(Exit.REFUSED)


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
