"""`fabbench accept` on a real cluster: pods are made once, and each rung runs in them."""

import json
from pathlib import Path

import pytest

from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_two_pods(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    client = Client(cluster, namespace, tmp_path)
    own = (
        "--image",
        NO_SSHD,
        "--bin-dir",
        "/opt/nccl-tests/build",
        "--fabric",
        "tcp",
        "--gpus",
        "1",
    )
    words = ("--nodes", "2", "--tolerance", "80%", "--json", "--store", str(tmp_path / "runs"))
    with client.nothing_left():
        done = client.call(client.argv("accept", "--on", "kubernetes", *own, *words))
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (4, "incomplete"), (found, done.stderr)
    states = {each["name"]: each["state"] for each in found["rungs"]}
    assert (states["pairs"], states["all:all_reduce"]) == ("passed", "passed"), (
        states,
        found["untested"],
    )
    assert client.events().count("started container") == 4  # two were checked
