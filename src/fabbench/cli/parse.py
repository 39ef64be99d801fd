"""``fabbench parse``: existing logs, read, judged and printed."""

import sys
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import options
from fabbench.cli.output import results
from fabbench.cli.terminal import files_progress, say, width, write_drawn
from fabbench.model.errors import Exit, worst
from fabbench.report.log_report import FORMATS, log_writer
from fabbench.runs import parse_on_cores
from fabbench.runs.log_files import expand

if TYPE_CHECKING:
    from fabbench.logs.learned_prefixes import Unread


@click.command(name="parse")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@results(FORMATS, "Output format. `json` is the public contract (docs/formats.md).")
@options.sizes
@options.fabric_of_logs
@options.nodes_of_logs
@click.option("--exit-zero", is_flag=True, help="Exit 0 regardless of the outcomes; unreadable files still exit 3.")
def command(files: tuple[str, ...], form: str, sizes: range | None, *, exit_zero: bool, **known: Any) -> None:
    """Read benchmark logs and print their results.

    FILE is the output of a benchmark (detected automatically), the JSON of nccl-tests' -J, or an output.log
    of a fabbench run, with the prefixes of any launcher; - is standard input. It may be compressed (gzip,
    bzip2, xz, zstd) or an archive (tar, zip). A directory or an archive stands for all files in it and below;
    those that have nothing to do with a benchmark are left out. A list (a.log,b.log) stands for these files.
    Many files, and large ones, are read on all cores.

    The exit status is 0 if every log is ok, 4 if one is not, and 3 if a file cannot be read or nothing in it
    is recognized.
    """
    color = sys.stdout.isatty()
    job = parse_on_cores.ParseJob(
        form=form, sizes=sizes, proof=options.known_proof(**known), color=color, width=width()
    )
    click.get_current_context().exit(_print(files, job, lenient=exit_zero))


def _print(files: tuple[str, ...], job: parse_on_cores.ParseJob, *, lenient: bool) -> Exit:
    """Print the logs as they are read; list on stderr those that cannot be. `lenient`: ignore outcomes."""
    frame = log_writer(job.form)
    sources = expand(files)
    unread: list[Unread] = []
    logs, untrusted, separator = 0, False, ""
    sys.stdout.write(frame.opening)
    with files_progress(len(sources)) as advance:
        for piece in parse_on_cores.read(sources, job):
            if piece.unread is not None:
                unread.append(piece.unread)
                continue
            if piece.done is None:
                write_drawn((separator if piece.begins else "") + piece.text)
                separator = frame.separator
                continue
            advance()
            logs += piece.logs
            untrusted = untrusted or piece.untrusted
    errors = [(entry.source, entry.reason) for entry in unread if not entry.remark]
    if not logs and not errors:
        errors.append((", ".join(files), "No log found in it."))
    sys.stdout.write(frame.closing(errors))
    sys.stdout.flush()
    for entry in unread:
        if entry.remark:
            say(f"Note: {entry.source}: {entry.reason}")
    for source, reason in errors:
        say(f"Error: {source}: {reason.removeprefix(f'{source} ')}")
    return worst(Exit.UNTRUSTED if untrusted and not lenient else Exit.FINE, Exit.REFUSED if errors else Exit.FINE)
