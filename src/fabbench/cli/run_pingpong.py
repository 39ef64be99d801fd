"""``fabbench run pingpong``."""

from typing import Any

import click

from fabbench.cli.run_measures import sizes, sweep, timeout
from fabbench.cli.run_options import Asked, RunCommand, Wanted, own, shared_options


@click.command(cls=RunCommand, short_help="Latency and bandwidth of fi_pingpong between two processes.")
@shared_options
@sweep("64", "4M", 16)
@sizes("Measure these sizes instead.")
@click.option(
    "--endpoint",
    type=click.Choice(["msg", "rdm", "dgram"]),
    help="Type of endpoint. msg for tcp and verbs, else rdm.",
)
@click.option(
    "--iterations",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="Messages for each size. As many as make connection set-up less than 1 % of the time if not given.",
)
@click.option("--domain", metavar="NAME", help="Measure over this domain (interface), and prove it.")
@click.option(
    "--all-domains",
    is_flag=True,
    help="Measure over each RDMA device's domain, one after another; a table for each.",
)
@click.option("--check", is_flag=True, help="Compare the data of each message.")
@timeout(60.0, "End a size that takes longer.")
def pingpong(**options: Any) -> Asked:
    """Run libfabric's fi_pingpong: a server and a client process for each size.

    Which provider, domain and addresses were used is read from the program, and an arm that used others than
    were asked for counts as off-fabric. `latency` is one way, `bandwidth` adds both directions.

    Example: fabbench run pingpong --on local --fabric shm --fabric tcp
    """
    from fabbench.benchmarks.pingpong.steps import PingpongWork, size_range
    from fabbench.sizes import size

    given = own(options)
    sizes = tuple(size(text) for text in given["sizes"]) or size_range(
        given["min_bytes"], given["max_bytes"], given["factor"]
    )
    work = PingpongWork(
        sizes=tuple(dict.fromkeys(sizes)),
        endpoint=given["endpoint"] or "",
        iterations=given["iterations"],
        timeout_s=given["timeout_s"],
        domain=given["domain"],
        all_domains=given["all_domains"],
        check=given["check"],
    )
    return Asked(Wanted.of(options), "pingpong", work, {**given, "sizes": ",".join(map(str, work.sizes))})
