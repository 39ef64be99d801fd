"""What runs may do in a cluster is what the examples grant, and what Pod Security admits."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import SIZES, Client, rules

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USER = ("--image", NO_SSHD, "--set", "run-as-user=1000")


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    """Somebody with the rights of the example, and no others."""
    found = Client(cluster, namespace, tmp_path)
    found.has_rights_of("rbac.yaml")
    return found


def granted(kind: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rules("rbac.yaml", kind)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_runs_use_every_right_of_the_example_and_lack_none(client: Client) -> None:
    """By what the API server has noted.

    From the start to the end of a run that loses a pod, and `clean`.
    """
    with client.nothing_left(), client.midway(argv=client.short_lease(lease_s=40)) as run:
        run.until(
            lambda: any(each.verb == "patch" for each in client.cluster.audited(client.namespace))
        )
        client.kubectl("delete", client.pods()[1], "--wait=false")
        assert run.ends() == 3, run.err
    assert re.search(r"^Error: The pod fabbench-", run.err, re.MULTILINE), run.err
    assert "pods of other namespaces" in run.err
    done = client.call([*client.argv("clean"), "--yes"])
    assert done.returncode == 0, done.stderr

    seen = [
        each for each in client.cluster.audited(client.namespace) if "access" not in each.resource
    ]
    allowed = {each for each in seen if each.status != 403}
    used = {(each.verb, each.group, each.resource) for each in allowed if each.namespace}
    # Older than Kubernetes 1.35: there, exec over a WebSocket wants it too.
    assert used | {("create", "", "pods/exec")} == granted("Role")
    everywhere = {
        (each.verb, each.group, each.resource) for each in allowed if each.resource == "nodes"
    }
    assert everywhere == granted("ClusterRole")
    refused = {each[:4] for each in seen if each.status == 403}
    own = client.namespace
    assert refused == {("list", "", "pods", ""), ("list", "kubeflow.org", "mpijobs", own)}


def test_pods_of_other_namespaces_are_not_seen_and_that_is_reported(client: Client) -> None:
    one, two = (node.name for node in client.cluster.nodes)
    other = Client(client.cluster, f"{client.namespace}-other", client.folder)
    client.cluster.make_namespace(other.namespace)
    try:
        other.occupy(two)
        check = client.call(client.argv("check", "--on", "kubernetes"))
        assert re.search(rf"{two}.* \?/8 .* \?/4 ", check.stdout), check.stdout
        words = ("--gpus", "8", "--node", one, "--node", two, "--start-timeout", "6")
        done = client.call(client.run_argv("nccl", *client.image, "--no-efa", "-e", "1K", *words))
    finally:
        client.cluster.remove_namespace(other.namespace)
    assert done.returncode == 3
    assert "Insufficient nvidia.com/gpu" in done.stderr, done.stderr


def test_who_may_see_them_knows_what_is_free(client: Client) -> None:
    everywhere = [
        *rules("rbac.yaml", "ClusterRole"),
        *rules("rbac-optional.yaml", "ClusterRole", "fabbench-occupancy"),
    ]
    given = rules("rbac.yaml", "Role")
    client.kubeconfig = client.cluster.service_account(client.namespace, given, everywhere, "sees")
    done = client.call(client.argv("check", "--on", "kubernetes"))
    assert done.returncode == 0, done.stderr
    assert " 8/8 " in done.stdout
    assert "?" not in done.stdout


# ---------------------------------------------------------------- Pod Security


@pytest.mark.parametrize(
    ("level", "more"), [("baseline", ()), ("baseline", USER), ("restricted", USER)]
)
def test_pod_security_admits_sockets(client: Client, level: str, more: Sequence[str]) -> None:
    client.enforce(level)
    with client.nothing_left():
        done = client.call(client.nccl(*more))
    assert done.returncode == 0, done.stderr
    assert "would violate PodSecurity" not in done.stderr
    assert client.rows() == SIZES


RDMA = r"IPC_LOCK(.|\n)*\nHint: RDMA needs IPC_LOCK"
ROOT = r"runAsNonRoot(.|\n)*\nHint: Pass --set run-as-user="


@pytest.mark.parametrize(
    ("level", "fabric", "more", "said"),
    [
        ("baseline", "efa", (), RDMA),
        ("baseline", "efa", USER, RDMA),
        ("restricted", "efa", USER, RDMA),
        ("restricted", "tcp", (), ROOT),
        ("baseline", "tcp", ("--host-network",), r"\nHint: Drop --host-network, or "),
    ],
)
def test_pod_security_refuses_what_needs_more(
    client: Client, level: str, fabric: str, more: Sequence[str], said: str
) -> None:
    client.enforce(level)
    with client.nothing_left():
        done = client.call(client.nccl(*more, fabric=("--fabric", fabric)))
    assert done.returncode == 3, done.stderr
    assert f"{level}:latest" in done.stderr, done.stderr
    assert re.search(said, done.stderr), done.stderr


@pytest.mark.parametrize(("more", "user"), [((), "0"), (USER, "1000")])
def test_programs_in_pods_have_no_more_than_that(
    client: Client, more: Sequence[str], user: str
) -> None:
    """By what the kernel says of them."""
    with client.nothing_left(), client.midway(*more) as run:
        status = client.kubectl("exec", client.pods()[1], "--", "cat", "/proc/1/status")
        run.goes_on()
        assert run.ends() == 0, run.err
    lines = (line.split(":", 1) for line in status.splitlines())
    found = {name: text.split() for name, text in lines}
    assert found["Uid"][0] == user
    assert found["NoNewPrivs"] == ["1"]
    assert found["Seccomp"] == ["2"]  # a filter
    assert int(found["CapBnd"][0], 16) == 0
    made = (client.the_run().path / "rendered/kubernetes.yaml").read_text("utf-8")
    job = next(yaml.safe_load_all(made))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
