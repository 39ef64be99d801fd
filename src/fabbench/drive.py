"""Executes the steps of a trial over sessions: the lines of its log, as they come."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Protocol

from fabbench import markers
from fabbench.errors import RequestError
from fabbench.filling import filled
from fabbench.model import Ending, Shape, Step, Trial
from fabbench.mpi import mpirun
from fabbench.session import TimedOutError
from fabbench.together import PARTNER_S, OpenSession, Pairs

__all__ = ["PARTNER_S", "OpenSession", "drive"]


class _Run(Protocol):
    """One run of a step, or of several at the same time."""

    status: int | None
    timed_out: str

    def lines(self, open_session: OpenSession) -> Generator[str, None, None]:
        """Run it: its lines as they come, between markers."""


def drive(open_session: OpenSession, trial: Trial) -> Generator[str, None, Ending]:
    """Run the steps of a trial one after another, until one of them fails; or all at once.

    Gives the lines of its log: markers around each step, and the lines of a pair with their side.
    """
    for steps in _groups(trial):
        run = _run(steps)
        with closing(run.lines(open_session)) as lines:
            yield from lines
        if run.timed_out or run.status:
            return Ending(status=run.status, timed_out=run.timed_out, planned_sizes=trial.planned_sizes)
    return Ending(status=0, planned_sizes=trial.planned_sizes)


def _groups(trial: Trial) -> Iterator[Sequence[Step]]:
    """Say which steps run at the same time."""
    if trial.together:
        yield trial.steps
    else:
        yield from ((step,) for step in trial.steps)


def _run(steps: Sequence[Step]) -> _Run:
    shapes = {step.shape for step in steps}
    if shapes == {Shape.PAIR}:
        return Pairs(steps)
    if shapes == {Shape.MPI} and len(steps) == 1:
        return _Mpi(steps[0])
    several = " at the same time" if len(steps) > 1 else ""
    raise RequestError(f"Steps of shape {' and '.join(sorted(shapes))} cannot be run here{several}.")


class _Mpi:
    """One run of ranks on all hosts."""

    def __init__(self, step: Step) -> None:
        self.status: int | None = None
        """The exit status of mpirun; None: ended by the watchdog."""
        self.timed_out = ""
        self._step = step

    def lines(self, open_session: OpenSession) -> Generator[str, None, None]:
        """Run mpirun, and follow it and the debug files of the ranks."""
        yield markers.begin(self._step.id, self._step.facts)
        yield from self._output(open_session)
        yield markers.end(self._step.id, self.status)

    def _output(self, open_session: OpenSession) -> Generator[str, None, None]:
        step = self._step
        with open_session(step) as session:
            launched = session.exec(filled(mpirun(step, session.spread()), {}, session.folder))
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
