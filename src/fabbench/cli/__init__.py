"""The command line: one thin module for each command, loaded when it is asked for.

Errors become a message and an exit status here, and nowhere else.
"""

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import click

from fabbench import __version__
from fabbench.errors import Exit, FabbenchError
from fabbench.plugins import PluginWarning

COMMANDS: Mapping[str, str] = {
    "run": "Measure on real machines, and compare.",
    "render": "Print what would be run elsewhere: a script or manifests.",
    "check": "Find out what is wrong with machines, and what to do about it.",
    "parse": "Read logs of benchmarks and print their results.",
    "explain": "Say what the logs prove about the network, and what to do about what they show.",
    "compare": "Compare runs and log files side by side, and gate on the result.",
    "runs": "List past runs.",
    "show": "Print a past run.",
    "clean": "Remove what runs have left in a Kubernetes cluster, or in Slurm's queue.",
    "config": "Show the targets and defaults of fabbench.yaml, and check it.",
}
"""In the order in which `--help` lists them; each is the function `command` of the module of that name.

The sentences stand here too so that `--help` need not import every command; a test holds them equal.
"""


class Commands(click.Group):
    """A group that imports a command's module when it is needed, and translates errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands, in order."""
        del ctx
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"{__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - a promise to the type checker
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it raises becomes a message on stderr and an exit status."""
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except FabbenchError as error:
            click.echo(f"Error: {error}", err=True)
            if error.hint:
                click.echo(f"Hint: {error.hint}", err=True)
            tell_notes(error)
            ctx.exit(error.exit)
        except KeyboardInterrupt as interrupt:
            tell_notes(interrupt)
            click.echo("Interrupted.", err=True)
            ctx.exit(Exit.INTERRUPTED)
        except OSError as error:
            _close_output()
            if not isinstance(error, BrokenPipeError):
                where = error.filename or "the output"
                click.echo(f"Error: {where} could not be written or read: {error.strerror}.", err=True)
            ctx.exit(Exit.REFUSED)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings of plug-ins as sentences, without the place in the code."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, PluginWarning):
                click.echo(f"Warning: {message}", err=True)
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def tell_notes(error: BaseException) -> None:
    """Say what else went wrong while an error was dealt with, such as what is left on hosts."""
    for note in getattr(error, "__notes__", ()):
        click.echo(note, err=True)


def _close_output() -> None:
    """Let nothing more be written to standard output: its other end is gone, or full."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="fabbench")
def cli() -> None:
    """Benchmark cluster fabrics, prove which network carried the bytes, compare and gate.

    Exit statuses: 0 fine; 1 measured well and the answer is bad; 2 the request makes no sense;
    3 a machine or a file said no; 4 the benchmark cannot be trusted; 130 interrupted.
    """
