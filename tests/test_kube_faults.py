"""Runs on a real cluster that are interrupted, killed, or lose a pod, a node or the API: nothing is left."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import Cluster
from fabbench.model import Outcome
from kube_runs import HANGS, SIZES, Going, Laptop
from lab import processes

pytestmark = pytest.mark.cluster

INTERRUPTED = "Interrupted: what was measured until then is kept."
LEASE_S = 10


@pytest.fixture
def laptop(cluster: Cluster, namespace: str, tmp_path: Path) -> Laptop:
    return Laptop(cluster, namespace, tmp_path)


def interrupted(run: Going, number: signal.Signals = signal.SIGINT) -> None:
    """Interrupt a run, and once more while it ends; its status is 130."""
    run.process.send_signal(number)
    time.sleep(0.3)
    run.process.send_signal(number)
    assert run.ends(60) == 130, run.err
    assert "Interrupted" in run.err


def test_interrupted_in_the_middle_of_rows(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        interrupted(run)
    assert INTERRUPTED in run.err
    (log,) = laptop.logs("tcp")
    assert log.outcome is Outcome.TRUNCATED
    assert 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_interrupted_while_pods_start(laptop: Laptop) -> None:
    """The order to remove them goes out at once."""
    with laptop.nothing_left(), laptop.going(laptop.nccl("--image", HANGS)) as run:
        run.until(lambda: "pulling" in laptop.events())
        run.process.send_signal(signal.SIGINT)
        assert processes.eventually(lambda: laptop.kubectl("get", "jobs", "-o", "name") == "", 15)
        assert run.ends(60) == 130, run.err


@pytest.mark.parametrize(
    ("stage", "number"),
    [("agent keep", signal.SIGINT), ("mpirun", signal.SIGTERM), ("orted", signal.SIGINT)],
)
def test_interrupted_as_soon_as(laptop: Laptop, stage: str, number: signal.Signals) -> None:
    """The first moment at which something is seen in a pod."""
    with laptop.nothing_left(), laptop.cluster.standin(WAIT_AT=8), laptop.going(laptop.nccl()) as run:
        run.until(lambda: laptop.runs_somewhere(stage))
        interrupted(run, number)


STAGES: dict[str, Callable[[Laptop], object]] = {
    "made": lambda laptop: laptop.kubectl("get", "jobs", "-o", "name"),
    "rows": lambda laptop: len(laptop.rows()) > 1,
}


@pytest.mark.parametrize("stage", STAGES)
def test_killed(laptop: Laptop, stage: str) -> None:
    """The cluster ends everything by itself."""
    slow = laptop.cluster.standin(WAIT_AT=SIZES[2])
    with laptop.nothing_left(within_s=60), slow, laptop.going(laptop.briefly()) as run:
        run.until(lambda: STAGES[stage](laptop))
        run.process.kill()
        run.process.communicate()


def test_killed_while_pods_cannot_start(laptop: Laptop) -> None:
    with laptop.nothing_left(within_s=60), laptop.going(laptop.briefly("--image", HANGS)) as run:
        run.until(lambda: "pulling" in laptop.events())
        run.process.kill()
        run.process.communicate()


def test_a_run_may_take_longer_than_the_lease(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.cluster.standin(ROW_S=1.5), laptop.going(laptop.briefly()) as run:
        assert run.ends() == 0, run.err
    assert laptop.rows() == SIZES


@pytest.mark.parametrize("away", [True, False])
def test_the_api_server_restarts_in_the_middle_of_rows(laptop: Laptop, away: bool) -> None:
    """The others come while it is `away`, or when it is back."""
    with laptop.nothing_left(), laptop.midway() as run:
        laptop.cluster.api_stop()
        if away:
            run.measures_the_rest()
        laptop.cluster.api_start()
        assert laptop.rows() == SIZES[:2] or away
        run.goes_on()
        assert run.ends() == 0, run.err
    assert laptop.rows() == SIZES
    (log,) = laptop.logs("tcp")
    assert log.outcome is Outcome.OK


def test_the_api_server_restarts_while_pods_start(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.going(laptop.nccl()) as run:
        run.until(lambda: laptop.kubectl("get", "pods", "-o", "name"))
        laptop.cluster.api_restart()
        assert run.ends() == 0, run.err
    assert laptop.rows() == SIZES


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_is_deleted(laptop: Laptop, index: int) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        pod = laptop.pods()[index]
        laptop.kubectl("delete", pod, "--wait=false")
        assert run.ends(60) in {3, 4}, run.err
    name = pod.removeprefix("pod/")
    gone = rf"^Error: The pod {name} (on ip-\S+ was removed|ended with status 143|is being deleted)"
    assert re.search(gone, run.err, re.MULTILINE), run.err
    assert "cleaned up" not in run.err
    (log,) = laptop.logs("tcp")
    assert 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_a_program_is_killed_for_its_memory(laptop: Laptop) -> None:
    """The pod goes on, and its status says nothing."""
    with laptop.nothing_left(), laptop.midway(rows=1) as run:
        pod = laptop.pods()[1].removeprefix("pod/")
        laptop.limit_memory(pod, 256 << 20)
        laptop.kubectl("exec", pod, "--", "python3", "-c", "b'x' * (900 << 20)", check=False)
        run.goes_on()
        run.ends(60)
    assert f"A program in the pod {pod} was killed at the pod's limit" in run.err


def test_a_rank_is_killed(laptop: Laptop) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        pod = laptop.pods()[1].removeprefix("pod/")
        laptop.kubectl("exec", pod, "--", "sh", "-c", "kill -9 $(pgrep -f all_reduce_perf)", check=False)
        assert run.ends(30) == 4, run.err
    (log,) = laptop.logs("tcp")
    assert log.outcome is not Outcome.OK
