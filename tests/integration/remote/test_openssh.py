"""Connections by OpenSSH: the user's own, certificates; and nothing of ours is left."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote import SshOptions
from fabbench.remote.openssh import OpenSsh, failure
from fabbench.remote.ssh_transport import DroppedError, SshHost
from fabbench.remote.transport import LostError
from tests.support.local_runs import alive, eventually
from tests.support.sshd import USER, Sshd, config_of, make_key, public, running_sshd

lab, slow = pytest.mark.lab, pytest.mark.slow


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where masters have their folders in this test: it is empty again at the end.

    Their paths must be short.
    """
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        yield Path(short)
        assert eventually(lambda: not list(Path(short).iterdir()))
        assert eventually(lambda: not masters(Path(short)))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for the user's control sockets: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="fbc-", dir="/var/tmp") as folder:
        yield Path(folder)


def masters(folder: Path) -> list[str]:
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if f"{folder}/" in line and "ssh" in line]


@contextlib.contextmanager
def users_master(host: SshHost, place: Path) -> Iterator[int]:
    """Log in as a user does who has several factors, and keep the connection.

    Gives its process id.
    """
    words = ["ssh", "-F", str(config_of(host)), "-M", "-N", host.name]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: [*place.iterdir()] or process.poll() is not None)
        assert process.poll() is None
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def connected(host: SshHost) -> Iterator[OpenSsh]:
    connection = OpenSsh(host)
    connection.connect()
    try:
        yield connection
    finally:
        connection.close()


# -- the user's own connection


@lab
def test_an_open_connection_of_the_users_is_used_and_stays(sshd: Sshd, place: Path) -> None:
    """Also where no key would let fabbench in: it stands for a login with several factors."""
    host = sshd.host(f"ControlPath {place}/%C")
    with users_master(host, place) as master:
        config = config_of(host)
        config.write_text(config.read_text().replace(f"{sshd.folder}/user", "/nowhere"))
        logins = sshd.log.count("Accepted")
        with connected(host) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]
        assert sshd.log.count("Accepted") == logins
        assert not connection.alive
        assert alive(master)


@lab
@slow
def test_a_connection_of_the_users_that_ends_is_replaced_by_our_own(
    sshd: Sshd, place: Path
) -> None:
    host = sshd.host(f"ControlPath {place}/%C")
    with users_master(host, place) as master, connected(host) as connection:
        pipe = connection.open(["sh", "-c", "echo begun; sleep 60"])
        lines = pipe.lines()
        assert next(lines) == "begun"
        os.kill(master, signal.SIGTERM)
        with pytest.raises(LostError, match="broke"):
            list(lines)
        assert not connection.alive
        connection.connect()
        assert connection.run(["echo", "again"]).out == ["again"]


@lab
@slow
def test_more_programs_than_a_connection_of_the_users_takes(tmp_path: Path, place: Path) -> None:
    """Some go over others; where there can be none, that is told."""
    with running_sshd(tmp_path / "s", "MaxSessions 2") as sshd:
        host = sshd.host(f"ControlPath {place}/%C")
        with users_master(host, place):
            with connected(host) as connection:
                pipes = [
                    connection.open(["sh", "-c", f"echo {number}; read word"])
                    for number in range(5)
                ]
                assert [next(pipe.lines()) for pipe in pipes] == [
                    str(number) for number in range(5)
                ]
                for pipe in pipes:
                    pipe.send(b"word\n")
                    assert (list(pipe.lines()), pipe.status) == ([], 0)
            config = config_of(host)
            config.write_text(config.read_text().replace(f"{sshd.folder}/user", "/nowhere"))
            with connected(host) as connection:
                held = [connection.open(["sh", "-c", "echo begun; read word"]) for _ in range(2)]
                assert [next(pipe.lines()) for pipe in held] == ["begun"] * 2
                with pytest.raises(MachineError, match="Permission denied") as caught:
                    connection.run(["true"])
                assert "MaxSessions" in str(caught.value.hint)


