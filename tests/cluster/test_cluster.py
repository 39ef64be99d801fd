"""The cluster is what it says, and leaves nothing behind."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import CPU, NCCL, NO_MPI, NO_SSHD
from tests.support.paths import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ALL = {"vpc.amazonaws.com/efa": "4", "nvidia.com/gpu": "8"}
SSHD = ("sh", "-c", "mkdir -p /run/sshd ~/.ssh && ssh-keygen -A >/dev/null && exec /usr/sbin/sshd -De")
SLEEP = ("sleep", "infinity")


class Pods:
    """Pods of a test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def kubectl(self, *argv: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *argv, **options)

    def make(
        self, name: str, *command: str, image: str = NCCL, limits: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        container: dict[str, Any] = {"name": "c", "image": image, "command": [*command]}
        container["resources"] = {"limits": {**(limits or {})}}
        if command == SSHD:
            container["readinessProbe"] = {"tcpSocket": {"port": 22}, "periodSeconds": 1}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", **spec}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.kubectl("create", "-f", "-", given=pod)

    def get(self, name: str) -> dict[str, Any]:
        return self.cluster.get("pods", name, self.namespace)

    def ready(self, *names: str) -> list[str]:
        """Wait until pods are ready; gives their addresses."""
        self.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *(f"pod/{name}" for name in names))
        return [self.get(name)["status"]["podIP"] for name in names]

    def sh(self, name: str, command: str, **options: Any) -> str:
        return self.kubectl("exec", "-i", name, "--", "sh", "-c", command, **options)

    def state(self, name: str, kind: str) -> dict[str, Any]:
        """The state of a pod's container, once it is `waiting` or `terminated`."""
        found: dict[str, Any] = {}

        def seen() -> bool:
            for status in self.get(name).get("status", {}).get("containerStatuses", ()):
                found.update(status["state"].get(kind, {}))
            return found.get("reason") not in {None, "ContainerCreating"}

        assert processes.eventually(seen, 60), self.get(name)
        return found


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Pods:
    return Pods(cluster, namespace)


