"""Options that several commands have, each in one place."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.errors import RequestError

if TYPE_CHECKING:
    from fabbench.plan import Where

TARGET_VARIABLE = "FABBENCH_TARGET"

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

where = (
    click.option("--on", metavar="TARGET", help=f"Where to run: local, ssh. Else {TARGET_VARIABLE} says it."),
    click.option(
        "--host",
        "hosts",
        multiple=True,
        metavar="HOST",
        help="A host, as ssh knows it. Can be given several times; the first one is where mpirun runs.",
    ),
    click.option(
        "--nodes", type=click.IntRange(1), metavar="N", help="Use the first N hosts. All if not given."
    ),
    click.option(
        "--virtual-nodes",
        type=click.IntRange(1),
        metavar="N",
        help="On local: split this machine's GPUs into N hosts for NCCL, with its network between them.",
    ),
    click.option(
        "--gpus",
        type=click.IntRange(0),
        metavar="N",
        help="GPUs of each host to use. As many as are found if not given.",
    ),
    click.option(
        "--interface",
        metavar="NAME",
        help="Network interface for sockets. The one that has the hosts' addresses if not given.",
    ),
    click.option(
        "--bin-dir",
        "bin_dirs",
        multiple=True,
        metavar="FOLDER",
        help="Look for programs here first, on every host. Can be given several times.",
    ),
    click.option("--mpirun", metavar="PATH", help="The mpirun to use, on the first host."),
    click.option(
        "--ssh-config",
        metavar="FILE",
        help="Read this file in place of ~/.ssh/config.",
    ),
    click.option(
        "--accept-new-host-keys",
        is_flag=True,
        help="Trust hosts that known_hosts does not know. A changed key is refused all the same.",
    ),
    click.option(
        "--mpi-ssh",
        type=click.Choice(["ephemeral", "existing"]),
        default="ephemeral",
        show_default=True,
        help="How mpirun reaches the other hosts: with a key made for this run, or as it is set up there.",
    ),
    click.option(
        "--lost-after",
        type=click.FloatRange(1),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Give up a host that has not answered for so long, and end the run.",
    ),
)
"""Options that say where to run; `resolved` reads them."""

WHERE = (
    *("on", "hosts", "nodes", "virtual_nodes", "gpus", "interface", "bin_dirs", "mpirun"),
    *("ssh_config", "accept_new_host_keys", "mpi_ssh", "lost_after"),
)
"""Their names."""
_OF_ALL = ("hosts", "nodes", "gpus", "interface", "bin_dirs", "mpirun")


def resolved(given: Mapping[str, Any], environment: Mapping[str, str]) -> "tuple[Where, str]":
    """Say where to run, and why there. Raises RequestError that lists the places looked at."""
    from fabbench.plan import Where

    name = given["on"] or environment.get(TARGET_VARIABLE)
    if not name:
        raise RequestError(
            f"Nothing says where to run: there is no --on, and {TARGET_VARIABLE} is not set.",
            hint="--on local runs on this machine, --on ssh --host A --host B on others.",
        )
    why = "--on says so" if given["on"] else f"{TARGET_VARIABLE} says so"
    settings = {key: given[key] for key in WHERE if key not in {"on", *_OF_ALL}}
    where = Where(target=name, launcher=name, settings=settings, **{key: given[key] for key in _OF_ALL})
    return where, why
