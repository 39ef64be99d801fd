"""What one stream group has printed since its last record: debug lines, texts that end a run, steps."""

from dataclasses import dataclass, field

from fabbench.benchmarks import Reader
from fabbench.evidence import transport
from fabbench.evidence.fatal import Kind, Message
from fabbench.evidence.nccl import Evidence
from fabbench.logs.step_endings import StepEndings
from fabbench.model.log import NCCL_DEBUG, Record

_MAX_MESSAGES = 50


@dataclass(slots=True)
class StreamGroup:
    """The state of one stream group (a SkyPilot node, a pod; usually there is just one)."""

    readers: dict[str, Reader | None]
    """By benchmark. None: no line so far may be from it, and its reader has not been made."""
    current: Reader | None = None
    evidence: Evidence = field(default_factory=Evidence)
    messages: list[Message] = field(default_factory=list)
    """Texts that show the end of a run, since the last record."""
    claimed: int = 0
    """How many of them stood before the last line that a benchmark read."""
    ended: int | None = None
    """How many of them stood before the exit status of the open output; None: it has not been read."""
    measured: bool = False
    """Whether any record had rows."""
    steps: StepEndings = field(default_factory=StepEndings)
    execution: str = ""
    """The execution of the last begin marker."""

    @property
    def name(self) -> str | None:
        """The benchmark of the current reader."""
        if self.current is None:
            return None
        return next((name for name, reader in self.readers.items() if reader is self.current), None)

    def add(self, message: Message) -> None:
        """Keep a text that shows the end of a run, once. It may be the next line of the last one."""
        if self.messages and self.messages[-1].source == message.source and self.messages[-1].takes(message.text):
            return
        if len(self.messages) < _MAX_MESSAGES and all(message.text != known.text for known in self.messages):
            self.messages.append(message)

    def claim(self) -> None:
        """Note that a benchmark read a line: a message that was being read ends there."""
        if self.messages:
            self.messages[-1].left, self.claimed = 0, len(self.messages)

    def attach(self, record: Record, *, another: bool = False) -> None:
        """Add what was printed around a record to it, and start over.

        `another`: another table begins. mpirun prints errors before output that it holds back: those between
        two tables without closing lines may belong to either, and count for both.
        """
        listed = record.facts.get("hosts")
        hosts = listed if isinstance(listed, int) else 0
        errors: list[str] = []
        if self.evidence.seen:
            facts = transport.transport_facts(self.evidence, hosts)
            record.facts = {**facts, **record.facts}
            if record.case == NCCL_DEBUG and self.evidence.jobs:
                record.facts["communicator"] = next(iter(self.evidence.jobs))
            record.findings += transport.transport_findings(self.evidence, hosts)
            record.lost_fabric = transport.lost_fabric(self.evidence, facts)
            quotes = transport.quoted_lines(self.evidence, facts)
            # A benchmark's own statement counts more, and then the line shows something else.
            record.evidence |= {
                n: q for n, q in quotes.items() if record.facts.get(n) == facts.get(n, record.facts.get(n))
            }
            errors = transport.errors(self.evidence)
        self.measured = self.measured or bool(record.points)
        mine = self.messages[: self.ended]
        told = [message for message in sorted(mine, key=lambda m: m.kind) if self._counts(message)]
        first = [message.sentence for message in told if message.kind is Kind.KILLED]
        rest = [message.sentence for message in told if message.kind > Kind.KILLED]
        record.lost = any(message.lost for message in told)
        record.failures = [*first, *errors, *record.failures, *rest]
        limits = (message.sentence for message in told if message.kind is Kind.TIMEOUT)
        record.timed_out = record.timed_out or next(limits, "")
        kept = self.messages[self.claimed :] if another and record.finished is None else []
        later = self.messages[self.ended :] if self.ended is not None else []
        self.evidence, self.messages, self.claimed, self.ended = Evidence(), kept or later, 0, None

    def _counts(self, message: Message) -> bool:
        return message.kind is not Kind.SHELL or not self.measured

    @property
    def dies(self) -> bool:
        """Whether a run that had begun ended badly."""
        return any(message.kind < Kind.NOT_STARTED for message in self.messages)

    def is_over(self) -> bool:
        """Return whether what was printed shows the end of a run."""
        return any(map(self._counts, self.messages))
