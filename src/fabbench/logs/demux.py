"""The output of a job that runs a whole plan → the lines of each execution, and how it ended. Pure.

A launcher that hands over a script (see `fabbench.execution.script`) gets its lines in one stream, perhaps
with prefixes. The markers say which execution each belongs to, so that every execution is stored and judged
by its own proof.
"""

from collections.abc import Generator, Iterable, Iterator

from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.log import MARKER_SIGN, Ending, Marker, read_marker
from fabbench.model.patterns import lazy
from fabbench.model.plan import Execution

_ENDED = lazy(r"fabbench: (?P<why>.+ was (?:aborted|ended)(?: after \d+ s)?: .+)")
_STOPPED = lazy(r"fabbench: (?P<why>The script was stopped by .+)")


class Demux:
    """Gives the lines of each execution. Executions are requested in the order in which the job runs them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._cut = Prefixes().cut
        self._held: str | None = None
        """The line with which an execution begins that was not requested yet."""
        self._whose = ""
        """The execution that began last; empty: none yet, and lines go to the first that is requested."""
        self._past: set[str] = set()

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Yield the lines of one execution, with whatever prefixes they have, and how it ended.

        What comes after the last execution's end, such as a launcher's last words, belongs to it. What a
        restarted job repeats is left out, except for the execution that was interrupted.
        """
        tracker = _EndTracker(execution)
        self._past.add(execution.id)
        for raw, text in self._rest():
            marker = read_marker(text) if text.startswith(MARKER_SIGN) else None
            if marker is not None and marker.kind != "end":
                if marker.execution not in self._past:
                    self._held = raw
                    break
                self._whose = marker.execution
            if self._whose in {"", execution.id}:
                tracker.take(text, marker)
                yield raw
        return tracker.ending()

    def _rest(self) -> Iterator[tuple[str, str]]:
        """Yield the lines that follow, as they are and without prefixes."""
        if self._held is not None:
            raw, self._held = self._held, None
            yield raw, self._cut(raw)[0]
        for raw in self._lines:
            yield raw, self._cut(raw)[0] if MARKER_SIGN in raw or "fabbench: " in raw else raw


class RestartDetector:
    """Detects where a job that was interrupted, and runs again, restarts an execution."""

    def __init__(self) -> None:
        self._cut = Prefixes().cut
        self._steps: set[str] = set()

    def restarted(self, line: str) -> bool:
        """Read a line of one execution: whether it begins a step that has begun before."""
        marker = read_marker(self._cut(line)[0]) if MARKER_SIGN in line else None
        if marker is None or marker.kind != "begin":
            return False
        if marker.step in self._steps:
            self._steps = {marker.step}
            return True
        self._steps.add(marker.step)
        return False


class _EndTracker:
    """Tracks the markers of one execution, to decide whether and how it ended."""

    def __init__(self, execution: Execution) -> None:
        self._started = False
        self._execution = execution
        self._open = ""
        self._steps: set[str] = set()
        self._over = 0
        self._status: int | None = None
        self._timed_out = ""
        self._stopped = ""

    def take(self, text: str, marker: Marker | None) -> None:
        """Read a line."""
        if marker is not None:
            if marker.execution == self._execution.id and marker.kind != "nics":
                self._mark(marker)
        elif match := _ENDED.fullmatch(text):
            self._timed_out = self._timed_out or match["why"]
        elif match := _STOPPED.fullmatch(text):
            self._stopped = match["why"]

    def _mark(self, marker: Marker) -> None:
        if marker.kind == "begin":
            if self._open or self._stopped or marker.step in self._steps:
                # The job was restarted, after a node was lost or taken away.
                self._timed_out = self._stopped = ""
                self._over, self._status = 0, None
                self._steps.clear()
            self._steps.add(marker.step)
            self._started, self._open = True, marker.name
            return
        self._open = ""
        self._over += 1
        self._status = self._status or marker.status

    def ending(self) -> Ending:
        """Return how the execution ended."""
        return Ending(
            status=self._status,
            timed_out=self._timed_out,
            stopped="" if self._timed_out or self._status else self._stopped or self._cut_off(),
            planned_sizes=self._execution.planned_sizes,
        )

    def _cut_off(self) -> str:
        if not self._started:
            return "The job ended, or went on, without this execution."
        if self._open:
            return f"The output ends in step {self._open}."
        planned = len(self._execution.steps)
        return f"The output ends after {self._over} of {planned} steps." if self._over < planned else ""
