"""nccl-tests (and rccl-tests): all_reduce_perf, alltoall_perf and the others."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from fabbench.benchmarks import OF_NCCL
from fabbench.benchmarks.standard import RunBenchmark
from fabbench.model.compat import override
from fabbench.model.fabrics import AB

if TYPE_CHECKING:
    from fabbench.benchmarks.nccl.plan import NcclWork
    from fabbench.model.hosts import Host
    from fabbench.model.log import Record


class Nccl(RunBenchmark):
    """The benchmark ``nccl``: the nccl-tests programs."""

    name = "nccl"
    network_shown = OF_NCCL
    one_scale = True
    default_metrics = ("busbw", "algbw", "time", "cpu_time", "wrong")
    cases_field = "collectives"
    versions = ("nccl", "nccl_tests", "rccl", "rccl_tests", "libfabric", "plugin", "cuda", "rocm")
    resolution = MappingProxyType({"busbw": (1e7,), "algbw": (1e7,)})  # `%6.2f` of GB/s
    sweep_defaults = MappingProxyType(
        {"min_bytes": "256M", "max_bytes": "256M", "timeout_s": "300", "silence_s": "120"}
    )

    summary = "Collectives of NCCL between GPUs, with nccl-tests."
    help = """\
    Run nccl-tests with mpirun: one rank per GPU, one program per collective.

    Every configuration names its network, so that NCCL fails instead of using another one, and
    NCCL's debug lines have to show it: one file per rank, read while it grows. Options of the
    programs themselves go after --.

    Example: fabbench run nccl --ab --host node-1 --host node-2

    Example: fabbench run nccl --on local --fabric p2p --fabric shm --collective alltoall -- -z 1

    Example: fabbench run nccl --on local --virtual-nodes 2 --fabric tcp --fabric p2p
    """

    @override
    def nics(self, work: "NcclWork", fabric: str, host: "Host") -> Sequence[str]:
        return work.nics_of(fabric, host)

    @override
    def advice(self, work: "NcclWork", fabrics: Sequence[str]) -> Sequence[str]:
        is_large = work.sweep.last > 4 << 30
        if not is_large or {"tcp", AB}.isdisjoint(fabrics):
            return ()
        return ("Sizes above 4G can take very long over tcp, or hang: -e 4G leaves them out.",)

    @override
    def is_document(self, head: bytes) -> bool:
        return b'"args"' in head and b"\n{" in b"\n" + head.lstrip()

    @override
    def document(self, text: str) -> "Record | None":
        from fabbench.benchmarks.nccl import json

        return json.read_document(text)

    @override
    def printed_sizes(self, work: "NcclWork", hosts: "Sequence[Host]") -> Sequence[int]:
        return work.possible_sizes(hosts)

    @override
    def printed_steps(self, metric: str, largest: float) -> Sequence[float]:
        if metric in {"time", "cpu_time"}:
            # Two decimals of us below 100 us, one below 10 ms, then none. Smaller times of the same
            # column have more decimals, too.
            return [
                step
                for step, above in ((1e-6, 1e-2), (1e-7, 1e-4), (1e-8, 0.0))
                if largest >= above
            ]
        return super().printed_steps(metric, largest)


BENCHMARK = Nccl()
