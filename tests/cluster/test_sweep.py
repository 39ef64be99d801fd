"""`fabbench sweep` on a real cluster.

Its pods are made once, and each test runs in some of them.
"""

import re
import signal
from pathlib import Path

import pytest

from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import Client
from tests.support.sweeps import stored

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = ("--image", NO_SSHD, "--bin-dir", "/opt/nccl-tests/build")
SWEEP = ("sweep", "nccl", "--no-efa", "--gpus", "1", "-b", "64K", "-e", "64K", "--partners", "1")
PATIENT = ("--timeout", "180")
SECOND = ("--seed", "1")
"""The pair in such an order that mpirun starts in the second pod."""


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def sweep(client: Client, *words: str) -> list[str]:
    return client.argv(
        *SWEEP, *PATIENT, *SECOND, *words, "--on", client.launcher, "--store", str(store(client))
    )


def store(client: Client) -> Path:
    return client.folder / "runs"


@pytest.mark.parametrize("launcher", ["kubernetes", "mpijob"])
def test_mpirun_starts_in_any_pod(
    client: Client, launcher: str, request: pytest.FixtureRequest
) -> None:
    client.launcher = launcher
    if launcher == "mpijob":
        request.getfixturevalue("mpijobs")
    with client.nothing_left():
        done = client.call(sweep(client, *IMAGE))
    # One pair shows nothing bad; its bandwidth is what the load of this machine lets it be.
    assert done.returncode in {0, 4}, done.stderr
    (test,) = stored(store(client))
    pods = list(client.the_run().hosts)
    assert (test["nodes"], test["outcome"]) == (pods[::-1], "ok"), test
    assert client.events().count("started container") == (2 if launcher == "kubernetes" else 3)


def test_groups_are_the_values_of_a_label_of_nodes(client: Client) -> None:
    """A label that nodes lack is named, with those of their topology; nothing is started then."""
    words = [*sweep(client, *IMAGE), "--groups"]
    done = client.call([*words, "label:topology.k8s.aws/network-node-layer-3"])
    assert done.returncode in {0, 4}, done.stderr
    document = client.the_run().sweep
    assert document is not None
    assert {*document.group_of.values()} == {"nn-3333"}
    done = client.call([*words, "label:example.com/rack"])
    assert done.returncode == 3
    assert re.search(
        r"example\.com/rack: (ip-10-77-0-1[12]\.ec2\.internal(, )?){2}", done.stderr
    ), done.stderr
    assert "topology.k8s.aws/network-node-layer-1" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_resumed(client: Client, number: signal.Signals) -> None:
    """Ctrl-C leaves nothing, and after kill -9 the pods end by themselves.

    The test that had not ended runs once there are pods again.
    """
    with client.nothing_left():
        hangs = client.cluster.standin(HANG_AT="64K")
        words = client.leased(sweep(client, *IMAGE))
        with client.nothing_left(), hangs, client.running(words) as run:
            run.until(lambda: client.text() and client.measures(), 150)
            run.process.send_signal(number)
            assert run.ends() in {130, -number}, run.err
        assert number == signal.SIGKILL or "fabbench run --resume" in run.err
        assert stored(store(client)) == []
        again = [*client.argv()[:3], "run", "--resume", "last", "--store", str(store(client))]
        done = client.call(again)
    assert done.returncode in {0, 4}, done.stderr
    (test,) = stored(store(client))
    assert test["outcome"] == "ok", test
