"""Options of the benchmarks that mpirun starts."""

from collections.abc import Callable
from typing import Any, TypeAlias

import click

from fabbench.cli.run_options import Asked
from fabbench.errors import RequestError

Command: TypeAlias = Callable[..., Asked]


def limits(timeout_s: float, silence_s: float = 300.0) -> Callable[[Command], Command]:
    """Add the limits of time: of one program from its start to its end, and of its silence."""

    def add(function: Command) -> Command:
        function = click.option(
            "--silence",
            "silence_s",
            type=click.FloatRange(0, min_open=True),
            default=silence_s,
            show_default=True,
            metavar="SECONDS",
            help="End a program that prints nothing for so long: it is stuck.",
        )(function)
        return click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(0, min_open=True),
            default=timeout_s,
            show_default=True,
            metavar="SECONDS",
            help="End a program that takes longer.",
        )(function)

    return add


def behind_dashes(function: Command) -> Command:
    """Take the words behind ``--`` for the program."""
    return click.argument(
        "extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]", callback=_options
    )(function)


def _options(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> Any:
    """Refuse a word that stands alone, which no program behind has a use for."""
    del context, parameter
    if words and not words[0].startswith("-"):
        raise RequestError(
            f"{words[0]} is no option.", hint="Options of the benchmark's own program stand behind --."
        )
    return words
