"""The objects of a run on Kubernetes, and what pods have in any case. Pure.

The Job is indexed: one unprivileged pod per node, with all devices, in which fabbench starts
programs. It exits soon after fabbench does (pod_watchdog.sh). Nothing is restarted. A Job that has
ended is removed with all it owns.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from fabbench.catalog.images import DEFAULT
from fabbench.catalog.kubernetes_resources import PodResources, mebibytes
from fabbench.launchers.kubernetes import LEASE_S, PORT
from fabbench.launchers.pod_options import Object, PodOptions
from fabbench.model.errors import RequestError

NAME = "app.kubernetes.io/name"
RUN = "fabbench/run"  # The label for the run's id. All of fabbench's objects have it and `NAME`.
ROLE = "fabbench/role"  # The label of pods: `WORKER` if they measure
WORKER = "worker"
INDEX = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")
"""Labels that number pods."""
SELECTOR = f"{NAME}=fabbench,{RUN}"  # Selects all of fabbench's objects, of any run

CONTAINER = "fabbench"
HEARTBEAT_FILE = "/tmp/fabbench-beat"  # noqa: S108 - in the pod, which removes it; created every few seconds
# Seconds after its end until a Job is removed. With `LEASE_S`, all is gone in less than two
# minutes.
TTL_S = 20

_ARGUMENT = re.compile(r"\$(?=[$(])")
_REFERENCE = re.compile(r"\$(?=\$|\([^\s()]+\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What the objects of a run are created from."""

    run: str  # The run's id: lowercase letters, digits and dashes
    count: int  # Number of pods, each on its own node
    resources: PodResources
    deadline_s: int  # Seconds after which the Job ends in any case
    image: str = DEFAULT
    hostnames: tuple[str, ...] = ()
    """Labels ``kubernetes.io/hostname`` of the nodes; empty: any of `instance_type`."""
    instance_type: str = ""  # The label of nodes, if none are named; empty: any
    arch: str = ""  # The nodes' architecture; empty: unknown
    port: int = PORT  # Of the sshd in pods that run without fabbench
    lease_s: int = LEASE_S
    host_network: bool = False
    """Whether pods use the nodes' network: a variant, not how pods usually run."""
    rdma: bool = True  # Whether RDMA may be measured, which locks memory
    claim: str = ""  # ResourceClaimTemplate of the user
    user: int | None = None  # The non-root user that pods run as; None: the image's
    options: PodOptions = field(default_factory=PodOptions)
    independent: bool = False  # Whether the other pods keep running when one fails

    @property
    def name(self) -> str:
        """The name of all objects."""
        return f"fabbench-{self.run}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects."""
        return {NAME: "fabbench", RUN: self.run}

    @property
    def ttl_s(self) -> int:
        """Seconds after its end until the Job is removed."""
        return min(TTL_S, self.lease_s)


def escape_argument(text: str) -> str:
    """Escape text for use as an argument: Kubernetes replaces ``$(NAME)`` and ``$$``."""
    return _ARGUMENT.sub("$$", text)


def escape_names(text: str) -> str:
    """Escape text for use as an argument, readably: ``$(a b)`` is not a reference and stays."""
    return _REFERENCE.sub("$$", text)


def workload(spec: RunSpec) -> tuple[Object, ...]:
    """Return the objects of a run in order of creation; the first, the Job, owns the others.

    Raise RequestError.
    """
    # Kubernetes before 1.28 has no `PerIndex`, which keeps other pods running.
    backoff = (
        {"backoffLimitPerIndex": 0, "backoffLimit": spec.count}
        if spec.independent
        else {"backoffLimit": 0}
    )
    job = {"ttlSecondsAfterFinished": spec.ttl_s, **_indexed(spec, backoff, waiting(spec))}
    return (
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": run_metadata(spec), "spec": job},
        *claim_template(spec, {"name": spec.name, "labels": spec.labels}),
    )


def indexed_job(spec: RunSpec, script: str) -> tuple[Object, ...]:
    """Return a Job whose pods all run `script` with bash, and the Service that gives them names."""
    labels = {"job-name": spec.name}
    pods = template(
        spec, benchmark_container(spec, ("/bin/bash", "-c", escape_names(script))), labels
    )
    pods["spec"] = {"subdomain": spec.name, **pods["spec"]}
    job = _indexed(spec, {"backoffLimit": 0}, pods)
    service: Object = {"clusterIP": "None", "selector": labels}
    return (
        *claim_template(spec, {"name": spec.name}),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": spec.name}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": user_metadata(spec), "spec": job},
    )


