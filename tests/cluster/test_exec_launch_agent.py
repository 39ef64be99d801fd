"""mpirun over pods without sshd: the relay (remote/relay.py) by exec."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import SIZES, Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
EXEC = ("--mpi-agent", "exec", "--image", NO_SSHD)
NCCL = ("nccl", "-e", "1K", "--bin-dir", "/opt/nccl-tests/build", "--repeat", "1")


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


@pytest.mark.parametrize("program", [NCCL, ("pingpong", "--fabric", "tcp", "--size", "64", "--repeat", "1")])
def test_programs_run_on_two_nodes_without_sshd(client: Client, program: tuple[str, ...]) -> None:
    with client.nothing_left():
        done = client.call(client.run_argv(*program, *EXEC))
        assert done.returncode == 0, done.stderr + done.stdout


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


def test_the_api_server_restarts_while_mpiruns_daemons_run(client: Client) -> None:
    with client.nothing_left(), client.midway(*EXEC) as run:
        client.cluster.api_restart()
        assert client.rows() == SIZES[:2]
        run.goes_on()
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES


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


def test_killed(client: Client) -> None:
    """The cluster ends everything by itself."""
    with client.nothing_left(), client.midway(argv=client.short_lease(*EXEC)) as run:
        run.process.kill()
        run.process.communicate()
