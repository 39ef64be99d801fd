"""Programs that start their own ranks, one process per node (NODE), or are started by torchrun.

They are processes of mpirun, one per node or one per GPU. A shell in front of them turns what the
launcher says of each process into torch's variables. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fabbench.model.options import Text, Whole, option

if TYPE_CHECKING:
    from fabbench.model.hosts import Host
    from fabbench.model.plan import Command, Step

_TORCH_VARIABLES = (
    'export MASTER_ADDR="$1" MASTER_PORT="$2" '
    'RANK="${OMPI_COMM_WORLD_RANK-${PMI_RANK-$SLURM_PROCID}}" '
    'WORLD_SIZE="${OMPI_COMM_WORLD_SIZE-${PMI_SIZE-$SLURM_NTASKS}}" '
    'LOCAL_RANK="${OMPI_COMM_WORLD_LOCAL_RANK-${MPI_LOCALRANKID-$SLURM_LOCALID}}" '
    'LOCAL_WORLD_SIZE="${OMPI_COMM_WORLD_LOCAL_SIZE-${MPI_LOCALNRANKS-$SLURM_NTASKS_PER_NODE}}"; '
    'shift 2; exec "$@"'
)


def port() -> Any:
    """Declare the port at which ranks find each other."""
    return option(
        Whole(1, 65535),
        "Port on the first host where the ranks meet (MASTER_PORT).",
        default="29500",
    )


def python() -> Any:
    """Declare the Python that starts the ranks."""
    return option(
        Text("a path", "PATH"),
        "The Python that has torch, on every host. Default: python3.",
        unset="",
    )


def first_address(hosts: Sequence["Host"]) -> str:
    """Return where all ranks reach the first host (MASTER_ADDR)."""
    first, *others = hosts
    is_one_machine = not others or all(host.virtual for host in hosts)
    return "127.0.0.1" if is_one_machine else first.address or first.name


def with_torch_variables(step: "Step", hosts: Sequence["Host"], port_of_first: int) -> "Step":
    """Return a step whose processes have the variables of torch.distributed.

    RANK and WORLD_SIZE count processes: of a step with one per node, they are nodes.
    """
    words = ("sh", "-c", _TORCH_VARIABLES, "sh", first_address(hosts), str(port_of_first))

    def started_by_shell(command: "Command") -> "Command":
        return replace(command, argv=(*words, *command.argv))

    return replace(step, commands=tuple(map(started_by_shell, step.commands)))