def _indexed(spec: RunSpec, backoff: Object, pods: Object) -> Object:
    """Return the spec of an Indexed Job that starts each of its pods once.

    `backoff` says what happens when one fails. Raise RequestError if not each has its own node.
    """
    if spec.hostnames and len(set(spec.hostnames)) != spec.count:
        given = len(set(spec.hostnames))
        raise RequestError(
            f"{spec.count} pods need {spec.count} nodes, one each, but {given} were given.",
            hint="List as many nodes as pods.",
        )
    numbers = {"completionMode": "Indexed", "completions": spec.count, "parallelism": spec.count}
    pods = {**pods, "spec": {"restartPolicy": "Never", **pods["spec"]}}
    return {**numbers, **backoff, "activeDeadlineSeconds": spec.deadline_s, "template": pods}


def owned_by(objects: Sequence[Object], owner: Object) -> tuple[Object, ...]:
    """Add an owner, as returned by the API, to objects: they are deleted with it."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return tuple(
        {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}}
        for each in objects
    )


def user_metadata(spec: RunSpec) -> Object:
    """Return the metadata of the object that creates the pods, with what the user adds."""
    return {
        "name": spec.name,
        **spec.options.metadata(spec.options.annotations).get("metadata", {}),
    }


def run_metadata(spec: RunSpec) -> Object:
    """Return `user_metadata` with the labels by which a run's objects are found again."""
    metadata = user_metadata(spec)
    metadata["labels"] = {**metadata.get("labels", {}), **spec.labels}
    return metadata


@cache
def watchdog_script() -> str:
    """Return the script that runs as process 1 of a pod."""
    return (files("fabbench.launchers.kubernetes") / "pod_watchdog.sh").read_text("utf-8")


def watchdog(spec: RunSpec) -> tuple[str, ...]:
    """Return the command with which a pod ends when fabbench does."""
    return (
        "/bin/sh",
        "-c",
        escape_argument(watchdog_script()),
        "fabbench",
        HEARTBEAT_FILE,
        str(spec.lease_s),
    )


def waiting(spec: RunSpec) -> Object:
    """Return the template of pods in which fabbench starts programs."""
    container = benchmark_container(spec, watchdog(spec))
    return supervised(spec, template(spec, container, {**spec.labels, ROLE: WORKER}), WORKER)


def supervised(spec: RunSpec, pods: Object, role: str) -> Object:
    """Return a template for pods that fabbench starts itself: strict policies admit them.

    They have a run's labels, and the `role` that tells workers from others.
    """
    (container,) = pods["spec"]["containers"]
    security = container.get("securityContext", {})
    privileged = security.get("privileged", False)
    container = {
        **container,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "privileged": privileged,
            "allowPrivilegeEscalation": privileged,
            "capabilities": {"drop": ["ALL"], **security.get("capabilities", {})},
        },
    }
    user = {} if spec.user is None else {"runAsNonRoot": True, "runAsUser": spec.user}
    strict = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **user},
    }
    metadata = pods.get("metadata", {})
    labels = {**metadata.get("labels", {}), **spec.labels, ROLE: role}
    return {
        "metadata": {**metadata, "labels": labels},
        "spec": {**pods["spec"], **strict, "containers": [container]},
    }


def template(spec: RunSpec, container: Object, labels: Mapping[str, str]) -> Object:
    """Return the template of pods with these `labels`, each on a node of its own."""
    pod_spec: Object = {
        "affinity": _affinity(spec, labels),
        **spec.options.pod_spec(),
        "volumes": _volumes(spec),
        **_sidecars_and_claims(spec),
    }
    if spec.instance_type and not spec.hostnames:
        selector = {  # the user's own labels win
            "node.kubernetes.io/instance-type": spec.instance_type,
            **pod_spec.get("nodeSelector", {}),
        }
        pod_spec["nodeSelector"] = selector
    if spec.host_network:
        pod_spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    pod_spec["containers"] = [container]
    annotations = {**profile_annotations(spec.resources), **spec.options.annotations}
    return {**spec.options.metadata(annotations), "spec": pod_spec}


def profile_annotations(resources: PodResources) -> dict[str, str]:
    """Return the annotations that give pods access to a fabric."""
    profile = resources.profile
    if profile is None:
        return {}
    annotations = dict(profile.annotations)
    if profile.device_annotation and resources.devices:
        key, value_per_device = profile.device_annotation
        annotations[key] = ",".join([value_per_device] * resources.devices)
    return annotations


