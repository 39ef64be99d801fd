"""Machines: which are wanted, what they must have, and what was found. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabbench.hosts.mpi import Mpi
from fabbench.variants import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which machines to use, and how to get at them. What a launcher has no use for it refuses."""

    target: str
    """As the user calls it: a target of the configuration, or a launcher's name."""
    launcher: str
    hosts: tuple[str, ...] = ()
    nodes: int | None = None
    """How many of the hosts to use; None: the launcher's usual number."""
    bin_dirs: tuple[str, ...] = ()
    """Folders to look for programs in before all others."""
    interface: str | None = None
    """Network interface for sockets; None: the one that has the hosts' addresses."""
    gpus: int | None = None
    """GPUs of each host; None: as many as are found."""
    mpirun: str | None = None
    """Path of mpirun on the first host; None: the one that is found."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every benchmark there."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What only one launcher knows (`user`, `port`, `mpi_ssh`, …)."""
    variants: tuple[Variant, ...] = ()
    """In what else than their fabric arms differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What hosts must have for a benchmark."""

    programs: tuple[str, ...]
    install: str
    """The command that installs them."""
    mpi: bool = False
    """Whether an mpirun is needed."""
    gpus: bool = False
    """Whether it measures GPUs, and nothing else."""
    devices: tuple[str, ...] = ()
    """RDMA devices that the user names: those of hosts which nobody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine, as it was found."""

    name: str
    address: str = ""
    """At which the other hosts reach it."""
    interface: str = ""
    """The network interface that has the address, or the one that was asked for; empty: not known."""
    providers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """libfabric provider, with its layers (``tcp;ofi_rxm``) → types of endpoint (`msg`, `rdm`, `dgram`)."""
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """libfabric provider → its distinct domains, such as ``rdmap0s31-rdm``."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """RDMA device → its link: `efa`, `ib`, `roce` or `unknown`."""
    gids: Mapping[str, int] = field(default_factory=dict)
    """RoCE device → index of its RoCE v2 GID."""
    gpus: int = 0
    virtual: bool = False
    """Whether it is a part of a machine that stands for a host, with a part of its GPUs."""
    instance_type: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Program → path."""
    searched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Program whose path is not known → folders in which it is to be looked for when it is started."""
    own: tuple[str, ...] | None = None
    """What is loaded from a variant's folders: programs, and libraries that the linker finds for them. None:
    nobody has looked."""
    mpi: Mpi | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    looked: tuple[str, ...] = ()
    """Where was looked for fabrics, and what was found: one sentence each."""

    def linked(self, link: str) -> tuple[str, ...]:
        """Name the RDMA devices of one kind of link, in order."""
        return tuple(sorted(name for name, kind in self.devices.items() if kind == link))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a target has."""

    target: str
    hosts: tuple[Host, ...]
    image: str = ""
    """Of the containers or machines, unless a variant has its own; empty: none is known."""
    variants: Mapping[str, tuple[Host, ...]] = field(default_factory=dict)
    """Variant → the hosts as it sees them: its programs, providers, interface, mpirun."""

    def seen_by(self, variant: str) -> tuple[Host, ...]:
        """Give the hosts as a variant sees them."""
        return self.variants.get(variant, self.hosts)

    def addresses(self) -> tuple[tuple[str, ...], ...]:
        """Give each host's addresses, whichever the variant."""
        views = self.variants.values() or (self.hosts,)
        return tuple(tuple(dict.fromkeys(host.address for host in seen)) for seen in zip(*views, strict=True))

    def named(self, names: Sequence[str]) -> "Inventory":
        """Give the hosts other names."""

        def other(hosts: Sequence[Host]) -> tuple[Host, ...]:
            return tuple(replace(host, name=name) for host, name in zip(hosts, names, strict=True))

        views = {variant: other(hosts) for variant, hosts in self.variants.items()}
        return replace(self, hosts=other(self.hosts), variants=views)

    def views(self) -> Iterator[tuple[str, Host]]:
        """Give every host as every variant sees it, with what to call it."""
        for variant, hosts in self.variants.items():
            yield from ((f"{host.name} (variant {variant})", host) for host in hosts)
        if not self.variants:
            yield from ((host.name, host) for host in self.hosts)
