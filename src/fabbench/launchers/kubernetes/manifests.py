"""The objects of a run on Kubernetes: a Job whose pods wait for programs, and what they need. Pure.

The Job is indexed: one unprivileged pod per node, with all devices. fabbench starts programs in the pods, which
exit soon after it does (pod_watchdog.sh). Nothing is restarted. A Job that has ended is removed with all it owns.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from fabbench.catalog.images import DEFAULT
from fabbench.catalog.instances import plain
from fabbench.catalog.kubernetes_resources import PodResources, mebibytes
from fabbench.launchers.kubernetes import LEASE_S, PORT
from fabbench.launchers.pod_options import Object, PodOptions
from fabbench.model.errors import RequestError

NAME = "app.kubernetes.io/name"
RUN = "fabbench/run"  # The label for the run's id. All of fabbench's objects have it and `NAME`.
ROLE = "fabbench/role"  # The label of pods: `WORKER` if they measure
WORKER = "worker"
REQUEST = "fabbench/request"  # The annotation for the command, for people who find the objects
HOST_NETWORK = "fabbench/host-network"
SELECTOR = f"{NAME}=fabbench,{RUN}"  # Selects all of fabbench's objects, of any run

FOLDER = "/tmp/fabbench"  # noqa: S108 - in the pod, where pod_watchdog.sh writes
HEARTBEAT_FILE = f"{FOLDER}-beat"  # Created every few seconds to keep the pod running; the pod removes it
HOST_KEY = f"{FOLDER}/host_key.pub"  # The pod's host key, once it is Ready
KNOWN_HOSTS = f"{FOLDER}/known_hosts"  # Where fabbench writes the host keys of all pods, for `SSH`
SSH = ("ssh", "-F", f"{FOLDER}/ssh_config")  # The command with which mpirun reaches the other pods
KEYS = "/etc/fabbench/ssh"
TTL_S = 20  # Seconds after its end until a Job is removed. With `LEASE_S`, all is gone in less than two minutes.

_RUN_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_ARGUMENT = re.compile(r"\$(?=[$(])")
_REFERENCE = re.compile(r"\$(?=\$|\([^\s()]+\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKey:
    """An ssh key for one run, in OpenSSH's formats. Without its private half if it is only displayed."""

    public: str
    private: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What the objects of a run are created from."""

    run: str  # The run's id: lowercase letters, digits and dashes
    count: int  # Number of pods, each on its own node
    resources: PodResources
    deadline_s: int  # Seconds after which the Job ends in any case
    image: str = DEFAULT
    hostnames: tuple[str, ...] = ()  # Labels ``kubernetes.io/hostname`` of the nodes; empty: any of `instance_type`
    instance_type: str = ""  # Used if no nodes are named; empty: any
    agent: Literal["ssh", "exec"] = "ssh"  # How mpirun reaches the other pods: by ssh, or through fabbench's connection
    key: SshKey | None = None
    port: int = PORT
    lease_s: int = LEASE_S
    ttl_s: int = TTL_S
    host_network: bool = False  # Whether pods use the nodes' network: a variant, not how pods usually run
    rdma: bool = True  # Whether RDMA may be measured, which locks memory
    claim: str = ""  # ResourceClaimTemplate of the user
    user: int | None = None  # The non-root user that pods run as; None: the image's
    options: PodOptions = field(default_factory=PodOptions)
    request: str = ""  # The command, for people
    independent: bool = False  # Whether the other pods keep running when one fails

    @property
    def name(self) -> str:
        """The name of all objects."""
        return f"fabbench-{self.run}"


def run_labels(spec: RunSpec) -> dict[str, str]:
    """Return the labels of all objects of a run."""
    return {NAME: "fabbench", RUN: spec.run}


def escape_argument(text: str) -> str:
    """Escape text for use as an argument: Kubernetes replaces ``$(NAME)`` and ``$$``."""
    return _ARGUMENT.sub("$$", text)


def escape_names(text: str) -> str:
    """Escape text for use as an argument, readably: ``$(a b)`` is not a reference and stays."""
    return _REFERENCE.sub("$$", text)


def check_spec(spec: RunSpec, *, key: bool = True) -> None:
    """Raise RequestError for what the API would reject. `key`: whether ssh needs a key of fabbench's."""
    if not _RUN_ID.fullmatch(spec.run):
        raise RequestError(
            f"{spec.run!r} is not a valid name for Kubernetes objects.",
            hint="Use at most 40 lowercase letters, digits and dashes.",
        )
    if spec.count < 1 or (spec.hostnames and len(set(spec.hostnames)) != spec.count):
        raise RequestError(
            f"{spec.count} pods need {spec.count} nodes, one each, but {len(set(spec.hostnames))} were given.",
            hint="List as many nodes as pods.",
        )
    if spec.user is not None and spec.agent == "ssh":
        raise RequestError(
            f"sshd needs root, but pods run as the user {spec.user}.",
            hint="Pass --mpi-agent exec to let mpirun reach the other pods without sshd.",
        )
    if key and spec.agent == "ssh" and spec.key is None:
        raise RequestError("The pods' ssh has no key.", hint="Generate one, or pass --mpi-agent exec.")


