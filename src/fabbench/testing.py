"""For tests of your own benchmarks and launchers: machines that play recorded logs, and runs made of them.

Nothing is started, and no machine is asked. All else is what `fabbench parse` and `fabbench run` do.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabbench import markers
from fabbench.check import Around
from fabbench.hosts.mpi import Mpi, MpiKind
from fabbench.launchers import Examined, Place, Progress
from fabbench.machines import Host, Inventory, Needs, Where
from fabbench.model import Ending, Log, Point, Proof, Trial
from fabbench.parse import Session, logs
from fabbench.plan import Request, Work, plan
from fabbench.prefixes import sniff
from fabbench.rendering import Job
from fabbench.run import Results, Watcher, carry_out
from fabbench.store import RunWriter, StoredRun
from fabbench.watch import View

_SNIFFED = 2000
"""Lines that say which prefixes a log has, as in `fabbench.files`."""


def read(text: str, proof: Proof | None = None) -> list[Log]:
    """Read a text as `fabbench parse` reads a file; judge it as one that is to show `proof`."""
    lines = text.split("\n")
    session = Session("x", proof=proof, risky=sniff(lines[:_SNIFFED]), live=False)
    return list(logs([*session.feed_lines(lines), *session.close()]))


def two_hosts() -> Inventory:
    """Give two hosts that have everything: four GPUs and four EFA devices each, and Open MPI 4."""
    devices = {f"rdmap{number}s1": "efa" for number in range(4)}
    endpoints = frozenset({"msg", "rdm"})
    hosts = (
        Host(
            name=name,
            gpus=4,
            devices=devices,
            providers=dict.fromkeys(("efa", "tcp", "shm"), endpoints),
            mpi=Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_4, version="4.1.7"),
        )
        for name in ("a", "b")
    )
    return Inventory(target="replay", hosts=tuple(hosts))


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Machines whose programs print what was recorded; see `fabbench.launchers.Place`."""

    log: Callable[[Trial], Iterable[str]]
    """What the programs of a trial print, without fabbench's markers."""
    inventory: Inventory = field(default_factory=two_hosts)
    status: int = 0
    """The exit status of every step."""
    remote: bool = False

    def begin(self, job: Job) -> Mapping[str, str]:
        """Submit nothing."""
        del job
        return {}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Give the lines, as those of the trial's first step."""
        step = trial.steps[0]
        yield markers.begin(step.id, step.facts)
        yield from self.log(trial)
        yield markers.end(step.id, self.status)
        return Ending(status=self.status, planned_sizes=trial.planned_sizes)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Give none: there are no NICs."""
        return {}


@dataclass(frozen=True)
class ReplayLauncher:
    """The launcher of such machines; see `fabbench.launchers.Launcher`."""

    place: Place
    name: str = "replay"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[Place]:
        """Give the machines, whatever is asked for."""
        del where, needs
        yield self.place

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Find nothing out."""
        del where, needs, full, progress
        return Examined(probes={}, around=Around())


@dataclass(frozen=True)
class Nobody:
    """Watches a run and shows nothing; see `fabbench.run.Watcher`."""

    nics: View | None = None

    def begin(self, trial: Trial, number: int) -> None:
        """Look away."""

    def point(self, trial: Trial, point: Point) -> None:
        """Look away."""

    def end(self, trial: Trial, logs: tuple[Log, ...]) -> None:
        """Look away."""


def sample_run(
    request: Request, work: Work, place: Place, store: Path, *, watcher: Watcher | None = None
) -> tuple[StoredRun, Results]:
    """Carry out a plan on machines that replay logs, and keep it in a store as `fabbench run` does.

    Raises what `fabbench.plan.plan` raises for what cannot be measured.
    """
    planned = plan(request, place.inventory, work)
    writer = RunWriter(store, request, place.inventory, planned)
    results = carry_out(planned, place, writer, watcher or Nobody())
    return StoredRun(writer.path), results
