"""Runs steps: mpirun, or pairs of a server and a client, one or several at once.

The lines of each pair are held until its turn comes; those of the first pair that has not ended are
yielded as they come. So a log of pairs that ran concurrently reads like any other.
"""

import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import TypeAlias

from fabbench.execution.awake import awake_s
from fabbench.execution.mpirun import mpirun
from fabbench.execution.session import (
    CLOSING_S,
    NOT_READY,
    PARTNER_S,
    PORT_TAKEN,
    PORTS_TRIED,
    RAN_ON,
    TIME_UP,
    FloodedError,
    Output,
    OutputLimit,
    Program,
    Session,
    TimedOutError,
)
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import (
    Ending,
    ExecutionLines,
    Lines,
    begin_marker,
    end_marker,
    own_line,
    tag_line,
)
from fabbench.model.mappings import distinct
from fabbench.model.plan import Execution, Step

OpenSession: TypeAlias = Callable[[Step], AbstractContextManager[Session]]
"""Opens the session of a step."""

_PORTS = range(32768, 61000)
"""Linux's range for outgoing connections, which firewalls between hosts must allow."""
_NAMED = 3  # How many steps are named one by one


class _Pair:
    """A server and a client, while they run."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.texts: list[str] = []  # Lines that are not printed yet
        self.status: int | None = None
        """Of the side that failed first; 0 if both ended well, None if aborted."""
        by_role = sorted(step.commands, key=lambda command: command.role != "server")
        self.server, self.client = by_role
        self.values: Mapping[str, str] = {}  # Placeholder in commands → its value
        self.port = 0  # Where the server listens
        self.programs: list[Program] = []
        self.listening = False
        self.partner_deadline: float | None = None  # When the side that still runs is ended
        self._statuses: list[int] = []  # Statuses, in the order in which the sides ended

    @property
    def over(self) -> bool:
        """Return whether both sides were started and have ended."""
        return len(self.programs) == 2 == len(self._statuses)

    @property
    def failed_status(self) -> int | None:
        """Return the status of the side that failed first; None if none has."""
        return next(filter(None, self._statuses), None)

    @property
    def started_server(self) -> Program:
        """The server, which is started first."""
        return self.programs[0]

    def running(self) -> list[Program]:
        return [program for program in self.programs if program.status is None]

    def take(self, output: Output) -> None:
        """Keep a line, tagged with the side that printed it, or record that a side has ended.

        A line of a debug file belongs to no side, and gets no tag.
        """
        program, text = output
        if text is None:
            if program is not None and program.status is not None:
                self._end_side(program.status)
        elif program is None:
            self.texts.append(text)
        else:
            self.texts.append(tag_line(program.name, text))

    def _end_side(self, status: int) -> None:
        """Record how a side ended, and how long the other may keep running."""
        self._statuses.append(status)
        rest_s = PARTNER_S if self.failed_status else CLOSING_S  # after a failure less
        self.partner_deadline = awake_s() + rest_s
        if self.over:
            self.status = self.failed_status or 0


class Pairs:
    """One run of the pairs of some steps, all concurrently. The first that fails ends them all."""

    def __init__(self, steps: Sequence[Step], limit: OutputLimit) -> None:
        self.status: int | None = None
        """Of the pair that failed first; 0 if all ended well, None if ended by the watchdog."""
        self._limit = limit
        self.timed_out = ""  # Why the watchdog ended it, as a sentence; empty: it did not
        self._steps = steps
        self._pairs: list[_Pair] = []
        self._turn = 0  # The index of the pair whose lines are yielded
        self._timeout_s = max(step.timeout_s for step in steps)

    def lines(self, open_session: OpenSession) -> Lines:
        """Run the pairs; start over as long as another program takes one of their ports first."""
        files: dict[str, str] = {}
        for step in self._steps:
            files |= step.files
        yield _marker_before(self._steps[0])
        for _ in range(PORTS_TRIED):
            self._pairs = [_Pair(step) for step in self._steps]
            # One session for all pairs, with the files of all
            with open_session(replace(self._steps[0], files=files)) as session:
                deadline = awake_s() + self._timeout_s
                self._start_servers(session)
                early = self._await_servers(session, deadline)
                if any(map(_is_port_taken, early)):  # leaving the session ends all servers
                    continue
                self._hand_to_pairs(early)
                yield from self._run_clients(session, deadline)
                yield from self._ready_lines(flush=True)
                return
        raise MachineError(
            f"No free TCP port was found for {self._steps[0].label} in {PORTS_TRIED} attempts.",
            hint="Another program on this machine takes every port as soon as it is free.",
        )

    def _start_servers(self, session: Session) -> None:
        ports = random_ports(len(self._pairs))
        for pair, port in zip(self._pairs, ports, strict=True):
            pair.port = port
            # Both are the address: only a script knows its server by a name, and resolves it.
            address = session.address(pair.server.host)
            pair.values = {"{port}": str(port), "{server}": address, "{address}": address}
            server = pair.server.filled(session.folder, pair.values)
            pair.programs.append(session.exec(server))

    def _await_servers(self, session: Session, deadline: float) -> list[Output]:
        """Wait until every server listens, or one has ended; return what came meanwhile."""

        def ready() -> bool:
            # A server that has ended will never listen: do not wait for the others.
            if any(pair.started_server.status is not None for pair in self._pairs):
                return True
            for pair in self._pairs:
                if not pair.listening:
                    pair.listening = session.listens(pair.started_server, pair.port)
            return all(pair.listening for pair in self._pairs)

        early: list[Output] = []
        try:
            for output in session.lines(until=ready, deadline=deadline):
                early.append(output)
                self._count_line(output)
        except FloodedError as flood:
            self._end_late(session, flood, deadline)
        except TimedOutError:
            # Which sides were late is known here: the servers that do not listen yet.
            late = [pair for pair in self._pairs if not pair.listening]
            self._record_timeout(
                late, NOT_READY if len(late) == 1 else "the servers were not ready"
            )
            early += session.stop(self._running())
        return early

    def _run_clients(self, session: Session, deadline: float) -> Lines:
        """Start the clients once the servers are ready, and follow all programs until they end."""
        yield from self._ready_lines()
        if self.timed_out:
            return
        for pair in self._pairs:
            server_status = pair.started_server.status
            if server_status is not None:
                # It ended before its client came: that is a failure even with status 0.
                self.status = pair.status = server_status or 1
                self._hand_to_pairs(session.stop(self._running()))
                return
        for pair in self._pairs:
            client = pair.client.filled(session.folder, pair.values)
            pair.programs.append(session.exec(client))
        yield from self._follow_until_end(session, deadline)

    def _follow_until_end(self, session: Session, deadline: float) -> Lines:
        """Follow all programs until they end, or a pair fails; then end what still runs."""
        while running := [pair for pair in self._pairs if not pair.over]:
            partners = [pair.partner_deadline for pair in running if pair.partner_deadline]
            try:
                earliest = min([deadline, *partners])
                one_ended = yield from self._until_one_ends(session, earliest)
            except TimedOutError as error:
                self._end_late(session, error, deadline)
                return
            one_failed = any(pair.over and pair.status for pair in self._pairs)
            if not one_ended or one_failed:  # no program is left, or the others run for nothing
                break
        self._end_programs(session)

    def _until_one_ends(self, session: Session, deadline: float) -> Generator[str, None, bool]:
        """Yield lines until a program ends, and return whether one did.

        It must not be left at any other line: output would be lost.
        """
        for output in session.lines(deadline=deadline):
            self._count_line(output)
            self._hand_to_pairs((output,))
            yield from self._ready_lines()
            if output.text is None:
                return True
        return False

    def _end_late(self, session: Session, error: TimedOutError, deadline: float) -> None:
        """End everything: a side is late or prints too much, or waits for one that has ended."""
        # Where a side has failed, its status is the result: others may be late because of it.
        if not any(pair.failed_status for pair in self._pairs):
            self._record_late_sides(error, deadline)
        self._end_programs(session)
        if isinstance(error, FloodedError) and self.timed_out:
            # The log itself says why it ends: what was printed after is not kept.
            self._current.texts.append(own_line(self.timed_out))

    def _record_late_sides(self, error: TimedOutError, deadline: float) -> None:
        """Record which sides were late: if there are any, those that outlasted their partners.

        `deadline`: that of the step, in seconds of `awake_s`.
        """
        now = awake_s()
        pairs = [pair for pair in self._pairs if not pair.over]
        why = str(error)
        # Before the deadline of the step, only that of a side whose partner has ended can be over.
        if now < deadline and not isinstance(error, FloodedError):
            alone = [pair for pair in pairs if (pair.partner_deadline or deadline) <= now]
            if alone:
                pairs = alone
                why = RAN_ON
        sides = distinct(program.name for pair in pairs for program in pair.running())
        names = " and ".join(sides)
        self._record_timeout(pairs, f"{names}: {why}", in_full=why == TIME_UP)

    def _end_programs(self, session: Session) -> None:
        """End what still runs, and record the result of all, and of each pair ended now."""
        # The status of what failed first; of programs that are stopped here there is none.
        failed_status = next(filter(None, (pair.failed_status for pair in self._pairs)), None)
        if failed_status is not None:
            self.status = failed_status
        elif not self.timed_out:
            self.status = 0
        unfinished = [(pair, pair.failed_status) for pair in self._pairs if pair.running()]
        self._hand_to_pairs(session.stop(self._running()))
        for pair, status in unfinished:
            # As before: the status of a side that was ended just now is no failure of its own.
            pair.status = status

    def _running(self) -> list[Program]:
        return [program for pair in self._pairs for program in pair.running()]

    def _record_timeout(self, pairs: Sequence[_Pair], why: str, *, in_full: bool = True) -> None:
        """Record why pairs were ended; with the time, if they had it `in_full`."""
        labels = [pair.step.label for pair in pairs]
        named = ", ".join(labels[:_NAMED])
        more = len(labels) - _NAMED
        if more > 0:
            named += f" and {more} more"
        steps = f"Step {named} was" if len(labels) == 1 else f"Steps {named} were"
        after = f" after {self._timeout_s:g} s" if in_full else ""
        self.timed_out = f"{steps} aborted{after}: {why}."

    def _count_line(self, output: Output) -> None:
        if output.text is not None:
            self._limit.count_or_flood(output.text)

    def _hand_to_pairs(self, outputs: Iterable[Output]) -> None:
        """Hand each line to its pair; lines that belong to no pair go to the current one."""
        for output in outputs:
            pairs = (pair for pair in self._pairs if output.program in pair.programs)
            next(pairs, self._current).take(output)

    @property
    def _current(self) -> _Pair:
        """The pair that runs now; after the end, the last one."""
        return self._pairs[min(self._turn, len(self._pairs) - 1)]

    def _ready_lines(self, *, flush: bool = False) -> Lines:
        """Yield the lines of the current pair, and move on to the next as soon as it is over.

        With `flush`, at the end, also those of pairs that are not over: they were aborted.
        """
        while self._turn < len(self._pairs):
            pair = self._pairs[self._turn]
            texts = pair.texts
            pair.texts = []
            yield from texts
            if not (pair.over or flush):
                return
            yield end_marker(pair.step.id, pair.status)
            self._turn += 1
            if self._turn < len(self._steps):
                yield _marker_before(self._steps[self._turn])


def _is_port_taken(output: Output) -> bool:
    """Return whether it is the message of a program that has ended as its port was taken."""
    program, text = output
    ended = program is not None and program.status is not None
    return ended and text is not None and PORT_TAKEN in text


def _marker_before(step: Step) -> str:
    return begin_marker(step.id, step.facts)


def random_ports(number: int) -> list[int]:
    """Return different TCP ports: if one is taken, the server reports it."""
    return random.SystemRandom().sample(_PORTS, number)


def run_steps(open_session: OpenSession, execution: Execution) -> ExecutionLines:
    """Run the steps of an execution one after another until one fails, or all at once.

    Yield the lines of its log: markers around each step, and the lines of a pair tagged with their
    side. Return how it ended.
    """
    limit = OutputLimit()
    groups = [execution.steps] if execution.together else [(step,) for step in execution.steps]
    for steps in groups:
        run = _runner_of(steps, limit)
        with closing(run.lines(open_session)) as lines:
            yield from lines
        if run.timed_out or run.status:
            return Ending(
                status=run.status, timed_out=run.timed_out, planned_sizes=execution.planned_sizes
            )
    return Ending(status=0, planned_sizes=execution.planned_sizes)


def _runner_of(steps: Sequence[Step], limit: OutputLimit) -> "Pairs | _Mpi":
    if all(step.pair for step in steps):
        return Pairs(steps, limit)
    if len(steps) > 1:
        raise RequestError("Only pairs can run concurrently here.")
    return _Mpi(steps[0], limit)


class _Mpi:
    """One run of a step whose ranks mpirun starts."""

    def __init__(self, step: Step, limit: OutputLimit) -> None:
        self.status: int | None = None  # The exit status of mpirun; None if ended by the watchdog
        self.timed_out = ""  # Why the watchdog ended it, as a sentence; empty: it did not
        self._step = step
        self._limit = limit

    def lines(self, open_session: OpenSession) -> Lines:
        yield _marker_before(self._step)
        yield from self._output_lines(open_session)
        yield end_marker(self._step.id, self.status)

    def _output_lines(self, open_session: OpenSession) -> Lines:
        step = self._step
        with open_session(step) as session:
            command = mpirun(step, session.mpi_hosts())
            launched = session.exec(command.filled(session.folder))
            deadline = awake_s() + step.timeout_s
            try:
                for output in session.lines(deadline=deadline, silence_s=step.silence_s):
                    if output.text is not None:
                        self._limit.count_or_flood(output.text)
                        yield output.text
            except TimedOutError as error:
                self.timed_out = f"{step.label} was aborted: {error}."
                last = session.stop([launched])
                yield from (output.text for output in last if output.text is not None)
                if isinstance(error, FloodedError):
                    # The log itself says why it ends: what was printed after is not kept.
                    yield own_line(self.timed_out)
                return
            self.status = launched.status
