"""The command line: one thin module for each command, loaded on demand.

Errors become a message and an exit status here, and nowhere else.
"""

import contextlib
import errno
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import click

from fabbench import __version__
from fabbench.cli import terminal
from fabbench.cli.internal_errors import internal_errors
from fabbench.cli.suggestions import SuggestingGroup
from fabbench.cli.verbosity import with_verbosity
from fabbench.model.compat import override
from fabbench.model.errors import Exit, FabbenchError
from fabbench.model.plugins import PluginWarning

COMMANDS: Mapping[str, str] = {
    "run": "Run a benchmark and compare configurations.",
    "render": "Print a script or manifests that run the benchmark elsewhere.",
    "check": "Check hosts or clusters before a run, and suggest fixes.",
    "nodes": "List the nodes of a cluster: type, GPUs, EFA.",
    "instances": "List EC2 instance types with EFA.",
    "parse": "Read benchmark logs and print their results.",
    "explain": "Diagnose which network a log or run used, and why.",
    "compare": "Compare runs and log files, and gate on the result.",
    "sweep": "Find bad nodes, NICs and links of a cluster.",
    "baseline": "Name runs that others are compared with.",
    "history": "Show how a metric changed over past runs.",
    "runs": "List past runs, or remove them.",
    "show": "Print a past run.",
    "report": "Write runs or logs as an HTML page, to read or to send.",
    "rerun": "Repeat a past run.",
    "clean": "Remove leftover pods and jobs from a cluster (not local runs).",
    "completion": "Print the completion script for bash, zsh or fish.",
    "config": "Show the targets and defaults of fabbench.yaml, and check it.",
}
"""In the order in which `--help` lists them; each is the function `command` of the module of that name.

The sentences are repeated here so that `--help` need not import every command; a test keeps them in sync.
"""


_GROUPS = frozenset({"run", "render"})  # Commands whose options are those of the commands below them
_READERS = frozenset({"parse", "explain", "compare"})
"""Commands that start nothing, so they have no notices while they run."""


class Commands(SuggestingGroup):
    """A group that imports a command's module when it is needed, and translates errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in order."""
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
        return command if cmd_name in _GROUPS else with_verbosity(command)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name not in _READERS:
            ctx.with_resource(_notices())
        return name, command, rest

    @override
    def main(self, *args: Any, **more: Any) -> Any:
        with terminal.safe_streams(), internal_errors():
            return super().main(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it raises becomes a message on stderr and an exit status."""
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except FabbenchError as error:
            terminal.print_error(error)
            terminal.print_notes(error)
            ctx.exit(error.exit)
        except MemoryError:
            terminal.notify("Error: Not enough memory for this.")
            ctx.exit(Exit.REFUSED)
        except (KeyboardInterrupt, click.Abort) as interrupt:
            _interrupted(ctx, interrupt)
        except RuntimeError as error:
            # Python 3.11 wraps any exception in one while a class is created, even a Ctrl-C (__set_name__).
            if isinstance(error.__cause__, KeyboardInterrupt):
                _interrupted(ctx, error.__cause__)
            raise
        except OSError as error:
            with contextlib.suppress(OSError, ValueError):  # its other end is closed, or full: discard the rest
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno == errno.ENOMEM:
                terminal.notify("Error: Not enough memory for this.")
            elif not isinstance(error, BrokenPipeError):
                where = error.filename or "the output"
                terminal.say(f"Error: {where} could not be written or read: {error.strerror}.")
            ctx.exit(Exit.REFUSED)


def _interrupted(ctx: click.Context, interrupt: BaseException) -> NoReturn:
    terminal.print_notes(interrupt)
    click.echo("Interrupted.", err=True)
    ctx.exit(Exit.INTERRUPTED)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings of plug-ins as sentences, without the source location."""
    with warnings.catch_warnings():
        default = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
            if issubclass(category, PluginWarning):
                terminal.say(f"Warning: {message}")
            elif category.__module__.startswith("fabbench."):
                terminal.notify(str(message))
            else:
                default(message, category, *location, **more)

        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _notices() -> Iterator[None]:
    """Write what launchers log, such as the id of a job, on standard error."""
    import logging

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            terminal.notify(record.getMessage())

    logger, handler = logging.getLogger("fabbench"), Notices()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@with_verbosity
@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="fabbench")
def cli() -> None:
    """Benchmark cluster networks, verify the transport, compare runs, gate CI.

    Exit statuses: 0 success; 1 measured, but a gate failed; 2 usage error;
    3 environment error (a machine, a job, a disk or a file); 4 result not trustworthy;
    70 a bug in fabbench itself; 130 interrupted.
    """
