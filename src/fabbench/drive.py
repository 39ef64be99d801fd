"""Executes the steps of a trial over sessions: the lines of its log, as they come."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Protocol, TypeAlias

from fabbench import markers
from fabbench.errors import MachineError, RequestError
from fabbench.model import Command, Ending, Shape, Step, Trial
from fabbench.mpi import mpirun
from fabbench.session import Output, Program, Session, TimedOutError

PARTNER_S = 5.0
"""How long one side of a pair may run on when the other has ended."""
_PORTS_TRIED = 5
_PORT_TAKEN = "Address already in use"

OpenSession: TypeAlias = Callable[[Step], AbstractContextManager[Session]]
"""Makes the session of a step."""


class _Run(Protocol):
    """One run of a step."""

    status: int | None
    timed_out: str

    def lines(self, open_session: OpenSession) -> Generator[str, None, None]:
        """Run it: its lines as they come."""


def drive(open_session: OpenSession, trial: Trial) -> Generator[str, None, Ending]:
    """Run the steps of a trial one after another, until one of them fails; or all at once.

    Gives the lines of its log: markers around each step, and the lines of a pair with their side.
    """
    for step in trial.steps:
        run = _run(step)
        yield markers.begin(step.id, step.facts)
        with closing(run.lines(open_session)) as lines:
            yield from lines
        yield markers.end(step.id, run.status)
        if run.timed_out or run.status:
            return Ending(status=run.status, timed_out=run.timed_out, planned_sizes=trial.planned_sizes)
    return Ending(status=0, planned_sizes=trial.planned_sizes)


def _run(step: Step) -> "_Run":
    if step.shape is Shape.PAIR:
        return _Pair(step)
    if step.shape is Shape.MPI:
        return _Mpi(step)
    raise RequestError(f"Steps of shape {step.shape} cannot be run here.")


def _filled(command: Command, known: Mapping[str, str], folder: str) -> Command:
    """Fill in what is known only now."""
    argv = tuple(known.get(word, word).replace("{folder}", folder) for word in command.argv)
    env = {name: value.replace("{folder}", folder) for name, value in command.env.items()}
    return replace(command, argv=argv, env=env)


class _Mpi:
    """One run of ranks on all hosts."""

    def __init__(self, step: Step) -> None:
        self.status: int | None = None
        """The exit status of mpirun; None: ended by the watchdog."""
        self.timed_out = ""
        self._step = step

    def lines(self, open_session: OpenSession) -> Generator[str, None, None]:
        """Run mpirun, and follow it and the debug files of the ranks."""
        step = self._step
        with open_session(step) as session:
            filled = tuple(_filled(command, {}, session.folder) for command in step.commands)
            launched = session.exec(mpirun(replace(step, commands=filled), session.spread()))
            deadline = time.monotonic() + step.timeout_s
            try:
                for output in session.lines(deadline=deadline, silence_s=step.silence_s):
                    if output.text is not None:
                        yield output.text
            except TimedOutError as late:
                self.timed_out = f"{step.label} was ended: {late}."
                yield from (output.text for output in session.stop([launched]) if output.text is not None)
                return
            self.status = launched.status


class _Pair:
    """One run of a server and a client."""

    def __init__(self, step: Step) -> None:
        self.status: int | None = None
        """The exit status of the side that failed first; 0: both ended well; None: ended by the watchdog."""
        self.timed_out = ""
        self._ended: list[int] = []
        self._step = step
        self._server, self._client = sorted(step.commands, key=lambda command: command.role != "server")

    def lines(self, open_session: OpenSession) -> Generator[str, None, None]:
        """Run the pair, with another port as long as somebody else takes the one that was free."""
        for _ in range(_PORTS_TRIED):
            with open_session(self._step) as session:
                deadline = time.monotonic() + self._step.timeout_s
                port = session.free_port(self._server.host)
                known = {"{port}": str(port), "{server}": session.address(self._server.host)}
                server = session.exec(_filled(self._server, known, session.folder))
                early = self._until_ready(session, server, port, deadline)
                taken = any(_PORT_TAKEN in (output.text or "") for output in early)
                if server.status is not None and taken:
                    continue
                yield from self._follow(early)
                yield from self._both(session, server, known, deadline)
                return
        raise MachineError(
            f"No free TCP port was found for {self._server.argv[0]} in {_PORTS_TRIED} attempts.",
            hint="Something on this machine takes every port as soon as it is free.",
        )

    def _until_ready(self, session: Session, server: Program, port: int, deadline: float) -> list[Output]:
        """Wait until the server listens, or has ended, or its time is up."""

        def ready() -> bool:
            return server.status is not None or session.listens(server, port)

        early: list[Output] = []
        try:
            early.extend(session.lines(until=ready, deadline=deadline))
        except TimedOutError:
            self._time_out("the server was not ready")
            early += session.stop([server])
        return early

    def _both(
        self, session: Session, server: Program, known: Mapping[str, str], deadline: float
    ) -> Generator[str, None, None]:
        """Start the client of a server that is ready, and follow both to their ends."""
        if self.timed_out:
            return
        if server.status is not None:
            self.status = server.status or 1
            return
        client = session.exec(_filled(self._client, known, session.folder))
        sides = (server, client)
        try:
            for output in session.lines(deadline=deadline):
                yield from self._follow((output,))
                if output.text is None:
                    break
            partner_deadline = min(deadline, time.monotonic() + PARTNER_S)
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

    def _follow(self, outputs: Iterable[Output]) -> Generator[str, None, None]:
        """Give the lines with their side, and note who has ended."""
        for program, text in outputs:
            if text is not None:
                yield markers.tag(program.name, text) if program is not None else text
            elif program is not None and program.status is not None:
                self._ended.append(program.status)

    def _failed(self) -> int | None:
        """Give the exit status of the side that failed first."""
        return next((status for status in self._ended if status), None)

    def _time_out(self, why: str) -> None:
        self.timed_out = f"Step {self._step.label} was ended after {self._step.timeout_s:g} s: {why}."
