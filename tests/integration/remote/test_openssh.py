"""Connections by OpenSSH: the user's own, certificates, few sessions; and nothing of ours is left."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Connection, LostError
from fabbench.remote.parallel import connect_all
from fabbench.remote.ssh_client import with_clients
from fabbench.remote.ssh_config import SshSettings, all_settings
from tests.support.local_runs import alive, eventually
from tests.support.needed import need
from tests.support.security_key import SecurityKey, agent_with
from tests.support.sshd import USER, Sshd, make_key, public, running_sshd

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where masters have their folders in this test: it is empty again at the end."""
    short = Path("/tmp") / f"fb-{os.getpid()}"
    short.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(short))
    yield short
    try:
        assert eventually(lambda: not list(short.iterdir()))
        assert eventually(lambda: not masters(short))
    finally:
        shutil.rmtree(short)


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
def users_master(config: Path, answer: Path | None = None) -> Iterator[int]:
    """Log in as a user does who has several factors, and keep the connection; gives its process id.

    `answer` is a program that prints what the user types.
    """
    asking = {} if answer is None else {"SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
    path = all_settings(["node1"], config=str(config))[0].control_path
    assert path is not None
    argv = ["ssh", "-F", str(config), "-M", "-N", "node1"]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, env={**os.environ, **asking})
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


# -- the user's own connection


def test_an_open_connection_of_the_user_s_is_used_and_stays(sshd: Sshd, tmp_path: Path, place: Path) -> None:
    """Also where no key would let fabbench in: it stands for a login with several factors."""
    config = written(sshd, tmp_path, f"ControlPath {place}/%C")
    assert settings_of(config).openssh == ""
    with users_master(config) as master:
        found = replace(settings_of(config), identities=())
        assert found.openssh == f"your connection at {found.control_path} is open"
        logins = sshd.log.count("Accepted")
        with connected(found) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]
            assert connection.host_key == sshd.key()
        assert sshd.log.count("Accepted") == logins
        assert not connection.alive
        assert alive(master)


CODE = "271828"
PAM = """
auth     required pam_exec.so quiet expose_authtok {check}
auth     required pam_permit.so
account  required pam_permit.so
session  required pam_permit.so
"""
"""Asks for a word, and has a program say whether it is the right one: as modules of one-time codes do."""


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("ways", ["keyboard-interactive", "publickey,keyboard-interactive"])
def test_a_login_that_asks_for_a_code(tmp_path: Path, place: Path, ways: str) -> None:
    """Either client says how to log in first; then the connection on which a code was typed is used."""
    check, answer = tmp_path / "check", tmp_path / "answer"
    check.write_text(f"#!/bin/sh\ntest \"$(tr -d '\\0')\" = {CODE}\n")
    answer.write_text(f"#!/bin/sh\necho {CODE}\n")
    for program in (check, answer):
        program.chmod(0o755)
    lines = (
        *("UsePAM yes", "KbdInteractiveAuthentication yes", "PermitRootLogin yes"),
        f"AuthenticationMethods {ways}",
    )
    with running_sshd(tmp_path / "s", *lines, pam=PAM.format(check=check)) as asking:
        config = written(asking, tmp_path, f"ControlPath {place}/%C")
        for client in ("auto", "openssh"):
            with pytest.raises(MachineError, match="keyboard-interactive") as caught:
                Connection(settings_of(config, client)).connect()
            assert "ControlMaster" in str(caught.value.hint), client
        assert "Accepted keyboard" not in asking.log
        with users_master(config, answer):
            assert asking.log.count("Accepted keyboard-interactive/pam") == 1
            with connected(settings_of(config)) as connection:
                assert connection.run(["echo", "here"]).out == ["here"]
            assert asking.log.count("Accepted keyboard-interactive/pam") == 1


@pytest.mark.slow
def test_a_connection_of_the_user_s_that_ends_is_replaced_by_our_own(sshd: Sshd, tmp_path: Path, place: Path) -> None:
    config = written(sshd, tmp_path, f"ControlPath {place}/%C")
    with users_master(config) as master, connected(settings_of(config)) as connection:
        pipe = connection.open(["sh", "-c", "echo begun; sleep 20"])
        assert next(pipe.lines()) == "begun"
        os.kill(master, signal.SIGTERM)
        with pytest.raises(LostError, match=r"The connection to node1 .* broke"):
            list(pipe.lines())
        assert eventually(lambda: not connection.alive)
        connection.connect()
        assert connection.run(["echo", "again"]).out == ["again"]


