"""fi_pingpong: libfabric's own ping-pong between two processes. One-way latency, and bandwidth.

It has no closing line, truncates sizes in print, and runs over the first network that libfabric
lists. So fabbench starts it with ``-v``, one size at a time, and reads what was actually used.
"""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fabbench.benchmarks.libfabric import LibfabricBenchmark
from fabbench.model.compat import override

if TYPE_CHECKING:
    from fabbench.benchmarks.pingpong.plan import PingpongWork
    from fabbench.model.hosts import Host


class Pingpong(LibfabricBenchmark):
    """The benchmark ``pingpong``. fi_pingpong comes with the EFA installer."""

    name = "pingpong"
    default_metrics = ("latency", "bandwidth", "message_rate")
    resolution = MappingProxyType(
        {"bandwidth": (1e4,), "latency": (1e-8,)}
    )  # `%.2f` of usec and MB/sec

    sweep_metric = "bandwidth"
    sweep_defaults = MappingProxyType({"sizes": ("1M",), "timeout_s": "30"})

    summary = "Latency and bandwidth of fi_pingpong between two processes."
    help = """\
    Run libfabric's fi_pingpong: a server and a client process per size.

    Which provider, domain and addresses were used is read from the program; a configuration that
    used others than requested counts as off-fabric. `latency` is one-way, `bandwidth` adds both
    directions.

    Example: fabbench run pingpong --on local --fabric shm --fabric tcp
    """

    @override
    def each_nic(self, work: "PingpongWork") -> "PingpongWork":
        return replace(work, all_domains=work.domain is None)

    @override
    def nics(self, work: "PingpongWork", fabric: str, host: "Host") -> Sequence[str]:
        return work.domains(fabric, host)

    @override
    def on_nic(self, work: "PingpongWork", nic: str) -> "PingpongWork":
        return replace(work, domain=nic, all_domains=False)


BENCHMARK = Pingpong()
