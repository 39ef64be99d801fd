"""The fabtests: libfabric's own latency and bandwidth tests (`fi_rdm_pingpong`, `fi_rma_bw`, …).

They share one output routine (fabtests/common/shared.c). It does not report the network that was
used, and prints no closing line.
"""

from collections.abc import Sequence
from types import MappingProxyType

from fabbench.benchmarks.libfabric import LibfabricBenchmark
from fabbench.model.compat import override


class Fabtests(LibfabricBenchmark):
    """The benchmark ``fabtests``."""

    name = "fabtests"
    default_metrics = ("bandwidth", "latency", "time", "message_rate")
    cases_field = "program"
    resolution = MappingProxyType(
        {"bandwidth": (1.25e6, 1e4), "latency": (1e-8,), "time": (1e-8,)}
    )  # `%.2f`

    summary = "libfabric's fi_rma_bw and similar over all NICs, with GPU memory."
    help = """\
    Run a program of libfabric's fabtests: a server and a client process per NIC, all at once.

    Each NIC of the first host is paired with that of the last host. The mean and the sum of all
    NICs are below the comparison. The GPUs are distributed evenly between NICs.

    Options of the program itself go after --, for both sides.

    Example: fabbench run fabtests --on prod --efa --memory cuda
    """

    @override
    def metrics_of(self, case: str) -> Sequence[str]:
        if case.endswith(("_lat", "pingpong")):
            return "latency", "bandwidth", "message_rate", "time"
        return self.default_metrics


BENCHMARK = Fabtests()
