"""The output of a job that runs a whole plan → the lines and the ending of each execution. Pure.

A launcher that submits a script (see `fabbench.execution.script`) gets its lines in one stream, possibly with
prefixes. The markers show of which execution each is: every one is stored and judged by its own proof.
"""

from collections.abc import Generator, Iterable, Iterator

from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.log import MARKER_SIGN, Ending, Marker, read_marker
from fabbench.model.patterns import lazy
from fabbench.model.plan import Execution

_STOPPED = lazy(r"fabbench: (?P<why>The script was stopped by .+)")


class Demux:
    """Yields the lines of each execution. Executions are requested in the order that the job runs them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._cut = Prefixes().cut
        self._held: str | None = None
        """The first line of an execution that has not been requested yet."""
        self._current = ""
        """The execution that began last; empty: none yet, and lines go to the first one requested."""
        self._requested: set[str] = set()

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Yield the lines of one execution, and after the last one all others; return how it ended."""
        tracker = _EndTracker(execution)
        self._requested.add(execution.id)
        for raw, text in self._rest():
            marker = read_marker(text) if text.startswith(MARKER_SIGN) else None
            if marker is not None and marker.kind != "end":
                if marker.execution not in self._requested:
                    self._held = raw
                    break
                self._current = marker.execution
            if self._current in {"", execution.id}:
                tracker.feed(text, marker)
                yield raw
        return tracker.ending()

    def _rest(self) -> Iterator[tuple[str, str]]:
        """Yield the remaining lines, each as it is and without prefixes."""
        if self._held is not None:
            raw, self._held = self._held, None
            yield raw, self._cut(raw)[0]
        for raw in self._lines:
            yield raw, self._cut(raw)[0] if MARKER_SIGN in raw or "fabbench: " in raw else raw


class _EndTracker:
    """Tracks the markers of one execution, to decide whether and how it ended."""

    def __init__(self, execution: Execution) -> None:
        self._started = False
        self._execution = execution
        self._open = ""
        self._ended = 0
        self._status: int | None = None
        self._stopped = ""

    def feed(self, text: str, marker: Marker | None) -> None:
        """Read a line."""
        if marker is not None:
            if marker.execution == self._execution.id and marker.kind != "nics":
                self._mark(marker)
        elif match := _STOPPED.fullmatch(text):
            self._stopped = match["why"]

    def _mark(self, marker: Marker) -> None:
        if marker.kind == "begin":
            self._started, self._open = True, marker.name
            return
        self._open = ""
        self._ended += 1
        self._status = self._status or marker.status

    def ending(self) -> Ending:
        """Return how the execution ended."""
        planned = len(self._execution.steps)
        cut_off = f"The output ends after {self._ended} of {planned} steps." if self._ended < planned else ""
        if not self._started:
            cut_off = "The job ended, or went on, without this execution."
        elif self._open:
            cut_off = f"The output ends in step {self._open}."
        return Ending(
            status=self._status,
            stopped="" if self._status else self._stopped or cut_off,
            planned_sizes=self._execution.planned_sizes,
        )
