"""Runs that are handed over as one job: rendered, submitted, and split into executions again.

A launcher of jobs knows how to submit a document and to follow its lines; the rest is here. What is submitted
is, byte for byte, what `fabbench render` prints.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from fabbench.catalog.offline_inventory import require_names
from fabbench.launchers import Rendering, RenderInput
from fabbench.logs.demux import Demux
from fabbench.model.hosts import Inventory
from fabbench.model.log import MARKER_SIGN, Ending
from fabbench.model.plan import Execution, Plan

Follow = Callable[[str], Generator[str, None, None]]
"""Submits a document and gives its lines as they come. Closing it early ends the job."""
CancelExecution = Callable[[Execution], None]
"""Ends one execution of a job, which goes on with the next one."""
ReadCounters = Callable[[], Mapping[str, Sequence[str]]]
"""Reads what the NICs of a job's hosts have counted, for who looks on; none while it does not run."""

_AROUND_S = 600
"""For starting, ending and looking, besides what is measured."""
_EACH_STEP_S = 30


class JobAllocation:
    """Machines that are given a whole plan as one document.

    Nothing is submitted before the first execution is requested, but for `begins`. An execution that is ended
    early goes on in the job, up to the next one, unless `cancel_execution` ends it there; a job that is left
    before its last execution is to be ended: `close`.
    """

    # No thread looks on: a launcher may start programs here at any time.
    remote = False
    cancel_execution: CancelExecution | None = None
    """Ends an execution of which no more is asked for; None: it goes on to its end."""
    read_counters: ReadCounters | None = None
    """Reads counters while the job runs. Those of an execution are what its script prints."""

    def __init__(
        self, inventory: Inventory, rendering: Rendering, name: str, follow: Follow, *, begins: bool = False
    ) -> None:
        """`name` is the file under which the document is kept with the run.

        `begins`: `submit` submits the job and waits until its first step begins, so that a job which never
        comes to that is no execution.
        """
        self.inventory = inventory
        self._rendering, self._name, self._follow = rendering, name, follow
        self._lines: Generator[str, None, None] | None = None
        self._split = Demux(())
        self._begins = begins
        self._documents: Mapping[str, str] = {}
        self._going_on = False

    @property
    def documents(self) -> Mapping[str, str]:
        """Return the document that was submitted, less its secrets."""
        return self._documents

    def submit(self, source: RenderInput) -> None:
        """Render the plan and submit it; see `fabbench.launchers.BatchAllocation`."""
        require_names(source.plan)
        document = self._rendering.render(source)
        self._documents = {self._name: self._rendering.render(source.redacted())}
        self._lines = self._follow(document)
        first = [*until_begun(self._lines)] if self._begins else []
        self._split = Demux(chain(first, self._lines))

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Yield the lines of an execution, and how it ended."""
        self._going_on = True
        try:
            return (yield from self._split.execute(execution))
        except GeneratorExit:
            if self.cancel_execution is not None:
                self.cancel_execution(execution)
            raise
        finally:
            self._going_on = False

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Return the counters as they are now, for who looks on while an execution goes on.

        Those from before and after it are what the script prints with its lines.
        """
        return self.read_counters() if self.read_counters is not None and self._going_on else {}

    def close(self) -> None:
        """End the job, if it has not ended."""
        if self._lines is not None:
            self._lines.close()


def until_begun(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines up to the first marker."""
    for line in lines:
        yield line
        if MARKER_SIGN in line:
            return


def longest_s(plan: Plan) -> int:
    """Return how long a plan may take, in whole minutes: its steps' limits and the work around them."""
    total = sum(_execution_s(execution) for execution in plan.executions) + _AROUND_S
    return math.ceil(total / 60) * 60


def _execution_s(execution: Execution) -> float:
    each = [step.timeout_s + _EACH_STEP_S for step in execution.steps]
    return max(each, default=0) if execution.together else sum(each)
