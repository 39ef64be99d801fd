"""`--cluster-profile`.

Pods against the manifests that the clouds publish, transcribed fact by fact.
"""

import dataclasses
import json
from typing import Any

import pytest
from kubernetes import client

from fabbench.benchmarks import nccl_env
from fabbench.catalog.kubernetes_resources import (
    DECLARED,
    PROFILES,
    declared_profile,
    override_resources,
    pod_resources,
    profile_for,
)
from fabbench.catalog.nccl_environment import environment
from fabbench.catalog.offline_inventory import inventory_of
from fabbench.catalog.systems import instance
from fabbench.launchers.kubernetes import CLUSTER_PROFILES, KubernetesOptions
from fabbench.launchers.kubernetes.discover import reject_profile_conflicts
from fabbench.launchers.kubernetes.manifests import (
    RunSpec,
    escape_argument,
    watchdog_script,
    workload,
)
from fabbench.launchers.kubernetes.mpijob import launcher as mpijobs
from fabbench.launchers.kubernetes.nodes import Node, read_nodes
from fabbench.launchers.kubernetes.select_nodes import resources_on
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import networks
from fabbench.model.hosts import Needs, Target
from tests.support.golden import GOLDEN, assert_golden
from tests.support.kubernetes_schema import schema_problems
from tests.support.paths import DATA
from tests.support.pod_objects import EFA, GPU, node_object

CLOUDS = tuple(profile.name for profile in DECLARED if not profile.device_class)
VF = "nvidia.com/rdma-vf"


def spec(name: str, **changes: Any) -> RunSpec:
    profile = declared_profile(name)
    assert profile is not None
    of_type = instance("p5.48xlarge") if profile.device_class else None
    resources = pod_resources(of_type, profile)
    usual = RunSpec(
        run="ab12",
        count=2,
        resources=resources,
        deadline_s=3600,
        host_network=profile.host_network,
        image=profile.image or "registry.example/bench:1",
    )
    return dataclasses.replace(usual, **changes)


PUBLISHED = {
    ("gke-gib", "gib"): {
        "NCCL_NET": "gIB",
        "NCCL_IB_TC": "52",
        "NCCL_IB_FIFO_TC": "84",
        "NCCL_CROSS_NIC": "0",
    },
    ("gke-tcpxo", "tcpxo"): {
        "NCCL_NET": "FasTrak",
        "NCCL_FASTRAK_CTRL_DEV": "eth0",
        "NCCL_FASTRAK_IFNAME": "eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8",
        "NCCL_TUNER_CONFIG_PATH": "/usr/local/nvidia/lib64/a3plus_tuner_config.textproto",
        "NCCL_PROTO": "Simple,LL128",
    },
    ("oke-rdma-vf", "roce"): {
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_IB_TC": "41",
        "NCCL_IB_SL": "0",
    },
    ("oke-host-network", "roce"): {
        "NCCL_NET": "IB",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_TIMEOUT": "22",
    },
}


@pytest.mark.parametrize(("name", "fabric"), PUBLISHED)
def test_ranks_get_what_the_platform_sets_and_tcp_does_not(name: str, fabric: str) -> None:
    profile = declared_profile(name)
    assert profile is not None
    assert fabric in profile.fabrics
    needs = Needs(programs=(), install="", mpi=True, gpus=True)
    hosts = inventory_of(
        "", 2, target=Target(name="t", launcher="kubernetes"), needs=needs, profile=profile
    ).hosts
    assert hosts[0].gpus == 8
    assert nccl_env.why_unsupported(fabric, hosts[0]) == ""
    ours = environment(fabric, hosts)
    assert PUBLISHED[name, fabric].items() <= ours.env.items()
    assert not set(ours.env) & set(ours.unset)
    baseline = environment("tcp", hosts).env
    assert baseline["NCCL_NET"] == "Socket"
    assert not {each for each in baseline if "FASTRAK" in each or each.startswith("NCCL_IB_TC")}


def test_networks_of_google_need_their_profile() -> None:
    needs = Needs(programs=(), install="", mpi=True, gpus=True)
    target = Target(name="t", launcher="kubernetes")
    host = inventory_of("p5.48xlarge", 2, target=target, needs=needs).hosts[0]
    assert "--cluster-profile gke-gib" in nccl_env.why_unsupported("gib", host)
    assert "--cluster-profile gke-tcpxo" in nccl_env.why_unsupported("tcpxo", host)
    # As NCCL prints them: "Using network gIB", "Using network FasTrak".
    assert [*networks("gib"), *networks("tcpxo")] == ["gib", "fastrak"]


