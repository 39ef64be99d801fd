"""Runs on a real cluster that lose something for good: the API, a node, a pod's place, room here."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import Cluster, Node
from cluster.images import NO_SSHD
from fabbench.model import Outcome
from kube_runs import SIZES, Going, Laptop
from lab import processes

pytestmark = pytest.mark.cluster

SOON = ("--lost-after", "8")
EXEC = ("--mpi-agent", "exec", "--image", NO_SSHD)


@pytest.fixture
def laptop(cluster: Cluster, namespace: str, tmp_path: Path) -> Laptop:
    return Laptop(cluster, namespace, tmp_path)


def some_rows(laptop: Laptop) -> bool:
    """Whether what was measured until then is kept."""
    (log,) = laptop.logs("tcp")
    return log.outcome is not Outcome.OK and 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_the_api_server_is_gone_for_good(laptop: Laptop) -> None:
    """fabbench ends by itself, and says what it could not do; the pods end by themselves."""
    with laptop.nothing_left(within_s=60):
        with laptop.midway(argv=laptop.briefly("--lost-after", "8")) as run:
            laptop.cluster.api_stop()
            assert run.ends(90) in {3, 4}, run.err
        assert some_rows(laptop)
        assert re.search(r"^Error: .* has not answered for \d+ s.*API does not answer", run.err, re.MULTILINE)
        late = r"The Job fabbench-\w+ could not be removed: the cluster's API does not answer\. It ends by"
        assert re.search(late, run.err), run.err
        # Nobody can tell the kubelets to end them: they end for want of a sign of fabbench.
        assert processes.eventually(lambda: not laptop.measures(), 30)
        laptop.cluster.api_back()


@contextmanager
def losing(laptop: Laptop, index: int, *more: str) -> Iterator[tuple[Going, Node]]:
    """A run, and the node of one of its pods: mpirun runs in the first one.

    After this the node is as it was, and what was on it is gone.
    """
    with laptop.nothing_left(within_s=60), laptop.midway(*more) as run:
        name = laptop.kubectl("get", laptop.pods()[index], "-o", "jsonpath={.spec.nodeName}")
        node = next(node for node in laptop.cluster.nodes if node.name == name)
        yield run, node
        node.restore()


@pytest.mark.parametrize("index", [0, 1])
def test_a_node_loses_its_power(laptop: Laptop, index: int) -> None:
    with losing(laptop, index, *SOON) as (run, node):
        node.pull_the_plug()
        assert run.ends(120) in {3, 4}, run.err
        assert re.search(rf"^Error: {node.name} has not answered for \d+ s", run.err, re.MULTILINE), run.err
        assert some_rows(laptop)


@pytest.mark.parametrize(("index", "agent"), [(0, ()), (1, ()), (1, EXEC)])
def test_a_node_loses_its_kubelet(laptop: Laptop, index: int, agent: Sequence[str]) -> None:
    """Programs go on there, and nobody can see them. What cannot be removed is named, and not waited for."""
    with losing(laptop, index, *SOON, *agent) as (run, node):
        node.stop_kubelet()
        assert run.ends(120) == 4, run.err
        silent = rf"^Error: {node.name} has not answered for \d+ s.*10250"
        assert re.search(silent, run.err, re.MULTILINE), run.err
        cannot = rf"These pods cannot go, as their node is lost: (\S+) on {node.name}\."
        (pod,) = re.findall(cannot, run.err)
        assert some_rows(laptop)
        kept = laptop.call([*laptop.argv("clean"), "--yes"])
        assert (kept.returncode, f"The nodes of {pod} are lost" in kept.stderr) == (3, True), kept.stderr
        forced = laptop.call([*laptop.argv("clean"), "--yes", "--force"])
        assert (forced.returncode, laptop.pods()) == (0, []), forced.stderr


@pytest.mark.parametrize("stop", [Node.stop_kubelet, Node.stop_containerd])
@pytest.mark.parametrize(("index", "away", "agent"), [(0, True, ()), (0, False, EXEC), (1, True, EXEC)])
def test_a_kubelet_or_containerd_starts_anew(
    laptop: Laptop, index: int, away: bool, agent: Sequence[str], stop: Callable[[Node], None]
) -> None:
    """Programs run on and are found again, also if they end while it is `away`: the run is whole."""
    with losing(laptop, index, *agent) as (run, node):
        stop(node)
        if away:
            run.measures_the_rest()
        node.restore()
        assert processes.eventually(node.ready, 60)
        run.goes_on()
        assert run.ends(120) == 0, run.err
    assert laptop.rows() == SIZES
    (log,) = laptop.logs("tcp")
    assert log.outcome is Outcome.OK


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_is_evicted(laptop: Laptop, index: int) -> None:
    with laptop.nothing_left(), laptop.midway() as run:
        pod = laptop.pods()[index].removeprefix("pod/")
        about = {"name": pod, "namespace": laptop.namespace}
        order = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        path = f"/api/v1/namespaces/{laptop.namespace}/pods/{pod}/eviction"
        laptop.kubectl("create", "--raw", path, "-f", "-", given=order)
        assert run.ends(60) in {3, 4}, run.err
    assert re.search(
        rf"^Error: The pod {pod} was told to leave ip-\S+, which is being drained", run.err, re.MULTILINE
    ), run.err
    assert some_rows(laptop)


@pytest.mark.parametrize("index", [0, 1])
def test_a_node_runs_out_of_memory(laptop: Laptop, index: int) -> None:
    with losing(laptop, index) as (run, node):
        pod = laptop.pods()[index].removeprefix("pod/")
        node.run_out_of_memory()
        assert run.ends(90) in {3, 4}, run.err
    evicted = rf"^Error: The pod {pod} was evicted from {node.name}: The node was low on resource: memory"
    assert re.search(evicted, run.err, re.MULTILINE), run.err
    assert some_rows(laptop)


def test_a_full_disk_on_this_machine(laptop: Laptop) -> None:
    """What can be kept is kept; the cluster is cleared all the same."""
    with laptop.nothing_left(), laptop.disk_fills_up() as run:
        # A page that the log has begun has room: all rows may be there, and not what comes after them.
        assert run.ends() in {3, 4}, run.err
        assert "No space left on device" in run.err
