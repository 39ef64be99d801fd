"""``fabbench report``."""

import sys
from pathlib import Path

import click

from fabbench.cli import options, terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.output import output
from fabbench.model.errors import Exit, RequestError, worst


@output
@click.command(short_help="Write runs as an HTML page, to read or to send.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option("--metric", help="Metric to compare. Default: the benchmark's usual one.")
@options.store
def command(runs: tuple[str, ...], metric: str | None, store: Path) -> None:
    """Write runs as one HTML page: plots, tables, proof, NICs, nodes, commands and findings.

    RUN is a directory, an id, the beginning or the end of one, or `last`, the default. Several runs begin
    with an overview. The page is one file without scripts, and nothing in it is fetched from elsewhere.

    Example: fabbench report last -o report.html
    """
    from fabbench import __version__
    from fabbench.report.page import to_page
    from fabbench.runs.store import open_run
    from fabbench.runs.stored_results import run_page
    from fabbench.runs.sweep_store import require_executions

    if sys.stdout.isatty():
        raise RequestError("The page is HTML.", hint="Add -o report.html.")
    found = [require_executions(open_run(ref, store)) for ref in runs or ("last",)]
    stored = list({run.path.resolve(): run for run in found}.values())
    with terminal.files_progress(len(stored)) as read:
        pages = []
        for run in stored:
            pages.append(run_page(run, metric))
            read()
    for piece in to_page(pages, __version__):
        sys.stdout.write(piece)
    status = Exit.FINE
    for run in stored:
        for sentence in run.damage:
            terminal.notify(f"{run.path.name} is damaged: {sentence}")
        if run.damage:
            status = worst(status, Exit.REFUSED)
        elif not any(execution.logs for execution in run.executions):
            status = worst(status, Exit.UNTRUSTED)
    raise click.exceptions.Exit(status)
