"""``fabbench run fabtests``."""

from typing import Any

import click

from fabbench.cli.run_measures import behind_dashes, devices, sizes, timeout
from fabbench.cli.run_options import Asked, RunCommand, Wanted, own, shared_options

_PROGRAMS = (
    *("fi_rma_bw", "fi_rma_pingpong", "fi_rdm_tagged_bw", "fi_rdm_tagged_pingpong", "fi_rdm_pingpong"),
    *("fi_msg_bw", "fi_msg_pingpong"),
)


@click.command(
    cls=RunCommand, short_help="libfabric's fi_rma_bw and its like over all NICs, with GPU memory."
)
@shared_options
@click.option(
    "--program", type=click.Choice(_PROGRAMS), default=_PROGRAMS[0], show_default=True, help="The program."
)
@click.option(
    "--operation",
    type=click.Choice(["write", "read", "writedata"]),
    default="write",
    show_default=True,
    help="Of fi_rma_*: write and read go both ways at once, writedata from the client alone.",
)
@sizes("Measure this size (1024-based: 64, 4K). Several need --one-by-one. 1M if not given.")
@click.option("--all-sizes", is_flag=True, help="Measure the program's own sizes; needs --one-by-one.")
@devices("Measure this device or domain, such as rdmap0s6. Can be given several times. All if not given.")
@click.option("--one-by-one", is_flag=True, help="One NIC after another, and not all at the same time.")
@click.option(
    "--iterations",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="Messages. As many as take about ten seconds, one second with --one-by-one, if not given.",
)
@click.option("--window", type=click.IntRange(1, 10**6), metavar="N", help="Messages that are on their way.")
@click.option(
    "--memory",
    type=click.Choice(["host", "cuda"]),
    help="Whose memory. cuda where every host has GPUs: each NIC measures that of one.",
)
@click.option("--direct", is_flag=True, help="EFA's fabric efa-direct.")
@timeout(120.0, "End what takes longer: all NICs, or each with --one-by-one.")
@behind_dashes
def fabtests(**options: Any) -> Asked:
    """Run a program of libfabric's fabtests: a server and a client process for each NIC, all at once.

    NIC by NIC of the first host with that of the last one. Under the comparison stand the mean and the sum of
    all NICs. The GPUs' memory is shared out evenly between NICs.

    Options of the program itself stand behind --, for both sides.

    Example: fabbench run fabtests --on prod --efa --memory cuda
    """
    from fabbench.benchmarks.fabtests.steps import SIZE, FabtestsWork
    from fabbench.sizes import size

    given = own(options)
    sizes = tuple(dict.fromkeys(size(text) for text in given["sizes"])) or (SIZE,)
    work = FabtestsWork(**{**given, "sizes": sizes})
    return Asked(Wanted.of(options), "fabtests", work, {**given, "sizes": ",".join(map(str, sizes))})