def object_metadata(spec: RunSpec) -> Object:
    """Return the metadata of an object of a run."""
    metadata: Object = {"name": spec.name, "labels": run_labels(spec)}
    if spec.request:
        metadata["annotations"] = {REQUEST: spec.request}
    return metadata


def owner_metadata(spec: RunSpec) -> Object:
    """Return the metadata of the object that creates the pods, with what the user adds."""
    metadata = object_metadata(spec)
    annotations = {**spec.options.annotations, **metadata.get("annotations", {})}
    metadata["labels"] = {**spec.options.labels, **metadata["labels"]}
    return {**metadata, "annotations": annotations} if annotations else metadata


CONTAINER = "fabbench"


def workload(spec: RunSpec) -> tuple[Object, ...]:
    """Return the objects of a run in order of creation; the first, the Job, owns the others. Raise RequestError."""
    check_spec(spec)
    secret = [_secret(spec)] if spec.agent == "ssh" else []
    return (_job(spec), *claim_template(spec, object_metadata(spec)), *secret, _service(spec))


def indexed_job(spec: RunSpec, script: str) -> tuple[Object, ...]:
    """Return a Job whose pods all run `script` with bash, and the Service that gives them names."""
    check_spec(spec)
    labels = {"job-name": spec.name}
    container = benchmark_container(spec, CONTAINER, ("/bin/bash", "-c", escape_names(script)), spec.port)
    container.pop("readinessProbe")
    pods = lean_template(template(spec, container), spec.options, labels)
    pods["spec"] = {"subdomain": spec.name, **pods["spec"]}
    job: Object = {
        "completionMode": "Indexed",
        "completions": spec.count,
        "parallelism": spec.count,
        "backoffLimit": 0,
        "activeDeadlineSeconds": spec.deadline_s,
        "template": pods,
    }
    service: Object = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
    return (
        *claim_template(spec, {"name": spec.name}),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": spec.name}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": lean_metadata(spec), "spec": job},
    )


def owned_by(objects: Sequence[Object], owner: Mapping[str, Any]) -> tuple[Object, ...]:
    """Add an owner, as returned by the API, to objects: they are deleted with it."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner.get("apiVersion") or "batch/v1",
        "kind": owner.get("kind") or "Job",
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return tuple({**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}} for each in objects)


def without_private_keys(objects: Sequence[Object]) -> tuple[Object, ...]:
    """Return objects without private keys, fit to be displayed."""
    return tuple(
        {**each, "stringData": {name: text for name, text in each["stringData"].items() if name != "key"}}
        if each["kind"] == "Secret"
        else each
        for each in objects
    )


def deadline(seconds: int) -> Object:
    """Return the patch of a Job's deadline: if pods cannot start, nothing else ends it soon after fabbench."""
    return {"spec": {"activeDeadlineSeconds": seconds}}


@cache
def watchdog_script() -> str:
    """Return the script that runs as process 1 of a pod."""
    return (files("fabbench.launchers.kubernetes") / "pod_watchdog.sh").read_text("utf-8")


def _job(spec: RunSpec) -> Object:
    ssh = spec.agent == "ssh"
    arguments = (str(spec.lease_s), spec.agent, str(spec.port), FOLDER, KEYS)
    command = ("/bin/sh", "-c", escape_argument(watchdog_script()), "fabbench", *arguments)
    container = benchmark_container(spec, CONTAINER, command, spec.port if ssh else 0)
    volumes: list[Object] = []
    if ssh:
        container["volumeMounts"].append({"name": "ssh", "mountPath": KEYS, "readOnly": True})
        volumes = [{"name": "ssh", "secret": {"secretName": spec.name, "defaultMode": 0o400}}]
    pods = template(spec, container, volumes=volumes)
    pods["spec"]["subdomain"] = spec.name
    # Kubernetes before 1.28 has no `PerIndex`, which keeps other pods running.
    backoff = {"backoffLimitPerIndex": 0, "backoffLimit": spec.count} if spec.independent else {"backoffLimit": 0}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owner_metadata(spec),
        "spec": {
            "completionMode": "Indexed",
            "completions": spec.count,
            "parallelism": spec.count,
            **backoff,
            "activeDeadlineSeconds": spec.deadline_s,
            "ttlSecondsAfterFinished": spec.ttl_s,
            "template": pods,
        },
    }


