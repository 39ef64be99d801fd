"""Step + hosts → the command line of mpirun (Open MPI 4 and 5, hydra of MPICH and Intel MPI) or srun. Pure.

Each rank is started as ``env -u … NAME=VALUE … stdbuf -oL PROGRAM …``. So it gets what the plan has,
including blanks, and what is to be unset is really unset, no matter what mpirun, ssh or an image would pass
on. ``stdbuf`` makes rows arrive when they are printed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from fabbench.model.errors import RequestError
from fabbench.model.hosts import Mpi, MpiKind
from fabbench.model.plan import Command, Step

_LOCAL = "localhost"
# MPI only brings the ranks together. It must not open the fabric that is being measured (AWS's EKS
# guide), and its own shared memory segments would be left behind when a run is aborted.
_OPEN_MPI_TRANSPORT = (
    *("--mca", "pml", "^cm,ucx"),
    *("--mca", "btl", "tcp,self"),
    *("--mca", "coll_hcoll_enable", "0"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiHosts:
    """The hosts of a step, and how mpirun reaches them."""

    mpi: Mpi
    addresses: tuple[str, ...] = (_LOCAL,)  # In rank order; the first is the host where mpirun runs
    agent: tuple[
        str, ...
    ] = ()  # The ssh command with which mpirun starts its daemons; empty for mpirun's default
    interface: str = (
        ""  # For MPI's own messages, on every host; if empty, any but the usual wrong ones
    )
    forward: tuple[str, ...] = (
        "PATH",
    )  # Variables of the first host that are forwarded to all ranks
    programs: Mapping[str, str] = field(
        default_factory=dict
    )  # Program → path, the same on every host
    env: Mapping[str, str] = field(
        default_factory=dict
    )  # Environment of every rank, in addition to the plan's


def mpirun(step: Step, hosts: MpiHosts) -> Command:
    """Return the command that starts all ranks of a step.

    Variables that they inherit are passed by name.
    """
    hydra = hosts.mpi.kind is MpiKind.HYDRA
    names = inherited(step)
    hosts = replace(hosts, forward=(*hosts.forward, *names))
    # Where hydra takes the agent's options from.
    env = {"HYDRA_LAUNCHER_EXTRA_ARGS": " ".join(hosts.agent[1:])} if hydra and hosts.agent else {}
    argv = (hosts.mpi.program, *options(step, hosts), *contexts(step, hosts))
    return Command(argv=argv, env=env, inherited=names)


def inherited(step: Step) -> tuple[str, ...]:
    """Return the variables that any command of a step inherits."""
    return tuple(dict.fromkeys(name for command in step.commands for name in command.inherited))


def options(step: Step, hosts: MpiHosts) -> tuple[str, ...]:
    """Return the options of mpirun, which precede its app contexts."""
    hydra = hosts.mpi.kind is MpiKind.HYDRA
    return tuple(_hydra(step, hosts) if hydra else _open_mpi(step, hosts))


def contexts(step: Step, hosts: MpiHosts) -> tuple[str, ...]:
    """Return the app contexts, one for each command of a step.

    They are the same for every mpirun.
    """
    words: list[str] = []
    for command in step.commands:
        words += [":"] if words else []
        words += ["-np", str(command.ranks), *_rank(command, hosts)]
    return tuple(words)


def srun(step: Step, hosts: MpiHosts) -> tuple[str, ...]:
    """Return the srun command that starts all ranks of a step in a Slurm allocation.

    The hosts are those of the allocation; of `hosts.addresses` only the number counts. Raise
    RequestError for a step with several commands.
    """
    if len(step.commands) > 1:
        raise RequestError(
            f"srun starts a single program, but {step.label} has {len(step.commands)}.",
            hint="Use mpirun.",
        )
    number, ranks = len(hosts.addresses), step.commands[0].ranks
    return (
        *("srun", "--mpi=pmix", f"--nodes={number}", f"--ntasks={ranks}"),
        *(f"--ntasks-per-node={_each(step, hosts)}", "--cpu-bind=none", "--kill-on-bad-exit=1"),
        *_rank(step.commands[0], hosts),
    )


def _rank(command: Command, hosts: MpiHosts) -> Iterator[str]:
    yield "env"
    for name in command.unset:
        yield from ("-u", name)
    yield from (f"{name}={value}" for name, value in {**hosts.env, **command.env}.items())
    program = hosts.programs.get(command.argv[0], command.argv[0])
    yield from ("stdbuf", "-oL", program, *command.argv[1:])


def _open_mpi(step: Step, hosts: MpiHosts) -> Iterator[str]:
    # A host without slots counts as having one; without --bind-to none, ranks share a core in
    # containers.
    yield from ("--allow-run-as-root", "--tag-output", "--bind-to", "none")
    each = _each(step, hosts)
    yield from ("-H", ",".join(f"{host}:{each}" for host in hosts.addresses))
    if len(step.commands) == 1:
        yield from ("-N", str(each))
    yield from _OPEN_MPI_TRANSPORT
    if hosts.interface:
        yield from ("--mca", "btl_tcp_if_include", hosts.interface)
    elif len(hosts.addresses) > 1:
        yield from ("--mca", "btl_tcp_if_exclude", "lo,docker0,veth_def_agent")
    if hosts.agent:
        # Only the first host has the key: its daemons must not start each other.
        new = hosts.mpi.kind is MpiKind.OPEN_MPI_5
        option, name = ("--prtemca", "plm_ssh") if new else ("--mca", "plm_rsh")
        yield from (
            option,
            f"{name}_agent",
            " ".join(hosts.agent),
            option,
            f"{name}_no_tree_spawn",
            "1",
        )
    for name in hosts.forward:
        yield from ("-x", name)


def _hydra(step: Step, hosts: MpiHosts) -> Iterator[str]:
    if hosts.addresses != (_LOCAL,):
        yield from ("-hosts", ",".join(f"{host}:{_each(step, hosts)}" for host in hosts.addresses))
    yield from ("-ppn", str(_each(step, hosts)))
    if hosts.agent:
        yield from ("-launcher", "ssh", "-launcher-exec", hosts.agent[0])
    if hosts.forward:
        yield from ("-genvlist", ",".join(hosts.forward))


def _each(step: Step, hosts: MpiHosts) -> int:
    return math.ceil(sum(command.ranks for command in step.commands) / len(hosts.addresses))
