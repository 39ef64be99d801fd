"""What the objects of a run are made from, and what they have in common. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fabbench.errors import RequestError
from fabbench.pods.images import DEFAULT
from fabbench.pods.share import Share

Object: TypeAlias = dict[str, Any]
"""One object, as the API takes it."""

NAME = "app.kubernetes.io/name"
RUN = "fabbench/run"
"""The label that has the run's id. With `NAME`, everything of fabbench's carries it."""
ROLE = "fabbench/role"
"""The label of pods: `WORKER` where they measure."""
WORKER = "worker"
REQUEST = "fabbench/request"
"""The annotation that has the command, for those who find the objects."""
HOST_NETWORK = "fabbench/host-network"
SELECTOR = f"{NAME}=fabbench,{RUN}"
"""Selects everything of fabbench's, of any run."""

FOLDER = "/tmp/fabbench"  # noqa: S108 - in a container of one's own
"""Where keep.sh writes to, in the pod."""
BEAT = f"{FOLDER}-beat"
"""The file that fabbench makes every few seconds to keep the pod; the pod removes it."""
HOST_KEY = f"{FOLDER}/host_key.pub"
"""The pod's own host key, once it is Ready."""
KNOWN_HOSTS = f"{FOLDER}/known_hosts"
"""Where fabbench writes the host keys of all pods, for `SSH`."""
SSH = ("ssh", "-F", f"{FOLDER}/ssh_config")
"""The command by which mpirun reaches the other pods."""
KEYS = "/etc/fabbench/ssh"
PORT = 2222
LEASE_S = 90
"""After how many seconds without a sign of fabbench a pod ends."""
TTL_S = 20
"""How many seconds after its end a Job is removed. With `LEASE_S`, all is gone in less than two minutes."""

_RUN = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_ARGUMENT = re.compile(r"\$(?=[$(])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKey:
    """An ssh key for one run, in OpenSSH's formats. Without its private half where it is only shown."""

    public: str
    private: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the objects of a run are made from."""

    run: str
    """The run's id: lower-case letters, digits and dashes."""
    count: int
    """How many pods, each on a node of its own."""
    share: Share
    deadline_s: int
    """After how many seconds the Job ends whatever happens."""
    image: str = DEFAULT
    hostnames: tuple[str, ...] = ()
    """Labels ``kubernetes.io/hostname`` of the nodes; empty: any of `instance_type`."""
    instance_type: str = ""
    """Where no nodes are named; empty: any."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that nodes must have, besides."""
    agent: Literal["ssh", "exec"] = "ssh"
    """How mpirun reaches the other pods: by ssh, or through fabbench's own connection."""
    key: SshKey | None = None
    port: int = PORT
    lease_s: int = LEASE_S
    ttl_s: int = TTL_S
    host_network: bool = False
    """Whether pods use the nodes' own network: a variant, no pod as others are."""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """For the Job, besides fabbench's own, such as ``kueue.x-k8s.io/queue-name``."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """For the pods, besides those of the fabric's profile."""
    tolerations: tuple[str, ...] = ()
    """Keys of taints, besides `checks.TOLERATED`."""
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    request: str = ""
    """The command, for people."""

    @property
    def name(self) -> str:
        """The name of every object."""
        return f"fabbench-{self.run}"


def labels(asked: Asked) -> dict[str, str]:
    """Give the labels of everything of a run."""
    return {NAME: "fabbench", RUN: asked.run}


def literal(text: str) -> str:
    """Write text so that it comes through as an argument: Kubernetes replaces ``$(NAME)`` and ``$$``."""
    return _ARGUMENT.sub("$$", text)


def check_asked(asked: Asked, *, key: bool = True) -> None:
    """Raise RequestError for what the API would refuse. `key` is whether ssh needs one of fabbench's."""
    if not _RUN.fullmatch(asked.run):
        raise RequestError(
            f"{asked.run!r} cannot name objects of Kubernetes.",
            hint="At most 40 lower-case letters, digits and dashes.",
        )
    if asked.count < 1 or (asked.hostnames and len(set(asked.hostnames)) != asked.count):
        raise RequestError(
            f"{asked.count} pods do not go onto {len(set(asked.hostnames))} nodes, one on each.",
            hint="Name as many nodes as there are to be pods.",
        )
    if key and asked.agent == "ssh" and asked.key is None:
        raise RequestError("The pods' ssh has no key.", hint="Make one, or choose --mpi-agent exec.")


def meta(asked: Asked) -> Object:
    """Give the metadata of an object of a run."""
    found: Object = {"name": asked.name, "labels": labels(asked)}
    if asked.request:
        found["annotations"] = {REQUEST: asked.request}
    return found
