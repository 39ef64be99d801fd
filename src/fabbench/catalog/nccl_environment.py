"""Fabric → the environment that makes NCCL programs (nccl-tests, torch) use it and nothing else.

Every configuration names its network in NCCL_NET: NCCL then fails if that network is not available,
instead of falling back to another.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fabbench.catalog.systems import rows_of
from fabbench.model.fabrics import NO_NETWORK, provider
from fabbench.model.hosts import Host
from fabbench.model.mappings import Names, Variables, distinct

PLUGIN = "AWS Libfabric"  # the plugin aws-ofi-nccl in NCCL_NET: every release accepts this name
DEBUG_FILE = "{folder}/debug.%h.%p"
"""Where each rank writes its debug lines, so that they do not tear rows.

Read while they are written.
"""
# NCCL's debug lines that show the network, its devices, and the path of each channel
SUBSYSTEMS = "INIT,NET,ENV"
# for NCCL_SOCKET_IFNAME: all interfaces except those that reach no other host
UNKNOWN_INTERFACE = "^docker,lo,veth"

REASONS = {
    "NCCL_NET": "fails where NCCL would fall back to another network",
    "NCCL_TUNER_PLUGIN": (
        "EFA's would steer sockets, too; for EFA, NCCL finds it by itself (2.21 and later)"
    ),
    "NCCL_BUFFSIZE": "like P2P_NET_CHUNKSIZE and TOPO_FILE tuned for EFA, where the plugin sets it",
    "NCCL_MNNVL_ENABLE": "0 keeps data off NVLink between hosts; 1 is for the fabric nvlink",
    "NCCL_SOCKET_IFNAME": "ranks meet over an interface that reaches other hosts",
    "NCCL_DEBUG": "the log has to show the network that was used",
}
"""Variable → why it is set, or unset."""
DEFAULTS = frozenset({"NCCL_TUNER_PLUGIN"})
"""What a user may set to another value: a tuner chooses algorithms, and no network."""
NIC_SELECTORS = {
    "efa": ("FI_EFA_IFACE", ""),
    "ib": ("NCCL_IB_HCA", "="),
    "roce": ("NCCL_IB_HCA", "="),
}
"""Fabric → the variable that selects its NICs, and the prefix of the names in its value."""


class NcclEnvironment(NamedTuple):
    """What to set and what to unset for every rank. No name is in both."""

    env: Variables
    unset: Names = ()


def environment(
    fabric: str, hosts: Sequence[Host], *, debug: str = "INFO", devices: Sequence[str] = ()
) -> NcclEnvironment:
    """Return what NCCL programs need for `fabric` on `hosts`.

    A name that is not one of NCCL's fabrics is a libfabric provider, for the plugin. `debug` is
    NCCL_DEBUG. `devices`, if any, are the only ones to use. Variables that programs could inherit
    and that would change what is measured are to be unset.
    """
    rows = [
        row
        for row in rows_of("nccl_environment.csv")  # of every fabric where a row names none
        if fabric in (row["fabrics"] or fabric).split()
    ]
    network = {row["variable"]: row["value"] for row in rows if row["value"]}
    env = {
        **(hosts[0].settings.get(fabric, {}) if hosts else {}),  # the platform's, of all hosts
        **(network or {"NCCL_NET": PLUGIN, "FI_PROVIDER": provider(fabric)}),
    }
    if fabric not in NO_NETWORK:  # on GB200 racks NVLink would carry traffic between hosts
        env["NCCL_MNNVL_ENABLE"] = "0"
    interface = _socket_interface(hosts)
    if interface:
        env["NCCL_SOCKET_IFNAME"] = interface
    if fabric == "tcp" and any(map(_has_rdma, hosts)):  # they must carry nothing
        env["NCCL_IB_DISABLE"] = "1"
    env |= gid_setting("NCCL_IB_GID_INDEX", fabric, hosts)
    if devices:
        variable, prefix = NIC_SELECTORS[fabric]
        env[variable] = prefix + ",".join(devices)
    env["NCCL_DEBUG"] = debug
    env["NCCL_DEBUG_SUBSYS"] = SUBSYSTEMS
    env["NCCL_DEBUG_FILE"] = DEBUG_FILE
    inherited = (row["variable"] for row in rows if not row["value"])
    unset = tuple(name for name in inherited if name not in env)
    return NcclEnvironment(env=env, unset=unset)


def _has_rdma(host: Host) -> bool:
    return bool(host.linked("ib") or host.linked("roce"))


def _socket_interface(hosts: Sequence[Host]) -> str:
    """Return the value of NCCL_SOCKET_IFNAME, for the data or for the bootstrap of the ranks.

    `=` is NCCL's sign of exact names. Empty if NCCL may choose.
    """
    if all(host.virtual for host in hosts):  # all are on one machine
        return "=lo"
    names = distinct(host.interface for host in hosts)
    if all(names):  # each host's is known
        return "=" + ",".join(names)
    return UNKNOWN_INTERFACE if len(hosts) > 1 else ""  # inside one host any will do


def gid_setting(variable: str, fabric: str, hosts: Sequence[Host]) -> Variables:
    """Return a variable with the RoCE GID index, if all devices of all hosts have the same one."""
    if fabric != "roce":
        return {}
    indices = {host.gids.get(device) for host in hosts for device in host.linked("roce")}
    if len(indices) != 1:
        return {}
    (index,) = indices  # None: no device has a known one
    return {} if index is None else {variable: str(index)}
