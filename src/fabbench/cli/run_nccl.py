"""``fabbench run nccl``."""

from typing import Any

import click

from fabbench.cli.run_measures import behind_dashes, limits, nics, operations, sweep
from fabbench.cli.run_options import Asked, RunCommand, Wanted, own, shared_options

_LARGEST_OVER_SOCKETS = 4 << 30


@click.command(cls=RunCommand, short_help="Collectives of NCCL between GPUs, with nccl-tests.")
@shared_options
@click.option(
    "--collective",
    "collectives",
    multiple=True,
    metavar="NAME",
    help="What to measure, such as alltoall: all_reduce if not given. Can be given several times.",
)
@sweep("8", "2G", 2)
@click.option("-i", "--step-bytes", metavar="SIZE", help="Add this to each size, instead of the factor.")
@operations(20, 5)
@click.option(
    "-c",
    "--check",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="How many times the data of each size are compared. 0: never.",
)
@click.option("-d", "--dtype", default="float", show_default=True, help="Type of the data, or all.")
@click.option("-o", "--op", default="sum", show_default=True, help="What reductions compute, or all.")
@click.option("-r", "--root", type=int, default=0, show_default=True, help="Root rank; -1: each in turn.")
@nics
@click.option(
    "--debug",
    type=click.Choice(["INFO", "TRACE"]),
    default="INFO",
    show_default=True,
    help="Level of NCCL's debug lines. They are the proof of the fabric.",
)
@limits(1800.0)
@behind_dashes
def nccl(**options: Any) -> Asked:
    """Run nccl-tests with mpirun: one rank for each GPU, one program for each collective.

    Every arm names its network, so that NCCL fails instead of taking another one, and NCCL's debug lines have
    to show it: a file for each rank, read while it grows. Options of the programs themselves stand behind --.

    Example: fabbench run nccl --ab --on ssh --host node-1 --host node-2

    Example: fabbench run nccl --on local --fabric p2p --fabric shm --collective alltoall -- -z 1

    Example: fabbench run nccl --on local --virtual-nodes 2 --fabric tcp --fabric p2p
    """
    from fabbench.benchmarks.nccl_steps import COLLECTIVES, NcclWork
    from fabbench.sizes import sweep

    given = own(options)
    asked = given["collectives"] or COLLECTIVES[:1]
    sizes = sweep(given["min_bytes"], given["max_bytes"], given["factor"], given["step_bytes"])
    work = NcclWork(
        collectives=tuple(dict.fromkeys(name.removesuffix("_perf") for name in asked)),
        sweep=sizes,
        extra=given["extra"],
        **{name: given[name] for name in ("iterations", "warmup", "check", "dtype", "op", "root")},
        **{name: given[name] for name in ("nics", "debug", "timeout_s", "silence_s")},
    )
    wanted = Wanted.of(options)
    if sizes.last > _LARGEST_OVER_SOCKETS and {"tcp", "ab"} & set(wanted.fabrics):
        click.echo("Sizes above 4G can take very long over tcp, or hang: -e 4G leaves them out.", err=True)
    return Asked(wanted, "nccl", work, given)
