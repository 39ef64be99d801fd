"""The launcher ``kubernetes``: pods on nodes of a cluster, with nothing installed there."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fabbench.check import Around
from fabbench.errors import MachineError, RequestError
from fabbench.hosts.probe import probe_arguments
from fabbench.inventory import folders, inventories, programs
from fabbench.kube.changing import by_image
from fabbench.kube.client import Cluster
from fabbench.kube.deep import Group, ask_pods
from fabbench.kube.found import nodes, require_rights, site_of, wish_of
from fabbench.kube.objects import RunObjects
from fabbench.kube.pipe import PodConnection
from fabbench.kube.relay import relayed
from fabbench.kube.shell import PodShell
from fabbench.launchers import Examined, Place, Progress
from fabbench.machines import Inventory, Needs, Where
from fabbench.pods.asked import HOST_KEY, KNOWN_HOSTS, LEASE_S, SSH, TTL_S, Asked, SshKey
from fabbench.pods.checks import check_nodes
from fabbench.pods.choice import Wish, check_choice, choose, fitting, wished
from fabbench.pods.ended import OOM_COUNTERS, explain_killed
from fabbench.pods.images import image_of
from fabbench.pods.nodes import Node
from fabbench.pods.share import Share, requested, share_of
from fabbench.pods.workload import CONTAINER, without_private_keys, workload
from fabbench.remote import keys
from fabbench.remote.examine import around as meet
from fabbench.remote.examine import ask
from fabbench.remote.host import RemoteHost
from fabbench.remote.place import RemotePlace, agents
from fabbench.remote.pool import each
from fabbench.remote.reach import all_well, probe
from fabbench.remote.session import Allocation
from fabbench.rendering.manifests import written
from fabbench.telling import tell

_FILE = "kubernetes.yaml"
_START_S = 300.0
_LEAST_LEASE_S = 10


class Kubernetes:
    """The launcher ``kubernetes``."""

    name = "kubernetes"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[Place]:
        """Choose nodes, start a pod on each, and look what they have. Leaving it leaves nothing there."""
        site = site_of(where)
        require_rights(site)
        seen = nodes(site)
        chosen = choose(seen, wish_of(where, needs))
        with by_image(where, lambda here: _pods(here, needs, site, seen, chosen)) as place:
            yield place

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Look at the cluster's nodes; with the setting ``deep``, also into a pod on each that is free."""
        settings = where.settings
        site = site_of(where)
        progress("looking at the nodes", 0, 1)
        seen = nodes(site)
        wish = wish_of(where, needs)
        shown = wished(seen, replace(wish, needs_gpu=False))
        checks = (*check_nodes(shown), check_choice(seen, wish, site.context))
        if not settings.get("deep"):
            return Examined(probes={}, around=Around(), checks=checks, nodes=shown)
        require_rights(site)
        progress("asking pods", 0, 1)
        arguments = probe_arguments(programs(needs), folders(where))
        probes, around, pods = ask_pods(
            site,
            _groups(where, wish, seen),
            lambda way: ask(PodShell(way, arguments), f"The pod {way.name}"),
            lambda told: meet(where, told, full=full),
            limit_s=float(settings.get("start_timeout") or _START_S),
            tell=tell,
        )
        return Examined(probes=probes, around=around, checks=(*checks, *pods), nodes=shown)


LAUNCHER = Kubernetes()


@contextlib.contextmanager
def _pods(
    where: Where, needs: Needs, site: Cluster, seen: Sequence[Node], chosen: Sequence[Node]
) -> Iterator[RemotePlace]:
    """Start a pod of one image on each of the chosen nodes, and look what they have."""
    settings = where.settings
    share = requested(share_of(chosen, gpus=needs.mpi), settings.get("pod_requests") or ())
    asked = _asked(where, share, chosen)
    with RunObjects(site, asked) as objects:
        limit_s = float(settings.get("start_timeout") or _START_S)
        pods = objects.wait(limit_s, seen, tell)
        by_name = _by_node(pods, site, objects)
        found = inventories(
            replace(where, gpus=_gpus(where, share)),
            needs,
            lambda here, variant: all_well(each(by_name, lambda pod: probe(pod, here, needs, variant))),
        )
        remotes = _remotes(by_name, settings)
        with contextlib.ExitStack() as stack:
            stack.enter_context(agents(remotes))
            stack.enter_context(_memory_watched(remotes, pods))
            mpi = needs.mpi and len(remotes) > 1
            agent = stack.enter_context(_mpi_agent(asked, found, remotes)) if mpi else ()
            allocation = Allocation(hosts=found.hosts, remotes=remotes, agent=agent)
            yield RemotePlace(replace(found, image=asked.image), allocation, {_FILE: _shown(asked)})


