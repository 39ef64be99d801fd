"""Programs in pairs: a server on one host, and a client on another."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fabbench.benchmarks.standard import Work
from fabbench.model.compat import override
from fabbench.model.fabrics import Rail
from fabbench.model.log import Facts, fact_text
from fabbench.model.units import format_size

if TYPE_CHECKING:
    from fabbench.model.hosts import Host
    from fabbench.model.plan import Command, Step

PORT = "{port}"
"""A word of a command: a free port, when it runs."""
SERVER = "{server}"
"""A word of a command: the server's address, when it runs."""
ADDRESS = "{address}"
"""The same for programs that know no names of hosts: a literal IPv4 address."""


def pair_step(
    execution: str,
    commands: tuple["Command", ...],
    facts: Facts,
    *,
    timeout_s: float,
) -> "Step":
    """Return the step of a server and a client.

    It is named after the `device` and the `size` in its facts, where it has them.
    """
    from fabbench.model.plan import Step

    device = fact_text(facts, "device")
    size = facts.get("size")
    size_in_id = "all" if size is None else str(size)  # in bytes: ids are for programs
    size_in_label = "all sizes" if size is None else format_size(int(size))
    return Step(
        id=f"{execution}/{device}-{size_in_id}" if device else f"{execution}/{size_in_id}",
        label=f"{device} {size_in_label}".strip(),
        commands=commands,
        timeout_s=timeout_s,
        facts=facts,
    )


class Side(NamedTuple):
    """One end of a rail, where a process of a pair runs."""

    role: str
    """`server` or `client`."""
    at: int
    """The position of its host."""
    host: "Host"
    device: str
    """Empty: the program chooses."""
    gpu: int | None
    """The GPU that is nearest to the rail; None: buffers are in host memory."""


class PairWork(Work):
    """What is measured by a pair of processes per rail and size."""

    __slots__ = ()
    memory: str | None
    """`host` or `cuda`; None: cuda if all hosts have GPUs."""
    timeout_s: float

    @property
    @abstractmethod
    def step_sizes(self) -> Sequence[int | None]:
        """The sizes in bytes of the steps; None: all that the program has."""

    @abstractmethod
    def rails(self, fabric: str, hosts: Sequence["Host"]) -> Sequence[Rail]:
        """Return the rails between the first and the last host."""

    @abstractmethod
    def facts(self, fabric: str, rail: Rail, size: int | None) -> Facts:
        """Return what the marker of a step states."""

    @abstractmethod
    def command(self, fabric: str, side: Side, size: int | None) -> "Command":
        """Return the command of one side."""

    def why_no_memory(self, host: "Host") -> str:
        """Return why a host lacks the memory for the buffers; empty if it has it."""
        if self.memory == "cuda" and not host.gpus:
            return "it has no GPU, but GPU memory was requested."
        return ""

    @override
    def steps(self, execution: str, fabric: str, hosts: Sequence["Host"]) -> tuple["Step", ...]:
        """Return a step per rail and size: the server on the first host, the client on the last."""
        steps: list[Step] = []
        for rail in self.rails(fabric, hosts):
            sides = [*self._sides(rail, hosts)]
            for size in self.step_sizes:
                facts = self.facts(fabric, rail, size)
                commands = tuple(self.command(fabric, side, size) for side in sides)
                steps.append(pair_step(execution, commands, facts, timeout_s=self.timeout_s))
        return tuple(steps)

    def _sides(self, rail: Rail, hosts: Sequence["Host"]) -> Iterator[Side]:
        """Yield the server's side, on the first host, and the client's, on the last one."""
        is_on_gpus = self.memory == "cuda"
        if self.memory is None:  # the user does not say: on GPUs where both have some
            is_on_gpus = all(host.gpus for host in hosts)
        server = ("server", 0, rail.server)
        client = ("client", len(hosts) - 1, rail.client)
        for role, at, device in (server, client):
            host = hosts[at]
            gpu = rail.nearest_gpu(host.gpus) if is_on_gpus else None
            yield Side(role, at, host, device, gpu)
