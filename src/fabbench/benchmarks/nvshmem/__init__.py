"""The NVSHMEM perftests (`shmem_put_bw`, `alltoall_latency`, …) for device and host, 3.2 to 3.6.

One PE prints tables. Older ones, whose units and sizes depend on a version that most logs do not
state, are recognized and not read. Formats: docs/formats.md.
"""

from collections.abc import Sequence
from typing import Any

from fabbench.benchmarks.standard import RunBenchmark
from fabbench.model.compat import override


class Nvshmem(RunBenchmark):
    """The benchmark ``nvshmem``."""

    name = "nvshmem"
    network_shown = "NVSHMEM_DEBUG=INFO, NVSHMEM prints it"
    cases_field = "tests"

    summary = "NVSHMEM's perftests between GPUs."
    help = """\
    Run NVSHMEM's perftests with mpirun: two PEs, or one per GPU in collectives.

    The fabrics are efa, ib, roce, ucx, cxi, verbs, and p2p inside one host: NVSHMEM has no sockets.
    Its debug lines have to show the transport. Options of the programs themselves go after --.

    Example: fabbench run nvshmem --efa --host node-1 --host node-2 --program alltoall_latency

    Example: fabbench run nvshmem --on local --fabric p2p -e 1G -- --bidir
    """

    @override
    def may_begin(self, text: str) -> bool:
        # Titles of NVSHMEM's tables are a word: `# put_bw`, `put_bw (GB/s)`, or in a box.
        if super().may_begin(text):
            return True
        first = text.lstrip()[:1]
        if first == "#":
            is_title = text.strip("# \t").isidentifier()
        else:
            is_title = first == "|"  # of a boxed table
        # A title has one unit, names of columns have several.
        is_with_unit = "(GB/s)" in text and text.count("(") == 1
        return is_title or is_with_unit

    @override
    def advice(self, work: Any, fabrics: Sequence[str]) -> Sequence[str]:
        work.reject(fabrics)
        return ()


BENCHMARK = Nvshmem()
