"""Ctrl-C before a command has begun: no traceback, wherever Python was."""

import click

from fabbench.cli import Commands
from tests.support.command_line import runner


class Interrupts:
    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def define() -> None:
    type("Options", (), {"field": Interrupts()})


class Group(Commands):
    """The command line, with one command that is interrupted while it makes a class."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return click.Command(cmd_name, callback=define)


def test_an_interrupt_while_a_class_is_made_is_an_interrupt() -> None:
    """Python 3.11 raises RuntimeError there."""
    done = runner().invoke(Group(name="fabbench"), ["parse"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
