"""linux-rdma perftest (`ib_write_bw`, `ib_read_lat`, `ib_send_bw`, `ib_atomic_lat`, …): reads its output.

One printer serves all its programs (perftest_parameters.c). Formats, by version: docs/formats.md.
"""

from typing import Final

from fabbench.benchmarks import Benchmark
from fabbench.benchmarks.perftest.reader import PerftestReader


class Perftest:
    """The benchmark ``perftest``."""

    name: Final = "perftest"
    joins_groups: Final = True

    def reader(self) -> PerftestReader:
        """Give a fresh reader."""
        return PerftestReader()


BENCHMARK: Benchmark = Perftest()
