"""Fabric → the environment that makes programs on NCCL (nccl-tests, torch) use it, and nothing else. Pure.

Every configuration names its network in NCCL_NET: then NCCL fails where it could not have that network, and
does not fall back to another. Variables that somebody else may have left behind, and that would make an
configuration measure something else than it says, are unset; env(1) takes names only, and so they are listed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, provider
from fabbench.model.hosts import Host
from fabbench.model.messages import listed
from fabbench.model.plan import Command, Proof

PLUGIN = "AWS Libfabric"
"""The plugin aws-ofi-nccl as NCCL_NET calls it. Every release of it answers to this name."""
DEBUG_FILE = "{folder}/debug.%h.%p"
"""Where each rank writes its debug lines, so that they tear no row: read while they are written."""
SUBSYSTEMS = "INIT,NET,ENV"
"""NCCL's debug lines that tell the network, its devices, and each channel's way."""
UNKNOWN_INTERFACE = "^docker,lo,veth"
"""For NCCL_SOCKET_IFNAME: all interfaces but those that lead to no other host."""

# The parameters of libfabric's provider efa: efa_env.c of libfabric 2, and those of older releases.
EFA_SETTINGS = (
    *("FI_EFA_USE_DEVICE_RDMA", "FI_EFA_IFACE", "FI_EFA_DEVICE_NAME", "FI_EFA_FORK_SAFE"),
    *("FI_EFA_ENABLE_SHM_TRANSFER", "FI_EFA_USE_HUGE_PAGE", "FI_EFA_USE_ZCPY_RX", "FI_EFA_ZCPY_RX_SEED"),
    *("FI_EFA_TX_MIN_CREDITS", "FI_EFA_TX_QUEUE_SIZE", "FI_EFA_TX_SIZE", "FI_EFA_RX_SIZE", "FI_EFA_CQ_SIZE"),
    *("FI_EFA_SHM_AV_SIZE", "FI_EFA_SHM_MAX_MEDIUM_SIZE", "FI_EFA_SHM_CQ_READ_SIZE", "FI_EFA_USE_SM2"),
    *("FI_EFA_RECVWIN_SIZE", "FI_EFA_READCOPY_POOL_SIZE", "FI_EFA_EFA_CQ_READ_SIZE"),
    *("FI_EFA_MR_CACHE_ENABLE", "FI_EFA_MR_MAX_CACHED_COUNT", "FI_EFA_MR_MAX_CACHED_SIZE"),
    *("FI_EFA_MAX_MEMCPY_SIZE", "FI_EFA_RX_COPY_UNEXP", "FI_EFA_RX_COPY_OOO", "FI_EFA_MAX_TIMEOUT"),
    *("FI_EFA_TIMEOUT_INTERVAL", "FI_EFA_INTER_MAX_MEDIUM_MESSAGE_SIZE"),
    *("FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "FI_EFA_INTER_MAX_GDRCOPY_MESSAGE_SIZE"),
    *("FI_EFA_INTER_MIN_READ_WRITE_SIZE", "FI_EFA_INTER_READ_SEGMENT_SIZE", "FI_EFA_RUNT_SIZE"),
    *("FI_EFA_USE_UNSOLICITED_WRITE_RECV", "FI_EFA_INTERNAL_RX_REFILL_THRESHOLD", "FI_EFA_DIRECT_CQ_OPS"),
    *("FI_EFA_SET_CUDA_SYNC_MEMOPS", "FI_EFA_MTU_SIZE", "FI_EFA_TX_IOV_LIMIT", "FI_EFA_RX_IOV_LIMIT"),
)
"""What tunes EFA. Without EFA it has no business in a configuration."""
# Inherited, they would let a configuration measure something else than its name says.
_FALSIFYING = (
    *("NCCL_NET", "NCCL_HOSTID", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MNNVL_ENABLE", "NCCL_TESTS_SPLIT"),
    *("NCCL_TESTS_SPLIT_MASK", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"),
    *("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_IFACE"),
)
# Images and the plugin set these for EFA; they change what sockets do.
_TUNED_FOR_EFA = ("NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_TOPO_FILE")
_NO_PLUGIN = {"NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none"}
_SOCKETS = {"NCCL_NET": "Socket", **_NO_PLUGIN}
_IB = {"NCCL_NET": "IB", **_NO_PLUGIN}
_CHOOSES = {"efa": ("FI_EFA_IFACE", ""), "ib": ("NCCL_IB_HCA", "="), "roce": ("NCCL_IB_HCA", "=")}
"""Fabric → the variable that chooses its NICs, and what stands before their names there."""
_OF_GOOGLE = {"gib": "gke-gib", "tcpxo": "gke-tcpxo"}
"""Networks that no device shows: the profile of the cluster that has each."""
# On GB200 racks NVLink reaches other hosts, and would carry what a network is to be measured with.
_ACROSS_HOSTS = {"NCCL_MNNVL_ENABLE": "0"}
# Ranks of one host use a network only if they must.
_INSIDE_ONE_HOST = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclEnvironment:
    """What to set and what to unset for every rank. No name is in both."""

    env: Mapping[str, str]
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Recipe:
    env: Mapping[str, str]
    unset: tuple[str, ...] = field(default=EFA_SETTINGS)


_RECIPES: Mapping[str, _Recipe] = {
    "efa": _Recipe({"NCCL_NET": PLUGIN, "FI_PROVIDER": "efa"}, ()),
    "tcp": _Recipe(_SOCKETS, (*EFA_SETTINGS, *_TUNED_FOR_EFA)),
    "ib": _Recipe(_IB),
    "roce": _Recipe(_IB),
    "gib": _Recipe({"NCCL_NET": "gIB"}),
    "tcpxo": _Recipe({"NCCL_NET": "FasTrak"}),
    "shm": _Recipe({**_SOCKETS, "NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}),
    "p2p": _Recipe(_SOCKETS),
}


def environment(
    fabric: str, hosts: Sequence[Host], *, debug: str = "INFO", devices: Sequence[str] = ()
) -> NcclEnvironment:
    """Return what programs on NCCL need for `fabric` on `hosts`.

    A name that is no fabric of NCCL's is a provider of libfabric, for the plugin. `debug` is NCCL_DEBUG.
    `devices` are the only ones to use, if any are named.
    """
    recipe = _RECIPES.get(fabric) or _Recipe({"NCCL_NET": PLUGIN, "FI_PROVIDER": provider(fabric)})
    env = {
        **(hosts[0].settings.get(fabric, {}) if hosts else {}),
        **recipe.env,
        **_way(fabric, hosts),
        **_sockets(hosts),
        **_verbs(fabric, hosts),
        **_only(fabric, devices),
        "NCCL_DEBUG": debug,
        "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
        "NCCL_DEBUG_FILE": DEBUG_FILE,
    }
    names = dict.fromkeys((*_FALSIFYING, *recipe.unset))
    return NcclEnvironment(env=env, unset=tuple(name for name in names if name not in env))


def _way(fabric: str, hosts: Sequence[Host]) -> Mapping[str, str]:
    """Close the ways past a network: NVLink between hosts, and everything faster inside one host."""
    if fabric in INTRA_HOST:
        return {}
    return _ACROSS_HOSTS if len(hosts) > 1 else _INSIDE_ONE_HOST


def _sockets(hosts: Sequence[Host]) -> Mapping[str, str]:
    """Choose the interface of NCCL's sockets: for its data, or for the first words of the ranks."""
    if all(host.virtual for host in hosts):
        return {"NCCL_SOCKET_IFNAME": "=lo"}
    names = list(dict.fromkeys(host.interface for host in hosts))
    if all(names):
        return {"NCCL_SOCKET_IFNAME": f"={','.join(names)}"}
    return {"NCCL_SOCKET_IFNAME": UNKNOWN_INTERFACE} if len(hosts) > 1 else {}


