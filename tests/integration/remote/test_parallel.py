"""Many connections at once, and words through login shells of several kinds."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.model.errors import MachineError, RequestError
from fabbench.remote.connection import Connection, command_line
from fabbench.remote.parallel import connect_all, map_hosts
from tests.support.local_runs import eventually
from tests.support.needed import need
from tests.support.sshd import Sshd, free_port, running_sshd
from tests.support.tiers import sampled

lab, slow = pytest.mark.lab, pytest.mark.slow


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One that turns connections away at random once ten have not logged in yet: sshd's default."""
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


def connected(made: dict[str, Connection | MachineError]) -> dict[str, Connection]:
    assert [one for one in made.values() if isinstance(one, MachineError)] == []
    return {name: one for name, one in made.items() if isinstance(one, Connection)}


def close(made: dict[str, Connection]) -> None:
    for connection in made.values():
        connection.close()


@lab
@slow
def test_64_connections_to_one_sshd_all_succeed(sshd: Sshd) -> None:
    settings = [sshd.settings(name=f"node{number}") for number in range(64)]
    counts: list[int] = []
    made = connected(connect_all(settings, accept_new=False, on_progress=counts.append))
    assert list(made) == [one.name for one in settings]
    assert counts == list(range(1, 65))
    assert all(connection.answers() for connection in made.values())
    close(made)


@lab
@slow
def test_hosts_behind_one_jump_host_share_its_connection(sshd: Sshd, tmp_path: Path) -> None:
    with running_sshd(tmp_path / "inner", "MaxStartups 3:50:10") as inner:
        jump = sshd.settings(name="jump")
        settings = [inner.settings(name=f"node{number}", jumps=(jump,)) for number in range(12)]
        before = sshd.log.count("Accepted publickey")
        made = connected(connect_all(settings, accept_new=False))
        assert sshd.log.count("Accepted publickey") == before + 1
        close({name: made[name] for name in list(made)[1:]})
        assert made["node0"].run(["echo", "still"]).out == ["still"]
        close(made)


@lab
def test_each_hosts_failure_is_its_own(sshd: Sshd) -> None:
    settings = [
        sshd.settings(name="good"),
        sshd.settings(name="off", port=free_port()),
        sshd.settings(name="stranger", known_hosts=()),
    ]
    made = connect_all(settings, accept_new=False)
    good = made["good"]
    assert isinstance(good, Connection)
    assert good.alive
    assert "off" in str(made["off"])
    assert "stranger (" in str(made["stranger"])
    assert not map_hosts({}, str)
    found = map_hosts({"good": good}, lambda connection: connection.run(["echo", connection.settings.name]).out)
    assert found == {"good": ["good"]}
    good.close()
    closed = map_hosts({"good": good}, lambda connection: connection.run(["true"]).out)
    assert isinstance(closed["good"], MachineError)
    with pytest.raises(ZeroDivisionError):  # an error of ours is none of a machine's
        map_hosts({"a": 0}, lambda number: 1 // number)


@lab
@slow
def test_ctrl_c_while_connecting_closes_every_socket(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        settings = [sshd.settings(name=f"n{number}", port=server.getsockname()[1]) for number in range(8)]
        taken: list[socket.socket] = []

        def interrupt() -> None:
            taken.extend(server.accept()[0] for _ in settings)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            connect_all(settings, accept_new=False)
        thread.join()
        for one in taken:
            one.settimeout(60)
            while one.recv(4096):  # what paramiko said, and then the end
                pass
            one.close()
    assert eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("fabbench ssh")])


WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20), max_size=5)


@pytest.mark.local
@pytest.mark.parametrize("shell", sampled(["sh", "bash", "zsh", "csh", "tcsh", "fish", "ksh", "busybox"], every=5))
@given(words=WORDS)
def test_every_login_shell_gets_the_same_words(shell: str, words: list[str]) -> None:
    need(shell)
    login = [shell, "sh", "-c"] if shell == "busybox" else [shell, "-c"]
    argv = ["/usr/bin/printf", r"%s\0", "", *words]
    done = subprocess.run([*login, command_line(argv)], capture_output=True, check=True)
    assert done.stdout == b"".join(os.fsencode(word) + b"\0" for word in ("", *words))


def test_words_that_are_plain_or_that_no_program_can_get() -> None:
    assert command_line(["mpirun", "-np", "2", "a b"]) == "exec mpirun -np 2 'a b'"
    with pytest.raises(RequestError, match="NUL"):
        command_line(["echo", "a\0b"])
