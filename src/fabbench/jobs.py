"""Runs that are handed over as one job: rendered, submitted, and split into executions again.

A launcher of jobs knows how to submit a document and to follow its lines; the rest is here. What is submitted
is, byte for byte, what `fabbench render` prints.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from fabbench.machines import Inventory
from fabbench.markers import SIGN
from fabbench.model import Ending, Trial
from fabbench.offline import require_names
from fabbench.rendering import Job, Rendering
from fabbench.split import Split

Follow = Callable[[str], Generator[str, None, None]]
"""Submits a document and gives its lines as they come. Closing it early ends the job."""
GiveUp = Callable[[Trial], None]
"""Ends one trial of a job, which goes on with the next one."""


class JobPlace:
    """A place that is given a whole plan as one document; see `fabbench.launchers.Place`.

    Nothing is submitted before the first trial is asked for, but for `begins`. A trial that is ended early
    goes on in the job, up to the next one, unless `give_up` ends it there; a job that is left before its last
    trial is to be ended: `close`.
    """

    remote = False
    """No thread looks on, since the script counts: a launcher may start programs here at any time."""
    give_up: GiveUp | None = None
    """Ends a trial of which no more is asked for; None: it goes on to its end."""

    def __init__(
        self, inventory: Inventory, rendering: Rendering, name: str, follow: Follow, *, begins: bool = False
    ) -> None:
        """`name` is the file under which the document is kept with the run.

        `begins`: `begin` submits the job and waits until its first step begins, so that a job which never
        comes to that is no execution.
        """
        self.inventory = inventory
        self._rendering, self._name, self._follow = rendering, name, follow
        self._lines: Generator[str, None, None] | None = None
        self._split = Split(())
        self._begins = begins

    def begin(self, job: Job) -> Mapping[str, str]:
        """Render the document. Raises RequestError for what it cannot express."""
        require_names(job.plan)
        document = self._rendering.render(job)
        self._lines = self._follow(document)
        first = [*until_begun(self._lines)] if self._begins else []
        self._split = Split(chain(first, self._lines))
        return {self._name: document}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Give the lines of a trial, and how it ended."""
        try:
            return (yield from self._split.execute(trial))
        except GeneratorExit:
            if self.give_up is not None:
                self.give_up(trial)
            raise

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Nothing: the script prints them with its lines."""
        return {}

    def close(self) -> None:
        """End the job, if it has not ended."""
        if self._lines is not None:
            self._lines.close()


def until_begun(lines: Iterable[str]) -> Iterator[str]:
    """Give lines up to the first marker."""
    for line in lines:
        yield line
        if SIGN in line:
            return
