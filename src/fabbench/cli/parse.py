"""``fabbench parse``: logs that people have, read, judged and printed."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from fabbench.errors import Exit, FabbenchError, worst
from fabbench.fabrics import carriers
from fabbench.files import parse_file, parse_stdin
from fabbench.model import Log, Outcome, Proof
from fabbench.report import contract, delimited, markdown, terminal
from fabbench.report.logs import CSV_HEADER, records, tables

FORMATS = ("table", "json", "csv", "markdown")


class _Reading:
    """Reads the files one after another, and remembers what came of it."""

    def __init__(self, files: tuple[str, ...], proof: Proof | None) -> None:
        self.files = files
        self.proof = proof
        self.errors: list[tuple[str, str]] = []
        self.untrusted = False

    def logs(self) -> Iterator[Log]:
        for name in self.files:
            found = False
            try:
                for log in parse_stdin(proof=self.proof) if name == "-" else self._file(name):
                    found = True
                    self.untrusted = self.untrusted or log.outcome is not Outcome.OK
                    yield log
            except FabbenchError as error:
                self.errors.append((name, str(error)))
                continue
            if not found:
                self.errors.append(
                    (name, "Nothing in it is the output of a benchmark or launcher known here.")
                )

    def _file(self, name: str) -> Iterator[Log]:
        return parse_file(Path(name), proof=self.proof)

    def exit(self) -> Exit:
        return worst(
            Exit.UNTRUSTED if self.untrusted else Exit.FINE, Exit.REFUSED if self.errors else Exit.FINE
        )


def _csv(reading: _Reading) -> Iterator[str]:
    yield delimited.write_rows(CSV_HEADER, ())
    for log in reading.logs():
        yield delimited.write_records(records(log), CSV_HEADER).partition("\n")[2]


def _markdown(reading: _Reading) -> Iterator[str]:
    for log in reading.logs():
        yield "\n".join(map(markdown.write, tables(log))) + "\n"


def _table(reading: _Reading) -> Iterator[str]:
    colour = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if colour else None
    for log in reading.logs():
        yield terminal.write(tables(log), colour=colour, width=width) + "\n"


def _json(reading: _Reading) -> Iterator[str]:
    return contract.document(reading.logs(), reading.errors)


_WRITERS: Mapping[str, Callable[[_Reading], Iterator[str]]] = {
    "table": _table,
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
}


@click.command(name="parse")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to write what was read. `json` is the public contract (docs/formats.md).",
)
@click.option(
    "--fabric",
    metavar="NAME",
    help="Judge the logs as measured on this fabric (efa, tcp, ib, roce, shm, p2p, ofi-tcp, or a libfabric "
    "provider): a log that shows another carrier is off-fabric, one that shows none is unproven.",
)
@click.option(
    "--exit-zero", is_flag=True, help="End with 0 whatever the outcomes are; unreadable files still are 3."
)
def command(files: tuple[str, ...], form: str, fabric: str | None, *, exit_zero: bool) -> None:
    """Read logs of benchmarks and print their results.

    FILE is the output of nccl-tests (text, or the JSON of -J), of fi_pingpong, or an output.log of a
    fabbench run, behind the prefixes of any launcher; - is standard input. Which tool wrote it is found out.

    The exit status is 0 if every log is ok, 4 if one is not, and 3 if a file cannot be read or nothing in it
    is recognised.
    """
    if fabric is not None:
        carriers(fabric, None)
    reading = _Reading(files, Proof(fabric=fabric) if fabric is not None else None)
    for text in _WRITERS[form](reading):
        sys.stdout.write(text)
    sys.stdout.flush()
    for source, reason in reading.errors:
        click.echo(f"Error: {source}: {reason}", err=True)
    if exit_zero:
        reading.untrusted = False
    click.get_current_context().exit(reading.exit())
