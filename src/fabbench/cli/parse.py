"""``fabbench parse``: logs that people have, read, judged and printed."""

import gc
import shutil
import sys

import click

from fabbench import batch
from fabbench.cli import options
from fabbench.cli.progress import files_progress
from fabbench.errors import Exit, worst
from fabbench.fabrics import carriers
from fabbench.model import Proof
from fabbench.report.parsed import FORMATS, writer


@click.command(name="parse")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@options.form(FORMATS, "How to write what was read. `json` is the public contract (docs/formats.md).")
@options.fabric_of_logs
@click.option(
    "--exit-zero", is_flag=True, help="End with 0 whatever the outcomes are; unreadable files still are 3."
)
def command(files: tuple[str, ...], form: str, fabric: str | None, *, exit_zero: bool) -> None:
    """Read logs of benchmarks and print their results.

    FILE is the output of a benchmark (which one is found out), the JSON of nccl-tests' -J, or an output.log
    of a fabbench run, behind the prefixes of any launcher; - is standard input. A directory stands for all
    files in it and below; those that are no logs are left out. Many files are read by all cores.

    The exit status is 0 if every log is ok, 4 if one is not, and 3 if a file cannot be read or nothing in it
    is recognised.
    """
    if fabric is not None:
        carriers(fabric, None)
    # Millions of points that live until their log is written, and hardly a cycle among them.
    gc.set_threshold(100_000, 20, 20)
    colour = sys.stdout.isatty()
    job = batch.Job(
        form=form,
        proof=Proof(fabric=fabric) if fabric is not None else None,
        colour=colour,
        width=shutil.get_terminal_size().columns if colour else None,
    )
    click.get_current_context().exit(_print(files, job, lenient=exit_zero))


def _print(files: tuple[str, ...], job: batch.Job, *, lenient: bool) -> Exit:
    """Print the logs as they are read; say on stderr what could not be. `lenient`: outcomes do not matter."""
    frame = writer(job.form)
    sources = batch.expand(files)
    errors: list[tuple[str, str]] = []
    logs, untrusted, separator = 0, False, ""
    sys.stdout.write(frame.opening)
    with files_progress(len(sources)) as advance:
        for piece in batch.read(sources, job):
            if piece.done is None:
                sys.stdout.write((separator if piece.begins else "") + piece.text)
                separator = frame.separator
                continue
            advance()
            logs += piece.logs
            untrusted = untrusted or piece.untrusted
            if piece.error:
                errors.append((piece.done.name, piece.error))
    if not logs and not errors:
        errors.append((", ".join(files), "There is no log in it."))
    sys.stdout.write(frame.closing(errors))
    sys.stdout.flush()
    for source, reason in errors:
        click.echo(f"Error: {source}: {reason}", err=True)
    return worst(
        Exit.UNTRUSTED if untrusted and not lenient else Exit.FINE, Exit.REFUSED if errors else Exit.FINE
    )
