"""The objects of a run on Kubernetes: a Job whose pods wait for programs, and what they need. Pure.

The Job is indexed, with one pod for each node. Its pods do nothing by themselves: fabbench starts programs in
them, and they end soon after it is gone (keep.sh). Nothing is restarted, and the Job removes itself after its
end, and with it all that it owns.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from fabbench.pods.asked import FOLDER, KEYS, Asked, Object, SshKey, check_asked, labels, literal, meta
from fabbench.pods.template import measuring, template

CONTAINER = "fabbench"


def workload(asked: Asked) -> tuple[Object, ...]:
    """Give the objects of a run, in the order in which they are made; the first, the Job, owns the others.

    Raises RequestError for what the API would refuse.
    """
    check_asked(asked)
    secret = [_secret(asked)] if asked.agent == "ssh" else []
    return (_job(asked), *secret, _service(asked))


def owned_by(objects: Sequence[Object], owner: Mapping[str, Any]) -> tuple[Object, ...]:
    """Give objects an owner, as the API returned it when it was made: they go when it goes."""
    made = owner["metadata"]
    reference = {
        "apiVersion": owner.get("apiVersion") or "batch/v1",
        "kind": owner.get("kind") or "Job",
        "name": made["name"],
        "uid": made["uid"],
    }
    return tuple(
        {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}} for each in objects
    )


def without_private_keys(objects: Sequence[Object]) -> tuple[Object, ...]:
    """Give objects as they may be shown."""
    return tuple(
        {**each, "stringData": {name: text for name, text in each["stringData"].items() if name != "key"}}
        if each["kind"] == "Secret"
        else each
        for each in objects
    )


def deadline(seconds: int) -> Object:
    """Give the patch that moves a Job's deadline, counted from its start.

    A Job whose pods cannot start has nobody who counts beats: with a near deadline that fabbench keeps
    moving, it ends soon after fabbench too.
    """
    return {"spec": {"activeDeadlineSeconds": seconds}}


@cache
def keeper() -> str:
    """Give the script that is process 1 of a pod."""
    return (files("fabbench.pods") / "keep.sh").read_text("utf-8")


def _job(asked: Asked) -> Object:
    ssh = asked.agent == "ssh"
    arguments = (str(asked.lease_s), asked.agent, str(asked.port), FOLDER, KEYS)
    command = ("/bin/sh", "-c", literal(keeper()), "fabbench", *arguments)
    container = measuring(asked, CONTAINER, command, asked.port if ssh else 0)
    volumes: list[Object] = []
    if ssh:
        container["volumeMounts"].append({"name": "ssh", "mountPath": KEYS, "readOnly": True})
        volumes = [{"name": "ssh", "secret": {"secretName": asked.name, "defaultMode": 0o400}}]
    pods = template(asked, container, volumes=volumes)
    pods["spec"]["subdomain"] = asked.name
    about = meta(asked)
    about["labels"] |= asked.labels
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "completionMode": "Indexed",
            "completions": asked.count,
            "parallelism": asked.count,
            "backoffLimit": 0,
            "activeDeadlineSeconds": asked.deadline_s,
            "ttlSecondsAfterFinished": asked.ttl_s,
            "template": pods,
        },
    }


def _secret(asked: Asked) -> Object:
    key = asked.key or SshKey(public="")
    texts = {"authorized_keys": f"restrict {key.public.strip()}\n", "key": key.private}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta(asked),
        "immutable": True,
        "type": "Opaque",
        "stringData": {name: text for name, text in texts.items() if text},
    }


def _service(asked: Asked) -> Object:
    spec: Object = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(asked)}
    if asked.agent == "ssh":
        spec["ports"] = [{"name": "ssh", "port": asked.port}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(asked), "spec": spec}
