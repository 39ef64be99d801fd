"""How fi_pingpong is started.

One pair of processes per size, so that sizes do not affect each other.
"""

from collections.abc import Sequence

from fabbench.benchmarks.libfabric.plan import LibfabricWork
from fabbench.benchmarks.pingpong.reader import PROGRAM, SETUP_SHARE, setup_s
from fabbench.benchmarks.standard import factor, max_bytes, min_bytes, sizes, timeout
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import provider
from fabbench.model.hosts import Host
from fabbench.model.mappings import only
from fabbench.model.options import DEVICE, Choice, Flag, Whole, option
from fabbench.model.plan import Proof
from fabbench.model.units import Sweep
from fabbench.model.values import frozen


@frozen
class PingpongWork(LibfabricWork):
    """A ping-pong over a range of sizes."""

    min_bytes: int = min_bytes("64")
    max_bytes: int = max_bytes("4M", "It is always measured.")
    factor: int = factor("16")
    sizes: tuple[int, ...] = sizes("Measure this size instead.", low="64", high="4M")
    endpoint: str = option(
        Choice(("msg", "rdm", "dgram")), "Endpoint type. Default: rdm; msg on tcp, verbs.", unset=""
    )
    iterations: int | None = option(
        Whole(1, 10**9), "Messages per size. Default: set-up is below 1 % of the time."
    )
    domain: str | None = option(
        DEVICE, "Use only this NIC: a libfabric domain, or an interface.", "--device"
    )
    all_domains: bool = option(
        Flag(), "Measure over each RDMA device, one after another.", "--all-devices"
    )
    check: bool = option(Flag(), "Verify payloads.", "--verify")
    timeout_s: float = timeout("60", "Abort a size that takes longer.")

    def __post_init__(self) -> None:
        if self.domain and self.all_domains:
            raise RequestError(
                "--device and --all-devices are mutually exclusive.", hint="Leave one out."
            )
        _ = self.step_sizes  # which raises RequestError for a wrong range

    benchmark = "pingpong"
    program = PROGRAM
    install = (
        "sudo apt-get install libfabric-bin (Debian, Ubuntu); the package libfabric on "
        "other systems"
    )

    @property
    @override
    def step_sizes(self) -> Sequence[int]:
        if self.sizes:
            return self.sizes
        sweep = Sweep(first=self.min_bytes, last=self.max_bytes, factor=self.factor)
        return tuple(sweep.sizes())

    @override
    def seconds_on(self, fabric: str) -> float:
        # Long enough that set-up takes less than 1 % of it (1.3: the speed is a guess), and so do
        # the first messages of a connection, which take 1 ms.
        setup = setup_s(self.endpoint_on(fabric), provider(fabric))
        return max(0.15, setup / SETUP_SHARE * 1.3)

    @override
    def options(self, fabric: str) -> tuple[str, ...]:
        usual = ("-e", self.endpoint_on(fabric), "-v")
        return (*usual, "-c") if self.check else usual

    @override
    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        # With several devices, a log cannot show one domain.
        rails = self.rails(fabric, hosts)
        chosen = {rail.server for rail in rails} | {rail.client for rail in rails}
        domain = only(chosen, "")
        return Proof(fabric=fabric, domain=domain or None)
