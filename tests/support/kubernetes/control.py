"""The control plane.

Etcd, the API server, the controllers and the scheduler, in a network of their own.
"""

import socket
from pathlib import Path

from tests.support.kubernetes import settings
from tests.support.kubernetes.daemons import Daemon
from tests.support.kubernetes.settings import CACHE, Credentials, Options

SERVICES = "10.96.0.0/16"
_ETCD = "http://127.0.0.1:2379"
_PEER = "http://127.0.0.1:2380"
_LOCAL = "https://127.0.0.1:443"
_FAST = (
    "--kube-api-qps=200",
    "--kube-api-burst=400",
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
)


class Control:
    """The programs of the control plane, and the way from this machine's loopback to its API."""

    def __init__(
        self, folder: Path, options: Options, *, inner: int, inside: int, credentials: Credentials
    ) -> None:
        self.folder, self._inside, self._inner = folder, inside, inner
        # The listening socket is made here, and inherited: no other program can take its port.
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self.server = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = credentials.user(
            "admin.kubeconfig", self.server, "admin", "system:masters"
        )
        self.local = credentials.user("local.kubeconfig", _LOCAL, "local", "system:masters")
        controllers = credentials.user(
            "controllers.kubeconfig", _LOCAL, "system:kube-controller-manager"
        )
        scheduler = credentials.user("scheduler.kubeconfig", _LOCAL, "system:kube-scheduler")
        tools = CACHE / "tools/usr/bin"
        self.etcd = self.daemon(
            tools / "etcd",
            *(
                "--data-dir",
                "/run/etcd",
                "--log-level",
                "warn",
                "--initial-cluster",
                f"default={_PEER}",
            ),
            *("--listen-client-urls", _ETCD, "--advertise-client-urls", _ETCD),
            *("--listen-peer-urls", _PEER, "--initial-advertise-peer-urls", _PEER),
        )
        self.api = self.daemon(CACHE / "kubernetes/kube-apiserver", *self._api())
        self.controllers = self.daemon(
            CACHE / "kubernetes/kube-controller-manager",
            f"--kubeconfig={controllers}",
            f"--service-account-private-key-file={folder / 'sa.key'}",
            f"--root-ca-file={folder / 'ca.crt'}",
            f"--cert-dir={folder / 'controllers'}",
            f"--node-monitor-grace-period={options.grace}s",
            "--node-monitor-period=1s",
            "--node-startup-grace-period=20s",
            # Without, it may not patch nodes, and the taint not-ready stays for ever.
            "--use-service-account-credentials=true",
            *_FAST,
        )
        self.scheduler = self.daemon(
            CACHE / "kubernetes/kube-scheduler",
            f"--kubeconfig={scheduler}",
            f"--cert-dir={folder / 'scheduler'}",
            *_FAST,
        )
        self._relays = [
            self.daemon(CACHE / "kubernetes/relay", "unix:/run/api.sock", "tcp:127.0.0.1:443"),
            Daemon(
                [CACHE / "kubernetes/relay", f"fd:{self._socket.fileno()}", "unix:/run/api.sock"],
                inside=inner,
                log=folder / "relay-out.log",
                network=False,
            ),
        ]

    def daemon(self, program: Path, *arguments: str) -> Daemon:
        """Return a program of the control plane; it is not started yet."""
        return Daemon(
            [program, *arguments], inside=self._inside, log=self.folder / f"{program.name}.log"
        )

    def _api(self) -> list[str]:
        made = self.folder
        return [
            f"--etcd-servers={_ETCD}",
            "--bind-address=0.0.0.0",
            "--secure-port=443",
            "--advertise-address=10.77.0.1",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={made / 'api.crt'}",
            f"--tls-private-key-file={made / 'api.key'}",
            f"--client-ca-file={made / 'ca.crt'}",
            f"--token-auth-file={made / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={made / 'sa.pub'}",
            f"--service-account-signing-key-file={made / 'sa.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--cert-dir={made / 'apiserver'}",
            f"--audit-policy-file={settings.audit_policy(made)}",
            f"--audit-log-path={made / 'audit.log'}",
        ]

    def start(self) -> None:
        """Start everything; nothing is waited for."""
        for relay, keep in zip(self._relays, ((), (self._socket.fileno(),)), strict=True):
            relay.start(keep=keep)
        self._socket.close()
        for daemon in (self.etcd, self.api, self.controllers, self.scheduler):
            daemon.start()

    @property
    def daemons(self) -> list[Daemon]:
        """All programs of the control plane."""
        return [self.etcd, self.api, self.controllers, self.scheduler, *self._relays]

    def tail(self) -> str:
        """What the programs wrote last."""
        return "\n".join(f"{one.log.name}: {one.tail(5)}" for one in self.daemons)
