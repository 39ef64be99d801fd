"""The OSU micro-benchmarks (`osu_latency`, `osu_bw`, `osu_allreduce`, …).

MPI, and NCCL, between ranks.
"""

from collections.abc import Sequence
from types import MappingProxyType

from fabbench.benchmarks import OF_MPI
from fabbench.benchmarks.standard import RunBenchmark
from fabbench.model.compat import override


class Osu(RunBenchmark):
    """The benchmark ``osu``."""

    name = "osu"
    network_shown = OF_MPI
    versions = ("osu", "libfabric")
    default_metrics = ("latency", "time", "bandwidth", "message_rate")
    cases_field = "tests"
    resolution = MappingProxyType(
        {"latency": (1e-8,), "time": (1e-8,), "bandwidth": (1e4,), "message_rate": (1e-2,)}
    )
    summary = "OSU micro-benchmarks between MPI ranks."
    help = """\
    Run OSU micro-benchmarks with mpirun: two ranks, or --ranks-per-host on each host for
    collectives.

    Open MPI's parameters choose the transport, and its log proves it: libfabric for efa and other
    providers, UCX for ib and roce, sockets for tcp, shm inside one host. Options of the programs
    themselves go after --.

    Example: fabbench run osu --ab --host node[1-2] --program osu_latency --program osu_bw

    Example: fabbench run osu --on local --fabric shm --fabric tcp -e 64K
    """

    @override
    def metrics_of(self, case: str) -> Sequence[str]:
        return ("bandwidth", "message_rate") if "bw" in case else ("latency", "time")


BENCHMARK = Osu()
