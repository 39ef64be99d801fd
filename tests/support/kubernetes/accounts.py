"""Accounts that may do just what they were given, and their kubeconfig files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.support.kubernetes.cluster import Cluster

Rules = Sequence[Mapping[str, Any]]


def add(cluster: "Cluster", namespace: str, rules: Rules, cluster_rules: Rules, name: str) -> Path:
    """Make an account with a Role and a ClusterRole; gives the kubeconfig file."""
    parts = [_object("v1", "ServiceAccount", name, namespace)]
    parts += _granted("Role", rules, name, namespace)
    parts += _granted("ClusterRole", cluster_rules, f"{namespace}-{name}", namespace, account=name)
    for part in parts:
        cluster.api.apply(part)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = cluster.api.send(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request
    )
    token = made["status"]["token"]
    path = cluster.folder / f"{namespace}-{name}.kubeconfig"
    return cluster.credentials.kubeconfig(path, cluster.control.server, token, namespace)


class Audited(NamedTuple):
    """A request, as rules of a role name it."""

    verb: str
    group: str
    resource: str
    """With its subresource: pods/exec."""
    namespace: str
    status: int


def audited(log: str, user: str) -> Iterator[Audited]:
    """Read the requests of a user from an audit log."""
    for line in log.splitlines():
        event = json.loads(line)
        of = event.get("objectRef")
        if event["user"]["username"] == user and of and "responseStatus" in event:
            resource = "/".join(filter(None, (of["resource"], of.get("subresource"))))
            status = event["responseStatus"].get("code", 0)
            yield Audited(
                event["verb"], of.get("apiGroup", ""), resource, of.get("namespace", ""), status
            )


def _object(version: str, kind: str, name: str, namespace: str, **more: Any) -> dict[str, Any]:
    about = {"name": name, "labels": {"test": namespace}}
    if not kind.startswith("Cluster"):
        about["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": about, **more}


def _granted(
    kind: str, rules: Rules, name: str, namespace: str, account: str = ""
) -> list[dict[str, Any]]:
    """Return a role and its binding; nothing without rules."""
    if not rules:
        return []
    group = "rbac.authorization.k8s.io"
    who = [{"kind": "ServiceAccount", "name": account or name, "namespace": namespace}]
    what = {"apiGroup": group, "kind": kind, "name": name}
    return [
        _object(f"{group}/v1", kind, name, namespace, rules=[*rules]),
        _object(f"{group}/v1", f"{kind}Binding", name, namespace, roleRef=what, subjects=who),
    ]