# Read against what the clouds publish, and equal to it in annotations, volumes, variables,
# side-cars and rights: Google's gpudirect-rdma/nccl-test.yaml and
# gpudirect-tcpxo/nccl-test-latest.yaml (the daemon as best-practice.md has it); Oracle's
# manifests/nccl-tests/kueue/BM.GPU.H100.8.yaml (sshd on 2222), and virtual-functions/ beside it: 16
# of an H100, 8 of an H200.
DOCUMENTS: dict[str, Any] = {
    "efa-dra": workload(spec("efa-dra")),
    **{name: workload(spec(name)) for name in CLOUDS},
    "mpijob-tcpxo": mpijobs.workload(spec("gke-tcpxo")),
    "mpijob-oke": mpijobs.workload(spec("oke-rdma-vf")),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_manifests_are_the_golden_ones(name: str) -> None:
    """A cluster takes those of data/manifests, too: tests/cluster/test_objects.py."""
    keeper = json.dumps(escape_argument(watchdog_script()))
    text = json.dumps(DOCUMENTS[name], indent=1).replace(keeper, '"KEEPER"') + "\n"
    assert_golden(
        GOLDEN / "efa-dra.json" if name == "efa-dra" else DATA / f"manifests/golden-{name}.json",
        text,
    )


def test_pods_of_fewer_virtual_functions_ask_for_fewer() -> None:
    fewer = override_resources(spec("oke-rdma-vf").resources, [f"{VF}=8"])
    pod = workload(spec("oke-rdma-vf", resources=fewer))[0]["spec"]["template"]
    assert (
        pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].count("default/rdma-vf") == 8
    )


@pytest.mark.parametrize("name", [*CLOUDS, "efa-dra"])
def test_the_client_library_knows_every_field(name: str) -> None:
    if name == "efa-dra" and not hasattr(client, "V1ResourceClaimTemplate"):
        pytest.skip("releases before 34 know no claims of resource.k8s.io/v1")
    for thing in workload(spec(name)):
        assert list(schema_problems(thing, f"V1{thing['kind']}")) == []


def node(name: str, resources: dict[str, str]) -> Node:
    (found,) = read_nodes([node_object("p5", name, allocatable={EFA: "0", **resources})])
    return found


def test_nodes_say_how_many_devices_there_are() -> None:
    nodes = [node("a", {VF: "8"}), node("b", {VF: "8"})]
    profile = declared_profile("oke-rdma-vf")
    assert resources_on(nodes, gpus=True, declared=profile).limits()[VF] == "8"
    # Nobody declared it, and so pods stay without privilege.
    plain = resources_on(nodes, gpus=True)
    assert VF not in plain.limits()
    assert plain.profile is None
    with pytest.raises(MachineError, match=r"has no nvidia\.com/rdma-vf"):
        resources_on([node("a", {})], gpus=True, declared=profile)


def test_a_declared_profile_needs_no_resource_of_the_node() -> None:
    found = resources_on([node("a", {})], gpus=True, declared=declared_profile("gke-gib"))
    assert found.profile is declared_profile("gke-gib")
    assert found.limits()[GPU] == "8"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cluster_profile": "gke-gib"}, "has nothing of GKE"),
        ({"cluster_profile": "oke-rdma-vf", "instance_type": "p5.48xlarge"}, "which is OKE"),
        (
            {"cluster_profile": "gke-gib", "instance_type": "BM.GPU.H100.8", "image": "own:1"},
            "which is GKE",
        ),
        ({"cluster_profile": "nebius", "instance_type": "gb200-4x"}, "which is Nebius"),
        ({"cluster_profile": "imex", "instance_type": "gpu-h100-sxm"}, "which is GB200"),
        ({"cluster_profile": "imex", "instance_type": "h100-ib"}, "which is GB200"),
        ({"cluster_profile": "efa-dra", "instance_type": "BM.GPU.H100.8"}, "which is EKS"),
        ({"cluster_profile": "efa-dra"}, "devices are unknown"),
    ],
)
def test_options_that_a_profile_does_not_go_with_are_refused(
    options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(RequestError, match=expected) as caught:
        reject_profile_conflicts(KubernetesOptions(**options), nodes_seen=False)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("profile", "instance_type"),
    [
        ("efa-dra", "ml.p5.48xlarge"),
        ("gke-gib", "a3-ultragpu-8g"),
        ("imex", "gb200-nvl72"),
        ("nebius", "gpu-h100-sxm"),
        ("oke-rdma-vf", "BM.GPU.H100.8"),
        ("oke-host-network", "8xH100"),  # of which no NICs are known
    ],
)
def test_a_profile_goes_with_nodes_of_its_platform(profile: str, instance_type: str) -> None:
    options = KubernetesOptions(cluster_profile=profile, instance_type=instance_type, image="own:1")
    assert options.profile is not None
    for seen in (True, False):
        reject_profile_conflicts(options, nodes_seen=seen)


def test_a_run_gives_pods_no_profile_that_nobody_declared() -> None:
    """`render` shows what it implies: tests/commands/test_render_matrix.py."""
    for implying in ("a3-megagpu-8g", "a3-ultragpu-8g", "gb200-4x"):
        options = KubernetesOptions(instance_type=implying)
        assert (options.profile, options.on_host_network) == (None, False)


def test_the_names_are_those_of_the_option() -> None:
    assert tuple(profile.name for profile in DECLARED) == CLUSTER_PROFILES
    assert profile_for(VF) is declared_profile("oke-rdma-vf")
    assert not {profile.name for profile in PROFILES} & set(CLUSTER_PROFILES)
