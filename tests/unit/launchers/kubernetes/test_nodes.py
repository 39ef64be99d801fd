"""Nodes as the API lists them: what they have, what is free, and what is wrong with them."""

import dataclasses
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.catalog.kubernetes_resources import PROFILES, parse_quantity, profile_for
from fabbench.hosts.check import Check, Status
from fabbench.launchers.kubernetes.checks import check_nodes, nodes_table
from fabbench.launchers.kubernetes.nodes import (
    Amount,
    read_node,
    read_nodes,
    requests,
    values_of_label,
)
from fabbench.model.errors import MachineError
from fabbench.report.table import to_markdown
from tests.support.golden import GOLDEN, assert_golden
from tests.support.growth import calls
from tests.support.pod_objects import EFA, FOLDER, GPU, NODES, POD, node_object, pod_object

PASS, WARN, FAIL, SKIP = Status.PASS, Status.WARN, Status.FAIL, Status.SKIP


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("0", 0), (8, 8), ("500m", Fraction(1, 2)), ("5120Mi", 5120 << 20), ("1e3", 1000),
        ("1E3", 1000), ("1E", 10**18), ("1Ei", 1 << 60), ("1.5Gi", 3 << 29), (".5", Fraction(1, 2)),
        ("2.", 2), ("+3k", 3000), ("100n", Fraction(1, 10**7)), ("1e-3", Fraction(1, 1000)),
        ("-1", -1), ("2078396392Ki", 2078396392 << 10),
    ],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str | int, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "8 Gi", "5K", "1ki", "Mi", "1e", "0x10", "1.2.3", "1Mi3", "--1", "٣"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


@given(
    st.decimals(0, 10**6, places=3),
    st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "E3"]),
)
def test_quantities_agree_with_the_client_library(number: object, suffix: str) -> None:
    from kubernetes.utils import quantity

    theirs: Any = quantity.parse_quantity
    assert parse_quantity(f"{number}{suffix}") == Fraction(theirs(f"{number}{suffix}"))


def test_nodes_are_read_as_recorded() -> None:
    read = [read_node(each) for each in NODES.values()]
    shown = {
        node.name: {
            field.name: str(getattr(node, field.name)) for field in dataclasses.fields(node)
        }
        for node in read
    }
    assert_golden(GOLDEN / "nodes.json", json.dumps(shown, indent=1) + "\n")
    assert (
        read_node(NODES["hyperpod-p4d"]).instance_type,
        read_node(NODES["hyperpod-p4d"]).hyperpod,
    ) == (
        "p4d.24xlarge",
        True,
    )


def test_a_bare_object_is_a_node_that_says_nothing() -> None:
    node = read_node({"metadata": {"name": "x"}, "spec": {}, "status": {}})
    assert (node.ready, node.resource, node.instance_type, node.hostname) == (False, "", "", "x")


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        (EFA, "efa"), ("rdma/ib", "coreweave"), ("rdma/hca_shared_devices_a", "aks"),
        ("rdma/rdma_shared_device_a", "rdma-shared"), ("nvidia.com/hostdev", "hostdev"),
        (GPU, None),
    ],
)  # fmt: skip
def test_a_profile_is_found_by_its_resource(resource: str, profile: str | None) -> None:
    found = profile_for(resource)
    assert (found.name if found else None) == profile
    assert all("IPC_LOCK" in each.capabilities for each in PROFILES)


def test_a_resource_with_devices_goes_before_one_without() -> None:
    node = read_node(node_object("coreweave-h100", allocatable={EFA: "0"}))
    assert (node.resource, node.fabric.allocatable) == ("rdma/ib", 1000)


def test_a_pod_requests_what_the_scheduler_counts() -> None:
    # The first init container needs more CPU than all containers together; the sidecar runs beside
    # them.
    found = requests(POD)
    assert found["cpu"] == 4000 + 10
    assert found["memory"] == (64 << 30) + 10**8 + (128 << 20)
    assert (found[GPU], found[EFA], found["hugepages-2Mi"]) == (4, 16, 5120 << 20)


@pytest.mark.parametrize(
    ("phase", "free"), [("Running", 16), ("Pending", 16), ("Succeeded", 32), ("Failed", 32)]
)
def test_what_pods_request_is_not_free(phase: str, free: int) -> None:
    name = NODES["p5"]["metadata"]["name"]
    pods = [pod_object(name, {EFA: "16"}, phase=phase), pod_object("elsewhere", {EFA: "4"})]
    (node,) = read_nodes([NODES["p5"]], pods)
    assert node.fabric == Amount(32, free)


def test_where_not_all_pods_are_seen_nobody_says_what_is_free() -> None:
    own = pod_object("p5-1", {GPU: "8"})
    nodes = read_nodes(
        [node_object("p5", "p5-1"), node_object("p5", "p5-2")], [own], all_pods=False
    )
    assert [str(node.gpus) for node in nodes] == ["?/8", "?/8"]
    assert [node.gpus.all_free for node in nodes] == [False, True]
    overview = nodes_table(nodes)
    assert overview.records[1]["gpus"] == {"allocatable": 8, "free": None}
    free = [each for each in check_nodes(nodes) if each.name == "free"]
    assert [each.status for each in free] == [WARN, SKIP]


