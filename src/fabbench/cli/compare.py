"""``fabbench compare``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabbench.cli import options
from fabbench.errors import Exit, RequestError, worst

if TYPE_CHECKING:
    from fabbench.pool import Column


@click.command(short_help="Compare runs and log files side by side, and gate on the result.")
@click.argument("inputs", nargs=-1, required=True, metavar="NEW [MORE]... BASE")
@click.option("--label", "labels", multiple=True, help="Name of a column; once for each column, in order.")
@click.option(
    "--metric", help="What to compare. Chosen from the benchmark if not given: busbw, bandwidth or latency."
)
@click.option(
    "--placement",
    type=click.Choice(["out-of-place", "in-place"]),
    default="out-of-place",
    show_default=True,
    help="Which half of an nccl-tests table to compare.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="FIELD",
    help="Compare although this differs: benchmark, case, ranks, hosts, gpus_per_host, dtype, redop, "
    "direction, way or endpoint. Can be given several times.",
)
@click.option(
    "--fabric",
    "fabrics",
    multiple=True,
    metavar="NAME",
    help="Judge a log file against this fabric (efa, tcp, ...); once for each input, in order. Use `any` "
    "for one that is not to be judged.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="GATE",
    help="What must hold for the first column, such as busbw:5%, latency@64:20us or busbw@1G>=70GB/s. Can be "
    "given several times.",
)
@options.form(options.COMPARED, "How to write it.")
@options.store
def command(  # noqa: PLR0913, PLR0917 - one parameter for each option
    inputs: tuple[str, ...],
    labels: tuple[str, ...],
    metric: str | None,
    placement: str,
    allow: tuple[str, ...],
    fabrics: tuple[str, ...],
    gates: tuple[str, ...],
    form: str,
    store: Path,
) -> None:
    """Compare runs and log files side by side; the last one is the base.

    Each input is a run (a directory, an id, or `last`), RUN:ARM, a log file, or nccl-tests JSON. A run
    stands for all its arms, so that one run alone compares its arms. Repeats pool to the median. The ratio
    says how many times better a column is than the base. Runs that differ in what matters are refused,
    unless --allow names the field.

    The exit status is 1 if a gate is breached, 2 if the inputs cannot be compared, 3 if one cannot be read,
    and 4 if one cannot be trusted.
    """
    from fabbench.compare import compare
    from fabbench.gate import check, parse_gate
    from fabbench.report import render

    wanted = [parse_gate(text) for text in gates]
    columns = _columns(inputs, labels, fabrics, store)
    if len(inputs) == 1:
        # The arms of one run were planned together, and each fabric has the endpoint that suits it.
        allow = (*allow, "endpoint")
    comparison = compare(columns, metric=metric, placement=placement, allow=allow)
    base = columns[-1] if len(columns) > 1 else None
    verdict = check(wanted, columns[0], base, placement=placement, allow=allow) if wanted else None
    width = _width()
    click.echo(render(comparison, form, verdict=verdict, colour=width is not None, width=width), nl=False)
    for breach in verdict.breaches if verdict else ():
        click.echo(f"Gate breached: {breach}", err=True)
    raise click.exceptions.Exit(worst(comparison.status, verdict.status if verdict else Exit.FINE))


def _columns(
    inputs: Sequence[str], labels: Sequence[str], fabrics: Sequence[str], store: Path
) -> "list[Column]":
    from fabbench.inputs import columns, labelled

    if fabrics and len(fabrics) != len(inputs):
        raise RequestError(
            f"There are {len(fabrics)} fabrics for {len(inputs)} inputs.",
            hint="Give --fabric once for each input, in order (`any`: not judged), or not at all.",
        )
    judged = fabrics or (None,) * len(inputs)
    found = [
        column
        for argument, fabric in zip(inputs, judged, strict=True)
        for column in columns(argument, store=store, fabric=fabric)
    ]
    return labelled(found, labels)


def _width() -> int | None:
    """Give the width of the terminal; None: standard output is none."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
