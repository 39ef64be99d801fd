"""Writes a man page of every command into a directory: `make man`."""  # noqa: INP001 - a script

import sys
from copy import copy
from pathlib import Path

import click
from click_man.core import write_man_pages

from fabbench import __version__
from fabbench.cli import cli


def man_pages(directory: Path) -> None:
    """Write the pages: fabbench.1, fabbench-run.1, fabbench-run-nccl.1, and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    write_man_pages("fabbench", _loaded(cli), version=__version__, target_dir=str(directory))


def _loaded(command: click.Command) -> click.Command:
    """Return a command as click-man wants it.

    With its short help, and with all commands of a group.
    """
    command = copy(command)
    command.short_help = command.get_short_help_str(limit=100)
    if not isinstance(command, click.Group):
        return command
    context = click.Context(command, info_name=command.name)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return click.Group(
        command.name,
        {name: _loaded(each) for name, each in found.items() if each},
        params=command.params,
        help=command.help,
        short_help=command.short_help,
    )


if __name__ == "__main__":
    man_pages(Path(sys.argv[1]))
