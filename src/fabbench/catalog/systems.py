"""The catalog of systems: kinds of nodes, with their GPUs and NICs.

The table is systems.csv, which names its sources. To refresh EC2's instance types, query ``aws ec2
describe-instance-types --filters Name=network-info.efa-supported,Values=true`` for
MaximumEfaInterfaces; results are per region.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from fabbench.model.errors import RequestError
from fabbench.model.patterns import lazy
from fabbench.model.templates import pairs_of as pairs_of  # noqa: PLC0414 - with `records`
from fabbench.model.templates import rows_of as rows_of  # noqa: PLC0414 - with `records`
from fabbench.model.values import T, frozen

RACKS = ("GB200", "GB300")
"""GPUs whose NVLink connects the hosts of a rack."""
_ISLAND = frozenset({"p4d", "p4de", "dl1"})
"""Families whose EFA reaches only each other (EC2 user guide, limitations of EFA)."""
NVLINK: Mapping[str, float] = {"H100": 480e9, "H200": 480e9, "B200": 840e9}
"""Approximate maximum busbw observed with the NVLink of a node of 8 such GPUs.

With in-switch reduction.
"""
_GBPS = 1e9 / 8  # One Gb/s, in bytes per second


@frozen
class System:
    """A kind of node: a row of systems.csv. None and empty text mean: no source states it."""

    name: str
    cloud: str = ""
    """Whose nodes have the name as their label: aws, azure; empty: no source says so."""
    arch: str = ""
    """As Kubernetes labels it: `amd64`, `arm64`."""
    vcpus: int | None = None
    memory_mib: int | None = None
    gpus: int
    gpu_model: str = ""
    gpu_memory_mib: int | None = None
    """Memory of one GPU."""
    most_nics: int | None = None
    fewest_nics: int | None = None
    """The NICs that a node has when built to its cloud's recipe, where those are fewer."""
    network_gbps: float | None = None
    """What the network of a node that carries GPU traffic carries, one way."""
    nics_gbps: float | None = None
    """What its NICs can carry, where that is less than `network_gbps`."""
    fabric: str = ""
    rdma_read: bool = False
    """Whether its EFA has RDMA."""
    pods: str = ""
    """How pods get its NICs: the resource that they request, or a declared profile."""
    huge_pages_mib: int = 0
    """What pods request of pages of 2 MiB, in which its fabric's library has its buffers."""
    source: str = ""

    @property
    def is_ec2(self) -> bool:
        """Whether it is an EC2 instance type. All of them have EFA."""
        return self.cloud == "aws"

    @property
    def nics(self) -> tuple[int, ...]:
        """The valid counts of NICs, the largest first; empty: not known."""
        return tuple(filter(None, (self.most_nics, self.fewest_nics)))

    @property
    def rate(self) -> float | None:
        """What the NICs of a node carry together, one way, in bytes per second."""
        gbps = self.nics_gbps or self.network_gbps
        return gbps * _GBPS if gbps else None

    @property
    def nvlink_domain(self) -> bool:
        """Whether NVLink connects nodes."""
        return connects_hosts(self.gpu_model)

    @property
    def inside(self) -> tuple[object, ...]:
        """What it shares with systems whose GPUs are connected alike inside a node."""
        return (self.gpus, NVLINK.get(self.gpu_model, self.gpu_model))

    @property
    def kind(self) -> str | tuple[object, ...]:
        """What it shares with systems of the same GPUs and NICs, whose published figures count."""
        if not (self.gpus and self.rate and self.fabric):
            return self.name
        return (*self.inside, self.rate, self.fabric)

    def has_gpu(self, name: str) -> bool:
        """Return whether its GPUs have this name, such as ``NVIDIA A100-SXM4-40GB``."""
        words = {*name.replace("-", " ").split()}
        named_memory = [word for word in words if re.fullmatch(r"\d+GB", word)]
        gigabytes = (self.gpu_memory_mib or 0) // 1024
        # A name without its memory is of any, and so is a system of which none is stated.
        has_memory = not (named_memory and gigabytes) or f"{gigabytes}GB" in named_memory
        return has_memory and bool(self.gpus) and words.issuperset(self.gpu_model.split())


def plain(instance_type: str) -> str:
    """Write an instance type as EC2 does: without the ``ml.`` prefix of HyperPod."""
    return instance_type.strip().lower().removeprefix("ml.")


@cache
def systems() -> Mapping[str, System]:
    """Return every known system, by its name in lower case."""
    return {plain(entry.name): entry for entry in records(System, rows_of("systems.csv"))}


def instance(name: str) -> System | None:
    """Return an EC2 instance type; None: it is not in the catalog, so it has no EFA or is newer."""
    known = systems().get(plain(name))
    return known if known is not None and known.is_ec2 else None


