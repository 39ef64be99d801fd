"""``--quiet``, ``--verbose`` and ``--debug FILE``, before a command or among its options."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar, cast

import click

from fabbench.cli import terminal
from fabbench.model.actions import action_logger
from fabbench.model.errors import MachineError
from fabbench.model.messages import printable

CommandT = TypeVar("CommandT", bound=click.Command)
_VERBOSE = "fabbench.verbose"


@contextmanager
def _logged(stream: IO[str] | None = None) -> Iterator[None]:
    """Write a line for each action to a stream; without one, to the current standard error."""
    import logging

    class ActionLines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            out = stream or sys.stderr
            out.write(f"{printable(self.format(record))}\n")
            out.flush()

    handler, logger = ActionLines(), action_logger()
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    try:
        file = path.open("w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}."
        raise MachineError(text, hint="Choose another file for --debug.") from error
    with file, _logged(cast("IO[str]", file)):
        yield


def _quiet(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
    del parameter
    if given and not ctx.resilient_parsing:
        ctx.with_resource(terminal.quietly())


def _verbose(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
    del parameter
    if given and not is_verbose(ctx) and not ctx.resilient_parsing:
        ctx.meta[_VERBOSE] = True
        ctx.with_resource(_logged())


def is_verbose(ctx: click.Context) -> bool:
    """Return whether ``--verbose`` was given."""
    return bool(ctx.meta.get(_VERBOSE))


def _debug(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    del parameter
    if path is not None and not ctx.resilient_parsing:
        ctx.with_resource(_logged() if str(path) == "-" else _logged_to(path))


def verbosity_options() -> list[click.Parameter]:
    """Return the three options."""
    return [
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_quiet,
            help="Print results and errors only: no progress, no notices.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_verbose,
            help="Print each action on standard error: programs started, hosts reached, API requests.",
        ),
        click.Option(
            ["--debug"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=_debug,
            help="Write each action to FILE, one per line with its time. Secrets are redacted.",
        ),
    ]


def with_verbosity(command: CommandT) -> CommandT:
    """Add the options to a command; a group's commands have their own."""
    names = {flag for each in command.params for flag in each.opts}
    if "--quiet" not in names:
        command.params.extend(verbosity_options())
    return command