@lab
@slow
def test_what_a_proxy_command_says_is_reported(sshd: Sshd) -> None:
    with pytest.raises(MachineError, match="no tunnel"):
        OpenSsh(sshd.host("ProxyCommand sh -c 'echo no tunnel >&2; exit 1'")).connect()


# -- certificates


def signed(authority: Path, key: Path, *words: str) -> Path:
    """Have an authority sign a key; gives the certificate."""
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *words, f"{key}.pub"]
    subprocess.run(argv, check=True)
    return Path(f"{key}-cert.pub")


@lab
@slow
def test_certificates_of_hosts_and_users(tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    certificate = signed(authority, key, "-n", USER)
    host = (f"HostCertificate {tmp_path}/s/host_ed25519-cert.pub",)
    user = (f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile /nowhere/%u")
    with running_sshd(tmp_path / "s", *host, *user) as certified:
        trusts = f"@cert-authority * {' '.join(public(authority))}\n"
        found = certified.host(
            f"CertificateFile {certificate}", f"IdentityFile {key}", known=trusts
        )
        with pytest.raises(MachineError, match="host key"):
            OpenSsh(found).connect()
        signed(authority, tmp_path / "s/host_ed25519", "-h", "-n", "127.0.0.1")
        certified.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: certified.log.count("Server listening") == 2)
        with connected(found) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]


# -- nothing is left


@lab
@slow
def test_a_killed_fabbench_leaves_no_master(sshd: Sshd, own_folders: Path) -> None:
    program = (
        "import time, tempfile\n"
        f"tempfile.tempdir = {str(own_folders)!r}\n"
        "from fabbench.remote.openssh import OpenSsh\n"
        "from pathlib import PosixPath\n"
        "from fabbench.remote import SshOptions\n"
        "from fabbench.remote.ssh_transport import SshHost\n"
        f"made = OpenSsh({sshd.host()!r})\n"
        "made.connect()\n"
        "pipe = made.open(['sh', '-c', 'echo begun; sleep 60'])\n"
        "print(next(pipe.lines()), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert masters(own_folders)
        process.kill()
        process.wait()
    assert eventually(lambda: not masters(own_folders))


# -- what ssh says


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (["Host key verification failed."], "--accept-new-host-keys"),
        (
            ["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", '  ssh-keygen -f "/k" -R "h"'],
            'ssh-keygen -f "/k"',
        ),
        (["me@node1: Permission denied (keyboard-interactive)."], "ControlMaster"),
        (["Received disconnect from ::1: Too many authentication failures"], "IdentitiesOnly"),
        (["connect to host 10.0.0.1 port 22: Connection refused"], "sshd runs"),
        (["connect to host 10.0.0.1 port 22: Connection timed out"], "firewall"),
        (["ssh: Could not resolve hostname node1: no"], "HostName"),
        (["Unable to negotiate: no matching host key type found."], "ssh -v node1"),
        ([], "ssh -v node1"),
    ],
)
def test_a_failure_is_reported_with_ssh_s_words_and_advice(said: list[str], advice: str) -> None:
    error = failure("node1", said)
    assert isinstance(error, MachineError)
    assert "node1" in str(error)
    assert advice in str(error.hint)


def test_a_connection_that_was_dropped_is_tried_again() -> None:
    assert isinstance(
        failure("node1", ["kex_exchange_identification: Connection closed by remote host"]),
        DroppedError,
    )


def test_options_overrule_the_configuration_and_a_user_in_the_name_them() -> None:
    host = SshHost(name="node1", options=SshOptions(user="me", port=2, identity=Path("/k")))
    words = OpenSsh(host).words()
    assert [words[words.index(flag) + 1] for flag in ("-l", "-p", "-i")] == ["me", "2", "/k"]
    assert words[-2:] == ("--", "node1")
    assert "-l" not in OpenSsh(replace(host, name="you@node1")).words()