def _secret(spec: RunSpec) -> Object:
    key = spec.key or SshKey(public="")
    data = {"authorized_keys": f"restrict {key.public.strip()}\n", "key": key.private}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": object_metadata(spec),
        "immutable": True,
        "type": "Opaque",
        "stringData": {name: text for name, text in data.items() if text},
    }


def _service(spec: RunSpec) -> Object:
    service_spec: Object = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": run_labels(spec)}
    if spec.agent == "ssh":
        service_spec["ports"] = [{"name": "ssh", "port": spec.port}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": object_metadata(spec), "spec": service_spec}


_HOSTNAME = "kubernetes.io/hostname"


def template(spec: RunSpec, container: Object, *, volumes: Sequence[Object] = ()) -> Object:
    """Return the pod template for a container."""
    annotations = {**profile_annotations(spec.resources), **spec.options.annotations}
    pod_spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": pod_security(spec.user),
        "affinity": _affinity(spec),
        **spec.options.pod_spec(),
        "containers": [container],
        "volumes": [*volumes, *_volumes(spec)],
        **_sidecars_and_claims(spec),
    }
    if spec.host_network:
        pod_spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    meta: Object = {"labels": {**spec.options.labels, **_pod_labels(spec)}}
    if spec.host_network:
        meta["labels"][HOST_NETWORK] = "true"
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": pod_spec}


def profile_annotations(resources: PodResources) -> dict[str, str]:
    """Return the annotations that give pods access to a fabric."""
    profile = resources.profile
    if profile is None:
        return {}
    annotations = dict(profile.annotations)
    if profile.device_annotation is not None and resources.devices:
        key, each = profile.device_annotation
        annotations[key] = ",".join([each] * resources.devices)
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
            "volumeMounts": [{"name": each.name, "mountPath": each.path} for each in sidecar.mounts],
            "env": env_list(sidecar.env),
        }
        fields["initContainers"] = [container]
    if claims := _claims(spec):
        fields["resourceClaims"] = [{"name": key, "resourceClaimTemplateName": name} for key, name in claims.items()]
    return fields


def env_list(env: Mapping[str, str]) -> list[Object]:
    """Return environment variables as in a container spec."""
    return [{"name": key, "value": escape_argument(value)} for key, value in env.items()]


CLAIM = "fabric"  # The name of a pod's device claim


def _claims(spec: RunSpec) -> dict[str, str]:
    """Return the pod's claims, by name, and their templates."""
    profile = spec.resources.profile
    devices = {CLAIM: spec.name} if profile is not None and profile.device_class else {}
    return {**devices, **({"claim": spec.claim} if spec.claim else {})}


def claim_template(spec: RunSpec, metadata: Object) -> tuple[Object, ...]:
    """Return the ResourceClaimTemplate of pods that claim devices; nothing if they request them."""
    profile = spec.resources.profile
    if profile is None or not profile.device_class:
        return ()
    exactly = {"deviceClassName": profile.device_class, "allocationMode": "All"}
    return (
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": metadata,
            "spec": {"spec": {"devices": {"requests": [{"name": CLAIM, "exactly": exactly}]}}},
        },
    )


def lean_template(pods: Object, options: PodOptions, labels: Mapping[str, str]) -> Object:
    """Return a pod template with the namespace's defaults, not strict security. `labels` are the controller's."""
    left_out = {"enableServiceLinks", "terminationGracePeriodSeconds", "securityContext"}
    spec = {key: value for key, value in pods["spec"].items() if key not in left_out}
    spec["containers"] = [_lean_container(each) for each in spec.pop("containers")]
    if "affinity" in spec:
        term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": _HOSTNAME}
        anti_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {**spec["affinity"], "podAntiAffinity": anti_affinity}
    metadata = {"labels": dict(options.labels), "annotations": pods["metadata"].get("annotations")}
    kept = {key: value for key, value in metadata.items() if value}
    return {"metadata": kept, "spec": spec} if kept else {"spec": spec}


