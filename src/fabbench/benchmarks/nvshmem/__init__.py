"""The NVSHMEM perftests (`shmem_put_bw`, `alltoall_latency`, …) for device and host, 3.2 to 3.6.

One PE prints tables. Older ones, whose units and sizes depend on a version that most logs do not
state, are recognized and not read. Formats: docs/formats.md.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from fabbench.benchmarks.standard import RunBenchmark
from fabbench.model.compat import override


class Nvshmem(RunBenchmark):
    """The benchmark ``nvshmem``."""

    name = "nvshmem"
    network_shown = "NVSHMEM_DEBUG=INFO, NVSHMEM prints it"
    default_metrics = ("busbw", "latency", "bandwidth", "algbw", "message_rate")
    cases_field = "tests"
    versions = ("nccl", "nvshmem", "libfabric", "plugin", "cuda")
    resolution = MappingProxyType({"busbw": (1e6,), "algbw": (1e6,)})  # `%.3f` of GB/s

    summary = "NVSHMEM's perftests between GPUs."
    help = """\
    Run NVSHMEM's perftests with mpirun: two PEs, or one per GPU in collectives.

    The fabrics are efa, ib, roce, ucx, cxi, verbs, and p2p inside one host: NVSHMEM has no sockets.
    Its debug lines have to show the transport. Options of the programs themselves go after --.

    Example: fabbench run nvshmem --efa --host node-1 --host node-2 --program alltoall_latency

    Example: fabbench run nvshmem --on local --fabric p2p -e 1G -- --bidir
    """

    @override
    def advice(self, work: Any, fabrics: Sequence[str]) -> Sequence[str]:
        work.reject(fabrics)
        return ()


BENCHMARK = Nvshmem()
