"""How the fabtests are started: a pair of processes per domain, all domains concurrently."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from fabbench.benchmarks.libfabric.plan import LibfabricWork
from fabbench.benchmarks.libfabric.reader import LOG_SETTINGS
from fabbench.benchmarks.standard import MEMORY, devices, extra, sizes, timeout, words_of
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import provider
from fabbench.model.hosts import Host
from fabbench.model.options import Choice, Flag, Whole, option

PROGRAMS = (
    "fi_rma_bw",
    "fi_rma_pingpong",
    "fi_rdm_tagged_bw",
    "fi_rdm_tagged_pingpong",
    "fi_rdm_pingpong",
    "fi_msg_bw",
    "fi_msg_pingpong",
)  # the default first
INSTALL = (
    "on AWS they come with the EFA installer (/opt/amazon/efa/bin); elsewhere build fabtests of "
    "https://github.com/ofiwg/libfabric and pass its directory with --bin-dir"
)
_WORDS = "[is_direct? -f efa-direct] [is_rma? -e rdm -o {operation}] [window? -W {window}]"
# Only these listen on a TCP port, which is what fabbench waits for.
_LISTENING = frozenset({"tcp", "sockets", "net"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FabtestsWork(LibfabricWork):
    """One program over the domains of a fabric."""

    program: str = option(Choice(PROGRAMS), "The program to run.", default=PROGRAMS[0])
    operation: str = option(
        Choice(("write", "read", "writedata")),
        (
            "RMA operation of fi_rma_*: write and read go both ways at once, writedata from the "
            "client only."
        ),
        default="write",
    )
    sizes: tuple[int, ...] = sizes(
        "Measure this size (1024-based: 64, 4K). Several need --one-by-one.", "1M"
    )
    all_sizes: bool = option(Flag(), "Measure the program's own sizes; needs --one-by-one.")
    devices: tuple[str, ...] = devices(
        "Use only this NIC or domain, such as rdmap0s6. Default: all."
    )
    one_by_one: bool = option(Flag(), "Run NICs one at a time.")
    iterations: int | None = option(
        Whole(1, 10**9),
        "Messages. Default: as many as take ten seconds, or one second with --one-by-one.",
    )
    window: int | None = option(Whole(1, 10**6), "Messages in flight (window size).")
    memory: str | None = option(
        MEMORY, "Buffer location. Default: cuda if all hosts have GPUs (one GPU per NIC)."
    )
    direct: bool = option(Flag(), "Use EFA's fabric efa-direct.")
    timeout_s: float = timeout(
        "120", "Abort what takes longer: all NICs, or each one with --one-by-one."
    )
    extra: tuple[str, ...] = extra()

    benchmark = "fabtests"
    install = INSTALL
    env: ClassVar[Mapping[str, str]] = LOG_SETTINGS

    def __post_init__(self) -> None:
        if not self.one_by_one and (self.all_sizes or len(self.sizes) > 1):
            why = (
                "Domains are measured concurrently at one size: their programs would not stay "
                "in step."
            )
            raise RequestError(why, hint="Specify one --size, or add --one-by-one.")

    @property
    @override
    def step_sizes(self) -> Sequence[int | None]:
        return (None,) if self.all_sizes else self.sizes

    @override
    def seconds_on(self, fabric: str) -> float:
        # Concurrent programs must overlap although each needs a second for set-up.
        del fabric
        return 10.0 if self.together else 1.0

    @override
    def why_unsupported(self, fabric: str, host: Host) -> str:
        # The first reason; empty: it can be measured. super() without arguments fails: `slots`
        # makes another class.
        if why := super(FabtestsWork, self).why_unsupported(fabric, host):
            return why
        if self.endpoint_on(fabric) == "msg" and provider(fabric) not in _LISTENING:
            return (
                f"{self.program} connects over {provider(fabric)} in a way that fabbench "
                "cannot wait for."
            )
        return self.why_no_memory(host)

    @override
    def options(self, fabric: str) -> tuple[str, ...]:
        values = {
            **asdict(self),
            "is_direct": self.direct and provider(fabric) == "efa",
            # The others are named after their endpoint, and have no operation.
            "is_rma": self.program.startswith("fi_rma_"),
        }
        return words_of(_WORDS, values)