def lean_metadata(spec: RunSpec) -> Object:
    """Return the metadata of an object that users remove themselves."""
    fields = {"labels": dict(spec.options.labels), "annotations": dict(spec.options.annotations)}
    return {"name": spec.name, **{key: value for key, value in fields.items() if value}}


def _lean_container(container: Object) -> Object:
    left_out = {"imagePullPolicy", "ports", "securityContext", "command"}
    fields = {key: value for key, value in container.items() if key not in left_out}
    limits = container["resources"]["limits"]
    requests = {k: v for k, v in container["resources"]["requests"].items() if limits.get(k) != v}
    fields["resources"] = {**container["resources"], "requests": requests}
    if not requests:
        fields["resources"].pop("requests")
    added = container["securityContext"]["capabilities"].get("add", ())
    if kept := [each for each in added if each not in {*_SSHD_CAPABILITIES, *_LOW_PORT_CAPABILITIES}]:
        fields["securityContext"] = {"capabilities": {"add": kept}}
    if container["securityContext"]["privileged"]:
        fields["securityContext"] = {"privileged": True, **fields.get("securityContext", {})}
    return {**fields, "command": container["command"][:-1], "args": container["command"][-1:]}


def pod_security(user: int | None = None) -> Object:
    """Return the security context of pods: the runtime's seccomp profile, and the user."""
    context: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    return context if user is None else {**context, "runAsNonRoot": True, "runAsUser": user}


def container_security(capabilities: Sequence[str] = (), *, privileged: bool = False) -> Object:
    """Return the security context of a container: only these capabilities, unprivileged by default."""
    allowed: Object = {"drop": ["ALL"]}
    if capabilities:
        allowed["add"] = list(capabilities)
    return {"privileged": privileged, "allowPrivilegeEscalation": privileged, "capabilities": allowed}


_SSHD_CAPABILITIES = ("AUDIT_WRITE", "SETGID", "SETUID", "SYS_CHROOT")
"""What sshd needs as root: before a login it drops privileges, in an empty root. Without AUDIT_WRITE it exits
at a login if the kernel audits logins (github.com/containers/podman/issues/10164)."""
_LOW_PORT_CAPABILITIES = ("NET_BIND_SERVICE",)


def benchmark_container(spec: RunSpec, name: str, command: Sequence[str], port: int) -> Object:
    """Return the container that programs run in. `port` is its sshd's; 0: no sshd."""
    resources, profile = spec.resources, spec.resources.profile
    capabilities = {
        *(_SSHD_CAPABILITIES if port else ()),
        *(_LOW_PORT_CAPABILITIES if 0 < port < 1024 else ()),
        *(profile.capabilities if profile and spec.rdma else ()),
    }
    mounts = [{"name": each.name, "mountPath": each.path} for each in (profile.mounts if profile else ())]
    privileged = profile is not None and profile.privileged
    container: Object = {
        "name": name,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": {"requests": resources.requests(), "limits": resources.limits()},
        "securityContext": container_security(sorted(capabilities), privileged=privileged),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, *mounts],  # noqa: S108 - in a container
    }
    if profile and profile.env:
        container["env"] = env_list(profile.env)
    if claims := _claims(spec):
        container["resources"]["claims"] = [{"name": key} for key in claims]
    if port:
        container["ports"] = [{"name": "ssh", "containerPort": port}]
        container["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    return container


def _pod_labels(spec: RunSpec) -> dict[str, str]:
    return {**run_labels(spec), ROLE: WORKER}


def _affinity(spec: RunSpec) -> Object:
    term = {"labelSelector": {"matchLabels": _pod_labels(spec)}, "topologyKey": _HOSTNAME}
    affinity: Object = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    key, values = _HOSTNAME, list(spec.hostnames)
    if not values and spec.instance_type:
        key, name = "node.kubernetes.io/instance-type", plain(spec.instance_type)
        values = [name, f"ml.{name}"]
    if values:
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return affinity


def _volumes(spec: RunSpec) -> list[Object]:
    shm: Object = {"medium": "Memory"}
    if spec.resources.shm:
        shm["sizeLimit"] = mebibytes(spec.resources.shm)
    profile = spec.resources.profile
    mounts = (*profile.mounts, *(profile.sidecar.mounts if profile.sidecar else ())) if profile else ()
    volumes = {each.name: {"name": each.name, **each.source} for each in mounts}
    return [{"name": "shm", "emptyDir": shm}, *volumes.values()]
