"""What one stream group has printed since its last record: debug lines, last words, steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fabbench.benchmarks import Reader, benchmark_named
from fabbench.evidence import transport
from fabbench.evidence.first_error import FirstErrors, follows
from fabbench.evidence.known_errors import Kind, Message, finding
from fabbench.evidence.nccl import Evidence
from fabbench.model.log import NCCL_DEBUG, Damaged, Line, Marker, Record
from fabbench.model.mappings import first_of
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_MAX_MESSAGES = 50


_OF_ANY = "The job"
"""The source of a status that stands in messages of launchers, too."""
TIMEOUT_STATUS = 124  # of coreutils' `timeout`, and of fabbench's scripts


@dataclass(slots=True)
class StepEndings:
    """The steps that the next records belong to, and the records that wait for their end."""

    has_markers: bool = False  # Whether there was any marker
    benchmark: str | None = None  # Of the step that began last
    execution: str = ""  # Of the step that began last
    open_step: str = ""  # The step that has started and not ended; empty: none
    held_records: list[Record] = field(default_factory=list)  # Those whose step has not ended
    _is_silent: bool = False  # Whether a step has started, and no record has come since
    # Sentences on how the steps ended; empty: not like this
    _failures: list[str] = field(default_factory=list)
    _timed_out: str = ""
    _incomplete: str = ""

    def begin(self, marker: Marker, benchmark: str | None) -> None:
        """Note that a step begins."""
        self.benchmark = benchmark
        self.open_step = marker.name
        self.execution = marker.execution
        self.has_markers = self._is_silent = True

    def end(self, step: str, status: int | None) -> None:
        """Note that a step (empty: none was open) ended.

        Without a status, that the log does not show how. 0 leaves nothing to note.
        """
        self.open_step = ""
        if status is None and step:
            self._incomplete = self._incomplete or f"The log does not show how step {step} ended."
        elif status:
            program = self.benchmark or "The program"
            self._failures.append(f"{program} exited with status {status} in step {step}.")
        if status == TIMEOUT_STATUS:
            sentence = f"Step {step} timed out (exit status {TIMEOUT_STATUS})."
            self._timed_out = self._timed_out or sentence

    def release_records(self) -> list[Record]:
        """Return the records that were held, with how their steps ended."""
        held = self.held_records
        self.held_records = []
        for record in held:
            self.add_endings_to(record)
        return held

    def add_endings_to(self, record: Record) -> None:
        """Add how its steps ended to a record, whose status is the number of those that failed."""
        self._is_silent = False
        record.execution = record.execution or self.execution
        record.failures += [text for text in self._failures if text not in record.failures]
        record.timed_out = record.timed_out or self._timed_out
        record.incomplete = record.incomplete or self._incomplete
        if self._incomplete or benchmark_named(self.benchmark).joins_steps:
            return  # of an execution of several steps, more may follow: its status is not known
        if self.has_markers:
            record.status = len(self._failures)

    def record_of_silent_step(self) -> list[Record]:
        """Return a record for a step without any output; empty if the step has a record already."""
        if not self._is_silent:
            return []
        record = Record(benchmark=self.benchmark)
        self.add_endings_to(record)
        return [record]


_REAL_NUMBER = lazy(r"\d+\.\d+[a-z]?")
_CELL = lazy(r"-?\d[\d.]*[a-z]?|-?inf|-?nan|N/A")


def _looks_like_row(text: str) -> bool:
    """Return whether a line can be a row of a table: a size, and figures.

    About half of its words are figures, and one of them has decimals.
    """
    words = text.replace("|", " ").split()
    if not words or not words[0].isdecimal():
        return False
    figures = [word for word in words[1:] if _CELL.fullmatch(word)]
    are_half_of_words = 1 + len(figures) > len(words) / 2  # 1: the size
    return are_half_of_words and any(map(_REAL_NUMBER.fullmatch, figures))


def _is_rest_of_head(text: str) -> bool:
    """Return whether a line can be what is left of the head of a table: a comment, or a rule."""
    return text.startswith("#") or not text.strip(" -=*")


def _read_below(record: Record, errors: FirstErrors, *, another: bool) -> None:
    """Take a line below the last row that has the shape of a death as the end of the run.

    An exit status of 0 outranks it, as it does any alarm. Else keep what followed, unless that
    stands above another table, and may be of that.
    """
    if errors.death:
        sentence = f"Below the last row stands: {quoted(errors.death.text)}"
        record.failures = [sentence]
        record.alarms = [sentence]
        record.outlived = []
    elif not another:
        record.followed = errors.followed


@dataclass(slots=True)
class StreamGroup:
    """The state of one stream group (a SkyPilot node, a pod; usually there is just one)."""

    readers: dict[str, Reader | None]
    """By benchmark, in the order to try them. None: no line so far may be of it; not made yet."""
    current: Reader | None = None
    name: str | None = None  # The benchmark of the current reader
    evidence: Evidence = field(default_factory=Evidence)
    messages: list[Message] = field(default_factory=list)
    """Texts that show the end of a run, since the last record."""
    messages_before_read_line: int = 0
    """How many of them stood before the last line that a benchmark read."""
    messages_before_head: int | None = None
    """How many stood before the first line that a benchmark read; None: it has read none."""
    messages_before_status: int | None = None
    """How many stood before the exit status of the open output; None: it has not been read."""
    status: int | None = None  # What it stated, or an exit record of another program
    unread_line: str = ""  # The last line that no benchmark read, since the last one that one did
    rows_without_head: list[Damaged] = field(default_factory=list)
    """Rows with which the text begins: the head of their table is cut off."""
    is_at_top: bool = True
    """Whether nothing but such rows was read."""
    has_measured: bool = False  # Whether any record had rows
    steps: StepEndings = field(default_factory=StepEndings)

    def add_message(self, message: Message, line: str) -> None:
        """Keep a text that shows the end of a run, once; it may be the next line of the last one.

        `line` shows it; empty: an exit status does, and no line has more to tell.
        """
        if line:
            self._read_beside(message, line)
        if self.messages:
            last = self.messages[-1]
            if last.source == message.source and last.takes(message.text):
                return
        if message.is_own and self._has_ended(message.source):
            return
        is_new = all(message.text != kept.text for kept in self.messages)
        if is_new and len(self.messages) < _MAX_MESSAGES:
            self.messages.append(message)

    def _has_ended(self, source: str) -> bool:
        """Return whether a launcher has said that it ends the job: what it kills then follows."""
        return Kind.STATUS in {each.kind for each in self.messages if each.source == source}

    def takes(self, line: str, message: Message | None) -> bool:
        """Add a line to the last message, if that goes on, and it is no `message` of another."""
        if not self.messages:
            return False
        last = self.messages[-1]
        is_of_another = message is not None and message.source not in {last.source, _OF_ANY}
        return not is_of_another and last.takes(line)

    def note_unread(self, line: Line) -> None:
        """Note a line that no benchmark reads: the last one, or a row above all heads."""
        self.unread_line = line.text.strip()
        is_row = _looks_like_row(line.text)
        self.is_at_top = self.is_at_top and (is_row or _is_rest_of_head(line.text))
        if self.is_at_top and is_row:
            self.rows_without_head.append(Damaged(line.number, line.text))

    def _read_beside(self, message: Message, line: str) -> None:
        """Read what the line of a message shows besides the end of a run."""
        errors = self.evidence.errors
        if message.is_report:  # of another program's end: why it ended stands elsewhere
            errors.report(line)
        else:
            errors.gave_up(line)
        self.evidence.read_unclaimed(line)

    def note_read(self) -> None:
        """Note that a benchmark read a line: a message that was being read ends there."""
        self.unread_line = ""
        self.is_at_top = False
        if self.messages_before_head is None:
            self.messages_before_head = len(self.messages)
        self.evidence.errors.went_on()
        if self.messages:
            self.messages[-1].left = 0  # no more lines are of it
            self.messages_before_read_line = len(self.messages)

    def attach_to(self, record: Record, *, another: bool) -> None:
        """Add what was printed around a record to it, and start over.

        `another`: another table begins. mpirun prints errors before output that it holds back:
        those between two tables without closing lines may belong to either, and count for both.
        """
        if not (record.points or self.messages):  # nothing else says how it ended
            self.take_last_words()
        errors = self.evidence.errors
        record.first_error = errors.first() or first_of(record.failures, "")
        record.hint = errors.hint
        errors_shown = self._attach_evidence(record) if self.evidence.is_shown(alone=True) else []
        if record.benchmark is not None:  # the first table takes the rows above all heads
            record.damaged = [*self.rows_without_head, *record.damaged]
            self.rows_without_head = []
        self.has_measured = self.has_measured or bool(record.points)
        self._attach_messages(record, errors_shown)
        if record.points and not (record.failures or record.timed_out):
            _read_below(record, errors, another=another)
        record.status = self.status
        self.status = None
        # The messages of the next record: those between two tables, or behind an exit status.
        of_next: list[Message] = []
        if another and record.finished is None:  # its benchmark has no closing line
            of_next = self.messages[self.messages_before_read_line :]
        if not of_next and self.messages_before_status is not None:
            of_next = self.messages[self.messages_before_status :]
        self.messages = of_next
        self.evidence = Evidence()
        self.messages_before_read_line = 0
        self.messages_before_head = self.messages_before_status = None

    def _attach_evidence(self, record: Record) -> list[str]:
        """Add what the debug lines show to a record; return their errors."""
        errors = transport.errors(self.evidence, measured=bool(record.points))
        listed = record.facts.get("hosts")
        hosts = listed if isinstance(listed, int) else 0  # 0: not known
        program = f"{record.benchmark} {record.case}"
        record.findings += transport.transport_findings(self.evidence, hosts)
        record.rejected = transport.rejected_codes(self.evidence)
        if transport.is_of_others(self.evidence, record):  # of another job: it proves nothing here
            record.findings.append(finding("evidence-of-others"))
            return errors
        facts = transport.transport_facts(self.evidence, hosts, program)
        record.facts = {**facts, **record.facts}
        self._count_shown_ranks(record)
        if record.case == NCCL_DEBUG and self.evidence.jobs:
            record.facts["communicator"] = next(iter(self.evidence.jobs))
        record.lost_fabric = transport.lost_fabric(self.evidence, facts)
        for name, quote in transport.quoted_lines(self.evidence, facts, program).items():
            stated = record.facts.get(name)
            # A benchmark's own statement counts more: where it differs, the line is no evidence.
            if stated == facts.get(name, stated):
                record.evidence[name] = quote
        return errors

    def _count_shown_ranks(self, record: Record) -> None:
        """Add of how many ranks of a benchmark the debug lines say which network they use."""
        if record.benchmark is None or not self.evidence.networks:
            return
        joined = transport.joined_ranks(self.evidence, record)
        ranks = len(record.processes)
        if joined is None or ranks != record.facts["ranks"]:  # the log does not list every rank
            record.facts["evidence_of"] = "unlisted processes"
            return
        record.facts["evidence_of"] = f"{joined} of {ranks} ranks"
        record.unshown_ranks = ranks - joined
        if joined < ranks:
            record.findings.append(finding("evidence-of-some", joined=joined, ranks=ranks))

    def _attach_messages(self, record: Record, errors: Sequence[str]) -> None:
        """Add the texts that show the end of the run to a record, and errors of debug lines.

        Its failures, the reason first: what killed it, errors, the rest by kind. A time limit is
        none of them.
        """
        # All of them, where no exit status was read.
        of_record = self.messages[: self.messages_before_status]
        counted = [message for message in of_record if self._shows_end(message)]
        counted.sort(key=lambda message: message.kind)
        killed = [message.sentence for message in counted if message.kind is Kind.KILLED]
        rest = [message.sentence for message in counted if message.kind > Kind.KILLED]
        timeouts = [message.sentence for message in counted if message.kind is Kind.TIMEOUT]
        record.lost = any(message.lost for message in counted)
        reported = [*killed, *errors, *record.failures, *rest]
        # What follows from the end of another process says less than how that one ended, and a
        # status, which has no source, least.
        reported.sort(key=follows)
        statuses = {message.sentence for message in counted if not message.source}
        reported.sort(key=statuses.__contains__)
        record.failures = reported
        record.alarms = [quoted(each.text) for each in counted if not each.is_report]
        above = of_record[: self.messages_before_head]
        record.outlived = [quoted(each.text) for each in above if each.may_be_outlived]
        if timeouts and not record.timed_out:
            record.timed_out = timeouts[0]

    def _shows_end(self, message: Message) -> bool:
        # What a shell cannot start is no end of a benchmark that has measured.
        if message.kind is Kind.SHELL:
            return not self.has_measured
        has_no_table = self.messages_before_head is None
        may_go_on = message.may_be_outlived and has_no_table
        return not (may_go_on and self.evidence.errors.is_outlived)

    def take_last_words(self) -> None:
        """Take what a program said of its end, if the text ends with it, as the end of a run."""
        errors = self.evidence.errors
        if errors.is_last():
            last_words = errors.first() or errors.hint
            self.messages.append(Message("The program", Kind.DIED, last_words))

    def is_over(self) -> bool:
        """Return whether what was printed shows the end of a run."""
        return any(map(self._shows_end, self.messages))
