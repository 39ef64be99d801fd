"""Step + hosts → the command line of mpirun (Open MPI 4 and 5, hydra of MPICH and Intel MPI) or srun. Pure.

Each rank is started as ``env -u … NAME=VALUE … stdbuf -oL PROGRAM …``: so it gets what the plan says, blanks
and all, and what is to be unset is really unset, whatever mpirun, ssh or an image would pass on. ``stdbuf``,
so that rows come when they are printed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fabbench.errors import RequestError
from fabbench.hosts.mpi import Mpi, MpiKind
from fabbench.model import Command, Step

_LOCAL = "localhost"
# MPI only brings the ranks together. It must not open the fabric that is being measured (AWS's EKS guide),
# and shared memory segments of its own would be left behind when a run is ended.
_OPEN_MPI_TRANSPORT = (
    *("--mca", "pml", "^cm,ucx"),
    *("--mca", "btl", "tcp,self"),
    *("--mca", "coll_hcoll_enable", "0"),
)
_NO_INTERFACES = "lo,docker0,veth_def_agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How mpirun gets to the hosts."""

    mpi: Mpi
    hosts: tuple[str, ...] = (_LOCAL,)
    """Their addresses, in the order of their ranks; the first is the one where mpirun runs."""
    agent: tuple[str, ...] = ()
    """The ssh command with its options, for mpirun to start its daemons with; empty: mpirun's own choice."""
    interface: str = ""
    """The network interface for MPI's own messages, on every host; empty: any but the usual wrong ones."""
    forward: tuple[str, ...] = ("PATH",)
    """Variables of the first host that all ranks get."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Program → path, the same on every host."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every rank, besides the plan's."""


def mpirun(step: Step, spread: Spread) -> Command:
    """Give the command that starts all ranks of a step."""
    hydra = spread.mpi.kind is MpiKind.HYDRA
    return Command(
        argv=(spread.mpi.program, *options(step, spread), *contexts(step, spread)),
        env=_agent_of_hydra(spread) if hydra else {},
    )


def options(step: Step, spread: Spread) -> tuple[str, ...]:
    """Give the options of mpirun, which stand before its contexts."""
    hydra = spread.mpi.kind is MpiKind.HYDRA
    return tuple(_hydra(step, spread) if hydra else _open_mpi(step, spread))


def contexts(step: Step, spread: Spread) -> tuple[str, ...]:
    """Give what each rank is started as, for each command of a step: the same for every mpirun."""
    words: list[str] = []
    for command in step.commands:
        words += [":"] if words else []
        words += ["-np", str(command.ranks), *_rank(command, spread)]
    return tuple(words)


def srun(step: Step, spread: Spread) -> tuple[str, ...]:
    """Give the srun that starts all ranks of a step, in an allocation of Slurm's.

    The hosts are those of the allocation: of `spread` only their number counts. Raises RequestError for a
    step of several commands.
    """
    if len(step.commands) > 1:
        raise RequestError(
            f"srun starts one program, and {step.label} has {len(step.commands)}.", hint="Use mpirun."
        )
    number, ranks = len(spread.hosts), step.commands[0].ranks
    return (
        *("srun", "--mpi=pmix", f"--nodes={number}", f"--ntasks={ranks}"),
        *(f"--ntasks-per-node={_each(step, spread)}", "--cpu-bind=none", "--kill-on-bad-exit=1"),
        *_rank(step.commands[0], spread),
    )


def _rank(command: Command, spread: Spread) -> Iterator[str]:
    """Give the words that start one rank."""
    yield "env"
    for name in command.unset:
        yield from ("-u", name)
    yield from (f"{name}={value}" for name, value in {**spread.env, **command.env}.items())
    program = spread.programs.get(command.argv[0], command.argv[0])
    yield from ("stdbuf", "-oL", program, *command.argv[1:])


def _open_mpi(step: Step, spread: Spread) -> Iterator[str]:
    # Without slots a host counts as having one; without --bind-to none ranks share a core in containers.
    yield from ("--allow-run-as-root", "--tag-output", "--bind-to", "none")
    each = _each(step, spread)
    yield from ("-H", ",".join(f"{host}:{each}" for host in spread.hosts))
    if len(step.commands) == 1:
        yield from ("-N", str(each))
    yield from _OPEN_MPI_TRANSPORT
    if spread.interface:
        yield from ("--mca", "btl_tcp_if_include", spread.interface)
    elif len(spread.hosts) > 1:
        yield from ("--mca", "btl_tcp_if_exclude", _NO_INTERFACES)
    if spread.agent:
        # Only the first host has the key: its daemons must not start each other.
        new = spread.mpi.kind is MpiKind.OPEN_MPI_5
        option, name = ("--prtemca", "plm_ssh") if new else ("--mca", "plm_rsh")
        yield from (option, f"{name}_agent", " ".join(spread.agent), option, f"{name}_no_tree_spawn", "1")
    for name in spread.forward:
        yield from ("-x", name)


def _hydra(step: Step, spread: Spread) -> Iterator[str]:
    if spread.hosts != (_LOCAL,):
        yield from ("-hosts", ",".join(f"{host}:{_each(step, spread)}" for host in spread.hosts))
    yield from ("-ppn", str(_each(step, spread)))
    if spread.agent:
        yield from ("-launcher", "ssh", "-launcher-exec", spread.agent[0])
    if spread.forward:
        yield from ("-genvlist", ",".join(spread.forward))


def _each(step: Step, spread: Spread) -> int:
    """Count the ranks of each host."""
    return math.ceil(sum(command.ranks for command in step.commands) / len(spread.hosts))


def _agent_of_hydra(spread: Spread) -> dict[str, str]:
    """Hydra takes the agent's options from a variable."""
    return {"HYDRA_LAUNCHER_EXTRA_ARGS": " ".join(spread.agent[1:])} if spread.agent else {}
