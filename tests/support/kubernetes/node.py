"""One node of a cluster.

A kubelet, a containerd and a plugin for devices, in namespaces of their own.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.hosts import processes
from tests.support.kubernetes import settings
from tests.support.kubernetes.daemons import PATH, Daemon

if TYPE_CHECKING:
    from tests.support.kubernetes.cluster import Cluster


class Node:
    """A real node. What is done to it here goes through no API, except where it says so."""

    def __init__(self, cluster: "Cluster", number: int, pid: int) -> None:
        self.cluster, self.number, self.pid = cluster, number, pid
        self.name, self.address = settings.node_name(number), settings.address(number)
        self.folder = cluster.folder / self.name
        self._group = f"{cluster.identity}-{self.name}"
        self._mounts = processes.namespace(pid, "mnt")
        self._presses = False
        """Whether the kubelet believes that it has no memory."""
        settings.node(self.folder, number, self._group)
        self._path = f"{settings.CACHE}/tools/usr/bin:{settings.CACHE}/tools/usr/sbin"
        self.containerd = self._daemon("containerd", "--config", self.folder / "containerd.toml")
        self.kubelet = self._kubelet()
        self.standin = self.folder / "standin"
        """Files that tell the stand-ins in this node's pods what to do, as STANDIN_… would."""
        self.standin.mkdir()
        self.devices = self._daemon(settings.CACHE / "kubernetes/devices", *self._devices())

    def _devices(self) -> list[str]:
        # The stand-ins' ranks meet in /var/tmp: it is shared among all pods that have devices.
        mounts = [f"{self.cluster.shared}:/var/tmp", f"{self.standin}:/run/standin"]
        return mounts + [f"{name}={count}" for name, count in self.cluster.options.devices]

    def _daemon(self, program: str | Path, *arguments: str | Path) -> Daemon:
        log = self.cluster.folder / f"{self.name}-{Path(program).name}.log"
        return Daemon([program, *arguments], inside=self.pid, log=log, path=self._path)

    def _kubelet(self) -> Daemon:
        config = self.cluster.credentials.user(
            f"{self.name}.kubeconfig", settings.INSIDE, f"system:node:{self.name}", "system:nodes"
        )
        labels = ",".join(f"{key}={value}" for key, value in self.cluster.options.labels)
        return self._daemon(
            settings.CACHE / "kubernetes/kubelet",
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={config}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={labels}",
            f"--cert-dir={self.folder / 'certificates'}",
        )

    def sh(self, *argv: str | Path, check: bool = True, timeout: float = 120) -> str:
        """Run a command on the node; gives its output."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "--", *map(str, argv)]
        done = subprocess.run(
            enter,
            env={"PATH": f"{self._path}:{PATH}", "HOME": "/root"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    # -- starting

    def start(self) -> None:
        """Start what does not run; may be called while the API server is not there yet."""
        if not self.containerd.pid:
            self.containerd.start()
        # The kubelet ends where there is no containerd yet.
        ready = processes.eventually(lambda: "Server" in self.sh("ctr", "version", check=False), 60)
        assert ready, self.containerd.tail()
        # It also ends where containerd does not serve it yet, and is started again, as systemd
        # does.
        processes.eventually(self._kubelet_listens, 20)
        if not self.devices.pid:
            self.devices.start()

    def _kubelet_listens(self) -> bool:
        """Start the kubelet where it does not run. Return whether it serves logs and exec."""
        if self.kubelet.gone():
            self.kubelet.start()
        port = f"exec 3<>/dev/tcp/{self.address}/10250 && echo yes"
        return "yes" in self.sh("bash", "-c", port, check=False)

    def load(self, archive: Path) -> None:
        """Take the images of an archive."""
        self.sh("ctr", "-n", "k8s.io", "images", "import", "--snapshotter", "overlayfs", archive)

    def ready(self) -> bool:
        """Whether the node is Ready, untainted, and offers its devices."""
        seen = self.cluster.get("nodes", self.name)
        if not seen or seen.get("spec", {}).get("taints"):
            return False
        wanted = {name: str(count) for name, count in self.cluster.options.devices}
        return (
            self.condition() == "True" and wanted.items() <= seen["status"]["allocatable"].items()
        )

    def condition(self) -> str:
        """The status of the condition Ready: True, False or Unknown; empty if there is none."""
        seen = self.cluster.get("nodes", self.name)
        found = {one["type"]: one["status"] for one in seen.get("status", {}).get("conditions", ())}
        return str(found.get("Ready", ""))

    # -- what happens to nodes

    def stop_kubelet(self) -> None:
        """End the kubelet: containers go on, and after the cluster's grace the node is NotReady."""
        self.cluster.touched = True
        self.kubelet.stop()

    def stop_containerd(self) -> None:
        """End containerd: containers go on, and nobody can look into them or start any."""
        self.cluster.touched = True
        self.containerd.stop()

    def run_out_of_memory(self) -> None:
        """Let the kubelet believe so: it evicts pods, one at a time, and taints its node."""
        self.cluster.touched = self._presses = True
        self.kubelet.stop()
        settings.evict(self.folder, pressed=True)
        self.kubelet.start()

    def pull_the_plug(self) -> None:
        """End all that runs on the node at once, containers too, and cut its link."""
        self.cut()
        for daemon in (self.kubelet, self.devices, self.containerd):
            daemon.stop()
        while found := [*self._shims(), *self._contained()]:
            for pid in found:
                processes.send(signal.SIGKILL, pid)

    def cut(self) -> None:
        """Take the node's link down."""
        self.cluster.touched = True
        self.sh("ip", "link", "set", "eth0", "down")

    def heal(self) -> None:
        """Take the node's link up, and give it its routes again."""
        self.sh("ip", "link", "set", "eth0", "up")
        self.sh("ip", "route", "replace", "default", "via", "10.77.0.1")
        for other in self.cluster.nodes:
            if other is not self:
                network = f"10.244.{other.number + 1}.0/24"
                self.sh("ip", "route", "replace", network, "via", other.address)

    def cordon(self) -> None:
        """Let no new pods come, by the API."""
        self.cluster.touched = True
        self.cluster.kubectl("cordon", self.name)

    def drain(self) -> None:
        """Let no new pods come, and have those that are there leave, by the API."""
        self.cluster.touched = True
        self.cluster.kubectl(
            "drain", self.name, "--force", "--delete-emptydir-data", "--ignore-daemonsets"
        )

    def restore(self) -> None:
        """Undo all of the above; does not wait until the node is ready."""
        if "state UP" not in self.sh("ip", "link", "show", "dev", "eth0"):
            self.heal()
        if self._presses:
            self.kubelet.stop()
            settings.evict(self.folder, pressed=False)
            self._presses = False
        self.start()
        self.cluster.kubectl("uncordon", self.name)

    # -- what is there

    def _contained(self) -> Iterator[int]:
        """All that runs in containers of the node."""
        tops = [
            *Path("/sys/fs/cgroup").glob(f"pids/{self._group}"),
            Path("/sys/fs/cgroup", self._group),
        ]
        for top in tops:
            for file in top.rglob("cgroup.procs"):
                try:
                    pids = file.read_text().split()
                except OSError:  # the container has just ended
                    continue
                yield from (int(pid) for pid in pids if pid != "0" and processes.alive(int(pid)))

    def _shims(self) -> Iterator[int]:
        for pid in processes.inside("mnt", self._mounts):
            if any("containerd-shim" in word for word in processes.command(pid)[:1]):
                yield pid

    def processes(self) -> list[str]:
        """Command lines of all that runs in the node's containers."""
        lines = [" ".join(processes.command(pid)) for pid in self._contained()]
        return sorted(line for line in lines if line)

    def logs(self) -> str:
        """Where the node's programs write, and what they wrote last."""
        parts = {one.log.name: one.tail() for one in (self.containerd, self.kubelet, self.devices)}
        return json.dumps(parts, indent=1)
