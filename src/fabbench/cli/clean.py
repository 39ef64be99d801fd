"""``fabbench clean``: what fabbench left in a cluster or in Slurm's queue, and its removal."""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import click

from fabbench.errors import Exit

if TYPE_CHECKING:
    from fabbench.pods.cleanup import Leftover

_AGE = re.compile(r"([0-9]+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _age(ctx: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    del ctx, parameter
    if text is None:
        return None
    match = _AGE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no age: write 90s, 10m, 2h or 1d.")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


@click.command(short_help="Remove what runs have left in a Kubernetes cluster, or in Slurm's queue.")
@click.option(
    "--on",
    "place",
    type=click.Choice(["kubernetes", "slurm"]),
    default="kubernetes",
    show_default=True,
    help="Where to look.",
)
@click.option(
    "--login", metavar="HOST", help="On slurm: a login node, as ssh knows it. This machine if not given."
)
@click.option(
    "--kubeconfig", metavar="FILE", help="The kubeconfig. KUBECONFIG or ~/.kube/config if not given."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. The current one if not given.")
@click.option("--namespace", metavar="NAME", help="Where to look. The context's own namespace if not given.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Look in all namespaces.")
@click.option(
    "--older-than",
    metavar="AGE",
    callback=_age,
    help="Also remove what still runs, if it is older: 90s, 10m, 2h, 1d.",
)
@click.option("--all", "whole", is_flag=True, help="Remove everything, also runs in progress.")
@click.option(
    "--force",
    is_flag=True,
    help="Have the cluster forget pods whose node is lost, which cannot be removed otherwise.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(  # noqa: PLR0913, PLR0917 - click's way
    place: str,
    login: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    older_than: timedelta | None,
    *,
    everywhere: bool,
    whole: bool,
    force: bool,
    yes: bool,
) -> None:
    """Remove what runs have left in a Kubernetes cluster, or in Slurm's queue.

    Runs remove what they made, and what a killed one made ends by itself within two minutes. What stays all
    the same is found by its labels, and listed. Of that, what does not run any more is removed: a Job that
    has ended, and whatever is without one. What runs may be somebody's run in progress: it is kept, unless
    --older-than or --all says otherwise.

    A pod whose node is lost stays until the node is back. With --force the cluster forgets it, although what
    runs in it may go on there until the node comes back or is ended.

    On slurm it lists this user's jobs that fabbench made. All of them wait or run, so --older-than or --all
    says which ones are cancelled.

    It asks first. Without --yes and without a terminal nothing is removed. The exit status is 1 if there was
    something to remove and it was not, else 0.

    Example: fabbench clean --older-than 1h --yes
    """
    with ExitStack() as stack:
        if place == "slurm":
            looked = _in_queue(login, stack)
        else:
            looked = _in_cluster(kubeconfig, context, namespace, everywhere=everywhere, force=force)
        _clean(looked, older_than, whole=whole, yes=yes)


class _Looked(NamedTuple):
    """Where was looked, what was found, and how it is removed."""

    where: str
    column: str
    """What the second column of the list says."""
    found: "Sequence[Leftover]"
    remove: "Callable[[Sequence[Leftover]], object]"


def _in_queue(login: str | None, stack: ExitStack) -> _Looked:
    from fabbench.login import leftovers, way
    from fabbench.machines import Where

    settings = {"login": login} if login else {}
    there = stack.enter_context(way.login(Where(target="slurm", launcher="slurm", settings=settings)))
    return _Looked(
        f"Slurm's queue on {there.name}",
        "PARTITION",
        leftovers.find(there),
        lambda chosen: leftovers.remove(there, chosen),
    )


def _in_cluster(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, everywhere: bool, force: bool
) -> _Looked:
    from fabbench.kube.client import cluster
    from fabbench.kube.leftovers import find, remove

    site = cluster(kubeconfig, context, namespace)
    where = "any namespace" if everywhere else f"namespace {site.namespace}"
    return _Looked(
        f"{where} of {site.context}",
        "NAMESPACE",
        find(site, everywhere=everywhere),
        lambda chosen: remove(site, chosen, everywhere=everywhere, force=force),
    )


def _clean(looked: _Looked, older_than: timedelta | None, *, whole: bool, yes: bool) -> None:
    """List what was found, and remove what is to be removed."""
    found = looked.found
    if not found:
        click.echo(f"There is nothing of fabbench's in {looked.where}.", err=True)
        return
    chosen = [each for each in found if whole or not each.running or _old(each, older_than)]
    _list(found, chosen, looked.column)
    if not chosen:
        click.echo("All of it runs, and is kept.", err=True)
        return
    asking = sys.stdin.isatty() and not yes
    if not yes and not (asking and click.confirm(f"Remove {_count(chosen)}?", err=True)):
        click.echo("Nothing was removed." + ("" if asking else " --yes removes it."), err=True)
        click.get_current_context().exit(Exit.BAD_ANSWER)
    looked.remove(chosen)
    click.echo(f"Removed {_count(chosen)}.", err=True)


def _old(leftover: "Leftover", older_than: timedelta | None) -> bool:
    return older_than is not None and leftover.age >= older_than


def _list(found: Sequence["Leftover"], chosen: Sequence["Leftover"], column: str) -> None:
    header = ("RUN", column, "AGE", "RUNS", "REMOVE", "REQUEST")
    rows = [
        (
            each.run,
            each.namespace,
            _written(each.age),
            "yes" if each.running else "no",
            "yes" if each in chosen else "no",
            each.request or "-",
        )
        for each in found
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _written(age: timedelta) -> str:
    """Write an age in its largest whole unit, as kubectl does."""
    seconds = int(age.total_seconds())
    unit = next((unit for unit in "dhm" if seconds >= 2 * _SECONDS[unit]), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"


def _count(chosen: Sequence["Leftover"]) -> str:
    return "1 run" if len(chosen) == 1 else f"{len(chosen)} runs"
