"""Which nodes a run takes, and what it says when there are too few."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.launchers.kubernetes.nodes import Node, read_nodes
from fabbench.launchers.kubernetes.select_nodes import NodeCriteria, choose, shared_layer
from fabbench.launchers.pod_options import Toleration, default_tolerations
from fabbench.model.errors import MachineError, RequestError
from tests.support.pod_objects import EFA, GPU, NODES, node_object, pod_object

LAYER = "topology.k8s.aws/network-node-layer-3"
ZONE = "topology.kubernetes.io/zone"


def nodes(kind: str, count: int, prefix: str = "", **changes: Any) -> list[dict[str, Any]]:
    return [
        node_object(kind, f"{prefix or kind}-{number}", **changes) for number in range(1, count + 1)
    ]


def chosen(
    objects: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None, **criteria: Any
) -> list[str]:
    random.Random(7).shuffle(objects)
    return [node.name for node in choose(read_nodes(objects, pods or []), NodeCriteria(**criteria))]


def refused(
    objects: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None, **criteria: Any
) -> str:
    with pytest.raises(MachineError) as caught:
        chosen(objects, pods, **criteria)
    assert caught.value.hint
    return str(caught.value)


def test_two_nodes_are_chosen_and_numbers_sort_as_numbers() -> None:
    assert chosen(nodes("p5", 12)) == ["p5-1", "p5-2"]
    assert chosen(nodes("p5", 12), count=11)[-2:] == ["p5-10", "p5-11"]


def test_a_sweep_takes_all_that_are_alike() -> None:
    pods = [pod_object("p5-2", {GPU: "1"})]
    there = [*nodes("p5", 4), *nodes("hyperpod-p4d", 5)]
    assert chosen(there, every=True) == [f"hyperpod-p4d-{number}" for number in range(1, 6)]
    assert chosen(nodes("p5", 4), pods, every=True) == ["p5-1", "p5-3", "p5-4"]
    assert chosen(there, every=True, count=2) == ["p5-1", "p5-2"]
    assert chosen(there, every=True, names=("p5-3", "p5-4")) == ["p5-3", "p5-4"]
    assert refused(nodes("p5", 1), every=True).startswith("2 nodes are needed, 1 available")


def test_busy_nodes_are_left_out() -> None:
    pods = [pod_object("p5-1", {GPU: "1"}), pod_object("p5-2", {EFA: "1"})]
    assert chosen(nodes("p5", 4), pods) == ["p5-3", "p5-4"]


@pytest.mark.parametrize(
    "changes",
    [
        {"not_ready": "gone"},
        {"cordoned": True},
        {"taints": (("team", "a", "NoSchedule"),)},
        {"labels": {"sagemaker.amazonaws.com/node-health-status": "Unschedulable"}},
    ],
)
def test_nodes_that_take_no_pods_are_left_out(changes: dict[str, Any]) -> None:
    bad, good = nodes("p5", 2, "a", **changes), nodes("p5", 2, "b")
    assert chosen(bad + good) == ["b-1", "b-2"]
    assert "a-1, a-2: " in refused(bad)


def test_taints_can_be_tolerated() -> None:
    tainted = nodes("p5", 2, taints=(("team", "a", "NoSchedule"),))
    for text, fits in (
        ("team", True),
        ("team=a", True),
        ("team:NoSchedule", True),
        ("team=b", False),
        ("team:NoExecute", False),
        ("tea", False),
    ):
        tolerations = (*default_tolerations(), Toleration.parse(text))
        if fits:
            assert chosen(tainted, tolerations=tolerations) == ["p5-1", "p5-2"]
        else:
            assert "taint team=a:NoSchedule" in refused(tainted, tolerations=tolerations)


def test_one_type_is_chosen_the_fastest_first() -> None:
    mixed = nodes("p5", 1) + nodes("hyperpod-p4d", 2) + nodes("c7gn", 3)
    assert chosen(list(mixed)) == ["hyperpod-p4d-1", "hyperpod-p4d-2"]
    assert chosen(list(mixed), count=3) == ["c7gn-1", "c7gn-2", "c7gn-3"]
    assert chosen(nodes("p5", 2) + mixed[1:]) == ["p5-1", "p5-2"]


@pytest.mark.parametrize("name", ["p4d.24xlarge", "ml.p4d.24xlarge", "ML.P4D.24xlarge"])
def test_an_instance_type_is_found_with_and_without_hyperpods_name(name: str) -> None:
    both = nodes("hyperpod-p4d", 1) + nodes("p5", 4)
    plain = nodes(
        "hyperpod-p4d", 1, "z", labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    )
    assert chosen(both + plain, instance_type=name) == ["hyperpod-p4d-1", "z-1"]


def test_nodes_of_one_zone_are_chosen() -> None:
    here, there = nodes("p5", 1, "a"), nodes("p5", 2, "b", labels={ZONE: "us-east-2c"})
    assert chosen(here + there) == ["b-1", "b-2"]
    said = refused(here + there[:1])
    assert said.startswith("2 nodes are needed, 2 available, and not together:")
    assert "  a-1: p5.48xlarge, 8 GPUs, 32 EFA, us-east-2b, free" in said


def test_nodes_of_the_lowest_layer_are_preferred() -> None:
    apart = nodes("p5", 2, "a", labels={LAYER: None}) + nodes("p5", 1, "b", labels={LAYER: "nn-x"})
    close = nodes("p5", 2, "c", labels={LAYER: "nn-y"})
    assert chosen(apart + close) == ["c-1", "c-2"]
    assert shared_layer(choose(read_nodes(apart + close), NodeCriteria())) == "nn-y"
    assert chosen(apart + close, count=4) == ["a-1", "a-2", "b-1", "c-1"]
    assert shared_layer(choose(read_nodes(apart + close), NodeCriteria(count=4))) == "nn-77b2"


def test_a_large_place_is_kept_for_those_who_need_it() -> None:
    large, small = nodes("p5", 4, "a"), nodes("p5", 2, "b", labels={LAYER: "nn-y"})
    assert chosen(large + small) == ["b-1", "b-2"]


def test_nodes_can_be_named() -> None:
    assert chosen(nodes("p5", 4), names=("p5-4", "p5-2")) == ["p5-2", "p5-4"]
    assert "no node p5-9" in refused(nodes("p5", 4), names=("p5-9",))
    assert "  p5-2: 1 of 8 GPUs in use" in refused(
        nodes("p5", 3), [pod_object("p5-2", {GPU: "1"})], names=("p5-1", "p5-2")
    )


def test_named_nodes_of_islands_are_not_mixed() -> None:
    assert "not together" in refused(
        nodes("p5", 1) + nodes("hyperpod-p4d", 1), names=("p5-1", "hyperpod-p4d-1")
    )


def test_named_nodes_without_a_type_may_differ_where_no_device_does() -> None:
    bare = {EFA: "0", GPU: "0"}
    here = nodes("lab", 1, "a", allocatable=bare, labels={ZONE: "a"})
    there = nodes("lab", 1, "b", allocatable=bare, labels={ZONE: "b"})
    assert chosen(here + there, names=("a-1", "b-1")) == ["a-1", "b-1"]


def test_what_a_benchmark_needs_is_looked_for() -> None:
    mixed = nodes("c7gn", 2) + nodes("p5", 2, "q", allocatable={EFA: "0"})
    assert chosen(mixed, needs_gpu=True) == ["q-1", "q-2"]
    assert chosen(mixed) == ["c7gn-1", "c7gn-2"]
    assert "c7gn-1, c7gn-2: no GPU" in refused(mixed, needs_gpu=True, count=3)


def test_too_few_is_reported_with_everything_there_is() -> None:
    many = nodes("p5", 6) + nodes("c7gn", 1)
    pods = [pod_object(f"p5-{number}", {GPU: "8", EFA: "32"}) for number in range(1, 6)]
    assert refused(many, pods, needs_gpu=True).splitlines() == [
        "2 nodes are needed, 1 available:",
        "  p5-6: p5.48xlarge, 8 GPUs, 32 EFA, us-east-2b, free",
        "  c7gn-1: no GPU",
        "  p5-1, p5-2, p5-3, p5-4 and 1 more: 8 of 8 GPUs in use",
    ]
    assert refused([]) == "The cluster has no nodes."


@pytest.mark.parametrize("criteria", [{"count": 0}, {"count": 3, "names": ("p5-1",)}])
def test_wishes_without_sense_are_refused(criteria: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        chosen(nodes("p5", 4), **criteria)
    assert caught.value.hint


SOME = st.builds(
    lambda kind, zone, layer, gpus, efa, ready: (kind, zone, layer, gpus, efa, ready),
    st.sampled_from(sorted(NODES)),
    st.sampled_from(["z1", "z2"]),
    st.sampled_from(["n1", "n2", None]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.booleans(),
)


def varied(drawn: list[tuple[str, str, str | None, int, int, bool]]) -> Sequence[Node]:
    objects, pods = [], []
    for number, (kind, zone, layer, gpus, efa, ready) in enumerate(drawn):
        name = f"n{number}"
        labels = {ZONE: zone, LAYER: layer}
        objects.append(node_object(kind, name, labels=labels, not_ready="" if ready else "gone"))
        pods.append(pod_object(name, {GPU: str(gpus), EFA: str(efa)}))
    return read_nodes(objects, pods)


@given(st.lists(SOME, max_size=12), st.integers(1, 4), st.booleans(), st.randoms())
def test_only_free_nodes_that_are_alike_are_ever_chosen(
    drawn: list[Any], count: int, gpu: bool, order: random.Random
) -> None:
    criteria = NodeCriteria(count=count, needs_gpu=gpu)
    there = list(varied(drawn))
    try:
        found = choose(there, criteria)
    except MachineError:
        return
    assert len(found) == len({node.name for node in found}) == count
    assert all(node.ready and node.gpus.all_free and node.fabric.all_free for node in found)
    assert (
        len({(n.instance_type, n.zone, n.gpus, n.fabric, n.resource, n.arch) for n in found}) == 1
    )
    assert not gpu or found[0].gpus.allocatable
    order.shuffle(there)
    assert choose(there, criteria) == found
