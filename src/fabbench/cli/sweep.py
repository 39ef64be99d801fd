"""``fabbench sweep``: names bad nodes, NICs and links."""

import click

from fabbench.cli import terminal
from fabbench.cli.output import output
from fabbench.cli.sweep_answer import answer_options, answer_parameters, print_answer
from fabbench.model.errors import RequestError

_NAMED = 20
"""Files that gave nothing and are named; others are counted."""


class _SweepCommand(click.Command):
    """A command with the options of answers, behind its own."""

    def __init__(self, name: str | None, *, params: list[click.Parameter], **more: object) -> None:
        super().__init__(name, params=[*params, *answer_parameters()], **more)  # type: ignore[arg-type]


@output
@click.command(name="sweep", cls=_SweepCommand, short_help="Find bad nodes, NICs and links of a cluster.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="FOLDER",
    help="Logs of pairs of nodes that you have run: a directory, an archive or a file. Can be given several "
    "times.",
)
@click.option("--metric", help="Metric to judge by. Default: the benchmark's usual one.")
def command(sources: tuple[str, ...], metric: str | None, **answer: object) -> None:
    """Find bad nodes, NICs and links from tests of pairs of nodes.

    Reads the logs of any benchmark that fabbench parses. Which nodes a log is of, it says itself (NCCL, MPI),
    or the name of its file does, such as nccl_node-01_node-02.log. A pair that failed counts as evidence.

    The exit status is 1 if something is bad, 4 if these tests do not decide it, and 3 if there is nothing to
    judge.

    Example: fabbench sweep --from pair-logs/
    """
    del answer
    if not sources:
        raise RequestError("Nothing to read: --from is missing.", hint="fabbench sweep --from DIRECTORY")
    from fabbench.runs.sweep_logs import nodes_of, read_sweep_logs

    how = answer_options(click.get_current_context())
    found = read_sweep_logs(sources, metric)
    for source, reason in found.left_out[:_NAMED]:
        terminal.notify(f"Left out: {source}: {reason}")
    if len(found.left_out) > _NAMED:
        terminal.notify(f"Left out: {len(found.left_out) - _NAMED} more. --format json names all.")
    status = print_answer(found.results, found.metric, nodes_of(found.results), how, left_out=found.left_out)
    raise click.exceptions.Exit(status)
