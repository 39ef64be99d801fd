"""How the fabtests are started: a pair of processes per domain, all domains concurrently."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fabbench.benchmarks.libfabric import plan as libfabric
from fabbench.benchmarks.libfabric.facts import LOG_SETTINGS
from fabbench.benchmarks.libfabric.plan import PORT
from fabbench.benchmarks.shared_options import devices, extra, sizes, timeout
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import Rail, paired_devices, provider
from fabbench.model.hosts import Host, Needs
from fabbench.model.option_types import Choice, Flag, Whole
from fabbench.model.options import option
from fabbench.model.plan import Command, Proof, Step

PROGRAMS: Mapping[str, str] = {
    "fi_rma_bw": "rdm",
    "fi_rma_pingpong": "rdm",
    "fi_rdm_tagged_bw": "rdm",
    "fi_rdm_tagged_pingpong": "rdm",
    "fi_rdm_pingpong": "rdm",
    "fi_msg_bw": "msg",
    "fi_msg_pingpong": "msg",
}
"""Program → its endpoint type; the default first."""
INSTALL = (
    "on AWS they come with the EFA installer (/opt/amazon/efa/bin); elsewhere build fabtests of "
    "https://github.com/ofiwg/libfabric and pass its directory with --bin-dir"
)

# Guesses (one-way seconds, bytes per second), only for the number of iterations.
_SPEED: Mapping[str, tuple[float, float]] = {"efa": (12e-6, 10e9), "verbs": (3e-6, 10e9), "shm": (1e-6, 8e9)}
# Only these listen on a TCP port, which is what fabbench waits for.
_LISTENING = frozenset({"tcp", "sockets", "net"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FabtestsWork:
    """One program over the domains of a fabric. See `fabbench.plan.request.Work`."""

    program: str = option(Choice(tuple(PROGRAMS)), "The program to run.", default="fi_rma_bw")
    operation: str = option(
        Choice(("write", "read", "writedata")),
        "RMA operation of fi_rma_*: write and read go both ways at once, writedata from the client only.",
        default="write",
    )
    sizes: tuple[int, ...] = sizes("Measure this size (1024-based: 64, 4K). Several need --one-by-one.", "1M")
    all_sizes: bool = option(Flag(), "Measure the program's own sizes; needs --one-by-one.")
    devices: tuple[str, ...] = devices("Measure this device or domain, such as rdmap0s6. Default: all.")
    one_by_one: bool = option(Flag(), "Run NICs one at a time.")
    iterations: int | None = option(
        Whole(1, 10**9), "Messages. Default: as many as take ten seconds, or one second with --one-by-one."
    )
    window: int | None = option(Whole(1, 10**6), "Messages in flight (window size).")
    memory: str | None = option(
        Choice(("host", "cuda")), "Buffer location. Default: cuda if all hosts have GPUs (one GPU per NIC)."
    )
    direct: bool = option(Flag(), "Use EFA's fabric efa-direct.")
    timeout_s: float = timeout("120", "Abort what takes longer: all NICs, or each one with --one-by-one.")
    extra: tuple[str, ...] = extra()

    def __post_init__(self) -> None:
        """Raise RequestError for unknown programs, and for sizes that cannot be measured concurrently."""
        if self.program not in PROGRAMS:
            raise RequestError(f"Unknown program {self.program}.", hint=f"One of {', '.join(PROGRAMS)}.")
        if not self.one_by_one and (self.all_sizes or len(self.sizes) > 1):
            raise RequestError(
                "Domains are measured concurrently at one size: their programs would not stay in step.",
                hint="Specify one --size, or add --one-by-one.",
            )

    @property
    def needs(self) -> Needs:
        """The program."""
        return libfabric.needs(self.program, INSTALL, self.devices)

    @property
    def together(self) -> bool:
        """Return whether all domains are measured concurrently."""
        return not self.one_by_one

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts; none for ``-S all``: releases differ."""
        del hosts
        return () if self.all_sizes else self.sizes

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`."""
        endpoint = PROGRAMS[self.program]
        if why := libfabric.why_unsupported(fabric, endpoint, host):
            return why
        if endpoint == "msg" and provider(fabric) not in _LISTENING:
            return f"{self.program} connects over {provider(fabric)} in a way that fabbench cannot wait for."
        if libfabric.names_domains(fabric) and not self._domains(fabric, host):
            known = ", ".join(libfabric.domains(fabric, endpoint, host)) or "none"
            return f"libfabric lists no such domain of its provider {provider(fabric)} there, but {known}."
        if self.memory == "cuda" and not host.gpus:
            return "it has no GPU, but GPU memory was requested."
        return ""

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per domain and size: the server on the first host, the client on the last."""
        sizes: tuple[int | None, ...] = (None,) if self.all_sizes else self.sizes
        return tuple(
            self._step(execution, fabric, hosts, rail, size) for rail in self._rails(fabric, hosts) for size in sizes
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Return what the log must show: the provider. Its markers name the domain of each step."""
        del hosts
        return Proof(fabric=fabric)

    def _domains(self, fabric: str, host: Host) -> tuple[str, ...]:
        known, requested = libfabric.domains(fabric, PROGRAMS[self.program], host), set(self.devices)
        if not requested:
            return known
        matching = tuple(name for name in known if {name, libfabric.device(name)} & requested)
        return matching if len(matching) == len(requested) else ()

    def _rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[Rail]:
        first, last = hosts[0], hosts[-1]
        if libfabric.names_domains(fabric):
            names = [self._domains(fabric, host) for host in (first, last)]
            return paired_devices(names[0], names[1], (first.name, last.name))
        return (libfabric.interface_rail(fabric, hosts),)

    def _step(self, execution: str, fabric: str, hosts: Sequence[Host], rail: Rail, size: int | None) -> Step:
        facts: dict[str, str | int] = {
            "benchmark": "fabtests",
            "program": self.program,
            "provider": provider(fabric),
            "endpoint": PROGRAMS[self.program],
        }
        iterations = self._iterations(fabric, size)
        if size is not None and iterations is not None:
            facts |= {"size": size, "iterations": iterations}
        if libfabric.names_domains(fabric):
            facts |= libfabric.domain_facts(rail)
            if self.together and rail.count > 1:
                facts["together"] = "yes"
        server = self._command(fabric, hosts, "server", rail, size)
        client = self._command(fabric, hosts, "client", rail, size)
        return libfabric.pair_step(execution, (server, client), facts, timeout_s=self.timeout_s)

    def _command(self, fabric: str, hosts: Sequence[Host], role: str, rail: Rail, size: int | None) -> Command:
        index = 0 if role == "server" else len(hosts) - 1
        iterations = self._iterations(fabric, size)
        memory = self.memory or ("cuda" if all(host.gpus for host in hosts) else "host")
        words = (
            *(self.program, "-p", provider(fabric)),
            *(("-f", "efa-direct") if self.direct and provider(fabric) == "efa" else ()),
            *(("-e", "rdm", "-o", self.operation) if self.program.startswith("fi_rma_") else ()),
            *("-S", "all" if size is None else str(size)),
            *(("-I", str(iterations)) if iterations else ()),
            *(("-W", str(self.window)) if self.window else ()),
            *(() if memory == "host" else ("-D", "cuda", "-i", str(rail.nearest_gpu(hosts[index].gpus)))),
            *self._port(role),
            *self.extra,
        )
        side = libfabric.Side(provider(fabric), rail.server if role == "server" else rail.client)
        command = side.command(words, role=role, host=index)
        return replace(command, env={**LOG_SETTINGS, **command.env})

    def _port(self, role: str) -> tuple[str, ...]:
        # Unconnected endpoints exchange addresses over TCP (EFA has no other way), connected ones over the provider.
        if PROGRAMS[self.program] == "msg":
            return ("-B", PORT) if role == "server" else ("-P", PORT)
        return (f"-E={PORT}",)

    def _iterations(self, fabric: str, size: int | None) -> int | None:
        if self.iterations or size is None:
            return self.iterations
        start_s, rate = _SPEED.get(provider(fabric), (15e-6, 1e9))
        once_s = size / rate + (2 * start_s if "pingpong" in self.program else start_s / 10)
        # Concurrent programs must overlap although each needs a second for set-up.
        needed_s = 10.0 if self.together else 1.0
        return libfabric.rounded_iterations(needed_s / once_s, 100, 10_000_000)
