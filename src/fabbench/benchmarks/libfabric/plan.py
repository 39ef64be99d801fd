"""How libfabric's programs are started: the domains of a provider, and the command line of each side."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fabbench.model.fabrics import Rail, provider
from fabbench.model.hosts import Host, Needs
from fabbench.model.plan import Command, Shape, Step
from fabbench.model.units import format_size

PORT, SERVER = "{port}", "{server}"
"""Words of a command that are filled in when it runs: a free port, and the server's address."""

INTERFACE: Mapping[str, str] = {
    "tcp": "FI_TCP_IFACE",
    "udp": "FI_UDP_IFACE",
    "sockets": "FI_SOCKETS_IFACE",
    "net": "FI_NET_IFACE",
}
"""Provider → the variable that sets its interface: libfabric 1.17 ignores ``-d`` for these."""
LAYERS = ("", ";ofi_rxm", ";ofi_rxd")  # possible suffixes of a provider's name: layers that add endpoint types
EFA_ENV: Mapping[str, str] = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}
"""Otherwise, libfabric's EFA uses shared memory between two programs of one host, but still reports efa."""


def needs(program: str, install: str, devices: tuple[str, ...] = ()) -> Needs:
    """Return what hosts need for one of libfabric's programs: the EFA installer has all of them."""
    return Needs(
        programs=(program,),
        install=install,
        folders={program: "/opt/amazon/efa/bin"},
        subfolders=("bin", "libexec/fabtests", ""),
        devices=devices,
    )


def why_unsupported(fabric: str, endpoint: str, host: Host) -> str:
    """Explain in a sentence why a fabric cannot be measured with an endpoint on a host; empty if it can."""
    name = provider(fabric)
    types = {kind for layer in LAYERS for kind in host.providers.get(f"{name}{layer}", ())}
    if not types:
        return f"libfabric has no provider {name} there."
    if endpoint not in types:
        return f"its provider {name} has no endpoint of type {endpoint}, but {', '.join(sorted(types))}."
    return ""


class Side(NamedTuple):
    """One side of a pair: the provider, and the domain to use."""

    provider: str
    domain: str  # empty: libfabric chooses

    def command(self, words: tuple[str, ...], *, role: str, host: int) -> Command:
        """Return the command: the domain as option or variable, and for the client the server's address."""
        env = dict(EFA_ENV) if self.provider == "efa" else {}
        domain: tuple[str, ...] = ()
        if self.domain and self.provider in INTERFACE:
            env[INTERFACE[self.provider]] = self.domain
        elif self.domain:
            domain = ("-d", self.domain)
        address = (SERVER,) if role == "client" else ()
        # FI_PROVIDER would hide providers from the program, and cluster images set it.
        return Command(argv=(*words, *domain, *address), role=role, host=host, env=env, unset=("FI_PROVIDER",))


def names_domains(fabric: str) -> bool:
    """Return whether each device of a fabric is a domain of its own, selected with ``-d``."""
    return provider(fabric) in {"efa", "verbs"}


def domain_facts(rail: Rail) -> Mapping[str, str]:
    """Return the facts for a begin marker that name the device and the domains of a step."""
    facts = {"device": device(rail.client), "domain": rail.client}
    return facts if rail.server == rail.client else {**facts, "server_domain": rail.server}


def domains(fabric: str, endpoint: str, host: Host) -> tuple[str, ...]:
    """Return the domains of a host's RDMA devices for an endpoint; empty for other providers."""
    if not names_domains(fabric):
        return ()
    name = provider(fabric)
    known = [domain for layer in LAYERS for domain in host.domains.get(f"{name}{layer}", ())]
    suffix = {"rdm": "-rdm", "dgram": "-dgrm"}.get(endpoint, "") if name == "efa" else ""
    others = ("-xrc", "-dgram")  # verbs domains that belong to other endpoint types
    fitting = (domain for domain in known if domain.endswith(suffix) and not domain.endswith(others))
    return tuple(dict.fromkeys(fitting))


def device(domain: str) -> str:
    """Return the device of an EFA domain: ``rdmap0s6-rdm`` is on rdmap0s6."""
    return domain.removesuffix("-rdm").removesuffix("-dgrm")


def interface_rail(fabric: str, hosts: Sequence[Host]) -> Rail:
    """Return the rail of a fabric without devices: between hosts, the interfaces that connect them.

    libfabric would use the one that it lists first, not the one with the server's address.
    """
    if len(hosts) == 1 or provider(fabric) not in INTERFACE:
        return Rail("", "")
    return Rail(hosts[0].interface or "", hosts[-1].interface or "")


def pair_step(
    execution: str, commands: tuple[Command, Command], facts: Mapping[str, str | int], *, timeout_s: float
) -> Step:
    """Return the step of a server and a client, named after the `device` and the `size` in its facts."""
    device = str(facts.get("device", ""))
    size = facts.get("size")
    return Step(
        id=f"{execution}/{device}{'-' if device else ''}{'all' if size is None else size}",
        label=f"{device} {'all sizes' if size is None else format_size(int(size))}".strip(),
        shape=Shape.PAIR,
        commands=commands,
        timeout_s=timeout_s,
        facts=facts,
    )


def rounded_iterations(required: float, minimum: int, maximum: int) -> int:
    """Return a number of iterations rounded up to two digits, because the programs print no more."""
    exact = min(max(required, minimum), maximum)
    digits = 10 ** (math.floor(math.log10(exact)) - 1)
    return int(math.ceil(exact / digits) * digits)
