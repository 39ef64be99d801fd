"""Connections to a real sshd on this machine, by either client: logging in, getting there, programs."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Connection, LostError
from fabbench.remote.ssh_config import SshSettings, TimeLimits
from tests.support.local_runs import alive, eventually
from tests.support.sshd import Sshd, free_port, make_key, running_agent, running_sshd
from tests.support.tiers import sampled

pytestmark = pytest.mark.lab
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


@pytest.fixture(params=["", pytest.param("asked for", marks=slow)], ids=["paramiko", "openssh"])
def openssh(request: pytest.FixtureRequest) -> str:
    """The setting `openssh`: paramiko connects, or OpenSSH does."""
    return str(request.param)


@pytest.fixture
def connection(sshd: Sshd, openssh: str) -> Iterator[Connection]:
    with connected(sshd.settings(openssh=openssh)) as made:
        yield made


@contextlib.contextmanager
def connected(settings: SshSettings) -> Iterator[Connection]:
    made = Connection(settings)
    made.connect()
    try:
        yield made
    finally:
        made.close()


def failure(settings: SshSettings) -> tuple[str, str]:
    """What is said where there can be no connection: the error, and its hint."""
    connection = Connection(settings)
    with pytest.raises(MachineError) as caught:
        connection.connect()
    assert not connection.alive
    connection.close()
    return str(caught.value), str(caught.value.hint)


# -- logging in


def test_a_key_opens_the_door_and_the_host_key_is_told(sshd: Sshd, connection: Connection) -> None:
    assert connection.run(["echo", "here"]).out == ["here"]
    assert connection.host_key == sshd.key()
    connection.connect()  # a second time is none
    connection.close()
    assert not connection.alive
    with pytest.raises(LostError, match="closed"):
        connection.run(["true"])
    connection.connect()
    assert connection.run(["true"]).status == 0


@slow
@pytest.mark.parametrize("only", [False, True])
def test_the_agents_key_opens_the_door(sshd: Sshd, tmp_path: Path, only: bool, openssh: str) -> None:
    other = make_key(tmp_path / "other")
    shutil.copy(sshd.folder / "user.pub", tmp_path / "named.pub")
    with running_agent(tmp_path, other, sshd.folder / "user") as agent:
        named = (str(tmp_path / "named"),) if only else ()
        own: dict[str, Any] = {"identities": named, "identity_agent": agent, "identities_only": only}
        with connected(sshd.settings(**own, openssh=openssh)) as connection:
            assert connection.run(["true"]).status == 0


LOGINS: Mapping[str, tuple[Callable[[Path], dict[str, Any]], str, str]] = {
    "wrong": (lambda folder: identities(make_key(folder / "wrong")), "/wrong", ""),
    "locked": (lambda folder: identities(make_key(folder / "l", passphrase="x")), "/l is encrypted", "ssh-add"),
    "absent": (lambda folder: identities(folder / "missing"), "missing does not exist", ""),
    "many": (lambda folder: identities(*(make_key(folder / x) for x in "abcdefgh")), "closed", "IdentitiesOnly"),
    "nobody": (lambda _: {"user": "nobody-here"}, "nobody-here@", ""),
}


def identities(*keys: Path) -> dict[str, Any]:
    return {"identities": tuple(map(str, keys))}


@pytest.mark.parametrize("kind", sampled([*LOGINS], every=9))
def test_a_login_that_is_refused_names_the_key_and_the_way_out(
    sshd: Sshd, tmp_path: Path, openssh: str, kind: str
) -> None:
    made, said, hint = LOGINS[kind]
    error, advice = failure(sshd.settings(**made(tmp_path), openssh=openssh))
    assert said in error
    assert hint in advice
    if kind == "wrong":
        printed = subprocess.run(["ssh-keygen", "-lf", tmp_path / "wrong"], capture_output=True, text=True, check=True)
        assert printed.stdout.split()[1] in error


# -- getting there


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"port": 0}, "refused the connection", "sshd"),
        pytest.param({"address": "no-such-host.invalid"}, "cannot resolve host", "", marks=slow),
        pytest.param({"proxy_command": "sh -c 'echo no tunnel >&2; exit 1'"}, "no tunnel", "", marks=slow),
    ],
)
def test_why_a_host_is_not_reached(sshd: Sshd, openssh: str, changes: dict[str, Any], said: str, hint: str) -> None:
    if "port" in changes:
        changes = {"port": free_port()}
    error, advice = failure(sshd.settings(**changes, openssh=openssh))
    assert said in error
    assert hint in advice


@slow
def test_an_address_that_does_not_answer_is_given_up(sshd: Sshd, openssh: str) -> None:
    limits = TimeLimits(connect_s=0.5, address_s=0.5)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # more than wait to be taken: the kernel drops what comes then
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        error, advice = failure(sshd.settings(port=server.getsockname()[1], limits=limits, openssh=openssh))
    assert "did not answer" in error
    assert "firewall" in advice


@slow
@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "sent nothing for"), (b"HTTP/1.1 400 Bad Request\r\n" * 101, "ssh negotiation with"), (b"", "8 times")],
    ids=["nothing", "another protocol", "hangs up"],
)
def test_what_is_no_sshd_is_told(sshd: Sshd, openssh: str, text: bytes | None, said: str) -> None:
    limits = TimeLimits(back_off_s=0.001)
    if text is None:
        limits = TimeLimits(connect_s=1.0, handshake_s=1.0)
    with talking(text) as port:
        assert said in failure(sshd.settings(port=port, limits=limits, openssh=openssh))[0]


@contextlib.contextmanager
def talking(text: bytes | None) -> Iterator[int]:
    """Take connections, say something, and hang up; None: neither."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken, _ = server.accept()
                    with taken:
                        taken.recv(100)
                        taken.sendall(text or b"")

        thread = threading.Thread(target=serve)
        if text is not None:
            thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            if text is not None:
                thread.join()