def _verbs(fabric: str, hosts: Sequence[Host]) -> Mapping[str, str]:
    """Keep sockets off the RDMA NICs, and give RoCE the GID that all hosts agree on."""
    if fabric == "tcp" and any(host.linked("ib") or host.linked("roce") for host in hosts):
        return {"NCCL_IB_DISABLE": "1"}
    return gid_setting("NCCL_IB_GID_INDEX", fabric, hosts)


def _only(fabric: str, devices: Sequence[str]) -> Mapping[str, str]:
    """Choose NICs by name. In NCCL_IB_HCA a name without `=` is the beginning of names."""
    if not devices:
        return {}
    variable, sign = _CHOOSES[fabric]
    return {variable: sign + ",".join(devices)}


def gid_setting(variable: str, fabric: str, hosts: Sequence[Host]) -> Mapping[str, str]:
    """Return a variable with the index of RoCE's GID, where all devices of all hosts have the same."""
    indices = {host.gids.get(device) for host in hosts for device in host.linked("roce")}
    if fabric == "roce" and len(indices) == 1 and (index := indices.pop()) is not None:
        return {variable: str(index)}
    return {}


def chooses_nics(fabric: str) -> bool:
    """Return whether programs on NCCL can be told which NICs of a fabric to use."""
    return fabric in _CHOOSES


