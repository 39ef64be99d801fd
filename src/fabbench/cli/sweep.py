"""``fabbench sweep``: names bad nodes, NICs and links; from tests that it runs, or from logs."""

from collections.abc import Mapping
from pathlib import Path

import click

from fabbench.cli import terminal
from fabbench.cli.click_options import typed_flags, with_parameters
from fabbench.cli.complete import complete_run
from fabbench.cli.options import takes
from fabbench.cli.rerun import start_again
from fabbench.cli.run_command import RESUMED
from fabbench.cli.sweep_answer import answer_options, answer_parameters, groups_from_cluster, print_answer
from fabbench.cli.sweep_command import SweepGroup
from fabbench.model.errors import RequestError

_MAX_NAMED = 20


@click.group(name="sweep", cls=SweepGroup, invoke_without_command=True)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="LOG|RUN",
    shell_complete=complete_run,
    help="Logs of pairs of nodes that you have run: a directory, an archive, a file, a run; or a sweep, to judge "
    "its tests again. Can be given several times.",
)
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=complete_run,
    help="Resume this sweep: tests that have ended are not run again.",
)
@takes("store", metric="Metric to judge by. Default: the benchmark's usual one.")
@with_parameters(answer_parameters())
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    resume: str | None,
    metric: str | None,
    store: Path,
    **answer: object,
) -> None:
    """Find bad nodes, NICs and links from tests of pairs of nodes.

    With a benchmark, runs them: hosts are set up once, and pairs that share no node are tested concurrently.
    A test that fails, hangs or uses another network is evidence, and the sweep goes on.

    With --from, reads the logs of any benchmark that fabbench parses. The nodes of a log are taken from the
    log itself (NCCL, MPI), from its run, or from the name of its file, such as nccl_node-01_node-02.log. A pair
    that failed counts as evidence.

    The exit status is 1 if something is bad, 4 if these tests do not decide it, and 3 if there is nothing to
    judge.

    Example: fabbench sweep nccl --on ssh --host node[01-32]

    Example: fabbench sweep --resume last

    Example: fabbench sweep --from pair-logs/
    """
    del answer
    given = {name: flag for name, flag in typed_flags(ctx).items() if name in ctx.params}
    if (benchmark := ctx.invoked_subcommand) is not None:
        if "sources" in given:
            raise RequestError("--from reads logs, and runs no benchmark.", hint=f"Leave out {benchmark}, or --from.")
        for flag in given.values():
            raise RequestError(f"{flag} has no effect before {benchmark}.", hint=f"fabbench sweep {benchmark} {flag} …")
    elif resume is not None:
        _resume(ctx, resume, store, given)
    elif sources:
        _read(ctx, sources, store, metric)
    else:
        raise RequestError(
            "Nothing to test and nothing to read: a benchmark or --from is missing.",
            hint="fabbench sweep nccl --on TARGET, or fabbench sweep --from DIRECTORY",
        )


def _read(ctx: click.Context, sources: tuple[str, ...], store: Path, metric: str | None) -> None:
    from fabbench.runs.sweep_logs import read_sweep_logs

    how = answer_options(ctx)
    if groups_from_cluster(how.groups):
        raise RequestError(f"--groups {how.groups} queries a cluster, but --from only reads logs.", hint="Pass a file.")
    logs = read_sweep_logs(sources, store, metric)
    for source, reason in logs.left_out[:_MAX_NAMED]:
        terminal.notify(f"Left out: {source}: {reason}")
    if len(logs.left_out) > _MAX_NAMED:
        terminal.notify(f"Left out: {len(logs.left_out) - _MAX_NAMED} more. --format json names all.")
    for source, meaning in logs.slow_nics:
        terminal.notify(f"Slow NIC: {source}: {meaning}")
    known, of = (logs.results, logs.metric, logs.nodes, how), None if how.groups else logs.group_of
    raise click.exceptions.Exit(print_answer(*known, left_out=logs.left_out, unfinished=logs.unfinished, group_of=of))


def _resume(ctx: click.Context, ref: str, store: Path, given: Mapping[str, str]) -> None:
    from fabbench.runs.sweep_store import open_sweep

    for name in given.keys() - {"resume", "store"}:
        raise RequestError(
            f"{given[name]} has no effect with --resume: the sweep goes on with its own options.",
            hint=f"Leave it out. To print the answer in another format: fabbench show {ref}",
        )
    ctx.meta[RESUMED] = open_sweep(ref, store)
    start_again(ctx, ctx.meta[RESUMED], store)
