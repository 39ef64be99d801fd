"""Options that several benchmarks have, each with defaults of its own."""

from collections.abc import Callable
from typing import Any, TypeAlias

import click

from fabbench.cli.run_options import Asked
from fabbench.errors import RequestError

Command: TypeAlias = Callable[..., Asked]


def sweep(first: str, last: str, factor: int) -> Callable[[Command], Command]:
    """Add the range of sizes, with its defaults."""
    return _together(
        click.option(
            *("-b", "--min-bytes"),
            default=first,
            show_default=True,
            help=f"Smallest size (1024-based: {first}, 4K).",
        ),
        click.option("-e", "--max-bytes", default=last, show_default=True, help="Largest size."),
        click.option(
            *("-f", "--factor"),
            type=int,
            default=factor,
            show_default=True,
            help="From each size to the next.",
        ),
    )


def sizes(about: str) -> Callable[[Command], Command]:
    """Add sizes that are named one by one."""
    return click.option("--size", "sizes", multiple=True, metavar="SIZE", help=about)


def devices(about: str) -> Callable[[Command], Command]:
    """Add devices that are named one by one."""
    return click.option("--device", "devices", multiple=True, metavar="NAME", help=about)


def operations(timed: int, warmup: int, *, named: str = "--iterations") -> Callable[[Command], Command]:
    """Add how many operations are timed, for each size unless they are `named` otherwise, and before them."""
    each = " for each size" if named == "--iterations" else ""
    return _together(
        click.option(
            *("-n", named),
            type=click.IntRange(1),
            default=timed,
            show_default=True,
            help=f"Operations that are timed{each}.",
        ),
        click.option(
            *("-w", "--warmup"),
            type=click.IntRange(0),
            default=warmup,
            show_default=True,
            help="Before them.",
        ),
    )


nics = click.option(
    "--nics",
    type=click.IntRange(0),
    metavar="N",
    help="NICs that each rank must have used. All of the fabric that the hosts have if not given; 0: any.",
)


def timeout(seconds: float, about: str) -> Callable[[Command], Command]:
    """Add the limit of time of what `about` says."""
    return _seconds("--timeout", "timeout_s", seconds, about)


def limits(timeout_s: float, silence_s: float = 300.0) -> Callable[[Command], Command]:
    """Add the limits of time: of one program from its start to its end, and of its silence."""
    return _together(
        timeout(timeout_s, "End a program that takes longer."),
        _seconds(
            "--silence", "silence_s", silence_s, "End a program that prints nothing for so long: it is stuck."
        ),
    )


def _seconds(option: str, name: str, default: float, about: str) -> Callable[[Command], Command]:
    return click.option(
        option,
        name,
        type=click.FloatRange(0, min_open=True),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=about,
    )


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Make one decorator of several, which list in this order."""

    def add(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

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
