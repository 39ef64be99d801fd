"""Host keys against files of known hosts, with a real sshd and with OpenSSH's own tools."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote import hostkeys
from fabbench.remote.connection import Connection
from fabbench.remote.parallel import connect_all
from fabbench.remote.ssh_config import SshSettings
from tests.support.sshd import Sshd, make_key, public, running_sshd

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    kinds = ("ed25519", "rsa", "ecdsa")
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s", "MaxStartups 100", kinds=kinds) as running:
        yield running


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "known_hosts"


def knowing(sshd: Sshd, known: Path, text: str) -> SshSettings:
    known.parent.mkdir(exist_ok=True)
    known.write_text(text)
    return sshd.settings(known_hosts=(str(known),))


def connect(settings: SshSettings, *, accept_new: bool = False) -> tuple[str, str]:
    connection = Connection(settings, accept_new=accept_new)
    try:
        connection.connect()
        return connection.host_key
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_host_is_asked_for_the_kind_of_key_that_is_known(sshd: Sshd, known: Path, kind: str) -> None:
    assert connect(knowing(sshd, known, sshd.known(kind=kind))) == sshd.key(kind)


@pytest.mark.parametrize(
    "name", ["[127.0.0.*]:*", "127.0.0.1", "other,127.0.0.?", "*"], ids=["pattern", "no port", "several", "all"]
)
def test_names_are_read_as_ssh_reads_them(sshd: Sshd, known: Path, name: str) -> None:
    assert connect(knowing(sshd, known, f"# a comment\n\n{sshd.known(name=name)}"))


def test_a_name_can_be_excepted(sshd: Sshd, known: Path) -> None:
    settings = knowing(sshd, known, sshd.known(name=f"*,![127.0.0.1]:{sshd.port},!127.0.0.1"))
    with pytest.raises(MachineError, match="is not in "):
        connect(settings)


def test_names_hashed_by_ssh_keygen_are_found(sshd: Sshd, known: Path) -> None:
    settings = knowing(sshd, known, sshd.known())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert connect(settings)


def test_an_alias_is_looked_for_instead_of_the_address(sshd: Sshd, known: Path) -> None:
    settings = knowing(sshd, known, sshd.known(name="cluster"))
    with pytest.raises(MachineError, match="is not in "):
        connect(settings)
    assert connect(replace(settings, host_key_alias="cluster"))


def test_files_of_the_machine_count_too(sshd: Sshd, known: Path, tmp_path: Path) -> None:
    settings = knowing(sshd, tmp_path / "global", sshd.known())
    assert connect(replace(settings, known_hosts=(str(known), *settings.known_hosts)))


def test_an_unknown_host_is_refused_with_both_ways_out(sshd: Sshd, known: Path) -> None:
    with pytest.raises(MachineError) as caught:
        connect(sshd.settings(known_hosts=(str(known),)))
    printed = subprocess.run(
        ["ssh-keygen", "-lf", str(sshd.folder / "host_ed25519")], capture_output=True, text=True, check=True
    )
    assert f"node1 (root@127.0.0.1:{sshd.port}) is not in {known}" in str(caught.value)
    assert printed.stdout.split()[1] in str(caught.value)
    for way in ("ssh node1", f"ssh-keyscan -p {sshd.port} 127.0.0.1 >>{known}", "--accept-new-host-keys"):
        assert way in str(caught.value.hint)
    assert not known.exists()


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_key_is_refused_always(sshd: Sshd, known: Path, tmp_path: Path, accept_new: bool) -> None:
    kind, key = public(make_key(tmp_path / "old"))
    text = f"# one line before\n[127.0.0.1]:{sshd.port} {kind} {key}\n"
    settings = knowing(sshd, known, text)
    with pytest.raises(MachineError) as caught:
        connect(settings, accept_new=accept_new)
    assert f"{known}, line 2, has {kind} {hostkeys.fingerprint(key)}" in str(caught.value)
    assert hostkeys.fingerprint(sshd.key()[1]) in str(caught.value)
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f '{known}'" in str(caught.value.hint)
    assert known.read_text() == text


def test_another_kind_of_key_does_not_pass_for_a_new_one(known: Path, tmp_path: Path) -> None:
    kind, key = public(make_key(tmp_path / "old", kind="ecdsa"))
    with running_sshd(tmp_path / "s") as sshd:
        settings = knowing(sshd, known, f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
        with pytest.raises(MachineError, match=f"line 1, has {kind}"):
            connect(settings, accept_new=True)


def test_a_revoked_key_is_refused(sshd: Sshd, known: Path) -> None:
    settings = knowing(sshd, known, sshd.known() + "@revoked * " + " ".join(sshd.key()) + "\n")
    with pytest.raises(MachineError, match=r"revoked in .*, line 2"):
        connect(settings, accept_new=True)


def test_a_certificate_authority_is_said_not_to_help(sshd: Sshd, known: Path) -> None:
    settings = knowing(sshd, known, "@cert-authority * " + " ".join(sshd.key()) + "\n")
    with pytest.raises(MachineError, match=r"paramiko does not support host certificates\. Pass --ssh"):
        connect(settings)


@pytest.mark.parametrize("hashed", [False, True])
def test_accepting_writes_what_ssh_reads(sshd: Sshd, known: Path, hashed: bool) -> None:
    settings = sshd.settings(known_hosts=(str(known), "/nowhere"), hash_names=hashed)
    connect(settings, accept_new=True)
    assert known.stat().st_mode & 0o777 == 0o600
    assert connect(settings) == sshd.key()
    assert ("127.0.0.1" in known.read_text()) is not hashed
    argv = ["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", str(known)]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_a_line_is_added_after_one_without_an_end(sshd: Sshd, known: Path) -> None:
    settings = knowing(sshd, known, sshd.known(name="other").strip())
    connect(settings, accept_new=True)
    assert known.read_text() == sshd.known(name="other") + sshd.known()


def test_nothing_happens_to_a_file_that_is_none(sshd: Sshd) -> None:
    mode = Path("/dev/null").stat().st_mode
    connect(sshd.settings(known_hosts=("/dev/null",)), accept_new=True)
    assert Path("/dev/null").stat().st_mode == mode


def test_many_at_once_write_one_line(sshd: Sshd, known: Path) -> None:
    settings = [sshd.settings(name=f"node{number}", known_hosts=(str(known),)) for number in range(16)]
    made = connect_all(settings, accept_new=True)
    assert [one for one in made.values() if isinstance(one, MachineError)] == []
    for connection in made.values():
        assert isinstance(connection, Connection)
        connection.close()
    assert known.read_text() == sshd.known()


@pytest.mark.parametrize(
    "line",
    ["nonsense", "host ssh-ed25519", "@odd host ssh-ed25519 AAAA", "host ssh-ed25519 ~~~", "|1|x|y ssh-rsa AAAA"],
)
def test_lines_without_sense_know_nobody(sshd: Sshd, known: Path, line: str) -> None:
    assert connect(knowing(sshd, known, f"{line}\n{sshd.known()}")) == sshd.key()
