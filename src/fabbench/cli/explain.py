"""``fabbench explain``: what carried the data, what is wrong, and what to do about it."""

from pathlib import Path

import click

from fabbench import batch
from fabbench.cli import options
from fabbench.errors import Exit, FabbenchError, worst
from fabbench.fabrics import carriers
from fabbench.files import parse_file, parse_stdin
from fabbench.model import Outcome, Proof
from fabbench.report.diagnosis import diagnosis


@click.command(name="explain")
@click.argument("files", metavar="LOG...", nargs=-1, required=True)
@options.fabric_of_logs
def command(files: tuple[str, ...], fabric: str | None) -> None:
    """Say what the logs prove about the network, and what to do about what they show.

    For each benchmark execution: the outcome and its reason, the facts with the line that states each, and
    the findings with advice. LOG may be a directory; - is standard input.

    The exit status is that of `parse`.
    """
    if fabric is not None:
        carriers(fabric, None)
    proof = Proof(fabric=fabric) if fabric is not None else None
    statuses = [_explain(source, proof) for source in batch.expand(files)]
    click.get_current_context().exit(worst(*statuses))


def _explain(source: batch.Source, proof: Proof | None) -> Exit:
    """Print the diagnoses of one file; give what its logs come to."""
    status, logs = Exit.FINE, 0
    try:
        path = Path(source.name)
        for log in parse_stdin(proof=proof) if source.name == "-" else parse_file(path, proof=proof):
            logs += 1
            click.echo("\n".join(diagnosis(log)) + "\n")
            status = worst(status, Exit.FINE if log.outcome is Outcome.OK else Exit.UNTRUSTED)
    except FabbenchError as error:
        click.echo(f"Error: {source.name}: {error}", err=True)
        return worst(status, error.exit)
    if not logs and source.named:
        click.echo(f"Error: {source.name}: {batch.NOTHING}", err=True)
        return Exit.REFUSED
    return status
