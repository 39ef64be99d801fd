"""Pods that measure: one on each node, with its devices, and without privilege. Pure."""

from collections.abc import Sequence

from fabbench.instances import plain
from fabbench.pods.asked import HOST_NETWORK, ROLE, WORKER, Asked, Object, labels, literal
from fabbench.pods.checks import TOLERATED
from fabbench.pods.profiles import Mount
from fabbench.pods.quantity import mebibytes

_HOSTNAME = "kubernetes.io/hostname"


def template(asked: Asked, container: Object, *, volumes: Sequence[Object] = ()) -> Object:
    """Give the template of the pods around their container."""
    profile = asked.share.profile
    mounts = profile.mounts if profile else ()
    annotations = {**(profile.annotations if profile else {}), **asked.annotations}
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "affinity": _affinity(asked),
        "tolerations": _tolerations(asked),
        "containers": [container],
        "volumes": [*volumes, *_volumes(asked, mounts)],
    }
    if asked.selector:
        spec["nodeSelector"] = dict(asked.selector)
    if asked.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if asked.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in asked.pull_secrets]
    if asked.runtime_class:
        spec["runtimeClassName"] = asked.runtime_class
    meta: Object = {"labels": _labels(asked)}
    if asked.host_network:
        meta["labels"][HOST_NETWORK] = "true"
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": spec}


def measuring(asked: Asked, name: str, command: Sequence[str], port: int) -> Object:
    """Give the container that programs run in. `port` is its sshd's; 0: it has none."""
    share, profile = asked.share, asked.share.profile
    security: Object = {"privileged": False, "allowPrivilegeEscalation": False}
    if profile:
        security["capabilities"] = {"add": list(profile.capabilities)}
    env = {**(profile.env if profile else {}), **asked.env}
    mounts = [{"name": each.name, "mountPath": each.path} for each in (profile.mounts if profile else ())]
    container: Object = {
        "name": name,
        "image": asked.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": {"requests": share.requests(), "limits": share.limits()},
        "securityContext": security,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, *mounts],  # noqa: S108 - of a container
    }
    if env:
        container["env"] = [{"name": key, "value": literal(value)} for key, value in env.items()]
    if port:
        container["ports"] = [{"name": "ssh", "containerPort": port}]
        container["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    return container


def _labels(asked: Asked) -> dict[str, str]:
    return {**labels(asked), ROLE: WORKER}


def _affinity(asked: Asked) -> Object:
    alone = {"labelSelector": {"matchLabels": _labels(asked)}, "topologyKey": _HOSTNAME}
    affinity: Object = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}}
    key, values = _HOSTNAME, list(asked.hostnames)
    if not values and asked.instance_type:
        key, name = "node.kubernetes.io/instance-type", plain(asked.instance_type)
        values = [name, f"ml.{name}"]
    if values:
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity["nodeAffinity"] = required
    return affinity


def _tolerations(asked: Asked) -> list[Object]:
    keys = dict.fromkeys((*TOLERATED, *asked.tolerations))
    return [{"key": key, "operator": "Exists"} for key in keys]


def _volumes(asked: Asked, mounts: Sequence[Mount]) -> list[Object]:
    shm: Object = {"medium": "Memory"}
    if asked.share.shm:
        shm["sizeLimit"] = mebibytes(asked.share.shm)
    return [{"name": "shm", "emptyDir": shm}, *({"name": each.name, **each.source} for each in mounts)]