def why_no_choice(fabric: str, host: Host, devices: Sequence[str]) -> str:
    """Return in a sentence why `devices` of a fabric cannot be chosen on `host`; empty if they can."""
    if not chooses_nics(fabric):
        return f"--device chooses NICs of {listed(tuple(_CHOOSES))} alone."
    found = host.linked(fabric)
    if host.devices and not found:
        return why_unsupported(fabric, host)
    # Where none can be listed, as in some containers, NCCL itself says whether there are any.
    missing = [name for name in devices if found and name not in found]
    return f"it has no {listed(missing)} of {fabric}, but {', '.join(found)}." if missing else ""


def why_unsupported(fabric: str, host: Host) -> str:
    """Return in a sentence why programs on NCCL cannot use `fabric` on `host`; empty if they can."""
    if fabric in INTRA_HOST:
        few = host.gpus < 2 and not host.virtual
        found = "1 was" if host.gpus == 1 else f"{host.gpus} were"
        return f"it takes two GPUs of one host, and {found} found." if few else ""
    if fabric == "tcp":
        return ""
    if fabric in _OF_GOOGLE:
        wanted = f"pods have it where --cluster-profile {_OF_GOOGLE[fabric]} declares it."
        return "" if fabric in host.settings else wanted
    if fabric in {"ib", "roce"}:
        kind = "InfiniBand" if fabric == "ib" else "RoCE"
        return "" if host.linked(fabric) else f"there is no {kind} device."
    name = provider(fabric)
    offered = any(full.partition(";")[0] == name for full in host.providers)
    if fabric == "efa":
        return "" if offered or host.linked("efa") else "there is no EFA device."
    return "" if offered else f"libfabric has no provider {name} there."


def expected_nics(fabric: str, hosts: Sequence[Host]) -> int | None:
    """Return how many NICs NCCL lists in every rank where `fabric` works in full; None: not known."""
    if fabric not in {"efa", "ib"}:
        return None
    return min(len(host.linked(fabric)) for host in hosts) or None


def network_proof(
    fabric: str, hosts: Sequence[Host], nics: int | None, devices: tuple[str, ...] = ()
) -> Proof:
    """Return what a log must show: the network, and the NICs where they or their number is given or known."""
    if devices:
        return Proof(fabric=fabric, nics=len(devices), devices=devices)
    return Proof(fabric=fabric, nics=expected_nics(fabric, hosts) if nics is None else nics)


def gpus_per_host(hosts: Sequence[Host]) -> int:
    """Return the number of GPUs, and so of ranks, of each host.

    Raise MachineError where there is none, or one in all; RequestError where hosts differ.
    """
    none = [host.name for host in hosts if not host.gpus]
    if none:
        raise MachineError(
            f"No GPU was found on {', '.join(none)}.",
            hint="Check that nvidia-smi is installed and lists them, or pass --gpus N (GPUs per host).",
        )
    counts = {host.gpus for host in hosts}
    if len(counts) > 1:
        told = ", ".join(f"{host.name} has {host.gpus}" for host in hosts)
        raise RequestError(
            f"The hosts have different numbers of GPUs: {told}.",
            hint=f"--gpus {min(counts)} uses that many on each.",
        )
    if len(hosts) * hosts[0].gpus < 2:
        raise MachineError(
            f"Only one GPU was found, on {hosts[0].name}, so there is nothing to exchange data with.",
            hint="Specify more hosts.",
        )
    return hosts[0].gpus


def rank_commands(
    words: Callable[[Host], tuple[str, ...]],
    fabric: str,
    hosts: Sequence[Host],
    given: NcclEnvironment,
    each: int,
) -> tuple[Command, ...]:
    """Start `each` ranks on every host. `words` is the program there with its options.

    Neighbours that start the same are one command. Parts of one machine that stand for hosts are told apart
    by NCCL_HOSTID, except where they are to exchange data as one host.
    """
    apart = fabric not in INTRA_HOST
    started = [_command(words(host), given, host.name if apart and host.virtual else "") for host in hosts]
    groups = [list(group) for _, group in groupby(started)]
    return tuple(replace(group[0], ranks=each * len(group)) for group in groups)


def _command(argv: tuple[str, ...], given: NcclEnvironment, part: str) -> Command:
    """Make the command of one host; `part`: the host that a part of a machine stands for."""
    own = {"NCCL_HOSTID": part} if part else {}
    return Command(
        argv=argv, env={**given.env, **own}, unset=tuple(name for name in given.unset if name not in own)
    )


def program(name: str, host: Host) -> str:
    """Return a program's path on a host; its name where the path was not asked for."""
    return host.programs.get(name, name)


def refuse_own(extra: Sequence[str], short: Sequence[str], long: Sequence[str]) -> None:
    """Raise RequestError for a word among extra options that is an option of fabbench's command."""
    for word in extra:
        if word.partition("=")[0] in long or (word[:2] in short and not word.startswith("--")):
            raise RequestError(
                f"{word} is after --, but fabbench must know its value.",
                hint="Pass it before --: fabbench's own options have the same letters (see --help).",
            )
