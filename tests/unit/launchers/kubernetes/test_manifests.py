"""The objects of a run: what the API is sent, and what is never sent or shown."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.catalog.kubernetes_resources import pod_resources
from fabbench.catalog.systems import require_system
from fabbench.launchers.kubernetes import LEASE_S
from fabbench.launchers.kubernetes.manifests import (
    TTL_S,
    RunSpec,
    escape_argument,
    owned_by,
    watchdog_script,
    workload,
)
from fabbench.launchers.kubernetes.mpijob import launcher as mpijobs
from fabbench.launchers.kubernetes.mpijob.render import scripted
from fabbench.launchers.kubernetes.nodes import read_node, read_nodes
from fabbench.launchers.kubernetes.select_nodes import resources_on
from fabbench.launchers.pod_options import PodOptions
from fabbench.model.errors import RequestError
from tests.support.golden import GOLDEN, assert_golden
from tests.support.kubernetes_schema import build, schema_problems
from tests.support.paths import DATA
from tests.support.pod_objects import EFA, GPU, NODES, node_object
from tests.support.requests import read_options


def run_spec(kind: str, **changes: Any) -> RunSpec:
    """Ask for two nodes of a kind of nodes.json."""
    nodes = read_nodes([node_object(kind, f"{kind}-1"), node_object(kind, f"{kind}-2")])
    usual = RunSpec(
        run="ab12",
        count=2,
        resources=resources_on(nodes, gpus=True),
        deadline_s=3600,
        hostnames=tuple(node.hostname for node in nodes),
    )
    return dataclasses.replace(usual, **changes)


def offline(instance_type: str) -> RunSpec:
    resources = pod_resources(require_system(instance_type))
    return RunSpec(
        run="ab12", count=2, resources=resources, deadline_s=3600, instance_type=instance_type
    )


DOCUMENTS: dict[str, Any] = {
    "p5": workload(run_spec("p5")),
    "hyperpod-p4d": workload(run_spec("hyperpod-p4d")),
    "c7gn-user": workload(run_spec("c7gn", user=1000, image="registry.example/bench:1")),
    "coreweave-h100": workload(run_spec("coreweave-h100")),
    "p5-offline": workload(offline("ml.p5.48xlarge")),
    "p5-host-network": workload(run_spec("p5", host_network=True)),
    "mpijob-p5": mpijobs.workload(run_spec("p5", arch="amd64")),
    "mpijob-c7gn-offline": mpijobs.workload(offline("c7gn.16xlarge")),
}


USERS = read_options(
    PodOptions,
    {
        "tolerations": ("team", "pool=bench:NoSchedule"),
        "pull_secrets": ("regcred",),
        "runtime_class": "nvidia",
        "labels": ("kueue.x-k8s.io/queue-name=q",),
        "annotations": ("k8s.v1.cni.cncf.io/networks=hostdev-net, other",),
        "node_selector": ("pool=bench",),
    },
)
"""What users add to their pods."""
MORE: dict[str, Any] = {
    "p5-users": workload(run_spec("p5", options=USERS)),
    "mpijob-p5-users": mpijobs.workload(run_spec("p5", options=USERS)),
    "p5-sweep": workload(run_spec("p5", independent=True)),
}
"""Of settings that a cluster need not know."""


def shown(objects: Any) -> str:
    """Write objects for a golden file; the script of the pods is a file of its own."""
    return (
        json.dumps(objects, indent=1).replace(
            json.dumps(escape_argument(watchdog_script())), '"KEEPER"'
        )
        + "\n"
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_manifests_are_the_golden_ones(name: str) -> None:
    """A cluster takes those of data/manifests, too: tests/cluster/test_objects.py."""
    assert_golden(DATA / "manifests" / f"golden-{name}.json", shown(DOCUMENTS[name]))


@pytest.mark.parametrize("name", MORE)
def test_what_users_add_is_in_the_golden_ones(name: str) -> None:
    assert_golden(GOLDEN / f"{name}.json", shown(MORE[name]))
    job = MORE[name][0]
    parts = [each["template"] for each in job["spec"].get("mpiReplicaSpecs", {}).values()]
    for part in parts or [job]:
        assert list(schema_problems(part, "V1PodTemplateSpec" if parts else "V1Job")) == []


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if not name.startswith("mpijob")])
def test_the_client_library_knows_every_field(name: str) -> None:
    for thing in DOCUMENTS[name]:
        model = f"V1{thing['kind']}"
        assert list(schema_problems(thing, model)) == []
        assert build(thing, model).metadata.name == "fabbench-ab12"


def test_an_unknown_field_and_a_wrong_type_would_be_found() -> None:
    (job, *_) = workload(run_spec("p5"))
    job["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    job["spec"]["backoffLimit"] = "0"
    assert list(schema_problems(job, "V1Job")) == [
        "V1Job.spec.backoffLimit: '0' is not a valid int",
        "V1Job.spec.template.spec.containers[0]: no field resource",
    ]


MPIJOB = {"slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs",
          "sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"}  # fmt: skip
RUN_POLICY = {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
              "schedulingPolicy", "suspend", "managedBy"}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("mpijob")])
def test_an_mpijob_has_only_fields_of_v2beta1(name: str) -> None:
    (job,) = DOCUMENTS[name]
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert set(job["spec"]) <= MPIJOB
    assert set(job["spec"]["runPolicy"]) <= RUN_POLICY
    assert set(job["spec"]["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    for replicas in job["spec"]["mpiReplicaSpecs"].values():
        assert set(replicas) <= {"replicas", "restartPolicy", "template"}
        assert list(schema_problems(replicas["template"], "V1PodTemplateSpec")) == []


def pod_specs(thing: Any) -> Iterator[Any]:
    """Yield the specifications of pods, wherever they are in an object."""
    if isinstance(thing, dict):
        if "containers" in thing:
            yield thing
        for value in thing.values():
            yield from pod_specs(value)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from pod_specs(value)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_container_drops_what_it_does_not_need(name: str) -> None:
    specs = list(pod_specs(DOCUMENTS[name]))
    assert len(specs) == (2 if name.startswith("mpijob") else 1)
    for spec in specs:
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        security = container["securityContext"]
        assert security["capabilities"]["drop"] == ["ALL"]
        assert set(security["capabilities"].get("add", ())) <= {"IPC_LOCK"}
        assert not security["allowPrivilegeEscalation"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pods_have_no_privilege_and_ask_only_for_cpus_without_a_limit(name: str) -> None:
    text = json.dumps(DOCUMENTS[name])
    assert '"privileged": true' not in text
    assert "hostPath" not in text
    assert ("hostNetwork" in text) is ("host-network" in name)
    for resources in re.findall(r'"resources": (\{.*?\}\})', text):
        found = json.loads(resources)
        assert (list(found["requests"]), "cpu" in found["limits"]) == (["cpu"], False)


def pod(objects: Any) -> Any:
    return objects[0]["spec"]["template"]["spec"]


def test_huge_pages_are_asked_for_only_where_a_node_has_them() -> None:
    bare = read_node(node_object("p5", allocatable={"hugepages-2Mi": "0"}))
    assert "hugepages-2Mi" not in resources_on([bare], gpus=True).requests()
    named = {"p5.48xlarge": "5120Mi", "g6e.48xlarge": None, "p6e-gb200.36xlarge": None}
    for name, amount in named.items():  # whose nodes are not seen
        requests = pod_resources(require_system(name)).requests()
        assert requests.get("hugepages-2Mi") == amount


def test_memory_holds_shared_memory_and_leaves_room() -> None:
    for kind in NODES:
        node = read_node(NODES[kind])
        resources = resources_on([node], gpus=True)
        assert resources.shm * 3 < resources.memory * 2
        assert 0 < resources.memory <= node.memory.free * 3 // 4
        assert 0 < resources.cpus <= node.cpus.free // 2


def test_pods_without_gpus_leave_them_alone() -> None:
    assert resources_on([read_node(NODES["p5"])], gpus=False).gpus == 0


def test_a_node_without_devices_gets_a_pod_that_locks_no_memory() -> None:
    bare = read_node(node_object("lab", allocatable={EFA: "0", GPU: "0"}))
    container = pod(workload(run_spec("lab", resources=resources_on([bare], gpus=True))))[
        "containers"
    ][0]
    assert set(container["resources"]["limits"]) == {"memory"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_catalogue_knows_what_ultraservers_have() -> None:
    found = require_system("ml.p6e-gb200.36xlarge")
    assert (found.arch, pod_resources(found).devices) == ("arm64", 4)


def test_the_job_owns_the_rest() -> None:
    claim = {"kind": "ResourceClaimTemplate", "metadata": {"name": "fabbench-ab12"}}
    job, *rest = (*workload(run_spec("p5")), claim)
    made = {**job, "metadata": {**job["metadata"], "uid": "u-1"}}
    for thing in owned_by(rest, made):
        assert thing["metadata"]["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "fabbench-ab12", "uid": "u-1"}
        ]
    assert all("ownerReferences" not in thing["metadata"] for thing in rest)


def test_all_is_gone_within_two_minutes_of_the_last_beat() -> None:
    assert LEASE_S + TTL_S + 5 < 120


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("tolerations", ("team:Never",)),
        ("tolerations", ("=a",)),
        ("tolerations", ("team=a b",)),
        ("pull_secrets", ("Reg_Cred",)),
        ("runtime_class", "-nvidia"),
        ("labels", ("team",)),
        ("labels", ("team=a b",)),
        ("labels", ("fabbench/run=x",)),
        ("labels", ("job-name=x",)),
        ("annotations", ("a b=c",)),
        ("node_selector", ("pool",)),
    ],
)
def test_options_that_the_api_would_refuse_are_refused(setting: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        read_options(PodOptions, {setting: value})
    assert caught.value.hint


def test_as_many_pods_as_nodes() -> None:
    with pytest.raises(RequestError) as caught:
        workload(run_spec("p5", count=3))
    assert caught.value.hint


def test_a_script_that_fits_no_argument_is_refused() -> None:
    with pytest.raises(RequestError, match="KiB"):
        scripted(run_spec("p5"), "x" * 130_000)


def expanded(text: str, known: dict[str, str]) -> str:
    """Expand as Kubernetes does (third_party/forked/golang/expansion/expand.go)."""
    done, index = "", 0
    while index < len(text):
        if text[index] != "$" or index + 1 == len(text):
            done, index = done + text[index], index + 1
        elif text[index + 1] == "$":
            done, index = done + "$", index + 2
        elif text[index + 1] == "(" and ")" in text[index:]:
            end = text.index(")", index)
            name = text[index + 2 : end]
            done, index = done + known.get(name, f"$({name})"), end + 1
        else:
            done, index = done + text[index : index + 2], index + 2
    return done


@given(st.text("$()Ax {", max_size=12))
def test_scripts_come_through_kubernetes_as_they_are(text: str) -> None:
    assert expanded(escape_argument(text), {"A": "changed", "x": "changed", "": "changed"}) == text
