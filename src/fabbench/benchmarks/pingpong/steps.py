"""How fi_pingpong is started: one pair of processes for each size, so that nothing of one is in the next."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench import rails
from fabbench.benchmarks.libfabric import starting
from fabbench.benchmarks.libfabric.starting import PORT
from fabbench.benchmarks.pingpong.setup import SHARE, setup_s
from fabbench.errors import RequestError
from fabbench.fabrics import provider
from fabbench.machines import Host, Needs
from fabbench.model import Proof, Shape, Step
from fabbench.sizes import size
from fabbench.units import format_size

PROGRAM = "fi_pingpong"
INSTALL = "sudo apt-get install libfabric-bin (Debian, Ubuntu); the package libfabric on other systems"

TIMEOUT_S = 60.0
_LONG_ENOUGH_S = 0.15
"""Time to measure one size for: the first messages of a connection (about 1 ms) are below 1 % of it."""
_MARGIN = 1.3
"""By how much longer than necessary a size is measured, as its speed is a guess."""
_FEWEST, _MOST = 10, 5_000_000

# Guesses (one way seconds for the smallest message, bytes per second), for the number of iterations alone.
_SPEED: Mapping[str, tuple[float, float]] = {
    "shm": (0.7e-6, 8e9),
    "efa": (12e-6, 10e9),
    "verbs": (3e-6, 10e9),
    "tcp": (10e-6, 3e9),
    "sockets": (1e-3, 0.2e9),
}
_USUAL_SPEED = (10e-6, 2e9)
# Providers of connected endpoints, which connect before the clock starts.
_CONNECTED = frozenset({"tcp", "verbs", "sockets", "net"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PingpongWork:
    """A ping-pong over some sizes. See `fabbench.plan.Work`."""

    sizes: tuple[int, ...]
    endpoint: str = ""
    """`msg`, `rdm` or `dgram`; empty: the one that suits the provider."""
    iterations: int | None = None
    """None: as many as each size needs."""
    timeout_s: float = TIMEOUT_S
    domain: str | None = None
    """The only one to measure."""
    all_domains: bool = False
    """Whether each domain of RDMA devices is measured, one after another."""
    check: bool = False
    """Whether each message's data are compared."""

    def __post_init__(self) -> None:
        """Raise RequestError for one domain and all of them."""
        if self.domain and self.all_domains:
            raise RequestError("One domain and all domains exclude each other.", hint="Leave one out.")

    needs = Needs(programs=(PROGRAM,), install=INSTALL)
    together = False

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`."""
        endpoint = self._endpoint(fabric)
        if why := starting.lacks(fabric, endpoint, host):
            return why
        several = self.all_domains and starting.names_domains(fabric)
        if several and not starting.domains(fabric, endpoint, host):
            return f"libfabric lists no domain of its provider {provider(fabric)} there."
        return ""

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes, which are the same on any hosts."""
        del hosts
        return self.sizes

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give one step for each domain and size: the server on the first host, the client on the last."""
        return tuple(
            self._step(trial, fabric, hosts, size, rail)
            for rail in self._rails(fabric, hosts)
            for size in self.sizes
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what the log must show: the provider, and the domain where one was chosen.

        Where each step has its own, the log's markers say which.
        """
        chosen = {domain for rail in self._rails(fabric, hosts) for domain in rail}
        return Proof(fabric=fabric, domain=chosen.pop() if len(chosen) == 1 else None)

    def _rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[tuple[str | None, str | None]]:
        """Give the domains of server and client, for each execution over all sizes."""
        first, last = hosts[0], hosts[-1]
        if self.all_domains and starting.names_domains(fabric):
            endpoint = self._endpoint(fabric)
            names = [starting.domains(fabric, endpoint, host) for host in (first, last)]
            return rails.pairs(names[0], names[1], (first.name, last.name))
        return ((self._domain(fabric, first, hosts), self._domain(fabric, last, hosts)),)

    def _domain(self, fabric: str, host: Host, hosts: Sequence[Host]) -> str | None:
        """Choose the domain: the one asked for; else, between hosts, the interface that leads there.

        libfabric would take whichever it lists first, and not the one that has the server's address.
        """
        across = len(hosts) > 1 and provider(fabric) in starting.INTERFACE
        return self.domain or (host.interface if across and host.interface else None)

    def _endpoint(self, fabric: str) -> str:
        return self.endpoint or ("msg" if provider(fabric) in _CONNECTED else "rdm")

    def _step(
        self,
        trial: str,
        fabric: str,
        hosts: Sequence[Host],
        size: int,
        rail: tuple[str | None, str | None],
    ) -> Step:
        name, endpoint = provider(fabric), self._endpoint(fabric)
        iterations = self.iterations or enough_iterations(name, endpoint, size)
        words = (PROGRAM, "-v", "-p", name, "-e", endpoint, "-S", str(size), "-I", str(iterations))
        common = (*words, "-c") if self.check else words
        server, client = (starting.Side(name, domain) for domain in rail)
        last = len(hosts) - 1
        facts: dict[str, str | int] = {
            "benchmark": "pingpong",
            "size": size,
            "iterations": iterations,
            "endpoint": endpoint,
        }
        own = ""
        if self.all_domains and rail[0] and rail[1] and starting.names_domains(fabric):
            own = starting.device(rail[1])
            facts |= starting.told(own, rail[0], rail[1])
        return Step(
            id=f"{trial}/{own}{'-' if own else ''}{size}",
            label=f"{own} {format_size(size)}".strip(),
            shape=Shape.PAIR,
            commands=(
                server.command((*common, "-B", PORT), role="server", host=0),
                client.command((*common, "-P", PORT), role="client", host=last),
            ),
            timeout_s=self.timeout_s,
            facts=facts,
        )


def enough_iterations(name: str, endpoint: str, size: int) -> int:
    """Give the number of iterations that make connection set-up less than 1 % of what is measured.

    It is rounded to two digits, since the program prints no more of it.
    """
    needed_s = max(_LONG_ENOUGH_S, setup_s(endpoint, name) / SHARE * _MARGIN)
    start_s, rate = _SPEED.get(name, _USUAL_SPEED)
    exact = min(max(needed_s / 2 / (start_s + size / rate), _FEWEST), _MOST)
    digits = 10 ** (math.floor(math.log10(exact)) - 1)
    return int(math.ceil(exact / digits) * digits)


def size_range(first: str, last: str, factor: int) -> tuple[int, ...]:
    """Give the sizes from `first` to `last`, each `factor` times the one before.

    Raises RequestError for sizes that make no range.
    """
    low, high = size(first), size(last)
    if low > high or factor < 2 or low == 0:
        raise RequestError(
            f"There is no range of sizes from {first} to {last} by {factor}.",
            hint="Write such as -b 64 -e 4M -f 4, or name each with --size.",
        )
    return tuple(_powers(low, high, factor))


def _powers(low: int, high: int, factor: int) -> Iterator[int]:
    while low <= high:
        yield low
        low *= factor
