"""The NVSHMEM perftests (`shmem_put_bw`, `alltoall_latency`, …), device and host, 1.0 to 3.6.

One PE prints tables, whose layout, units and even meaning changed with the version, and most of them do not
say which version it was. Formats, by version: docs/formats.md.
"""

from typing import Final

from fabbench.benchmarks import Benchmark
from fabbench.benchmarks.nvshmem.reader import NvshmemReader


class Nvshmem:
    """The benchmark ``nvshmem``."""

    name: Final = "nvshmem"
    joins_groups: Final = False

    def reader(self) -> NvshmemReader:
        """Give a fresh reader."""
        return NvshmemReader()


BENCHMARK: Benchmark = Nvshmem()
