"""Kubernetes: what pods request, and how they get access to a fabric.

There is one profile per platform, in cluster_profiles.toml with its sources. Most platforms have a
device plugin: its resource on the nodes identifies the profile (`PROFILES`), and pods need
IPC_LOCK, for registering memory, and no privilege. Others need more, and are declared by the user
(`DECLARED`): directories of the nodes, annotations, a sidecar, privilege.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from fabbench.catalog.systems import System
from fabbench.model import records
from fabbench.model.errors import RequestError
from fabbench.model.mappings import Names, Variables
from fabbench.model.values import frozen

EFA = "vpc.amazonaws.com/efa"


class Mount(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One volume of a pod: a path of its node, and where it is mounted."""

    name: str
    node_path: str
    path: str

    @property
    def source(self) -> Mapping[str, Any]:
        """The volume in a manifest, without its name."""
        return {"hostPath": {"path": self.node_path}}


class Sidecar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of the platform that runs beside the benchmark in each pod."""

    name: str
    image: str
    script: str
    """What its shell runs."""
    capabilities: Names = ()
    mounts: tuple[Mount, ...] = ()
    env: Variables = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pod requests to use a fabric: a record of cluster_profiles.toml."""

    name: str
    declared: bool = False
    """Whether users declare it; else a resource of the nodes identifies it."""
    platform: str
    """A description for users."""
    resource: str = ""
    """The extended resource; ``*`` stands for any text. Empty: pods request none."""
    fabrics: Names
    """The fabrics that it may provide, by fabbench's names."""
    shared: bool = False
    """Whether one unit gives a pod all devices of a pool (the RDMA shared device plugin).

    Else a pod requests all units of its node, each of which is one device.
    """
    huge_pages: bool = False
    """Whether the fabric's library uses huge pages, where the node has some."""
    capabilities: Names = ("IPC_LOCK",)
    annotations: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    env: Variables = {}
    plugin: str = ""
    """What advertises the resource on nodes, and is missing where they have none."""
    usual_devices: int = 0
    """How many units of the resource nodes have, where no node is inspected."""
    device_annotation: tuple[str, str] | None = None
    """The key of an annotation, and the value that it repeats for each device."""
    device_class: str = ""
    """The DeviceClass of dynamic resource allocation (DRA), of which a pod claims all devices."""
    host_network: bool = False
    privileged: bool = False
    sidecar: Sidecar | None = None
    image: str = ""
    """The platform's published image, where AWS's does not work."""
    settings: Mapping[str, Variables] = {}
    """Fabric → the variables that the platform sets for NCCL on it."""


_KNOWN = records.load("fabbench.catalog", "cluster_profiles.toml", Profile)
PROFILES = tuple(profile for profile in _KNOWN if not profile.declared)
"""Profiles that a resource of the nodes identifies, in the order in which they are tried."""
DECLARED = tuple(profile for profile in _KNOWN if profile.declared)
"""Profiles that users declare (``--cluster-profile``)."""


def declared_profile(name: str) -> Profile | None:
    """Return a profile that users declare, by its name; None for an empty name."""
    return next((profile for profile in DECLARED if profile.name == name), None)


def profile_for(resource: str) -> Profile | None:
    """Return the profile of an extended resource; None: it is not a known fabric, or empty."""
    known = (*PROFILES, *DECLARED) if resource else ()
    return next((profile for profile in known if fnmatchcase(resource, profile.resource)), None)


def fabric_resource(resources: Collection[str]) -> str:
    """Choose the resource by which pods request a node's fabric; empty where it has none.

    Of several, that of the first profile.
    """
    known = (*PROFILES, *DECLARED)
    for profile in known:
        for name in sorted(resources):
            if fnmatchcase(name, profile.resource):
                return name
    return ""


GPU = "nvidia.com/gpu"
HUGE_PAGES = "hugepages-2Mi"
TOLERATED = (GPU, EFA, "aws.amazon.com/efa")
"""Keys of taints that fabbench's pods tolerate by default.

They are there to keep other pods away.
"""

MIB = 1 << 20

