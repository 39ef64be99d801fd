"""``fabbench report``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.options import takes
from fabbench.cli.output import results
from fabbench.model.errors import Exit, worst

if TYPE_CHECKING:
    from fabbench.report.page import RunPage


@click.command()
@click.argument("inputs", metavar="[RUN|LOG]...", nargs=-1, shell_complete=complete_run)
@takes("metric", "sizes", "store")
@results(("html",))
def command(inputs: tuple[str, ...], metric: str | None, sizes: range | None, form: str, store: Path) -> None:
    """Write runs, or logs, as one HTML page: plots, tables, proof, NICs, nodes, commands and findings.

    RUN is a directory, an id, the beginning or the end of one, or `last`, the default. Each run is a section,
    and several begin with an overview; with more than 100, each has one metric. Everything else that `compare`
    takes (logs, RUN:CONFIG, tables of results) is compared in one section, the last input being the baseline.
    The page is one file without scripts, and nothing in it is fetched from elsewhere. The section of a sweep has
    its suspects and a heat map of all pairs.

    Example: fabbench report last -o report.html

    Example: fabbench report efa.log tcp.log -o report.html
    """
    from fabbench.runs.inputs import whole_runs
    from fabbench.runs.report_pages import logs_pages

    del form
    found = {each: whole_runs(each, store) for each in inputs or ("last",)}
    others = [each for each, runs in found.items() if not runs]
    compared = list(logs_pages(others, store, terminal.notify, metric, sizes))
    stored = list({path.resolve(): path for runs in found.values() for path in runs}.values())
    raise click.exceptions.Exit(write_page(stored, metric, sizes, compared))


def write_page(
    runs: Sequence[Path], metric: str | None = None, sizes: range | None = None, compared: "Sequence[RunPage]" = ()
) -> Exit:
    """Write comparisons and then runs as a page to standard output; return the exit status."""
    from fabbench import __version__
    from fabbench.report.page import page_of, run_section
    from fabbench.runs.report_pages import BRIEF, MANY, stored_sections

    sections = [run_section(page, number) for number, page in enumerate(compared, 1)]
    written = []
    with terminal.files_progress(len(runs)) as read:
        for each in stored_sections(runs, metric, sizes, first=len(sections) + 1):
            written.append(each)
            read()
    note = BRIEF if len(written) > MANY else ""
    sys.stdout.writelines(page_of([*sections, *(each.section for each in written)], __version__, note=note))
    status = Exit.FINE
    for each in written:
        for sentence in each.damage:
            terminal.notify(f"{each.path.name} is damaged: {sentence}")
        if each.damage:
            status = worst(status, Exit.REFUSED)
        elif not each.measured:
            status = worst(status, Exit.UNTRUSTED)
    return status
