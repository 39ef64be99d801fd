"""What ssh says of a failure, and what a key file says of its kind. Pure."""

import base64
import struct
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.openssh import failure
from fabbench.remote.sockets import DroppedError
from fabbench.remote.ssh_client import key_type
from fabbench.remote.ssh_config import SshSettings

SETTINGS = SshSettings(
    name="node1",
    address="10.0.0.1",
    port=22,
    user="ubuntu",
    identities=(),
    jumps=(),
    proxy_command=None,
    known_hosts=("/home/me/known",),
    host_key_alias=None,
    identities_only=False,
    identity_agent=None,
)


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("Host key verification failed.", "is not in /home/me/known"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "The host key of node1"),
        ("Unable to negotiate: no matching host key type found. Their offer: ssh-dss", "ssh negotiation with node1"),
        ("me@node1: Permission denied (publickey,keyboard-interactive).", "accepts publickey, keyboard-inter"),
        ("connect to host 10.0.0.1 port 22: Connection refused", "refused the connection"),
        ("ssh: Could not resolve hostname 10.0.0.1: no", "has no address: ssh cannot resolve host 10.0.0.1"),
        ("", "It gave no reason."),
    ],
)
def test_a_failure_is_told_in_the_words_of_the_field(said: str, seen: str) -> None:
    error = failure(SETTINGS, [said] if said else [])
    assert isinstance(error, MachineError)
    assert seen in str(error)
    assert error.hint


def test_a_changed_host_key_is_told_with_its_file() -> None:
    said = ["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "Offending ED25519 key in /home/my own/known:3"]
    for lines, file in ((said, "/home/my own/known"), (said[:1], "/home/me/known")):
        error = failure(SETTINGS, lines)
        assert isinstance(error, MachineError)
        assert "has changed." in str(error)
        assert f"ssh-keygen -R '10.0.0.1' -f '{file}'" in str(error.hint)


def test_a_login_that_would_prompt_says_how_to_log_in_first() -> None:
    error = failure(SETTINGS, ["Permission denied (keyboard-interactive)."])
    assert "ControlMaster" in str(getattr(error, "hint", ""))


def test_a_connection_that_was_dropped_is_tried_again() -> None:
    dropped = failure(SETTINGS, ["kex_exchange_identification: Connection closed by remote host"])
    assert isinstance(dropped, DroppedError)


def field(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


@pytest.mark.parametrize("kind", ["ssh-ed25519", "sk-ssh-ed25519@openssh.com"])
def test_a_key_file_says_its_kind_also_where_it_is_encrypted(tmp_path: Path, kind: str) -> None:
    public = field(kind.encode()) + field(b"key")
    body = b"openssh-key-v1\0" + field(b"aes256-ctr") + field(b"bcrypt") + field(b"salt")
    body += struct.pack(">I", 1) + field(public) + field(b"secret")
    lines = ("-----BEGIN OPENSSH PRIVATE KEY-----", base64.b64encode(body).decode(), "-----END-----", "")
    (tmp_path / "key").write_text("\n".join(lines))
    (tmp_path / "key.pub").write_text(f"{kind} AAAA me@laptop\n")
    assert [key_type(str(tmp_path / name)) for name in ("key", "key.pub")] == [kind, kind]


@pytest.mark.parametrize("text", [None, "", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n", "\0\xff"])
def test_a_file_that_does_not_say_it_has_no_kind(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "key").write_text(text, encoding="latin-1")
    assert key_type(str(tmp_path / "key")) in {"", "\0"}
