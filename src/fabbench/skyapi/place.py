"""A cluster of SkyPilot's as a place to run on: one job for each trial, all on the same cluster."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

from fabbench.markers import read_marker
from fabbench.model import Ending, Trial
from fabbench.offline import require_names
from fabbench.plan import Inventory
from fabbench.prefixes import Prefixes
from fabbench.rendering import Job, Rendering
from fabbench.skyapi.cluster import Cluster
from fabbench.skyapi.ending import echo, failed, own
from fabbench.split import Split

FILE = "task.yaml"


class SkyPlace:
    """A place that launches its cluster with the first trial; see `fabbench.launchers.Place`."""

    remote = True

    def __init__(self, inventory: Inventory, rendering: Rendering, cluster: Cluster) -> None:
        self.inventory = inventory
        self._rendering, self._cluster = rendering, cluster
        self._document = ""
        self._launched: Mapping[str, int] = {}
        """The trial with which the cluster was launched → its job."""

    def begin(self, job: Job) -> Mapping[str, str]:
        """Render the task, and launch the cluster with the first trial.

        Raises RequestError for what cannot be expressed, MachineError where there are no such machines.
        """
        require_names(job.plan)
        self._document = self._rendering.render(job)
        first = job.plan.trials[0]
        self._launched = {first.id: self._cluster.launch(self._document, _variables(first))}
        return {FILE: self._document}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Give the lines of a trial, and how it ended."""
        number = self._launched.get(trial.id) or self._cluster.submit(self._document, _variables(trial))
        with closing(_lines(self._cluster, number)) as lines:
            return (yield from Split(lines).execute(trial))

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Nothing: the nodes are not asked."""
        return {}


def _variables(trial: Trial) -> dict[str, str]:
    """Choose one trial of the task's."""
    return {"FABRIC": trial.arm.label, "TRIAL": trial.id}


def _lines(cluster: Cluster, number: int) -> Generator[str, None, None]:
    """Give the lines of a job; for one that failed before or after its steps, a last one with the reason."""
    cut = Prefixes().cut
    last, told = "", False
    with closing(cluster.lines(number)) as lines:
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                ended = end.value
                break
            text = cut(line)[0]
            marker = read_marker(text)
            told = told or bool(marker and marker.kind == "end" and marker.status != 0)
            # Read as a launcher's words, it would be one more execution that failed.
            if not echo(line):
                last = text if text.strip() and not own(text) else last
                yield line
    if not ended.fine and not told:
        yield failed(number, ended, last)