def _groups(where: Where, wish: Wish, seen: Sequence[Node]) -> tuple[Group, ...]:
    """Choose the nodes for pods that are only asked: those of a run of so many, or all that are free."""
    without = replace(where, settings={**where.settings, "mpi_agent": "exec"})
    chosen = (choose(seen, wish),) if wish.count else fitting(seen, replace(wish, needs_gpu=False))
    return tuple(
        Group(nodes=group, asked=_asked(without, share_of(group, gpus=True), group)) for group in chosen
    )


def _asked(where: Where, share: Share, chosen: Sequence[Node]) -> Asked:
    settings = where.settings
    ssh = settings.get("mpi_agent") != "exec"
    pair = keys.new_key() if ssh else None
    lease_s = _lease_s(settings)
    return Asked(
        run=secrets.token_hex(4),
        count=len(chosen),
        share=share,
        deadline_s=lease_s,
        lease_s=lease_s,
        ttl_s=min(TTL_S, lease_s),
        image=image_of(settings),
        hostnames=tuple(node.hostname for node in chosen),
        agent="ssh" if ssh else "exec",
        key=SshKey(public=pair.public, private=pair.private.decode()) if pair else None,
        host_network=bool(settings.get("host_network")),
    )


def _lease_s(settings: Mapping[str, Any]) -> int:
    """Give the seconds after which pods end without fabbench: the only option that a target may have."""
    options = dict(settings.get("options") or {})
    lease_s = options.pop("lease", LEASE_S)
    if options or not isinstance(lease_s, int) or lease_s < _LEAST_LEASE_S:
        raise RequestError(
            "The options of this target are none of the launcher kubernetes.",
            hint=f"It has one, lease: a whole number of seconds, {_LEAST_LEASE_S} or more.",
        )
    return lease_s


def _gpus(where: Where, share: Share) -> int | None:
    """Count the GPUs of a pod: those that it was given, unless the user says a number."""
    return share.gpus if where.gpus is None and share.gpus else where.gpus


def _shown(asked: Asked) -> str:
    """Write the objects of a run as they were made, less the private key."""
    return written(
        without_private_keys(workload(asked)), "What fabbench made, less the private key of the run."
    )


def _by_node(
    pods: Sequence[Mapping[str, Any]], site: Cluster, objects: RunObjects
) -> dict[str, PodConnection]:
    """Give a way into every pod, by the name of its node."""
    return {
        pod["spec"]["nodeName"]: PodConnection(site, pod["metadata"]["name"], CONTAINER, objects.why)
        for pod in pods
    }


def _remotes(by_name: Mapping[str, PodConnection], settings: Mapping[str, Any]) -> tuple[RemoteHost, ...]:
    token = secrets.token_hex(6)
    lost_after_s = float(settings.get("lost_after") or 60)
    return tuple(
        RemoteHost(name, connection, token=token, lost_after_s=lost_after_s)
        for name, connection in by_name.items()
    )


@contextlib.contextmanager
def _memory_watched(remotes: Sequence[RemoteHost], pods: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Say at the end in which pods programs were killed for their memory: nothing else does."""
    before = _oom_counters(remotes)
    yield
    after = _oom_counters(remotes)
    for pod in pods:
        node = pod["spec"]["nodeName"]
        if node in before and node in after and (why := explain_killed(pod, before[node], after[node])):
            tell(str(why))


def _oom_counters(remotes: Sequence[RemoteHost]) -> dict[str, str]:
    """Read the counters of the pods that answer."""
    found = each(
        {remote.name: remote for remote in remotes if remote.lost is None},
        lambda remote: "\n".join(remote.connection.run(("cat", *OOM_COUNTERS)).out),
    )
    return {name: text for name, text in found.items() if isinstance(text, str)}


@contextlib.contextmanager
def _mpi_agent(asked: Asked, found: Inventory, remotes: Sequence[RemoteHost]) -> Iterator[tuple[str, ...]]:
    """Say how mpirun reaches the other pods. For ssh, make the first one know their host keys."""
    own = zip(found.addresses(), remotes, strict=True)
    by_address = [(address, remote) for addresses, remote in own for address in addresses]
    if asked.agent == "exec":
        with relayed(remotes[0], dict(by_address)) as agent:
            yield agent
        return
    read = all_well(each({remote.name: remote for remote in remotes}, _host_key))
    lines = [f"[{address}]:{asked.port} {read[remote.name]}\n" for address, remote in by_address]
    remotes[0].run("put", KNOWN_HOSTS, stdin="".join(lines).encode())
    yield SSH


def _host_key(remote: RemoteHost) -> str:
    """Read the public host key of a pod's sshd: its type and base64."""
    done = remote.connection.run(("cat", HOST_KEY))
    words = " ".join(done.out).split()
    if done.status or len(words) < 2:
        raise MachineError(f"The pod on {remote.name} has no host key: its sshd did not start.")
    return " ".join(words[:2])
