"""A cluster of SkyPilot's as a place to run on: one job for each trial, all on the same cluster."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from itertools import chain

from fabbench.errors import MachineError
from fabbench.jobs import until_begun
from fabbench.launches import failure
from fabbench.machines import Inventory
from fabbench.markers import SIGN, read_marker
from fabbench.model import Ending, Trial
from fabbench.offline import require_names
from fabbench.prefixes import Prefixes
from fabbench.rendering import Job, Rendering
from fabbench.skyapi.cluster import Cluster
from fabbench.skyapi.ending import echo, failed, prefix
from fabbench.split import Split

FILE = "task.yaml"


class SkyPlace:
    """A place that launches its cluster with the first trial; see `fabbench.launchers.Place`."""

    remote = True

    def __init__(self, inventory: Inventory, rendering: Rendering, cluster: Cluster) -> None:
        self.inventory = inventory
        self._rendering, self._cluster = rendering, cluster
        self._document = ""
        self._first: Mapping[str, tuple[list[str], Generator[str, None, None]]] = {}
        """The trial with which the cluster was launched → what its job has printed, and what it will."""

    def begin(self, job: Job) -> Mapping[str, str]:
        """Render the task, launch the cluster with the first trial, and wait until that begins.

        Raises RequestError for what cannot be expressed, MachineError where there are no such machines, or
        something is missing there.
        """
        require_names(job.plan)
        self._document = self._rendering.render(job)
        first = job.plan.trials[0]
        number = self._cluster.launch(self._document, _variables(first))
        lines = _lines(self._cluster, number)
        begun = [*until_begun(lines)]
        if not begun or SIGN not in begun[-1]:
            told = Prefixes().cut(begun[-1])[0] if begun else f"Job {number} printed nothing."
            raise MachineError(told.removeprefix("fabbench: "))
        self._first = {first.id: (begun, lines)}
        return {FILE: self._document}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Give the lines of a trial, and how it ended."""
        begun, lines = self._first.get(trial.id) or ([], self._job(trial))
        with closing(lines):
            return (yield from Split(chain(begun, lines)).execute(trial))

    def _job(self, trial: Trial) -> Generator[str, None, None]:
        """Submit a trial, and give the lines of its job."""
        return _lines(self._cluster, self._cluster.submit(self._document, _variables(trial)))

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Nothing: the script prints them with its lines."""
        return {}


def _variables(trial: Trial) -> dict[str, str]:
    """Choose one trial of the task's."""
    return {"FABRIC": trial.arm.label, "TRIAL": trial.id}


def _lines(cluster: Cluster, number: int) -> Generator[str, None, None]:
    """Give the lines of a job; for one that failed outside its steps, a last one with the reason.

    What a launcher says of its failure becomes that reason, or it would be one more execution that failed.
    """
    cut = Prefixes().cut
    node, last, told = "", "", False
    with closing(cluster.lines(number)) as lines:
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                ended = end.value
                break
            text = cut(line)[0]
            own = prefix(line)
            node = own or node
            if not own and (echo(text) or failure(text)):
                last = last if echo(text) else text
                continue
            marker = read_marker(text)
            last = text if own and text.strip() and marker is None else last
            told = told or bool(marker and marker.kind == "end" and marker.status != 0)
            yield line
    if not ended.fine and not told:
        yield f"{node}{failed(number, ended, last)}"
