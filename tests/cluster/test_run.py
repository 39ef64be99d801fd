"""`fabbench run` on a real cluster.

Pods on two nodes, what keeps them from starting, and rights.
"""

import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from fabbench.model.log import Outcome
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import CPU, NCCL, NO_MPI
from tests.support.kubernetes_runs import HANGS, SIZES, Client, rules
from tests.support.secrets_watch import VALUE, kept, watched

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def test_nccl_on_all_devices_of_two_nodes(client: Client) -> None:
    """With the rights of the example, and no others."""
    client.has_rights_of("rbac.yaml")
    with client.nothing_left():
        done = client.call(
            client.run_argv("nccl", *client.image, "--no-efa", "-e", "1K", "--repeat", "1")
        )
    assert done.returncode == 0, done.stderr
    nodes = ", ".join(client.the_run().hosts)
    assert f"Target kubernetes ({nodes}; image {NCCL}): set with --on.\n" in done.stderr
    show = [sys.executable, "-m", "fabbench", "show", str(client.the_run().path)]
    assert f"\nImage: {NCCL}\n" in client.call(show).stdout
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.OK
    assert (log.facts["ranks"], log.facts["hosts"], log.facts["gpus_per_host"]) == (16, 2, 8)
    assert log.facts["transport"] == "socket"
    assert client.rows() == SIZES
    made = (client.the_run().path / "rendered/kubernetes.yaml").read_text("utf-8")
    assert [each["kind"] for each in yaml.safe_load_all(made)] == ["Job"]


def test_two_configurations_in_the_same_pods(client: Client) -> None:
    configurations = ("--fabric", "ofi-tcp", "--fabric", "tcp")
    with client.nothing_left():
        done = client.call(client.nccl(*configurations, fabric=()))
    assert done.returncode == 0, done.stderr
    outcomes = {
        configuration: [log.outcome for log in client.logs(configuration)]
        for configuration in ("ofi-tcp", "tcp")
    }
    assert outcomes == {"ofi-tcp": [Outcome.OK], "tcp": [Outcome.OK]}
    logs = sorted(client.the_run().path.glob("exec/*/output.log"))
    pods = [
        set(re.findall(r" on (fabbench-\w+-\d) device", log.read_text("utf-8"))) for log in logs
    ]
    assert pods[0] == pods[1]
    assert len(pods[0]) == 2
    assert client.events().count("started container") == 2
    networks = [
        client.logs(configuration)[0].facts["transport"] for configuration in ("ofi-tcp", "tcp")
    ]
    assert networks[0] != networks[1] == "socket"