def _sidecars_and_claims(spec: RunSpec) -> Object:
    """Return what pods have besides their container: the platform's sidecar, device claims."""
    profile = spec.resources.profile
    fields: Object = {}
    if profile is not None and (sidecar := profile.sidecar) is not None:
        # It starts before the benchmark's container and ends with it (Kubernetes 1.29).
        container = {
            "name": sidecar.name,
            "image": sidecar.image,
            "restartPolicy": "Always",
            "command": ["/bin/sh", "-c", escape_names(sidecar.script)],
            "securityContext": {"capabilities": {"add": list(sidecar.capabilities)}},
            "volumeMounts": [
                {"name": each.name, "mountPath": each.path} for each in sidecar.mounts
            ],
            "env": env_list(sidecar.env),
        }
        fields["initContainers"] = [container]
    if claims := _claims(spec):
        fields["resourceClaims"] = [
            {"name": key, "resourceClaimTemplateName": name} for key, name in claims.items()
        ]
    return fields


def env_list(env: Mapping[str, str]) -> list[Object]:
    """Return environment variables as in a container spec."""
    escaped = {name: escape_argument(value) for name, value in env.items()}
    return [{"name": name, "value": value} for name, value in escaped.items()]


CLAIM = "fabric"  # The name of a pod's device claim


def _claims(spec: RunSpec) -> dict[str, str]:
    """Return the pod's device claims: name in the pod → name of the ResourceClaimTemplate."""
    profile = spec.resources.profile
    claims: dict[str, str] = {}
    if profile is not None and profile.device_class:
        claims[CLAIM] = spec.name  # of the run's own template, see `claim_template`
    if spec.claim:
        claims["claim"] = spec.claim  # of the user's
    return claims


def claim_template(spec: RunSpec, metadata: Object) -> tuple[Object, ...]:
    """Return the ResourceClaimTemplate of pods that claim devices; nothing if they request them."""
    profile = spec.resources.profile
    if profile is None or not profile.device_class:
        return ()
    request = {
        "name": CLAIM,
        "exactly": {"deviceClassName": profile.device_class, "allocationMode": "All"},
    }
    claim: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    return (claim,)


def benchmark_container(
    spec: RunSpec, command: Sequence[str], name: str = CONTAINER, **more: Any
) -> Object:
    """Return the container that programs run in; `more` are other fields."""
    profile = spec.resources.profile
    mounts = profile.mounts if profile else ()
    container: Object = {
        "name": name,
        "image": spec.image,
        "resources": _container_resources(spec),
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - in a container
            *({"name": each.name, "mountPath": each.path} for each in mounts),
        ],
    }
    if profile and profile.env:
        container["env"] = env_list(profile.env)
    container |= more
    if security := _security_context(spec):
        container["securityContext"] = security
    *program, last = command  # After `bash -c` it is a script, which is readable apart as `args`
    container["command"] = program
    container["args"] = [last]
    return container


def _container_resources(spec: RunSpec) -> Object:
    """Return what a container requests; a request that equals its limit is left out."""
    limits = spec.resources.limits()
    requests = spec.resources.requests()
    requests = {name: amount for name, amount in requests.items() if name not in limits}
    resources: Object = {"requests": requests} if requests else {}
    resources["limits"] = limits
    if claims := _claims(spec):
        resources["claims"] = [{"name": name} for name in claims]
    return resources


def _security_context(spec: RunSpec) -> Object:
    """Return what a container needs to use the profile's fabric."""
    profile = spec.resources.profile
    security: Object = {}
    if profile and profile.privileged:
        security["privileged"] = True
    if profile and spec.rdma and profile.capabilities:  # RDMA locks memory
        security["capabilities"] = {"add": sorted(profile.capabilities)}
    return security


_HOSTNAME = "kubernetes.io/hostname"


def _affinity(spec: RunSpec, labels: Mapping[str, str]) -> Object:
    """Keep pods with these labels on different nodes, and on the named ones if any."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": _HOSTNAME}
    affinity: Object = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    if spec.hostnames:
        named = {"key": _HOSTNAME, "operator": "In", "values": [*spec.hostnames]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [named]}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return affinity


def _volumes(spec: RunSpec) -> list[Object]:
    """Return /dev/shm, limited if its size is known, and what the profile and its sidecar mount."""
    shm: Object = {"medium": "Memory"}
    if spec.resources.shm:
        shm["sizeLimit"] = mebibytes(spec.resources.shm)
    profile = spec.resources.profile
    mounts = list(profile.mounts) if profile else []
    if profile and profile.sidecar:
        mounts += profile.sidecar.mounts
    volumes = {each.name: {"name": each.name, **each.source} for each in mounts}
    return [{"name": "shm", "emptyDir": shm}, *volumes.values()]
