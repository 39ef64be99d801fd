"""Connections by OpenSSH: when they are chosen, the user's own, certificates; and nothing of ours is left."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Connection, LostError
from fabbench.remote.ssh_client import with_clients
from fabbench.remote.ssh_config import SshSettings, all_settings
from tests.support.local_runs import alive, eventually
from tests.support.sshd import USER, Sshd, make_key, public, running_sshd

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where masters have their folders in this test: it is empty again at the end. Their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        yield Path(short)
        assert eventually(lambda: not list(Path(short).iterdir()))
        assert eventually(lambda: not masters(Path(short)))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for the user's control sockets: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="fbc-", dir="/tmp") as folder:
        yield Path(folder)


def masters(folder: Path) -> list[str]:
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if f"{folder}/" in line and "ssh" in line]


def written(sshd: Sshd, folder: Path, *lines: str, known: str | None = None) -> Path:
    """Write the ssh configuration of a user who knows the host."""
    (folder / "known").write_text(sshd.known() if known is None else known)
    config = folder / "config"
    config.write_text(
        f"Host node1\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {USER}\n"
        f"  IdentityFile {sshd.folder}/user\n  IdentitiesOnly yes\n"
        f"  IdentityAgent none\n  UserKnownHostsFile {folder}/known\n" + "".join(f"  {line}\n" for line in lines)
    )
    return config


def settings_of(config: Path, client: str = "auto") -> SshSettings:
    (found,) = with_clients(all_settings(["node1"], config=str(config)), client)
    return found


@contextlib.contextmanager
def users_master(config: Path) -> Iterator[int]:
    """Log in as a user does who has several factors, and keep the connection; gives its process id."""
    path = all_settings(["node1"], config=str(config))[0].control_path
    assert path is not None
    process = subprocess.Popen(["ssh", "-F", str(config), "-M", "-N", "node1"], stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: Path(path).exists() or process.poll() is not None)
        assert process.poll() is None
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def connected(settings: SshSettings) -> Iterator[Connection]:
    connection = Connection(settings)
    connection.connect()
    try:
        yield connection
    finally:
        connection.close()


def answers(settings: SshSettings) -> bool:
    with connected(settings) as connection:
        return connection.run(["echo", "here"]).out == ["here"]


# -- the user's own connection


def test_an_open_connection_of_the_users_is_used_and_stays(sshd: Sshd, tmp_path: Path, place: Path) -> None:
    """Also where no key would let fabbench in: it stands for a login with several factors."""
    config = written(sshd, tmp_path, f"ControlPath {place}/%C")
    assert settings_of(config).openssh == ""
    assert settings_of(config, "openssh").openssh == "--ssh-client openssh"
    with users_master(config) as master:
        found = replace(settings_of(config), identities=())
        assert str(found.control_path) in found.openssh
        logins = sshd.log.count("Accepted")
        with connected(found) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]
            assert connection.host_key == sshd.key()
        assert sshd.log.count("Accepted") == logins
        assert not connection.alive
        assert alive(master)


@pytest.mark.slow
def test_a_connection_of_the_users_that_ends_is_replaced_by_our_own(sshd: Sshd, tmp_path: Path, place: Path) -> None:
    config = written(sshd, tmp_path, f"ControlPath {place}/%C")
    with users_master(config) as master, connected(settings_of(config)) as connection:
        pipe = connection.open(["sh", "-c", "echo begun; sleep 600"])
        assert next(pipe.lines()) == "begun"
        os.kill(master, signal.SIGTERM)
        with pytest.raises(LostError, match="broke"):
            list(pipe.lines())
        assert eventually(lambda: not connection.alive)
        connection.connect()
        assert connection.run(["echo", "again"]).out == ["again"]


@pytest.mark.slow
def test_more_programs_than_a_connection_of_the_users_takes(tmp_path: Path, place: Path) -> None:
    """Some go over our own; where there can be none, that is told."""
    with running_sshd(tmp_path / "s", "MaxSessions 2") as sshd:
        config = written(sshd, tmp_path, f"ControlPath {place}/%C")
        with users_master(config):
            with connected(settings_of(config)) as connection:
                pipes = [connection.open(["sh", "-c", f"echo {number}; read word"]) for number in range(7)]
                assert [next(pipe.lines()) for pipe in pipes] == [str(number) for number in range(7)]
                for pipe in pipes:
                    pipe.send(b"word\n")
                    assert (list(pipe.lines()), pipe.status) == ([], 0)
            config.write_text(config.read_text().replace(f"{sshd.folder}/user", "/nowhere"))
            with connected(settings_of(config)) as connection:
                held = [connection.open(["sh", "-c", "echo begun; read word"]) for _ in range(2)]
                assert [next(pipe.lines()) for pipe in held] == ["begun"] * 2
                with pytest.raises(MachineError, match="No key") as caught:
                    connection.run(["true"], timeout_s=1)
                assert "MaxSessions" in str(caught.value.hint)


# -- what paramiko cannot do


def signed(authority: Path, key: Path, *words: str) -> Path:
    """Have an authority sign a key; gives the certificate."""
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *words, f"{key}.pub"]
    subprocess.run(argv, check=True)
    return Path(f"{key}-cert.pub")


@pytest.mark.slow
def test_certificates_of_hosts_and_users(sshd: Sshd, tmp_path: Path) -> None:
    """Also where sshd looks for keys elsewhere than in ~/.ssh."""
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    elsewhere = shutil.move(signed(authority, key, "-n", USER), tmp_path / "elsewhere.pub")
    host = (f"HostCertificate {tmp_path}/s/host_ed25519-cert.pub",)
    user = (f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile /nowhere/%u")
    with running_sshd(tmp_path / "s", *host, *user) as certified:
        trusts = f"@cert-authority * {' '.join(public(authority))}\n"
        config = written(certified, tmp_path, f"CertificateFile {elsewhere}", known=trusts)
        config.write_text(config.read_text().replace(f"{certified.folder}/user", str(key)))
        found = settings_of(config)
        assert "CertificateFile" in found.openssh or "known, line 1" in found.openssh
        with pytest.raises(MachineError, match="no certificate authority"):
            Connection(found).connect()
        signed(authority, tmp_path / "s/host_ed25519", "-h", "-n", "127.0.0.1")
        certified.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: certified.log.count("Server listening") == 2)
        assert answers(found)


@pytest.mark.slow
def test_host_keys_are_held_to_as_paramikos(sshd: Sshd, tmp_path: Path) -> None:
    """Whatever the configuration says of StrictHostKeyChecking."""
    config = written(sshd, tmp_path, "StrictHostKeyChecking no", known="")
    found = settings_of(config, "openssh")
    with pytest.raises(MachineError, match="is not in ") as caught:
        Connection(found).connect()
    assert "--accept-new-host-keys" in str(caught.value.hint)
    assert not (tmp_path / "known").read_text()
    accepting = Connection(found, accept_new=True)
    accepting.connect()
    accepting.close()
    assert " ".join(sshd.key()) in (tmp_path / "known").read_text()
    kind, key = public(make_key(tmp_path / "old"))
    revoked = sshd.known() + "@revoked * " + " ".join(sshd.key()) + "\n"
    for text, said in ((f"[127.0.0.1]:{sshd.port} {kind} {key}\n", "has changed"), (revoked, "revoked")):
        (tmp_path / "known").write_text(text)
        with pytest.raises(MachineError, match=said):
            Connection(found, accept_new=True).connect()


# -- nothing is left


@pytest.mark.slow
def test_a_killed_fabbench_leaves_no_master(sshd: Sshd, own_folders: Path) -> None:
    program = (
        "import time, tempfile\nfrom pathlib import PosixPath\n"
        f"tempfile.tempdir = {str(own_folders)!r}\n"
        "from fabbench.remote.ssh_config import SshSettings, TimeLimits\n"
        "from fabbench.remote.parallel import connect_all\n"
        f"made = connect_all([{sshd.settings(openssh='asked for')!r}], accept_new=False)\n"
        "pipe = made['node1'].open(['sh', '-c', 'echo begun; sleep 600'])\n"
        "print(next(pipe.lines()), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert masters(own_folders)
        process.kill()
        process.wait()
    assert eventually(lambda: not masters(own_folders))
