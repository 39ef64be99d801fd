"""Ctrl-C before a command has begun: no traceback, wherever Python was."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from fabbench.cli import Commands
from tests.support.command_line import runner


class Interrupts:
    def __set_name__(self, owner: type, name: str) -> None:
        interrupt = KeyboardInterrupt()
        # As Python 3.12 does, and later ones.
        interrupt.add_note(
            f"Error calling __set_name__ on 'Interrupts' instance {name!r} in 'Options'"
        )
        raise interrupt


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


def test_an_interrupt_while_python_cleans_up_is_an_exit_status() -> None:
    """What was to be said has been said."""
    text = (
        "import atexit, os, signal, sys, time\n"
        "atexit.register(lambda: [os.kill(os.getpid(), signal.SIGINT), time.sleep(9)])\n"
        "from fabbench.__main__ import main\n"
        "sys.argv = ['fabbench', '--version']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout.startswith("fabbench, version ")


@pytest.mark.parametrize("where", ["click", "fabbench.cli.read_results"])
def test_an_interrupt_within_an_exec_is_an_exit_status(tmp_path: Path, where: str) -> None:
    """`python -m` would end by the signal.

    Whether the command line is there yet makes no difference.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {where!r}: exec('raise KeyboardInterrupt')\n"
        "sys.meta_path.insert(0, Interrupts())\n"
    )
    command = [sys.executable, "-m", "fabbench", "parse", "x"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
