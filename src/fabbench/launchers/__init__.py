"""Launchers: where benchmarks run. One module (or package) each, found without editing a list.

A launcher ends in ``LAUNCHER: Launcher = …``. It does not know what runs: it gets trials and gives lines.
"""

import importlib
import pkgutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Protocol

from fabbench.errors import RequestError
from fabbench.model import Ending, Trial
from fabbench.plan import Inventory, Needs, Where


class Place(Protocol):
    """Machines that a launcher has found, and holds."""

    @property
    def inventory(self) -> Inventory:
        """What is there."""

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Run a trial: give the lines of its log as they come, markers included, and how it ended.

        Closing the generator, or an exception through it, leaves nothing running.
        """

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of every host that answers: name → lines of `fabbench.counters`."""


class Launcher(Protocol):
    """One kind of place."""

    @property
    def name(self) -> str:
        """The name for ``--on``."""

    def open(self, where: Where, needs: Needs) -> AbstractContextManager[Place]:
        """Reach the machines, and find out what they have. Leaving the context leaves nothing behind there.

        Raises MachineError for a machine that cannot be reached, or lacks what is needed.
        """


@cache
def launchers() -> Mapping[str, Launcher]:
    """Every launcher found in this package, by name."""
    found: dict[str, Launcher] = {}
    for module in pkgutil.iter_modules(__path__):
        launcher = getattr(importlib.import_module(f"{__name__}.{module.name}"), "LAUNCHER", None)
        if launcher is not None:
            found[launcher.name] = launcher
    return found


def launcher_named(name: str) -> Launcher:
    """Give one launcher; raises RequestError that lists those there are."""
    if name not in launchers():
        known = ", ".join(sorted(launchers()))
        raise RequestError(f"There is no target {name}.", hint=f"Known to --on: {known}.")
    return launchers()[name]
