"""``fabbench nodes``: the nodes of a cluster."""

from typing import Any

import click

from fabbench.cli import terminal
from fabbench.cli.output import LISTED, results
from fabbench.cli.run_command import TargetCommand, chosen_target

_WHICH = frozenset({"hosts", "instance_type", "selector", "partition"})
"""Options that choose nodes, besides those that say how to reach a cluster."""


@click.command(name="nodes", cls=TargetCommand, selects=lambda each: each.reaches or each.name in _WHICH)
@results(LISTED, "How to write the list.")
def command(form: str, **given: Any) -> None:
    """List the nodes of a cluster: instance type, GPUs, EFA interfaces, health.

    On Kubernetes devices are free/allocatable. Nothing is started.

    Example: fabbench nodes --on kubernetes --selector pool=gpu
    """
    del given
    from fabbench.launchers import launcher_named
    from fabbench.report.table import render_overview

    target, reason = chosen_target(click.get_current_context())
    terminal.notify(f"Target {target.name}: {reason}.")
    overview = launcher_named(target.launcher).nodes(target)
    terminal.show(render_overview, overview, form)
