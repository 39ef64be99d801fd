"""``fabbench check --on kubernetes``.

The nodes, what the cluster says of them, and what pods on them say.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def check(client: Client, *more: str, status: int = 0) -> dict[str, Any]:
    """Check the cluster: JSON, with the checks by name and host."""
    done = client.call(client.argv("check", "--on", "kubernetes", "--format", "json", *more))
    assert done.returncode == status, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    found["by"] = {(each["check"], each["host"]): each for each in found["checks"]}
    return found


def test_the_nodes_stand_before_their_checks(client: Client) -> None:
    with client.nothing_left():
        done = client.call(client.argv("check", "--on", "kubernetes", "--format", "markdown"))
    assert done.returncode == 0, done.stderr
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in done.stdout.splitlines()
        if "|" in line
    ]
    assert rows[0] == ["NAME", "INSTANCE-TYPE", "GPU", "EFA", "ZONE", "LAYER", "HEALTH"]
    for node, row in zip(client.cluster.nodes, rows[2:], strict=False):  # below the rule
        assert row == [node.name, "p4d.24xlarge", "8/8", "4/4", "us-east-1a", "nn-3333", "ok"]
    assert "nodes for a run" in done.stdout


def test_one_node_of_them_and_what_a_run_would_take(client: Client) -> None:
    one, two = (node.name for node in client.cluster.nodes)
    found = check(client, "--node", one, "--nodes", "1")
    assert [node["name"] for node in found["nodes"]] == [one]
    assert found["nodes"][0]["fabric"] == {
        "resource": "vpc.amazonaws.com/efa",
        "allocatable": 4,
        "free": 4,
    }
    found = check(
        client,
        "--instance-type",
        "ml.p4d.24xlarge",
        "--selector",
        "kubernetes.io/os in (linux),!pool",
    )
    assert [node["name"] for node in found["nodes"]] == [one, two]
    assert found["by"]["nodes for a run", "tests"]["seen"] == f"{one}, {two}; they share nn-3333."
    failed = check(client, "--nodes", "3", status=3)["by"]["nodes for a run", "tests"]
    assert failed["status"] == "fail"
    assert failed["seen"].startswith("3 nodes are needed, 2 available:")


def test_the_cluster_evaluates_selectors(client: Client) -> None:
    done = client.call(
        client.argv("check", "--on", "kubernetes", "--selector", "kubernetes.io/os notin (linux)")
    )
    assert "kubernetes.io/os notin (linux)" in done.stdout
    done = client.call(client.argv("check", "--on", "kubernetes", "--selector", "a in b"))
    assert done.returncode == 2
    assert "'a in b' is not a valid label selector" in done.stderr


def test_a_cordoned_node_fails_and_is_shown(client: Client) -> None:
    node = client.cluster.nodes[0]
    node.cordon()
    found = check(client, status=3)
    assert found["by"]["ready", node.name]["seen"] == "Ready, and cordoned."
    assert [each["health"] for each in found["nodes"]] == ["cordoned", "ok"]


def test_deep_asks_a_pod_on_every_free_node_and_removes_it(client: Client) -> None:
    with client.nothing_left():
        found = check(client, "--deep", "--image", NO_SSHD, "--benchmark", "pingpong", status=0)
    for node in client.cluster.nodes:
        assert found["by"]["pod", node.name]["status"] == "pass"
        assert found["by"]["libfabric", node.name]["status"] == "pass"
        assert found["by"]["programs", node.name]["status"] == "pass"
    one, two = (node.name for node in client.cluster.nodes)
    assert found["by"]["connections", one]["seen"] == f"Reached {two}."
    assert found["by"]["connections", two]["seen"] == f"Reached {one}."


def test_deep_says_why_a_pod_does_not_start(client: Client) -> None:
    with client.nothing_left():
        found = check(client, "--deep", "--nodes", "2", "--image", "localhost/none:1", status=3)
    pods = [found["by"]["pod", node.name] for node in client.cluster.nodes]
    assert {(pod["status"], "localhost/none:1" in pod["seen"]) for pod in pods} == {("fail", True)}
