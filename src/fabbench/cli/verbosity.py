"""``--quiet``, ``--verbose``, ``--no-color`` and ``--debug FILE``, before a command or among its options."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar, cast

import click

from fabbench.cli import terminal
from fabbench.cli.help_sections import with_short_help
from fabbench.model.actions import action_logger
from fabbench.model.errors import MachineError
from fabbench.model.messages import printable

if TYPE_CHECKING:
    import logging

CommandT = TypeVar("CommandT", bound=click.Command)


@contextmanager
def log_lines(logger: "logging.Logger", write: Callable[[str], object], form: str = "%(message)s") -> Iterator[None]:
    """Write a line for each record of a logger."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            write(self.format(record))

    handler = Handler()
    handler.setFormatter(logging.Formatter(form, "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _logged(stream: IO[str] | None = None) -> AbstractContextManager[None]:
    """Write a line for each action to a stream; without one, to the current standard error."""

    def write(line: str) -> None:
        (out := stream or sys.stderr).write(f"{printable(line)}\n")
        out.flush()

    return log_lines(action_logger(), write, "%(asctime)s.%(msecs)03d %(message)s")


def _switch(flags: list[str], enter: Callable[[], AbstractContextManager[object]], about: str) -> click.Option:
    def turn_on(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
        key = f"fabbench.{parameter.name}"
        if given and not ctx.meta.get(key) and not ctx.resilient_parsing:
            ctx.meta[key] = True
            ctx.find_root().with_resource(enter())  # errors are written after the command has ended

    return click.Option(flags, is_flag=True, expose_value=False, callback=turn_on, help=about)


def is_verbose(ctx: click.Context) -> bool:
    """Return whether ``--verbose`` was given."""
    return bool(ctx.meta.get("fabbench.verbose"))


def _debug(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    del parameter
    if path is None or ctx.resilient_parsing:
        return
    try:
        file = None if str(path) == "-" else path.open("w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}."
        raise MachineError(text, hint="Choose another file for --debug.") from error
    ctx.with_resource(_logged(file and cast("IO[str]", ctx.with_resource(file))))


def verbosity_options() -> list[click.Parameter]:
    """Return the four options."""
    quiet = "Print results and errors only: no progress, no notices."
    verbose = "Print each action on standard error: programs started, hosts reached, API requests."
    debug = "Write each action to FILE, one per line with its time. Secrets are redacted."
    file = partial(click.Option, type=click.Path(path_type=Path), metavar="FILE", expose_value=False)
    return [
        _switch(["-q", "--quiet"], partial(terminal.without, "notices"), quiet),
        _switch(["-v", "--verbose"], _logged, verbose),
        _switch(["--no-color"], partial(terminal.without, "colors"), "Print without colors, as with NO_COLOR=1."),
        file(["--debug", "log"], callback=_debug, help=debug),
    ]


def with_verbosity(command: CommandT) -> CommandT:
    """Add the options, and ``-h``, to a command; a group's commands have their own."""
    if not any("--quiet" in each.opts for each in command.params):
        command.params.extend(verbosity_options())
    return with_short_help(command)
