"""The values that flow through fabbench: frozen, and without behaviour beyond what a value knows of itself.

Request → Plan → lines → readings → Record → Log → Comparison → Table → text
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

Labels: TypeAlias = Mapping[str, str]
"""What tells points of one size apart (`placement`, `dtype`, `side`, …). Shared: never changed."""

Facts: TypeAlias = Mapping[str, str | int]
"""What a log says about its run: `ranks`, `network`, `transport`, `nccl`, `complete`, …"""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number measures. `unit` is its base unit; `lower_is_better` is its direction."""

    name: str
    unit: str
    lower_is_better: bool = False


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("time", "s", lower_is_better=True),
        Metric("cpu_time", "s", lower_is_better=True),
        Metric("latency", "s", lower_is_better=True),
        Metric("algbw", "B/s"),
        Metric("busbw", "B/s"),
        Metric("bandwidth", "B/s"),
        Metric("message_rate", "1/s"),
        Metric("wrong", "count", lower_is_better=True),
    )
}
"""Every metric there is; part of the public contract (docs/formats.md)."""


# ---------------------------------------------------------------- what programs print


class Stream(NamedTuple):
    """Who printed a line, as its launcher's prefix told."""

    group: str = ""
    """The execution it belongs to: a SkyPilot node, a pod, a Modal rank. Empty: not told."""
    rank: str = ""
    """The MPI or srun task within that execution. Empty: not told."""
    side: str = ""
    """`server` or `client`, where fabbench itself started both. Empty: not told."""


UNTOLD = Stream()


class Line(NamedTuple):
    """One line of output, without its launcher's prefix. `number` counts from 1 in its file."""

    number: int
    text: str
    stream: Stream = UNTOLD


class Point(NamedTuple):
    """What one printed row says of one size: several metrics measured together, in base units.

    A NamedTuple and not a dataclass because a log may hold millions.
    """

    size: int
    labels: Labels
    metrics: tuple[str, ...]
    values: tuple[float, ...]


class Sample(NamedTuple):
    """One measured number, as the public contract lists it."""

    case: str | None
    size: int
    labels: Labels
    metric: str
    value: float


class Severity(StrEnum):
    """How much a finding matters."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a log shows that its reader should know."""

    code: str
    severity: Severity
    meaning: str
    """One sentence."""
    line: str = ""
    """The line that shows it, as printed (cut after 300 characters)."""
    advice: str = ""
    """What to do about it."""


class Damaged(NamedTuple):
    """A row that was printed and cannot be read."""

    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class Record:
    """What a parser read of one benchmark execution, before anybody judged it. Grows while it is read."""

    benchmark: str | None
    case: str | None = None
    points: list[Point] = field(default_factory=list)
    facts: dict[str, str | int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Error texts of the benchmark or its launcher, as sentences, in order of appearance."""
    timed_out: str = ""
    """A sentence, when the benchmark's or the launcher's own time limit ended it."""
    wrong: int = 0
    """Failed data checks; any at all is `corrupt`."""
    off_fabric: str = ""
    """A sentence, when a step used another device or domain than its begin marker says."""
    evidence: dict[str, str] = field(default_factory=dict)
    """Fact → the line that stated it, for some facts."""
    finished: bool | None = False
    """Whether the benchmark's own last word was read; None: this benchmark has none."""


# ---------------------------------------------------------------- judged


class Outcome(StrEnum):
    """What came of one execution. When several apply, the first in this order."""

    CORRUPT = "corrupt"
    TIMEOUT = "timeout"
    FAILED = "failed"
    TRUNCATED = "truncated"
    OFF_FABRIC = "off-fabric"
    UNPROVEN = "unproven"
    SKIPPED = "skipped"
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a log must show, for its numbers to count as measured on the fabric that was asked for."""

    fabric: str
    nics: int | None = None
    """NICs a rank must have used; None: not known what was asked for."""
    domain: str | None = None
    """The libfabric domain (interface) asked for; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an execution that fabbench itself started came to its end."""

    status: int | None = None
    """Exit status; None: it was not seen."""
    timed_out: str = ""
    """A sentence, when the watchdog ended it."""
    refused: str = ""
    """A sentence, when fabbench ended it because it was not on the fabric that was asked for."""
    stopped: str = ""
    """A sentence, when fabbench or the user ended it early."""
    planned_sizes: Collection[int] = ()
    """Sizes that a complete run would have printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One benchmark execution, read and judged: an element of `logs` in the public contract."""

    source: str
    benchmark: str | None
    case: str | None
    outcome: Outcome
    reason: str | None
    facts: Facts
    findings: Sequence[Finding] = ()
    damaged: Sequence[Damaged] = ()
    points: Sequence[Point] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    """Fact → the line that stated it; not part of the contract."""

    def samples(self) -> Iterator[Sample]:
        """Every measured number, in the order it was printed."""
        for point in self.points:
            for metric, value in zip(point.metrics, point.values, strict=True):
                yield Sample(self.case, point.size, point.labels, metric, value)


# ---------------------------------------------------------------- planned


class Shape(StrEnum):
    """How the commands of a step belong together."""

    MPI = "mpi"
    """One command line that is spread over ranks."""
    PAIR = "pair"
    """A server, and a client that starts once the server is ready."""
    EACH = "each"
    """The same command on every host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to start. `env` is added to what the machine has; `unset` is taken away from it."""

    argv: tuple[str, ...]
    role: str = ""
    """`server` or `client` in a pair."""
    host: int = 0
    """Index into the allocation's hosts: names are bound when it runs."""
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    ranks: int = 1
    """Of a step of shape `MPI`: how many ranks run it. Several commands share the ranks in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Commands that run together. `label` says what is measured; `facts` go into the begin marker.

    In argv and env, ``{folder}`` stands for a folder on each host that is there for this step alone. In the
    argv of a pair, ``{port}`` and ``{server}`` stand for a free port and the server's address.
    """

    id: str
    label: str
    shape: Shape
    commands: tuple[Command, ...]
    timeout_s: float
    silence_s: float | None = None
    """After how many seconds without a word it counts as stuck; None: only `timeout_s` ends it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name → text of what must lie in ``{folder}`` on every host."""
    facts: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One column of a comparison."""

    label: str
    fabric: str
    variant: str = ""

    def __str__(self) -> str:
        """Give the label, and the fabric where the label does not name it."""
        return f"{self.label} ({self.fabric})" if self.label == self.variant else self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One repeat of one arm: what becomes one execution, one `exec/` directory and one judged log."""

    id: str
    """`NNN-ARM-rR`: order, arm, repeat."""
    arm: Arm
    repeat: int
    steps: tuple[Step, ...]
    proof: Proof
    planned_sizes: tuple[int, ...]
    together: bool = False
    """Whether all steps run at the same time; the log holds them one after another all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that will be run, in order. Arms interleave as trials (A B B A)."""

    benchmark: str
    target: str
    arms: tuple[Arm, ...]
    trials: tuple[Trial, ...]
    hosts: int = 1
