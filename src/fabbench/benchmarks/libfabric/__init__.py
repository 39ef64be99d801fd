"""What fi_pingpong and the fabtests share.

How they print numbers, and what they report about themselves.
"""

from fabbench.benchmarks.standard import RunBenchmark
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import providers


class LibfabricBenchmark(RunBenchmark):
    """One of libfabric's own tools: a process at each end, which reports the provider it uses."""

    joins_groups = True
    joins_steps = True
    between_two = True
    versions = ("libfabric",)
    network_shown = "-v, libfabric's programs print it"

    @override
    def transports(self, fabric: str) -> frozenset[str]:
        # Which providers prove the fabric in a log.
        if fabric == "p2p":
            raise RequestError(
                f"{self.name} has no fabric p2p.", hint="p2p is NCCL's. Use shm inside one host."
            )
        return providers(fabric)
