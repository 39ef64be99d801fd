"""The follower of batch jobs, which it submits, waits for, reads and ends; systems are `Job`s."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from fabbench.execution.waiting import moments
from fabbench.launchers import notify
from fabbench.model.errors import MachineError
from fabbench.model.known_messages import Explanation
from fabbench.model.log import Lines

_LOOK_S = 0.5  # Between two looks at a job, at least
_RARELY_S = 10.0  # At most
_SILENT_S = 600  # How long a system that does not answer is waited for
_END_S = 120.0  # How long a cancelled job may take to end


class Phase(Enum):
    """What a job does."""

    UNKNOWN = auto()  # The batch system does not answer
    PENDING = auto()
    RUNS = auto()
    OVER = auto()


class Job(ABC):
    """One job of a batch system. What differs between systems."""

    system: str
    """The name of the system, for messages."""
    start_timeout_s: float | None = None
    """How long it may wait for its nodes; None: forever."""

    @abstractmethod
    def submit(self, document: str) -> None:
        """Submit a document. Raise MachineError if it is rejected."""

    def phase(self) -> Phase:
        """Ask what the job does. A system whose `submit` waits for the start needs not be asked."""
        return Phase.RUNS

    def why_pending(self) -> Explanation | None:
        """Return why it waits, as far as the system says."""
        return None

    def nodes(self) -> str:
        """Return the nodes that it has, as the system writes them; empty: not told."""
        return ""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the lines of its output as they come, to its end.

        Raise MachineError if it ended early. An exception in it ends what the job runs.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Have the system end it. Raise MachineError if it may still exist."""

    @abstractmethod
    def reason(self) -> MachineError:
        """Return why it is over although it has not run to its end."""


@contextmanager
def held(job: Job, document: str) -> Iterator[None]:
    """Submit a job, and wait until it runs; leaving it ends the job.

    Raise MachineError for one that cannot start. One that could not be ended is a note of the
    error.
    """
    try:
        job.submit(document)
        await_start(job)
        yield
    except BaseException as error:
        try:
            _end(job)
        except MachineError as still_exists:
            if isinstance(error, GeneratorExit):  # nobody sees a note of it
                raise
            error.add_note(str(still_exists))
        raise
    _end(job)


def follow(job: Job, document: str) -> Lines:
    """Submit a document as a job, and yield the lines of its output; closing it ends the job."""
    with held(job, document):
        yield from job.lines()


def await_start(job: Job) -> None:
    """Wait until a job runs, and report why it waits. Raise MachineError if it cannot start."""
    started = answered = time.monotonic()  # When the system answered last
    reported = ""
    while (phase := job.phase()) is not Phase.RUNS:
        if phase is Phase.OVER:
            raise job.reason()
        now = time.monotonic()
        if phase is Phase.PENDING:
            answered = now
            reported = _report_waiting(job, now - started, reported)
        if now - answered > _SILENT_S:  # its phase has been UNKNOWN since
            system = job.system
            raise MachineError(f"{system} has not answered for {_SILENT_S} s.")
        time.sleep(_interval_s(now - started))
    if nodes := job.nodes():
        notify(f"{job} runs on {nodes}.")


def _report_waiting(job: Job, waited_s: float, reported: str) -> str:
    """Report why a job waits, unless that is what was `reported` last; return what now is.

    Raise MachineError if waiting is pointless, or took too long.
    """
    why = job.why_pending()
    if why is not None and why.final:
        advice = why.advice
        raise MachineError(why.text, hint=f"{advice} The job was cancelled.")
    limit_s = job.start_timeout_s
    if limit_s is not None and waited_s > limit_s:
        text = why.text if why is not None else ""
        limit = format(limit_s, "g")
        raise MachineError(
            f"The job had not started after {limit} s. {text}",
            hint="It was cancelled. Raise --start-timeout, or request less.",
        )
    sentence = str(why) if why is not None else reported
    if sentence != reported:
        notify(sentence)
    return sentence


def _interval_s(waited_s: float) -> float:
    """Return how long to wait until a job is looked at again: a tenth of what it has waited."""
    return min(max(_LOOK_S, waited_s / 10), _RARELY_S)


def _end(job: Job) -> None:
    """End a job, interrupted or not. Raise MachineError if it may still exist."""
    try:
        job.cancel()
    except KeyboardInterrupt:  # it is ended all the same
        job.cancel()


def await_end(job: Job) -> None:
    """Wait until a job that was cancelled is over. Raise MachineError if that takes long."""
    for _ in moments(_END_S, _LOOK_S):
        if job.phase() is Phase.OVER:
            return
    raise MachineError(f"It was cancelled, and still exists after {_END_S:.0f} s.")
