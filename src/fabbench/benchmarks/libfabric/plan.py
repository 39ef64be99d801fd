"""How libfabric's programs are started.

A server on the first host and a client on the last, per rail and size.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from fabbench.benchmarks.pairs import PORT, SERVER, PairWork, Side
from fabbench.catalog.systems import rows_of
from fabbench.model.compat import override
from fabbench.model.fabrics import Rail, paired_devices, provider
from fabbench.model.hosts import Host, Needs
from fabbench.model.log import Facts, MutableFacts
from fabbench.model.plan import Command

INTERFACE = {name: f"FI_{name.upper()}_IFACE" for name in ("tcp", "udp", "sockets", "net")}
"""Provider → the variable that sets its interface: libfabric 1.17 ignores ``-d`` for these."""
_LAYERS = ("", ";ofi_rxm", ";ofi_rxd")
"""Possible suffixes of a provider's name: layers that add endpoint types."""
EFA_ENV: Mapping[str, str] = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}
"""Else libfabric's EFA uses shared memory between programs of one host, and reports efa."""
_ENDPOINTS = {"rma": "rdm", "rdm": "rdm", "msg": "msg"}  # of the programs that are named after one
_CONNECTING = frozenset({"tcp", "verbs", "sockets", "net"})
"""Providers whose usual endpoints are connected ones."""
_RDMA = frozenset({"efa", "verbs"})
"""Providers with a domain per device."""
_EFA_DOMAINS = {"rdm": "-rdm", "dgram": "-dgrm"}
"""Endpoint type → how EFA's domains for it end."""
_OTHER_DOMAINS = ("-xrc", "-dgram")
"""How verbs domains end that belong to other endpoint types."""


class _Speed(NamedTuple):
    """A guess, only for the number of iterations."""

    start_s: float
    """One way, for the smallest message."""
    rate: float
    """Bytes per second."""


def _speed_of(row: Mapping[str, str]) -> _Speed:
    return _Speed(float(row["start_s"]), float(row["rate"]))


_SPEEDS = {
    row["provider"]: _speed_of(row)
    for row in rows_of("speeds.csv", "fabbench.benchmarks.libfabric")
}


