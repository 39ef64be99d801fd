"""What readers of libfabric's pairs have in common: one execution after another, from lines and markers."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fabbench.markers import Marker
from fabbench.model import Point, Record


class Pair(Protocol):
    """One execution while it is being read. Its processes are values of its own kind."""

    trial: str

    def begin(self, marker: Marker) -> None:
        """Begin a step of the same trial."""

    def end(self, marker: Marker) -> None:
        """End a step, with the exit status that its processes ended with."""

    def takes(self, process: Any) -> bool:
        """Whether a process that begins now belongs to this execution."""

    def add(self, process: Any) -> None:
        """Take a process in."""

    def finish(self) -> Record:
        """End the execution."""


T = TypeVar("T", bound=Pair)


class Executions(Generic[T]):
    """The execution that is open, and what was read and not given yet."""

    def __init__(self, benchmark: str, make: Callable[[str], T]) -> None:
        """`make` begins an execution of a trial; of none, where its name is empty."""
        self.current: T | None = None
        self.out: list[Point | Record] = []
        self._benchmark, self._make = benchmark, make

    def mark(self, marker: Marker) -> Sequence[Point | Record]:
        """Begin or end a step. Steps of one trial are one execution."""
        if marker.kind == "begin":
            ours = marker.facts.get("benchmark") == self._benchmark
            if self.current is not None and not (ours and self.current.trial == marker.trial):
                self.finish()
            if ours:
                self.begun(marker.trial).begin(marker)
        elif self.current is not None and self.current.trial == marker.trial:
            self.current.end(marker)
        return self.given()

    def add(self, process: Any) -> None:
        """Add a process to the execution, or begin the next execution with it."""
        if self.current is not None and not self.current.takes(process):
            self.finish()
        self.begun().add(process)

    def begun(self, trial: str = "") -> T:
        """Give the execution that is open; begin one if there is none."""
        self.current = self.current or self._make(trial)
        return self.current

    def finish(self) -> None:
        """End the execution that is open."""
        if self.current is not None:
            self.out.append(self.current.finish())
            self.current = None

    def given(self) -> Sequence[Point | Record]:
        """Give what was read since this was asked last."""
        out, self.out = self.out, []
        return out
