"""How fi_pingpong is started: one pair of processes per size, so that sizes do not affect each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabbench.benchmarks.libfabric import plan as libfabric
from fabbench.benchmarks.libfabric.plan import PORT
from fabbench.benchmarks.pingpong.reader import SETUP_SHARE, setup_s
from fabbench.benchmarks.shared_options import factor, max_bytes, min_bytes, sizes, timeout
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import Rail, paired_devices, provider
from fabbench.model.hosts import Host
from fabbench.model.option_types import DEVICE, Choice, Flag, Whole
from fabbench.model.options import option
from fabbench.model.plan import Proof, Step
from fabbench.model.units import Sweep

PROGRAM = "fi_pingpong"
INSTALL = "sudo apt-get install libfabric-bin (Debian, Ubuntu); the package libfabric on other systems"

# Guesses (one-way seconds for the smallest message, bytes per second), only for the number of iterations.
_SPEED: Mapping[str, tuple[float, float]] = {
    "shm": (0.7e-6, 8e9),
    "efa": (12e-6, 10e9),
    "verbs": (3e-6, 10e9),
    "tcp": (10e-6, 3e9),
    "sockets": (1e-3, 0.2e9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PingpongWork:
    """A ping-pong over a range of sizes. See `fabbench.plan.request.Work`."""

    min_bytes: int = min_bytes("64")
    max_bytes: int = max_bytes("4M", "It is always measured.")
    factor: int = factor("16")
    sizes: tuple[int, ...] = sizes("Measure this size instead.")
    endpoint: str = option(
        Choice(("msg", "rdm", "dgram")), "Endpoint type. Default: msg for tcp and verbs, else rdm.", unset=""
    )
    iterations: int | None = option(
        Whole(1, 10**9), "Messages per size. Default: as many as make connection set-up less than 1 % of the time."
    )
    domain: str | None = option(DEVICE, "Bind to this libfabric domain (interface), and verify that it was used.")
    all_domains: bool = option(
        Flag(), "Measure over the domain of each RDMA device, one after another; a table for each."
    )
    check: bool = option(Flag(), "Verify payloads.", "--verify")
    timeout_s: float = timeout("60", "Abort a size that takes longer.")

    def __post_init__(self) -> None:
        """Raise RequestError if both one domain and all domains are requested, or the sizes are invalid."""
        if self.domain and self.all_domains:
            raise RequestError("One domain and all domains are mutually exclusive.", hint="Leave one out.")
        _ = self.measured

    @property
    def measured(self) -> tuple[int, ...]:
        """The sizes in bytes. Raise RequestError if they are not a valid range."""
        if self.sizes:
            return self.sizes
        return tuple(Sweep(first=self.min_bytes, last=self.max_bytes, factor=self.factor).sizes())

    needs = libfabric.needs(PROGRAM, INSTALL)
    together = False

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`."""
        endpoint = self._endpoint(fabric)
        if why := libfabric.why_unsupported(fabric, endpoint, host):
            return why
        several = self.all_domains and libfabric.names_domains(fabric)
        if several and not libfabric.domains(fabric, endpoint, host):
            return f"libfabric lists no domain of its provider {provider(fabric)} there."
        return ""

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts."""
        del hosts
        return self.measured

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per domain and size: the server on the first host, the client on the last."""
        return tuple(
            self._step(execution, fabric, hosts, size, rail)
            for rail in self._rails(fabric, hosts)
            for size in self.measured
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Return what the log must show: the provider, and the domain if all steps have the same one."""
        chosen = {domain for rail in self._rails(fabric, hosts) for domain in (rail.server, rail.client)}
        return Proof(fabric=fabric, domain=(chosen.pop() or None) if len(chosen) == 1 else None)

    def domains(self, fabric: str, host: Host) -> tuple[str, ...]:
        """Return the domains of a host's RDMA devices; empty on other fabrics."""
        return libfabric.domains(fabric, self._endpoint(fabric), host)

    def _rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[Rail]:
        first, last = hosts[0], hosts[-1]
        if self.all_domains and libfabric.names_domains(fabric):
            names = [self.domains(fabric, host) for host in (first, last)]
            return paired_devices(names[0], names[1], (first.name, last.name))
        if self.domain:
            return (Rail(self.domain, self.domain),)
        return (libfabric.interface_rail(fabric, hosts),)

    def _endpoint(self, fabric: str) -> str:
        # Connected endpoints connect before timing starts.
        return self.endpoint or ("msg" if provider(fabric) in {"tcp", "verbs", "sockets", "net"} else "rdm")

    def _step(self, execution: str, fabric: str, hosts: Sequence[Host], size: int, rail: Rail) -> Step:
        name, endpoint = provider(fabric), self._endpoint(fabric)
        iterations = self.iterations or enough_iterations(name, endpoint, size)
        words = (PROGRAM, "-v", "-p", name, "-e", endpoint, "-S", str(size), "-I", str(iterations))
        common = (*words, "-c") if self.check else words
        server, client = libfabric.Side(name, rail.server), libfabric.Side(name, rail.client)
        facts: dict[str, str | int] = {"benchmark": "pingpong", "size": size, "iterations": iterations}
        facts["endpoint"] = endpoint
        if self.all_domains and libfabric.names_domains(fabric):
            facts |= libfabric.domain_facts(rail)
        commands = (
            server.command((*common, "-B", PORT), role="server", host=0),
            client.command((*common, "-P", PORT), role="client", host=len(hosts) - 1),
        )
        return libfabric.pair_step(execution, commands, facts, timeout_s=self.timeout_s)


def enough_iterations(name: str, endpoint: str, size: int) -> int:
    """Return the number of iterations that makes connection set-up less than 1 % of the measured time."""
    # The first messages of a connection take about 1 ms; 1.3 because the speed is a guess.
    needed_s = max(0.15, setup_s(endpoint, name) / SETUP_SHARE * 1.3)
    start_s, rate = _SPEED.get(name, (10e-6, 2e9))
    return libfabric.rounded_iterations(needed_s / 2 / (start_s + size / rate), 10, 5_000_000)
