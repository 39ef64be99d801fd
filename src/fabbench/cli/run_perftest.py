"""``fabbench run perftest``."""

from typing import Any

import click

from fabbench.cli.run_measures import behind_dashes, devices, sizes, timeout
from fabbench.cli.run_options import Asked, RunCommand, Wanted, own, shared_options

_TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat")


@click.command(cls=RunCommand, short_help="RDMA devices rail by rail with ib_write_bw and its like.")
@shared_options
@click.option("--test", type=click.Choice(_TESTS), default=_TESTS[0], show_default=True, help="The program.")
@sizes(
    "Measure this size (1024-based: 64, 4K). Can be given several times. 64K for bandwidth and 2 for "
    "latency if not given."
)
@click.option("-a", "--all-sizes", is_flag=True, help="Measure 2 B to 8 MiB instead.")
@devices("Measure this device, such as mlx5_0. Can be given several times. All of the fabric if not given.")
@click.option("--together", is_flag=True, help="All devices at the same time, and not one after another.")
@click.option(
    "--iterations", type=click.IntRange(5, 10**9), metavar="N", help="Messages. perftest's own if not given."
)
@click.option(
    "--duration",
    "duration_s",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help="Measure for so long instead; 10 with --together.",
)
@click.option("--bidirectional", is_flag=True, help="Both directions at once; bandwidth is their sum.")
@click.option(
    "--qps", type=click.IntRange(1, 16_384), default=1, show_default=True, help="Queue pairs for each device."
)
@click.option(
    "--ib-port", type=click.IntRange(1, 255), default=1, show_default=True, help="Port of each device."
)
@click.option(
    "--gid-index",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Index of the GID on every device. Of RoCE, the one for RoCE v2 is found if not given.",
)
@click.option("--gpu-memory", is_flag=True, help="Measure GPUs' memory: each device that of a GPU.")
@click.option("--dmabuf", is_flag=True, help="Register GPU memory as dma-buf.")
@timeout(120.0, "End a device that takes longer; all of them with --together.")
@behind_dashes
def perftest(**options: Any) -> Asked:
    """Run a program of linux-rdma perftest: a server and a client process for each RDMA device.

    Device by device of the first host with that of the last one. Under the comparison stand the mean and the
    sum of all devices. EFA needs a perftest that was built with efadv.

    Options of the program itself stand behind --, for both sides.

    Example: fabbench run perftest --on prod --fabric roce --test ib_read_bw --together
    """
    from fabbench.benchmarks.perftest.steps import PerftestWork
    from fabbench.sizes import size

    given = own(options)
    work = PerftestWork(
        **{**given, "sizes": tuple(dict.fromkeys(size(text) for text in given["sizes"]))},
    )
    return Asked(Wanted.of(options), "perftest", work, {**given, "sizes": ",".join(map(str, work.sizes))})
