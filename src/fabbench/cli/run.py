"""``fabbench run``: a group with one command for each benchmark that can be started.

The command of ``fabbench.benchmarks.NAME`` is the function NAME of ``fabbench.cli.run_NAME``. Other
distributions have theirs in the group of entry points ``fabbench.commands``: docs/add-a-benchmark.md.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from fabbench.errors import RequestError

if TYPE_CHECKING:
    from fabbench.plan import Work

GROUP: Final = "fabbench.commands"
_PREFIX = "run_"


class RunGroup(click.Group):
    """Imports the command of a benchmark when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the benchmarks."""
        del ctx
        return names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of one benchmark. One that cannot be loaded says so when it is called."""
        from fabbench.plugins import entry_points, load

        del ctx
        if cmd_name in _own():
            found = getattr(importlib.import_module(f"fabbench.cli.{_PREFIX}{cmd_name}"), cmd_name)
            return found if isinstance(found, click.Command) else None
        entry = entry_points(GROUP).get(cmd_name)
        if entry is None:
            return None
        try:
            return cast("click.Command", load(entry, click.Command))
        except RequestError as error:
            return _broken(cmd_name, error)


def names() -> list[str]:
    """Name the benchmarks that can be run."""
    from fabbench.plugins import entry_points

    return sorted({*_own(), *entry_points(GROUP)})


def work(name: str, config: Path | None) -> "Work":
    """Say what ``fabbench run NAME`` would measure where no option says otherwise.

    `config` is the fabbench.yaml whose defaults count; None: the one that is found.
    """
    found = command.get_command(click.Context(command), name)
    assert found is not None  # noqa: S101 - one of `names`
    words = ["--config", str(config)] if config else []
    given: Work = found.main(words, prog_name=name, standalone_mode=False).work
    return given


def _own() -> set[str]:
    """Name fabbench's own benchmarks that have a command."""
    names = {
        package: {module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)}
        for package in ("fabbench.cli", "fabbench.benchmarks")
    }
    return {name for name in names["fabbench.benchmarks"] if f"{_PREFIX}{name}" in names["fabbench.cli"]}


def _broken(name: str, error: RequestError) -> click.Command:
    """Make the command of a benchmark that cannot be loaded: it is listed as such, and fails if called."""

    def fail(words: tuple[str, ...]) -> None:
        del words
        raise error

    return click.Command(
        name,
        callback=fail,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help=str(error),
        short_help=f"Cannot be loaded: {error.__cause__}",
    )


@click.group(cls=RunGroup, short_help="Measure on real machines, and compare.")
def command() -> None:
    """Measure on real machines: every arm, interleaved and repeated, then a comparison.

    The first arm is the one in question, the last one the base. Everything is kept in a run directory, also
    when the run is interrupted. `fabbench runs` lists them.
    """


@command.result_callback()
def _start(asked: tuple[Any, ...]) -> None:
    """Run what was asked for: `fabbench.cli.run_options.Asked`, which a command gives."""
    # By name, as the benchmarks' commands are: fabbench.cli.config asks this module which there are.
    importlib.import_module("fabbench.cli.run_start").start(*asked)