def test_a_variable_from_the_environment(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks have the value. No object of the API, no command line and no record has it."""
    monkeypatch.setenv("MY_TOKEN", VALUE)
    kinds = "pods,jobs,configmaps,services,secrets,events"
    with (
        client.nothing_left(),
        watched("MY_TOKEN") as seen,
        client.midway("--env", "MY_TOKEN") as run,
    ):
        objects = json.loads(client.kubectl("get", kinds, "-o", "json"))["items"]
        run.goes_on()
        assert run.ends() == 0, run.err
    said = [json.dumps(each) for each in objects]
    assert {each["kind"] for each in objects} >= {"ConfigMap", "Job", "Pod"}
    assert [text for text in said if "s3cr" in text] == []
    assert seen.on_command_lines == set()
    assert seen.in_environments.get("python3") == {VALUE.encode()}
    assert kept(client.the_run().path) == []
    assert client.the_run().request.where["inherited"] == ["MY_TOKEN"]


def test_pingpong_between_pods_with_a_gate_that_is_breached(client: Client) -> None:
    configurations = ("--fabric", "tcp", "--fabric", "tcp;ofi_rxm", "--repeat", "1")
    with client.nothing_left():
        done = client.call(client.pingpong(*configurations, "--gate", "latency@64<=0.001us"))
    assert (done.returncode, "Gate failed" in done.stderr) == (1, True), done.stderr
    for configuration, endpoint in (("tcp", "msg"), ("tcp;ofi_rxm", "rdm")):
        (log,) = client.logs(configuration)
        assert (log.outcome, log.facts["endpoint"]) == (Outcome.OK, endpoint)
        assert {point.labels["side"] for point in log.points} == {"client", "server"}


def test_a_fabric_that_is_not_there(client: Client) -> None:
    with client.nothing_left():
        done = client.call(client.pingpong("--efa"))
    assert (done.returncode, "not available on ip-" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--nodes", "3"), r"3 nodes are needed, 2 available:\n  ip-.*p4d.24xlarge, 8 GPUs, 4 EFA"),
        (("--node", "nobody"), r"The cluster has no node nobody\.\nHint: It has ip-"),
        (
            ("--instance-type", "p5.48xlarge"),
            r"2 nodes are needed, none available:\n.*not p5.48xlarge",
        ),
    ],
)
def test_more_than_there_is(client: Client, more: Sequence[str], said: str) -> None:
    done = client.call(client.nccl(*more))
    assert done.returncode == 3
    assert re.search(said, done.stderr), done.stderr
    assert client.pods() == []
    assert "fabbench" not in client.kubectl("get", "events", "-o", "name")


def test_a_node_that_somebody_uses(client: Client) -> None:
    one, two = (node.name for node in client.cluster.nodes)
    client.occupy(two)
    done = client.call(client.nccl("--node", one, "--node", two))
    assert done.returncode == 3
    assert f"  {two}: 8 of 8 GPUs in use\n" in done.stderr, done.stderr
    assert client.names("jobs") == []


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("localhost/none:1", "ErrImagePull: localhost/none:1: "),
        pytest.param(NO_MPI, ": mpirun was not found in PATH", marks=pytest.mark.slow),
        pytest.param(CPU, "all_reduce_perf not found on ip-", marks=pytest.mark.slow),
    ],
)
def test_images_that_do_not_do(client: Client, image: str, said: str) -> None:
    with client.nothing_left():
        done = client.call(client.nccl("--image", image))
    assert (done.returncode, said in done.stderr) == (3, True), done.stderr


@pytest.mark.slow
def test_an_image_that_takes_too_long(client: Client) -> None:
    with client.nothing_left():
        done = client.call(client.nccl("--image", HANGS, "--start-timeout", "12"))
    assert done.returncode == 3
    expected = (
        rf"^The pod .* on ip-.*: Pulling image .{HANGS}(.|\n)*^Error: The pods were not "
        r"ready after 12 s\. "
    )
    assert re.search(expected, done.stderr, re.MULTILINE), done.stderr


def test_a_quota(client: Client) -> None:
    client.kubectl("create", "quota", "tight", "--hard=requests.nvidia.com/gpu=4")
    with client.nothing_left():
        done = client.call(client.nccl())
    assert (done.returncode, "requests.nvidia.com/gpu=8" in done.stderr) == (3, True), done.stderr


def test_tainted_nodes_are_taken_where_pods_tolerate_it(client: Client) -> None:
    nodes = [
        name.removeprefix("node/") for name in client.kubectl("get", "nodes", "-o", "name").split()
    ]
    taint = "team=bench:NoSchedule"
    secret = ("--docker-server=localhost", "--docker-username=a", "--docker-password=b")
    client.kubectl("create", "secret", "docker-registry", "regcred", *secret)
    more = (
        "--pod-label",
        "queue=q",
        "--set",
        "annotations=note=a b",
        "--node-selector",
        "kubernetes.io/os=linux",
    )
    try:
        client.kubectl("taint", "nodes", *nodes, taint)
        done = client.call(client.nccl())
        assert (done.returncode, f"taint {taint}" in done.stderr) == (3, True), done.stderr
        with client.nothing_left():
            done = client.call(
                client.nccl("--toleration", taint, "--set", "pull-secrets=regcred", *more)
            )
        assert done.returncode == 0, done.stderr
    finally:
        client.kubectl("taint", "nodes", *nodes, f"{taint}-")
    made = (client.the_run().path / "rendered/kubernetes.yaml").read_text("utf-8")
    job = next(yaml.safe_load_all(made))
    template = job["spec"]["template"]
    assert template["metadata"]["annotations"]["note"] == "a b"
    assert job["metadata"]["labels"]["queue"] == template["metadata"]["labels"]["queue"] == "q"
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert template["spec"]["imagePullSecrets"] == [{"name": "regcred"}]


def test_missing_rights_are_named(client: Client) -> None:
    given = [rule for rule in rules("rbac.yaml", "Role") if "pods/exec" not in rule["resources"]]
    given[0] = {**given[0], "verbs": ["get", "list", "create", "patch"]}
    everywhere = rules("rbac.yaml", "ClusterRole")
    client.kubeconfig = client.cluster.service_account(client.namespace, given, everywhere)
    done = client.call(client.nccl())
    assert done.returncode == 3
    missing = "delete jobs.batch, create pods/exec, get pods/exec"
    assert f"This user may not {missing} in namespace {client.namespace}" in done.stderr, (
        done.stderr
    )
    assert client.names("jobs") == []


def test_mpijobs_where_there_is_no_operator(client: Client) -> None:
    client.launcher = "mpijob"
    done = client.call(client.nccl())
    assert (done.returncode, "kubectl apply --server-side -f https://" in done.stderr) == (
        3,
        True,
    ), done.stderr
    assert client.pods() == []


def test_pods_of_a_declared_profile(client: Client) -> None:
    """Oracle's: privileged, on the nodes' network, with a directory of the node."""
    with client.nothing_left():
        words = ("--cluster-profile", "oke-host-network", "--fabric", "tcp", "--repeat", "1")
        done = client.call(client.pingpong(*words))
    assert done.returncode == 0, done.stderr
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.OK
    made = (client.the_run().path / "rendered/kubernetes.yaml").read_text("utf-8")
    pod = next(yaml.safe_load_all(made))["spec"]["template"]["spec"]
    assert pod["hostNetwork"]
    assert pod["containers"][0]["securityContext"]["privileged"]


def test_claims_of_devices_where_the_cluster_has_none(client: Client) -> None:
    """Kubernetes has them from 1.34 on."""
    done = client.call(client.nccl("--cluster-profile", "efa-dra"))
    assert done.returncode == 3
    assert "has no resourceclaimtemplates (resource.k8s.io/v1)" in done.stderr


def test_two_runs_on_the_same_nodes_are_told_in_both(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pods request no device. The first has executions before the second, and meanwhile."""
    monkeypatch.delenv("FABBENCH_NEIGHBORS")
    amounts = ("cpu=100m", "memory=256Mi", "shm=64Mi", "vpc.amazonaws.com/efa=0")
    few = [word for amount in amounts for word in ("--pod-request", amount)]
    second = Client(client.cluster, client.namespace, tmp_path / "second")
    second.folder.mkdir()
    endless = client.pingpong("--fabric", "tcp", "--repeat", "300", *few)
    with client.nothing_left(), client.running(endless) as first:
        first.until(lambda: "#@fabbench end" in client.text(), 150)
        done = second.call(second.pingpong("--fabric", "tcp", *few))
        assert done.returncode == 0, done.stderr
        first.process.send_signal(signal.SIGINT)
        assert first.ends() == 130, first.err
    for each in (client, second):
        codes = {finding.code for log in each.logs("tcp") for finding in log.findings}
        assert "neighbor" in codes
