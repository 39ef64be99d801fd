"""Fabric → the environment that makes NCCL programs (nccl-tests, torch) use it and nothing else. Pure.

Every configuration names its network in NCCL_NET: NCCL then fails if that network is not available, instead
of falling back to another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from fabbench.catalog.instances import RACKS, connects_hosts
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, NO_NETWORK, provider
from fabbench.model.log import Proof

if TYPE_CHECKING:
    from fabbench.model.hosts import Host
    from fabbench.model.plan import Command, Step

PLUGIN = "AWS Libfabric"  # the plugin aws-ofi-nccl in NCCL_NET: every release accepts this name
DEBUG_FILE = "{folder}/debug.%h.%p"
"""Where each rank writes its debug lines, so that they do not tear rows: read while they are written."""
SUBSYSTEMS = "INIT,NET,ENV"  # NCCL's debug lines that show the network, its devices, and the path of each channel
UNKNOWN_INTERFACE = "^docker,lo,veth"  # for NCCL_SOCKET_IFNAME: all interfaces except those that reach no other host

# If inherited, they would make a configuration measure something other than its name says.
_MISLEADING = (
    *("NCCL_NET", "NCCL_HOSTID", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MNNVL_ENABLE", "NCCL_TESTS_SPLIT"),
    *("NCCL_TESTS_SPLIT_MASK", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"),
    *("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_IFACE"),
)
REASONS = {
    "NCCL_NET": "fails where NCCL would fall back to another network",
    "NCCL_TUNER_PLUGIN": "EFA's would steer sockets, too; for EFA, NCCL finds it by itself (2.21 and later)",
    "NCCL_BUFFSIZE": "like P2P_NET_CHUNKSIZE and TOPO_FILE tuned for EFA, where the plugin sets it",
    "NCCL_MNNVL_ENABLE": "0 keeps data off NVLink between hosts; 1 is for the fabric nvlink",
    "NCCL_SOCKET_IFNAME": "ranks meet over an interface that reaches other hosts",
    "NCCL_DEBUG": "the log has to show the network that was used",
}  # variable → why it is set, or unset
_SOCKETS = {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none"}
_IB = {**_SOCKETS, "NCCL_NET": "IB"}
NIC_SELECTORS = {"efa": ("FI_EFA_IFACE", ""), "ib": ("NCCL_IB_HCA", "="), "roce": ("NCCL_IB_HCA", "=")}
"""Fabric → the variable that selects its NICs, and the prefix of the names in its value."""
_GOOGLE_PROFILES = {"gib": "gke-gib", "tcpxo": "gke-tcpxo"}
"""Networks that no device reveals → the cluster profile that has each."""


class NcclEnvironment(NamedTuple):
    """What to set and what to unset for every rank. No name is in both."""

    env: Mapping[str, str]
    unset: tuple[str, ...] = ()


_NETWORKS: Mapping[str, Mapping[str, str]] = {
    "efa": {"NCCL_NET": PLUGIN, "FI_PROVIDER": "efa"},
    "tcp": _SOCKETS,
    "ib": _IB,
    "roce": _IB,
    "gib": {"NCCL_NET": "gIB"},
    "tcpxo": {"NCCL_NET": "FasTrak"},
    "shm": {**_SOCKETS, "NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"},
    "p2p": _SOCKETS,
    # What NVLink does not carry goes over sockets, and shows; MNNVL takes CUDA's virtual memory (cuMem).
    "nvlink": {**_SOCKETS, "NCCL_MNNVL_ENABLE": "1"},
}
_ALSO_UNSET = {
    # Images and the plugin set these for EFA; they change what sockets do.
    "tcp": ("NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_TOPO_FILE"),
    "nvlink": ("NCCL_CUMEM_ENABLE",),
}


def environment(
    fabric: str, hosts: Sequence["Host"], *, debug: str = "INFO", devices: Sequence[str] = ()
) -> NcclEnvironment:
    """Return what NCCL programs need for `fabric` on `hosts`.

    A name that is not one of NCCL's fabrics is a libfabric provider, for the plugin. `debug` is NCCL_DEBUG.
    `devices`, if any, are the only ones to use.
    """
    # On GB200 racks NVLink would carry traffic between hosts.
    bypasses = {} if fabric in NO_NETWORK else {"NCCL_MNNVL_ENABLE": "0"}
    # The interface of sockets, for the data or for the bootstrap of the ranks.
    names = list(dict.fromkeys(host.interface for host in hosts))
    known = f"={','.join(names)}" if all(names) else UNKNOWN_INTERFACE if len(hosts) > 1 else ""
    interface = "=lo" if all(host.virtual for host in hosts) else known
    network = _NETWORKS.get(fabric) or {"NCCL_NET": PLUGIN, "FI_PROVIDER": provider(fabric)}
    rdma = any(host.linked("ib") or host.linked("roce") for host in hosts)  # tcp is kept off these
    # In NCCL_IB_HCA a name without `=` matches as a prefix.
    variable, sign = NIC_SELECTORS[fabric] if devices else ("", "")
    selected = {variable: sign + ",".join(devices)} if devices else {}
    env = {
        **(hosts[0].settings.get(fabric, {}) if hosts else {}),
        **network,
        **bypasses,
        **({"NCCL_SOCKET_IFNAME": interface} if interface else {}),
        **({"NCCL_IB_DISABLE": "1"} if fabric == "tcp" and rdma else gid_setting("NCCL_IB_GID_INDEX", fabric, hosts)),
        **selected,
        "NCCL_DEBUG": debug,
        "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
        "NCCL_DEBUG_FILE": DEBUG_FILE,
    }
    unset = (*_MISLEADING, *_ALSO_UNSET.get(fabric, ()))
    return NcclEnvironment(env=env, unset=tuple(name for name in unset if name not in env))


def gid_setting(variable: str, fabric: str, hosts: Sequence["Host"]) -> Mapping[str, str]:
    """Return a variable with the RoCE GID index, if all devices of all hosts have the same one."""
    indices = {host.gids.get(device) for host in hosts for device in host.linked("roce")}
    if fabric == "roce" and len(indices) == 1 and (index := indices.pop()) is not None:
        return {variable: str(index)}
    return {}


def why_unsupported(fabric: str, host: "Host") -> str:
    """Explain in a sentence why NCCL programs cannot use `fabric` on `host`; empty if they can."""
    if fabric in INTRA_HOST and host.gpus < 2 and not host.virtual:
        count = "1 was" if host.gpus == 1 else f"{host.gpus} were"
        return f"it takes two GPUs of one host, and {count} found."
    if fabric == "nvlink" and host.virtual:
        return "it is a part of one machine, whose NVLink is p2p."
    if fabric == "nvlink" and host.gpu_model and not connects_hosts(host.gpu_model):
        return f"its GPUs are {host.gpu_model}, and NVLink connects hosts only in racks of {' and '.join(RACKS)}."
    if fabric in {*NO_NETWORK, "tcp"}:
        return ""
    if fabric in _GOOGLE_PROFILES:
        profile = _GOOGLE_PROFILES[fabric]
        return "" if fabric in host.settings else f"pods have it where --cluster-profile {profile} declares it."
    name, device = provider(fabric), {"efa": "EFA", "ib": "InfiniBand", "roce": "RoCE"}.get(fabric)
    available = any(full.partition(";")[0] == name for full in host.providers) and fabric not in {"ib", "roce"}
    missing = f"there is no {device} device." if device else f"libfabric has no provider {name} there."
    return "" if available or (device and host.linked(fabric)) else missing


def network_proof(fabric: str, hosts: Sequence["Host"], nics: int | None, devices: tuple[str, ...] = ()) -> Proof:
    """Return what a log must show: the network, and the NICs if they or their number are given or known.

    `nics`: how many NCCL has to list in every rank; None: those of the host that has the fewest.
    """
    if nics is None and fabric in {"efa", "ib"}:
        nics = min(len(host.linked(fabric)) for host in hosts) or None
    return Proof(fabric=fabric, nics=len(devices) or nics, devices=devices)


def gpus_per_host(hosts: Sequence["Host"]) -> int:
    """Return the number of GPUs, and so of ranks, of each host.

    Raise MachineError if there is none, or one in total; RequestError if hosts differ.
    """
    without = [host.name for host in hosts if not host.gpus]
    if without:
        hint = "Check that nvidia-smi is installed and lists them, or pass --gpus N (GPUs per host)."
        raise MachineError(f"No GPU was found on {', '.join(without)}.", hint=hint)
    counts = {host.gpus for host in hosts}
    if len(counts) > 1:
        numbers = ", ".join(f"{host.name} has {host.gpus}" for host in hosts)
        hint = f"--gpus {min(counts)} uses that many on each."
        raise RequestError(f"The hosts have different numbers of GPUs: {numbers}.", hint=hint)
    if len(hosts) * hosts[0].gpus < 2:
        alone = f"Only one GPU was found, on {hosts[0].name}, so there is nothing to exchange data with."
        raise MachineError(alone, hint="Specify more hosts.")
    return hosts[0].gpus


def rank_commands(
    argv: Sequence[str], fabric: str, hosts: Sequence["Host"], given: NcclEnvironment, each: int
) -> "tuple[Command, ...]":
    """Return the commands that start `each` ranks on every host, from where the program is on each.

    Consecutive hosts with the same command share it. Parts of one machine that stand for hosts get
    different NCCL_HOSTIDs, except where they should exchange data as one host.
    """
    from fabbench.model.plan import Command

    started = []
    for host in hosts:
        host_id = {"NCCL_HOSTID": host.name} if host.virtual and fabric not in INTRA_HOST else {}
        unset = tuple(name for name in given.unset if name not in host_id)
        program = host.programs.get(argv[0], argv[0])
        started.append(Command(argv=(program, *argv[1:]), env={**given.env, **host_id}, unset=unset))
    groups = [list(group) for _, group in groupby(started)]
    return tuple(replace(group[0], ranks=each * len(group)) for group in groups)


def rank_steps(
    execution: str, kinds: Sequence[str], commands: Mapping[str, "tuple[Command, ...]"], limits: tuple[float, float]
) -> "tuple[Step, ...]":
    """Return one step per program. `kinds`: the benchmark, and what it calls one; `limits`: of its time and silence."""
    from fabbench.model.plan import Step

    return tuple(
        Step(
            id=f"{execution}/{name}",
            label=name,
            commands=each,
            facts={"benchmark": kinds[0], **dict.fromkeys(kinds[1:], name), "ranks": sum(one.ranks for one in each)},
            timeout_s=limits[0],
            silence_s=limits[1],
        )
        for name, each in commands.items()
    )


def reject_own_options(extra: Sequence[str], short: Sequence[str], long: Sequence[str]) -> None:
    """Raise RequestError for a word among the extra options that fabbench sets itself."""
    for word in extra:
        if word.partition("=")[0] in long or (word[:2] in short and not word.startswith("--")):
            hint = "Pass it before --: fabbench's own options have the same letters (see --help)."
            raise RequestError(f"{word} is after --, but fabbench must know its value.", hint=hint)
