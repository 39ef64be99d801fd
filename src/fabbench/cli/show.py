"""``fabbench show``."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import options
from fabbench.errors import Exit, MachineError

if TYPE_CHECKING:
    from fabbench.counters.around import Around
    from fabbench.report.table import Table
    from fabbench.store import StoredRun


@click.command(short_help="Print a past run.")
@click.argument("run", metavar="RUN", default="last")
@options.form(options.COMPARED, "How to write its comparison; json also has the executions.")
@click.option("--metric", help="What the table compares. Chosen from the benchmark if not given.")
@options.store
def command(run: str, form: str, metric: str | None, store: Path) -> None:
    """Print a run: what was asked for, each execution and what came of it, and the comparison of its arms.

    RUN is a directory, an id, the beginning or the end of one, or `last`. What is printed is read again from
    the benchmark's own output, also where the run was stopped.
    """
    from fabbench.store import open_run

    stored = open_run(run, store)
    compared = _compared(stored, form, metric)
    if form == "json":
        document = {
            "format": 1,
            "id": stored.id,
            "path": str(stored.path),
            "created": stored.created,
            "request": stored.request,
            "executions": list(_executions(stored)),
            "comparison": json.loads(compared) if compared else None,
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    elif form == "csv":
        click.echo(compared, nl=False)
    else:
        for line in _described(stored):
            click.echo(line)
        click.echo(f"\n{compared}" if compared else "\nNothing was measured.", nl=not compared)
        for table in _nics(stored):
            click.echo(f"\n{_written(table, form)}", nl=False)
    if not any(trial.logs for trial in stored.trials):
        raise click.exceptions.Exit(Exit.UNTRUSTED)


def _compared(run: "StoredRun", form: str, metric: str | None) -> str:
    """Write the comparison of the arms that were measured; empty if none was."""
    from fabbench.compare import compare
    from fabbench.pool import Column
    from fabbench.report import render

    columns = [
        Column(label=arm.label, logs=logs, source=f"run {run.id}", variant=run.variant(arm))
        for arm in run.arms
        if (logs := run.logs(arm.label))
    ]
    if not columns:
        return ""
    comparison = compare(columns, metric=metric, allow=("endpoint",), only_ok=True)
    arms = {column.label: column.logs for column in columns}
    return render(comparison, form, arms=arms, colour=sys.stdout.isatty())


def _executions(run: "StoredRun") -> Iterator[dict[str, Any]]:
    for trial in run.trials:
        yield {
            "id": trial.id,
            "arm": trial.arm,
            "begun": trial.begun,
            "finished": trial.finished,
            "logs": [
                {
                    "outcome": log.outcome,
                    "reason": log.reason,
                    "facts": log.facts,
                    "sizes": len({point.size for point in log.points}),
                    "findings": [f"{finding.severity}: {finding.meaning}" for finding in log.findings],
                }
                for log in trial.logs
            ],
            "nics": list(_moved(run, trial.id)),
        }


def _described(run: "StoredRun") -> Iterator[str]:
    """Write the request and the executions as lines."""
    hosts = ", ".join(str(host.get("name")) for host in run.document.get("hosts", ()))
    yield f"Run {run.id}: {run.benchmark} on {run.request.get('target')} ({hosts}), {run.created}"
    if image := run.document.get("image"):
        yield f"Image: {image}"
    yield f"Arms: {', '.join(map(str, run.arms))}"
    yield from (f"Variant {name}: {variant}" for name, variant in run.variants.items())
    given = run.request.get("options", {}).items()
    options = [f"{name} {_word(value)}" for name, value in given if value not in (None, "", [])]
    yield f"Options: {', '.join(options) or 'none'}"
    yield f"Directory: {run.path}"
    yield ""
    for execution in _executions(run):
        if not execution["begun"]:
            yield f"{execution['id']}: not begun"
        told: set[str] = set()  # what the NICs show is in every log of an execution
        for log in execution["logs"]:
            reason = f": {log['reason']}" if log["reason"] else ""
            yield f"{execution['id']}: {log['outcome']}{reason} ({log['sizes']} sizes)"
            yield from (f"  {finding}" for finding in log["findings"] if finding not in told)
            told.update(log["findings"])


def _word(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _moved(run: "StoredRun", execution: str) -> Iterator[dict[str, Any]]:
    """Give what each NIC of the fabric moved in an execution, in base units; null: not known."""
    counted = _counted(run, execution)
    for host, traffic in counted.own(counted.traffic()).items() if counted else ():
        for nic in traffic.nics:
            yield {
                "host": host,
                "nic": nic.name,
                "kind": nic.kind,
                "tx_bytes": nic.tx,
                "rx_bytes": nic.rx,
                "seconds": traffic.seconds,
            }


def _nics(run: "StoredRun") -> "Iterator[Table]":
    """Lay out what the NICs moved in all executions of each arm; arms without counters have no table."""
    from dataclasses import replace

    from fabbench.counters.around import total
    from fabbench.report import nics

    for arm in run.arms:
        found = [_counted(run, trial.id) for trial in run.trials if trial.arm == arm.label]
        counted = [one for one in found if one]
        moved, notes = total(counted)
        if moved:
            many = f", {len(counted)} executions" if len(counted) > 1 else ""
            table = nics.table(moved, title=f"NICs: {arm.label}{many}")
            yield replace(table, notes=[*table.notes, *notes])


def _counted(run: "StoredRun", execution: str) -> "Around | None":
    """Read the counters of an execution. Damaged ones are a finding of its logs, and none here."""
    try:
        return run.counters(execution)
    except MachineError:
        return None


def _written(table: "Table", form: str) -> str:
    from fabbench.report import markdown, terminal

    return (
        terminal.write([table], colour=sys.stdout.isatty()) if form == "terminal" else markdown.write(table)
    )
