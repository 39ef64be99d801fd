"""The results of gates: a sentence for each breach, and one state for each gate."""

from dataclasses import dataclass, field
from enum import StrEnum

from fabbench.model.errors import Exit


class GateState(StrEnum):
    """The result of one gate."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """A loss beyond the tolerance is neither shown nor excluded; a strict check fails it."""
    UNTRUSTED = "not trusted"
    """Not breached, but a column that it compares cannot be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The findings of one gate, as sentences."""

    gate: str
    """As it was written."""
    state: GateState
    breaches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The findings of the gates, as sentences."""

    breaches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    status: Exit = Exit.FINE
    undecided: tuple[str, ...] = ()
    """The sentences among both about losses that are neither shown nor excluded."""
    results: tuple[GateResult, ...] = field(default=(), compare=False)
    """The same for each gate, in the order in which they were given."""

    @property
    def passed(self) -> tuple[str, ...]:
        """The gates that held, as they were written."""
        return self._gates(GateState.PASSED)

    @property
    def inconclusive(self) -> tuple[str, ...]:
        """The gates that neither held nor failed, as they were written."""
        return self._gates(GateState.INCONCLUSIVE)

    def _gates(self, state: GateState) -> tuple[str, ...]:
        return tuple(each.gate for each in self.results if each.state is state)
