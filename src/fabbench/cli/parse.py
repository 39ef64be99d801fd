"""``fabbench parse``: existing logs, read, judged and printed."""

import sys
from pathlib import Path
from typing import Any

import click

from fabbench.cli.complete import complete_run
from fabbench.cli.options import ON_NODES, known_proof, takes
from fabbench.cli.output import LISTED, results
from fabbench.cli.terminal import files_progress, in_color, say_unread, width, write_drawn
from fabbench.model.errors import Exit, worst


@click.command(name="parse")
@click.argument("inputs", metavar="LOG|RUN...", nargs=-1, required=True, shell_complete=complete_run)
@results(LISTED, "Output format. `json` is the public contract (docs/formats.md).")
@takes("sizes", "fabric", *ON_NODES, "store")
@click.option("--exit-zero", is_flag=True, help="Exit 0 regardless of the outcomes; unreadable files still exit 3.")
def command(
    inputs: tuple[str, ...], form: str, sizes: range | None, store: Path, *, exit_zero: bool, **known: Any
) -> None:
    """Read benchmark logs and print their results.

    LOG is the output of a benchmark (detected automatically) with the prefixes of any launcher, the JSON of
    nccl-tests' -J, or fabbench's own JSON or CSV (unproven); - is standard input. It may be compressed (gzip,
    bzip2, xz, zstd) or an archive (tar, zip). A directory or an archive stands for all files in it and below;
    those that have nothing to do with a benchmark are left out. A list (a.log,b.log) stands for these files.
    RUN is a run's directory, an id, `last`, or RUN:CONFIG; it is judged as it was measured.
    Many files, and large ones, are read on all cores.

    The exit status is 0 if every log is ok, 4 if one is not, and 3 if a file cannot be read or nothing in it
    is recognized.
    """
    from fabbench.logs.learned_prefixes import Unread
    from fabbench.report.log_report import log_writer
    from fabbench.runs.inputs import sources_of
    from fabbench.runs.parse_on_cores import ParseJob, read

    proof = known_proof(**known)
    sources = sources_of(inputs, store, proof)
    job = ParseJob(form=form, sizes=sizes, proof=proof, color=in_color(sys.stdout), width=width())
    frame = log_writer(job.form)
    unread: list[Unread] = []
    logs, untrusted, separator = 0, False, ""
    sys.stdout.write(frame.opening)
    with files_progress(len(sources)) as advance:
        for piece in read(sources, job):
            if piece.unread is not None:
                unread.append(piece.unread)
                continue
            if piece.text:
                write_drawn((separator if piece.begins else "") + piece.text)
                separator = frame.separator
            if piece.done is not None:
                advance()
            logs += piece.logs
            untrusted = untrusted or piece.untrusted
    if not logs and all(entry.remark for entry in unread):
        unread.append(Unread(", ".join(inputs), "No log found in it."))
    sys.stdout.write(frame.closing([(entry.source, entry.reason) for entry in unread if not entry.remark]))
    sys.stdout.flush()
    status = Exit.UNTRUSTED if untrusted and not exit_zero else Exit.FINE
    click.get_current_context().exit(worst(status, say_unread(unread)))
