"""What benchmarks whose ranks use NCCL, or are started like them, plan in the same way. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fabbench.catalog.instances import RACKS, connects_hosts
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, NO_NETWORK, provider
from fabbench.model.log import Proof

if TYPE_CHECKING:
    from fabbench.catalog.nccl_environment import NcclEnvironment
    from fabbench.model.hosts import Host
    from fabbench.model.plan import Command, Step

_GOOGLE_PROFILES = {"gib": "gke-gib", "tcpxo": "gke-tcpxo"}
"""Networks that no device reveals → the cluster profile that has each."""


def why_unsupported(fabric: str, host: "Host") -> str:
    """Explain in a sentence why NCCL programs cannot use `fabric` on `host`; empty if they can."""
    if fabric in INTRA_HOST and host.gpus < 2 and not host.virtual:
        count = "1 was" if host.gpus == 1 else f"{host.gpus} were"
        return f"it takes two GPUs of one host, and {count} found."
    if fabric == "nvlink" and host.virtual:
        return "it is a part of one machine, whose NVLink is p2p."
    if fabric == "nvlink" and host.gpu_model and not connects_hosts(host.gpu_model):
        return (
            f"its GPUs are {host.gpu_model}, and NVLink connects hosts only in racks of "
            f"{' and '.join(RACKS)}."
        )
    if fabric in {*NO_NETWORK, "tcp"}:
        return ""
    if fabric in _GOOGLE_PROFILES:
        profile = _GOOGLE_PROFILES[fabric]
        return (
            ""
            if fabric in host.settings
            else f"pods have it where --cluster-profile {profile} declares it."
        )
    name, device = provider(fabric), {"efa": "EFA", "ib": "InfiniBand", "roce": "RoCE"}.get(fabric)
    available = any(full.partition(";")[0] == name for full in host.providers) and fabric not in {
        "ib",
        "roce",
    }
    missing = (
        f"there is no {device} device." if device else f"libfabric has no provider {name} there."
    )
    return "" if available or (device and host.linked(fabric)) else missing


def network_proof(
    fabric: str, hosts: Sequence["Host"], nics: int | None, devices: tuple[str, ...] = ()
) -> Proof:
    """Return what a log must show.

    The network, and the NICs if they or their number are given or known.

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
        hint = (
            "Check that nvidia-smi is installed and lists them, or pass --gpus N (GPUs per host)."
        )
        raise MachineError(f"No GPU was found on {', '.join(without)}.", hint=hint)
    counts = {host.gpus for host in hosts}
    if len(counts) > 1:
        numbers = ", ".join(f"{host.name} has {host.gpus}" for host in hosts)
        hint = f"--gpus {min(counts)} uses that many on each."
        raise RequestError(f"The hosts have different numbers of GPUs: {numbers}.", hint=hint)
    if len(hosts) * hosts[0].gpus < 2:
        alone = (
            f"Only one GPU was found, on {hosts[0].name}, so there is nothing to exchange "
            "data with."
        )
        raise MachineError(alone, hint="Specify more hosts.")
    return hosts[0].gpus


def rank_commands(
    argv: Sequence[str], fabric: str, hosts: Sequence["Host"], given: "NcclEnvironment", each: int
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
        started.append(
            Command(argv=(program, *argv[1:]), env={**given.env, **host_id}, unset=unset)
        )
    groups = [list(group) for _, group in groupby(started)]
    return tuple(replace(group[0], ranks=each * len(group)) for group in groups)


def rank_steps(
    execution: str,
    kinds: Sequence[str],
    commands: Mapping[str, "tuple[Command, ...]"],
    limits: tuple[float, float],
) -> "tuple[Step, ...]":
    """Return one step per program.

    `kinds`: the benchmark, and what it calls one; `limits`: of its time and silence.
    """
    from fabbench.model.plan import Step

    return tuple(
        Step(
            id=f"{execution}/{name}",
            label=name,
            commands=each,
            facts={
                "benchmark": kinds[0],
                **dict.fromkeys(kinds[1:], name),
                "ranks": sum(one.ranks for one in each),
            },
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
