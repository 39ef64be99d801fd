"""What benchmarks whose ranks use NCCL, or are started like them, plan in the same way. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fabbench.benchmarks.standard import Work
from fabbench.catalog.systems import RACKS, connects_hosts
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, NO_NETWORK, provider
from fabbench.model.log import MutableFacts, Proof

if TYPE_CHECKING:
    from fabbench.catalog.nccl_environment import NcclEnvironment
    from fabbench.model.hosts import Host
    from fabbench.model.plan import Command, Step

_GOOGLE_PROFILES = {"gib": "gke-gib", "tcpxo": "gke-tcpxo"}
"""Networks that no device reveals → the cluster profile that has each."""


_DEVICES = {"efa": "EFA", "ib": "InfiniBand", "roce": "RoCE"}
"""Networks of devices of their own → what the devices are called."""


def why_unsupported(fabric: str, host: "Host") -> str:
    """Explain in a sentence why NCCL programs cannot use `fabric` on `host`; empty if they can."""
    # Virtual nodes share a host, each with a part of its GPUs.
    if fabric in INTRA_HOST and host.gpus < 2 and not host.virtual:
        count = "1 was" if host.gpus == 1 else f"{host.gpus} were"
        return f"it takes two GPUs of one host, and {count} found."
    if fabric == "nvlink":
        return _why_no_nvlink(host)
    if fabric in {*NO_NETWORK, "tcp"}:  # which take no device
        return ""
    profile = _GOOGLE_PROFILES.get(fabric)
    if profile is not None:
        # `settings` has NCCL's variables of these platforms, where a host is of one.
        missing = f"pods have it where --cluster-profile {profile} declares it."
        return "" if fabric in host.settings else missing
    return _why_no_device(fabric, host)


def _why_no_device(fabric: str, host: "Host") -> str:
    # Why a host has neither RDMA devices of a fabric nor its libfabric provider; empty: it has.
    device = _DEVICES.get(fabric)
    if device is not None and host.linked(fabric):
        return ""
    name = provider(fabric)
    providers = {full.partition(";")[0] for full in host.providers}  # `tcp;ofi_rxm` is tcp
    if name in providers and fabric not in {"ib", "roce"}:  # which NCCL uses without libfabric
        return ""
    if device is not None:
        return f"there is no {device} device."
    return f"libfabric has no provider {name} there."


def _why_no_nvlink(host: "Host") -> str:
    # Why the NVLink of a host's GPUs does not connect it with others; empty: it may.
    if host.virtual:
        return "it is a part of one machine, whose NVLink is p2p."
    if not host.gpu_model or connects_hosts(host.gpu_model):  # an unknown model may connect them
        return ""
    racks = " and ".join(RACKS)
    return f"its GPUs are {host.gpu_model}, and NVLink connects hosts only in racks of {racks}."


def network_proof(
    fabric: str,
    hosts: Sequence["Host"],
    nics: int | None,
    devices: tuple[str, ...] = (),
) -> Proof:
    """Return what a log must show.

    The network, and the NICs if they or their number are given or known.

    `nics`: how many NCCL has to list in every rank; None: those of the host that has the fewest.
    """
    # NCCL has to list all NICs of these networks; of others, no number is demanded.
    if nics is None and fabric in {"efa", "ib"}:
        linked = [host.linked(fabric) for host in hosts]
        nics = min(map(len, linked)) or None
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
        names = ", ".join(without)
        raise MachineError(f"No GPU was found on {names}.", hint=hint)
    counts = {host.gpus for host in hosts}
    least = min(counts)
    if len(counts) > 1:
        numbers = ", ".join(f"{host.name} has {host.gpus}" for host in hosts)
        hint = f"--gpus {least} uses that many on each."
        raise RequestError(f"The hosts have different numbers of GPUs: {numbers}.", hint=hint)
    if len(hosts) * least < 2:
        alone = (
            f"Only one GPU was found, on {hosts[0].name}, so there is nothing to exchange "
            "data with."
        )
        raise MachineError(alone, hint="Specify more hosts.")
    return least


def rank_commands(
    argv: Sequence[str],
    fabric: str,
    hosts: Sequence["Host"],
    env_of_ranks: "NcclEnvironment",
    per_host: int,
) -> "tuple[Command, ...]":
    """Return the commands that start ranks, from where the program is on each host.

    Consecutive hosts with the same command share it. Parts of one machine that stand for hosts get
    different NCCL_HOSTIDs, except where they should exchange data as one host.
    """
    from fabbench.model.plan import Command

    by_host: list[Command] = []
    for host in hosts:
        is_apart = host.virtual and fabric not in INTRA_HOST
        host_id = {"NCCL_HOSTID": host.name} if is_apart else {}
        program = host.programs.get(argv[0], argv[0])
        command = Command(
            argv=(program, *argv[1:]),
            env={**env_of_ranks.env, **host_id},
            unset=tuple(name for name in env_of_ranks.unset if name not in host_id),
        )
        by_host.append(command)
    commands: list[Command] = []
    for command, alike in groupby(by_host):
        ranks = per_host * len([*alike])
        commands.append(replace(command, ranks=ranks))
    return tuple(commands)


class RankWork(Work):
    """What ranks measure, started with mpirun: a step per program."""

    __slots__ = ()
    timeout_s: float
    silence_s: float

    @override
    def why_unsupported(self, fabric: str, host: "Host") -> str:
        return why_unsupported(fabric, host)

    def rank_steps(
        self,
        execution: str,
        benchmark: str,
        commands: Mapping[str, "tuple[Command, ...]"],
        called: str = "",
    ) -> "tuple[Step, ...]":
        """Return one step per program. `commands`: each program's, by its name.

        `called`: what the benchmark calls a program, such as `collective`, for a fact of its step;
        empty: it has but one.
        """
        from fabbench.model.plan import Step

        steps: list[Step] = []
        for name, of_program in commands.items():
            facts: MutableFacts = {"benchmark": benchmark}
            if called:
                facts[called] = name
            facts["ranks"] = sum(command.ranks for command in of_program)
            step = Step(
                id=f"{execution}/{name}",
                label=name,
                commands=of_program,
                facts=facts,
                timeout_s=self.timeout_s,
                silence_s=self.silence_s,
            )
            steps.append(step)
        return tuple(steps)


class NcclRankWork(RankWork):
    """What ranks measure with NCCL, whose lines have to show the network and the NICs."""

    __slots__ = ()
    nics: int | None
    devices: tuple[str, ...] = ()

    @override
    def proof(self, fabric: str, hosts: Sequence["Host"]) -> Proof:
        return network_proof(fabric, hosts, self.nics, self.devices)


def reject_own_options(extra: Sequence[str], own: str) -> None:
    """Raise RequestError for a word among the extra options that fabbench sets itself.

    `own`: these, short and long ones, with blanks between them.
    """
    names = {*own.split()}
    for word in extra:
        long_name, _, _ = word.partition("=")
        if not names.isdisjoint({long_name, word[:2]}):  # `-b8` too
            hint = "Pass it before --: fabbench's own options have the same letters (see --help)."
            raise RequestError(f"{word} is after --, but fabbench must know its value.", hint=hint)
