"""The tests of a sweep, their results, and its suspects. Frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fabbench.model.errors import Exit
from fabbench.model.log import Outcome
from fabbench.model.mappings import Names
from fabbench.model.messages import with_remark
from fabbench.model.values import frozen

LONGER = 2
"""A test that hung shows something from so many times on what healthy tests take.

These end within the limit: so many limits are always enough.
"""


@dataclass(frozen=True, slots=True)
class SweepTest:
    """One test: of one node alone, of a pair (most), or of a larger group."""

    nodes: Names
    """In order of their roles: for a pair, server and client."""
    rail: str = ""  # The NIC that each of the nodes uses; empty: the benchmark's own choice
    longer: bool = False
    """Whether it has `LONGER` times the limit, which was too short for some."""

    @property
    def usual(self) -> "SweepTest":
        """Return the same test with the usual limit."""
        return replace(self, longer=False)

    def __str__(self) -> str:
        """Return its nodes, and its rail."""
        return pair_text(self.nodes, self.rail)


def pair_text(nodes: Sequence[str], rail: str) -> str:
    """Return the nodes of a test, and its rail if it has one."""
    return with_remark(" – ".join(nodes), rail)


@frozen
class Round:
    """Tests that run concurrently: no node is in two of them."""

    number: int  # Counts from 1
    tests: tuple[SweepTest, ...]
    purpose: str  # For progress: "all pairs", "3 suspects against healthy nodes"


class SweepOutcome(StrEnum):
    """The outcome of one test."""

    OK = "ok"
    FAILED = "failed"
    """It ended with an error, or its result does not count (corrupt, off-fabric)."""
    HUNG = "hung"
    UNUSABLE = "unusable"
    """Nothing is known of it: a log that cannot be read, or was altered."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of one test. Compact: a sweep of thousands of nodes has millions."""

    test: SweepTest
    outcome: SweepOutcome
    figure: float | None = None
    """In the metric's base unit; 0: it was printed so, in steps. None unless the outcome is ok."""
    round: int = 0
    reason: str = ""
    """A sentence, where it failed or hung."""
    nics: Mapping[str, float] | None = None
    """NIC → its figure, if the test measured them one by one; used instead of `figure`."""
    series: str = ""
    """What was measured, if tests differ in that: figures of one series can be compared."""
    step: float = 0.0
    """In which steps the figures were printed; 0: they were not rounded."""
    seconds: float = 0.0
    """How long its longest step took: the limit is that of a step; 0: that is not known."""

    @property
    def is_measured(self) -> bool:
        """Whether it has a figure; 0 is one where it is known in which steps it was printed."""
        return self.figure is not None and not_zero(self.figure, self.step) > 0


def not_zero(figure: float, step: float) -> float:
    """Return a figure, or the middle of all that is printed as 0 in such steps."""
    return figure or step / 4  # from 0 to half a step is printed as 0


def rounded_part(figure: float, step: float) -> float:
    """Return half of a step as a part of a figure: 2 if it is printed as 0, 0 if not rounded."""
    return step / 2 / not_zero(figure, step) if step else 0.0


# Nodes are compared even if the network is unproven.
MEASURED = frozenset({Outcome.OK, Outcome.UNPROVEN})


def outcome_of_test(outcome: str) -> SweepOutcome:
    """Return what the outcome of a log says of a test."""
    if outcome in MEASURED:
        return SweepOutcome.OK
    if outcome == Outcome.SKIPPED:
        return SweepOutcome.UNUSABLE
    return SweepOutcome.HUNG if outcome == Outcome.TIMEOUT else SweepOutcome.FAILED


class SuspectKind(StrEnum):
    """The kind of a suspect."""

    NODE = "node"
    NIC = "nic"
    RAIL = "rail"
    """The NICs of one name, on all nodes or on several."""
    LINK = "link"
    GROUP = "group"
    """The path between a rack, a spine or any other group, and others."""
    SLOW_GROUP = "slow-group"
    """Nodes that are slower than others, also among themselves: another type, or bad."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """What seems bad, with what confidence, and why."""

    kind: SuspectKind
    name: str
    """A node, or several; NODE:NIC; NODES:NIC or the NIC of all nodes; NODE – NODE; or a group."""
    nodes: Names
    confidence: float
    """The chance that it is bad, between 0 and 1."""
    evidence: str
    rail: str = ""
    """The NIC that a NIC or a link is of, if each was tested."""
    shared: str = ""
    """What others may be bad by, too: its rail, direction or group; empty: nothing is known."""
    cannot_run: bool = False
    """Whether it is a node that cannot run the program: nothing is known of its hardware."""
    of_all: bool = False
    """Whether it is a NIC of all nodes that could be judged: what its ports share is bad."""

    @property
    def is_between(self) -> bool:
        """Whether it is between nodes, so that no node is to blame."""
        return self.of_all or self.kind in {SuspectKind.LINK, SuspectKind.GROUP}


@frozen
class NodeGroup:
    """Nodes that are equally fast among themselves, such as those behind one switch."""

    name: str
    nodes: Sequence[str]
    inside: float | None
    """The typical figure of its own pairs, in the metric's base unit; None: none was measured."""
    between: float | None
    """The same of its pairs with other groups."""
    pairs: tuple[int, int] = (0, 0)
    """How many tests these figures are of: inside, and with other groups."""


@frozen
class Diagnosis:
    """The conclusions from the results of a sweep."""

    groups: Sequence[NodeGroup] = ()
    """Those that the user named, or that the tests show; empty: one."""
    groups_found: bool = False
    """Whether the tests show the groups, and not the user."""
    misgrouped: bool = False
    """Whether they contradict those that the user named."""
    slow_path: bool = False
    """Whether the path between found groups is slow, so that one of the suspects is this path."""
    contradiction: str = ""
    """Why nothing is called bad although tests are slow, as a sentence; empty: no reason."""
    suspects: Sequence[Suspect]
    """Bad with at least `required` confidence; the most certain first."""
    undecided: Sequence[Suspect]
    """What may be bad, the likeliest first; then nodes of which nothing is known."""
    by_chance: Sequence[Suspect] = ()
    """Pairs that were slow or failed once, and were not when they were tested again."""
    failed_once: bool = False
    """Whether one of these failed: that is no noise, so that the answer is in doubt."""
    out_of_time: str = ""
    """Which tests hung too soon to show anything, and what to pass, in sentences; empty: none."""
    too_coarse: bool = False
    """Whether that reason is that the figures have too few printed digits."""
    differences: Sequence[str] = ()
    """Groups that are slower than others by their type or by the user's word, as sentences."""
    required: float
    typicals: Mapping[str, float]
    """A kind of test (`within groups`, a NIC; empty: any) → the median of healthy ones.

    Empty if they cannot be compared.
    """
    spread: float
    """The standard deviation of healthy figures between tests, as a fraction of the figure.

    0: too few tests measured it.
    """
    tests: int
    nodes: Sequence[str]
    links: tuple[int, int]
    """How many pairs of nodes were tested, and how many there are."""

    @property
    def status(self) -> Exit:
        """Return the exit status that these conclusions mean.

        A slow path alone is bad only where nothing else is in doubt.
        """
        if len(self.suspects) > self.slow_path:  # others than this path, which is one of them
            return Exit.BAD_ANSWER
        if self.undecided or self.contradiction or self.failed_once or self.out_of_time:
            return Exit.UNTRUSTED
        return Exit.BAD_ANSWER if self.slow_path else Exit.FINE
