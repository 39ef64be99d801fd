"""Connections to a real sshd on this machine, by either client.

Logging in, getting there, programs, what is lost.
"""

import contextlib
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.openssh import OpenSsh
from fabbench.remote.paramiko_client import Paramiko
from fabbench.remote.ssh_transport import SshHost, SshTransport
from fabbench.remote.transport import LostError
from tests.support.local_runs import eventually
from tests.support.sshd import (
    USER,
    Sshd,
    changed,
    config_of,
    free_port,
    make_key,
    public,
    running_agent,
    running_sshd,
)
from tests.support.tiers import sampled

pytestmark = pytest.mark.lab
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


@pytest.fixture(params=[OpenSsh, pytest.param(Paramiko, marks=slow)])
def client(request: pytest.FixtureRequest) -> type[SshTransport]:
    made: type[SshTransport] = request.param
    return made


@pytest.fixture
def connection(sshd: Sshd, client: type[SshTransport]) -> Iterator[SshTransport]:
    with connected(client(sshd.host())) as made:
        yield made


@contextlib.contextmanager
def connected(made: SshTransport) -> Iterator[SshTransport]:
    made.connect()
    try:
        yield made
    finally:
        made.close()


def failure(made: SshTransport) -> tuple[str, str]:
    """What is said where there can be no connection: the error, and its hint."""
    with pytest.raises(MachineError) as caught:
        made.connect()
    assert not made.alive
    made.close()
    return str(caught.value), str(caught.value.hint)


# -- logging in


def test_a_key_opens_the_door(sshd: Sshd, connection: SshTransport) -> None:
    assert connection.run(["echo", "here"]).out == ["here"]
    connection.connect()  # a second time is none
    connection.close()
    assert not connection.alive
    with pytest.raises(LostError, match="closed"):
        connection.run(["true"])
    connection.connect()
    assert connection.run(["true"]).status == 0


def test_options_count_more_than_the_configuration(sshd: Sshd, client: type[SshTransport]) -> None:
    host = sshd.host("User nobody-here", "Port 1", "IdentityFile /nowhere")
    options = changed(host, user=USER, port=sshd.port, identity=sshd.folder / "user")
    for chosen in (options, replace(changed(options, user="nobody-here"), name=f"{USER}@node1")):
        with connected(client(chosen)) as connection:
            assert connection.run(["id", "-un"]).out == [USER]


