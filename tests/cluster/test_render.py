"""Manifests as a person would write them: kubectl applies them, and their pods' log is read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fabbench.benchmarks import runnable_names
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_runs import Client
from tests.support.render_matrix import BENCHMARKS, IMAGE
from tests.support.render_matrix import rendered as rendered_cell

pytestmark = pytest.mark.cluster
SMALL = (
    "cpu=100m",
    "memory=256Mi",
    "shm=64Mi",
    "hugepages-2Mi=0",
    "nvidia.com/gpu=1",
    "vpc.amazonaws.com/efa=1",
)
NCCL = ("nccl", "--gpus", "1", "--mpirun", "/usr/bin/mpirun", "-e", "1K", "--repeat", "1")


@pytest.fixture
def client(mpijobs: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(mpijobs, namespace, tmp_path)


@pytest.fixture
def form(request: pytest.FixtureRequest) -> str:
    """A format, whose objects the cluster knows."""
    if request.param in {"jobset", "trainjob"}:
        request.getfixturevalue(f"{request.param}s")
    return str(request.param)


def rendered(client: Client, form: str, *more: str) -> str:
    requests = [word for amount in SMALL for word in ("--pod-request", amount)]
    argv = [
        sys.executable,
        "-m",
        "fabbench",
        "render",
        *NCCL,
        "--as",
        form,
        *client.image,
        *requests,
    ]
    argv += ["--instance-type", "p4d.24xlarge", *more]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def ending(client: Client, job: str) -> set[str]:
    """How a job ended; empty: it has not."""
    status = json.loads(client.kubectl("get", job, "-o", "json")).get("status", {})
    found = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    return found & {"Complete", "Completed", "Succeeded", "Failed"}


@pytest.mark.parametrize(
    ("form", "job", "pods"),
    [
        ("k8s", "job/fabbench-rendered", "batch.kubernetes.io/job-completion-index=0"),
        ("mpijob", "mpijob/fabbench-rendered", "training.kubeflow.org/job-role=launcher"),
        pytest.param(
            "jobset",
            "jobset/fabbench-rendered",
            "jobset.sigs.k8s.io/jobset-name=fabbench-rendered,"
            "batch.kubernetes.io/job-completion-index=0",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "trainjob",
            "trainjob/fabbench-rendered",
            "jobset.sigs.k8s.io/jobset-name=fabbench-rendered,"
            "batch.kubernetes.io/job-completion-index=0",
            marks=pytest.mark.slow,
        ),
    ],
    indirect=["form"],
)
def test_both_configurations_of_nccl(client: Client, form: str, job: str, pods: str) -> None:
    text = rendered(client, form, "--fabric", "ofi-tcp", "--fabric", "tcp")
    client.kubectl("apply", "--validate=strict", "-f", "-", given=text)

    over = processes.eventually(lambda: ending(client, job), 240)
    printed = client.kubectl("logs", "-l", pods, "--tail=-1")
    assert over, (printed, client.kubectl("get", "pods"), client.events())
    assert "Failed" not in ending(client, job), printed
    parse = [sys.executable, "-m", "fabbench", "parse", "--format", "json", "-"]
    done = subprocess.run(parse, input=printed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, printed
    logs = json.loads(done.stdout)["logs"]
    assert [log["facts"]["transport"] for log in logs] == ["libfabric-tcp", "socket"]
    assert {(log["outcome"], log["facts"]["hosts"], log["facts"]["ranks"]) for log in logs} == {
        ("ok", 2, 2)
    }
    client.kubectl("delete", "-f", "-", given=text)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["k8s", "mpijob", "jobset"], indirect=True)
def test_the_api_server_takes_every_benchmark(client: Client, form: str) -> None:
    strictly = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    for benchmark in sorted(runnable_names()):
        words = (benchmark, "--instance-type", "p5.48xlarge", *BENCHMARKS.get(benchmark, ()))
        text = rendered_cell(form, *words, *IMAGE)
        assert "created (server dry run)" in client.kubectl(*strictly, given=text)
