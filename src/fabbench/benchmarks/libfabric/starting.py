"""What starting libfabric's programs takes: the provider's domains, and the command line of each side."""

from collections.abc import Mapping
from typing import NamedTuple

from fabbench.fabrics import provider
from fabbench.machines import Host
from fabbench.model import Command

PORT, SERVER = "{port}", "{server}"
"""Words of a command that are known only when it runs: a free port, and the server's address."""

INTERFACE: Mapping[str, str] = {
    "tcp": "FI_TCP_IFACE",
    "udp": "FI_UDP_IFACE",
    "sockets": "FI_SOCKETS_IFACE",
    "net": "FI_NET_IFACE",
}
"""Provider → the variable that names its interface: libfabric 1.17 ignores ``-d`` for these."""
LAYERS = ("", ";ofi_rxm", ";ofi_rxd")
"""What a provider's name may be followed by: layers that add types of endpoint."""
EFA_ENV: Mapping[str, str] = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}
"""Without this, libfabric's EFA uses shared memory between two programs of one host, and still says efa."""

_SUFFIXES: Mapping[str, Mapping[str, str]] = {"efa": {"rdm": "-rdm", "dgram": "-dgrm"}}
_OTHERS = ("-xrc", "-dgram")
"""Ends of names of the provider verbs that are another endpoint's."""


def lacks(fabric: str, endpoint: str, host: Host) -> str:
    """Say in a sentence why a fabric cannot be measured with an endpoint on a host; empty if it can."""
    name = provider(fabric)
    types = {kind for layer in LAYERS for kind in host.providers.get(f"{name}{layer}", ())}
    if not types:
        return f"libfabric has no provider {name} there."
    if endpoint not in types:
        return f"its provider {name} has no endpoint of type {endpoint}, but {', '.join(sorted(types))}."
    return ""


class Side(NamedTuple):
    """One side of a pair: the provider, and the domain that it is to use."""

    provider: str
    domain: str | None

    def command(self, words: tuple[str, ...], *, role: str, host: int) -> Command:
        """Make the command: the domain by option or variable, and for the client the server's address."""
        by_variable = self.provider in INTERFACE
        env = dict(EFA_ENV) if self.provider == "efa" else {}
        named: tuple[str, ...] = ()
        if self.domain and by_variable:
            env[INTERFACE[self.provider]] = self.domain
        elif self.domain:
            named = ("-d", self.domain)
        address = (SERVER,) if role == "client" else ()
        # FI_PROVIDER would hide providers from the program, and images for clusters set it.
        return Command(argv=(*words, *named, *address), role=role, host=host, env=env, unset=("FI_PROVIDER",))


def names_domains(fabric: str) -> bool:
    """Whether each device of a fabric is a domain of its own, to be named with ``-d``."""
    return provider(fabric) in {"efa", "verbs"}


def told(device: str, server: str, client: str) -> Mapping[str, str]:
    """Give what a begin marker says of the domains of a step."""
    facts = {"device": device, "domain": client}
    return facts if server == client else {**facts, "server_domain": server}


def domains(fabric: str, endpoint: str, host: Host) -> tuple[str, ...]:
    """Name the domains of a host's RDMA devices for an endpoint; none for other providers."""
    if not names_domains(fabric):
        return ()
    name = provider(fabric)
    known = [domain for layer in LAYERS for domain in host.domains.get(f"{name}{layer}", ())]
    suffix = _SUFFIXES.get(name, {}).get(endpoint, "")
    fitting = (domain for domain in known if domain.endswith(suffix) and not domain.endswith(_OTHERS))
    return tuple(dict.fromkeys(fitting))


def device(domain: str) -> str:
    """Name the device of an EFA domain: ``rdmap0s6-rdm`` is on rdmap0s6."""
    return domain.removesuffix("-rdm").removesuffix("-dgrm")
