"""`fabbench run --on mpijob`: Kubeflow's own operator runs it on a real cluster, and nothing is left."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench.model.log import Outcome
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_MPI, NO_SSHD
from tests.support.kubernetes_runs import SIZES, Client, rules

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def client(mpijobs: Cluster, namespace: str, tmp_path: Path) -> Client:
    found = Client(mpijobs, namespace, tmp_path)
    found.launcher = "mpijob"
    return found


def document(client: Client) -> str:
    """What was submitted, as it is kept with the run."""
    return (client.the_run().path / "rendered/mpijob.yaml").read_text("utf-8")


def rendered(client: Client, submitted: dict[str, Any]) -> str:
    """What `fabbench render` prints when it is told of the same nodes, requests and run."""
    (worker,) = submitted["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    amounts = [f"{name}={text}" for name, text in worker["resources"]["requests"].items()]
    amounts.append(f"shm={shm(submitted)}")
    words = [word for text in amounts for word in ("--pod-request", text)]
    words += [word for node in client.cluster.nodes for word in ("--node", node.name)]
    argv = [sys.executable, "-m", "fabbench", "render", "nccl", "--as", "mpijob", *client.image, *words]
    argv += ["--instance-type", "p4d.24xlarge", "--run-id", submitted["metadata"]["labels"]["fabbench/run"]]
    argv += ["--mpirun", "/usr/bin/mpirun", "--gpus", "1", "-e", "1K", "--repeat", "1"]
    argv += ["--fabric", "ofi-tcp", "--fabric", "tcp"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def shm(submitted: dict[str, Any]) -> str:
    volumes = submitted["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"]
    return str(next(each["emptyDir"]["sizeLimit"] for each in volumes if each["name"] == "shm"))


def test_both_configurations_of_nccl_in_the_bytes_that_render_prints(client: Client) -> None:
    """With the rights of the example, and no others."""
    client.has_rights_of("rbac-mpijob.yaml")
    with client.nothing_left():
        done = client.call(client.nccl("--fabric", "ofi-tcp", "--fabric", "tcp", fabric=()))
    assert done.returncode == 0, done.stderr
    assert f"; image {client.image[1]}): set with --on." in done.stderr
    for configuration, transport in (("ofi-tcp", "libfabric-tcp"), ("tcp", "socket")):
        (log,) = client.logs(configuration)
        assert log.outcome is Outcome.OK
        assert (log.facts["ranks"], log.facts["hosts"], log.facts["transport"]) == (2, 2, transport)
        assert {point.size for point in log.points} == set(SIZES)
    text = document(client)
    # Their first lines are the commands that made them.
    assert text.split("\n", 1)[1] == rendered(client, yaml.safe_load(text)).split("\n", 1)[1]


def test_pingpong_between_two_workers(client: Client) -> None:
    with client.nothing_left():
        words = ("--fabric", "tcp", "--repeat", "1", "--bin-dir", "/usr/bin")
        done = client.call(client.pingpong(*words))
    assert done.returncode == 0, done.stderr
    (log,) = client.logs("tcp")
    assert (log.outcome, {point.labels["side"] for point in log.points}) == (Outcome.OK, {"client", "server"})
    run = client.the_run()
    counted = run.counters(run.executions[0].id)
    assert counted is not None
    assert counted.failures == ()
    moved = counted.of_fabric(counted.traffic())
    assert [re.sub(r"fabbench-\w+-worker-(\d)\..*", r"\1", host) for host in moved] == ["0", "1"]
    assert all(traffic.total > 2 * 100 * 64 for traffic in moved.values()), moved


def test_workers_on_the_nodes_network(client: Client) -> None:
    """Oracle's profile: another sshd has the node's port 22."""
    with client.nothing_left():
        words = ("--fabric", "tcp", "--repeat", "1", "--bin-dir", "/usr/bin")
        done = client.call(client.pingpong(*words, "--cluster-profile", "oke-host-network"))
    assert done.returncode == 0, done.stderr
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.OK
    worker = yaml.safe_load(document(client))["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert worker["hostNetwork"]
    assert worker["containers"][0]["ports"] == [{"name": "ssh", "containerPort": 2222}]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--image", "localhost/none:1"), r"The image localhost/none:1 cannot be pulled: "),
        (("--image", NO_SSHD), rf"exited with status 127: a program is missing from the image {NO_SSHD}"),
        (("--image", NO_MPI), r"The launcher exited with status 3: \S*mpirun is not an mpirun that fabbench knows"),
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


def test_an_execution_off_its_fabric_is_ended_and_the_job_goes_on(client: Client) -> None:
    """With the rights of the example, and no others."""
    client.has_rights_of("rbac-mpijob.yaml")
    words = client.nccl("--efa", "--no-efa", fabric=())
    with client.nothing_left(), client.cluster.standin(NICS=1), client.running(words) as run:
        # It would take a quarter of an hour.
        with client.cluster.standin(ROW_S=100):
            run.until(lambda: list((client.folder / "runs").glob("*/exec/000-*/run.json")), 200)
        assert run.ends() == 4, run.err
    (efa,), (tcp,) = client.logs("efa"), client.logs("tcp")
    assert efa.outcome is Outcome.OFF_FABRIC
    assert (tcp.outcome, {point.size for point in tcp.points}) == (Outcome.OK, set(SIZES)), tcp.reason


def test_a_terminal_shows_what_the_nics_of_the_workers_move(client: Client) -> None:
    names = [node.name.partition(".")[0] for node in client.cluster.nodes]
    terminal, other_end = pty.openpty()
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux's way to say that the other end was closed
            while chunk := os.read(terminal, 1 << 16):
                shown.extend(chunk)

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    threading.Thread(target=read, daemon=True).start()
    with client.nothing_left(), client.cluster.standin(WAIT_AT=SIZES[2], ROW_S=0.1):
        process = subprocess.Popen(
            client.nccl(), stdout=subprocess.DEVNULL, stderr=other_end, cwd=client.folder, env=environment
        )
        os.close(other_end)
        try:
            wanted = [name.encode() for name in (*names, "of link")]
            assert processes.eventually(lambda: all(word in shown for word in wanted), 200), bytes(shown)
            client.cluster.standin_goes_on()
            assert process.wait(120) == 0, bytes(shown)
        finally:
            process.kill()
            process.wait()
    assert client.rows() == SIZES


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
    assert re.search(r"the MPIJob fabbench-\w+ for \d+ s", done.stderr), done.stderr


def test_missing_rights_are_named(client: Client) -> None:
    given = [rule for rule in rules("rbac-mpijob.yaml", "Role") if "mpijobs" not in rule["resources"]]
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


def test_pod_security_admits_workers_at_the_level_baseline(client: Client) -> None:
    """With the rights of the example, and no others."""
    client.has_rights_of("rbac-mpijob.yaml")
    client.enforce("baseline")
    with client.nothing_left():
        done = client.call(client.nccl())
    assert done.returncode == 0, done.stderr
    assert client.rows() == SIZES


def test_pod_security_refuses_workers_at_the_level_restricted(client: Client) -> None:
    client.has_rights_of("rbac-mpijob.yaml")
    client.enforce("restricted")
    with client.nothing_left():
        done = client.call(client.nccl())
    assert done.returncode == 3, done.stderr
    assert "restricted:latest" in done.stderr, done.stderr
    assert "--on kubernetes " in done.stderr, done.stderr
