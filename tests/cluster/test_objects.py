"""The objects of a run on a real cluster, and what is made of what the cluster says."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fabbench.launchers.kubernetes.explain import (
    OOM_COUNTERS,
    explain_killed,
    explain_owner,
    explain_pod,
)
from fabbench.launchers.kubernetes.manifests import (
    HEARTBEAT_FILE,
    RunSpec,
    escape_argument,
    watchdog_script,
    workload,
)
from fabbench.launchers.kubernetes.nodes import Node, read_nodes
from fabbench.launchers.kubernetes.select_nodes import NodeCriteria, choose, resources_on
from fabbench.launchers.pod_options import PodOptions
from fabbench.model.known_messages import Explanation
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL
from tests.support.paths import DATA
from tests.support.requests import read_options

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

GOLDEN = sorted(
    path for path in (DATA / "manifests").glob("golden-*.json") if "mpijob" not in path.name
)


class Run:
    """The objects of one run in a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.nodes = self.look()
        found = choose(self.nodes, NodeCriteria(needs_gpu=True))
        self.run_spec = RunSpec(
            run="t",
            count=2,
            resources=resources_on(found, gpus=True),
            deadline_s=300,
            hostnames=tuple(node.hostname for node in found),
            image=NCCL,
        )

    def kubectl(self, *argv: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *argv, **options)

    def sh(self, pod: str, text: str, **options: Any) -> str:
        return self.kubectl("exec", "-i", pod, "--", "sh", "-c", text, **options)

    def beat(self, pods: list[str]) -> None:
        for pod in pods:
            self.sh(pod, f": >{HEARTBEAT_FILE}")

    def ready(self) -> None:
        self.kubectl(
            "wait", "--for=condition=Ready", "--timeout=60s", "pod", "-l", "fabbench/run=t"
        )

    def items(self, *argv: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *argv, "-o", "json"))["items"]
        return found

    def look(self) -> Sequence[Node]:
        return read_nodes(self.items("nodes"), self.items("pods", "--all-namespaces"))

    def make(self, **changes: Any) -> None:
        (job,) = workload(dataclasses.replace(self.run_spec, **changes))
        self.kubectl("create", "-f", "-", given=job)

    def pods(self) -> list[dict[str, Any]]:
        return sorted(self.items("pods"), key=lambda pod: str(pod["metadata"]["name"]))

    def explained(self, code: str) -> Explanation:
        """Wait until the cluster says why the pods do not run, in the way that is expected."""
        found: list[Explanation] = []

        def seen() -> bool:
            events = self.items("events")
            explanations = [explain_pod(pod, events, self.look()) for pod in self.pods()]
            explanations += [explain_owner(job, "Job", events) for job in self.items("jobs")]
            found[:] = [each for each in explanations if each]
            return any(each.code == code for each in found)

        assert processes.eventually(seen, 60), (found, self.pods(), self.items("events"))
        return next(each for each in found if each.code == code)


@pytest.fixture
def run(cluster: Cluster, namespace: str) -> Run:
    return Run(cluster, namespace)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_api_server_takes_the_golden_manifests(
    cluster: Cluster, namespace: str, path: Path
) -> None:
    for thing in json.loads(
        path.read_text().replace('"KEEPER"', json.dumps(escape_argument(watchdog_script())))
    ):
        argv = ("-n", namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-")
        assert "server dry run" in cluster.kubectl(*argv, given=thing)


def test_the_api_server_takes_what_users_add(run: Run) -> None:
    options = read_options(
        PodOptions,
        {
            "tolerations": ("team", "pool=bench:NoExecute"),
            "pull_secrets": ("regcred",),
            "runtime_class": "nvidia",
            "labels": ("example.com/queue=q",),
            "annotations": ("example.com/note=a, b",),
            "node_selector": ("example.com/pool=bench",),
        },
    )
    for thing in workload(dataclasses.replace(run.run_spec, options=options)):
        run.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", given=thing)


def test_pods_end_after_the_last_beat(run: Run) -> None:
    run.make(lease_s=12)
    run.ready()
    run.beat([pod["metadata"]["name"] for pod in run.pods()])
    assert [(node.gpus.free, node.fabric.free) for node in run.look()] == [(0, 0), (0, 0)]
    assert processes.eventually(lambda: run.items("jobs,pods") == [], 60), run.kubectl(
        "get", "jobs,pods"
    )


def test_devices_that_others_have_are_reported(run: Run) -> None:
    devices = run.nodes[0].fabric.allocatable
    run.make(resources=dataclasses.replace(run.run_spec.resources, devices=devices + 1))
    found = run.explained("no-node")
    assert ("Insufficient vpc.amazonaws.com/efa" in found.text, found.final) == (True, False)


def test_pod_security_is_reported(run: Run) -> None:
    run.cluster.kubectl(
        "label", "namespace", run.namespace, "pod-security.kubernetes.io/enforce=baseline"
    )
    run.make()
    assert "IPC_LOCK" in run.explained("pod-security").text


def test_a_program_that_takes_too_much_memory_is_reported(run: Run) -> None:
    run.make(resources=dataclasses.replace(run.run_spec.resources, memory=64 << 20, shm=32 << 20))
    run.ready()
    name = run.pods()[0]["metadata"]["name"]
    look = f"cat {' '.join(OOM_COUNTERS)} 2>/dev/null || true"
    before = run.sh(name, look)
    run.sh(name, "head -c 300m /dev/zero | tail >/dev/null", check=False)
    found = explain_killed(run.pods()[0], before, run.sh(name, look))
    assert found
    assert "0.0625 GiB" in found.text


def test_a_deleted_pod_ends_the_run(run: Run) -> None:
    run.make()
    run.ready()
    run.kubectl("delete", "pod", run.pods()[0]["metadata"]["name"], "--wait=false")
    assert "has failed" in run.explained("ended").text