@slow
@pytest.mark.parametrize("only", [False, True])
def test_the_agents_key_opens_the_door(
    sshd: Sshd, tmp_path: Path, only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(sshd.folder / "user.pub", tmp_path / "named.pub")
    with running_agent(tmp_path, make_key(tmp_path / "other"), sshd.folder / "user") as agent:
        monkeypatch.setenv("SSH_AUTH_SOCK", agent)
        lines = (
            ["IdentitiesOnly yes", f"IdentityFile {tmp_path}/named.pub"]
            if only
            else ["IdentitiesOnly no"]
        )
        for client in (OpenSsh,) if only else (OpenSsh, Paramiko):
            with connected(
                client(sshd.host("IdentityAgent SSH_AUTH_SOCK", "IdentityFile /none", *lines))
            ) as made:
                assert made.run(["true"]).status == 0


LOGINS: Mapping[str, tuple[Callable[[Path], list[str]], str, str]] = {
    "wrong": (
        lambda folder: [f"IdentityFile {make_key(folder / 'wrong')}"],
        "node1",
        "BatchMode=yes node1",
    ),
    "locked": (
        lambda folder: [f"IdentityFile {make_key(folder / 'l', passphrase='x')}"],
        "node1",
        "",
    ),
    "nobody": (lambda _: ["User nobody-here"], "node1", "BatchMode=yes node1"),
}


@pytest.mark.parametrize("kind", sampled([*LOGINS], every=9))
def test_a_login_that_is_refused_tells_the_way_out(
    sshd: Sshd, tmp_path: Path, client: type[SshTransport], kind: str
) -> None:
    lines, said, advice = LOGINS[kind]
    error, hint = failure(client(sshd.host(*lines(tmp_path))))
    assert said in error
    assert advice in hint


# -- host keys


def test_an_unknown_host_is_refused_unless_it_is_accepted(
    sshd: Sshd, client: type[SshTransport]
) -> None:
    """Whatever the configuration says of StrictHostKeyChecking."""
    host = sshd.host("StrictHostKeyChecking no", known="")
    known = config_of(host).with_name("known")
    assert "--accept-new-host-keys" in failure(client(host))[1]
    assert not known.read_text()
    with connected(client(changed(host, accept_new_host_keys=True))):
        assert " ".join(sshd.key()) in known.read_text()
    with connected(client(host)):
        pass


def test_a_changed_key_is_refused_always(
    sshd: Sshd, client: type[SshTransport], tmp_path: Path
) -> None:
    kind, key = public(make_key(tmp_path / "old"))
    text = f"# one line before\n[127.0.0.1]:{sshd.port} {kind} {key}\n"
    for accept_new in (False, True):
        host = sshd.host(known=text, accept_new=accept_new)
        error, hint = failure(client(host))
        assert "has changed" in error
        assert "ssh-keygen" in hint
        assert config_of(host).with_name("known").read_text() == text


# -- getting there


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "efused|Unable to connect"),
        pytest.param("HostName no-such-host.invalid", "no-such-host|not known", marks=slow),
    ],
)
def test_why_a_host_is_not_reached(
    sshd: Sshd, client: type[SshTransport], line: str, said: str
) -> None:
    with pytest.raises(MachineError, match=said):
        client(sshd.host(line or f"Port {free_port()}")).connect()


