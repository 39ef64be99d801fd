"""Connections to a real sshd on this machine."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Connection, LostError
from fabbench.remote.host import RemoteHost
from fabbench.remote.ssh_config import TimeLimits
from tests.support.local_runs import alive, eventually
from tests.support.sshd import USER, Sshd, free_port, make_key, public, running_agent, running_sshd

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


BOTH = ["", pytest.param("asked for", marks=pytest.mark.slow)]
"""The setting `openssh`: paramiko connects, or OpenSSH does."""
NAMES = ["paramiko", "openssh"]


@pytest.fixture(params=BOTH, ids=NAMES)
def openssh(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connection(sshd: Sshd, openssh: str) -> Iterator[Connection]:
    made = Connection(sshd.settings(openssh=openssh))
    made.connect()
    yield made
    made.close()


def failure(settings: object, **options: bool) -> MachineError:
    connection = Connection(settings, **options)  # type: ignore[arg-type]
    with pytest.raises(MachineError) as caught:
        connection.connect()
    assert not connection.alive
    connection.close()
    return caught.value


# -- answers


@pytest.mark.parametrize("text", ["yes", "exec tr '\\0' x </dev/zero"])
def test_a_host_that_prints_without_end_is_given_up(connection: Connection, text: str) -> None:
    """Its lines, or its only line, are not kept without end either."""
    with pytest.raises(MachineError, match="printed more than 16 MiB as an answer; giving up"):
        connection.run(["sh", "-c", text], timeout_s=60)
    assert connection.run(["echo", "here"]).out == ["here"]


def test_a_host_whose_connection_has_no_port(tmp_path: Path) -> None:
    command = 'ForceCommand env SSH_CONNECTION="x y" sh -c "$SSH_ORIGINAL_COMMAND"'
    with running_sshd(tmp_path / "s", command) as sshd:
        made = Connection(sshd.settings())
        made.connect()
        host = RemoteHost("node1", made, token="0123456789abcdef", lost_after_s=60)
        with pytest.raises(MachineError, match="SSH_CONNECTION on node1 is 'x y', not four words"):
            host.start()
        assert host.clean() == []
        made.close()


# -- logging in


def test_a_key_file_opens_the_door_and_the_host_key_is_told(sshd: Sshd, connection: Connection) -> None:
    assert connection.run(["echo", "here"]).out == ["here"]
    assert connection.host_key == sshd.key()


def test_connecting_twice_is_connecting_once(connection: Connection) -> None:
    connection.connect()
    assert connection.alive


def test_after_close_it_can_be_connected_again(sshd: Sshd, openssh: str) -> None:
    connection = Connection(sshd.settings(openssh=openssh))
    connection.connect()
    connection.close()
    assert not connection.alive
    with pytest.raises(LostError, match="closed"):
        connection.run(["true"])
    connection.connect()
    assert connection.run(["true"]).status == 0
    connection.close()


@pytest.mark.parametrize("only", [False, True])
def test_the_agent_s_key_opens_the_door(sshd: Sshd, tmp_path: Path, only: bool, openssh: str) -> None:
    other = make_key(tmp_path / "other")
    shutil.copy(sshd.folder / "user.pub", tmp_path / "named.pub")
    with running_agent(tmp_path, other, sshd.folder / "user") as agent:
        settings = sshd.settings(
            identities=(str(tmp_path / "named"),) if only else (),
            identity_agent=agent,
            identities_only=only,
            openssh=openssh,
        )
        connection = Connection(settings)
        connection.connect()
        assert connection.run(["true"]).status == 0
        connection.close()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_open_the_door(sshd: Sshd, tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path / "key", kind=kind)
    allowed = sshd.folder / "authorized_keys"
    with allowed.open("a") as file:
        file.write(" ".join(public(key)) + "\n")
    connection = Connection(sshd.settings(identities=(str(key),)))
    connection.connect()
    assert connection.alive
    connection.close()


def test_a_certificate_beside_the_key_opens_the_door(tmp_path: Path, openssh: str) -> None:
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    signing = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", USER, f"{key}.pub"]
    subprocess.run(signing, check=True)
    with running_sshd(tmp_path / "s", f"TrustedUserCAKeys {authority}.pub") as sshd:
        connection = Connection(sshd.settings(identities=(str(key),), openssh=openssh))
        connection.connect()
        assert connection.alive
        connection.close()


def test_a_wrong_key_is_named_with_its_fingerprint(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    key = make_key(tmp_path / "wrong")
    error = failure(sshd.settings(identities=(str(key),), openssh=openssh))
    printed = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True)
    assert f"Login to node1 (root@127.0.0.1:{sshd.port}) refused with {key}" in str(error)
    assert printed.stdout.split()[1] in str(error)


def test_an_encrypted_key_needs_the_agent(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret")
    error = failure(sshd.settings(identities=(str(key),), openssh=openssh))
    assert f"{key} is encrypted" in str(error)
    assert f"ssh-add {key}" in str(error.hint)


def test_an_identity_that_is_not_there_is_told(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    assert "missing does not exist" in str(
        failure(sshd.settings(identities=(str(tmp_path / "missing"),), openssh=openssh))
    )


def test_an_agent_that_does_not_answer_is_told(sshd: Sshd, tmp_path: Path) -> None:
    error = failure(sshd.settings(identities=(), identity_agent=str(tmp_path / "gone"), identities_only=False))
    assert "No key to log in to node1" in str(error)
    assert "gone does not answer" in str(error)


def test_too_many_keys_end_in_advice(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    keys = tuple(str(make_key(tmp_path / f"key{number}")) for number in range(8))
    error = failure(sshd.settings(identities=keys, openssh=openssh))
    assert "closed the connection after" in str(error)
    assert "IdentitiesOnly" in str(error.hint)


def test_no_such_user_looks_like_a_wrong_key(sshd: Sshd, openssh: str) -> None:
    assert "nobody-here@" in str(failure(sshd.settings(user="nobody-here", openssh=openssh)))


# -- getting there


def test_a_refused_connection_is_told(sshd: Sshd, openssh: str) -> None:
    error = failure(sshd.settings(port=free_port(), openssh=openssh))
    assert "refused the connection" in str(error)
    assert "sshd" in str(error.hint)


def test_a_name_without_an_address_is_told(sshd: Sshd, openssh: str) -> None:
    error = failure(sshd.settings(address="no-such-host.invalid", openssh=openssh))
    assert "cannot resolve host no-such-host.invalid" in str(error)


def test_an_address_that_does_not_answer_is_given_up(sshd: Sshd, openssh: str) -> None:
    limits = TimeLimits(connect_s=0.5, address_s=0.5)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # more than wait to be taken: the kernel drops what comes then
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        error = failure(sshd.settings(port=server.getsockname()[1], limits=limits, openssh=openssh))
    # OpenSSH knows whole seconds.
    assert f"did not answer within {'1' if openssh else '0.5'} s" in str(error)
    assert "firewall" in str(error.hint)


def test_who_takes_connections_and_says_nothing_is_given_up(sshd: Sshd, openssh: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        error = failure(
            sshd.settings(
                port=server.getsockname()[1], limits=TimeLimits(connect_s=1.0, handshake_s=1.0), openssh=openssh
            )
        )
    assert re.search(r"sent nothing for \d+ s", str(error))


def test_what_is_no_sshd_is_told(sshd: Sshd, openssh: str) -> None:
    with talking(b"HTTP/1.1 400 Bad Request\r\n" * 101) as port:
        assert "ssh negotiation with" in str(failure(sshd.settings(port=port, openssh=openssh)))


def test_who_hangs_up_is_tried_again_and_then_given_up(sshd: Sshd, openssh: str) -> None:
    with talking(b"") as port:
        error = failure(sshd.settings(port=port, limits=TimeLimits(back_off_s=0.001), openssh=openssh))
    assert "8 times" in str(error)
    assert "MaxStartups" in str(error.hint)


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


def test_a_jump_host_leads_to_another(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    with running_sshd(tmp_path / "inner") as inner:
        jump = sshd.settings(name="jump", openssh=openssh)
        connection = Connection(inner.settings(name="inner", jumps=(jump,), openssh=openssh))
        connection.connect()
        assert connection.host_key == inner.key()
        assert connection.run(["echo", "inside"]).out == ["inside"]
        connection.close()
        assert eventually(lambda: not sshd.children() and not inner.children())


def test_each_jump_host_s_key_is_checked(sshd: Sshd, tmp_path: Path, openssh: str) -> None:
    jump = sshd.settings(name="jump", known_hosts=(str(tmp_path / "none"),), openssh=openssh)
    error = failure(sshd.settings(jumps=(jump,), openssh=openssh))
    assert "node1" in str(error)
    assert "jump (root@127.0.0.1" in str(error)


def test_a_jump_host_that_gets_nowhere_says_why(sshd: Sshd, openssh: str) -> None:
    port = free_port()
    error = failure(sshd.settings(port=port, jumps=(sshd.settings(name="jump", openssh=openssh),), openssh=openssh))
    assert f"node1 (root@127.0.0.1:{port} via jump) is unreachable from its jump host jump" in str(error)


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
    connection = Connection(sshd.settings(proxy_command=f'python3 -c "{relay}"', openssh=openssh))
    connection.connect()
    os.kill(int(mark.read_text()), signal.SIGINT)  # Ctrl-C must leave a connection to clean up with
    assert connection.run(["echo", "through"]).out == ["through"]
    connection.close()
    assert eventually(lambda: not Path(f"/proc/{mark.read_text()}").exists())


def test_a_proxy_command_that_fails_is_quoted(sshd: Sshd, openssh: str) -> None:
    error = failure(sshd.settings(proxy_command="sh -c 'echo the tunnel is down >&2; exit 1'", openssh=openssh))
    assert "says: the tunnel is down" in str(error)


# -- programs over there


@pytest.mark.parametrize(
    ("argv", "status"),
    [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["no-such-program"], 127), (["sh", "-c", "kill -9 $$"], -1)],
)
def test_statuses_are_the_program_s(connection: Connection, argv: list[str], status: int) -> None:
    assert connection.run(argv).status == status


def test_words_arrive_as_they_were_sent(connection: Connection) -> None:
    words = ["a b", "it's", 'say "x"', "new\nline", "é ü 漢", "back\\slash", "!!", "=ls", "~", "*", "$HOME", "`id`", ""]
    done = connection.run(["printf", "[%s]", *words])
    assert "\n".join(done.out) == "".join(f"[{word}]" for word in words)


def test_eight_megabytes_of_errors_do_not_stop_the_output(connection: Connection) -> None:
    done = connection.run(["sh", "-c", "yes error | head -c 8000000 >&2; echo out; exit 3"])
    assert done.out == ["out"]
    assert done.status == 3
    assert set(list(done.err)[:-1]) == {"error"}


def test_more_input_than_fits_comes_back_whole(connection: Connection) -> None:
    sent = b"0123456789" * 9 + b"\n"
    assert connection.run(["cat"], stdin=sent * 50_000).out == [sent.decode().strip()] * 50_000


def test_input_that_nobody_reads_is_no_failure(connection: Connection) -> None:
    assert connection.run(["true"], stdin=b"x" * 3_000_000).status == 0


def test_what_a_program_leaves_behind_does_not_hold_us_up(connection: Connection) -> None:
    """The program has ended when what it left still runs."""
    (pid,) = connection.run(["sh", "-c", "sleep 300 & echo $!"]).out
    assert alive(int(pid))
    os.kill(int(pid), signal.SIGKILL)


def test_a_program_that_takes_too_long_is_given_up(connection: Connection) -> None:
    with pytest.raises(MachineError, match=r"sleep on node1 .* timed out"):
        connection.run(["sleep", "20"], timeout_s=0.3)
    assert connection.run(["true"]).status == 0


def test_lines_come_as_they_are_printed_and_input_gets_there(connection: Connection) -> None:
    pipe = connection.open(["sh", "-c", "while read -r line; do echo got $line; echo error >&2; done; exit 4"])
    lines = pipe.lines()
    pipe.send(b"one\n")
    assert next(lines) == "got one"
    pipe.send(b"two\n")
    assert next(lines) == "got two"
    pipe.end_input()
    assert list(lines) == []
    assert pipe.status == 4
    assert list(pipe.err) == ["error", "error"]
    pipe.close()


def test_a_connection_that_breaks_in_mid_run_is_lost(sshd: Sshd, connection: Connection) -> None:
    pipe = connection.open(["sh", "-c", "echo begun; sleep 20"])
    lines = pipe.lines()
    assert next(lines) == "begun"
    sshd.end_connections()
    with pytest.raises(LostError, match=r"The connection to node1 .* broke"):
        list(lines)
    with pytest.raises(LostError):
        connection.run(["true"])
    assert not connection.alive


def test_a_machine_that_no_longer_answers_is_lost(sshd: Sshd, connection: Connection, openssh: str) -> None:
    assert connection.answers()
    connection = Connection(sshd.settings(limits=TimeLimits(silence_s=0.3, answer_s=0.5), openssh=openssh))
    connection.connect()
    pipe = connection.open(["sh", "-c", "echo begun; sleep 20"])
    with sshd.frozen(), pytest.raises(LostError, match="does not answer"):
        list(pipe.lines())
    assert not connection.alive


def test_more_programs_at_once_than_sshd_takes_go_over_another_connection(connection: Connection) -> None:
    """MaxSessions is 10, as sshd comes."""
    pipes = [connection.open(["sh", "-c", f"echo {number}; read word"]) for number in range(25)]
    assert [next(pipe.lines()) for pipe in pipes] == [str(number) for number in range(25)]
    connection.close()
    with pytest.raises(LostError):
        list(pipes[-1].lines())


def test_nothing_is_written_to_the_terminal(sshd: Sshd, capfd: pytest.CaptureFixture[str], openssh: str) -> None:
    failure(replace(sshd.settings(openssh=openssh), port=free_port()))
    connection = Connection(sshd.settings(openssh=openssh))
    connection.connect()
    sshd.end_connections()
    assert eventually(lambda: not connection.alive)
    connection.close()
    assert capfd.readouterr() == ("", "")
