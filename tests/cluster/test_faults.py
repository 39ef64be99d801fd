"""Runs on a real cluster that are interrupted, killed, or lose a pod, a node or the API: nothing is left."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_runs import HANGS, SIZES, Client, RunningCommand

pytestmark = pytest.mark.cluster

INTERRUPTED = "Interrupted. Partial results were saved."
LEASE_S = 10


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def interrupted(run: RunningCommand, number: signal.Signals = signal.SIGINT) -> None:
    """Interrupt a run, and once more while it ends; its status is 130."""
    run.process.send_signal(number)
    time.sleep(0.3)
    run.process.send_signal(number)
    assert run.ends() == 130, run.err
    assert "Interrupted" in run.err


def test_interrupted_in_the_middle_of_rows(client: Client) -> None:
    with client.nothing_left(), client.midway() as run:
        interrupted(run)
    assert INTERRUPTED in run.err
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.TRUNCATED
    assert 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_interrupted_while_pods_start(client: Client) -> None:
    """The order to remove them goes out at once."""
    with client.nothing_left(), client.running(client.nccl("--image", HANGS)) as run:
        run.until(lambda: "pulling" in client.events())
        run.process.send_signal(signal.SIGINT)
        assert processes.eventually(lambda: client.names("jobs") == [], 15)
        assert run.ends() == 130, run.err


@pytest.mark.parametrize(
    ("stage", "number"), [("agent keep", signal.SIGINT), ("mpirun", signal.SIGTERM), ("orted", signal.SIGINT)]
)
def test_interrupted_as_soon_as(client: Client, stage: str, number: signal.Signals) -> None:
    """The first moment at which something is seen in a pod."""
    with client.nothing_left(), client.cluster.standin(WAIT_AT=8), client.running(client.nccl()) as run:
        run.until(lambda: client.runs_somewhere(stage))
        interrupted(run, number)


STAGES: dict[str, Callable[[Client], object]] = {
    "made": lambda client: client.names("jobs"),
    "rows": lambda client: len(client.rows()) > 1,
}


@pytest.mark.parametrize("stage", STAGES)
def test_killed(client: Client, stage: str) -> None:
    """The cluster ends everything by itself."""
    slow = client.cluster.standin(WAIT_AT=SIZES[2])
    with client.nothing_left(), slow, client.running(client.short_lease()) as run:
        run.until(lambda: STAGES[stage](client))
        run.process.kill()
        run.process.communicate()


def test_killed_while_pods_cannot_start(client: Client) -> None:
    with client.nothing_left(), client.running(client.short_lease("--image", HANGS)) as run:
        run.until(lambda: "pulling" in client.events())
        run.process.kill()
        run.process.communicate()


def test_a_run_may_take_longer_than_the_lease(client: Client) -> None:
    with client.nothing_left(), client.cluster.standin(ROW_S=1.5), client.running(client.short_lease()) as run:
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES


@pytest.mark.parametrize("away", [True, False])
def test_the_api_server_restarts_in_the_middle_of_rows(client: Client, away: bool) -> None:
    """The others come while it is `away`, or when it is back."""
    with client.nothing_left(), client.midway() as run:
        client.cluster.api_stop()
        if away:
            run.measures_the_rest()
        client.cluster.api_start()
        assert client.rows() == SIZES[:2] or away
        run.goes_on()
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.OK


def test_the_api_server_restarts_while_pods_start(client: Client) -> None:
    with client.nothing_left(), client.running(client.nccl()) as run:
        run.until(client.pods)
        client.cluster.api_restart()
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_is_deleted(client: Client, index: int) -> None:
    with client.nothing_left(), client.midway() as run:
        pod = client.pods()[index]
        client.kubectl("delete", pod, "--wait=false")
        assert run.ends() == 3, run.err
    name = pod.removeprefix("pod/")
    gone = rf"^Error: The pod {name} (on ip-\S+ was removed|exited with status 143|is being deleted)"
    assert re.search(gone, run.err, re.MULTILINE), run.err
    assert "cleaned up" not in run.err
    (log,) = client.logs("tcp")
    assert 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_a_program_is_killed_for_its_memory(client: Client) -> None:
    """The pod goes on, and its status says nothing."""
    with client.nothing_left(), client.midway(rows=1) as run:
        pod = client.pods()[1].removeprefix("pod/")
        client.limit_memory(pod, 256 << 20)
        client.kubectl("exec", pod, "--", "python3", "-c", "b'x' * (900 << 20)", check=False)
        run.goes_on()
        run.ends()
    assert f"A program in the pod {pod} was OOM-killed at the pod's memory limit" in run.err


def test_a_rank_is_killed(client: Client) -> None:
    with client.nothing_left(), client.midway() as run:
        pod = client.pods()[1].removeprefix("pod/")
        client.kubectl("exec", pod, "--", "sh", "-c", "kill -9 $(pgrep -f all_reduce_perf)", check=False)
        assert run.ends() == 4, run.err
    (log,) = client.logs("tcp")
    assert log.outcome is not Outcome.OK
