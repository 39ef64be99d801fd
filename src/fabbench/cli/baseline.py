"""``fabbench baseline``: runs that others are compared with, by name."""

from pathlib import Path

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.options import takes
from fabbench.cli.output import LISTED, results
from fabbench.cli.suggestions import SuggestingGroup
from fabbench.cli.verbosity import with_verbosity


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Name runs that others are compared with: `--baseline NAME` of `run` and `compare`.

    `--baseline last-good` needs no name: it is the newest earlier run of the same benchmark, options,
    target, nodes and configuration whose executions are all ok and whose gates passed.
    """


@with_verbosity
@command.command("set", short_help="Name a run.")
@click.argument("name", metavar="NAME")
@click.argument("run", metavar="RUN", shell_complete=complete_run)
@takes("store")
def set_(name: str, run: str, store: Path) -> None:
    """Name a run, or move a name to another run. `fabbench runs rm` keeps runs that have one.

    Example: fabbench baseline set nccl-2.27 last
    """
    from fabbench.runs.baselines import set_baseline

    baseline = set_baseline(name, run, store)
    terminal.say(f"Baseline {name}: {baseline.run}")


@with_verbosity
@command.command("list", short_help="List baselines.")
@results(LISTED, "How to write the list.")
@takes("store")
def list_(form: str, store: Path) -> None:
    """List the names and the runs that they stand for."""
    from fabbench.report.table import Table
    from fabbench.runs.baselines import baselines

    known = list(baselines(store))
    records = [{"name": each.name, "run": each.run, "exists": each.is_there(store)} for each in known]
    rows = [(each.name, each.run + "  (removed)" * (not each.is_there(store))) for each in known]
    table = Table(header=("NAME", "RUN"), rows=rows, ruled=False)
    terminal.print_list("baselines", table, records, form, f"No baselines in {store}.")


@with_verbosity
@command.command("rm", short_help="Forget names.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@takes("store")
def remove(names: tuple[str, ...], store: Path) -> None:
    """Forget names. The runs stay."""
    from fabbench.runs.baselines import remove_baseline

    for name in names:
        remove_baseline(name, store)