def test_a_jump_host_leads_to_another(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    with running_sshd(tmp_path / "inner") as inner:
        jump = sshd.settings(name="jump", openssh=openssh)
        with connected(inner.settings(name="inner", jumps=(jump,), openssh=openssh)) as connection:
            assert connection.host_key == inner.key()
            assert connection.run(["echo", "inside"]).out == ["inside"]
        assert eventually(lambda: not sshd.children() and not inner.children())


@slow
def test_a_jump_host_is_checked_and_named(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    jump = sshd.settings(name="jump", openssh=openssh)
    unknown = replace(jump, known_hosts=(str(tmp_path / "none"),))
    assert "jump (root@127.0.0.1" in failure(sshd.settings(jumps=(unknown,), openssh=openssh))[0]
    assert "via jump" in failure(sshd.settings(port=free_port(), jumps=(jump,), openssh=openssh))[0]


@slow
def test_a_proxy_command_carries_the_connection_and_leaves_no_process(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    mark = tmp_path / "pid"
    relay = (
        "import os,socket,sys,threading;"
        f"open({str(mark)!r},'w').write(str(os.getpid()));"
        f"s=socket.create_connection(('127.0.0.1',{sshd.port}));"
        "t=threading.Thread(target=lambda:[os.write(1,d) for d in iter(lambda:s.recv(9999),b'')],daemon=1);"
        "t.start();"
        "[s.sendall(d) for d in iter(lambda:os.read(0,65536),b'')]"
    )
    with connected(sshd.settings(proxy_command=f'python3 -c "{relay}"', openssh=openssh)) as connection:
        os.kill(int(mark.read_text()), signal.SIGINT)  # Ctrl-C must leave a connection to clean up with
        assert connection.run(["echo", "through"]).out == ["through"]
    assert eventually(lambda: not Path(f"/proc/{mark.read_text()}").exists())


# -- programs over there

WORDS = ["a b", "it's", 'say "x"', "new\nline", "é ü 漢", "back\\slash", "!!", "=ls", "~", "*", "$HOME", "`id`", ""]


def test_words_arrive_and_statuses_come_back(connection: Connection) -> None:
    done = connection.run(["printf", "[%s]", *WORDS])
    assert "\n".join(done.out) == "".join(f"[{word}]" for word in WORDS)
    ends = {"true": 0, "exit 7": 7, "exec no-such-program": 127, "kill -9 $$": -1}
    assert {text: connection.run(["sh", "-c", text]).status for text in ends} == ends


def test_lines_come_as_they_are_printed_and_input_gets_there(connection: Connection) -> None:
    pipe = connection.open(["sh", "-c", "while read -r line; do echo got $line; echo error >&2; done; exit 4"])
    lines = pipe.lines()
    pipe.send(b"one\n")
    assert next(lines) == "got one"
    pipe.send(b"two\n")
    assert next(lines) == "got two"
    pipe.end_input()
    assert (list(lines), pipe.status, list(pipe.err)) == ([], 4, ["error", "error"])
    pipe.close()


@slow
def test_streams_that_are_long_or_that_nobody_reads(connection: Connection) -> None:
    done = connection.run(["sh", "-c", "yes error | head -c 8000000 >&2; echo out; exit 3"])
    assert (done.out, done.status, set(list(done.err)[:-1])) == (["out"], 3, {"error"})
    sent = b"0123456789" * 9 + b"\n"
    assert connection.run(["cat"], stdin=sent * 50_000).out == [sent.decode().strip()] * 50_000
    assert connection.run(["true"], stdin=b"x" * 3_000_000).status == 0


@slow
@pytest.mark.parametrize("text", ["yes", "exec tr '\\0' x </dev/zero"])
def test_a_host_that_prints_without_end_is_given_up(connection: Connection, text: str) -> None:
    """Its lines, or its only line, are not kept without end either."""
    with pytest.raises(MachineError, match="more than 16 MiB"):
        connection.run(["sh", "-c", text], timeout_s=60)
    assert connection.run(["echo", "here"]).out == ["here"]


def test_a_program_that_takes_too_long_or_leaves_something(connection: Connection) -> None:
    with pytest.raises(MachineError, match="timed out"):
        connection.run(["sleep", "600"], timeout_s=0.3)
    # The program has ended when what it left still runs.
    (pid,) = connection.run(["sh", "-c", "sleep 300 & echo $!"]).out
    assert alive(int(pid))
    os.kill(int(pid), signal.SIGKILL)


@slow
def test_more_programs_at_once_than_sshd_takes_go_over_another_connection(connection: Connection) -> None:
    """MaxSessions is 10, as sshd comes."""
    pipes = [connection.open(["sh", "-c", f"echo {number}; read word"]) for number in range(25)]
    assert [next(pipe.lines()) for pipe in pipes] == [str(number) for number in range(25)]
    connection.close()
    with pytest.raises(LostError):
        list(pipes[-1].lines())


# -- what is lost


def test_a_connection_that_breaks_in_mid_run_is_lost(sshd: Sshd, connection: Connection) -> None:
    lines = connection.open(["sh", "-c", "echo begun; sleep 600"]).lines()
    assert next(lines) == "begun"
    sshd.end_connections()
    with pytest.raises(LostError, match="broke"):
        list(lines)
    with pytest.raises(LostError):
        connection.run(["true"])
    assert not connection.alive


@slow
def test_a_machine_that_no_longer_answers_is_lost(sshd: Sshd, openssh: str) -> None:
    limits = TimeLimits(silence_s=0.3, answer_s=5)
    with connected(sshd.settings(limits=limits, openssh=openssh)) as connection:
        assert connection.answers()
        pipe = connection.open(["sh", "-c", "echo begun; sleep 600"])
        with sshd.frozen(), pytest.raises(LostError, match="does not answer"):
            list(pipe.lines())
        assert not connection.alive


@slow
def test_nothing_is_written_to_the_terminal(sshd: Sshd, capfd: pytest.CaptureFixture[str], openssh: str) -> None:
    failure(sshd.settings(openssh=openssh, port=free_port()))
    with connected(sshd.settings(openssh=openssh)) as connection:
        sshd.end_connections()
        assert eventually(lambda: not connection.alive)
    assert capfd.readouterr() == ("", "")
