"""``fabbench clean``: what is left in a cluster is found, and removed when it is wanted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_runs import Client


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def clean(client: Client, *more: str, status: int = 0) -> list[list[str]]:
    """Clean the namespace: what is listed, as words."""
    done = client.call([*client.argv("clean"), *more])
    assert done.returncode == status, (done.stdout, done.stderr)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.cluster
def test_where_nothing_is_left_there_is_nothing_to_do(client: Client) -> None:
    assert clean(client) == []
    assert clean(client, "--all-namespaces", "--yes") == []


@pytest.mark.cluster
def test_what_does_not_run_is_listed_and_removed_with_yes(client: Client) -> None:
    with client.nothing_left():
        for name, labels in (("fabbench-a", {"fabbench/run": "a"}), ("other", {})):
            about: dict[str, Any] = {
                "name": name,
                "labels": {"app.kubernetes.io/name": "fabbench", **labels},
            }
            container = {"name": "a", "image": "registry.example/none"}
            spec = {"containers": [container], "nodeSelector": {"no": "where"}}
            client.kubectl(
                "create",
                "-f",
                "-",
                given={"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec},
            )
        listed = clean(client, status=1)
        assert listed[0] == ["RUN", "NAMESPACE", "AGE", "RUNS", "REMOVE", "REQUEST"]
        assert [[row[0], row[1], *row[3:]] for row in listed[1:]] == [
            ["a", client.namespace, "no", "yes", "-"]
        ]
        assert "pod/fabbench-a" in client.kubectl("get", "pods", "-o", "name")
        clean(client, "--yes")
        assert client.kubectl("get", "pods", "-o", "name").split() == ["pod/other"]
        client.kubectl("delete", "pod", "other")


@pytest.mark.cluster
def test_a_killed_run_is_kept_while_it_may_run_and_removed_when_all_is(client: Client) -> None:
    with client.nothing_left():
        with client.midway() as run:
            run.process.kill()
            run.process.wait()
        assert [row[3:5] for row in clean(client, "--yes")] == [["RUNS", "REMOVE"], ["yes", "no"]]
        assert [row[4] for row in clean(client, "--yes", "--older-than", "1d")] == ["REMOVE", "no"]
        assert len(json.loads(client.kubectl("get", "pods", "-o", "json"))["items"]) == 2
        assert [row[4] for row in clean(client, "--yes", "--older-than", "1s")] == ["REMOVE", "yes"]
        assert processes.eventually(lambda: not client.pods(), 10)
