"""`fabbench run` on a real cluster: pods on two nodes, what keeps them from starting, and rights."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import Cluster
from cluster.images import CPU, NCCL, NO_MPI, NO_SSHD
from fabbench.model import Outcome
from kube_runs import HANGS, SIZES, Laptop

pytestmark = pytest.mark.cluster

RBAC = Path(__file__).parent.parent / "examples" / "rbac.yaml"


@pytest.fixture
def laptop(cluster: Cluster, namespace: str, tmp_path: Path) -> Laptop:
    return Laptop(cluster, namespace, tmp_path)


def rules(kind: str) -> list[dict[str, Any]]:
    """What the example grants."""
    (role,) = (each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == kind)
    found: list[dict[str, Any]] = role["rules"]
    return found


def test_nccl_on_all_devices_of_two_nodes(laptop: Laptop) -> None:
    """With the rights of the example, and no others."""
    laptop.kubeconfig = laptop.cluster.service_account(laptop.namespace, rules("Role"), rules("ClusterRole"))
    with laptop.nothing_left():
        done = laptop.call(laptop.run_argv("nccl", *laptop.image, "--no-efa", "-e", "1K", "--repeat", "1"))
    assert done.returncode == 0, done.stderr
    nodes = ", ".join(host["name"] for host in laptop.the_run().document["hosts"])
    assert f"Target kubernetes ({nodes}; image {NCCL}): --on says so.\n" in done.stderr
    show = [sys.executable, "-m", "fabbench", "show", str(laptop.the_run().path)]
    assert f"\nImage: {NCCL}\n" in laptop.call(show).stdout
    (log,) = laptop.logs("tcp")
    assert log.outcome is Outcome.OK
    assert (log.facts["ranks"], log.facts["hosts"], log.facts["gpus_per_host"]) == (16, 2, 8)
    assert log.facts["transport"] == "socket"
    assert laptop.rows() == SIZES
    made = (laptop.the_run().path / "rendered/kubernetes.yaml").read_text("utf-8")
    assert [each["kind"] for each in yaml.safe_load_all(made)] == ["Job", "Secret", "Service"]
    assert "PRIVATE KEY" not in made


def test_two_arms_in_the_same_pods(laptop: Laptop) -> None:
    arms = ("--fabric", "ofi-tcp", "--fabric", "tcp")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl(*arms, fabric=()))
    assert done.returncode == 0, done.stderr
    outcomes = {arm: [log.outcome for log in laptop.logs(arm)] for arm in ("ofi-tcp", "tcp")}
    assert outcomes == {"ofi-tcp": [Outcome.OK], "tcp": [Outcome.OK]}
    logs = sorted(laptop.the_run().path.glob("exec/*/output.log"))
    pods = [set(re.findall(r" on (fabbench-\w+-\d) device", log.read_text("utf-8"))) for log in logs]
    assert pods[0] == pods[1]
    assert len(pods[0]) == 2
    assert laptop.events().count("started container") == 2
    networks = [laptop.logs(arm)[0].facts["transport"] for arm in ("ofi-tcp", "tcp")]
    assert networks[0] != networks[1] == "socket"


def test_pingpong_between_pods_with_a_gate_that_is_breached(laptop: Laptop) -> None:
    arms = ("--fabric", "tcp", "--fabric", "tcp;ofi_rxm", "--repeat", "1")
    with laptop.nothing_left():
        done = laptop.call(laptop.pingpong(*arms, "--gate", "latency@64<=0.001us"))
    assert (done.returncode, "Gate breached" in done.stderr) == (1, True), done.stderr
    for arm, endpoint in (("tcp", "msg"), ("tcp;ofi_rxm", "rdm")):
        (log,) = laptop.logs(arm)
        assert (log.outcome, log.facts["endpoint"]) == (Outcome.OK, endpoint)
        assert {point.labels["side"] for point in log.points} == {"client", "server"}


def test_a_fabric_that_is_not_there(laptop: Laptop) -> None:
    with laptop.nothing_left():
        done = laptop.call(laptop.pingpong("--efa"))
    assert (done.returncode, "efa cannot be measured on ip-" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--nodes", "3"), r"3 nodes are needed, 2 can be taken:\n  ip-.*p4d.24xlarge, 8 GPUs, 4 EFA"),
        (("--node", "nobody"), r"The cluster has no node nobody\.\nHint: It has ip-"),
        (("--instance-type", "p5.48xlarge"), r"2 nodes are needed, none can be taken:\n.*not p5.48xlarge"),
    ],
)
def test_more_than_there_is(laptop: Laptop, more: Sequence[str], said: str) -> None:
    done = laptop.call(laptop.nccl(*more))
    assert done.returncode == 3
    assert re.search(said, done.stderr), done.stderr
    assert laptop.pods() == []
    assert "fabbench" not in laptop.kubectl("get", "events", "-o", "name")


def test_a_node_that_somebody_uses(laptop: Laptop) -> None:
    one, two = (node.name for node in laptop.cluster.nodes)
    laptop.occupy(two)
    done = laptop.call(laptop.nccl("--node", one, "--node", two))
    assert done.returncode == 3
    assert f"  {two}: 8 of 8 GPUs in use" in done.stderr, done.stderr
    assert laptop.kubectl("get", "jobs", "-o", "name") == ""


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("localhost/none:1", "The image localhost/none:1 cannot be pulled: "),
        (NO_SSHD, "There is no sshd in this image."),
        (NO_MPI, "mpirun cannot be found on ip-"),
        (CPU, "all_reduce_perf cannot be found on ip-"),
    ],
)
def test_images_that_do_not_do(laptop: Laptop, image: str, said: str) -> None:
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl("--image", image))
    assert (done.returncode, said in done.stderr) == (3, True), done.stderr


def test_an_image_that_takes_too_long(laptop: Laptop) -> None:
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl("--image", HANGS, "--start-timeout", "12"))
    assert done.returncode == 3
    told = rf"^The image {HANGS} is being pulled on ip-(.|\n)*^Error: The pods were not ready after 12 s\. "
    assert re.search(told, done.stderr, re.MULTILINE), done.stderr


def test_a_quota(laptop: Laptop) -> None:
    laptop.kubectl("create", "quota", "tight", "--hard=requests.nvidia.com/gpu=4")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl())
    assert (done.returncode, "requests.nvidia.com/gpu=8" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pod_security_that_forbids_locked_memory(laptop: Laptop, level: str) -> None:
    laptop.cluster.kubectl(
        "label", "namespace", laptop.namespace, f"pod-security.kubernetes.io/enforce={level}"
    )
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl())
    assert (done.returncode, "IPC_LOCK" in done.stderr) == (3, True), done.stderr


def test_missing_rights_are_named(laptop: Laptop) -> None:
    given = [rule for rule in rules("Role") if "pods/exec" not in rule["resources"]]
    given[0] = {**given[0], "verbs": ["get", "list", "watch", "create", "patch"]}
    laptop.kubeconfig = laptop.cluster.service_account(laptop.namespace, given, rules("ClusterRole"))
    done = laptop.call(laptop.nccl())
    assert done.returncode == 3
    missing = "delete jobs.batch, create pods/exec, get pods/exec"
    assert f"This user may not {missing} in namespace {laptop.namespace}" in done.stderr, done.stderr
    assert laptop.kubectl("get", "jobs", "-o", "name") == ""


def test_mpijobs_where_there_is_no_operator(laptop: Laptop) -> None:
    laptop.launcher = "mpijob"
    done = laptop.call(laptop.nccl())
    assert (done.returncode, "kubectl apply --server-side -f https://" in done.stderr) == (3, True), (
        done.stderr
    )
    assert laptop.pods() == []
