"""Launchers: where benchmarks run. One module (or package) each, found without editing a list.

A launcher ends in ``LAUNCHER: Launcher = …``. It does not know what runs: it gets trials and gives lines.
Other distributions have theirs in the group of entry points ``fabbench.launchers``: docs/add-a-launcher.md.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from fabbench.check import Around, Check
from fabbench.errors import RequestError
from fabbench.hosts.found import Probe
from fabbench.machines import Inventory, Needs, Where
from fabbench.model import Ending, Trial
from fabbench.plugins import Plugins
from fabbench.pods.nodes import Node
from fabbench.rendering import Job

Progress = Callable[[str, int, int], None]
"""Told, by any thread, what is being done, for how many machines it is done, and for how many of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found out about machines, for `fabbench.check`."""

    probes: Mapping[str, Probe]
    """Machine → everything that it told of itself."""
    around: Around
    checks: tuple[Check, ...] = ()
    """What is known of them without asking them."""
    nodes: tuple[Node, ...] = ()
    """On Kubernetes, the nodes as the cluster shows them."""


class Place(Protocol):
    """Machines that a launcher has found, and holds."""

    @property
    def inventory(self) -> Inventory:
        """What is there."""

    @property
    def remote(self) -> bool:
        """Whether counters come from other machines, and `counters` may be called in any thread.

        Where it may not, it starts a program, which is to be done without threads (see process.py).
        """

    def begin(self, job: Job) -> Mapping[str, str]:
        """Take note of the whole plan before its first trial: name of a file → document, for the record.

        Those who hand over a run as one job make it here; see `fabbench.jobs`.
        """

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Run a trial: give the lines of its log as they come, markers included, and how it ended.

        The call itself may make the place ready; counters are read after it, and before the first line.
        Closing the generator, or an exception through it, leaves nothing running.
        """

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of every host that answers: name → lines of `fabbench.counters`.

        Nothing where they come with the lines of a trial; see `fabbench.counters.printed`.
        """


class Launcher(Protocol):
    """One kind of place."""

    @property
    def name(self) -> str:
        """The name for ``--on``."""

    def open(self, where: Where, needs: Needs) -> AbstractContextManager[Place]:
        """Reach the machines, and find out what they have. Leaving the context leaves nothing behind there.

        Raises MachineError for a machine that cannot be reached, or lacks what is needed.
        """

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Find out everything that a check wants to know; what `needs` names is looked for.

        `full` tries every connection between machines, not only the most important ones. A machine that
        cannot be reached is a part of the answer.
        """


@cache
def launchers() -> Mapping[str, Launcher]:
    """Every launcher there is, by name."""
    return Plugins(__name__, "LAUNCHER", group="fabbench.launchers", wanted=Launcher)


def launcher_named(name: str) -> Launcher:
    """Give one launcher; raises RequestError that lists those there are."""
    if name not in launchers():
        known = ", ".join(sorted(launchers()))
        raise RequestError(f"There is no target {name}.", hint=f"Known to --on: {known}.")
    return launchers()[name]
