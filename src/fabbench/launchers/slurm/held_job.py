"""A job that holds nodes for a sweep: each test is the script of one execution, a step on some of them."""

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from fabbench.launchers import RenderInput, rendering_named
from fabbench.launchers.batch_job import JobAllocation, longest_s
from fabbench.launchers.slurm.render import HELD
from fabbench.launchers.slurm.steps import JobSteps
from fabbench.launchers.slurm.submit import SubmittedJob, follow
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.hosts import Inventory
from fabbench.model.log import Ending
from fabbench.model.plan import Execution

FILE = "job.sbatch"


@contextmanager
def held_nodes(job: SubmittedJob, document: str) -> Iterator[tuple[str, ...]]:
    """Hold nodes with a job, and yield their names. Leaving it ends the job. Raise MachineError if that ends first."""
    with closing(follow(job, document)) as lines:
        for line in lines:
            if line.startswith(HELD):
                yield expand_hostlist(line.removeprefix(HELD))
                return
        raise MachineError(f"Job {job.job.id} ended before it held any nodes.", hint="Check its output.")


class HeldJob(JobAllocation):
    """A job that holds nodes; see `fabbench.launchers.DivisibleAllocation`."""

    concurrent = True

    def __init__(self, inventory: Inventory, steps: JobSteps, documents: Mapping[str, str]) -> None:
        """`documents` are what was submitted to get the nodes."""
        names = [host.name for host in inventory.hosts]
        super().__init__(inventory, rendering_named("slurm"), FILE, lambda document: steps.follow(document, names))
        self._steps = steps
        self._documents = documents

    def part(self, hosts: Sequence[int], ended: threading.Event) -> "JobPart":
        """Return an allocation of some nodes: the script of an execution runs on the first of them."""
        return JobPart(self.inventory.part(hosts), self._steps, ended)


class JobPart(JobAllocation):
    """Some nodes of a job. It can be used in any thread."""

    concurrent = True

    def __init__(self, inventory: Inventory, steps: JobSteps, ended: threading.Event) -> None:
        names = [host.name for host in inventory.hosts]
        self._steps, self._limit_s, self._left = steps, 0.0, 0
        how = lambda document: steps.follow(document, names, ended, self._limit_s)  # noqa: E731 - one line
        super().__init__(inventory, rendering_named("slurm"), FILE, how)

    def part(self, hosts: Sequence[int], ended: threading.Event) -> "JobPart":
        """Return an allocation of some of these nodes."""
        return JobPart(self.inventory.part(hosts), self._steps, ended)

    @override
    def submit(self, source: RenderInput) -> None:
        # The requested nodes are those of the whole job.
        target = replace(source.request.target, hosts=(), nodes=None)
        self._limit_s, self._left = longest_s(source.plan), len(source.plan.executions)
        super().submit(replace(source, request=replace(source.request, target=target)))

    @override
    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        self._left -= 1
        going_on = False
        try:
            ending = yield from super().execute(execution)
            going_on = self._left > 0
            return ending
        finally:
            if not going_on:
                self.close()
