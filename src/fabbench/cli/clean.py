"""``fabbench clean``: what fabbench left in a cluster or in Slurm's queue, and its removal."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.options import takes, written_age
from fabbench.cli.run_command import TargetCommand, chosen_target
from fabbench.model.errors import Exit
from fabbench.model.messages import counted

if TYPE_CHECKING:
    from fabbench.launchers import Leftover, Leftovers


@click.command(cls=TargetCommand, selects=lambda each: each.reaches)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Look in all namespaces.")
@takes(older_than="Also remove runs in progress older than this: 90s, 10m, 2h, 1d.")
@click.option("--all", "whole", is_flag=True, help="Remove everything, including runs in progress.")
@click.option("--force", is_flag=True, help="Force-delete pods on lost nodes, which cannot be removed otherwise.")
@takes("yes")
def command(
    older_than: timedelta | None, *, everywhere: bool, whole: bool, force: bool, yes: bool, **_reaching: Any
) -> None:
    """Remove leftover pods and jobs from a cluster (not local runs).

    `fabbench runs rm` removes local runs.

    Runs remove what they create, and what a killed run created exits on its own within two minutes. This
    command finds the rest by its labels and lists it. It removes what is no longer running: a Job that has
    ended, and objects without one. Anything running may belong to somebody's run in progress, and is kept
    unless you pass --older-than or --all.

    A pod whose node is lost stays until the node is back. With --force the cluster forgets it, although what
    runs in it may continue there until the node comes back or is terminated.

    On slurm it lists this user's jobs that fabbench submitted. All of them are pending or running, so pass
    --older-than or --all to choose which ones to cancel.

    It asks first. Without --yes and without a terminal nothing is removed. The exit status is 1 if there was
    something to remove and it was not, else 0.

    Example: fabbench clean --older-than 1h --yes
    """
    from fabbench.launchers import launcher_named

    target, _ = chosen_target(click.get_current_context())
    with launcher_named(target.launcher).leftovers(target, everywhere=everywhere, force=force) as leftovers:
        _clean(leftovers, older_than, whole=whole, yes=yes)


def _clean(leftovers: "Leftovers", older_than: timedelta | None, *, whole: bool, yes: bool) -> None:
    found = leftovers.found
    if not found:
        terminal.say(f"Nothing left to clean in {leftovers.where}.")
        return
    chosen = [
        each for each in found if whole or not each.running or (older_than is not None and each.age >= older_than)
    ]
    _list(found, chosen, leftovers.column)
    if not chosen:
        terminal.say("All of it is in use, and was kept. --all removes it, too.")
        return
    if not yes and not terminal.confirm_removal(len(chosen), "--yes removes it."):
        click.get_current_context().exit(Exit.BAD_ANSWER)
    leftovers.remove(chosen)
    terminal.say(f"Removed {counted(len(chosen), 'run')}.")


def _list(found: Sequence["Leftover"], chosen: Sequence["Leftover"], column: str) -> None:
    from fabbench.report.table import Table, to_terminal

    header = ("RUN", column, "AGE", "RUNS", "REMOVE", "REQUEST")
    rows = [
        (
            each.run,
            each.namespace,
            written_age(each.age),
            "yes" if each.running else "no",
            "yes" if each in chosen else "no",
            each.request or "-",
        )
        for each in found
    ]
    terminal.show(to_terminal, [Table(header=header, rows=rows, ruled=False)])