_PREFIXES = "num kMGTPE"
"""The letters of suffixes: each stands for the next power of 1000, or of 1024 before an `i`."""
_QUANTITY = re.compile(
    r"([+-]?(?:\d++(?:\.\d*+)?|\.\d++))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)


@lru_cache(maxsize=4096)
def parse_quantity(value: str | int) -> Fraction:
    """Read a quantity: ``"8"``, ``"500m"``, ``"5120Mi"``, ``"1e3"``, ``"1E"`` (which is 10¹⁸).

    Raise ValueError for anything else.
    """
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a Kubernetes quantity such as 8, 500m or 5120Mi")
    number, exponent, suffix = match.groups("")
    if exponent:
        power = int(exponent[1:])  # behind the e
        return Fraction(number) * Fraction(10) ** power
    base = Fraction(1024 if suffix.endswith("i") else 1000)
    letter = suffix[:1].replace("K", "k") or " "  # Ki is 1024, and k is 1000
    power = _PREFIXES.index(letter) - _PREFIXES.index(" ")
    return Fraction(number) * base**power


def whole_number(value: str | int) -> int:
    """Read a quantity of something indivisible, rounded up as Kubernetes does."""
    return math.ceil(parse_quantity(value))


def thousandths(value: str | int) -> int:
    """Read a quantity of CPUs in thousandths, rounded up."""
    return math.ceil(parse_quantity(value) * 1000)


def mebibytes(size: int) -> str:
    """Write bytes as whole mebibytes, rounded down: ``"5120Mi"``."""
    whole = size // MIB
    return f"{whole}Mi"


def cpus(millis: int) -> str:
    """Write thousandths of a CPU: ``"4"``, ``"1500m"``."""
    return f"{millis}m" if millis % 1000 else str(millis // 1000)


SHM = "shm"
"""What `override_resources` calls the memory in /dev/shm, which is part of ``memory``."""
_GIB = 1 << 30
_MEMORY = 8 * _GIB
_MEMORY_FOR_GPU = 4 * _GIB
_SHM = 2 * _GIB
_SHM_FOR_GPU = _GIB
"""NCCL's ranks of one node and Open MPI use well below this in /dev/shm."""


@frozen
class PodResources:
    """What each pod of a run requests; limits are the same, except that CPUs have none."""

    gpus: int = 0
    resource: str = ""
    """The extended resource of the fabric; empty: none."""
    devices: int = 0
    """How many of `resource`."""
    huge_pages: int = 0
    """Bytes in pages of 2 MiB."""
    memory: int = 0
    """Bytes, `shm` included: the kernel counts /dev/shm as memory of the pod."""
    shm: int = 0
    """Bytes of /dev/shm."""
    cpus: int = 0
    """Thousandths."""
    declared: Profile | None = None

    @property
    def profile(self) -> Profile | None:
        """How a pod gets access to the fabric; None: it uses none."""
        if self.declared is not None:
            return self.declared
        profile = profile_for(self.resource) if self.devices else None
        return profile if profile in PROFILES else None  # others must be declared

    def requests(self) -> dict[str, str]:
        """Return the container's requests."""
        amounts = {"cpu": cpus(self.cpus)} if self.cpus else {}
        return amounts | self.limits()

    def limits(self) -> dict[str, str]:
        """Return the container's limits. A CPU limit would slow down what is measured."""
        amounts = {
            "memory": mebibytes(self.memory),
            HUGE_PAGES: mebibytes(self.huge_pages),
            GPU: str(self.gpus),
            self.resource: str(self.devices),
        }
        requested = {name: text for name, text in amounts.items() if text not in {"0", "0Mi"}}
        requested.pop("", None)  # the fabric's, where there is none
        return requested

    def texts(self) -> tuple[str, ...]:
        """Return all of it as `override_resources` reads it."""
        amounts = {GPU: "0", **self.requests(), SHM: mebibytes(self.shm)}
        return tuple(f"{name}={text}" for name, text in amounts.items())


def pod_resources(
    of_type: System | None,
    declared: Profile | None = None,
    *,
    gpus: bool = True,
    all_cpus: bool = False,
) -> PodResources:
    """Return what pods request on a system, or by a declared profile, without having seen a node.

    Nothing where both are None. `gpus`: whether they need any; `all_cpus`: 15 of 16 of them, and
    not as many as `with_memory_and_cpus` says.
    """
    if of_type is None and declared is None:
        return PodResources()
    entry = of_type or _USUAL
    resource = declared.resource if declared else entry.pods
    profile = declared or profile_for(resource)
    devices = PodResources(
        gpus=entry.gpus if gpus else 0,
        huge_pages=entry.huge_pages_mib * MIB,
        declared=declared,
    )
    if resource and profile is not None:
        number = 1 if profile.shared else min(entry.nics, default=profile.usual_devices)
        devices = replace(devices, resource=resource, devices=number)
    # Roughly 80 % of a machine is left for pods.
    memory = (entry.memory_mib or _USUAL_MEMORY_MIB) * 8 // 10 * MIB
    millis = (entry.vcpus or _USUAL_VCPUS) * 8 // 10 * 1000
    usual = with_memory_and_cpus(devices, memory=memory, millis=millis)
    if all_cpus and entry.vcpus:
        return replace(usual, cpus=entry.vcpus * 15_000 // 16)  # in thousandths of a CPU
    return usual


# A typical machine with a platform's fastest fabric; more memory and CPUs are left unused.
_USUAL = System(name="", gpus=8)
_USUAL_MEMORY_MIB = 1_310_720
_USUAL_VCPUS = 120


def with_memory_and_cpus(devices: PodResources, *, memory: int, millis: int) -> PodResources:
    """Return devices with the memory and CPUs that pods need in addition.

    `memory` (bytes) and `millis` (thousandths of CPUs) are what is free: of it pods take at most
    three quarters, and a half.
    """
    gpus = devices.gpus
    shm = min(_SHM + gpus * _SHM_FOR_GPU, memory // 4)
    wanted = _MEMORY + gpus * _MEMORY_FOR_GPU + shm
    at_most_half = min(millis // 2, 4000 * max(gpus, 1))  # four CPUs per GPU, if they are there
    return replace(
        devices,
        memory=_whole_units(min(wanted, memory * 3 // 4), MIB),
        shm=_whole_units(shm, MIB),
        # Less than one CPU stays as it is.
        cpus=_whole_units(at_most_half, unit=1000) or at_most_half,
    )


def _whole_units(amount: int, unit: int) -> int:
    """Return an amount, rounded down to a whole number of units."""
    return amount - amount % unit


def override_resources(resources: PodResources, texts: Iterable[str]) -> PodResources:
    """Replace amounts of `resources`: ``NAME=AMOUNT``, as Kubernetes writes them.

    A name is ``cpu``, ``memory``, ``hugepages-2Mi``, ``nvidia.com/gpu``, `SHM` or the resource of a
    fabric. Raise RequestError for any other name, and for an invalid amount.
    """
    for text in texts:
        name, _, amount = text.partition("=")
        count = _amount(name, amount, text)
        if name in _FIELDS:
            changed: dict[str, Any] = {_FIELDS[name]: count}
            resources = replace(resources, **changed)
        elif profile_for(name) is not None:  # a fabric's; 0 of it: pods request none
            resources = replace(resources, resource=name if count else "", devices=count)
        else:
            raise RequestError(
                f"{name!r} is not a resource that fabbench's pods request.", hint=_REQUESTS
            )
    return resources


def _amount(name: str, amount: str, text: str) -> int:
    """Return an amount of a resource, of CPUs in thousandths.

    Raise RequestError that quotes `text`.
    """
    try:
        return thousandths(amount) if name == "cpu" else whole_number(amount)
    except ValueError as error:
        why = f"{text!r} is not a valid pod request: {error}."
        raise RequestError(why, hint=_REQUESTS) from None


_FIELDS = {"cpu": "cpus", "memory": "memory", HUGE_PAGES: "huge_pages", GPU: "gpus", SHM: "shm"}
_REQUESTS = f"Write NAME=AMOUNT, such as cpu=8, memory=64Gi, {GPU}=8, {EFA}=4."
