"""How the fabtests are started: a pair of processes for each domain, of all domains at the same time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabbench import rails
from fabbench.benchmarks.fabtests.library import SETTINGS
from fabbench.benchmarks.libfabric import starting
from fabbench.benchmarks.libfabric.starting import PORT
from fabbench.errors import RequestError
from fabbench.fabrics import provider
from fabbench.machines import Host, Needs
from fabbench.model import Command, Proof, Shape, Step
from fabbench.units import format_size

PROGRAMS: Mapping[str, str] = {
    "fi_rma_bw": "rdm",
    "fi_rma_pingpong": "rdm",
    "fi_rdm_tagged_bw": "rdm",
    "fi_rdm_tagged_pingpong": "rdm",
    "fi_rdm_pingpong": "rdm",
    "fi_msg_bw": "msg",
    "fi_msg_pingpong": "msg",
}
"""Program → its type of endpoint; the default first."""
INSTALL = (
    "on AWS they come with the EFA installer (/opt/amazon/efa/bin); elsewhere build fabtests of "
    "https://github.com/ofiwg/libfabric and name the folder by --bin-dir"
)
OPERATIONS = ("write", "read", "writedata")
"""What `fi_rma_*` can do, the default first."""
SIZE = 1 << 20
TIMEOUT_S = 120.0

# How long one domain is measured: at the same time as others, they must overlap although each needs a second
# to set itself up.
_ALONE_S, _TOGETHER_S = 1.0, 10.0
# Guesses (one way seconds, bytes per second), for the number of iterations alone.
_SPEED: Mapping[str, tuple[float, float]] = {"efa": (12e-6, 10e9), "verbs": (3e-6, 10e9), "shm": (1e-6, 8e9)}
_USUAL_SPEED = (15e-6, 1e9)
_FEWEST, _MOST = 100, 10_000_000
# Only these listen for a connection as TCP does, which is what fabbench waits for.
_LISTENING = frozenset({"tcp", "sockets", "net"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FabtestsWork:
    """One program over the domains of a fabric. See `fabbench.plan.Work`."""

    program: str = "fi_rma_bw"
    operation: str = OPERATIONS[0]
    sizes: tuple[int, ...] = (SIZE,)
    all_sizes: bool = False
    """Measure the program's own list of sizes instead (``-S all``)."""
    devices: tuple[str, ...] = ()
    """Domains, or the devices that they are on; empty: all of the fabric."""
    one_by_one: bool = False
    iterations: int | None = None
    """None: enough for about a second, or ten where domains are measured at the same time."""
    window: int | None = None
    memory: str | None = None
    """`host` or `cuda`; None: of GPUs where every host has some."""
    direct: bool = False
    """Whether EFA's fabric `efa-direct` is measured."""
    extra: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        """Raise RequestError for names that the fabtests do not know, and for sizes that do not keep step."""
        if self.program not in PROGRAMS:
            raise RequestError(f"There is no program {self.program}.", hint=f"One of {', '.join(PROGRAMS)}.")
        if not self.one_by_one and (self.all_sizes or len(self.sizes) > 1):
            raise RequestError(
                "Domains are measured at the same time at one size: their programs would not keep step.",
                hint="Name one --size, or add --one-by-one.",
            )

    @property
    def needs(self) -> Needs:
        """The program."""
        return Needs(programs=(self.program,), install=INSTALL, devices=self.devices)

    @property
    def together(self) -> bool:
        """Whether all domains are measured at the same time."""
        return not self.one_by_one

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes, which are the same on any hosts; not those of ``-S all``: releases differ."""
        del hosts
        return () if self.all_sizes else self.sizes

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`."""
        endpoint = PROGRAMS[self.program]
        if why := starting.lacks(fabric, endpoint, host):
            return why
        if endpoint == "msg" and provider(fabric) not in _LISTENING:
            return f"{self.program} connects over {provider(fabric)} in a way that fabbench cannot wait for."
        if starting.names_domains(fabric) and not self._domains(fabric, host):
            known = ", ".join(starting.domains(fabric, endpoint, host)) or "none"
            return f"libfabric lists no such domain of its provider {provider(fabric)} there, but {known}."
        if self.memory == "cuda" and not host.gpus:
            return "it has no GPU, whose memory was asked for."
        return ""

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give one step for each domain and size: the server on the first host, the client on the last."""
        found = self._rails(fabric, hosts)
        sizes: tuple[int | None, ...] = (None,) if self.all_sizes else self.sizes
        return tuple(
            self._step(trial, fabric, hosts, _Rail(index, len(found), *pair), size)
            for index, pair in enumerate(found)
            for size in sizes
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what the log must show: the provider. Its markers say which domain each step is to use."""
        del hosts
        return Proof(fabric=fabric)

    def _domains(self, fabric: str, host: Host) -> tuple[str, ...]:
        known = starting.domains(fabric, PROGRAMS[self.program], host)
        wanted = set(self.devices)
        if not wanted:
            return known
        found = tuple(name for name in known if {name, starting.device(name)} & wanted)
        return found if len(found) == len(wanted) else ()

    def _rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[tuple[str | None, str | None]]:
        first, last = hosts[0], hosts[-1]
        if starting.names_domains(fabric):
            names = [self._domains(fabric, host) for host in (first, last)]
            return rails.pairs(names[0], names[1], (first.name, last.name))
        across = len(hosts) > 1 and provider(fabric) in starting.INTERFACE
        return ((first.interface, last.interface),) if across else ((None, None),)

    def _step(self, trial: str, fabric: str, hosts: Sequence[Host], rail: "_Rail", size: int | None) -> Step:
        facts: dict[str, str | int] = {
            "benchmark": "fabtests",
            "program": self.program,
            "provider": provider(fabric),
            "endpoint": PROGRAMS[self.program],
        }
        iterations = None if size is None else self.iterations or self._enough(fabric, size)
        if size is not None and iterations is not None:
            facts |= {"size": size, "iterations": iterations}
        own = ""
        if starting.names_domains(fabric) and rail.server and rail.client:
            own = starting.device(rail.client)
            facts |= starting.told(own, rail.server, rail.client)
            if self.together and rail.number > 1:
                facts["together"] = "yes"
        name = "all" if size is None else str(size)
        return Step(
            id=f"{trial}/{own}{'-' if own else ''}{name}",
            label=f"{own} {'all sizes' if size is None else format_size(size)}".strip(),
            shape=Shape.PAIR,
            commands=(
                self._command(fabric, hosts, "server", rail, (size, iterations)),
                self._command(fabric, hosts, "client", rail, (size, iterations)),
            ),
            timeout_s=self.timeout_s,
            facts=facts,
        )

    def _command(
        self,
        fabric: str,
        hosts: Sequence[Host],
        role: str,
        rail: "_Rail",
        amount: tuple[int | None, int | None],
    ) -> Command:
        index = 0 if role == "server" else len(hosts) - 1
        size, iterations = amount
        words = (
            *(self.program, "-p", provider(fabric)),
            *(("-f", "efa-direct") if self.direct and provider(fabric) == "efa" else ()),
            *(("-e", "rdm", "-o", self.operation) if self.program.startswith("fi_rma_") else ()),
            *("-S", "all" if size is None else str(size)),
            *(
                ("-I", str(iterations))
                if iterations
                else ("-I", str(self.iterations))
                if self.iterations
                else ()
            ),
            *(("-W", str(self.window)) if self.window else ()),
            *self._memory(hosts, index, rail),
            *self._port(role),
            *self.extra,
        )
        side = starting.Side(provider(fabric), rail.server if role == "server" else rail.client)
        command = side.command(words, role=role, host=index)
        return Command(
            argv=command.argv,
            role=role,
            host=index,
            env={**SETTINGS, **command.env},
            unset=command.unset,
        )

    def _memory(self, hosts: Sequence[Host], index: int, rail: "_Rail") -> tuple[str, ...]:
        """Say whose memory: GPUs are shared out evenly, as the plan does not know which is near to which."""
        memory = self.memory or ("cuda" if all(host.gpus for host in hosts) else "host")
        if memory == "host":
            return ()
        return ("-D", "cuda", "-i", str(rails.gpu(rail.index, rail.number, hosts[index].gpus)))

    def _port(self, role: str) -> tuple[str, ...]:
        """Give the port on which both sides meet.

        Unconnected endpoints exchange their addresses over TCP (``-E=PORT``: EFA has no other way), connected
        ones over the provider itself.
        """
        if PROGRAMS[self.program] == "msg":
            return ("-B", PORT) if role == "server" else ("-P", PORT)
        return (f"-E={PORT}",)

    def _enough(self, fabric: str, size: int) -> int:
        """Give a number of iterations that take long enough, rounded to two digits as they are printed."""
        start_s, rate = _SPEED.get(provider(fabric), _USUAL_SPEED)
        once_s = size / rate + (2 * start_s if "pingpong" in self.program else start_s / 10)
        exact = min(max((_TOGETHER_S if self.together else _ALONE_S) / once_s, _FEWEST), _MOST)
        digits = 10 ** (math.floor(math.log10(exact)) - 1)
        return int(math.ceil(exact / digits) * digits)


@dataclass(frozen=True, slots=True)
class _Rail:
    """A domain of the first host, and one of the last; None: libfabric chooses."""

    index: int
    number: int
    """How many there are."""
    server: str | None
    client: str | None
