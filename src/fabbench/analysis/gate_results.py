"""The results of gates: a sentence for each breach, and one state for each gate."""

from dataclasses import dataclass, field
from enum import StrEnum

from fabbench.model.errors import Exit


class GateState(StrEnum):
    """The result of one gate."""

    PASSED = "passed"
    FAILED = "failed"
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
    passed: tuple[str, ...] = ()
    """The gates that held, as they were written; none where the columns cannot be trusted."""
    undecided: tuple[str, ...] = ()
    """The sentences among both about losses that are neither shown nor excluded."""
    results: tuple[GateResult, ...] = field(default=(), compare=False)
    """The same for each gate, in the order in which they were given."""