class LibfabricWork(PairWork):
    """What the works of libfabric's programs share."""

    __slots__ = ()
    benchmark: str
    program: str
    install: str
    endpoint: str = ""
    iterations: int | None
    extra: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # the devices or domains to measure; empty: all
    domain: str | None = None  # the only domain to measure, on both hosts
    all_domains: bool = True  # whether the domain of each RDMA device is measured
    one_by_one: bool = True
    memory: str | None = "host"
    env: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    @override
    def together(self) -> bool:
        return not self.one_by_one

    def seconds_on(self, fabric: str) -> float:
        """Return the time that the messages of a size should take."""
        raise NotImplementedError

    @property
    def needs(self) -> Needs:
        """The program: the EFA installer has all of them.

        `subfolders`: where programs are below the directory of an installation.
        """
        return Needs(
            programs=(self.program,),
            install=self.install,
            folders={self.program: "/opt/amazon/efa/bin"},
            subfolders=("bin", "libexec/fabtests", ""),
            devices=self.devices,
            host_memory=self.memory == "host",
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts.

        None for all of the program: releases differ.
        """
        del hosts
        return tuple(size for size in self.step_sizes if size is not None)

    @property
    def _endpoint_of_program(self) -> str:
        """The endpoint type that the program is named after; empty: it has several."""
        _, kind, *_ = self.program.split("_")  # fi_rma_bw: rma
        return _ENDPOINTS.get(kind, "")

    def endpoint_on(self, fabric: str) -> str:
        """Return the endpoint type on a fabric.

        Connected endpoints connect before timing starts.
        """
        usual = "msg" if provider(fabric) in _CONNECTING else "rdm"
        return self._endpoint_of_program or self.endpoint or usual

    def iterations_on(self, fabric: str, size: int | None) -> int | None:
        """Return the iterations; None: the program's own number.

        As many as take `seconds_on`, rounded up to the two digits that are printed.
        """
        if self.iterations or size is None:
            return self.iterations
        speed = _SPEEDS.get(provider(fabric), _SPEEDS["any"])
        one_way_s = speed.start_s + size / speed.rate
        once_s = 2 * one_way_s
        # Many messages are under way: ten, it is assumed, share the time of a start-up.
        if "pingpong" not in self.program:
            once_s = speed.start_s / 10 + size / speed.rate
        fitting = self.seconds_on(fabric) / once_s
        # Within bounds, as the speeds are guesses.
        at_least = max(fitting, 10)
        return _rounded_up_to_two_digits(min(at_least, 10_000_000))

    def options(self, fabric: str) -> tuple[str, ...]:
        """Return the program's options besides the provider, the sizes, the port and the domain."""
        raise NotImplementedError

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`; empty: it can."""
        name = provider(fabric)
        endpoint = self.endpoint_on(fabric)
        types: set[str] = set()
        for layer in _LAYERS:  # `tcp;ofi_rxm` has types of endpoint that `tcp` lacks
            types.update(host.providers.get(f"{name}{layer}", ()))
        if not types:
            return f"libfabric has no provider {name} there."
        if endpoint not in types:
            others = ", ".join(sorted(types))
            return f"its provider {name} has no endpoint of type {endpoint}, but {others}."
        if self.is_by_domain(fabric) and not self.domains(fabric, host):
            listed = ", ".join(self._listed_domains(fabric, host)) or "none"
            return f"libfabric lists no such domain of its provider {name} there, but {listed}."
        return ""

    def is_by_domain(self, fabric: str) -> bool:
        """Return whether each device is measured, as a domain that ``-d`` selects."""
        return self.all_domains and provider(fabric) in _RDMA

    def domains(self, fabric: str, host: Host) -> tuple[str, ...]:
        """Return the domains of a host's RDMA devices that are measured; empty on other fabrics.

        Empty, too, where one of the requested devices or domains is missing.
        """
        listed = self._listed_domains(fabric, host)
        requested = set(self.devices)
        if not requested:
            return listed
        matching = [name for name in listed if requested & {name, _device(name)}]
        return tuple(matching) if len(matching) == len(requested) else ()

    def _listed_domains(self, fabric: str, host: Host) -> tuple[str, ...]:
        """Return the domains that fi_info lists there for the endpoint type, each once."""
        name = provider(fabric)
        if name not in _RDMA:  # its domains are no devices
            return ()
        suffix = ""
        if name == "efa":
            suffix = _EFA_DOMAINS.get(self.endpoint_on(fabric), "")
        listed: dict[str, None] = {}
        for layer in _LAYERS:
            for domain in host.domains.get(f"{name}{layer}", ()):
                # A device has a domain for each type of endpoint, which its ending tells.
                if domain.endswith(suffix) and not domain.endswith(_OTHER_DOMAINS):
                    listed[domain] = None
        return tuple(listed)

    @override
    def rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[Rail]:
        """Return the rails: by domain, or one between the interfaces that connect the hosts.

        libfabric would use the interface that it lists first, not the one with the server's
        address.
        """
        first = hosts[0]
        last = hosts[-1]
        if self.is_by_domain(fabric):
            servers = self.domains(fabric, first)
            clients = self.domains(fabric, last)
            return paired_devices(servers, clients, (first.name, last.name))
        if self.domain:
            return (Rail(self.domain, self.domain),)
        if len(hosts) == 1 or provider(fabric) not in INTERFACE:  # libfabric chooses
            return (Rail(server="", client=""),)
        return (Rail(first.interface or "", last.interface or ""),)

    @override
    def facts(self, fabric: str, rail: Rail, size: int | None) -> Facts:
        # What the begin marker of a step states; `size` None: all sizes of the program.
        facts: MutableFacts = {"benchmark": self.benchmark}
        if self.benchmark != self.program.removeprefix("fi_"):
            # A benchmark of several programs (fabtests): the marker says which one this is.
            facts |= {"program": self.program, "provider": provider(fabric)}
        facts["endpoint"] = self.endpoint_on(fabric)
        iterations = self.iterations_on(fabric, size)
        if size is not None and iterations is not None:
            facts |= {"size": size, "iterations": iterations}
        if self.is_by_domain(fabric):  # then a rail's ends are domains
            facts |= {"device": _device(rail.client), "domain": rail.client}
            if rail.server != rail.client:
                facts["server_domain"] = rail.server
            if self.together and rail.count > 1:
                facts["together"] = "yes"
        return facts

    @override
    def command(self, fabric: str, side: Side, size: int | None) -> Command:
        # `size` None: all sizes of the program. Only the client has an operand: the server.
        name = provider(fabric)
        domain = side.device
        env = dict(self.env)
        if name == "efa":
            env |= EFA_ENV
        if domain and name in INTERFACE:  # it is an interface, and ``-d`` would be ignored
            env[INTERFACE[name]] = domain
            domain = ""
        sizes = "all" if size is None else str(size)
        argv = [self.program, "-p", name]
        argv += self.options(fabric)
        argv += ["-S", sizes]
        iterations = self.iterations_on(fabric, size)
        if iterations:
            argv += ["-I", str(iterations)]
        if side.gpu is not None:
            argv += ["-D", "cuda", "-i", str(side.gpu)]
        argv += self._port(side.role)
        argv += self.extra
        if domain:
            argv += ["-d", domain]
        if side.role == "client":
            argv.append(SERVER)
        # FI_PROVIDER would hide providers from the program, and cluster images set it.
        unset = ("FI_PROVIDER",)
        return Command(
            argv=tuple(argv),
            role=side.role,
            host=side.at,
            env=env,
            unset=unset,
        )

    def _port(self, role: str) -> Sequence[str]:
        """Return the option of the port of a side."""
        if self._endpoint_of_program == "rdm":
            # Unconnected endpoints of the fabtests exchange addresses over TCP, for EFA has no
            # other way.
            return (f"-E={PORT}",)
        # -B: the port where the server listens; -P: the same one, for the client.
        return ("-P" if role == "client" else "-B", PORT)


def _rounded_up_to_two_digits(count: float) -> int:
    """Round up to two significant digits: 1234 is 1300."""
    magnitude = math.floor(math.log10(count))
    step = 10 ** (magnitude - 1)
    steps = math.ceil(count / step)
    return int(steps * step)


def _device(domain: str) -> str:
    # EFA's domains are the device's name with a suffix per endpoint type, others just the name.
    return domain.removesuffix("-rdm").removesuffix("-dgrm")
