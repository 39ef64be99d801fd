"""The command line: one thin module for each command, loaded on demand.

Errors become a message and an exit status here, and nowhere else.
"""

import contextlib
import errno
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from fabbench import __version__
from fabbench.cli import terminal
from fabbench.cli.commands import (
    SYNONYMS,
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

_SECTIONS: dict[str, list[str]] = {}
COMMANDS: dict[str, str] = {}  # Command → what `--help` says of it
_LOADED: dict[str, tuple[str, str]] = {}  # Command → its module, and its own help
for _section in (
    Path(__file__).with_name("help.txt").read_text("utf-8").removeprefix("# ").split("\n# ")
):
    _title, *_texts = _section.split("\n## ")
    for _head, _, _help in (each.partition("\n") for each in _texts):
        _name, _module, COMMANDS[_name] = _head.split(" | ")
        _SECTIONS.setdefault(_title.strip(), []).append(_name)
        _LOADED[_name] = _module, _help.strip().replace("\\b", "\b")
_TRY = (
    ("fabbench check --efa --on local", "is EFA ready on this machine?"),
    ("fabbench explain job.log", "which network did this job use?"),
    ("fabbench compare new.log old.log", "what changed?"),
)
_READERS = frozenset({"parse", "explain", "compare"})
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
        width = max(map(len, COMMANDS))
        sections = {
            name: [(each, COMMANDS[each]) for each in commands]
            for name, commands in _SECTIONS.items()
        }
        for name, records in (sections | {"Try": [*_TRY]}).items():
            with formatter.section(name):
                formatter.write_dl(
                    [(f"{each:{width}}", text) for each, text in records], col_max=40
                )

    @override
    def loaded(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, about = _LOADED[cmd_name]
        every = vars(importlib.import_module(f"{__name__}.{module}")).values()
        command = next(
            each for each in every if isinstance(each, click.Command) and each.name == cmd_name
        )
        command.short_help, command.help = COMMANDS[cmd_name], about
        return command

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
            ctx.exit(status if isinstance(status, Exit) else Exit.FINE)
        except FabbenchError as error:
            terminal.print_error(error)
            terminal.print_notes(error)
            ctx.exit(error.exit)
        except (KeyboardInterrupt, click.Abort) as interrupt:
            _interrupted(ctx, interrupt)
        except RuntimeError as error:
            # Python 3.11 wraps any exception in one while a class is created, even a Ctrl-C
            # (__set_name__).
            if isinstance(error.__cause__, KeyboardInterrupt):
                _interrupted(ctx, error.__cause__)
            raise
        except OSError as error:
            with contextlib.suppress(
                OSError, ValueError
            ):  # its other end is closed, or full: discard the rest
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno == errno.ENOMEM:
                terminal.notify("Error: Not enough memory for this.")
            elif not isinstance(error, BrokenPipeError):
                where = error.filename or ctx.meta.get(terminal.OUTPUT_FILE) or "the output"
                full = " What is there is incomplete: free some space, and repeat." * (
                    error.errno == errno.ENOSPC
                )
                terminal.say(
                    f"Error: {where} could not be written or read: {error.strerror}.{full}"
                )
            ctx.exit(Exit.REFUSED)


def _interrupted(ctx: click.Context, interrupt: BaseException) -> NoReturn:
    terminal.print_notes(interrupt)
    click.echo("Interrupted.", err=True)
    ctx.exit(Exit.INTERRUPTED)


@contextlib.contextmanager
def _internal_errors() -> Iterator[None]:
    """Report exceptions that are not `FabbenchError`s, and end the program with `Exit.INTERNAL`.

    Also those of threads, and those that Python cannot raise (in finalizers): the program continues
    then, and ends with that status unless it was interrupted.
    """
    reported: list[BaseException] = []

    def record(failure: Any) -> None:
        error = failure.exc_value
        # If memory runs out, the command itself reports it; a report here would need more of it.
        if error is not None and not isinstance(error, SystemExit) and not lacks_memory(error):
            reported.append(error)
            _report_internal(error)

    before = threading.excepthook, sys.unraisablehook
    threading.excepthook = sys.unraisablehook = record
    try:
        yield
    except SystemExit as end:
        if reported and end.code != Exit.INTERRUPTED:
            raise SystemExit(Exit.INTERNAL) from None
        raise
    except OSError as error:  # from output outside of commands, such as --help
        with contextlib.suppress(OSError, ValueError):
            click.echo(
                f"Error: {error.filename or 'the output'} cannot be written: {error.strerror}.",
                err=True,
            )
        raise SystemExit(Exit.REFUSED) from None
    except Exception as error:
        if lacks_memory(error):
            raise
        _report_internal(error)
        raise SystemExit(Exit.INTERNAL) from None
    finally:
        threading.excepthook, sys.unraisablehook = before
    if reported:
        raise SystemExit(Exit.INTERNAL)


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
    with contextlib.suppress(OSError, ValueError):  # standard error is closed, or full
        click.echo("\n".join(lines), err=True)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings of plug-ins as sentences, without the source location."""
    with warnings.catch_warnings():
        default = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *location: Any, **more: Any
        ) -> None:
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
@click.version_option(__version__, "-V", "--version", prog_name="fabbench")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Benchmark cluster networks, verify the transport, compare runs, gate CI.

    Exit statuses: 0 success; 1 measured, but a gate failed; 2 usage error;
    3 environment error (a machine, a job, a disk or a file); 4 result not trustworthy;
    70 a bug in fabbench itself; 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(short_help(ctx))
    elif ctx.invoked_subcommand not in _READERS:
        import logging  # what launchers log, such as the id of a job

        ctx.with_resource(log_lines(logging.getLogger("fabbench"), terminal.notify))