def test_pods_that_ask_for_more_than_there_is_leave_nothing_free() -> None:
    name = NODES["p5"]["metadata"]["name"]
    (node,) = read_nodes(
        [NODES["p5"]], [pod_object(name, {GPU: "8"}), pod_object(name, {GPU: "1"})]
    )
    assert node.gpus == Amount(8, 0)


def one(name: str, *objects: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> Check:
    checks = [check for check in check_nodes(read_nodes(objects, pods)) if check.name == name]
    assert all(
        bool(check.advice) == (check.status is not PASS) and check.seen.endswith(".")
        for check in checks
    )
    return checks[0]


CASES = json.loads((FOLDER / "node-checks.json").read_text("utf-8"))
"""A check, its status for a node of a kind with changes, and words of what was seen."""
NAMED = NODES["p5"]["metadata"]["name"]


@pytest.mark.parametrize(("name", "status", "kind", "changes", "seen"), CASES)
def test_checks_of_one_node(
    name: str, status: str, kind: str, changes: dict[str, Any], seen: str
) -> None:
    check = one(name, node_object(kind, **changes))
    assert (check.status, seen in check.seen) == (status, True), check.seen


def test_a_missing_device_plugin_is_reported() -> None:
    node = node_object("p5")
    del node["status"]["allocatable"][EFA]
    check = one("fabric devices", node)
    assert check.status is WARN
    assert "a p5.48xlarge has 32 EFA." in check.seen
    assert "aws-efa-k8s-device-plugin" in check.advice


def test_a_busy_node_is_reported() -> None:
    check = one("free", node_object("p5"), pods=(pod_object(NAMED, {GPU: "8", EFA: "32"}),))
    assert (check.status, check.seen) == (
        WARN,
        "0 of 8 GPUs free; 0 of 32 vpc.amazonaws.com/efa free.",
    )


def test_mixed_types_and_zones_are_reported() -> None:
    nodes = [node_object("p5", "a"), node_object("p5", "b"), node_object("hyperpod-p4d", "c")]
    checks = {(c.host, c.name): c for c in check_nodes(read_nodes(nodes))}
    assert [checks[host, "instance type"].status for host in "abc"] == [PASS, PASS, WARN]
    assert "same type" in checks["c", "instance type"].advice
    assert [checks[host, "zone"].status for host in "abc"] == [PASS, PASS, WARN]


def test_the_table_is_the_guides_and_more() -> None:
    busy = pod_object("b", {GPU: "8", EFA: "32"})
    nodes = read_nodes(
        [node_object("p5", "a"), node_object("p5", "b", cordoned=True), NODES["c7gn"]], [busy]
    )
    overview = nodes_table(nodes)
    lines = to_markdown(overview.table).splitlines()
    assert "| NAME" in lines[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["NAME", "INSTANCE-TYPE", "GPU", "EFA", "ZONE", "LAYER", "HEALTH"]
    assert cells[2] == ["a", "p5.48xlarge", "8/8", "32/32", "us-east-2b", "nn-0c1f", "ok"]
    assert cells[3] == ["b", "p5.48xlarge", "0/8", "0/32", "us-east-2b", "nn-0c1f", "cordoned"]
    assert cells[4] == [
        "ip-10-2-3-44.ec2.internal",
        "c7gn.16xlarge",
        "-",
        "1/1",
        "us-east-1a",
        "-",
        "ok",
    ]
    assert overview.records[1]["fabric"] == {"resource": EFA, "allocatable": 32, "free": 0}


def test_thousands_of_nodes_are_read_and_checked_in_one_pass() -> None:
    def spent(count: int) -> int:
        nodes = [node_object("p5", f"n{number}") for number in range(count)]
        pods = [pod_object(f"n{number % count}", {EFA: "1"}) for number in range(3 * count)]
        return calls(lambda: check_nodes(read_nodes(nodes, pods)))

    assert spent(1000) < 4.5 * spent(250)


def test_groups_are_the_values_of_a_label() -> None:
    key = "topology.k8s.aws/network-node-layer-3"
    nodes = [
        {"metadata": {"name": "a", "labels": {key: "nn-1", "topology.kubernetes.io/zone": "z"}}},
        {"metadata": {"name": "b", "labels": {key: "nn-2", "topology.kubernetes.io/zone": "z"}}},
        {"metadata": {"name": "c", "labels": {"topology.kubernetes.io/zone": "z"}}},
    ]
    assert values_of_label(nodes, ["a", "b"], key) == {"a": "nn-1", "b": "nn-2"}
    with pytest.raises(MachineError, match=f"Nodes without the label {key}: c") as failed:
        values_of_label(nodes, ["a", "c"], key)
    assert failed.value.hint == "All of them have topology.kubernetes.io/zone."
