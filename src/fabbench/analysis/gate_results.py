"""The results of gates: a sentence for each breach, and one state for each gate."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from fabbench.model.errors import Exit, worst


class GateState(StrEnum):
    """The result of one gate, the gravest first."""

    FAILED = "failed"
    UNTRUSTED = "not trusted"
    """Not breached, but a column that it compares cannot be trusted."""
    INCONCLUSIVE = "inconclusive"
    """A loss beyond the tolerance is neither shown nor excluded; a strict check fails it."""
    PASSED = "passed"


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

    status: Exit = Exit.FINE
    undecided: tuple[str, ...] = ()
    """The sentences about losses that are neither shown nor excluded."""
    results: tuple[GateResult, ...] = ()
    """In the order in which gates were given."""

    @property
    def state(self) -> GateState:
        """The gravest result of a gate."""
        return _gravest(self.results)

    @property
    def breaches(self) -> tuple[str, ...]:
        """The sentences of all breaches."""
        return tuple(text for result in self.results for text in result.breaches)

    @property
    def notes(self) -> tuple[str, ...]:
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
        of_gates: dict[str, list[GateResult]] = {}
        for each in self.results:
            of_gates.setdefault(each.gate, []).append(each)
        return tuple(gate for gate, some in of_gates.items() if _gravest(some) is state)


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several logs, each checked alone: a gate holds if it does for all."""
    verdicts = list(verdicts)
    return Verdict(
        status=worst(*(each.status for each in verdicts)),
        undecided=tuple(chain.from_iterable(each.undecided for each in verdicts)),
        results=tuple(chain.from_iterable(each.results for each in verdicts)),
    )


def _gravest(results: Iterable[GateResult]) -> GateState:
    known = {each.state for each in results}
    return next(filter(known.__contains__, GateState), GateState.PASSED)
