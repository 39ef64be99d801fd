"""How pods get access to a fabric: one profile per platform, in cluster_profiles.toml with its sources.

Most platforms have a device plugin: its resource on the nodes identifies the profile (`PROFILES`), and pods
need IPC_LOCK, for registering memory, and no privilege. Others need more, and are declared by the user
(`DECLARED`): directories of the nodes, annotations, a sidecar, privilege.
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

EFA = "vpc.amazonaws.com/efa"


@dataclass(frozen=True, slots=True)
class Mount:
    """One volume of a pod, and where it is mounted. `source` is the volume without its name."""

    name: str
    path: str
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A program of the platform that runs beside the benchmark in each pod."""

    name: str
    image: str
    script: str
    """What its shell runs."""
    capabilities: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a pod requests to use a fabric."""

    name: str
    platform: str
    """A description for users."""
    resource: str = ""
    """The extended resource; ``*`` stands for any text. Empty: pods request none."""
    fabrics: tuple[str, ...]
    """The fabrics that it may provide, by fabbench's names."""
    shared: bool = False
    """Whether one unit gives a pod all devices of a pool (the RDMA shared device plugin). Else a pod
    requests all units of its node, each of which is one device."""
    huge_pages: bool = False
    """Whether the fabric's library uses huge pages, where the node has some."""
    capabilities: tuple[str, ...] = ("IPC_LOCK",)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
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
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Fabric → the variables that the platform sets for NCCL on it."""


def _profile(fields: Mapping[str, Any]) -> Profile:
    sidecar = Sidecar(**_values(fields["sidecar"])) if "sidecar" in fields else None
    return Profile(**{**_values(fields), "sidecar": sidecar})


def _values(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    mounts: Sequence[Sequence[str]] = fields.get("mounts", ())
    return {
        **values,
        "mounts": tuple(Mount(name, path, {"hostPath": {"path": source}}) for name, source, path in mounts),
    }


_FILE = tomllib.loads((files("fabbench.catalog") / "cluster_profiles.toml").read_text("utf-8"))
PROFILES = tuple(map(_profile, _FILE["recognized"]))
"""Profiles that a resource of the nodes identifies, in the order in which they are tried."""
DECLARED = tuple(map(_profile, _FILE["declared"]))
"""Profiles that users declare (``--cluster-profile``)."""


def declared_profile(name: str) -> Profile | None:
    """Return a profile that users declare, by its name; None for an empty name."""
    return next((each for each in DECLARED if each.name == name), None)


def profile_for(resource: str) -> Profile | None:
    """Return the profile of an extended resource; None: it is not a known fabric."""
    known = (*PROFILES, *DECLARED)
    return next((each for each in known if fnmatchcase(resource, each.resource)), None)


def fabric_resource(resources: Collection[str]) -> str:
    """Choose the resource by which pods request a node's fabric; empty where it has none."""
    known = (*PROFILES, *DECLARED)
    matches = (name for each in known for name in sorted(resources) if fnmatchcase(name, each.resource))
    return next(matches, "")
