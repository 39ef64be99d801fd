"""A Slurm for the hosts of a lab: slurmctld on node0; slurmd and munged on every host.

Partitions: `main` (all hosts, the default), `one` (node0), `rest` (all but node0), `urgent` (all
hosts; its jobs take the hosts of the others', which are requeued), `closed` (all hosts, down),
`short` (all hosts, for a minute at most).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.hosts import processes
from tests.support.paths import DATA

if TYPE_CHECKING:
    from tests.support.hosts.host import Host

TOOLS = ("slurmctld", "slurmd", "munged")
CPUS = 8

# No cgroups in a host, hence linuxproc and none. A requeued job waits for cred_expire. A node that
# does not answer for SlurmdTimeout is down, and its jobs are requeued. config_overrides: more CPUs
# than there are.
_CONF = (DATA / "lab/slurm.conf").read_text("utf-8")


def write(folder: Path, addresses: Sequence[str], gpus: int, *, switches: bool = False) -> None:
    """Write what lies in /etc/slurm, and munge's key, for hosts with these addresses."""
    folder.mkdir()
    count, last = len(addresses), len(addresses) - 1
    has = f"CPUs={CPUS} RealMemory=1000{f' Gres=gpu:{gpus}' if gpus else ''} State=UNKNOWN"
    nodes = [
        f"NodeName=node{number} NodeAddr={place} {has}" for number, place in enumerate(addresses)
    ]
    every = f"Nodes=node[0-{last}] MaxTime=INFINITE OverSubscribe=NO"
    partitions = [
        f"PartitionName=main {every} Default=YES State=UP PriorityTier=1",
        f"PartitionName=urgent {every} State=UP PriorityTier=10",
        f"PartitionName=closed {every} State=DOWN",
        f"PartitionName=short Nodes=node[0-{last}] MaxTime=1 State=UP PriorityTier=1",
        "PartitionName=one Nodes=node0 MaxTime=INFINITE State=UP PriorityTier=1",
        *(
            [f"PartitionName=rest Nodes=node[1-{last}] State=UP PriorityTier=1"]
            if count > 1
            else []
        ),
    ]
    types = ["GresTypes=gpu"] if gpus else []
    if switches:
        types.append("TopologyPlugin=topology/tree")
        half = count // 2
        leaves = (
            f"SwitchName=s0 Nodes=node[0-{half - 1}]\nSwitchName=s1 Nodes=node[{half}-{last}]\n"
        )
        (folder / "topology.conf").write_text(f"{leaves}SwitchName=spine Switches=s[0-1]\n")
    (folder / "slurm.conf").write_text("\n".join([_CONF, *types, *nodes, *partitions, ""]))
    devices = f"Name=gpu File=/run/slurm/gpu[0-{gpus - 1}]\n" if gpus else ""
    (folder / "gres.conf").write_text(devices)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))


def await_idle(hosts: Sequence["Host"]) -> None:
    """Wait until every node can run jobs."""
    first = hosts[0]

    def idle() -> bool:
        shown = first.sh(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], check=False).stdout
        return shown.split() == ["idle"] * len(hosts)

    if not processes.eventually(idle):
        logs = [
            first.path("/run/slurm/slurmctld.log"),
            *(host.path("/run/slurm/slurmd.log") for host in hosts),
        ]
        raise AssertionError("\n".join(log.read_text()[-2000:] for log in logs if log.exists()))
