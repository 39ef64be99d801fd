"""How libfabric's programs are started.

A server on the first host and a client on the last, per rail and size.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from fabbench.benchmarks.pairs import PORT, SERVER, pair_step
from fabbench.benchmarks.standard import Work
from fabbench.model.compat import override
from fabbench.model.fabrics import Rail, paired_devices, provider
from fabbench.model.hosts import Host, Needs
from fabbench.model.plan import Command, Step

INTERFACE = {name: f"FI_{name.upper()}_IFACE" for name in ("tcp", "udp", "sockets", "net")}
"""Provider → the variable that sets its interface: libfabric 1.17 ignores ``-d`` for these."""
_LAYERS = (
    "",
    ";ofi_rxm",
    ";ofi_rxd",
)  # possible suffixes of a provider's name: layers that add endpoint types
EFA_ENV: Mapping[str, str] = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}
"""Else libfabric's EFA uses shared memory between programs of one host, and reports efa."""
_ENDPOINTS = {"rma": "rdm", "rdm": "rdm", "msg": "msg"}  # of the programs that are named after one
# Guesses (one-way seconds for the smallest message, bytes per second), only for the number of
# iterations.
_SPEED: Mapping[str, tuple[float, float]] = {
    "shm": (0.7e-6, 8e9),
    "efa": (12e-6, 10e9),
    "verbs": (3e-6, 10e9),
    "tcp": (10e-6, 3e9),
    "sockets": (1e-3, 0.2e9),
}