@slow
@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 400 Bad Request\r\n" * 101, b""], ids=["another protocol", "hangs up"]
)
def test_what_is_no_sshd_is_reported(
    sshd: Sshd, client: type[SshTransport], text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabbench.remote.ssh_transport._MAX_BACK_OFF_S", 0.001)
    with talking(text) as port:
        assert "node1" in failure(client(sshd.host(f"Port {port}")))[0]


@contextlib.contextmanager
def talking(text: bytes) -> Iterator[int]:
    """Take connections, say something, and hang up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken, _ = server.accept()
                    with taken:
                        taken.recv(100)
                        taken.sendall(text)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def behind(jump: SshHost, inner: SshHost) -> SshHost:
    """One configuration of both."""
    both = config_of(inner).with_name("both")
    both.write_text(config_of(jump).read_text() + config_of(inner).read_text())
    return changed(inner, ssh_config=both)


def test_a_jump_host_leads_to_another(
    sshd: Sshd, tmp_path: Path, client: type[SshTransport]
) -> None:
    with running_sshd(tmp_path / "inner") as inner:
        host = behind(sshd.host(name="jump"), inner.host("ProxyJump jump", name="inner"))
        with connected(client(host)) as connection:
            assert connection.run(["echo", "inside"]).out == ["inside"]
        assert eventually(lambda: not sshd.children() and not inner.children())
        unknown = behind(
            sshd.host(name="jump", known=""), inner.host("ProxyJump jump", name="inner")
        )
        failure(client(unknown))


# -- programs over there

WORDS = [
    "a b",
    "it's",
    'say "x"',
    "new\nline",
    "é ü 漢",
    "back\\slash",
    "!!",
    "=ls",
    "~",
    "*",
    "$HOME",
    "`id`",
    "",
]


def test_words_arrive_and_statuses_come_back(connection: SshTransport) -> None:
    done = connection.run(["printf", "[%s]", *WORDS])
    assert "\n".join(done.out) == "".join(f"[{word}]" for word in WORDS)
    ends = {"true": 0, "exit 7": 7, "exec no-such-program": 127, "exit 255": 255}
    assert {text: connection.run(["sh", "-c", text]).status for text in ends} == ends
    assert connection.run(["sh", "-c", "kill -9 $$"]).status in {-1, 255}  # ssh tells no more


def test_lines_come_as_they_are_printed_and_input_gets_there(connection: SshTransport) -> None:
    pipe = connection.open(
        ["sh", "-c", "while read -r line; do echo got $line; echo error >&2; done; exit 4"]
    )
    lines = pipe.lines()
    pipe.send(b"one\n")
    assert next(lines) == "got one"
    pipe.send(b"two\n")
    assert next(lines) == "got two"
    pipe.end_input()
    assert (list(lines), pipe.status, list(pipe.err)) == ([], 4, ["error", "error"])
    pipe.close()


@slow
def test_streams_that_are_long_or_that_nobody_reads(connection: SshTransport) -> None:
    done = connection.run(["sh", "-c", "yes error | head -c 8000000 >&2; echo out; exit 3"])
    assert (done.out, done.status, set(list(done.err)[:-1])) == (["out"], 3, {"error"})
    sent = b"0123456789" * 9 + b"\n"
    assert (
        connection.run(["cat"], stdin=sent * 50_000, timeout_s=120).out
        == [sent.decode().strip()] * 50_000
    )
    assert connection.run(["true"], stdin=b"x" * 3_000_000).status == 0


@slow
@pytest.mark.parametrize("text", ["yes", "exec tr '\\0' x </dev/zero"])
def test_a_host_that_prints_without_end_is_given_up(connection: SshTransport, text: str) -> None:
    """Its lines, or its only line, are not kept without end either."""
    with pytest.raises(MachineError, match="more than 16 MiB"):
        connection.run(["sh", "-c", text], timeout_s=60)
    assert connection.run(["echo", "here"]).out == ["here"]


def test_a_program_that_takes_too_long(connection: SshTransport) -> None:
    with pytest.raises(MachineError, match="timed out"):
        connection.run(["sleep", "600"], timeout_s=0.3)


@slow
def test_more_programs_at_once_than_a_connection_takes(connection: SshTransport) -> None:
    """MaxSessions is 10, as sshd comes."""
    pipes = []
    for number in range(14):
        pipes.append(connection.open(["sh", "-c", f"echo {number}; read word"]))
        assert next(pipes[-1].lines()) == str(number)
    connection.close()
    with pytest.raises(LostError):
        list(pipes[-1].lines())


# -- what is lost


def test_a_connection_that_breaks_in_mid_run_is_lost(sshd: Sshd, connection: SshTransport) -> None:
    lines = connection.open(["sh", "-c", "echo begun; sleep 60"]).lines()
    assert next(lines) == "begun"
    sshd.end_connections()
    with pytest.raises(LostError, match="broke"):
        list(lines)
    with pytest.raises(LostError):
        connection.run(["true"])
    assert not connection.alive


@slow
def test_a_machine_that_no_longer_answers_is_lost(sshd: Sshd, client: type[SshTransport]) -> None:
    with connected(client(sshd.host())) as connection:
        pipe = connection.open(["sh", "-c", "echo begun; sleep 60"])
        lines = pipe.lines()
        assert next(lines) == "begun"
        with sshd.frozen():
            with pytest.raises(MachineError):
                connection.run(["true"], timeout_s=2)
            connection.close()
            with pytest.raises(LostError):
                list(lines)
        assert not connection.alive


@slow
def test_nothing_is_written_to_the_terminal(
    sshd: Sshd, capfd: pytest.CaptureFixture[str], client: type[SshTransport]
) -> None:
    failure(client(sshd.host(f"Port {free_port()}")))
    with connected(client(sshd.host())) as connection:
        sshd.end_connections()
        assert eventually(lambda: not connection.alive)
    assert capfd.readouterr() == ("", "")
