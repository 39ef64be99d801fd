"""``fabbench run``: a group with one command for each benchmark that can be started."""

import importlib
from typing import Any, Final

import click

BENCHMARKS: Final = {
    "nccl": "fabbench.cli.run_nccl",
    "nvshmem": "fabbench.cli.run_nvshmem",
    "perftest": "fabbench.cli.run_perftest",
    "fabtests": "fabbench.cli.run_fabtests",
    "pingpong": "fabbench.cli.run_pingpong",
    "torch": "fabbench.cli.run_torch",
}
"""Benchmark → the module that has its command."""


class RunGroup(click.Group):
    """Imports the command of a benchmark when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the benchmarks."""
        del ctx
        return list(BENCHMARKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of one benchmark."""
        del ctx
        module = BENCHMARKS.get(cmd_name)
        found = getattr(importlib.import_module(module), cmd_name) if module else None
        return found if isinstance(found, click.Command) else None


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
