"""MPIJobs on a real cluster that lose sight of a node, a node, their launcher, or room here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster, Node
from tests.support.kubernetes_runs import SIZES, Client, RunningCommand

pytestmark = pytest.mark.cluster

SOON = ("--lost-after", "8")
LAUNCHER, WORKER = (f"training.kubeflow.org/job-role={role}" for role in ("launcher", "worker"))


@pytest.fixture
def client(mpijobs: Cluster, namespace: str, tmp_path: Path) -> Client:
    found = Client(mpijobs, namespace, tmp_path)
    found.launcher = "mpijob"
    return found


@contextmanager
def losing(client: Client, *more: str, own: bool) -> Iterator[tuple[RunningCommand, Node]]:
    """A run, and the node of its launcher's pod (`own`), or the other one.

    After this the node is as it was.
    """
    with client.nothing_left(within_s=90), client.midway(*more) as run:
        name = client.kubectl("get", "pods", "-l", LAUNCHER, "-o", "jsonpath={.items[*].spec.nodeName}")
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
    return log.outcome is not Outcome.OK and 2 <= len({point.size for point in log.points}) < len(SIZES)


@pytest.mark.parametrize(("own", "away"), [(True, True), (True, False), (False, False)])
def test_a_kubelet_starts_anew(client: Client, own: bool, away: bool) -> None:
    """For a moment it says that there is no such pod. Rows come while it is `away`, or later."""
    with losing(client, own=own) as (run, node):
        node.stop_kubelet()
        if away:
            run.measures_the_rest()
        node.restore()
        assert processes.eventually(node.ready, 60)
        run.goes_on()
        assert run.ends() == 0, run.err
    assert is_whole(client)


def test_a_workers_node_is_not_ready_for_a_while(client: Client) -> None:
    """Its programs go on, and so does the run."""
    with losing(client, own=False) as (run, node):
        node.stop_kubelet()
        assert processes.eventually(lambda: not node.ready())
        assert not processes.eventually(lambda: run.process.poll() is not None, 15), run.process.communicate()
        node.restore()
        assert processes.eventually(node.ready, 60)
        run.goes_on()
        assert run.ends() == 0, run.err
    assert is_whole(client)


def test_a_worker_is_removed_from_a_node_that_is_not_ready(client: Client) -> None:
    """The run does not wait for the node, as the pod does not come back with it."""
    with losing(client, "--lost-after", "600", own=False) as (run, node):
        node.stop_kubelet()
        assert processes.eventually(lambda: not node.ready())
        client.kubectl("delete", "pods", "-l", WORKER, "--field-selector", f"spec.nodeName={node.name}", "--force")
        assert run.ends() == 3, run.err
    not_ready = rf"^Error: {node.name}, the node of the pod \S+, is not ready: "
    assert re.search(not_ready, run.err, re.MULTILINE), run.err
    assert some_rows(client)


def test_a_nodes_containerd_starts_anew(client: Client) -> None:
    """Meanwhile the kubelet says in the log's place that it cannot read it."""
    with losing(client, own=True) as (run, node):
        node.stop_containerd()
        launcher = client.kubectl("get", "pods", "-l", LAUNCHER, "-o", "name").strip()
        unreadable = "unable to retrieve container logs"
        assert processes.eventually(lambda: unreadable in client.kubectl("logs", launcher, check=False))
        node.restore()
        assert processes.eventually(node.ready, 60)
        run.goes_on()
        assert run.ends() == 0, run.err
    assert is_whole(client)


def test_the_launchers_node_loses_its_kubelet(client: Client) -> None:
    """The log is not taken for whole because it is not heard any more."""
    with losing(client, *SOON, own=True) as (run, node):
        node.stop_kubelet()
        assert run.ends() == 3, run.err
        silent = r"^Error: No launcher log for \d+ s.*10250"
        assert re.search(silent, run.err, re.MULTILINE), run.err
        assert "because their node is lost: fabbench-" in run.err, run.err
        assert "Hint: They disappear when the node is back" in run.err, run.err
        forced = client.call([*client.argv("clean"), "--yes", "--force"])
        assert (forced.returncode, client.pods()) == (0, []), forced.stderr
    assert some_rows(client)


def test_a_node_loses_its_power(client: Client) -> None:
    with losing(client, *SOON, own=False) as (run, node):
        node.pull_the_plug()
        assert run.ends() == 3, run.err
        silent = r"No launcher log for \d+ s.*"
        not_ready = rf"{node.name}, the node of the pod \S+, is not ready: .*|The pod \S+ on {node.name} .*"
        assert re.search(rf"^Error: ({silent}|{not_ready})", run.err, re.MULTILINE), run.err
        assert f" on {node.name}" in run.err, run.err
    assert some_rows(client)


@pytest.mark.parametrize("own", [True, False])
def test_a_node_is_drained(client: Client, own: bool) -> None:
    with losing(client, own=own) as (run, node):
        node.drain()
        assert run.ends() == 3, run.err
    drained = rf"^Error: The pod \S+ was evicted from {node.name}, which is being drained"
    assert re.search(drained, run.err, re.MULTILINE), run.err
    assert some_rows(client)


@pytest.mark.parametrize("own", [True, False])
def test_a_node_runs_out_of_memory(client: Client, own: bool) -> None:
    """A launcher that is evicted takes its log along."""
    with losing(client, own=own) as (run, node):
        node.run_out_of_memory()
        assert run.ends() == 3, run.err
    evicted = rf"^Error: The pod \S+ was evicted from {node.name}: The node was low on resource: memory"
    assert re.search(evicted, run.err, re.MULTILINE), run.err
    assert some_rows(client)


def test_a_node_that_is_cordoned_keeps_what_it_runs(client: Client) -> None:
    with losing(client, own=True) as (run, node):
        node.cordon()
        run.goes_on()
        assert run.ends() == 0, run.err
    assert is_whole(client)


def test_the_launcher_is_deleted(client: Client) -> None:
    with client.nothing_left(), client.midway() as run:
        pod = client.kubectl("get", "pods", "-l", LAUNCHER, "-o", "name").strip().removeprefix("pod/")
        client.kubectl("delete", "pod", pod, "--wait=false")
        assert run.ends() == 3, run.err
    removed = rf"^Error: The pod {pod} (on ip-\S+ was removed|.*deleted|exited with status 143)"
    assert re.search(removed, run.err, re.MULTILINE), run.err
    assert some_rows(client)


def test_a_full_disk_on_this_machine(client: Client) -> None:
    """What can be kept is kept; the cluster is cleared all the same."""
    with client.nothing_left(), client.disk_fills_up() as run:
        assert run.ends() == 3, run.err
        assert "No space left on device" in run.err
