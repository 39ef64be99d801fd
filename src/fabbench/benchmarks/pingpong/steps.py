"""How fi_pingpong is started: one pair of processes for each size, so that nothing of one is in the next."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fabbench.benchmarks.pingpong.setup import SHARE, setup_s
from fabbench.errors import RequestError
from fabbench.fabrics import provider
from fabbench.model import Command, Shape, Step
from fabbench.plan import Host
from fabbench.units import format_size, parse_size

PROGRAM = "fi_pingpong"
INSTALL = "sudo apt-get install libfabric-bin (Debian, Ubuntu); the package libfabric on other systems"
PORT, SERVER = "{port}", "{server}"
"""Words of a command that are known only when it runs: a free port, and the server's address."""

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
# libfabric 1.17 ignores -d for these; the variable works in every version.
_INTERFACE = {
    "tcp": "FI_TCP_IFACE",
    "udp": "FI_UDP_IFACE",
    "sockets": "FI_SOCKETS_IFACE",
    "net": "FI_NET_IFACE",
}


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
    check: bool = False
    """Whether each message's data are compared."""

    @property
    def programs(self) -> tuple[str, ...]:
        """Name the program."""
        return (PROGRAM,)

    @property
    def install(self) -> str:
        """Say how to install it."""
        return INSTALL

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`."""
        name, endpoint = provider(fabric), self._endpoint(fabric)
        types = {
            kind
            for full, kinds in host.providers.items()
            if full in {name, f"{name};ofi_rxm", f"{name};ofi_rxd"}
            for kind in kinds
        }
        if not types:
            return f"libfabric has no provider {name} there."
        if endpoint not in types:
            return f"its provider {name} has no endpoint of type {endpoint}, but {', '.join(sorted(types))}."
        return ""

    def steps(self, trial: str, fabric: str) -> tuple[Step, ...]:
        """Give one step for each size."""
        return tuple(self._step(trial, fabric, size) for size in self.sizes)

    def _endpoint(self, fabric: str) -> str:
        return self.endpoint or ("msg" if provider(fabric) in _CONNECTED else "rdm")

    def _step(self, trial: str, fabric: str, size: int) -> Step:
        name, endpoint = provider(fabric), self._endpoint(fabric)
        iterations = self.iterations or enough_iterations(name, endpoint, size)
        common: tuple[str, ...] = (
            PROGRAM,
            "-v",
            "-p",
            name,
            "-e",
            endpoint,
            "-S",
            str(size),
            "-I",
            str(iterations),
        )
        # FI_PROVIDER would hide providers from the program, and images for clusters set it.
        env: dict[str, str] = {}
        unset = ("FI_PROVIDER",)
        if self.domain and name in _INTERFACE:
            env = {_INTERFACE[name]: self.domain}
        elif self.domain:
            common += ("-d", self.domain)
        if self.check:
            common += ("-c",)
        commands = (
            Command(argv=(*common, "-B", PORT), role="server", env=env, unset=unset),
            Command(argv=(*common, "-P", PORT, SERVER), role="client", env=env, unset=unset),
        )
        facts: dict[str, str | int] = {
            "benchmark": "pingpong",
            "size": size,
            "iterations": iterations,
            "endpoint": endpoint,
        }
        return Step(
            id=f"{trial}/{size}",
            label=format_size(size),
            shape=Shape.PAIR,
            commands=commands,
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


def size(text: str) -> int:
    """Read a size; raises RequestError."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise RequestError(f"{error}.") from None
