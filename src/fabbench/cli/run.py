"""``fabbench run``: a group with one command for each benchmark that can be started."""

from pathlib import Path

import click
from click.core import ParameterSource

from fabbench.cli.complete import complete_run
from fabbench.cli.options import takes
from fabbench.cli.rerun import start_again
from fabbench.cli.run_command import RESUMED, RunGroup
from fabbench.model.errors import RequestError


@click.group(cls=RunGroup, invoke_without_command=True, no_args_is_help=True)
@click.option("--resume", "ref", metavar="RUN", shell_complete=complete_run, help="Go on with an interrupted run.")
@takes("store")
@click.pass_context
def command(ctx: click.Context, ref: str | None, store: Path) -> None:
    """Measure on real machines: every configuration, interleaved and repeated, then a comparison.

    The first configuration is the one in question, the last one the baseline. Everything is kept in a run
    directory, also when the run is interrupted. `fabbench runs` lists them. --resume keeps its executions that
    are ok, and runs the others: the same command line, on the same target.

    Example: fabbench run --resume last
    """
    if ctx.invoked_subcommand is not None:
        if ref is not None or ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE:
            raise RequestError(f"--resume and --store have no effect before {ctx.invoked_subcommand}.")
        return
    if ref is None:
        ctx.fail("Missing command.")

    from fabbench.runs.inputs import open_run
    from fabbench.runs.sweep_store import require_executions

    ctx.meta[RESUMED] = require_executions(open_run(ref, store))
    start_again(ctx, ctx.meta[RESUMED], store)
