"""Runs on a real cluster that lose the API or a node, for good or for a while."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster, Node
from tests.support.kubernetes_runs import SIZES, Client, RunningCommand

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SOON = ("--set", "lost-after=8")
WHERE = "jsonpath={.spec.nodeName}"


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


@pytest.fixture
def mpijob(client: Client, mpijobs: Cluster) -> Client:
    assert client.cluster is mpijobs
    client.launcher = "mpijob"
    return client


@pytest.fixture(params=["client", "mpijob"])
def either(request: pytest.FixtureRequest) -> Client:
    """A client of each launcher."""
    found: Client = request.getfixturevalue(request.param)
    return found


@contextmanager
def losing(client: Client, *more: str, own: bool) -> Iterator[tuple[RunningCommand, Node]]:
    """A run, and the node where its mpirun runs (`own`), or the other one.

    After this the node is as it was, and what was on it is gone.
    """
    with client.nothing_left(within_s=120), client.midway(*more) as run:
        name = client.kubectl("get", client.workers()[0], "-o", WHERE)
        node = next(node for node in client.cluster.nodes if (node.name == name) == own)
        yield run, node
        node.restore()


def is_whole(client: Client) -> bool:
    """Whether all rows are there, each once, and nothing is amiss."""
    (log,) = client.logs("tcp")
    return log.outcome is Outcome.OK and client.rows() == SIZES


def some_rows(client: Client) -> bool:
    """Whether what was measured until then is kept."""
    (log,) = client.logs("tcp")
    return log.outcome is not Outcome.OK and 2 <= len({point.size for point in log.points}) < len(
        SIZES
    )


def comes_back(run: RunningCommand, node: Node) -> int:
    """Let the node be as it was, and the run go on to its end; gives its status."""
    node.restore()
    assert processes.eventually(node.ready)
    run.goes_on()
    return run.ends()


def test_the_api_server_is_gone_for_good(client: Client) -> None:
    """fabbench ends by itself, and says what it could not do; the pods end by themselves."""
    with client.nothing_left():
        with client.midway(argv=client.short_lease("--set", "lost-after=8")) as run:
            client.cluster.api_stop()
            assert run.ends() == 3, run.err
        assert some_rows(client)
        assert re.search(
            r"^Error: No answer from .* for \d+ s.*API does not answer", run.err, re.MULTILINE
        )
        assert re.search(r"Job fabbench-\w+ cannot be removed: .*exits on its own", run.err), (
            run.err
        )
        # Nobody can tell the kubelets to end them: they end for want of a sign of fabbench.
        assert processes.eventually(lambda: not client.measures())
        client.cluster.api_back()


@pytest.mark.parametrize("own", [True, False])
def test_a_node_loses_its_power(client: Client, own: bool) -> None:
    with losing(client, *SOON, own=own) as (run, node):
        node.pull_the_plug()
        assert run.ends() == 3, run.err
        assert re.search(rf"^Error: No answer from {node.name} for \d+ s", run.err, re.MULTILINE), (
            run.err
        )
        assert some_rows(client)


def test_a_workers_node_loses_its_power(mpijob: Client) -> None:
    with losing(mpijob, *SOON, own=False) as (run, node):
        node.pull_the_plug()
        assert run.ends() == 3, run.err
        assert f" on {node.name}" in run.err, run.err
    assert some_rows(mpijob)


def forced(client: Client) -> tuple[int, list[str]]:
    """Clean up by force; gives the status, and the pods that are left."""
    return client.call([*client.argv("clean"), "--yes", "--force"]).returncode, client.pods()


@pytest.mark.parametrize("own", [True, False])
def test_a_node_loses_its_kubelet(client: Client, own: bool) -> None:
    """Programs go on there, and nobody can see them.

    What cannot be removed is named, and not waited for.
    """
    with losing(client, *SOON, own=own) as (run, node):
        node.stop_kubelet()
        assert run.ends() == 3, run.err
        assert re.search(
            rf"^Error: No answer from {node.name} for \d+ s.*10250", run.err, re.MULTILINE
        ), run.err
        (pod,) = re.findall(rf"their node is lost: (\S+) on {node.name}\.", run.err)
        assert some_rows(client)
        kept = client.call([*client.argv("clean"), "--yes"])
        assert (kept.returncode, pod in kept.stderr) == (3, True), kept.stderr
        assert forced(client) == (0, [])


@pytest.mark.parametrize("stop", [Node.stop_kubelet, Node.stop_containerd])
@pytest.mark.parametrize(("own", "away"), [(True, True), (True, False), (False, True)])
def test_a_kubelet_or_containerd_starts_anew(
    client: Client, own: bool, away: bool, stop: Callable[[Node], None]
) -> None:
    """Programs run on and are found again, also if they end while it is `away`.

    The run is whole.
    """
    with losing(client, own=own) as (run, node):
        stop(node)
        if away:
            run.measures_the_rest()
        assert comes_back(run, node) == 0, run.err
    assert is_whole(client)


def test_a_worker_is_removed_from_a_node_that_is_not_ready(mpijob: Client) -> None:
    """The operator replaces it: another pod of the same name is none of the run's."""
    with losing(mpijob, own=False) as (run, node):
        pod = next(
            each
            for each in mpijob.workers()
            if mpijob.kubectl("get", each, "-o", WHERE) == node.name
        )
        mpijob.kubectl("delete", pod, "--force")
        assert run.ends() == 3, run.err
    assert re.search(
        rf"^Error: The pod {pod.removeprefix('pod/')} on {node.name} ", run.err, re.MULTILINE
    ), run.err
    assert some_rows(mpijob)


@pytest.mark.parametrize("own", [True, False])
def test_a_node_is_drained(either: Client, own: bool) -> None:
    with losing(either, own=own) as (run, node):
        node.drain()
        assert run.ends() == 3, run.err
    evicted = rf"^Error: The pod \S+ on {node.name}: EvictionByEvictionAPI: "
    assert re.search(evicted, run.err, re.MULTILINE), run.err
    assert some_rows(either)


@pytest.mark.parametrize("own", [True, False])
def test_a_node_runs_out_of_memory(either: Client, own: bool) -> None:
    with losing(either, own=own) as (run, node):
        node.run_out_of_memory()
        assert run.ends() == 3, run.err
    evicted = rf"^Error: The pod \S+ on {node.name}: .*low on resource: memory"
    assert re.search(evicted, run.err, re.MULTILINE), run.err
    assert some_rows(either)