@lru_cache(maxsize=64)  # logs of a folder are of the same GPUs
def types_with(gpus: frozenset[str], gpus_per_host: object, nics: object) -> Sequence[str]:
    """Return the EC2 types that have such GPUs, by nvidia-smi's names, and EFA NICs."""
    return [
        entry.name
        for entry in systems().values()
        if entry.is_ec2 and entry.gpus == gpus_per_host and nics in entry.nics
        if all(map(entry.has_gpu, gpus))
    ]


_FLAGS = {"yes": True, "no": False}


def records(
    kind: type[T],
    rows: Iterable[Mapping[str, Any]],
) -> Iterator[T]:
    """Return rows as values of a dataclass, by the types of its fields.

    Empty cells are its defaults.
    """
    import msgspec

    for row in rows:
        filled = [(name, cell) for name, cell in row.items() if cell]
        values = {name: _FLAGS.get(cell, cell) for name, cell in filled}
        yield msgspec.convert(values, kind, strict=False)  # numbers are texts in a table


def system(name: str) -> System | None:
    """Return a system by name, or one of `8xH100` that has no other; None: not known."""
    return systems().get(plain(name)) or _system_of_only_gpus(name)


def _system_of_only_gpus(name: str) -> System | None:
    """Return a system without NICs, of GPUs of a known model; None: no such name as `8xH100`."""
    match = _GPUS.fullmatch(name.strip())
    if match is None:
        return None
    count = match[1]
    model = match[2].upper()
    if model not in gpu_links():
        return None
    return System(name=f"{count}x{model}", gpus=int(count), gpu_model=model)


_GPUS = lazy(r"([1-9]\d?)x(\w{2,10})", re.ASCII | re.IGNORECASE)


def require_system(name: str) -> System:
    """Return a system by name. Raise RequestError that suggests similar names."""
    known = system(name)
    if known is None:
        raise RequestError(f"The catalog has no instance type {name}.", hint=_similar(name))
    return known


def _similar(name: str) -> str:
    """Return a hint for a name that is not in the catalog."""
    known = systems()
    near = difflib.get_close_matches(plain(name), known, n=4, cutoff=0.5)
    if near:
        meant = " or ".join(known[key].name for key in near)
        return f"Did you mean {meant}?"
    others = (each.name for each in known.values() if not each.is_ec2)  # EC2's are too many
    names = ", ".join(others)
    return f"Known are EC2's types with EFA, and {names}."


@frozen
class GpuLink:
    """What connects GPUs of one model inside a node: a row of gpus.csv."""

    gpu_model: str
    link: str = ""
    link_gbytes: float = 0.0
    """Of one GPU, one way, in 10⁹ bytes per second; 0: none is known."""
    reduces: bool = False
    system: str = ""
    """The node that alone has this GPU, such as dgx-spark for GB10; empty: many systems have it."""
    source: str = ""

    @property
    def rate(self) -> float:
        """The same as `link_gbytes`, in bytes per second."""
        return self.link_gbytes * 1e9


@cache
def gpu_links() -> Mapping[str, GpuLink]:
    """Return what connects GPUs inside a node, by model."""
    return {link.gpu_model: link for link in records(GpuLink, rows_of("gpus.csv"))}


def systems_with(gpus: Collection[str]) -> Sequence[str]:
    """Return the system that alone has such GPUs, by nvidia-smi's names, as dgx-spark has GB10."""
    return [
        link.system
        for link in gpu_links().values()
        if link.system and all(link.gpu_model in gpu.split() for gpu in gpus)
    ]


def system_of_gpus(gpu_model: str, gpus: int) -> str:
    """Return the name of a system by its GPUs, as nvidia-smi names them; empty: not known.

    Cards for PCIe have no link, or one to a neighbor only.
    """
    words = {*re.split(r"[\s-]+", gpu_model)}
    if not gpus or words & {"PCIe", "NVL"}:
        return ""
    for model, link in gpu_links().items():
        if model in words:
            # A model that only one system has names it, whatever the number of GPUs.
            return link.system or f"{gpus}x{model}"
    return ""


def connects_hosts(gpu_model: str) -> bool:
    """Return whether the NVLink of such GPUs connects hosts.

    `gpu_model` is the name by nvidia-smi or the catalog.
    """
    return any(name in gpu_model for name in RACKS)


def efa_reaches(one: str, other: str) -> bool:
    """Return whether EFA can carry anything between two instance types, in one zone and network.

    Both are of the island's families, or neither is.
    """
    families = {_family(one), _family(other)}
    return families <= _ISLAND or families.isdisjoint(_ISLAND)


def _family(instance_type: str) -> str:
    return plain(instance_type).partition(".")[0]
