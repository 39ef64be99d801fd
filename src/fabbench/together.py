"""Runs pairs of a server and a client: one, or several at once. The log holds them one after another.

Lines of each pair are kept until its turn comes; those of the first pair that has not ended are given as they
come. So a log of pairs that ran at the same time is read like any other.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

from fabbench import markers
from fabbench.errors import MachineError
from fabbench.filling import filled
from fabbench.model import Step
from fabbench.session import Output, Program, Session, TimedOutError

OpenSession: TypeAlias = Callable[[Step], AbstractContextManager[Session]]
"""Makes the session of a step."""

PARTNER_S = 5.0
"""How long one side of a pair may run on when the other has ended."""
_PORTS_TRIED = 5
_PORT_TAKEN = "Address already in use"
_NAMED = 3
"""Steps that are named one by one."""


class _Pair:
    """A server and a client, while they run."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.texts: list[str] = []
        """Lines whose turn has not come."""
        self.status: int | None = None
        """The exit status of the side that failed first; 0: both ended well; None: it was ended."""
        self.server, self.client = sorted(step.commands, key=lambda command: command.role != "server")
        self.known: Mapping[str, str] = {}
        self.port = 0
        self.programs: list[Program] = []
        self.listening = False
        self.partner_deadline: float | None = None
        self._ended: list[int] = []

    @property
    def over(self) -> bool:
        """Whether both sides have ended, and everything that they printed is here."""
        return len(self.programs) == 2 == len(self._ended)

    @property
    def failed(self) -> int | None:
        """Give the exit status of the side that failed first."""
        return next((status for status in self._ended if status), None)

    def running(self) -> list[Program]:
        """Give the sides that have not ended."""
        return [program for program in self.programs if program.status is None]

    def take(self, output: Output) -> None:
        """Keep a line, with the side that printed it; or note that a side has ended."""
        program, text = output
        if text is not None:
            self.texts.append(markers.tag(program.name, text) if program is not None else text)
        elif program is not None and program.status is not None:
            self._ended.append(program.status)
            self.partner_deadline = time.monotonic() + PARTNER_S
            if self.over:
                self.status = self.failed or 0


