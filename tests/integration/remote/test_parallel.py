"""Many connections at once, and words through login shells of several kinds."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.counters.watch import HostSamples
from fabbench.execution.script.words import login_command
from fabbench.execution.worker_pool import map_hosts
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Target
from fabbench.remote import SshOptions, allocation
from fabbench.remote.allocation import connect_all
from fabbench.remote.counter_shell import rounds
from fabbench.remote.openssh import OpenSsh
from fabbench.remote.paramiko_client import Paramiko
from fabbench.remote.ssh_transport import SshTransport
from tests.support.needed import need
from tests.support.sshd import Sshd, free_port, running_sshd
from tests.support.tiers import sampled

lab, slow = pytest.mark.lab, pytest.mark.slow


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One that turns connections away at random once ten have not logged in yet: sshd's default."""
    with running_sshd(tmp_path_factory.mktemp("sshd") / "s") as running:
        yield running


@lab
@slow
def test_64_connections_to_one_sshd_all_succeed(sshd: Sshd) -> None:
    host = sshd.host(name="node*")
    counts: list[int] = []
    hosts = [OpenSsh(replace(host, name=f"node{number}")) for number in range(64)]
    made = connect_all(hosts, counts.append)
    assert [*made.values()] == hosts
    assert counts == list(range(1, 65))
    assert all(connection.run(["true"]).status == 0 for connection in hosts)
    for connection in hosts:
        connection.close()


def used_s(sshd: Sshd) -> float:
    """Seconds of processor time of all that serves connections, and of what ended there."""
    ticks = 0
    for pid in sshd.children():
        with contextlib.suppress(OSError):  # it has ended
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
            ticks += sum(map(int, stat.split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@lab
@slow
def test_a_watch_of_64_hosts_costs_little_on_each(sshd: Sshd) -> None:
    """At most one connection, and one percent of a core; `-s` shows how much.

    All are this machine, which has few NICs.
    """
    usual = sshd.host(name="node*")
    hosts = {f"node{number}": OpenSsh(replace(usual, name=f"node{number}")) for number in range(64)}
    before = sshd.log.count("Accepted publickey")
    connect_all([*hosts.values()])
    samples = {name: HostSamples() for name in hosts}
    used: list[float] = []
    for failed in rounds(hosts, samples, 1, 20):
        assert not failed
        used.append(used_s(sshd))
    assert sshd.log.count("Accepted publickey") - before == len(hosts)
    each = (used[-1] - used[0]) / (len(used) - 1) / len(hosts)
    print(f"one sample of a host takes {1000 * each:.2f} ms of a core")
    assert 0 < each < 0.01
    for connection in hosts.values():
        connection.close()


@lab
def test_each_hosts_failure_is_its_own(sshd: Sshd) -> None:
    off, stranger = (
        sshd.host(f"Port {free_port()}", name="off"),
        sshd.host(name="stranger", known=""),
    )
    made = connect_all([OpenSsh(host) for host in (sshd.host(name="good"), off, stranger)])
    good = made["good"]
    assert isinstance(good, OpenSsh)
    assert good.alive
    assert "off cannot" in str(made["off"])
    assert "stranger cannot" in str(made["stranger"])
    assert not map_hosts({}, str)
    found = map_hosts(
        {"good": good}, lambda connection: connection.run(["echo", connection.name]).out
    )
    assert found == {"good": ["good"]}
    good.close()
    closed = map_hosts({"good": good}, lambda connection: connection.run(["true"]).out)
    assert isinstance(closed["good"], MachineError)
    with pytest.raises(ZeroDivisionError):  # an error of ours is none of a machine's
        map_hosts({"a": 0}, lambda number: 1 // number)


@lab
@slow
@pytest.mark.parametrize("client", [OpenSsh, Paramiko])
def test_ctrl_c_while_connecting_closes_every_socket(
    sshd: Sshd, client: type[SshTransport]
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        host = sshd.host(f"Port {server.getsockname()[1]}", name="node*")
        taken: list[socket.socket] = []

        def interrupt() -> None:
            taken.extend(server.accept()[0] for _ in range(8))
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            connect_all([client(replace(host, name=f"node{number}")) for number in range(8)])
        thread.join()
        for one in taken:
            one.settimeout(60)
            while one.recv(4096):  # what the client said, and then the end
                pass
            one.close()


WORDS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    max_size=5,
)


@pytest.mark.local
@pytest.mark.parametrize(
    "shell", sampled(["sh", "bash", "zsh", "csh", "tcsh", "fish", "ksh", "busybox"], every=5)
)
@given(words=WORDS)
def test_every_login_shell_gets_the_same_words(shell: str, words: list[str]) -> None:
    need(shell)
    login = [shell, "sh", "-c"] if shell == "busybox" else [shell, "-c"]
    argv = ["/usr/bin/printf", r"%s\0", "", *words]
    done = subprocess.run([*login, login_command(argv)], capture_output=True, check=True)
    assert done.stdout == b"".join(os.fsencode(word) + b"\0" for word in ("", *words))


def test_words_that_are_plain_or_that_no_program_can_get() -> None:
    assert login_command(["mpirun", "-np", "2"]) == "exec mpirun -np 2"
    with pytest.raises(RequestError, match="NUL"):
        login_command(["echo", "a\0b"])


@pytest.mark.parametrize("chosen", ["auto", "paramiko"])
def test_without_an_ssh_program_paramiko_connects(
    chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = SshOptions(ssh_client=chosen, port=free_port())
    with allocation.connected(
        Target(name="a", launcher="ssh", options=options), ["127.0.0.1"]
    ) as made:
        assert "by paramiko" in str(made["127.0.0.1"])


def test_openssh_without_an_ssh_program_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = Target(name="a", launcher="ssh", options=SshOptions(ssh_client="openssh"))
    with (
        pytest.raises(RequestError, match="ssh-client"),
        allocation.connected(target, ["127.0.0.1"]),
    ):
        pass
