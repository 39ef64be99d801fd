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
from tests.support.tiers import sampled

pytestmark = pytest.mark.lab
slow = pytest.mark.slow


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


def refused(settings: SshSettings, *, accept_new: bool = False) -> tuple[str, str]:
    with pytest.raises(MachineError) as caught:
        connect(settings, accept_new=accept_new)
    return str(caught.value), str(caught.value.hint)


@slow
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_host_is_asked_for_the_kind_of_key_that_is_known(sshd: Sshd, known: Path, kind: str) -> None:
    assert connect(knowing(sshd, known, sshd.known(kind=kind))) == sshd.key(kind)


NONSENSE = "nonsense\nhost ssh-ed25519\n@odd host ssh-ed25519 AAAA\nhost ssh-ed25519 ~~~\n|1|x|y ssh-rsa AAAA\n"


@pytest.mark.parametrize("name", sampled(["127.0.0.1", "[127.0.0.*]:*", "other,127.0.0.?"], every=3))
def test_names_are_read_as_ssh_reads_them(sshd: Sshd, known: Path, name: str) -> None:
    assert connect(knowing(sshd, known, f"# a comment\n\n{NONSENSE}{sshd.known(name=name)}"))


@slow
def test_a_name_can_be_excepted_hashed_or_another(sshd: Sshd, known: Path) -> None:
    assert "is not in " in refused(knowing(sshd, known, sshd.known(name=f"*,![127.0.0.1]:{sshd.port},!127.0.0.1")))[0]
    settings = knowing(sshd, known, sshd.known(name="cluster"))
    assert "is not in " in refused(settings)[0]
    assert connect(replace(settings, host_key_alias="cluster"))
    settings = knowing(sshd, known, sshd.known())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert connect(settings)


def test_an_unknown_host_is_refused_with_the_ways_out(sshd: Sshd, known: Path) -> None:
    error, hint = refused(sshd.settings(known_hosts=(str(known),)))
    key = ["ssh-keygen", "-lf", str(sshd.folder / "host_ed25519")]
    assert str(known) in error
    assert subprocess.run(key, capture_output=True, text=True, check=True).stdout.split()[1] in error
    for way in ("ssh node1", f"ssh-keyscan -p {sshd.port} 127.0.0.1 >>{known}", "--accept-new-host-keys"):
        assert way in hint
    assert not known.exists()


@pytest.mark.parametrize("accept_new", [False, pytest.param(True, marks=slow)])
def test_a_changed_key_is_refused_always(sshd: Sshd, known: Path, tmp_path: Path, accept_new: bool) -> None:
    kind, key = public(make_key(tmp_path / "old"))
    text = f"# one line before\n[127.0.0.1]:{sshd.port} {kind} {key}\n"
    error, hint = refused(knowing(sshd, known, text), accept_new=accept_new)
    assert f"{known}, line 2, has {kind} {hostkeys.fingerprint(key)}" in error
    assert hostkeys.fingerprint(sshd.key()[1]) in error
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f '{known}'" in hint
    assert known.read_text() == text


@slow
def test_what_does_not_pass_for_a_new_key(sshd: Sshd, known: Path, tmp_path: Path) -> None:
    kind, key = public(make_key(tmp_path / "old", kind="ecdsa"))
    with running_sshd(tmp_path / "s") as other:
        settings = knowing(other, known, f"[127.0.0.1]:{other.port} {kind} {key}\n")
        assert f"line 1, has {kind}" in refused(settings, accept_new=True)[0]
    revoked = sshd.known() + "@revoked * " + " ".join(sshd.key()) + "\n"
    assert "revoked" in refused(knowing(sshd, known, revoked), accept_new=True)[0]
    authority = "@cert-authority * " + " ".join(sshd.key()) + "\n"
    assert "host certificates" in refused(knowing(sshd, known, authority))[0]


@slow
@pytest.mark.parametrize("hashed", [False, True])
def test_accepting_writes_what_ssh_reads(sshd: Sshd, known: Path, hashed: bool) -> None:
    settings = sshd.settings(known_hosts=(str(known), "/nowhere"), hash_names=hashed)
    connect(settings, accept_new=True)
    assert known.stat().st_mode & 0o777 == 0o600
    assert connect(settings) == sshd.key()
    assert ("127.0.0.1" in known.read_text()) is not hashed
    argv = ["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", str(known)]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0


@slow
def test_many_at_once_add_one_line(sshd: Sshd, known: Path) -> None:
    """Behind one that had no end."""
    before = sshd.known(name="other")
    knowing(sshd, known, before.strip())
    settings = [sshd.settings(name=f"node{number}", known_hosts=(str(known),)) for number in range(16)]
    made = connect_all(settings, accept_new=True)
    assert [one for one in made.values() if isinstance(one, MachineError)] == []
    for connection in made.values():
        assert isinstance(connection, Connection)
        connection.close()
    assert known.read_text() == before + sshd.known()
    mode = Path("/dev/null").stat().st_mode
    connect(sshd.settings(known_hosts=("/dev/null",)), accept_new=True)
    assert Path("/dev/null").stat().st_mode == mode
