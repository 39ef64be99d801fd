"""The executor over sessions on this machine.

A plan in, the lines and endings of its executions out.

``python -m tests.support.executors PLAN`` runs a pickled plan over sessions in a process of its
own.
"""

import pickle
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fabbench.execution.runner import run_steps
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind
from fabbench.model.log import Ending
from fabbench.model.plan import Execution, Plan
from fabbench.remote.session import RemoteSession
from tests.support.here import held

HERE = Host(name="localhost", mpi=Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_4, version="4"))
INVENTORY = Inventory(target="local", hosts=(HERE,))

Enough = Callable[[str], bool]
"""Whether no more is needed of an execution, once a line of it was read."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What an executor did for one execution."""

    execution: str
    lines: list[str]
    ending: Ending | None
    """None: no more was needed of it."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """Runs plans."""

    folder: Path

    def execute(self, plan: Plan, enough: Enough = lambda line: False) -> list[Executed]:
        """Run a plan."""
        return [_followed(each, _over_sessions(each), enough) for each in plan.executions]

    def argv(self, plan: Plan) -> Sequence[str]:
        """Return the command that runs a plan in a process of its own."""
        path = self.folder / "plan"
        path.write_bytes(pickle.dumps(plan))
        return (sys.executable, "-m", "tests.support.executors", str(path))


def _over_sessions(execution: Execution) -> Generator[str, None, Ending]:
    with held(HERE) as machines:
        return (yield from run_steps(lambda step: RemoteSession(machines, step), execution))


def _followed(
    execution: Execution, lines: Generator[str, None, Ending], enough: Enough
) -> Executed:
    found: list[str] = []
    with closing(lines):
        while True:
            try:
                found.append(next(lines))
            except StopIteration as end:
                return Executed(execution.id, found, end.value)
            if enough(found[-1]):
                return Executed(execution.id, found, None)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _lines(plan: Plan) -> Generator[str, None, None]:
    for execution in plan.executions:
        yield from _over_sessions(execution)


def main() -> int:
    """Run a plan over sessions; signals end it as Ctrl-C does."""
    plan: Plan = pickle.loads(Path(sys.argv[1]).read_bytes())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with closing(_lines(plan)) as lines:
            for line in lines:
                print(line, flush=True)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
