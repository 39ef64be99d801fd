"""Runs on a real cluster that lose something for good: the API, a node, a pod's place, room here."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster, Node
from tests.support.kubernetes.images import NO_SSHD
from tests.support.kubernetes_runs import SIZES, Client, RunningCommand

pytestmark = pytest.mark.cluster

SOON = ("--lost-after", "8")
EXEC = ("--mpi-agent", "exec", "--image", NO_SSHD)


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def some_rows(client: Client) -> bool:
    """Whether what was measured until then is kept."""
    (log,) = client.logs("tcp")
    return log.outcome is not Outcome.OK and 2 <= len({point.size for point in log.points}) < len(SIZES)


def test_the_api_server_is_gone_for_good(client: Client) -> None:
    """fabbench ends by itself, and says what it could not do; the pods end by themselves."""
    with client.nothing_left():
        with client.midway(argv=client.short_lease("--lost-after", "8")) as run:
            client.cluster.api_stop()
            assert run.ends() == 3, run.err
        assert some_rows(client)
        assert re.search(r"^Error: No answer from .* for \d+ s.*API does not answer", run.err, re.MULTILINE)
        late = r"Cannot remove Job fabbench-\w+: the cluster's API does not answer\. It exits on its own"
        assert re.search(late, run.err), run.err
        # Nobody can tell the kubelets to end them: they end for want of a sign of fabbench.
        assert processes.eventually(lambda: not client.measures(), 30)
        client.cluster.api_back()


@contextmanager
def losing(client: Client, index: int, *more: str) -> Iterator[tuple[RunningCommand, Node]]:
    """A run, and the node of one of its pods: mpirun runs in the first one.

    After this the node is as it was, and what was on it is gone.
    """
    with client.nothing_left(), client.midway(*more) as run:
        name = client.kubectl("get", client.pods()[index], "-o", "jsonpath={.spec.nodeName}")
        node = next(node for node in client.cluster.nodes if node.name == name)
        yield run, node
        node.restore()


@pytest.mark.parametrize("index", [0, 1])
def test_a_node_loses_its_power(client: Client, index: int) -> None:
    with losing(client, index, *SOON) as (run, node):
        node.pull_the_plug()
        assert run.ends() == 3, run.err
        assert re.search(rf"^Error: No answer from {node.name} for \d+ s", run.err, re.MULTILINE), run.err
        assert some_rows(client)


@pytest.mark.parametrize(("index", "agent"), [(0, ()), (1, ()), (1, EXEC)])
def test_a_node_loses_its_kubelet(client: Client, index: int, agent: Sequence[str]) -> None:
    """Programs go on there, and nobody can see them. What cannot be removed is named, and not waited for."""
    with losing(client, index, *SOON, *agent) as (run, node):
        node.stop_kubelet()
        assert run.ends() == 3, run.err
        silent = rf"^Error: No answer from {node.name} for \d+ s.*10250"
        assert re.search(silent, run.err, re.MULTILINE), run.err
        cannot = rf"These pods cannot be removed because their node is lost: (\S+) on {node.name}\."
        (pod,) = re.findall(cannot, run.err)
        assert some_rows(client)
        kept = client.call([*client.argv("clean"), "--yes"])
        assert (kept.returncode, f"The nodes of {pod} are lost" in kept.stderr) == (3, True), kept.stderr
        forced = client.call([*client.argv("clean"), "--yes", "--force"])
        assert (forced.returncode, client.pods()) == (0, []), forced.stderr


@pytest.mark.parametrize("stop", [Node.stop_kubelet, Node.stop_containerd])
@pytest.mark.parametrize(("index", "away", "agent"), [(0, True, ()), (0, False, EXEC), (1, True, EXEC)])
def test_a_kubelet_or_containerd_starts_anew(
    client: Client, index: int, away: bool, agent: Sequence[str], stop: Callable[[Node], None]
) -> None:
    """Programs run on and are found again, also if they end while it is `away`: the run is whole."""
    with losing(client, index, *agent) as (run, node):
        stop(node)
        if away:
            run.measures_the_rest()
        node.restore()
        assert processes.eventually(node.ready, 60)
        run.goes_on()
        assert run.ends() == 0, run.err
    assert client.rows() == SIZES
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.OK


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_is_evicted(client: Client, index: int) -> None:
    with client.nothing_left(), client.midway() as run:
        pod = client.pods()[index].removeprefix("pod/")
        about = {"name": pod, "namespace": client.namespace}
        order = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        path = f"/api/v1/namespaces/{client.namespace}/pods/{pod}/eviction"
        client.kubectl("create", "--raw", path, "-f", "-", given=order)
        assert run.ends() == 3, run.err
    assert re.search(
        rf"^Error: The pod {pod} was evicted from ip-\S+, which is being drained", run.err, re.MULTILINE
    ), run.err
    assert some_rows(client)


@pytest.mark.parametrize("index", [0, 1])
def test_a_node_runs_out_of_memory(client: Client, index: int) -> None:
    with losing(client, index) as (run, node):
        pod = client.pods()[index].removeprefix("pod/")
        node.run_out_of_memory()
        assert run.ends() == 3, run.err
    evicted = rf"^Error: The pod {pod} was evicted from {node.name}: The node was low on resource: memory"
    assert re.search(evicted, run.err, re.MULTILINE), run.err
    assert some_rows(client)


def test_a_full_disk_on_this_machine(client: Client) -> None:
    """What can be kept is kept; the cluster is cleared all the same."""
    with client.nothing_left(), client.disk_fills_up() as run:
        # A page that the log has begun has room: all rows may be there, and not what comes after them.
        assert run.ends() == 3, run.err
        assert "No space left on device" in run.err
