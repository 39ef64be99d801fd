"""The tests of a sweep, their results, and its suspects. Frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class SweepTest:
    """One test: of one node alone, of a pair (most), or of a larger group."""

    nodes: tuple[str, ...]
    """In order of their roles: for a pair, server and client."""
    rail: str = ""
    """The NIC that each of the nodes uses; empty: the benchmark's own choice."""

    def __str__(self) -> str:
        """Return its nodes, and its rail."""
        return " – ".join(self.nodes) + (f" ({self.rail})" if self.rail else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Tests that run concurrently: no node is in two of them."""

    number: int
    """Counts from 1."""
    tests: tuple[SweepTest, ...]
    purpose: str
    """For progress: "all pairs", "3 suspects against healthy nodes"."""


class SweepOutcome(StrEnum):
    """The outcome of one test."""

    OK = "ok"
    FAILED = "failed"
    """It ended with an error, or its result does not count (corrupt, off-fabric)."""
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of one test. Compact: a sweep of thousands of nodes has millions."""

    test: SweepTest
    outcome: SweepOutcome
    figure: float | None = None
    """In the metric's base unit; None unless the outcome is ok."""
    round: int = 0
    reason: str = ""
    """A sentence, where it failed or hung."""
    nics: Mapping[str, float] | None = None
    """NIC → its figure, if the test measured them one by one; used instead of `figure`."""
    series: str = ""
    """What was measured, if tests differ in that: figures of one series can be compared."""


class SuspectKind(StrEnum):
    """The kind of a suspect."""

    NODE = "node"
    NIC = "nic"
    LINK = "link"
    GROUP = "group"
    """All nodes of a rack, a spine, or any other group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """What seems bad, with what confidence, and why."""

    kind: SuspectKind
    name: str
    """A node; NODE:NIC; NODE – NODE; or a group."""
    nodes: tuple[str, ...]
    confidence: float
    """The chance that it is bad, between 0 and 1."""
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Typical:
    """The typical figure of healthy tests of one kind."""

    of: str
    """`within groups`, `between groups`, or a NIC."""
    figure: float
    """In the metric's base unit."""
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The conclusions from the results of a sweep."""

    suspects: Sequence[Suspect]
    """Bad with at least `required` confidence; the most certain first."""
    unconfirmed: Sequence[Suspect]
    """Bad, or slow by chance: links with too few tests, whose nodes are fine with others."""
    undecided: Sequence[Suspect]
    """What may be bad, the likeliest first; then nodes without a figure, of which nothing is known."""
    bad: bool
    """Whether something is bad with at least `required` confidence, even if it is unknown what."""
    required: float
    typical: float | None
    """The median figure of healthy tests, in the metric's base unit; None: several things were measured."""
    typicals: Sequence[Typical] = ()
    """The typical figure of each kind, if several were measured."""
    spread: float
    """The standard deviation of healthy figures between tests, as a fraction of the figure."""
    tests: int
    nodes: Sequence[str]
