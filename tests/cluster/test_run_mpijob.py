"""`fabbench run --on mpijob`.

Kubeflow's own operator creates the pods on a real cluster, and nothing is left.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench.model.log import Outcome
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_MPI, NO_SSHD
from tests.support.kubernetes_runs import SIZES, Client, rules

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USER = ("--image", NO_SSHD, "--set", "run-as-user=1000")


@pytest.fixture
def client(mpijobs: Cluster, namespace: str, tmp_path: Path) -> Client:
    found = Client(mpijobs, namespace, tmp_path)
    found.launcher = "mpijob"
    return found


def worker(client: Client) -> dict[str, Any]:
    """The specification of a worker, as it is kept with the run."""
    job = next(
        yaml.safe_load_all((client.the_run().path / "rendered/mpijob.yaml").read_text("utf-8"))
    )
    found: dict[str, Any] = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    return found


def test_both_configurations_of_nccl(client: Client) -> None:
    """With the rights of the example, and no others. A run may take longer than the lease."""
    client.has_rights_of("rbac-mpijob.yaml")
    words = client.nccl("--image", NO_SSHD, "--fabric", "ofi-tcp", "--fabric", "tcp", fabric=())
    with client.nothing_left(), client.cluster.standin(ROW_S=1.5):
        done = client.call(client.leased(words))
    assert done.returncode == 0, done.stderr
    for configuration, transport in (("ofi-tcp", "libfabric-tcp"), ("tcp", "socket")):
        (log,) = client.logs(configuration)
        assert log.outcome is Outcome.OK
        assert (log.facts["ranks"], log.facts["hosts"], log.facts["transport"]) == (2, 2, transport)
        assert {point.size for point in log.points} == set(SIZES)


def test_pingpong_in_workers_on_the_nodes_network(client: Client) -> None:
    with client.nothing_left():
        words = ("--fabric", "tcp", "--repeat", "1", "--bin-dir", "/usr/bin")
        done = client.call(client.pingpong(*words, "--cluster-profile", "oke-host-network"))
    assert done.returncode == 0, done.stderr
    (log,) = client.logs("tcp")
    assert (log.outcome, {point.labels["side"] for point in log.points}) == (
        Outcome.OK,
        {"client", "server"},
    )
    assert worker(client)["hostNetwork"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--image", "localhost/none:1"), r"ErrImagePull: localhost/none:1: "),
        (("--image", NO_MPI), r"ip-.*: mpirun was not found"),
    ],
)
def test_what_does_not_start_is_explained(client: Client, more: tuple[str, ...], said: str) -> None:
    with client.nothing_left():
        done = client.call(client.nccl(*more))
    assert done.returncode == 3, done.stderr
    assert re.search(rf"^Error: .*{said}", done.stderr, re.MULTILINE), done.stderr


def test_a_quota_is_explained(client: Client) -> None:
    client.kubectl("create", "quota", "tight", "--hard=requests.nvidia.com/gpu=4")
    with client.nothing_left():
        done = client.call(client.nccl())
    assert "requests.nvidia.com/gpu=8" in done.stderr, done.stderr


def test_an_operator_that_does_not_run(client: Client) -> None:
    operator = client.cluster.operator
    assert operator is not None
    operator.stop()
    try:
        with client.nothing_left():
            done = client.call(client.nccl("--start-timeout", "10"))
    finally:
        operator.start()
    assert done.returncode == 3
    assert re.search(r"not picked up the MPIJob fabbench-\w+", done.stderr), done.stderr


def test_missing_rights_are_named(client: Client) -> None:
    given = [
        rule for rule in rules("rbac-mpijob.yaml", "Role") if "mpijobs" not in rule["resources"]
    ]
    everywhere = rules("rbac-mpijob.yaml", "ClusterRole")
    client.kubeconfig = client.cluster.service_account(client.namespace, given, everywhere)
    done = client.call(client.nccl())
    assert done.returncode == 3
    missing = "create mpijobs.kubeflow.org, get mpijobs.kubeflow.org"
    assert f"This user may not {missing}" in done.stderr, done.stderr
    assert "examples/rbac-mpijob.yaml" in done.stderr


def test_check_says_that_the_operator_is_there(client: Client) -> None:
    done = client.call(client.argv("check", "--on", "mpijob"))
    assert (done.returncode, "operator" in done.stdout) == (0, True), (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("level", "more", "admitted"),
    [("baseline", (), True), ("restricted", USER, True), ("restricted", (), False)],
)
def test_pod_security(client: Client, level: str, more: tuple[str, ...], admitted: bool) -> None:
    """With the rights of the example, and no others."""
    client.has_rights_of("rbac-mpijob.yaml")
    client.enforce(level)
    with client.nothing_left():
        done = client.call(client.nccl(*more))
    assert done.returncode == (0 if admitted else 3), done.stderr
    assert admitted == (
        not re.search(r"restricted:latest(.|\n)*--set run-as-user=1000", done.stderr)
    ), done.stderr