class Pairs:
    """One run of the pairs of some steps, all at the same time. The first that fails ends them all."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.status: int | None = None
        """Of the pair that failed first; 0: all ended well; None: ended by the watchdog."""
        self.timed_out = ""
        self._steps = steps
        self._pairs: list[_Pair] = []
        self._turn = 0
        """Which pair's lines are given."""
        self._begun = False
        self._timeout_s = max(step.timeout_s for step in steps)

    def lines(self, open_session: OpenSession) -> Generator[str, None, None]:
        """Run the pairs, with other ports as long as somebody else takes one that was free."""
        files = {name: text for step in self._steps for name, text in step.files.items()}
        for _ in range(_PORTS_TRIED):
            self._pairs = [_Pair(step) for step in self._steps]
            yield from self._begin()
            with open_session(replace(self._steps[0], files=files)) as session:
                deadline = time.monotonic() + self._timeout_s
                self._start_servers(session)
                early = self._until_ready(session, deadline)
                if self._port_taken(early):
                    continue
                self._take(early)
                yield from self._run(session, deadline)
                yield from self._rest()
                return
        raise MachineError(
            f"No free TCP port was found for {self._steps[0].label} in {_PORTS_TRIED} attempts.",
            hint="Something on this machine takes every port as soon as it is free.",
        )

    # ------------------------------------------------------------ servers

    def _start_servers(self, session: Session) -> None:
        """Start all servers, each with a port of its own."""
        given: set[tuple[int, int]] = set()
        for pair in self._pairs:
            host = pair.server.host
            pair.port = _fresh_port(session, host, given)
            pair.known = {"{port}": str(pair.port), "{server}": session.address(host)}
            pair.programs.append(session.exec(filled(pair.server, pair.known, session.folder)))

    def _until_ready(self, session: Session, deadline: float) -> list[Output]:
        """Wait until all servers listen, or one has ended, or their time is up."""

        def ready() -> bool:
            if any(pair.programs[0].status is not None for pair in self._pairs):
                return True
            for pair in self._pairs:
                pair.listening = pair.listening or session.listens(pair.programs[0], pair.port)
            return all(pair.listening for pair in self._pairs)

        early: list[Output] = []
        try:
            early.extend(session.lines(until=ready, deadline=deadline))
        except TimedOutError:
            late = [pair for pair in self._pairs if not pair.listening]
            self._time_out(late, f"the server{'s were' if len(late) > 1 else ' was'} not ready")
            early += session.stop([program for pair in self._pairs for program in pair.running()])
        return early

    def _port_taken(self, early: Iterable[Output]) -> bool:
        return any(
            program is not None and program.status is not None and _PORT_TAKEN in (text or "")
            for program, text in early
        )

    # ------------------------------------------------------------ both sides

    def _run(self, session: Session, deadline: float) -> Generator[str, None, None]:
        """Start the clients of servers that are ready, and follow all to their ends."""
        yield from self._given()
        if self.timed_out:
            return
        if early := next((pair for pair in self._pairs if pair.programs[0].status is not None), None):
            self.status = early.status = early.programs[0].status or 1
            self._take(session.stop(self._running()))
            return
        for pair in self._pairs:
            pair.programs.append(session.exec(filled(pair.client, pair.known, session.folder)))
        while running := [pair for pair in self._pairs if not pair.over]:
            partners = [pair.partner_deadline for pair in running if pair.partner_deadline is not None]
            try:
                # Only the end of a program may leave the loop: other lines would be lost with it.
                for output in session.lines(deadline=min([deadline, *partners])):
                    self._take((output,))
                    yield from self._given()
                    if output.text is None:
                        break
                else:
                    break
            except TimedOutError as late:
                self._late(session, late, deadline)
                return
            if any(pair.over and pair.status for pair in self._pairs):
                break
        self._end(session)

    def _late(self, session: Session, late: TimedOutError, deadline: float) -> None:
        """End everything: a side has failed and its partner waits in vain, or the time is up."""
        failed = next((pair for pair in self._pairs if pair.failed), None)
        if failed is None:
            now = time.monotonic()
            alone = [
                pair for pair in self._pairs if not pair.over and (pair.partner_deadline or deadline) <= now
            ]
            pairs = alone or [pair for pair in self._pairs if not pair.over]
            sides = dict.fromkeys(program.name for pair in pairs for program in pair.running())
            self._time_out(pairs, f"{' and '.join(sides)}: {late}")
        self._end(session)

    def _end(self, session: Session) -> None:
        """End what still runs, and say how it all ended."""
        failed = next((pair for pair in self._pairs if pair.failed), None)
        if failed is not None:
            self.status = failed.failed
        elif not self.timed_out:
            self.status = 0
        unfinished = [(pair, pair.failed) for pair in self._pairs if pair.running()]
        self._take(session.stop(self._running()))
        for pair, status in unfinished:
            pair.status = status

    def _running(self) -> list[Program]:
        return [program for pair in self._pairs for program in pair.running()]

    def _time_out(self, pairs: Sequence[_Pair], why: str) -> None:
        labels = [pair.step.label for pair in pairs]
        more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
        steps = (
            f"Step {labels[0]} was" if len(labels) == 1 else f"Steps {', '.join(labels[:_NAMED])}{more} were"
        )
        self.timed_out = f"{steps} ended after {self._timeout_s:g} s: {why}."

    # ------------------------------------------------------------ lines in turn

    def _take(self, outputs: Iterable[Output]) -> None:
        """Hand each line to its pair; what is nobody's goes to the pair whose turn it is."""
        for output in outputs:
            pairs = (pair for pair in self._pairs if output.program in pair.programs)
            next(pairs, self._pairs[min(self._turn, len(self._pairs) - 1)]).take(output)

    def _begin(self) -> Iterator[str]:
        """Give the marker before the pair whose turn it is, once."""
        if not self._begun:
            self._begun = True
            step = self._steps[self._turn]
            yield markers.begin(step.id, step.facts)

    def _given(self, *, all_of_them: bool = False) -> Generator[str, None, None]:
        """Give the lines of the pair whose turn it is, and go on to the next as soon as it is over."""
        while self._turn < len(self._pairs):
            pair = self._pairs[self._turn]
            yield from self._begin()
            texts, pair.texts = pair.texts, []
            yield from texts
            if not (pair.over or all_of_them):
                return
            yield markers.end(pair.step.id, pair.status)
            self._turn, self._begun = self._turn + 1, False

    def _rest(self) -> Generator[str, None, None]:
        return self._given(all_of_them=True)


def _fresh_port(session: Session, host: int, given: set[tuple[int, int]]) -> int:
    """Get a port that none of these pairs was given: one where nothing listens yet may be offered again."""
    for _ in range(100):
        port = session.free_port(host)
        if (host, port) not in given:
            given.add((host, port))
            return port
    raise MachineError(f"Host {host} offers the TCP port {port} again and again.")
