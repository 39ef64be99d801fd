"""Runs that are submitted as one job, just as `fabbench render` prints it.

Its output is split into executions again.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from fabbench.catalog.offline_inventory import require_names
from fabbench.execution.script.words import script_template
from fabbench.launchers import Rendering, RenderInput
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.hosts import Inventory
from fabbench.model.log import MARKER_SIGN, Ending, ExecutionLines, Lines, Marker, read_marker
from fabbench.model.mappings import Documents, HostLines
from fabbench.model.messages import redacted
from fabbench.model.patterns import lazy
from fabbench.model.plan import Execution, Plan
from fabbench.remote.host import RemoteHost, neighbors

Follow = Callable[[str], Lines]
"""Submits a document and yields its lines; closing it ends the job."""

_AROUND_S = 600.0  # For startup, shutdown and probing, in addition to the measurements
_EACH_STEP_S = 30
_STOPPED = lazy(r"fabbench: (?P<why>The script was stopped by .+)")


def log_in(number: str, *, port: int, sshd: str) -> str:
    """Return the part of a script that lets the first of all `hosts` reach the others by ssh.

    All run it. `number` is a host's own, `sshd` more options. The others stay in it until the
    first one calls `complete`.
    """
    template = script_template("fabbench.launchers", "log_in.txt")
    return template.render(number=number, port=port, sshd=sshd)


@dataclass(slots=True)
class _ExecutionProgress:
    """What the lines of one execution show."""

    begun: bool = False
    step: str = ""
    """The step that has begun and not ended."""
    ended: int = 0
    """How many steps have ended."""
    status: int | None = None
    """Of the first step that failed."""
    stopped: str = ""
    """Why the script was stopped, in its own words."""

    def record(self, execution: Execution, marker: Marker | None, text: str) -> None:
        """Record what a line says: a step begins or ends, or why the script was stopped."""
        if marker is None:
            if match := _STOPPED.fullmatch(text):
                self.stopped = match["why"]
        elif marker.execution == execution.id:
            self._record_marker(marker)

    def _record_marker(self, marker: Marker) -> None:
        if marker.kind == "begin":
            self.begun = True
            self.step = marker.name
        elif marker.kind == "end":
            self.step = ""
            self.ended += 1
            self.status = self.status or marker.status  # the first one but 0

    def ending(self, execution: Execution) -> Ending:
        """Return how it ended, after its last line."""
        stopped = ""
        if not self.status:  # else a step that failed is why nothing follows
            stopped = self.stopped or self._cut_off(len(execution.steps))
        # The script outlives its steps: what ends it, or its output, is the end of its job.
        return Ending(
            status=self.status,
            stopped=stopped,
            lost=bool(stopped),
            planned_sizes=execution.planned_sizes,
        )

    def _cut_off(self, planned: int) -> str:
        """Return where the output ends before all planned steps have; empty: it does not."""
        if not self.begun:
            return "The job ended, or went on, without this execution."
        if self.step:
            return f"The output ends in step {self.step}."
        if self.ended < planned:
            return f"The output ends after {self.ended} of {planned} steps."
        return ""


def _marker(text: str) -> Marker | None:
    """Return the marker that a line is; None: it is another line."""
    return read_marker(text) if text.startswith(MARKER_SIGN) else None


class Demux:
    """Yields the lines of each execution in the output of a job, and how it ended.

    Lines may have prefixes. Executions are requested in the order that the job runs them.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._cut = Prefixes().cut  # Returns the text of a line, and where it is from
        # The execution that began last; empty: none yet, lines go to the first requested one.
        self._current = ""
        self._requested: set[str] = set()  # Ids of the executions that were asked for so far

    def execute(self, execution: Execution) -> ExecutionLines:
        """Yield the lines of one execution; of the last one, all to the end of the output.

        Return how it ended.
        """
        self._requested.add(execution.id)
        progress = _ExecutionProgress()
        for raw in self._lines:
            text = self._without_prefix(raw)
            marker = _marker(text)
            if not self._is_requested(marker):  # the next execution begins: this line is its first
                self._lines = chain((raw,), self._lines)
                break
            if self._current in {"", execution.id}:  # else the rest of an earlier, abandoned one
                progress.record(execution, marker, text)
                yield raw
        return progress.ending(execution)

    def _is_requested(self, marker: Marker | None) -> bool:
        """Return whether a line is of a requested execution; keep which one has begun."""
        if marker is None or marker.kind == "end":
            return True  # only where a step begins, another execution may begin
        if marker.execution not in self._requested:
            return False
        self._current = marker.execution
        return True

    def _without_prefix(self, raw: str) -> str:
        """Return a line without what a launcher put before it, if it may be one of fabbench's."""
        if MARKER_SIGN not in raw and "fabbench: " not in raw:
            return raw
        text, *_ = self._cut(raw)
        return text


class JobAllocation:
    """Machines that get a plan as one document; an abandoned execution goes on until `close`."""

    def __init__(
        self,
        inventory: Inventory,
        rendering: Rendering,
        name: str,
        follow: Follow,
    ) -> None:
        """`name` is the file under which the document is kept with the run.

        `follow` submits the document, and yields the lines of the job.
        """
        self.inventory = inventory
        self._rendering = rendering
        self._name = name
        self._follow = follow
        self._lines: Lines | None = None  # None: nothing was submitted
        self._demux = Demux(lines=())
        self.machines: Sequence[RemoteHost] = ()  # Whose agents see other runs in its job
        self._documents: Documents = {}  # `name` → what was submitted, without secrets

    @property
    def documents(self) -> Documents:
        """Return the document that was submitted, without its secrets."""
        return self._documents

    def submit(self, source: RenderInput) -> None:
        """Render the plan and submit it; see `fabbench.launchers.BatchAllocation`.

        Wait for its first step: a job that never starts is no execution.
        """
        require_names(source.plan)  # of devices: a job's nodes were not asked for theirs
        self._documents = {self._name: self._rendering.render(redacted(source))}
        lines = self._start(source)
        first: list[str] = []
        for line in lines:
            first.append(line)
            if MARKER_SIGN in line:
                break
        self._demux = Demux(chain(first, lines))

    def _start(self, source: RenderInput) -> Lines:
        """Submit the document of a plan, and return its lines, which `execute` then yields."""
        self._lines = self._follow(self._rendering.render(source))
        self._demux = Demux(self._lines)
        return self._lines

    def execute(self, execution: Execution) -> ExecutionLines:
        """Yield the lines of an execution; return how it ended."""
        begun = time.monotonic()
        ending = yield from self._demux.execute(execution)
        return replace(ending, neighbors=neighbors(self.machines, begun))

    def counters(self) -> HostLines:
        """Return nothing: the script prints the counters before and after each execution."""
        return {}

    def close(self) -> None:
        """End the job if it has not ended."""
        if self._lines is not None:
            self._lines.close()


def longest_s(plan: Plan) -> int:
    """Return how long a job of a plan may take, in seconds, rounded up to minutes.

    A step's own limit is without what starts and ends the step, and the job.
    """
    # Steps run at the same time, or one after another.
    starts = [1 if each.together else len(each.steps) for each in plan.executions]
    total_s = _AROUND_S + plan.longest_s + _EACH_STEP_S * sum(starts)
    return math.ceil(total_s / 60) * 60


def most_ranks(plan: Plan) -> int:
    """Return the maximum number of ranks per node that a step of a plan starts."""
    ranks = (
        step.ranks
        for execution in plan.executions
        for step in execution.steps
        if not step.pair  # its server and client are no ranks
    )
    return math.ceil(max(ranks, default=1) / plan.hosts)
