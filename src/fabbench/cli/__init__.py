"""The command line: one thin module for each command, loaded on demand.

Errors become a message and an exit status here, and nowhere else.
"""

import errno
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, NoReturn

import click

from fabbench import __version__
from fabbench.catalog.systems import rows_of
from fabbench.cli import terminal
from fabbench.cli.commands import (
    RESUMED,
    SYNONYMS,
    WORDS,
    Again,
    SuggestingGroup,
    log_lines,
    short_help,
    suggesting,
    with_common_options,
)
from fabbench.model.compat import override
from fabbench.model.errors import Exit, FabbenchError, lacks_memory
from fabbench.model.messages import unbroken, without_secrets
from fabbench.model.plugins import PluginWarning

COMMANDS = {row["name"]: row for row in rows_of("commands.csv", "fabbench.cli")}
"""The commands before they are loaded, by their names."""
_TRY = (
    ("fabbench check --efa --on local", "is EFA ready on this machine?"),
    ("fabbench explain job.log", "which network did this job use?"),
    ("fabbench compare new.log old.log", "what changed?"),
)
_COMMANDS_THAT_READ = ("parse", "explain", "compare")
"""Commands that start nothing, so they have no notices while they run."""
_SETTINGS = {
    "help_option_names": ["--help"],
    "token_normalize_func": lambda name: SYNONYMS.get(name, name),
}


class Commands(SuggestingGroup):
    """A group that imports a command's module when it is needed, and translates errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in order."""
        del ctx
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without importing them, and some to try."""
        del ctx
        for title, commands in groupby(COMMANDS.values(), itemgetter("section")):
            rows = list(map(itemgetter("name", "summary"), commands))
            _write_section(formatter, title, rows)
        _write_section(formatter, "Try", _TRY)

    @override
    def loaded(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Import the module of a command only when it is used; others were added, or do not exist.
        row = COMMANDS.get(cmd_name)
        if row is None:
            return super().loaded(ctx, cmd_name)
        module = importlib.import_module(f"{__name__}.{row['module']}")
        for command in vars(module).values():
            if isinstance(command, click.Command) and command.name == cmd_name:
                command.short_help = row["summary"]
                return command
        return None

    @override
    def main(self, *args: Any, **more: Any) -> Any:
        with terminal.safe_streams(), _internal_errors():
            return super().main(*args, **more)

    @override
    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with suggesting():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run a command, and exit with the status that it returns.

        What it raises becomes a message and a status.
        """
        try:
            with _plain_warnings(), suggesting():
                status = super().invoke(ctx)
                if isinstance(status, Again):
                    status = self._run_again(ctx, status)
            ctx.exit(status if isinstance(status, Exit) else Exit.FINE)
        except FabbenchError as error:
            terminal.print_error(error)
            terminal.print_notes(error)
            ctx.exit(error.exit)
        except (KeyboardInterrupt, click.Abort) as interrupt:
            _exit_interrupted(ctx, interrupt)
        except RuntimeError as error:
            # Python 3.11 wraps any exception in one while a class is created, even a Ctrl-C
            # (__set_name__).
            if isinstance(error.__cause__, KeyboardInterrupt):
                _exit_interrupted(ctx, error.__cause__)
            raise
        except OSError as error:
            _print_os_error(ctx, error)
            ctx.exit(Exit.REFUSED)

    def _run_again(self, ctx: click.Context, again: Again) -> Any:
        """Run the command line that a command returned in its place; return its status."""
        ctx.meta[RESUMED] = again.resumed
        # A command keeps WORDS that are there: so these are stored, and not its own.
        if again.recorded is not None:
            ctx.meta[WORDS] = again.recorded
        command = self.get_command(ctx, again.name)
        assert command is not None  # noqa: S101 - it is one of COMMANDS
        with command.make_context(again.name, [*again.words], parent=ctx) as inner:
            return command.invoke(inner)


def _write_section(
    formatter: click.HelpFormatter, title: str, rows: Sequence[tuple[str, str]]
) -> None:
    width = max(map(len, COMMANDS))  # the same in all sections
    padded = [(name.ljust(width), about) for name, about in rows]
    with formatter.section(title):
        formatter.write_dl(padded, col_max=40)