class LibfabricWork(Work):
    """What the works of libfabric's programs share."""

    __slots__ = ()
    benchmark: str
    program: str
    install: str
    endpoint: str = ""
    iterations: int | None
    extra: tuple[str, ...] = ()
    timeout_s: float
    devices: tuple[str, ...] = ()  # the devices or domains to measure; empty: all
    domain: str | None = None  # the only domain to measure, on both hosts
    all_domains: bool = True  # whether the domain of each RDMA device is measured
    one_by_one: bool = True
    memory: str | None = "host"  # `host` or `cuda`; None: cuda if all hosts have GPUs
    env: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    @override
    def together(self) -> bool:
        return not self.one_by_one

    @property
    def step_sizes(self) -> Sequence[int | None]:
        """The sizes in bytes of the steps; None: all that the program has."""
        raise NotImplementedError

    def seconds_on(self, fabric: str) -> float:
        """Return the time that the messages of a size should take."""
        raise NotImplementedError

    @property
    def needs(self) -> Needs:
        """The program: the EFA installer has all of them."""
        return Needs(
            programs=(self.program,),
            install=self.install,
            folders={self.program: "/opt/amazon/efa/bin"},
            subfolders=("bin", "libexec/fabtests", ""),
            devices=self.devices,
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts.

        None for all of the program: releases differ.
        """
        del hosts
        return tuple(size for size in self.step_sizes if size is not None)

    def endpoint_on(self, fabric: str) -> str:
        """Return the endpoint type on a fabric.

        Connected endpoints connect before timing starts.
        """
        usual = "msg" if provider(fabric) in {"tcp", "verbs", "sockets", "net"} else "rdm"
        return _ENDPOINTS.get(self.program.split("_")[1]) or self.endpoint or usual

    def iterations_on(self, fabric: str, size: int | None) -> int | None:
        """Return the iterations.

        As many as take `seconds_on`, rounded up to the two digits that are printed.
        """
        if self.iterations or size is None:
            return self.iterations
        start_s, rate = _SPEED.get(provider(fabric), (10e-6, 1e9))
        # Bandwidth tests have many messages under way.
        once_s = (
            2 * (start_s + size / rate)
            if "pingpong" in self.program
            else start_s / 10 + size / rate
        )
        exact = min(max(self.seconds_on(fabric) / once_s, 10), 10_000_000)
        digits = 10 ** (math.floor(math.log10(exact)) - 1)
        return int(math.ceil(exact / digits) * digits)

    def options(self, fabric: str) -> tuple[str, ...]:
        """Return the program's options besides the provider, the sizes, the port and the domain."""
        raise NotImplementedError

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`."""
        name, endpoint = provider(fabric), self.endpoint_on(fabric)
        types = {kind for layer in _LAYERS for kind in host.providers.get(f"{name}{layer}", ())}
        if not types:
            return f"libfabric has no provider {name} there."
        if endpoint not in types:
            return (
                f"its provider {name} has no endpoint of type {endpoint}, but "
                f"{', '.join(sorted(types))}."
            )
        if self.is_by_domain(fabric) and not self.domains(fabric, host):
            known = ", ".join(self._listed(fabric, host)) or "none"
            return f"libfabric lists no such domain of its provider {name} there, but {known}."
        return ""

    def is_by_domain(self, fabric: str) -> bool:
        """Return whether each device is measured, as a domain that ``-d`` selects."""
        return self.all_domains and provider(fabric) in {"efa", "verbs"}

    def domains(self, fabric: str, host: Host) -> tuple[str, ...]:
        """Return the domains of a host's RDMA devices that are measured; empty on other fabrics."""
        known, requested = self._listed(fabric, host), set(self.devices)
        matching = tuple(
            name for name in known if not requested or {name, _device(name)} & requested
        )
        return matching if not requested or len(matching) == len(requested) else ()

    def _listed(self, fabric: str, host: Host) -> tuple[str, ...]:
        name, endpoint = provider(fabric), self.endpoint_on(fabric)
        layers = _LAYERS if name in {"efa", "verbs"} else ()
        known = [domain for layer in layers for domain in host.domains.get(f"{name}{layer}", ())]
        suffix = {"rdm": "-rdm", "dgram": "-dgrm"}.get(endpoint, "") if name == "efa" else ""
        others = ("-xrc", "-dgram")  # verbs domains that belong to other endpoint types
        return tuple(
            dict.fromkeys(
                each for each in known if each.endswith(suffix) and not each.endswith(others)
            )
        )

    def rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[Rail]:
        """Return the rails: by domain, or one between the interfaces that connect the hosts.

        libfabric would use the interface that it lists first, not the one with the server's
        address.
        """
        first, last = hosts[0], hosts[-1]
        if self.is_by_domain(fabric):
            return paired_devices(
                self.domains(fabric, first), self.domains(fabric, last), (first.name, last.name)
            )
        if self.domain:
            return (Rail(self.domain, self.domain),)
        if len(hosts) == 1 or provider(fabric) not in INTERFACE:
            return (Rail("", ""),)
        return (Rail(first.interface or "", last.interface or ""),)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return a step per rail and size: the server on the first host, the client on the last."""
        rails = self.rails(fabric, hosts)
        return tuple(
            self._step(execution, fabric, hosts, rail, size)
            for rail in rails
            for size in self.step_sizes
        )

    def _step(
        self, execution: str, fabric: str, hosts: Sequence[Host], rail: Rail, size: int | None
    ) -> Step:
        facts: dict[str, str | int] = {"benchmark": self.benchmark}
        if self.benchmark != self.program.removeprefix("fi_"):
            facts |= {"program": self.program, "provider": provider(fabric)}
        facts["endpoint"] = self.endpoint_on(fabric)
        iterations = self.iterations_on(fabric, size)
        if size is not None and iterations is not None:
            facts |= {"size": size, "iterations": iterations}
        if self.is_by_domain(fabric):
            facts |= {"device": _device(rail.client), "domain": rail.client}
            facts |= {"server_domain": rail.server} if rail.server != rail.client else {}
            facts |= {"together": "yes"} if self.together and rail.count > 1 else {}
        commands = tuple(
            self._command(fabric, hosts, rail, size, role) for role in ("server", "client")
        )
        return pair_step(execution, commands, facts, timeout_s=self.timeout_s)

    def _command(
        self, fabric: str, hosts: Sequence[Host], rail: Rail, size: int | None, role: str
    ) -> Command:
        name, iterations, client = (
            provider(fabric),
            self.iterations_on(fabric, size),
            role == "client",
        )
        at, domain = (len(hosts) - 1, rail.client) if client else (0, rail.server)
        # Unconnected endpoints of the fabtests exchange addresses over TCP, for EFA has no other
        # way.
        over_tcp = _ENDPOINTS.get(self.program.split("_")[1]) == "rdm"
        on_gpus = (
            self.memory or ("cuda" if all(host.gpus for host in hosts) else "host")
        ) == "cuda"
        env = {**self.env, **(EFA_ENV if name == "efa" else {})}
        if domain and name in INTERFACE:
            env[INTERFACE[name]], domain = domain, ""
        argv = (
            *(
                self.program,
                "-p",
                name,
                *self.options(fabric),
                "-S",
                "all" if size is None else str(size),
            ),
            *(("-I", str(iterations)) if iterations else ()),
            *(("-D", "cuda", "-i", str(rail.nearest_gpu(hosts[at].gpus))) if on_gpus else ()),
            *((f"-E={PORT}",) if over_tcp else ("-P" if client else "-B", PORT)),
            *(*self.extra, *(("-d", domain) if domain else ()), *((SERVER,) if client else ())),
        )
        # FI_PROVIDER would hide providers from the program, and cluster images set it.
        return Command(argv=argv, role=role, host=at, env=env, unset=("FI_PROVIDER",))


def _device(domain: str) -> str:
    return domain.removesuffix("-rdm").removesuffix("-dgrm")
