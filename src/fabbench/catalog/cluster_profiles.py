"""How pods get access to a fabric: one profile per platform. Pure.

Most platforms have a device plugin: its resource on the nodes identifies the profile (`PROFILES`), and pods
need IPC_LOCK, for registering memory, and no privilege. Others need more, and are declared by the user
(`DECLARED`): directories of the nodes, annotations, a sidecar, privilege.

Sources: the EKS user guide (node-efa, device-management-efa) and the EFA device plugin; CoreWeave's
nccl-tests; Azure's ai-infrastructure-on-azure; the examples of NVIDIA's network operator. GKE: nccl-test in
gpudirect-rdma and gpudirect-tcpxo of GoogleCloudPlatform/container-engine-accelerators (992db81), the release
notes of TCPXO of 2026-01-09 there, and what Google's script sets for gIB. OKE: manifests/nccl-tests/kueue
(BM.GPU.H100.8) and docs/using-rdma-network-interfaces-in-manifests.md of oracle-quickstart/oci-hpc-oke
(61d210a).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

EFA = "vpc.amazonaws.com/efa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One volume of a pod, and where it is mounted. `source` is the volume without its name."""

    name: str
    path: str
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A program of the platform that runs beside the benchmark in each pod."""

    name: str
    image: str
    script: str
    """What its shell runs."""
    capabilities: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a pod requests to use a fabric."""

    name: str
    platform: str
    """A description for users."""
    resource: str = ""
    """The extended resource; ``*`` stands for any text. Empty: pods request none."""
    fabrics: tuple[str, ...]
    """The fabrics that it may provide, by fabbench's names."""
    shared: bool = False
    """Whether one unit gives a pod all devices of a pool (the RDMA shared device plugin). Else a pod
    requests all units of its node, each of which is one device."""
    huge_pages: bool = False
    """Whether the fabric's library uses huge pages, where the node has some."""
    capabilities: tuple[str, ...] = ("IPC_LOCK",)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    plugin: str = ""
    """What advertises the resource on nodes, and is missing where they have none."""
    usual_devices: int = 0
    """How many units of the resource nodes have, where no node is inspected."""
    device_annotation: tuple[str, str] | None = None
    """The key of an annotation, and the value that it repeats for each device."""
    device_class: str = ""
    """The DeviceClass of dynamic resource allocation (DRA), of which a pod claims all devices."""
    host_network: bool = False
    privileged: bool = False
    sidecar: Sidecar | None = None
    image: str = ""
    """The platform's published image, where AWS's does not work."""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Fabric → the variables that the platform sets for NCCL on it."""


PROFILES = (
    Profile(
        name="efa",
        platform="EKS, SageMaker HyperPod",
        resource=EFA,
        fabrics=("efa",),
        huge_pages=True,
        plugin="the EFA device plugin (Helm chart aws-efa-k8s-device-plugin)",
    ),
    Profile(
        name="coreweave",
        platform="CoreWeave",
        resource="rdma/ib",
        fabrics=("ib",),
        shared=True,
        plugin="CoreWeave's RDMA device plugin",
    ),
    Profile(
        name="aks",
        platform="AKS",
        resource="rdma/hca_shared_devices_*",
        fabrics=("ib",),
        shared=True,
        plugin="the RDMA shared device plugin of NVIDIA's network operator",
    ),
    Profile(
        name="rdma-shared",
        platform="NVIDIA network operator, shared devices",
        resource="rdma/*",
        fabrics=("ib", "roce"),
        shared=True,
        plugin="the RDMA shared device plugin of NVIDIA's network operator",
    ),
    Profile(
        name="hostdev",
        platform="NVIDIA network operator, host devices",
        resource="nvidia.com/hostdev",
        fabrics=("ib", "roce"),
        plugin="the SR-IOV device plugin of NVIDIA's network operator",
    ),
)
"""Profiles that a resource of the nodes identifies, in the order in which they are tried."""

_GKE = "networking.gke.io"
_GKE_LIBRARIES = "/usr/local/nvidia/lib64"


def _gke_interfaces(first: int, network: str, number: int) -> dict[str, str]:
    """Return the annotations that give a pod the interfaces of eight NICs of its node beside its own."""
    pairs = [("eth0", "default")]
    pairs += [(f"eth{first + index}", f"{network}{number + index}") for index in range(8)]
    values = [{"interfaceName": name, "network": attached} for name, attached in pairs]
    texts = [json.dumps(value, separators=(",", ":")) for value in values]
    return {f"{_GKE}/default-interface": "eth0", f"{_GKE}/interfaces": f"[{', '.join(texts)}]"}


def _host_path(name: str, source: str, path: str) -> Mount:
    return Mount(name=name, path=path, source={"hostPath": {"path": source}})


_TCPXO_LIBRARIES = _host_path("nvidia", "/home/kubernetes/bin/nvidia/lib64", _GKE_LIBRARIES)
_TCPXO_DEVICES = (*(f"nvidia{index}" for index in range(8)), "nvidiactl", "nvidia-uvm", "dmabuf_import_helper")
_TCPXO_DAEMON = Sidecar(
    name="tcpxo-daemon",
    image="us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21",
    script="set -ex; chmod 755 /fts/entrypoint_rxdm_container.sh; /fts/entrypoint_rxdm_container.sh --num_hops=2",
    capabilities=("NET_ADMIN", "NET_BIND_SERVICE"),
    mounts=(
        _TCPXO_LIBRARIES,
        _host_path("sys", "/sys", "/hostsysfs"),
        _host_path("proc-sys", "/proc/sys", "/hostprocsysfs"),
    ),
    env={"LD_LIBRARY_PATH": _GKE_LIBRARIES},
)
_OCI_RDMA = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_TC": "41",
    "NCCL_IB_SL": "0",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
}
_INFINIBAND = _host_path("devinf", "/dev/infiniband", "/dev/infiniband")

DECLARED = (
    Profile(
        name="efa-dra",
        platform="EKS with AWS's DRA driver for EFA (dranet)",
        fabrics=("efa",),
        huge_pages=True,
        device_class="efa.networking.k8s.aws",
    ),
    Profile(
        name="gke-gib",
        platform="GKE, A3 Ultra and A4 (GPUDirect RDMA, gIB)",
        fabrics=("gib",),
        annotations=_gke_interfaces(2, "rdma-", 0),
        mounts=(
            _host_path("library-dir-host", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia"),
            _host_path("gib", "/home/kubernetes/bin/gib", "/usr/local/gib"),
        ),
        env={"LD_LIBRARY_PATH": _GKE_LIBRARIES},
        image="us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic:v1.1.1",
        settings={
            "gib": {
                "NCCL_CROSS_NIC": "0",
                "NCCL_NET_GDR_LEVEL": "PIX",
                "NCCL_P2P_NET_CHUNKSIZE": "131072",
                "NCCL_NVLS_CHUNKSIZE": "524288",
                "NCCL_IB_ADAPTIVE_ROUTING": "1",
                "NCCL_IB_QPS_PER_CONNECTION": "4",
                "NCCL_IB_TC": "52",
                "NCCL_IB_FIFO_TC": "84",
            }
        },
    ),
    Profile(
        name="gke-tcpxo",
        platform="GKE, A3 Mega (GPUDirect-TCPXO)",
        fabrics=("tcpxo",),
        capabilities=(),
        annotations={
            # YAML, as Google's block of eleven lines.
            "devices.gke.io/container.tcpxo-daemon": "[{}]".format(
                ", ".join(f"{{path: /dev/{name}}}" for name in _TCPXO_DEVICES)
            ),
            **_gke_interfaces(1, "vpc", 1),
        },
        mounts=(_TCPXO_LIBRARIES, _host_path("aperture-devices", "/dev/aperture_devices", "/dev/aperture_devices")),
        env={"LD_LIBRARY_PATH": _GKE_LIBRARIES, "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices"},
        sidecar=_TCPXO_DAEMON,
        image="us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.15",
        settings={
            "tcpxo": {
                "NCCL_FASTRAK_CTRL_DEV": "eth0",
                "NCCL_FASTRAK_IFNAME": ",".join(f"eth{number}" for number in range(1, 9)),
                "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
                "NCCL_FASTRAK_NUM_FLOWS": "2",
                "NCCL_FASTRAK_USE_SNAP": "1",
                "NCCL_FASTRAK_USE_LLCM": "1",
                "NCCL_FASTRAK_ENABLE_CONTROL_CHANNEL": "0",
                "NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING": "0",
                "NCCL_FASTRAK_PLUGIN_ACCEPT_TIMEOUT_MS": "600000",
                "NCCL_CROSS_NIC": "0",
                "NCCL_PROTO": "Simple,LL128",
                "NCCL_MIN_NCHANNELS": "4",
                "NCCL_TUNER_PLUGIN": "libnccl-tuner.so",
                "NCCL_TUNER_CONFIG_PATH": f"{_GKE_LIBRARIES}/a3plus_tuner_config.textproto",
                "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE": (f"{_GKE_LIBRARIES}/a3plus_guest_config.textproto"),
                "NCCL_NVLSTREE_MAX_CHUNKSIZE": "131072",
                "NCCL_P2P_NET_CHUNKSIZE": "524288",
                "NCCL_P2P_PCI_CHUNKSIZE": "524288",
                "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
                "NCCL_BUFFSIZE": "8388608",
                "NCCL_NET_GDR_LEVEL": "PIX",
                "NCCL_NVLS_ENABLE": "1",
            }
        },
    ),
    Profile(
        name="oke-rdma-vf",
        platform="OKE, SR-IOV virtual functions with Multus",
        resource="nvidia.com/rdma-vf",
        fabrics=("roce",),
        mounts=(_INFINIBAND,),
        privileged=True,
        plugin="the SR-IOV device plugin of NVIDIA's network operator",
        usual_devices=16,
        # The attachment is in the namespace default, wherever the pods are.
        device_annotation=("k8s.v1.cni.cncf.io/networks", "default/rdma-vf"),
        settings={"roce": {**_OCI_RDMA, "NCCL_IB_HCA": "mlx5"}},
    ),
    Profile(
        name="oke-host-network",
        platform="OKE, the nodes' own RDMA NICs",
        fabrics=("roce",),
        mounts=(_INFINIBAND,),
        privileged=True,
        host_network=True,
        settings={"roce": _OCI_RDMA},
    ),
)
"""Profiles that users declare (``--cluster-profile``)."""


def declared_profile(name: str) -> Profile | None:
    """Return a profile that users declare, by its name; None for an empty name."""
    return next((each for each in DECLARED if each.name == name), None)


def profile_for(resource: str) -> Profile | None:
    """Return the profile of an extended resource; None: it is not a known fabric."""
    known = (*PROFILES, *DECLARED)
    return next((each for each in known if fnmatchcase(resource, each.resource)), None)


def fabric_resource(resources: Collection[str]) -> str:
    """Choose the resource by which pods request a node's fabric; empty where it has none."""
    known = (*PROFILES, *DECLARED)
    matches = (name for each in known for name in sorted(resources) if fnmatchcase(name, each.resource))
    return next(matches, "")
