"""What was printed, and how it was judged: lines, markers, points, records, judged logs.

fabbench writes marker lines around each step, and a tag before each line of a pair: ``#@fabbench
begin 000-shm-r1/64 benchmark=pingpong size=64`` … ``#@fabbench end 000-shm-r1/64 0``, and
``[fabbench:server] text``. With them one log can hold several steps, sides and repeats, and be read
again. ``#@fabbench nics 000-tcp-r1 …``, about an execution, is described in
`fabbench.counters.execution_counters`.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from fabbench.model.errors import Exit
from fabbench.model.mappings import Names
from fabbench.model.patterns import lazy
from fabbench.model.values import frozen

# What distinguishes points of one size (`placement`, `dtype`, …); shared
Labels: TypeAlias = Mapping[str, str]

# What a log states about its run: `ranks`, `network`, `transport`, …
Facts: TypeAlias = Mapping[str, str | int]
MutableFacts: TypeAlias = dict[str, str | int]  # While a reader collects them


def fact_text(facts: Facts, name: str, unknown: str = "") -> str:
    """Return a fact as text; `unknown` where it is not stated."""
    return str(facts.get(name, unknown))


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number measures. `unit` is its base unit."""

    name: str
    unit: str

    @property
    def lower_is_better(self) -> bool:
        """Whether it is a time, or counts errors."""
        return self.unit in {"s", "count"}


_UNITS = {
    "s": ("time", "cpu_time", "latency"),
    "B/s": ("algbw", "busbw", "bandwidth"),
    "1/s": ("message_rate",),
    "count": ("wrong", "calls"),
}
METRICS: Mapping[str, Metric] = {
    name: Metric(name, unit) for unit, names in _UNITS.items() for name in names
}
"""Every metric; part of the public contract (docs/formats.md)."""


# ---------------------------------------------------------------- what programs print


class Stream(NamedTuple):
    """What printed a line, according to its launcher's prefix."""

    # The execution it belongs to: a SkyPilot node, a pod, a Modal rank. Empty: not known
    group: str = ""
    rank: str = ""  # The MPI or srun task within that execution. Empty: not known
    side: str = ""  # `server` or `client`, where fabbench itself started both. Empty: not known


NO_STREAM = Stream()


class Line(NamedTuple):
    """One line of output, without its launcher's prefix. `number` counts from 1 in its file."""

    number: int
    text: str
    stream: Stream = NO_STREAM


class Point(NamedTuple):
    """What one printed row reports for one size, in base units.

    A NamedTuple: a log may hold millions.
    """

    size: int
    labels: Labels
    metrics: Names
    values: tuple[float, ...]


class Sample(NamedTuple):
    """One measured number: an element of `samples` in the public contract."""

    case: str | None
    size: int
    labels: Labels
    metric: str
    value: float
    unit: str


class Severity(StrEnum):
    """How much a finding matters."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Finding:
    """Something a log shows that its reader should know."""

    code: str
    severity: Severity
    meaning: str
    line: str = ""  # The line that shows it, as printed (cut after 300 characters)
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.severity}: {self.meaning} {self.advice}"
        return text.rstrip()


class Damaged(NamedTuple):
    """A row that was printed and cannot be read."""

    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class Record:
    """What a parser read of one benchmark execution, not judged yet.

    Grows while the log is read.
    """

    benchmark: str | None
    case: str | None = None
    points: list[Point] = field(default_factory=list)
    facts: MutableFacts = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    # Errors of the benchmark or its launcher, the reason first
    failures: list[str] = field(default_factory=list)
    # What they quote, of those that are no exit record: an exit status of 0 contradicts them
    alarms: list[str] = field(default_factory=list)
    # Those of these that a program may outlive, above its table: the whole table contradicts them
    outlived: list[str] = field(default_factory=list)
    # Codes of causes that lines show and facts contradict: its failures do not tell them either
    rejected: frozenset[str] = frozenset()
    # The first line that says why the program gave up, and the first with words of an error
    first_error: str = ""
    hint: str = ""
    lost: bool = False  # Whether one of them says that a host or the job was lost
    # A sentence, when the benchmark's or the launcher's own time limit ended it
    timed_out: str = ""
    wrong: int = 0  # Failed data checks; any at all is `corrupt`
    # A sentence, when a step used another device or domain than its begin marker states
    off_fabric: str = ""
    # A sentence, when the log itself shows a requested fabric, and data on another one
    lost_fabric: str = ""
    incomplete: str = ""  # A sentence, when the log itself shows that something is missing from it
    # Fact → the line that stated it, for some facts
    evidence: dict[str, str] = field(default_factory=dict)
    # Names of the machines that took part, as far as the log states them
    hosts: frozenset[str] = frozenset()
    # The process (`host:pid`, without blanks) of each rank, as far as the log lists them
    processes: Sequence[str] = ()
    # Ranks whose network no line shows, where lines are joined with ranks
    unshown_ranks: int = 0
    # Names of its GPUs, as far as the log lists them
    gpus: frozenset[str] = frozenset()
    execution: str = ""  # The execution, as fabbench's own markers name it; empty: there are none
    # Whether the benchmark's final line was read; None: this benchmark has none
    finished: bool | None = False
    # Whether its last size was read, which shows the end of a table without a final line
    is_at_end: bool = False
    # The first line below its last row that is neither known nor usual there
    followed: str = ""
    # The exit status that the log states, or another number above 0; None: it states none
    status: int | None = None


# ---------------------------------------------------------------- judged


# The case of a log of debug lines without a benchmark, such as a training job's
NCCL_DEBUG = "nccl-debug"
MPI_DEBUG = "mpi-debug"
FLIGHT_RECORDER = "PyTorch's flight recorder"
"""The fact `report` of its dumps."""

INSPECTOR = "nccl-inspector"
"""Stands for the benchmark of lines of NCCL's inspector, which is none."""


