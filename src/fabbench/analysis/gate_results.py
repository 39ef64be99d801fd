"""The results of gates: a sentence for each breach, and one state for each gate."""

from enum import StrEnum

from fabbench.model.errors import Exit
from fabbench.model.mappings import Sentences
from fabbench.model.values import frozen


class GateState(StrEnum):
    """The result of one gate, the gravest first."""

    FAILED = "failed"
    UNTRUSTED = "not trusted"
    """Not breached, but a column that it compares cannot be trusted."""
    INCONCLUSIVE = "inconclusive"
    """A loss beyond the tolerance is neither shown nor excluded; a strict check fails it."""
    PASSED = "passed"


@frozen
class GateResult:
    """The findings of one gate, as sentences."""

    gate: str
    """As it was written."""
    state: GateState
    breaches: Sentences = ()
    notes: Sentences = ()


@frozen
class Verdict:
    """The findings of the gates, as sentences."""

    status: Exit = Exit.FINE
    undecided: Sentences = ()
    """The sentences about losses that are neither shown nor excluded."""
    results: tuple[GateResult, ...] = ()
    """In the order in which gates were given."""

    @property
    def state(self) -> GateState:
        """The gravest result of a gate."""
        states = {each.state for each in self.results}
        return next(filter(states.__contains__, GateState), GateState.PASSED)

    @property
    def breaches(self) -> Sentences:
        """The sentences of all breaches."""
        return tuple(text for result in self.results for text in result.breaches)

    @property
    def notes(self) -> Sentences:
        """The sentences that are no breaches."""
        return tuple(text for result in self.results for text in result.notes)

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
