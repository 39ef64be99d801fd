"""A cluster.

A control plane and nodes, made of namespaces, and their API on this machine's loopback.

All of it lives in one space of processes whose first process ends when this program does, and a
program beside it then removes what is not ended by that: nothing is left behind, however a test
ends.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tests.support.hosts import processes, traces
from tests.support.kubernetes import accounts, clients, fakes, images, operator, settings
from tests.support.kubernetes.control import Control
from tests.support.kubernetes.daemons import PATH, Daemon
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.objects import Api
from tests.support.kubernetes.settings import CACHE, Credentials, Options

_TOOLS = ("ip", "unshare", "nsenter", "mount", "sysctl")
_KUBECTL = CACHE / "kubernetes/kubectl"


def missing(*parts: str) -> str:
    """Say why no cluster can be brought up here; empty if one can. `kwok` is a part of its own."""
    if os.name != "posix" or os.geteuid() != 0:
        return "a cluster needs root (network, mount and process namespaces, cgroups)"
    path = f"{PATH}:{os.environ.get('PATH', '')}"
    if tools := [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]:
        return f"a cluster needs {', '.join(tools)}: setup/prepare dev installs them"
    lacking = [
        part
        for part in ("tools", "image", "kubernetes", *parts)
        if not (CACHE / part / "key").exists()
    ]
    return f"a cluster needs what setup/cluster makes: {', '.join(lacking)}" if lacking else ""


class Cluster:
    """A cluster that is up. Use it as a context, or call `down`."""

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder, self.options = folder, options or Options()
        self.identity = f"fabbench-{os.getpid()}-{folder.name}"
        self.touched = self._outage = False
        """Whether anything was done to a node or to the API that the next test must not meet."""
        self.nodes: list[Node] = []
        self.kwok: Daemon | None = None
        self.names: Daemon | None = None
        self.operator: Daemon | None = None
        self.jobsets: Daemon | None = None
        self.trainer: Daemon | None = None
        self._control: Control | None = None
        self._removed: set[str] = set()
        names = [settings.node_name(number) for number in range(self.options.nodes)]
        self.shared = folder / "shared"
        """What pods that have devices see as /var/tmp, on all nodes."""
        self.shared.mkdir(parents=True)
        self.shared.chmod(0o1777)
        settings.plan(folder, self.identity, names)
        self._log = (folder / "boot.log").open("w+")
        boot = str(Path(__file__).with_name("boot"))
        self._outer = subprocess.Popen(
            ["bash", boot, str(folder), "outer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{PATH}"},
            start_new_session=True,
        )
        try:
            self._up(names)
        except BaseException:
            self.down()
            raise

    def _up(self, names: Sequence[str]) -> None:
        assert self._outer.stdout
        waiting = {f"up {name}\n" for name in (*names, "control")}
        for line in self._outer.stdout:
            waiting.discard(line)
            if not waiting:
                break
        assert not waiting, f"no {waiting}: {(self.folder / 'boot.log').read_text()}"
        self.pid, control, *nodes = self._holders(len(names))
        self.credentials = Credentials(self.folder)
        self.credentials.make()
        self._control = Control(
            self.folder, self.options, inner=self.pid, inside=control, credentials=self.credentials
        )
        self.kubeconfig = self.control.kubeconfig
        self.nodes = [Node(self, number, pid) for number, pid in enumerate(nodes)]
        with ThreadPoolExecutor(len(nodes) + 1) as threads:
            archive = threads.submit(images.build, self.folder)
            self.control.start()
            list(threads.map(Node.start, self.nodes))
            list(threads.map(lambda node: node.load(archive.result()), self.nodes))
        (self.folder / "images.tar").unlink()
        self.wait()

    def _holders(self, nodes: int) -> list[int]:
        """Process 1 of the cluster, and the processes that hold the namespaces.

        Control plane and nodes.
        """
        (unshare,) = (
            pid
            for pid in processes.children(self._outer.pid)
            if processes.command(pid)[:1] == ["unshare"]
        )
        (inner,) = processes.children(unshare)
        # They were started in this order: the nodes, the control plane.
        *found, control = sorted(processes.children(inner))
        assert len(found) == nodes, [processes.command(pid) for pid in found]
        return [inner, control, *found]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """End the cluster and all that runs in it; may be called again."""
        assert self._outer.stdin
        assert self._outer.stdout
        with contextlib.suppress(BrokenPipeError):
            self._outer.stdin.close()
        try:
            self._outer.wait(60)
        except subprocess.TimeoutExpired:
            self._outer.kill()
            self._outer.wait()
        for daemon in self._daemons():
            daemon.stop()
        if "api" in self.__dict__:
            self.api.close()
        self._outer.stdout.close()
        self._log.close()

    def _daemons(self) -> Iterator[Daemon]:
        added = (self.kwok, self.names, self.operator, self.jobsets, self.trainer)
        yield from (one for one in added if one is not None)
        for node in self.nodes:
            yield from (node.containerd, node.kubelet, node.devices)
        if self._control is not None:
            yield from self._control.daemons

    # -- the API

    @property
    def control(self) -> Control:
        """The control plane."""
        assert self._control, "the cluster did not come up"
        return self._control

    @cached_property
    def api(self) -> Api:
        """The API as the administrator sees it.

        A request takes a tenth of what kubectl takes to start.
        """
        return Api(self.kubeconfig)

    def kubectl(
        self,
        *argv: str | Path,
        given: str | Mapping[str, Any] = "",
        check: bool = True,
        timeout: float = 120,
    ) -> str:
        """Run kubectl as the administrator; `given` is its input. Gives its output."""
        text = given if isinstance(given, str) else json.dumps(given)
        done = subprocess.run(
            [_KUBECTL, "--kubeconfig", self.kubeconfig, *argv],
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, (argv, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def client(self, kubeconfig: Path) -> Any:
        """Return the Python client of a kubeconfig file."""
        from kubernetes import config

        made: Any = config.new_client_from_config
        return made(str(kubeconfig))

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """One object as the API tells it: `get("pods", "a", "here")`.

        Empty if there is none, or no API.
        """
        return self.api.one(kind, name, namespace)

    def api_stop(self) -> None:
        """End the API server at once: connections break, and new ones are closed."""
        self.touched = self._outage = True
        self.control.api.stop()

    def api_start(self) -> None:
        """Start the API server again, and wait until it is ready."""
        self.control.api.start()
        self._wait_for_api()

    def api_back(self) -> None:
        """Start the API server if it is down, and anew all that watches it.

        After a long outage, or several within two minutes, they would watch again up to two minutes
        later.
        """
        kubelets = [node.kubelet for node in self.nodes]
        for daemon in (self.control.controllers, self.control.scheduler, *kubelets):
            daemon.stop()
        if self.control.api.gone():
            self.control.api.start()
        self._wait_for_api()
        for kubelet in kubelets:
            if kubelet.gone():
                kubelet.start()
        operator.restart(self)
        self._outage = False

    def api_restart(self) -> None:
        """End the API server, and start it again."""
        self.api_stop()
        self.api_start()

    def service_account(
        self,
        namespace: str,
        rules: Sequence[Mapping[str, Any]],
        cluster_rules: Sequence[Mapping[str, Any]] = (),
        name: str = "tester",
    ) -> Path:
        """Make somebody who may do just this in a namespace; gives a kubeconfig file.

        The rules are those of a Role and of a ClusterRole, as RBAC has them:
        `{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}`.
        """
        return accounts.add(self, namespace, rules, cluster_rules, name)

    def audited(self, namespace: str, name: str = "tester") -> Iterator[accounts.Audited]:
        """What somebody of `service_account` has asked of the API."""
        log = (self.folder / "audit.log").read_text("utf-8")
        return accounts.audited(log, f"system:serviceaccount:{namespace}:{name}")

    def fake_nodes(self, count: int, prefix: str = "fake", **settings_: Any) -> list[str]:
        """Add nodes that kwok plays; gives their names once they are Ready. See `fakes.nodes`."""
        return fakes.add(self, count, prefix, **settings_)

    # -- waiting, and undoing

    def _wait_for_api(self) -> None:
        """Wait until the API answers, and start anew what ended without it, as on a busy machine.

        The operator does, once it has lost its lease.
        """
        assert processes.eventually(self.api.ready, 120), self.control.tail()
        for daemon in (self.control.controllers, self.control.scheduler, self.names, self.operator):
            if daemon is not None and daemon.gone():
                daemon.start()

    def wait(self) -> None:
        """Wait until the API answers, pods can be made and all nodes are ready."""
        self._wait_for_api()
        account = processes.eventually(
            lambda: self.get("serviceaccounts", "default", "default"), 60
        )
        assert account, self.control.tail()
        for node in self.nodes:
            assert processes.eventually(node.ready, 120), (
                self.get("nodes", node.name),
                node.logs(),
            )

    def restore(self) -> None:
        """Undo what was done to nodes and to the API."""
        if self._outage:
            self.api_back()
        for node in self.nodes:
            node.restore()
        self.wait()
        self.touched = False

    def make_namespace(self, name: str) -> None:
        """Make a namespace, and wait until pods can be made in it."""
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        assert processes.eventually(lambda: self.get("serviceaccounts", "default", name), 60)

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace with all that is in it, and the rights of its `service_account`.

        Its pods have ended then. The rest of it Kubernetes removes five seconds later, and is not
        waited for: `objects` does not show it any more.
        """
        makers = {
            "trainjobs": self.trainer,
            "jobsets": self.jobsets,
            "mpijobs": self.operator,
        }
        kinds = [*(kind for kind, maker in makers.items() if maker is not None), "jobs", "pods"]
        for kind in kinds:
            self.api.remove_all(kind, name)
        gone = processes.eventually(
            lambda: not any(self.api.all_of(kind, name) for kind in kinds), 60
        )
        assert gone, {kind: self.api.all_of(kind, name) for kind in kinds}
        for kind in ("clusterroles", "clusterrolebindings"):
            self.api.remove_all(kind, label=f"test={name}")
        self.api.send("DELETE", f"/api/v1/namespaces/{name}")
        self._removed.add(name)

    @contextlib.contextmanager
    def standin(self, **settings_: object) -> Iterator[None]:
        """Let the stand-ins in pods that have devices behave as STANDIN_… says.

        `standin(HANG_AT="1M")`.
        """
        files = {
            node.standin / name: str(value)
            for node in self.nodes
            for name, value in settings_.items()
        }
        for file, value in files.items():
            file.write_text(value)
        try:
            yield
        finally:
            for file in files:
                file.unlink(missing_ok=True)

    def standin_goes_on(self) -> None:
        """Let the stand-ins that WAIT_AT a size go on."""
        for node in self.nodes:
            (node.standin / "WAIT_AT").unlink(missing_ok=True)

    # -- what is there

    def objects(self) -> list[str]:
        """A line for every object of every kind, events apart: `pods fab/fab-0`."""
        gone = tuple(f" {name}/" for name in self._removed)
        # Kubernetes publishes its certificate in every namespace, some time after the namespace is
        # there.
        found = [line for line in self.api.everything() if not line.endswith("/kube-root-ca.crt")]
        known = {f"namespaces /{name}" for name in self._removed}
        return [
            line for line in found if line not in known and not any(name in line for name in gone)
        ]

    def processes(self) -> list[str]:
        """A line for all that runs in the nodes' containers, and for the cluster's clients here."""
        found = [f"{node.name} {line}" for node in self.nodes for line in node.processes()]
        return [*found, *(f"client {line}" for line in clients.running(self.folder))]

    def traces(self) -> list[str]:
        """What a program could leave in the cluster: objects, and processes in containers."""
        return [
            *(f"object {line}" for line in self.objects()),
            *(f"process {x}" for x in self.processes()),
        ]

    def left_since(self, before: Sequence[str], seconds: float = 20) -> list[str]:
        """Say what is new (+) or missing (-) since earlier `traces`, once endings have ended."""
        lines: list[str] = []

        def settled() -> bool:
            # A look at all kinds is some 70 requests: first whether what is ending has ended.
            if not self._is_there(lines):
                lines[:] = traces.difference(before, self.traces())
            return not lines

        if not processes.eventually(settled, seconds):
            lines = traces.difference(before, self.traces())
        return lines

    def _is_there(self, lines: Iterable[str]) -> bool:
        """Whether an object that was new is still there."""
        new = {line.removeprefix("+ object ") for line in lines if line.startswith("+ object ")}
        return bool(new) and not new.isdisjoint(
            self.api.everything({line.split()[0] for line in new})
        )
