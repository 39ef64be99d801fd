"""``fabbench nodes``: the nodes of a cluster."""

from typing import Any

import click

from fabbench.cli import options, terminal
from fabbench.cli.config_file import RunOptions, config_option
from fabbench.cli.declared import click_options, launcher_options, launchers_by_option
from fabbench.cli.help_sections import WHERE, section_of_launchers
from fabbench.cli.host_options import HostsCommand
from fabbench.cli.output import output
from fabbench.cli.run_command import chosen_target
from fabbench.launchers import options_of_launchers
from fabbench.model.hosts import Target
from fabbench.model.options import Option, declared
from fabbench.report.log_report import FORMATS

_WHICH = frozenset({"hosts", "instance_type", "selector", "partition"})
"""Options that choose nodes, besides those that say how to reach a cluster."""


def _selects_nodes(option: Option) -> bool:
    return option.reaches or option.name in _WHICH


class _NodesCommand(HostsCommand):
    """A command with the options of launchers that find nodes, before its own."""

    def __init__(self, name: str | None, *, params: list[click.Parameter], **more: Any) -> None:
        (on, *_) = click_options(declared(RunOptions).values())
        selecting = launcher_options(options_of_launchers(), _selects_nodes)
        self.launchers = launchers_by_option(options_of_launchers())
        self.sections = {
            **{each: section_of_launchers(of) for each, of in self.launchers.items()},
            **dict.fromkeys((*declared(Target), "on", "hostfile", "config"), WHERE),
        }
        super().__init__(name, params=[config_option(), on, *selecting, *params], **more)


@output
@click.command(name="nodes", cls=_NodesCommand, short_help="List the nodes of a cluster: type, GPUs, EFA.")
@options.form(FORMATS, "How to write the list.")
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
    width = terminal.width()
    overview = launcher_named(target.launcher).nodes(target)
    terminal.write_drawn(render_overview(overview, form, color=width is not None, width=width))
