"""The output of a job that runs a whole plan → the lines and the ending of each execution. Pure.

A launcher that submits a script (see `fabbench.execution.script`) gets its lines in one stream, possibly with
prefixes. The markers show of which execution each is: every one is stored and judged by its own proof.
"""

from collections.abc import Generator, Iterable
from itertools import chain

from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.log import MARKER_SIGN, Ending, read_marker
from fabbench.model.patterns import lazy
from fabbench.model.plan import Execution

_STOPPED = lazy(r"fabbench: (?P<why>The script was stopped by .+)")


class Demux:
    """Yields the lines of each execution. Executions are requested in the order that the job runs them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._cut = Prefixes().cut
        self._current = ""
        """The execution that began last; empty: none yet, and lines go to the first one requested."""
        self._requested: set[str] = set()

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Yield the lines of one execution, and after the last one all others; return how it ended."""
        self._requested.add(execution.id)
        begun, step, ended, status, stopped = False, "", 0, None, ""
        for raw in self._lines:
            text = self._cut(raw)[0] if MARKER_SIGN in raw or "fabbench: " in raw else raw
            marker = read_marker(text) if text.startswith(MARKER_SIGN) else None
            if marker is not None and marker.kind != "end":
                if marker.execution not in self._requested:
                    self._lines = chain((raw,), self._lines)
                    break
                self._current = marker.execution
            if self._current not in {"", execution.id}:
                continue
            if marker is None and (match := _STOPPED.fullmatch(text)) is not None:
                stopped = match["why"]
            elif marker is not None and marker.execution == execution.id and marker.kind != "nics":
                begun, step = begun or marker.kind == "begin", marker.name if marker.kind == "begin" else ""
                if marker.kind == "end":
                    ended, status = ended + 1, status or marker.status
            yield raw
        planned = len(execution.steps)
        cut_off = f"The output ends after {ended} of {planned} steps." if ended < planned else ""
        if not begun:
            cut_off = "The job ended, or went on, without this execution."
        elif step:
            cut_off = f"The output ends in step {step}."
        return Ending(
            status=status, stopped="" if status else stopped or cut_off, planned_sizes=execution.planned_sizes
        )
