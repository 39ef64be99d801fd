"""One stream of lines, in which a job runs a whole plan → the lines of each trial, and how it ended. Pure.

A launcher that hands over a script (see `fabbench.script`) gets its lines in one stream, perhaps with
prefixes. The markers say which trial each belongs to, so that every execution is stored and judged by its own
proof.
"""

import re
from collections.abc import Generator, Iterable, Iterator

from fabbench.markers import SIGN, Marker, read_marker
from fabbench.model import Ending, Log, Plan, Trial
from fabbench.parse import Session, logs
from fabbench.prefixes import Prefixes

_ENDED = re.compile(r"fabbench: (?P<why>.+ was ended(?: after \d+ s)?: .+)")
_STOPPED = re.compile(r"fabbench: (?P<why>The script was stopped by .+)")


class Split:
    """Gives the lines of trials that are asked for in the order in which the job runs them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._cut = Prefixes().cut
        self._held: str | None = None
        """The line with which a trial begins that was not asked for yet."""
        self._whose = ""
        """The trial that began last; empty: none yet, and lines go to the first that is asked for."""
        self._past: set[str] = set()

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Give the lines of one trial, with whatever prefixes they have, and how it ended.

        What comes after the last trial's end, such as a launcher's last words, is given with it. What the job
        does once more, since it was begun anew, is left out, except for the trial that was interrupted.
        """
        told = _Told(trial)
        self._past.add(trial.id)
        for raw, text in self._rest():
            marker = read_marker(text) if text.startswith(SIGN) else None
            if marker is not None and marker.kind != "end":
                if marker.trial not in self._past:
                    self._held = raw
                    break
                self._whose = marker.trial
            if self._whose in {"", trial.id}:
                told.take(text, marker)
                yield raw
        return told.ending()

    def _rest(self) -> Iterator[tuple[str, str]]:
        """Give the lines that follow, as they are and without prefixes."""
        if self._held is not None:
            raw, self._held = self._held, None
            yield raw, self._cut(raw)[0]
        for raw in self._lines:
            yield raw, self._cut(raw)[0] if SIGN in raw or "fabbench: " in raw else raw


class Begun:
    """Tells where a job that was interrupted, and is run again, begins an execution anew."""

    def __init__(self) -> None:
        self._cut = Prefixes().cut
        self._steps: set[str] = set()

    def again(self, line: str) -> bool:
        """Read a line of one execution: whether it begins a step which had begun before."""
        marker = read_marker(self._cut(line)[0]) if SIGN in line else None
        if marker is None or marker.kind != "begin":
            return False
        if marker.step in self._steps:
            self._steps = {marker.step}
            return True
        self._steps.add(marker.step)
        return False


class _Told:
    """What the lines of one trial say of its end."""

    def __init__(self, trial: Trial) -> None:
        self.begun = False
        self._trial = trial
        self._open = ""
        self._steps: set[str] = set()
        self._over = 0
        self._status: int | None = None
        self._timed_out = ""
        self._stopped = ""

    def take(self, text: str, marker: Marker | None) -> None:
        """Read a line."""
        if marker is not None:
            if marker.trial == self._trial.id and marker.kind != "nics":
                self._mark(marker)
        elif match := _ENDED.fullmatch(text):
            self._timed_out = self._timed_out or match["why"]
        elif match := _STOPPED.fullmatch(text):
            self._stopped = match["why"]

    def _mark(self, marker: Marker) -> None:
        if marker.kind == "begin":
            if self._open or self._stopped or marker.step in self._steps:
                # The job was begun anew, after a node was lost or taken away.
                self._timed_out = self._stopped = ""
                self._over, self._status = 0, None
                self._steps.clear()
            self._steps.add(marker.step)
            self.begun, self._open = True, marker.name
            return
        self._open = ""
        self._over += 1
        self._status = self._status or marker.status

    def ending(self) -> Ending:
        """Say how the trial ended."""
        return Ending(
            status=self._status,
            timed_out=self._timed_out,
            stopped="" if self._timed_out or self._status else self._stopped or self._cut_off(),
            planned_sizes=self._trial.planned_sizes,
        )

    def _cut_off(self) -> str:
        if not self.begun:
            return "The job ended, or went on, without this execution."
        if self._open:
            return f"The output ends in step {self._open}."
        planned = len(self._trial.steps)
        return f"The output ends after {self._over} of {planned} steps." if self._over < planned else ""


def read(lines: Iterable[str], plan: Plan, source: str) -> Iterator[tuple[Trial, tuple[Log, ...]]]:
    """Judge what a job printed: every trial that has begun, each by what it was to prove."""
    split = Split(lines)
    for trial in plan.trials:
        session, begun = Session(source, proof=trial.proof, live=False), Begun()
        found: list[Log] = []
        execution = split.execute(trial)
        ending = None
        while ending is None:
            try:
                line = next(execution)
            except StopIteration as end:
                ending = end.value
                break
            if begun.again(line):
                session, found = Session(source, proof=trial.proof, live=False), []
            found += logs(session.feed(line))
        found += logs(session.close(ending))
        if found:
            yield trial, tuple(found)
