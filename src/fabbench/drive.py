"""Executes steps over a session that can start programs on hosts: the lines of the log, as they come."""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from fabbench import markers
from fabbench.errors import MachineError, RequestError
from fabbench.model import Command, Ending, Shape, Step, Trial
from fabbench.process import Output, Process, TimedOutError

PARTNER_S = 5.0
"""How long one side of a pair may run on when the other has ended."""
_PORTS_TRIED = 5
_PORT_TAKEN = "Address already in use"


class Session(Protocol):
    """Programs on the hosts of an allocation. Leaving its context ends them all."""

    def address(self, host: int) -> str:
        """Give the address at which the other hosts reach a host."""

    def free_port(self, host: int) -> int:
        """Give a TCP port that nothing uses, as it seems."""

    def exec(self, command: Command, words: Sequence[str]) -> Process:
        """Start a command on its host; `words` are its argv with everything filled in."""

    def listens(self, process: Process, port: int) -> bool:
        """Whether this very program is waiting for connections to a TCP port. Connects to nothing."""

    def lines(
        self, *, until: Callable[[], bool] | None = None, deadline: float | None = None
    ) -> Iterator[Output]:
        """Lines and ends of all programs; see `fabbench.process.Processes.lines`."""

    def stop(self, processes: Sequence[Process]) -> Collection[Output]:
        """End programs; gives their last words."""


def drive(
    open_session: Callable[[], AbstractContextManager[Session]], trial: Trial
) -> Generator[str, None, Ending]:
    """Run the steps of a trial one after another, until one of them fails.

    Gives the lines of its log: markers around each step, and the lines of a pair with their side.
    """
    for step in trial.steps:
        if step.shape is not Shape.PAIR:
            raise RequestError(f"Steps of shape {step.shape} cannot be run here.")
        yield markers.begin(step.id, step.facts)
        run = _Pair(step)
        yield from run.lines(open_session)
        yield markers.end(step.id, run.status)
        if run.timed_out or run.status:
            return Ending(status=run.status, timed_out=run.timed_out, planned_sizes=trial.planned_sizes)
    return Ending(status=0, planned_sizes=trial.planned_sizes)


class _Pair:
    """One run of a server and a client."""

    def __init__(self, step: Step) -> None:
        self.status: int | None = None
        """The exit status of the side that failed first; 0: both ended well; None: ended by the watchdog."""
        self.timed_out = ""
        self._ended: list[int] = []
        self._step = step
        self._deadline = time.monotonic() + step.timeout_s
        self._server, self._client = sorted(step.commands, key=lambda command: command.role != "server")

    def lines(self, open_session: Callable[[], AbstractContextManager[Session]]) -> Iterator[str]:
        """Run the pair, with another port as long as somebody else takes the one that was free."""
        for _ in range(_PORTS_TRIED):
            with open_session() as session:
                port = session.free_port(self._server.host)
                server = session.exec(self._server, self._words(self._server, session, port))
                early = self._until_ready(session, server, port)
                taken = any(_PORT_TAKEN in (output.text or "") for output in early)
                if server.status is not None and taken:
                    continue
                yield from self._follow(early)
                yield from self._both(session, server, port)
                return
        raise MachineError(
            f"No free TCP port was found for {self._server.argv[0]} in {_PORTS_TRIED} attempts.",
            hint="Something on this machine takes every port as soon as it is free.",
        )

    def _words(self, command: Command, session: Session, port: int) -> tuple[str, ...]:
        known = {"{port}": str(port), "{server}": session.address(self._server.host)}
        return tuple(known.get(word, word) for word in command.argv)

    def _until_ready(self, session: Session, server: Process, port: int) -> list[Output]:
        """Wait until the server listens, or has ended, or its time is up."""

        def ready() -> bool:
            return server.status is not None or session.listens(server, port)

        early: list[Output] = []
        try:
            early.extend(session.lines(until=ready, deadline=self._deadline))
        except TimedOutError:
            self._time_out("the server was not ready")
            early += session.stop([server])
        return early

    def _both(self, session: Session, server: Process, port: int) -> Iterator[str]:
        """Start the client of a server that is ready, and follow both to their ends."""
        if self.timed_out:
            return
        if server.status is not None:
            self.status = server.status or 1
            return
        client = session.exec(self._client, self._words(self._client, session, port))
        sides = (server, client)
        try:
            for output in session.lines(deadline=self._deadline):
                yield from self._follow((output,))
                if output.text is None:
                    break
            partner_deadline = min(self._deadline, time.monotonic() + PARTNER_S)
            yield from self._follow(session.lines(deadline=partner_deadline))
        except TimedOutError as late:
            self.status = self._failed()
            running = [side for side in sides if side.status is None]
            yield from self._follow(session.stop(running))
            # After a failure the other side waits in vain: that is no time limit of ours.
            if self.status is None:
                self._time_out(f"{' and '.join(side.name for side in running)}: {late}")
            return
        self.status = self._failed() or 0

    def _follow(self, outputs: Iterable[Output]) -> Iterator[str]:
        """Give the lines with their side, and note who has ended."""
        for process, text in outputs:
            if text is not None:
                yield markers.tag(process.name, text)
            elif process.status is not None:
                self._ended.append(process.status)

    def _failed(self) -> int | None:
        """Give the exit status of the side that failed first."""
        return next((status for status in self._ended if status), None)

    def _time_out(self, why: str) -> None:
        self.timed_out = f"Step {self._step.label} was ended after {self._step.timeout_s:g} s: {why}."
