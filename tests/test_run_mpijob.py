"""`fabbench run --on mpijob`: Kubeflow's own operator runs it on a real cluster, and nothing is left."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import Cluster
from cluster.images import NO_MPI, NO_SSHD
from fabbench.model import Outcome
from kube_runs import HANGS, SIZES, Laptop
from lab import processes

pytestmark = pytest.mark.cluster

RBAC = Path(__file__).parent.parent / "examples" / "rbac-mpijob.yaml"
ROLE = "training.kubeflow.org/job-role"


@pytest.fixture
def laptop(mpijobs: Cluster, namespace: str, tmp_path: Path) -> Laptop:
    found = Laptop(mpijobs, namespace, tmp_path)
    found.launcher = "mpijob"
    return found


def rules(kind: str) -> list[dict[str, Any]]:
    """What the example grants."""
    (role,) = (each for each in yaml.safe_load_all(RBAC.read_text("utf-8")) if each["kind"] == kind)
    found: list[dict[str, Any]] = role["rules"]
    return found


def document(laptop: Laptop) -> str:
    """What was submitted, as it is kept with the run."""
    return (laptop.the_run().path / "rendered/mpijob.yaml").read_text("utf-8")


def rendered(laptop: Laptop, submitted: dict[str, Any]) -> str:
    """What `fabbench render` prints when it is told of the same nodes, requests and run."""
    (worker,) = submitted["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    amounts = [f"{name}={text}" for name, text in worker["resources"]["requests"].items()]
    amounts.append(f"shm={shm(submitted)}")
    words = [word for text in amounts for word in ("--pod-request", text)]
    words += [word for node in laptop.cluster.nodes for word in ("--node", node.name)]
    argv = [sys.executable, "-m", "fabbench", "render", "nccl", "--as", "mpijob", *laptop.image, *words]
    argv += ["--instance-type", "p4d.24xlarge", "--run-id", submitted["metadata"]["labels"]["fabbench/run"]]
    argv += ["--mpirun", "mpirun", "--gpus", "1", "-e", "1K", "--repeat", "1"]
    argv += ["--fabric", "ofi-tcp", "--fabric", "tcp"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def shm(submitted: dict[str, Any]) -> str:
    volumes = submitted["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"]
    return str(next(each["emptyDir"]["sizeLimit"] for each in volumes if each["name"] == "shm"))


def pod(laptop: Laptop, role: str) -> str:
    """The name of the first pod of a role."""
    return laptop.kubectl("get", "pods", "-l", f"{ROLE}={role}", "-o", "name").split()[0]


def test_both_arms_of_nccl_in_the_bytes_that_render_prints(laptop: Laptop) -> None:
    """With the rights of the example, and no others."""
    laptop.kubeconfig = laptop.cluster.service_account(laptop.namespace, rules("Role"), rules("ClusterRole"))
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl("--fabric", "ofi-tcp", "--fabric", "tcp", fabric=()))
    assert done.returncode == 0, done.stderr
    assert f"; image {laptop.image[1]}): --on says so." in done.stderr
    for arm, transport in (("ofi-tcp", "libfabric-tcp"), ("tcp", "socket")):
        (log,) = laptop.logs(arm)
        assert log.outcome is Outcome.OK
        assert (log.facts["ranks"], log.facts["hosts"], log.facts["transport"]) == (2, 2, transport)
        assert {point.size for point in log.points} == set(SIZES)
    text = document(laptop)
    assert text == rendered(laptop, yaml.safe_load(text))


def test_pingpong_between_two_workers(laptop: Laptop) -> None:
    with laptop.nothing_left():
        words = ("--fabric", "tcp", "--repeat", "1", "--bin-dir", "/usr/bin")
        done = laptop.call(laptop.pingpong(*words))
    assert done.returncode == 0, done.stderr
    (log,) = laptop.logs("tcp")
    assert (log.outcome, {point.labels["side"] for point in log.points}) == (
        Outcome.OK,
        {"client", "server"},
    )
    run = laptop.the_run()
    counted = run.counters(run.trials[0].id)
    assert counted is not None
    assert counted.failures == ()
    moved = counted.own(counted.traffic())
    assert [re.sub(r"fabbench-\w+-worker-(\d)\..*", r"\1", host) for host in moved] == ["0", "1"]
    assert all(traffic.total > 2 * 100 * 64 for traffic in moved.values()), moved


@pytest.mark.parametrize("away", [True, False])
def test_rows_come_live_and_once_whatever_happens_to_the_connection(laptop: Laptop, away: bool) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        laptop.cluster.api_stop()
        if away:
            run.measures_the_rest()
        laptop.cluster.api_start()
        assert laptop.rows() == SIZES[:2] or away
        run.goes_on()
        assert run.ends(120) == 0, run.err
    assert laptop.rows() == SIZES


def test_interrupted_in_the_middle_of_rows(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        run.process.send_signal(signal.SIGINT)
        assert run.ends(60) == 130, run.err
    (log,) = laptop.logs("tcp")
    assert log.outcome is Outcome.TRUNCATED
    assert 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_interrupted_while_workers_start(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.going(laptop.nccl("--image", HANGS)) as run:
        run.until(lambda: "pulling" in laptop.events())
        run.process.send_signal(signal.SIGINT)
        assert run.ends(60) == 130, run.err


def test_killed_it_runs_to_its_end_and_is_cleaned(laptop: Laptop) -> None:
    with laptop.nothing_left():
        with laptop.midway() as run:
            run.process.kill()
            run.process.wait()
            run.goes_on()
            ended = ("get", "mpijobs", "-o", "jsonpath={.items[*].status.conditions[*].type}")
            assert processes.eventually(lambda: "Succeeded" in laptop.kubectl(*ended), 60)
        done = laptop.call([*laptop.argv("clean"), "--yes"])
        assert (done.returncode, "Removed 1 run" in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--image", "localhost/none:1"), r"The image localhost/none:1 cannot be pulled: "),
        (("--image", NO_SSHD), rf"ended with status 127: a program is not in the image {NO_SSHD}"),
        (("--image", NO_MPI), r"The launcher ended with status 3: mpirun is no mpirun that fabbench knows"),
    ],
)
def test_what_does_not_start_is_explained(laptop: Laptop, more: tuple[str, ...], said: str) -> None:
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl(*more))
    assert done.returncode == 3, done.stderr
    assert re.search(rf"^Error: .*{said}", done.stderr, re.MULTILINE), done.stderr


def test_a_quota_is_explained(laptop: Laptop) -> None:
    laptop.kubectl("create", "quota", "tight", "--hard=requests.nvidia.com/gpu=4")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl())
    assert "requests.nvidia.com/gpu=8" in done.stderr, done.stderr


def test_a_worker_is_deleted(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        worker = pod(laptop, "worker")
        laptop.kubectl("delete", worker, "--wait=false")
        assert run.ends(90) in {3, 4}, run.err
    name = worker.removeprefix("pod/")
    assert re.search(rf"^Error: The pod {name} (on ip-\S+ was removed|.*deleted)", run.err, re.MULTILINE), (
        run.err
    )
    (log,) = laptop.logs("tcp")
    assert 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_an_operator_that_does_not_run(laptop: Laptop) -> None:
    operator = laptop.cluster.operator
    assert operator is not None
    operator.stop()
    try:
        with laptop.nothing_left():
            done = laptop.call(laptop.nccl("--start-timeout", "10"))
    finally:
        operator.start()
    assert done.returncode == 3
    assert re.search(r"Nobody has taken up the MPIJob fabbench-\w+ for \d+ s", done.stderr), done.stderr


def test_missing_rights_are_named(laptop: Laptop) -> None:
    given = [rule for rule in rules("Role") if "mpijobs" not in rule["resources"]]
    laptop.kubeconfig = laptop.cluster.service_account(laptop.namespace, given, rules("ClusterRole"))
    done = laptop.call(laptop.nccl())
    assert done.returncode == 3
    missing = "create mpijobs.kubeflow.org, get mpijobs.kubeflow.org"
    assert f"This user may not {missing}" in done.stderr, done.stderr
    assert "examples/rbac-mpijob.yaml" in done.stderr


def test_check_says_that_the_operator_is_there(laptop: Laptop) -> None:
    done = laptop.call(laptop.argv("check", "--on", "mpijob"))
    assert (done.returncode, "operator" in done.stdout) == (0, True), (done.stdout, done.stderr)
