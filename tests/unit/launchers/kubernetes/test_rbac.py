"""The rights that the example grants are the rights that fabbench needs."""

import json
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from fabbench.launchers.kubernetes.checks import (
    Right,
    rights_for,
)
from tests.support.paths import EXAMPLES

OPTIONAL_RIGHTS = (
    Right(verb="list", resource="pods", namespaced=False),
    Right(verb="delete", resource="pods"),
    *(each for each in rights_for("claims") if each.only),
)
"""What no run needs: each allows seeing or doing more than a run does."""
NEEDED = {
    "rbac.yaml": rights_for("kubernetes"),
    "rbac-mpijob.yaml": rights_for("mpijob"),
    "rbac-optional.yaml": OPTIONAL_RIGHTS,
}
GROUP = "rbac.authorization.k8s.io/v1"
MODELS = {
    ("v1", "ServiceAccount"): "V1ServiceAccount",
    (GROUP, "Role"): "V1Role",
    (GROUP, "ClusterRole"): "V1ClusterRole",
    (GROUP, "RoleBinding"): "V1RoleBinding",
    (GROUP, "ClusterRoleBinding"): "V1ClusterRoleBinding",
}


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / file).read_text("utf-8")))


def granted(file: str, kind: str) -> list[tuple[str, str, str]]:
    return [
        (verb, group, resource)
        for document in documents(file)
        if document["kind"] == kind
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def needed(file: str, *, namespaced: bool) -> list[tuple[str, str, str]]:
    rights = NEEDED[file]
    return [
        (each.verb, each.group, each.full_resource)
        for each in rights
        if each.namespaced == namespaced
    ]


@pytest.mark.parametrize("file", NEEDED)
@pytest.mark.parametrize(("kind", "namespaced"), [("Role", True), ("ClusterRole", False)])
def test_the_example_grants_what_is_needed_and_no_more(
    file: str, kind: str, namespaced: bool
) -> None:
    assert sorted(granted(file, kind)) == sorted(needed(file, namespaced=namespaced))


@pytest.mark.parametrize("file", ["rbac.yaml", "rbac-mpijob.yaml"])
def test_runs_read_no_secrets_and_no_pods_of_others(file: str) -> None:
    given = {*granted(file, "Role"), *granted(file, "ClusterRole")}
    assert {verb for verb, _, resource in given if resource == "secrets"} <= {"create"}
    assert {resource for _, _, resource in granted(file, "ClusterRole")} == {"nodes"}


@pytest.mark.parametrize("file", NEEDED)
def test_nothing_is_granted_wholesale(file: str) -> None:
    # Anchors, aliases and quotes apart, a star stands nowhere in what the API server would read.
    assert "*" not in json.dumps([each for each in documents(file) if "rules" in each])


@pytest.mark.parametrize(
    "document", [each for file in NEEDED for each in documents(file)], ids=lambda each: each["kind"]
)
def test_the_client_library_reads_every_field(document: dict[str, Any]) -> None:
    # The public method wants an answer of a server, in another form from release to release.
    client: Any = ApiClient()
    model = client._ApiClient__deserialize(
        document, MODELS[document["apiVersion"], document["kind"]]
    )
    assert client.sanitize_for_serialization(model) == document


def names(parts: list[dict[str, Any]]) -> set[tuple[str, str, str | None]]:
    return {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in parts
    }


@pytest.mark.parametrize("file", NEEDED)
def test_the_bindings_name_roles_and_accounts_that_exist(file: str) -> None:
    parts = documents(file)
    there, known = names(parts), names([each for every in NEEDED for each in documents(every)])
    for binding in (each for each in parts if each["kind"].endswith("Binding")):
        home = (
            binding["metadata"].get("namespace") if binding["roleRef"]["kind"] == "Role" else None
        )
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"], home) in there
        accounts = [each for each in binding["subjects"] if each["kind"] == "ServiceAccount"]
        assert accounts
        assert all(
            ("ServiceAccount", each["name"], each["namespace"]) in known for each in accounts
        )