@pytest.mark.slow
def test_more_programs_than_a_connection_of_the_user_s_takes(tmp_path: Path, place: Path) -> None:
    """Some go over our own; where there can be none, they wait for those that end."""
    with running_sshd(tmp_path / "s", "MaxSessions 2") as sshd:
        config = written(sshd, tmp_path, f"ControlPath {place}/%C")
        with users_master(config):
            with connected(settings_of(config)) as connection:
                pipes = [connection.open(["sh", "-c", f"echo {number}; read word"]) for number in range(7)]
                assert [next(pipe.lines()) for pipe in pipes] == [str(number) for number in range(7)]
                for pipe in pipes:
                    pipe.send(b"word\n")
                    assert list(pipe.lines()) == []
                    assert pipe.status == 0
            config.write_text(config.read_text().replace(f"{sshd.folder}/user", "/nowhere"))
            alone = settings_of(config)
            with connected(alone) as connection:
                one, two = (connection.open(["sh", "-c", "echo begun; read word"]) for _ in range(2))
                assert [next(pipe.lines()) for pipe in (one, two)] == ["begun"] * 2
                threading.Timer(1, lambda: one.send(b"word\n")).start()
                assert connection.run(["echo", "then"]).out == ["then"]
                three = connection.open(["sh", "-c", "echo begun; read word"])
                assert next(three.lines()) == "begun"
                with pytest.raises(MachineError, match=r"does not start programs. No key to log in to node1") as caught:
                    connection.run(["true"], timeout_s=1)
                assert "MaxSessions" in str(caught.value.hint)


@pytest.mark.parametrize("client", ["paramiko", "openssh"])
def test_a_client_can_be_chosen(sshd: Sshd, tmp_path: Path, place: Path, client: str) -> None:
    config = written(sshd, tmp_path, f"ControlPath {place}/%C")
    wanted = "" if client == "paramiko" else "--ssh-client openssh"
    assert settings_of(config, client).openssh == wanted
    if client == "openssh":
        with connected(settings_of(config, client)) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]


# -- what paramiko cannot do


def signed(authority: Path, key: Path, *words: str) -> Path:
    """Have an authority sign a key; gives the certificate."""
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *words, f"{key}.pub"]
    subprocess.run(argv, check=True)
    return Path(f"{key}-cert.pub")


@pytest.mark.slow
def test_a_host_certificate_is_checked(sshd: Sshd, tmp_path: Path) -> None:
    authority = make_key(tmp_path / "authority")
    trusts = f"@cert-authority * {' '.join(public(authority))}\n"
    with running_sshd(tmp_path / "s", f"HostCertificate {tmp_path}/s/host_ed25519-cert.pub") as certified:
        config = written(certified, tmp_path, known=trusts)
        found = settings_of(config)
        assert found.openssh == f"{tmp_path}/known, line 1, has the host's certificate authority"
        with pytest.raises(MachineError, match=r"node1 .* is not in .*, and no certificate authority"):
            Connection(found).connect()
        signed(authority, tmp_path / "s/host_ed25519", "-h", "-n", "127.0.0.1")
        certified.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: certified.log.count("Server listening") == 2)
        with connected(found) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]
            assert connection.host_key == certified.key()


@pytest.mark.slow
def test_a_user_certificate_that_is_elsewhere(tmp_path: Path) -> None:
    """And keys that sshd looks for elsewhere than in ~/.ssh."""
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    elsewhere = shutil.move(signed(authority, key, "-n", USER), tmp_path / "elsewhere.pub")
    lines = (f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile /nowhere/%u")
    with running_sshd(tmp_path / "s", *lines) as certified:
        config = written(certified, tmp_path, f"CertificateFile {elsewhere}")
        config.write_text(config.read_text().replace(f"{certified.folder}/user", str(key)))
        found = settings_of(config)
        assert found.openssh == "CertificateFile is set in your ssh configuration"
        with connected(found) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]


