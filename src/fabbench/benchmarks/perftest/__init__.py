"""linux-rdma perftest: `ib_write_bw`, `ib_read_lat`, `ib_send_bw`, `ib_atomic_lat`, ….

All its programs share one output routine (perftest_parameters.c). Formats by version: docs/formats.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fabbench.benchmarks import Benchmark, Signature
from fabbench.model.compat import override

if TYPE_CHECKING:
    from fabbench.benchmarks.perftest.plan import PerftestWork
    from fabbench.benchmarks.perftest.reader import PerftestReader
    from fabbench.model.hosts import Host

VERBS_CONNECTIONS = frozenset({"RC", "UC", "UD", "XRC", "DC"})
"""Connection types of InfiniBand and RoCE; the fact `link` distinguishes the two."""


class Perftest(Benchmark):
    """The benchmark ``perftest``."""

    name = "perftest"
    program_names = r"\bib_(?:write|read|send|atomic)_(?:bw|lat)\b"
    signatures = (
        Signature("#iterations", r" ?#bytes[ \t]+(?:#sl[ \t]+)?#iterations\b"),
        Signature('"test_info"', r'(?:  |\t)?"test_info"[ \t]*:[ \t]*\{'),
        Signature("Mean BW", r"Mean BW peak: [\d.]+ Gb/s"),
    )
    first_words = (
        *("#bytes", "Test", "ib_", "raw_ethernet_", "QPN", "test_info", "BW", "Device ", "qps"),
        *("ion type", "rt type", "Link type"),
        *("Mtu", "Moderation", "QPs", "Data ex", "ibv_wr", "Waiting", "Completion", "Failed", "detect"),
        *("nable to", "IB device", "ethernet_read", "bl blka", "not supported", "Parser function"),
        *("Couldn't", "Error: ", "onnection", "--------------------", "erver", "lient", "Version: "),
    )
    """The last ones are rules, headings of sides and versions, which precede a table."""
    summary = "RDMA devices one by one with ib_write_bw and similar."
    help = """\
    Run a program of linux-rdma perftest: a server and a client process per RDMA device.

    Each device of the first host is paired with that of the last host. The mean and the sum of all devices
    are below the comparison. EFA needs a perftest that was built with efadv.

    Options of the program itself go after --, for both sides.

    Example: fabbench run perftest --on prod --fabric roce --test ib_read_bw --together
    """
    sweep_defaults = MappingProxyType({"timeout_s": "30"})
    joins_groups = True
    joins_steps = True
    between_two = True
    versions = ("perftest",)
    default_metrics = ("bandwidth", "latency", "message_rate")
    cases_field = "test"
    resolution = MappingProxyType({"bandwidth": (1.25e6, 10485.76), "latency": (1e-8,), "message_rate": (1.0,)})
    """`%.2f` of usec, and of Gb/s or MiB/s; millions of messages with six decimals."""

    @override
    def reader(self) -> "PerftestReader":
        from fabbench.benchmarks.perftest.reader import PerftestReader

        return PerftestReader()

    @override
    def work_type(self) -> "type[PerftestWork]":
        from fabbench.benchmarks.perftest.plan import PerftestWork

        return PerftestWork

    @override
    def nics(self, work: "PerftestWork", fabric: str, host: "Host") -> Sequence[str]:
        return work.devices or host.linked(fabric)

    @override
    def on_nic(self, work: "PerftestWork", nic: str) -> "PerftestWork":
        return replace(work, devices=(nic,))

    @override
    def metrics_of(self, case: str) -> Sequence[str]:
        if case.endswith("_lat"):
            return "latency", "message_rate"
        return ("bandwidth", "message_rate") if case.endswith("_bw") else self.default_metrics

    @override
    def transports(self, fabric: str) -> frozenset[str]:
        from fabbench.benchmarks.perftest.plan import LINKS
        from fabbench.benchmarks.perftest.reader import EFA_DATAGRAMS

        if fabric in {"ib", "roce"}:
            return VERBS_CONNECTIONS
        return frozenset({LINKS.get(fabric, fabric.lower()), *({EFA_DATAGRAMS} if fabric == "efa" else ())})


BENCHMARK = Perftest()