def test_nodes_offer_their_devices(cluster: Cluster) -> None:
    assert len(cluster.nodes) == 2
    for node in cluster.nodes:
        seen = cluster.get("nodes", node.name)
        assert node.condition() == "True"
        assert ALL.items() <= seen["status"]["allocatable"].items()
        assert seen["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "p4d.24xlarge"
        assert {CPU, NCCL, NO_SSHD, NO_MPI} <= set(node.images())


def test_an_account_may_do_what_it_was_given_and_no_more(cluster: Cluster, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    config = cluster.service_account(namespace, rules, nodes)
    for words, may in ((("list", "pods"), "yes"), (("create", "pods"), "no"), (("list", "nodes"), "yes")):
        answer = cluster.kubectl("--kubeconfig", config, "auth", "can-i", *words, check=False)
        assert answer.strip() == may, words


def test_a_node_that_lost_power_has_nothing_running_and_comes_back(cluster: Cluster, pods: Pods) -> None:
    """One that lost its kubelet alone: test_kube_losses.py."""
    node = cluster.nodes[0]
    pods.make("a", *SLEEP, nodeName=node.name, restartPolicy="Always")
    pods.ready("a")
    node.pull_the_plug()
    assert node.processes() == []
    assert processes.eventually(lambda: node.condition() == "Unknown", 90)
    cluster.restore()
    assert processes.eventually(lambda: f"{node.name} sleep infinity" in cluster.processes(), 60)
    pods.make("b", *SLEEP, limits=ALL, nodeName=node.name)
    assert pods.ready("b")


def test_cordons_taints_and_lost_devices_are_undone(cluster: Cluster, pods: Pods) -> None:
    one, two = cluster.nodes
    one.cordon()
    two.taint("busy=yes:NoSchedule")
    pods.make("a", *SLEEP)
    assert processes.eventually(lambda: "unschedulable" in json.dumps(pods.get("a")["status"]))
    assert "untolerated taint {busy: yes}" in json.dumps(pods.get("a")["status"])
    two.stop_devices()
    efa = "vpc.amazonaws.com/efa"
    assert processes.eventually(lambda: cluster.get("nodes", two.name)["status"]["allocatable"][efa] == "0", 60)
    cluster.restore()
    assert pods.ready("a")
    assert all(node.ready() for node in cluster.nodes)


def test_what_is_left_in_the_cluster_is_reported(cluster: Cluster, pods: Pods) -> None:
    before = cluster.traces()
    assert cluster.left_since(before, seconds=0) == []
    pods.make("a", *SLEEP)
    pods.kubectl("create", "secret", "generic", "key")
    pods.ready("a")
    left = "\n".join(cluster.left_since(before, seconds=0))
    assert f"+ object pods {pods.namespace}/a\n" in left
    assert f"+ object secrets {pods.namespace}/key\n" in left
    assert re.search(r"^\+ process \S+ sleep infinity$", left, re.MULTILINE)
    pods.kubectl("delete", "pod/a", "secret/key")
    assert cluster.left_since(before) == []


@pytest.mark.kwok
def test_kwok_plays_a_hundred_nodes(kwok: Cluster, pods: Pods) -> None:
    names = kwok.fake_nodes(100)
    assert len(names) == 100
    seen = kwok.get("nodes", "fake-99")
    assert seen["status"]["allocatable"]["vpc.amazonaws.com/efa"] == "32"
    tolerations = [{"key": "kwok", "operator": "Exists"}]
    pods.make("a", *SLEEP, limits={"vpc.amazonaws.com/efa": "33"}, tolerations=tolerations)
    wanted = "0/102 nodes are available: 102 Insufficient vpc.amazonaws.com/efa."
    assert processes.eventually(lambda: wanted in json.dumps(pods.get("a")["status"]))
    pods.make("b", *SLEEP, limits={"vpc.amazonaws.com/efa": "32"}, tolerations=tolerations)
    assert pods.ready("b")


def machine() -> list[str]:
    """What a cluster must not change: mounts, links, names of networks, settings of the kernel."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    done = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    named = [str(path) for path in [*Path("/run/netns").glob("*"), *Path("/var/lib").glob("*")]]
    settings = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
    values = [f"{name} {Path('/proc/sys', name).read_text()}" for name in settings]
    return sorted([*lines, *done.stdout.splitlines(), *named, *values])


def running(folder: Path) -> list[str]:
    """All on this machine whose command line names a directory."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    lines = (" ".join(processes.command(pid)) for pid in pids if processes.alive(pid))
    return [line for line in lines if str(folder) in line]


def groups(pid: int) -> list[Path]:
    """The cgroups of clusters that a process made."""
    top = Path("/sys/fs/cgroup")
    return [*top.glob(f"fabbench-{pid}-*"), *top.glob(f"*/fabbench-{pid}-*")]


PROGRAM = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.kubernetes import Cluster, Options
cluster = Cluster(Path(sys.argv[2]), Options(nodes=1))
cluster.kubectl("run", "a", "--image", "localhost/cpu:test")
cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/a")
print(*cluster.nodes[0].processes(), flush=True)
sys.stdin.read()
cluster.down()
"""


@pytest.mark.parametrize("how", ["down", "killed"])
def test_it_leaves_nothing_however_it_ends(tmp_path: Path, cluster: Cluster, how: str) -> None:
    before = machine()
    folder = tmp_path / "c"
    argv = [sys.executable, "-c", PROGRAM, str(ROOT), str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert "sleep infinity" in run.stdout.readline()
        assert running(folder)
        assert groups(run.pid)
        if how == "killed":
            run.send_signal(signal.SIGKILL)
    assert processes.eventually(lambda: not running(folder))
    assert processes.eventually(lambda: not groups(run.pid))
    assert machine() == before
    assert not list(folder.glob("*/containerd"))
