"""Options that several commands have, each in one place."""

from pathlib import Path

import click

store = click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("fabbench-runs"),
    envvar="FABBENCH_STORE",
    show_default=True,
    show_envvar=True,
    help="Directory where runs are kept.",
)

fabric_of_logs = click.option(
    "--fabric",
    metavar="NAME",
    help="Judge the logs as measured on this fabric (efa, tcp, ib, roce, shm, p2p, ofi-tcp, or a libfabric "
    "provider): a log that shows another carrier is off-fabric, one that shows none is unproven.",
)