@pytest.mark.slow
def test_an_open_connection_to_a_jump_host_leads_on(sshd: Sshd, tmp_path: Path, place: Path) -> None:
    """The jump host asks for several factors, the host behind it does not."""
    with running_sshd(tmp_path / "inner") as inner:
        known = sshd.known() + inner.known()
        config = written(inner, tmp_path, "ProxyJump door", known=known)
        door = config.read_text().replace("node1", "door").replace(str(inner.port), str(sshd.port))
        door = door.replace("ProxyJump door", f"ControlPath {place}/%C").replace(str(inner.folder), str(sshd.folder))
        config.write_text(config.read_text() + door)
        path = all_settings(["door"], config=str(config))[0].control_path
        assert path is not None
        process = subprocess.Popen(["ssh", "-F", str(config), "-M", "-N", "door"])
        try:
            assert eventually(lambda: Path(path).exists() or process.poll() is not None)
            logins = sshd.log.count("Accepted")
            found = settings_of(config)
            assert found.openssh == f"its jump host door: your connection at {path} is open"
            made = connect_all([found, replace(found, name="node2")], accept_new=False)
            for connection in made.values():
                assert isinstance(connection, Connection)
                assert connection.run(["echo", "here"]).out == ["here"]
                connection.close()
            assert sshd.log.count("Accepted") == logins
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["fish", "csh"])
def test_login_shells(tmp_path: Path, shell: str) -> None:
    need(shell)
    words = ["a b", "it's", "new\nline", "é", "back\\slash", "!!", "$HOME", ""]
    shells = f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"'
    with running_sshd(tmp_path / "s", shells) as sshd, connected(sshd.settings(openssh="asked for")) as connection:
        done = connection.run(["printf", "[%s]", *words])
        assert "\n".join(done.out) == "".join(f"[{word}]" for word in words)
        assert connection.run(["sh", "-c", "exit 7"]).status == 7


@pytest.mark.parametrize("client", ["auto", "openssh"])
def test_a_security_key_that_only_an_agent_offers(tmp_path: Path, place: Path, client: str) -> None:
    """Its signature is the agent's matter: either client passes it on."""
    key = SecurityKey()
    with running_sshd(tmp_path / "s") as sshd, agent_with(key, place / "agent") as agent:
        (sshd.folder / "authorized_keys").write_text(key.line)
        config = written(sshd, tmp_path)
        text = config.read_text().replace(f"{sshd.folder}/user", "/nowhere").replace("Only yes", "Only no")
        config.write_text(text.replace("IdentityAgent none", f"IdentityAgent {agent}"))
        found = settings_of(config, client)
        assert found.openssh == ("" if client == "auto" else "--ssh-client openssh")
        with connected(found) as connection:
            assert connection.run(["echo", "here"]).out == ["here"]
        assert key.counter == 1


# -- host keys


@pytest.mark.slow
def test_host_keys_are_held_to_as_paramiko_s(sshd: Sshd, tmp_path: Path) -> None:
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
    (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    for accept_new in (False, True):
        with pytest.raises(MachineError, match=r"The host key of node1 .* has changed") as caught:
            Connection(found, accept_new=accept_new).connect()
        assert f"-R '[127.0.0.1]:{sshd.port}' -f '{tmp_path}/known'" in str(caught.value.hint)
    (tmp_path / "known").write_text(sshd.known() + "@revoked * " + " ".join(sshd.key()) + "\n")
    with pytest.raises(MachineError, match="revoked"):
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
        "pipe = made['node1'].open(['sh', '-c', 'echo begun; sleep 20'])\n"
        "print(next(pipe.lines()), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert masters(own_folders)
        process.kill()
        process.wait()
    assert eventually(lambda: not masters(own_folders))
    assert eventually(lambda: not list(own_folders.iterdir()))


@pytest.mark.slow
def test_closing_while_it_connects(sshd: Sshd) -> None:
    """To a host that hangs: who waits is told at once."""
    connection = Connection(sshd.settings(openssh="asked for"))
    with sshd.frozen():
        os.kill(sshd.process.pid, signal.SIGSTOP)
        try:
            failed: list[MachineError] = []

            def connect() -> None:
                try:
                    connection.connect()
                except MachineError as error:
                    failed.append(error)

            thread = threading.Thread(target=connect)
            thread.start()
            connection.close()
            while thread.is_alive():
                connection.close()
                thread.join(0.1)
        finally:
            os.kill(sshd.process.pid, signal.SIGCONT)
    assert "closed while connecting" in str(failed[0])
