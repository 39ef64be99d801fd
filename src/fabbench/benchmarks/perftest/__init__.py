"""linux-rdma perftest: `ib_write_bw`, `ib_read_lat`, `ib_send_bw`, `ib_atomic_lat`, ….

All its programs share one output routine (perftest_parameters.c). Formats by version:
docs/formats.md.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from fabbench.benchmarks.standard import RunBenchmark
from fabbench.model.compat import override

if TYPE_CHECKING:
    from fabbench.benchmarks.perftest.plan import PerftestWork
    from fabbench.model.hosts import Host

EFA_DATAGRAMS = "EFA UD"
"""The fact `transport` of unreliable datagrams over EFA: perftest prints them like InfiniBand's."""
_VERBS = frozenset(
    {"RC", "UC", "UD", "XRC", "DC"}
)  # the fact `link` tells InfiniBand and RoCE apart
_TRANSPORTS = {"efa": frozenset({"SRD", EFA_DATAGRAMS}), "ib": _VERBS, "roce": _VERBS}


class Perftest(RunBenchmark):
    """The benchmark ``perftest``."""

    name = "perftest"
    network_shown = "its heading kept (Transport type, Link type), perftest prints it"
    summary = "RDMA devices one by one with ib_write_bw and similar."
    help = """\
    Run a program of linux-rdma perftest: a server and a client process per RDMA device.

    Each device of the first host is paired with that of the last host. The mean and the sum of all
    devices are below the comparison. EFA needs a perftest that was built with efadv.

    Options of the program itself go after --, for both sides.

    Example: fabbench run perftest --on prod --fabric roce --program ib_read_bw --together
    """
    sweep_defaults = MappingProxyType({"timeout_s": "30"})
    joins_groups = True
    joins_steps = True
    between_two = True
    versions = ("perftest",)
    default_metrics = ("bandwidth", "latency", "message_rate")
    cases_field = "test"
    resolution = MappingProxyType(
        {"bandwidth": (1.25e6, 10485.76), "latency": (1e-8,), "message_rate": (1.0,)}
    )
    """`%.2f` of usec, and of Gb/s or MiB/s; millions of messages with six decimals."""

    @override
    def nics(self, work: "PerftestWork", fabric: str, host: "Host") -> Sequence[str]:
        return work.devices or host.linked(fabric)

    @override
    def metrics_of(self, case: str) -> Sequence[str]:
        metrics = {"_bw": ("bandwidth", "message_rate"), "lat": ("latency", "message_rate")}
        return metrics.get(case[-3:], self.default_metrics)

    @override
    def transports(self, fabric: str) -> frozenset[str]:
        return _TRANSPORTS.get(fabric, frozenset({fabric.lower()}))


BENCHMARK = Perftest()
