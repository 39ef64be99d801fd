"""A real sshd on this machine for the tests of connections, and keys for it."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fabbench.remote import SshOptions
from fabbench.remote.ssh_transport import SshHost
from tests.support.local_runs import eventually
from tests.support.needed import refuse, strict
from tests.support.paths import DATA

SSHD = "/usr/sbin/sshd"
USER = "root"


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    # The longer RSA keys that are usual take seconds to find.
    bits = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-f", str(path)], check=True
    )
    return path


def public(path: Path) -> tuple[str, str]:
    kind, key = Path(f"{path}.pub").read_text().split()[:2]
    return kind, key


@dataclass(kw_only=True)
class Sshd:
    """An sshd that listens on 127.0.0.1."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def key(self, kind: str = "ed25519") -> tuple[str, str]:
        return public(self.folder / f"host_{kind}")

    def known(self, *, kind: str = "ed25519", name: str = "") -> str:
        return f"{name or f'[127.0.0.1]:{self.port}'} {' '.join(self.key(kind))}\n"

    def host(
        self, *lines: str, name: str = "node1", known: str | None = None, accept_new: bool = False
    ) -> SshHost:
        """A host in the ssh configuration of a user who knows it and has its key.

        `lines` come first there.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "known").write_text(self.known() if known is None else known)
        usual = {
            "HostName": "127.0.0.1",
            "Port": self.port,
            "User": USER,
            "IdentityFile": self.folder / "user",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": folder / "known",
            "GlobalKnownHostsFile": "/dev/null",
        }
        given = {line.split()[0] for line in lines}
        words = [*lines, *(f"{key} {value}" for key, value in usual.items() if key not in given)]
        config = folder / "config"
        config.write_text(f"Host {name}\n" + "".join(f"  {line}\n" for line in words))
        return SshHost(
            name=name, options=SshOptions(ssh_config=config, accept_new_host_keys=accept_new)
        )

    def children(self) -> list[int]:
        """The processes that serve connections, and what they started."""
        found: list[int] = []
        wanted = [self.process.pid]
        while wanted:
            argv = ["ps", "-o", "pid=", "--ppid", ",".join(map(str, wanted))]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            wanted = [int(pid) for pid in done.stdout.split()]
            found += wanted
        return found

    def end_connections(self) -> None:
        """Kill what serves the connections there are, as when the machine goes down."""
        self._signal(signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop everything for a while, as a machine that hangs."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_sshd(
    folder: Path, *lines: str, kinds: tuple[str, ...] = ("ed25519",)
) -> Iterator[Sshd]:
    """Start an sshd with more lines of configuration, and end it with all that it serves."""
    if os.geteuid() != 0:
        refuse("an sshd needs root", fail=strict("FABBENCH_REQUIRE_LAB"))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(exist_ok=True)
    for kind in kinds:
        make_key(folder / f"host_{kind}", kind=kind)
    user = make_key(folder / "user")
    (folder / "authorized_keys").write_text(" ".join(public(user)) + "\n")
    port = free_port()
    config = folder / "sshd_config"
    usual = (DATA / "lab/sshd_config_here").read_text("utf-8").format(port=port, folder=folder)
    config.write_text(
        "\n".join([*lines, *(f"HostKey {folder}/host_{kind}" for kind in kinds), usual])
    )
    with (folder / "log").open("wb") as log:
        argv = [SSHD, "-D", "-e", "-f", str(config)]
        process = subprocess.Popen(argv, stderr=log, start_new_session=True)
    sshd = Sshd(folder=folder, port=port, process=process)
    try:
        _until_listening(sshd)
        yield sshd
    finally:
        sshd.end_connections()
        process.kill()
        process.wait()


def _until_listening(sshd: Sshd) -> None:
    assert eventually(lambda: "Server listening" in sshd.log or sshd.process.poll() is not None)
    assert sshd.process.poll() is None, sshd.log


@contextlib.contextmanager
def running_agent(folder: Path, *keys: Path) -> Iterator[str]:
    """Start an ssh-agent that holds keys; gives its socket."""
    path = str(folder / "agent.sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        assert eventually(Path(path).exists)
        for key in keys:
            env = {**os.environ, "SSH_AUTH_SOCK": path}
            subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True)
        yield path
    finally:
        process.terminate()
        process.wait()


def changed(host: SshHost, **options: object) -> SshHost:
    """The host with other options."""
    return replace(host, options=replace(host.options, **options))  # type: ignore[arg-type]


def config_of(host: SshHost) -> Path:
    """Its user's ssh configuration."""
    assert host.options.ssh_config is not None
    return host.options.ssh_config
