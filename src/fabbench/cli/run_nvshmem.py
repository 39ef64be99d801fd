"""``fabbench run nvshmem``."""

from typing import Any

import click

from fabbench.cli.run_measures import behind_dashes, limits, operations, sweep
from fabbench.cli.run_options import Asked, RunCommand, Wanted, own, shared_options


@click.command(cls=RunCommand, short_help="NVSHMEM's perftests between GPUs.")
@shared_options
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="NAME",
    help="The perftest, such as alltoall_latency: shmem_put_bw if not given. Can be given several times.",
)
@sweep("8", "64M", 2)
@operations(200, 20)
@click.option(
    "--pes-per-host",
    type=click.IntRange(1),
    metavar="N",
    help="PEs of each host, of collectives. One for each GPU if not given; other perftests take two in all.",
)
@click.option(
    "--nics-per-pe",
    type=click.IntRange(1),
    metavar="N",
    help="NICs that each PE uses over libfabric (NVSHMEM 3.6.5 and later). As NVSHMEM chooses if not given.",
)
@limits(900.0)
@behind_dashes
def nvshmem(**options: Any) -> Asked:
    """Run NVSHMEM's perftests with mpirun: two PEs, or one for each GPU in collectives.

    The fabrics are efa, ib, roce, ucx, cxi, verbs, and p2p inside one host: NVSHMEM has no sockets. Its debug
    lines have to show the transport. Options of the programs themselves stand behind --.

    Example: fabbench run nvshmem --efa --on ssh --host node-1 --host node-2 --test alltoall_latency

    Example: fabbench run nvshmem --on local --fabric p2p -e 1G -- --bidir
    """
    from fabbench.benchmarks.nvshmem.steps import PAIRS, NvshmemWork, refuse
    from fabbench.sizes import sweep

    given, wanted = own(options), Wanted.of(options)
    refuse(wanted.fabrics)
    work = NvshmemWork(
        tests=tuple(dict.fromkeys(given["tests"] or PAIRS[:1])),
        sweep=sweep(given["min_bytes"], given["max_bytes"], given["factor"]),
        extra=given["extra"],
        **{name: given[name] for name in ("iterations", "warmup", "pes_per_host", "nics_per_pe")},
        **{name: given[name] for name in ("timeout_s", "silence_s")},
    )
    return Asked(wanted, "nvshmem", work, given)
