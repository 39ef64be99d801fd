"""The fabtests: libfabric's own latency and bandwidth tests (`fi_rdm_pingpong`, `fi_rma_bw`, …).

One printer serves them all (fabtests/common/shared.c). It says nothing of the network that was used, and has
no closing line.
"""

from typing import Final

from fabbench.benchmarks import Benchmark
from fabbench.benchmarks.fabtests.reader import FabtestsReader


class Fabtests:
    """The benchmark ``fabtests``."""

    name: Final = "fabtests"
    joins_groups: Final = True

    def reader(self) -> FabtestsReader:
        """Give a fresh reader."""
        return FabtestsReader()


BENCHMARK: Benchmark = Fabtests()
