"""Documents that run a plan somewhere else: a script, a batch job, manifests. Pure.

A format is one module (or package) here that ends in ``RENDERING: Rendering = …``; it is found without
editing a list. What it gives is, byte for byte, what a launcher of that name submits. Other distributions
have theirs in the group of entry points ``fabbench.renderings``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from fabbench.errors import RequestError
from fabbench.instances import Instance, instance
from fabbench.model import Plan
from fabbench.plan import Inventory, Request, Work
from fabbench.plugins import Plugins
from fabbench.script import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a document is made from."""

    plan: Plan
    request: Request
    """As asked for; `request.where.settings` has what only some formats know (`image`, `namespace`, …)."""
    inventory: Inventory
    work: Work | None = None
    """What is measured, for formats that add an arm to those planned; None: none is added."""

    @property
    def instance(self) -> Instance | None:
        """The type of the hosts, as the catalogue has it; None: it is not known."""
        return instance(self.inventory.hosts[0].instance_type)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What only some formats know (`image`, `namespace`, …)."""
        return self.request.where.settings if self.request.where else {}

    def way(self, hosts: str, **more: Any) -> Way:
        """Give the way of a script in the document: `hosts` prints the hosts, `more` as `Way` has it."""
        first = self.inventory.hosts[0]
        usual: dict[str, Any] = {"programs": first.programs, "interface": first.interface}
        if first.mpi is not None:
            usual["mpirun"] = first.mpi.program
        return Way(hosts=hosts, **{**usual, **more})


class Rendering(Protocol):
    """One format."""

    @property
    def name(self) -> str:
        """The name for ``--as``."""

    def render(self, job: Job) -> str:
        """Write the document, with a newline at its end. Raises RequestError for what it cannot express."""


@cache
def renderings() -> Mapping[str, Rendering]:
    """Every format there is, by name."""
    return Plugins(__name__, "RENDERING", group="fabbench.renderings", wanted=Rendering)


def rendering_named(name: str) -> Rendering:
    """Give one format; raises RequestError that lists those there are."""
    if name not in renderings():
        raise RequestError(f"There is no format {name}.", hint=f"One of {', '.join(sorted(renderings()))}.")
    return renderings()[name]
