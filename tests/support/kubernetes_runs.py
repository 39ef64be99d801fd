"""Runs of fabbench on the cluster of the tests: from this machine, and nothing is left there."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from fabbench.model.log import Log
from fabbench.runs.store import StoredRun, runs
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL
from tests.support.paths import EXAMPLES
from tests.support.running import Running

ROW = re.compile(r"^(?:\[1,0\]<stdout>: ?)?\s+(\d+)\s+\d+\s+float\s+sum\s", re.MULTILINE)
SIZES = [8, 16, 32, 64, 128, 256, 512, 1024]
HANGS = "registry.invalid/none:1"
"""An image whose pull takes its time: the nodes have no DNS."""


def rules(file: str, kind: str, name: str = "") -> list[dict[str, Any]]:
    """What an example of RBAC grants by the role of a kind; `name` where it has several."""
    found = [
        each
        for each in yaml.safe_load_all((EXAMPLES / file).read_text("utf-8"))
        if each["kind"] == kind
    ]
    (role,) = [each for each in found if name in {"", each["metadata"]["name"]}]
    granted: list[dict[str, Any]] = role["rules"]
    return granted


class Client:
    """Somebody with a kubeconfig."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        self.kubeconfig = cluster.kubeconfig
        self.image = ("--image", NCCL)
        self.launcher = "kubernetes"

    def argv(self, *words: str) -> list[str]:
        """A command line of fabbench, for the cluster and the namespace."""
        place = ("--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace)
        return [sys.executable, "-m", "fabbench", *words, *place]

    def run_argv(self, *words: str) -> list[str]:
        """A command line of `fabbench run`."""
        return self.argv("run", *words, "--on", self.launcher, "--store", str(self.folder / "runs"))

    def has_rights_of(self, file: str) -> None:
        """Be somebody with the rights that an example grants, and no others."""
        self.kubeconfig = self.cluster.service_account(
            self.namespace, rules(file, "Role"), rules(file, "ClusterRole")
        )

    def enforce(self, level: str) -> None:
        """Let Pod Security admit only pods of a level to the namespace."""
        label = f"pod-security.kubernetes.io/enforce={level}"
        self.cluster.kubectl("label", "namespace", self.namespace, label)

    def call(self, argv: list[str], timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=self.folder
        )

    def the_run(self) -> StoredRun:
        """The newest run in the store."""
        return StoredRun(next(runs(self.folder / "runs")))

    @contextmanager
    def nothing_left(self, within_s: float = 60) -> Iterator[None]:
        """Hold that what happens inside leaves nothing in the cluster."""
        before = self.cluster.traces()
        yield
        left = self.cluster.left_since(before, within_s)
        assert left == [], left[:20]

    def nccl(self, *more: str, fabric: Sequence[str] = ("--no-efa",)) -> list[str]:
        """The command line that runs the stand-in, with one rank in each pod."""
        image = () if "--image" in more else self.image
        words = (*image, *fabric, "--gpus", "1", "-e", "1K", "--repeat", "1", *more)
        return self.run_argv("nccl", *words)

    def pingpong(self, *more: str) -> list[str]:
        return self.run_argv("pingpong", *self.image, "--size", "64", "--iterations", "100", *more)

    def kubectl(self, *argv: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *argv, **options)

    def occupy(self, node: str) -> None:
        """Let somebody else's pod take all GPUs of a node."""
        limits = {"nvidia.com/gpu": "8"}
        container = {"name": "c", "image": NCCL, "command": ["sleep", "infinity"]}
        spec = {"nodeName": node, "containers": [{**container, "resources": {"limits": limits}}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": spec}
        self.kubectl("create", "-f", "-", given=pod)
        self.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "pod/other")

    def pods(self) -> list[str]:
        """The names of the pods, in the order of their indices."""
        return self.names("pods")

    def workers(self) -> list[str]:
        """The names of the pods that measure, in the order of their indices."""
        return self.kubectl("get", "pods", "-l", "fabbench/role=worker", "-o", "name").split()

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind, by its plural, as kubectl takes them: `pod/a`."""
        found = self.cluster.api.all_of(kind, self.namespace)
        return sorted(f"{kind.removesuffix('s')}/{each['metadata']['name']}" for each in found)

    def events(self) -> str:
        """What has been told of pods, in small letters."""
        found = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return "\n".join(f"{each.get('reason')} {each.get('message')}" for each in found).lower()

    def measures(self) -> bool:
        """Whether the stand-in runs in a pod."""
        return self.runs_somewhere("all_reduce_perf")

    def runs_somewhere(self, word: str) -> bool:
        """Whether a command line with this runs in a pod."""
        return any(word in f"{line} " for line in self.cluster.processes() if "client" not in line)

    def short_lease(self, *more: str, lease_s: int = 10) -> list[str]:
        """The command line of `nccl` with a short lease."""
        return self.leased(self.nccl(*more), lease_s)

    def leased(self, words: Sequence[str], lease_s: int = 10) -> list[str]:
        """A command line with a target whose pods end so long after fabbench."""
        (self.folder / "fabbench.yaml").write_text(
            f"targets:\n  here: {{launcher: {self.launcher}, options: {{lease: {lease_s}}}}}\n"
        )
        known = [*words, "--config", str(self.folder / "fabbench.yaml")]
        return ["here" if word == self.launcher else word for word in known]

    def limit_memory(self, pod: str, limit: int) -> None:
        """Lower what a pod's container may have, in bytes, behind Kubernetes' back."""
        uid = self.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}").replace("-", "?")
        found = [
            file
            for name in ("memory.limit_in_bytes", "memory.max")
            for top in Path("/sys/fs/cgroup").glob(f"*/{self.cluster.identity}-*")
            for file in top.glob(f"**/*pod{uid}*/*/{name}")
        ]
        assert found, uid
        for file in found:
            file.write_text(str(limit))

    def logs(self, configuration: str) -> tuple[Log, ...]:
        return self.the_run().logs(configuration)

    def text(self) -> str:
        """What the logs of all runs hold so far."""
        logs = sorted((self.folder / "runs").glob("*/exec/*/output.log"))
        return "".join(path.read_text(errors="replace") for path in logs)

    def rows(self) -> list[int]:
        """The sizes of the rows in the logs, found without fabbench's parser."""
        return [int(size) for size in ROW.findall(self.text())]

    @contextmanager
    def running(self, argv: list[str]) -> "Iterator[RunningCommand]":
        """Start fabbench."""
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        ) as process:
            try:
                yield RunningCommand(self, process)
            finally:
                process.kill()

    @contextmanager
    def midway(
        self, *more: str, rows: int = 2, argv: Sequence[str] = ()
    ) -> "Iterator[RunningCommand]":
        """Start the stand-in in pods on both nodes, and wait for some rows.

        No more come before `goes_on`.
        """
        slow = self.cluster.standin(WAIT_AT=SIZES[rows], ROW_S=0.1)
        with slow, self.running([*argv] or self.nccl(*more)) as run:
            run.until(lambda: len(self.rows()) >= rows, 150)
            yield run

    @contextmanager
    def disk_fills_up(self) -> "Iterator[RunningCommand]":
        """Start the stand-in, and take all room from the run as soon as it has a row."""
        store = self.folder / "runs"
        store.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", store], check=True)
        try:
            with self.midway() as run:
                with suppress(OSError), (store / "filler").open("wb", buffering=0) as filler:
                    while True:
                        filler.write(b"x" * 512)
                run.goes_on()
                yield run
        finally:
            subprocess.run(["umount", store], check=True)


class RunningCommand(Running):
    """A run that goes on."""

    def __init__(self, client: Client, process: "subprocess.Popen[str]") -> None:
        super().__init__(process)
        self.client = client

    def goes_on(self) -> None:
        """Let the rest of the rows come."""
        self.client.cluster.standin_goes_on()

    def measures_the_rest(self) -> None:
        """Let the rest of the rows come, and wait until what makes them has ended."""
        self.goes_on()
        assert processes.eventually(lambda: not self.client.measures())
