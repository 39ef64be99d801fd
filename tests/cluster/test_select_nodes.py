"""Which nodes of a real API are shown, where there are many, of several types."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fabbench.launchers.kubernetes import api
from fabbench.launchers.kubernetes.discover import list_nodes
from fabbench.launchers.kubernetes.nodes import LAYERS, Node
from fabbench.launchers.kubernetes.select_nodes import NodeCriteria, usable_groups
from fabbench.launchers.pod_options import Toleration
from fabbench.model.errors import RequestError
from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_runs import Client

pytestmark = pytest.mark.kwok

TAINT = "kwok"
KINDS: dict[str, dict[str, Any]] = {
    "p5": {"count": 34, "instance_type": "p5.48xlarge"},
    "hyper": {
        "count": 3,
        "instance_type": "ml.p5.48xlarge",
        "labels": {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"},
    },
    "g6": {
        "count": 2,
        "instance_type": "g6.48xlarge",
        "resources": {"vpc.amazonaws.com/efa": "1", "nvidia.com/gpu": "8"},
    },
    "hpc": {
        "count": 3,
        "instance_type": "hpc7g.16xlarge",
        "resources": {"vpc.amazonaws.com/efa": "1"},
    },
    "plain": {"count": 5, "instance_type": "m7i.large", "resources": {}},
    "down": {"count": 2, "instance_type": "p5e.48xlarge", "ready": False},
}


@pytest.fixture(scope="module")
def mixed(kwok: Cluster) -> tuple[Node, ...]:
    """The nodes of a cluster of all sorts, as fabbench reads them."""
    for prefix, settings in KINDS.items():
        kwok.fake_nodes(
            settings["count"], prefix, **{k: v for k, v in settings.items() if k != "count"}
        )
    site = api.open_api(kwok.kubeconfig, None, None)
    found: list[Node] = []

    def settled() -> bool:
        """kwok is late with the first signs of some nodes, which are then not ready for a while."""
        found[:] = list_nodes(site)
        late = {node.name for node in found if not node.ready or _unreachable(node)}
        return late == {"down-0", "down-1"}

    assert processes.eventually(settled, 90), [node.name for node in found if not node.ready]
    return tuple(found)


def _unreachable(node: Node) -> bool:
    return any(taint.key.startswith("node.kubernetes.io/") for taint in node.taints)


def names(found: Sequence[Node]) -> list[str]:
    return [node.name for node in found]


def test_many_pages_are_one_list(
    mixed: tuple[Node, ...], monkeypatch: pytest.MonkeyPatch, kwok: Cluster
) -> None:
    monkeypatch.setattr(api, "_PAGE", 7)
    again = list_nodes(api.open_api(kwok.kubeconfig, None, None))
    assert sorted(names(again)) == sorted(names(mixed))
    assert len(again) == 2 + sum(kind["count"] for kind in KINDS.values())


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (f"{LAYERS[2]}=nn-p5-2", {"p5-32", "p5-33"}),
        (
            f"kwok,{LAYERS[2]} in (nn-p5-2,nn-hpc-0),!pool",
            {"p5-32", "p5-33", "hpc-0", "hpc-1", "hpc-2"},
        ),
        ("pool=none", set()),
    ],
)
def test_the_cluster_evaluates_selectors(
    mixed: tuple[Node, ...], kwok: Cluster, labels: str, found: set[str]
) -> None:
    assert mixed
    assert set(names(list_nodes(api.open_api(kwok.kubeconfig, None, None), labels=labels))) == found


@pytest.mark.parametrize("labels", ["a in b", "=b", "a=b,", "a=b=c"])
def test_a_selector_that_the_cluster_cannot_read_is_a_usage_error(
    kwok: Cluster, labels: str
) -> None:
    with pytest.raises(RequestError, match="not a valid label selector"):
        list_nodes(api.open_api(kwok.kubeconfig, None, None), labels=labels)


def test_nodes_that_fit_are_grouped_by_what_they_have(mixed: tuple[Node, ...]) -> None:
    groups = usable_groups(mixed, NodeCriteria(tolerations=(Toleration(TAINT),)))
    found = {group[0].instance_type: len(group) for group in groups}
    assert found == {
        "p5.48xlarge": 34,
        "p4d.24xlarge": 2,
        "g6.48xlarge": 2,
        "hpc7g.16xlarge": 3,
        "m7i.large": 5,
    }


def test_the_check_shows_them_all_and_says_what_is_wrong(
    mixed: tuple[Node, ...], kwok: Cluster, namespace: str, tmp_path: Path
) -> None:
    client = Client(kwok, namespace, tmp_path)
    done = client.call(client.argv("check", "--on", "kubernetes", "--format", "json"))
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert [node["name"] for node in found["nodes"]] == names(mixed)
    failed = {each["host"]: each["seen"] for each in found["checks"] if each["status"] == "fail"}
    assert sorted(failed) == ["down-0", "down-1", "hyper-0", "hyper-1", "hyper-2"], failed
    done = client.call(client.argv("check", "--on", "kubernetes", "--instance-type", "g6.48xlarge"))
    rows = [
        line.split()[1] for line in done.stdout.splitlines() if "us-east" in line or " nn-" in line
    ]
    assert rows == ["g6-0", "g6-1"]
