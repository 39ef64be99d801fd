"""``fabbench report``."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from fabbench.cli import options, terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.output import results
from fabbench.model.errors import Exit, worst


@click.command(short_help="Write runs as an HTML page, to read or to send.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option("--metric", help="Metric to compare. Default: the benchmark's usual one.")
@options.sizes
@results(("html",))
@options.store
def command(runs: tuple[str, ...], metric: str | None, sizes: range | None, form: str, store: Path) -> None:
    """Write runs as one HTML page: plots, tables, proof, NICs, nodes, commands and findings.

    RUN is a directory, an id, the beginning or the end of one, or `last`, the default; or a file of what
    `compare` reads: logs, or a table of results. Several runs begin with an overview; with more than 100,
    each has one metric. The page is one file without scripts, and nothing in it is fetched from elsewhere.

    The page of a sweep has its suspects and a heat map of all pairs.

    Example: fabbench report last -o report.html
    """
    from fabbench.runs.open_run import open_runs

    del form
    refs = runs or ("last",)
    found = iter(open_runs([each for each in refs if not Path(each).is_file()], store))
    paths = [Path(each) if Path(each).is_file() else next(found).path for each in refs]
    raise click.exceptions.Exit(write_page(list({path.resolve(): path for path in paths}.values()), metric, sizes))


def write_page(paths: Sequence[Path], metric: str | None = None, sizes: range | None = None) -> Exit:
    """Write runs and files as a page to standard output; return the exit status."""
    from fabbench import __version__
    from fabbench.report.page import page_of
    from fabbench.runs.report_pages import BRIEF, MANY, stored_sections

    written = []
    with terminal.files_progress(len(paths)) as read:
        for each in stored_sections(paths, metric, sizes):
            written.append(each)
            read()
    note = BRIEF if len(written) > MANY else ""
    sys.stdout.writelines(page_of([each.section for each in written], __version__, note=note))
    status = Exit.FINE
    for each in written:
        for sentence in each.damage:
            terminal.notify(f"{each.path.name} is damaged: {sentence}")
        if each.damage:
            status = worst(status, Exit.REFUSED)
        elif not each.measured:
            status = worst(status, Exit.UNTRUSTED)
    return status