class Outcome(StrEnum):
    """How one execution ended. When several apply, the first in this order."""

    CORRUPT = "corrupt"
    TIMEOUT = "timeout"
    FAILED = "failed"
    TRUNCATED = "truncated"
    OFF_FABRIC = "off-fabric"
    UNPROVEN = "unproven"
    SKIPPED = "skipped"
    # Debug lines of NCCL or MPI and no benchmark: the network is known, nothing was measured
    OBSERVED = "observed"
    OK = "ok"


def status_of(outcomes: Iterable[Outcome], allowed: Collection[Outcome] = ()) -> Exit:
    """Return the exit status for logs: each must be ok, or what a command allows besides."""
    fine = {Outcome.OK, *allowed}
    return Exit.FINE if fine.issuperset(outcomes) else Exit.UNTRUSTED


@frozen
class Proof:
    """What a log must show to count as measured on a fabric, and what is known of its nodes."""

    fabric: str = ""  # Empty: any
    # NICs a rank must have used; 0: any. None: not known what was requested
    nics: int | None = None
    domain: str | None = None  # The requested libfabric domain (interface); None: any
    devices: Names = ()  # The only NICs that ranks may have used; empty: any
    # Of the nodes: an EC2 type or a system of the catalog; empty: not known
    instance_type: str = ""
    nodes: int | None = None  # None: not known


@frozen
class Ending:
    """How an execution that fabbench itself started ended."""

    status: int | None = None  # Exit status; None: it was not seen
    timed_out: str = ""  # A sentence, when the watchdog ended it
    # A sentence, when fabbench ended it because it was not on the requested fabric
    refused: str = ""
    stopped: str = ""  # A sentence, when fabbench or the user ended it early
    # Whether it was stopped because a host or the job was lost, or a disk was full
    lost: bool = False
    planned_sizes: Collection[int] = ()  # Sizes that a complete run would have printed
    neighbors: Sequence[str] = ()  # Where another run of fabbench was, and as whom


Lines: TypeAlias = Generator[str, None, None]
"""Lines as they come; closing it ends what prints them."""
ExecutionLines: TypeAlias = Generator[str, None, Ending]
"""The lines of an execution's log as they come, then how it ended."""