def _print_os_error(ctx: click.Context, error: OSError) -> None:
    """Say what could not be written or read; nothing of a pipe that nobody reads any more."""
    # The output's other end is closed, or full: discard what is still buffered, or exit fails, too.
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    if error.errno == errno.ENOMEM:
        terminal.notify("Error: Not enough memory for this.")
    elif not isinstance(error, BrokenPipeError):
        where = error.filename or ctx.meta.get(terminal.OUTPUT_FILE) or "the output"
        text = f"Error: {where} could not be written or read: {error.strerror}."
        if error.errno == errno.ENOSPC:
            text += " What is there is incomplete: free some space, and repeat."
        terminal.say(text)


def _exit_interrupted(ctx: click.Context, interrupt: BaseException) -> NoReturn:
    terminal.print_notes(interrupt)
    click.echo("Interrupted.", err=True)
    ctx.exit(Exit.INTERRUPTED)


@contextmanager
def _internal_errors() -> Iterator[None]:
    """Report an exception that is not a `FabbenchError`, and end with `Exit.INTERNAL`."""
    try:
        yield
    except OSError as error:  # from output outside of commands, such as --help
        with suppress(OSError, ValueError):
            click.echo(
                f"Error: {error.filename or 'the output'} cannot be written: {error.strerror}.",
                err=True,
            )
        raise SystemExit(Exit.REFUSED) from None
    except Exception as error:
        if lacks_memory(error):
            raise  # `__main__` reports it, without taking more memory
        _report_internal(error)
        raise SystemExit(Exit.INTERNAL) from None


@contextmanager
def failures_of_process() -> Iterator[None]:
    """Report exceptions of threads, and those that Python cannot raise (in finalizers).

    The program continues then, and ends with `Exit.INTERNAL` unless it was interrupted. Only for a
    process that is fabbench: in another one, a thread or garbage from before the command would
    decide its status.
    """
    reported: list[BaseException] = []

    def record(failure: Any) -> None:
        error = failure.exc_value
        # If memory runs out, the command itself reports it; a report here would need more of it.
        if error is not None and not isinstance(error, SystemExit) and not lacks_memory(error):
            reported.append(error)
            _report_internal(error)

    of_threads = threading.excepthook
    of_finalizers = sys.unraisablehook
    threading.excepthook = sys.unraisablehook = record
    try:
        yield
    except SystemExit as end:
        if reported and end.code != Exit.INTERRUPTED:
            raise SystemExit(Exit.INTERNAL) from None
        raise
    finally:
        threading.excepthook = of_threads
        sys.unraisablehook = of_finalizers


def _report_internal(error: BaseException) -> None:
    import platform
    import traceback

    text = "".join(traceback.format_exception(error))
    message = unbroken(without_secrets(f"{type(error).__name__}: {error}".removesuffix(": ")))
    system = f"Python {platform.python_version()}, {platform.platform(terse=True)}"
    lines = (
        f"Internal error: {message}",
        (
            f"This is a bug in fabbench {__version__} ({system}) or a plug-in. Do not rely on what "
            "was printed."
        ),
        "Hint: Report it: the command line, and everything from here on.",
        without_secrets(text).rstrip(),
    )
    with suppress(OSError, ValueError):  # standard error is closed, or full
        click.echo("\n".join(lines), err=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings of plug-ins as sentences, without the source location."""
    with warnings.catch_warnings():
        default = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *location: Any, **more: Any
        ) -> None:
            # Those of our own are sentences for users; others are shown as Python does.
            if issubclass(category, PluginWarning):
                terminal.say(f"Warning: {message}")
            elif category.__module__.startswith("fabbench."):
                terminal.notify(str(message))
            else:
                default(message, category, *location, **more)

        warnings.showwarning = show
        yield


@with_common_options
@click.group(cls=Commands, invoke_without_command=True, context_settings=_SETTINGS)
@click.version_option(
    __version__,
    "-V",
    "--version",
    prog_name="fabbench",
    message="%(prog)s, version %(version)s\nBenchmarks cluster fabrics; see fabbench --help.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Benchmark cluster networks, verify the transport, compare runs, gate CI.

    Exit statuses: 0 success; 1 measured, but a gate failed; 2 usage error;
    3 environment error (a machine, a job, a disk or a file); 4 result not trustworthy;
    70 a bug in fabbench itself; 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(short_help(ctx))
    elif ctx.invoked_subcommand not in _COMMANDS_THAT_READ:
        import logging  # what launchers log, such as the id of a job

        ctx.with_resource(log_lines(logging.getLogger("fabbench"), terminal.notify))
