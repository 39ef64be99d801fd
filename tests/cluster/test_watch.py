"""``fabbench watch --pod``: pods that somebody else started, by their labels."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL
from tests.support.kubernetes_runs import Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def start(client: Client, name: str, app: str, **spec: Any) -> None:
    """Start a pod, and wait until it runs."""
    container = {"name": "c", "image": NCCL, "command": ["sleep", "infinity"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }
    client.kubectl("create", "-f", "-", given=pod)
    client.kubectl("wait", "--for=condition=Ready", "--timeout=120s", f"pod/{name}")


def watch(client: Client, app: str, *more: str) -> list[str]:
    words = ("--on", "kubernetes", "--store", str(client.folder / "runs"), "--json", *more)
    return client.argv("watch", "--pod", f"app={app}", *words)


def watched(client: Client, app: str) -> set[str]:
    """Watch pods in which nothing moves; return what they are called."""
    with client.nothing_left():
        done = client.call(watch(client, app, "--for", "2"))
    assert done.returncode == 4, done.stderr
    carriers = json.loads(done.stdout)["carriers"]
    assert all(each["seconds"] for each in carriers.values())
    return {*carriers}


def test_pods_of_a_job_are_watched_and_nics_count_once(client: Client) -> None:
    """The pods of a node have interfaces of their own, or those of the node."""
    first, second = (node.name for node in client.cluster.nodes[:2])
    for name, node in (("a", first), ("b", second), ("c", first)):
        start(client, name, "own", nodeName=node)
    for name in ("d", "e"):
        start(client, name, "nodes", nodeName=first, hostNetwork=True)
    assert watched(client, "own") == {f"{first}/a", f"{second}/b", f"{first}/c"}
    (name,) = watched(client, "nodes")
    assert name in {f"{first}/d", f"{first}/e"}
    done = client.call(watch(client, "other", "--for", "2"))
    assert (done.returncode, "No pod with app=other" in done.stderr) == (3, True), done.stderr


def test_pods_that_start_later_are_waited_for(client: Client) -> None:
    words = watch(client, "late", "--wait", "200")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=client.folder
    ) as waiting:
        assert waiting.stderr
        assert any("0 of 0" in line for line in waiting.stderr)  # until it says so
        start(client, "a", "late", nodeName=client.cluster.nodes[0].name)
        assert processes.eventually(lambda: client.runs_somewhere("sh -s "), 120)
        waiting.send_signal(signal.SIGINT)  # Nothing moves: it would wait for that, too
        _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 4, err