@frozen
class Log:
    """One benchmark execution, read and judged.

    An element of `logs` in the public contract, up to `points`.
    """

    source: str
    benchmark: str | None
    case: str | None
    outcome: Outcome
    reason: str | None
    facts: Facts
    findings: Sequence[Finding] = ()
    damaged: Sequence[Damaged] = ()
    points: Sequence[Point] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)  # Fact → the line that stated it
    # Other outcomes that apply: a truncated log may be off-fabric, too
    also: frozenset[Outcome] = frozenset()
    # Names of the machines that took part, as far as it states them
    hosts: frozenset[str] = frozenset()
    execution: str = ""  # As fabbench's own markers name it; empty: there are none
    proof: Proof | None = field(default=None, compare=False)  # What it was judged against
    # Whether its environment failed: host, job or disk
    lost: bool = field(default=False, compare=False)
    # The program's own first line about an error; empty: it printed none
    said: str = field(default="", compare=False)

    @property
    def status(self) -> Exit:
        """Return the exit status for it where fabbench itself ran it."""
        return Exit.REFUSED if self.lost else status_of([self.outcome])

    @property
    def shows_end(self) -> bool:
        """Whether it shows where its table ends; a run that died may print no more."""
        return self.facts.get("complete") != "unknown"

    @property
    def samples(self) -> Iterator[Sample]:
        """Yield the measured numbers, in the order printed."""
        for size, labels, metrics, values in self.points:
            for metric, value in zip(metrics, values, strict=True):
                yield Sample(self.case, size, labels, metric, value, METRICS[metric].unit)

    @property
    def instance_type(self) -> str:
        """The type of the nodes: stated by the log, or the user, or assumed; empty: not known."""
        stated = fact_text(self.facts, "instance_type")
        given = self.proof.instance_type if self.proof else ""
        return stated or given or self.assumed_type

    @property
    def assumed_type(self) -> str:
        """The only type that has the GPUs and NICs of the log, which states none; else empty."""
        return fact_text(self.facts, "assumed_type")


Logs: TypeAlias = Mapping[str, Sequence[Log]]
"""Configuration → its logs."""
MARKER_SIGN = "#@fabbench "
_MARKER = lazy(r"#@fabbench (?:end (\S+) (\?|-?\d{1,6})|(begin|nics) (\S+)(?: (.*))?)")


class Marker(NamedTuple):
    """One marker line. `execution` is the step's id up to the slash."""

    kind: str  # `begin`, `end` or `nics`
    step: str  # Its id; in a `nics` marker that of the execution
    # What the marker states (`benchmark`, `size`, …); empty in an end marker
    facts: Mapping[str, str]
    status: int | None  # Exit status in an end marker; None: it was not seen

    @property
    def execution(self) -> str:
        """The execution that the step belongs to."""
        return self.step.partition("/")[0]

    @property
    def name(self) -> str:
        """The step, without its execution."""
        return self.step.partition("/")[2] or self.step

    def contradiction(self, fact: str, used: str, side: str) -> str:
        """Return a sentence if a side used something other than the marker states, else "".

        For a server, ``server_FACT`` outranks the fact. Empty `side`: the step is no pair.
        """
        requested = self.facts.get(fact)
        if side == "server":
            requested = self.facts.get(f"server_{fact}") or requested
        if not requested or used == requested:
            return ""
        subject = f"the {side} used" if side else "it was"
        return f"Step {self.name} requested {fact} {requested}, but {subject} {used}."


NO_STEP = Marker(kind="", step="", facts={}, status=None)
"""Stands for the marker where fabbench started nothing: it states no fact."""


def begin_marker(step: str, facts: Facts) -> str:
    """Write the marker line before a step."""
    words = marker_words(facts)
    return f"{MARKER_SIGN}begin {step} {words}".rstrip()


def marker_words(facts: Facts) -> str:
    """Write the facts of a marker as words."""
    import shlex

    words = (f"{key}={value}" for key, value in facts.items())
    return " ".join(map(shlex.quote, words))


def end_marker(step: str, status: int | None) -> str:
    """Write the marker line after a step."""
    shown = "?" if status is None else status
    return f"{MARKER_SIGN}end {step} {shown}"


def own_line(sentence: str) -> str:
    """Write a line that fabbench itself adds to a log."""
    return f"fabbench: {sentence}"


def tag_line(side: str, text: str) -> str:
    """Write a line of one side of a pair."""
    return f"[fabbench:{side}] {text}"


def read_marker(text: str) -> Marker | None:
    """Read a marker line; None for any other line, and for a truncated marker.

    An end marker names the step that ended, and its exit status; `?`: not known. Any other has a
    kind, a step and facts as ``NAME=VALUE``, quoted as for a shell.
    """
    import shlex

    match = _MARKER.fullmatch(text)
    if match is None:
        return None
    ended_step, status, kind, step, words = match.groups()
    if ended_step:  # the step of an end marker
        exit_status = None if status == "?" else int(status)
        return Marker("end", ended_step, facts={}, status=exit_status)
    try:
        settings = shlex.split(words or "")
    except ValueError:
        return None
    facts = (setting.split("=", 1) for setting in settings if "=" in setting)
    return Marker(kind, step, dict(facts), status=None)
