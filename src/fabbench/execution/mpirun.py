"""Step + hosts → the command line of mpirun (Open MPI 4 and 5, MPICH, Intel MPI) or srun. Pure.

Each rank is started as ``env -u … NAME=VALUE … stdbuf -oL PROGRAM …``. So it gets what the plan
has, including blanks, and what is to be unset is really unset, no matter what mpirun, ssh or an
image would pass on. ``stdbuf`` makes rows arrive when they are printed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from fabbench.model.errors import RequestError
from fabbench.model.hosts import Mpi, MpiKind
from fabbench.model.mappings import Names, Variables, distinct
from fabbench.model.plan import Command, Step, Words
from fabbench.model.values import frozen

_LOCAL = "localhost"
# MPI only brings the ranks together. It must not open the fabric that is being measured (AWS's EKS
# guide), and its own shared memory segments would be left behind when a run is aborted.
_OPEN_MPI_TRANSPORT = {"pml": "^cm,ucx", "btl": "tcp,self", "coll_hcoll_enable": "0"}


@frozen
class MpiHosts:
    """The hosts of a step, and how mpirun reaches them."""

    mpi: Mpi
    addresses: tuple[str, ...] = (_LOCAL,)  # In rank order; the first is the host where mpirun runs
    agent: Words = ()
    """The ssh command with which mpirun starts its daemons; empty for mpirun's default."""
    interface: str = ""
    """For MPI's own messages, on every host; if empty, any but the usual wrong ones."""
    forward: Names = ("PATH",)
    """Variables of the first host that are forwarded to all ranks."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Program → path, the same on every host."""
    env: Variables = field(default_factory=dict)
    """Environment of every rank, in addition to the plan's."""


def mpirun(step: Step, hosts: MpiHosts) -> Command:
    """Return the command that starts all ranks of a step; what they inherit is passed by name."""
    names = inherited(step)
    hosts = replace(hosts, forward=(*hosts.forward, *names))
    env: dict[str, str] = {}
    if hosts.agent and hosts.mpi.kind is MpiKind.HYDRA:
        # Where hydra takes the agent's options from; the agent itself, ssh, stands before them.
        env["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join(hosts.agent[1:])
    argv = (
        hosts.mpi.program,
        *options(step, hosts),
        *contexts(step, hosts),
    )
    return Command(argv=argv, env=env, inherited=names)


def inherited(step: Step) -> Names:
    """Return the variables that any command of a step inherits."""
    return distinct(name for command in step.commands for name in command.inherited)


def options(step: Step, hosts: MpiHosts) -> Words:
    """Return the options of mpirun, which precede its app contexts."""
    hydra = hosts.mpi.kind is MpiKind.HYDRA
    return tuple(_hydra_options(step, hosts) if hydra else _open_mpi_options(step, hosts))


def contexts(step: Step, hosts: MpiHosts) -> Words:
    """Return the app contexts, one for each command of a step, the same for every mpirun."""
    words: list[str] = []
    for command in step.commands:
        if words:
            words.append(":")
        words += ["-np", str(command.ranks), *_rank_command(command, hosts)]
    return tuple(words)


def srun(step: Step, hosts: MpiHosts) -> Words:
    """Return the srun command that starts all ranks of a step in a Slurm allocation.

    The hosts are those of the allocation; of `hosts.addresses` only the number counts. Raise
    RequestError for a step with several commands.
    """
    if len(step.commands) > 1:
        raise RequestError(
            f"srun starts a single program, but {step.label} has {len(step.commands)}.",
            hint="Use mpirun.",
        )
    (command,) = step.commands
    nodes = len(hosts.addresses)
    per_host = _ranks_per_host(step, hosts)
    return (
        "srun",
        "--mpi=pmix",
        f"--nodes={nodes}",
        f"--ntasks={command.ranks}",
        f"--ntasks-per-node={per_host}",
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        *_rank_command(command, hosts),
    )


def env_words(command: Command, env: Variables) -> Iterator[str]:
    """Yield the words that start a command with these variables, and without those to unset."""
    yield "env"
    for name in command.unset:
        yield from ("-u", name)
    yield from (f"{name}={value}" for name, value in env.items())


def _rank_command(command: Command, hosts: MpiHosts) -> Iterator[str]:
    # Output by lines (stdbuf -oL): ranks that share a pipe would mix theirs.
    yield from env_words(command, {**hosts.env, **command.env})
    program = hosts.programs.get(command.argv[0], command.argv[0])
    yield from ("stdbuf", "-oL", program, *command.argv[1:])


def _open_mpi_options(step: Step, hosts: MpiHosts) -> Iterator[str]:
    # A host without slots counts as having one; without --bind-to none, ranks share a core in
    # containers.
    yield from ("--allow-run-as-root", "--tag-output", "--bind-to", "none")
    per_host = _ranks_per_host(step, hosts)
    yield from ("-H", ",".join(f"{host}:{per_host}" for host in hosts.addresses))
    if len(step.commands) == 1:  # `per_host` is of all commands together
        yield from ("-N", str(per_host))
    # MPI only brings ranks together: it must not open the fabric that is measured.
    for name, value in _OPEN_MPI_TRANSPORT.items():
        yield from ("--mca", name, value)
    if hosts.interface:
        yield from ("--mca", "btl_tcp_if_include", hosts.interface)
    elif len(hosts.addresses) > 1:  # what each host has, and what does not lead to another
        yield from ("--mca", "btl_tcp_if_exclude", "lo,docker0,veth_def_agent")
    if hosts.agent:
        # Only the first host has the key: its daemons must not start each other.
        if hosts.mpi.kind is MpiKind.OPEN_MPI_5:
            yield from ("--prtemca", "plm_ssh_agent", " ".join(hosts.agent))
            yield from ("--prtemca", "plm_ssh_no_tree_spawn", "1")
        else:
            yield from ("--mca", "plm_rsh_agent", " ".join(hosts.agent))
            yield from ("--mca", "plm_rsh_no_tree_spawn", "1")
    for name in hosts.forward:
        yield from ("-x", name)


def _hydra_options(step: Step, hosts: MpiHosts) -> Iterator[str]:
    # Of MPICH and Intel MPI: where ranks run, how daemons start there, what variables they get.
    per_host = _ranks_per_host(step, hosts)
    if hosts.addresses != (_LOCAL,):  # on one machine mpirun needs no list
        yield from ("-hosts", ",".join(f"{host}:{per_host}" for host in hosts.addresses))
    yield from ("-ppn", str(per_host))
    if hosts.agent:  # its options are in the environment, see `mpirun`
        yield from ("-launcher", "ssh", "-launcher-exec", hosts.agent[0])
    if hosts.forward:
        yield from ("-genvlist", ",".join(hosts.forward))


def _ranks_per_host(step: Step, hosts: MpiHosts) -> int:
    """Return how many ranks a host has at most."""
    return math.ceil(step.ranks / len(hosts.addresses))
