"""``fabbench run``: a group with one command for each benchmark that can be started."""

import click

from fabbench.cli.run_command import RunGroup


@click.group(cls=RunGroup, short_help="Run a benchmark and compare configurations.")
def command() -> None:
    """Measure on real machines: every configuration, interleaved and repeated, then a comparison.

    The first configuration is the one in question, the last one the baseline. Everything is kept in a run
    directory, also when the run is interrupted. `fabbench runs` lists them.
    """
