"""``fabbench watch --pod``: pods that somebody else started, by their labels."""

import json
from pathlib import Path

import pytest

from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL
from tests.support.kubernetes_runs import Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def test_pods_of_a_job_are_watched_by_their_nodes(client: Client) -> None:
    nodes = [node.name for node in client.cluster.nodes]
    for number, node in enumerate(nodes):
        container = {"name": "c", "image": NCCL, "command": ["sleep", "infinity"]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"rank-{number}", "labels": {"app": "job"}},
            "spec": {"nodeName": node, "containers": [container]},
        }
        client.kubectl("create", "-f", "-", given=pod)
        client.kubectl("wait", "--for=condition=Ready", "--timeout=120s", f"pod/rank-{number}")
    words = ("--on", "kubernetes", "--store", str(client.folder / "runs"), "--for", "2", "--json")
    done = client.call(client.argv("watch", "--pod", "app=job", *words))
    assert done.returncode == 4, done.stderr  # nothing moves
    document = json.loads(done.stdout)
    assert document["carriers"].keys() == {*nodes}
    assert all(each["seconds"] for each in document["carriers"].values())
    done = client.call(client.argv("watch", "--pod", "app=other", *words))
    assert (done.returncode, "No pod with app=other" in done.stderr) == (3, True), done.stderr
