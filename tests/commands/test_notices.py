"""What launchers log while one waits.

On standard error with the command line, nowhere without it.
"""

import logging

import click
import pytest

from fabbench.cli import Commands, cli
from fabbench.launchers import notify
from tests.support.command_line import runner

SENTENCE = "Job 7 was submitted; 100% of its nodes are free."


class Group(Commands):
    """The command line, with one command that only has something to say."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return click.Command(cmd_name, callback=lambda: notify(SENTENCE))


def test_the_command_line_writes_what_launchers_log() -> None:
    done = runner().invoke(Group(name="fabbench", callback=cli.callback), ["say"])
    assert (done.stdout, done.stderr) == ("", f"{SENTENCE}\n")
    assert not logging.getLogger("fabbench").handlers


def test_a_library_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("fabbench").setLevel(logging.NOTSET)
    notify(SENTENCE)
    assert capsys.readouterr() == ("", "")
