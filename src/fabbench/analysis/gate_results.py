"""What gates found: a sentence for each breach, and one state for each gate."""

from dataclasses import dataclass, field
from enum import StrEnum

from fabbench.model.errors import Exit


class GateState(StrEnum):
    """What came of one gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNTRUSTED = "not trusted"
    """Not breached, but a column that it compares cannot be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate found, as sentences."""

    gate: str
    """As it was written."""
    state: GateState
    breaches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the gates found, as sentences."""

    breaches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    status: Exit = Exit.FINE
    passed: tuple[str, ...] = ()
    """The gates that held, as they were written; none where the columns cannot be trusted."""
    undecided: tuple[str, ...] = ()
    """Those of both sentences that are neither shown nor excluded."""
    results: tuple[GateResult, ...] = field(default=(), compare=False)
    """The same for each gate, in the order in which they were given."""
