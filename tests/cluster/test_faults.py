"""Runs on a real cluster that are interrupted or killed, or lose a pod or the API."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_runs import HANGS, SIZES, Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENT_S = 600
"""Controllers may miss a removal while the API restarts, and find it when they look again."""


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


@pytest.fixture(params=["kubernetes", "mpijob"])
def either(client: Client, request: pytest.FixtureRequest) -> Client:
    """A client of each launcher."""
    client.launcher = request.param
    if client.launcher == "mpijob":
        request.getfixturevalue("mpijobs")
    return client


def some_rows(client: Client) -> bool:
    """Whether what was measured until then is kept."""
    (log,) = client.logs("tcp")
    return log.outcome is not Outcome.OK and 2 <= len({point.size for point in log.points}) < len(
        SIZES
    )


def test_interrupted_in_the_middle_of_rows(either: Client) -> None:
    """And once more while it ends."""
    with either.nothing_left(), either.midway() as run:
        run.process.send_signal(signal.SIGINT)
        assert processes.eventually(lambda: not either.measures())
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130, run.err
    (log,) = either.logs("tcp")
    assert (log.outcome, some_rows(either)) == (Outcome.TRUNCATED, True)


def test_interrupted_while_pods_start(either: Client) -> None:
    """The order to remove them goes out at once."""
    with either.nothing_left(), either.running(either.nccl("--image", HANGS)) as run:
        run.until(lambda: "pulling" in either.events())
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130, run.err


@pytest.mark.parametrize(
    ("stage", "number"),
    [("agent keep", signal.SIGINT), ("mpirun", signal.SIGTERM), ("orted", signal.SIGINT)],
)
def test_interrupted_as_soon_as(client: Client, stage: str, number: signal.Signals) -> None:
    """The first moment at which something is seen in a pod."""
    with (
        client.nothing_left(),
        client.cluster.standin(WAIT_AT=8),
        client.running(client.nccl()) as run,
    ):
        run.until(lambda: client.runs_somewhere(stage))
        run.process.send_signal(number)
        assert run.ends() == 130, run.err


STAGES: dict[str, Callable[[Client], object]] = {
    "made": lambda client: client.names("jobs"),
    "rows": lambda client: len(client.rows()) > 1,
}


@pytest.mark.parametrize("stage", STAGES)
def test_killed(client: Client, stage: str) -> None:
    """The cluster ends everything by itself, and nothing is left here."""
    slow = client.cluster.standin(WAIT_AT=SIZES[2])
    with client.nothing_left(), slow, client.running(client.short_lease()) as run:
        run.until(lambda: STAGES[stage](client))
        left = processes.descendants(run.process.pid)
        run.process.kill()
        assert processes.ended_soon(left)
        run.process.communicate()


def test_killed_while_pods_cannot_start(client: Client) -> None:
    with client.nothing_left(), client.running(client.short_lease("--image", HANGS)) as run:
        run.until(lambda: "pulling" in client.events())
        run.process.kill()
        run.process.communicate()


def test_a_killed_mpijob_ends_by_itself_and_is_cleaned(client: Client, mpijobs: Cluster) -> None:
    """With the rights of the example, which show no Jobs."""
    del mpijobs
    client.launcher = "mpijob"
    client.has_rights_of("rbac-mpijob.yaml")
    with client.nothing_left():
        with client.midway(argv=client.short_lease()) as run:
            run.process.kill()
            run.process.wait()
            assert processes.eventually(lambda: not client.workers(), 60)
        done = client.call([*client.argv("clean"), "--yes"])
        assert (done.returncode, "Removed 1 run" in done.stderr) == (0, True), done.stderr


def test_a_run_may_take_longer_than_the_lease(client: Client) -> None:
    with (
        client.nothing_left(),
        client.cluster.standin(ROW_S=1.5),
        client.running(client.short_lease()) as run,
    ):
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES


@pytest.mark.parametrize("away", [True, False])
def test_the_api_server_restarts_in_the_middle_of_rows(either: Client, away: bool) -> None:
    """The others come while it is `away`, or when it is back; each once."""
    with either.nothing_left(PATIENT_S), either.midway() as run:
        either.cluster.api_stop()
        if away:
            run.measures_the_rest()
        either.cluster.api_start()
        assert either.rows() == SIZES[:2] or away
        run.goes_on()
        assert run.ends() == 0, run.err
    assert either.rows() == SIZES
    (log,) = either.logs("tcp")
    assert log.outcome is Outcome.OK


def test_the_api_server_restarts_while_pods_start(client: Client) -> None:
    with client.nothing_left(PATIENT_S), client.running(client.nccl()) as run:
        run.until(client.pods)
        client.cluster.api_restart()
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_is_deleted(either: Client, index: int) -> None:
    with either.nothing_left(), either.midway() as run:
        pod = either.workers()[index]
        either.kubectl("delete", pod, "--wait=false")
        assert run.ends() == 3, run.err
    name = pod.removeprefix("pod/")
    gone = rf"^Error: The pod {name} .*(was removed|exited with status 143|deleted)"
    assert re.search(gone, run.err, re.MULTILINE), run.err
    assert either.launcher == "mpijob" or "cleaned up" not in run.err
    assert some_rows(either)


def test_a_program_is_killed_for_its_memory(client: Client) -> None:
    """The pod goes on, and its status says nothing."""
    with client.nothing_left(), client.midway(rows=1) as run:
        pod = client.pods()[1].removeprefix("pod/")
        client.limit_memory(pod, 256 << 20)
        client.kubectl("exec", pod, "--", "python3", "-c", "b'x' * (900 << 20)", check=False)
        run.goes_on()
        run.ends()
    assert f"in the pod {pod} was OOM-killed" in run.err


def test_a_rank_is_killed(client: Client) -> None:
    with client.nothing_left(), client.midway() as run:
        pod = client.pods()[1].removeprefix("pod/")
        client.kubectl(
            "exec", pod, "--", "sh", "-c", "kill -9 $(pgrep -f all_reduce_perf)", check=False
        )
        assert run.ends() == 4, run.err
    (log,) = client.logs("tcp")
    assert log.outcome is not Outcome.OK


def test_a_full_disk_on_this_machine(either: Client) -> None:
    """What can be kept is kept; the cluster is cleared all the same."""
    with either.nothing_left(), either.disk_fills_up() as run:
        # A page that the log has begun has room: all rows may be there, and not what comes after
        # them.
        assert run.ends() == 3, run.err
        assert "No space left on device" in run.err
