"""How steps ended, by fabbench's own markers, so that no record of a failed step passes for a good one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fabbench.model.log import Marker, Record

TIMEOUT_STATUS = 124
"""Exit status of coreutils' `timeout`, and of fabbench's scripts, when the time limit was reached."""


@dataclass(slots=True)
class StepEndings:
    """The steps that the next records belong to, and the records that wait for the end of their step."""

    seen: bool = False
    """Whether there was any marker."""
    benchmark: str | None = None
    """The benchmark of the step that began last."""
    _open: Marker | None = None
    _execution: str = ""
    """The execution of the step that began last."""
    _silent: bool = False
    """Whether a step has started without any record so far."""
    _failures: list[str] = field(default_factory=list)
    _timed_out: str = ""
    _incomplete: str = ""
    _held: list[Record] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Return whether a step has started and not ended."""
        return self._open is not None

    @property
    def execution(self) -> str:
        """Return the execution of the open step; empty if none is open."""
        return self._open.execution if self._open is not None else ""

    def begin(self, marker: Marker, benchmark: str | None) -> None:
        """Note that a step begins."""
        self.benchmark, self._open, self._silent = benchmark, marker, True
        self._execution = marker.execution

    def end(self, marker: Marker) -> list[Record]:
        """Note that a step ended; return the records that waited for it."""
        self._open = None
        name = marker.name
        if marker.status is None:
            self._cut(name)
        elif marker.status:
            self._failures.append(
                f"{self.benchmark or 'The program'} exited with status {marker.status} in step {name}."
            )
        if marker.status == TIMEOUT_STATUS:
            self._timed_out = self._timed_out or (f"Step {name} timed out (exit status {TIMEOUT_STATUS}).")
        return self.release()

    def cut_off(self) -> None:
        """Note that the end of the open step will not come."""
        if self._open is not None:
            self._cut(self._open.name)
            self._open = None

    def _cut(self, name: str) -> None:
        self._incomplete = self._incomplete or f"The log does not show how step {name} ended."

    def hold(self, records: Sequence[Record]) -> None:
        """Keep records until their step has ended."""
        self._held += records

    def release(self) -> list[Record]:
        """Return the records that were held, with how their steps ended."""
        held, self._held = self._held, []
        for record in held:
            self.apply(record)
        return held

    def apply(self, record: Record) -> None:
        """Add how its steps ended to a record."""
        self._silent = False
        record.execution = record.execution or self._execution
        record.failures += [text for text in self._failures if text not in record.failures]
        record.timed_out = record.timed_out or self._timed_out
        record.incomplete = record.incomplete or self._incomplete

    def silent_step(self) -> list[Record]:
        """Return a record for a step without any output; empty if the step has a record already."""
        if not self._silent:
            return []
        record = Record(benchmark=self.benchmark)
        self.apply(record)
        return [record]

    def forget(self) -> None:
        """Start over: what follows belongs to other steps."""
        self._failures, self._timed_out, self._incomplete, self._silent = [], "", "", False
