"""mpirun over pods without sshd: its agent asks fabbench, which runs the command by exec."""

import base64
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import SIZES, Client
from tests.support.paths import ROOT

on_cluster = pytest.mark.cluster
SCRIPT = ROOT / "src/fabbench/remote/relay.sh"
EXEC = ("--mpi-agent", "exec", "--image", NO_SSHD)
NCCL = ("nccl", "-e", "1K", "--bin-dir", "/opt/nccl-tests/build", "--repeat", "1")


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


@on_cluster
@pytest.mark.slow
@pytest.mark.parametrize("program", [NCCL, ("pingpong", "--fabric", "tcp", "--size", "64", "--repeat", "1")])
def test_programs_run_on_two_nodes_without_sshd(client: Client, program: tuple[str, ...]) -> None:
    with client.nothing_left():
        done = client.call(client.run_argv(*program, *EXEC))
        assert done.returncode == 0, done.stderr + done.stdout


@on_cluster
@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing(client: Client) -> None:
    with client.nothing_left(), client.cluster.standin(HANG_AT="64"):
        argv = client.run_argv(*NCCL, *EXEC)
        with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:

            def daemons() -> list[str]:
                return [line for line in client.cluster.processes() if "orted" in line]

            begun = processes.eventually(daemons, 150)
            run.send_signal(signal.SIGINT if begun else signal.SIGKILL)
            said = run.communicate(timeout=150)
        assert begun, said
        assert run.returncode == 130, said


@on_cluster
@pytest.mark.slow
def test_the_api_server_restarts_while_mpiruns_daemons_run(client: Client) -> None:
    with client.nothing_left(), client.midway(*EXEC) as run:
        client.cluster.api_restart()
        assert client.rows() == SIZES[:2]
        run.goes_on()
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES


@on_cluster
@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_is_deleted(client: Client, index: int) -> None:
    with client.nothing_left(), client.midway(*EXEC) as run:
        pod = client.pods()[index]
        client.kubectl("delete", pod, "--wait=false")
        assert run.ends() == 3, run.err
    name = pod.removeprefix("pod/")
    gone = rf"^Error: The pod {name} (on ip-\S+ was removed|exited with status 143|is being deleted)"
    assert re.search(gone, run.err, re.MULTILINE), run.err
    assert client.rows() == SIZES[:2]


@on_cluster
@pytest.mark.slow
def test_killed(client: Client) -> None:
    """The cluster ends everything by itself."""
    with client.nothing_left(), client.midway(argv=client.short_lease(*EXEC)) as run:
        run.process.kill()
        run.process.communicate()


SERVED: list["Served"] = []


class Served:
    """The program through which the agent's requests come, on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: set[str] = set()
        argv = ["sh", str(SCRIPT), "serve", str(folder)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        SERVED.append(self)
        assert self.line() == "ready"

    def end(self) -> None:
        subprocess.run(["sh", "-c", 'kill -9 $(cat "$1")', "sh", self.folder / "server"], check=False)
        self.process.communicate()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def request(self) -> tuple[str, str]:
        """Return the name and the text of the next request. One that came while the server began is shown twice."""
        word, name, text = self.line().split(" ")
        assert word == "request"
        if name in self.asked:
            return self.request()
        self.asked.add(name)
        return name, base64.b64decode(text).decode()

    def answer(self, *lines: str) -> None:
        assert self.process.stdin
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory of requests. What a test starts there ends with it."""
    yield tmp_path
    while SERVED:
        SERVED.pop().end()


@contextmanager
def agent(folder: Path, *words: str, trace: bool = False) -> Iterator[subprocess.Popen[str]]:
    argv = ["sh", *(["-x"] if trace else []), str(SCRIPT), str(folder), *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as call:
        try:
            yield call
        finally:
            call.kill()


@pytest.mark.local
def test_the_agent_is_called_as_ssh_and_ends_as_the_command(folder: Path) -> None:
    server = Served(folder)
    with agent(folder, "-x", "-p", "22", "10.0.0.2", "orted -a 'b  c'", "\\d") as call:
        name, text = server.request()
        assert text == "10.0.0.2\norted -a 'b  c' \\d\n"
        server.answer(f"{name} out one  \\n two", f"{name} ended 7")
        assert call.communicate(timeout=60)[0] == "one  \\n two\n"
    assert call.returncode == 7
    assert sorted(path.name for path in folder.iterdir()) == ["requests", "server"]


@pytest.mark.local
def test_requests_without_an_answer_are_asked_again_of_the_next_server(folder: Path) -> None:
    first = Served(folder)
    with agent(folder, "10.0.0.2", "orted") as call:
        before = first.request()
        second = Served(folder)
        assert first.process.wait(60) != 0
        assert second.request() == before
        second.answer(f"{before[0]} ended 0")
        assert call.wait(60) == 0


@pytest.mark.local
def test_an_answer_to_an_agent_that_is_gone_holds_nobody_up(folder: Path) -> None:
    server = Served(folder)
    with agent(folder, "10.0.0.2", "one") as gone:
        name, _ = server.request()
        gone.kill()
    with agent(folder, "10.0.0.2", "two") as call:
        other, _ = server.request()
        server.answer(*(f"{name} out {number}" for number in range(9)), f"{other} ended 3")
        assert call.wait(60) == 3


@pytest.mark.local
def test_hydra_which_calls_every_agent_with_x_hears_only_the_command(folder: Path) -> None:
    server = Served(folder)
    with agent(folder, "10.0.0.2", "proxy", trace=True) as call:
        name, _ = server.request()
        server.answer(f"{name} out hello", f"{name} ended 0")
        assert call.communicate(timeout=60)[0] == "hello\n"
