"""Documents that run a plan somewhere else: a script, a batch job, manifests. Pure.

A format is one module (or package) here that ends in ``RENDERING: Rendering = …``; it is found without
editing a list. What it gives is, byte for byte, what a launcher of that name submits. Other distributions
have theirs in the group of entry points ``fabbench.renderings``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from fabbench.errors import RequestError
from fabbench.instances import Instance, instance
from fabbench.machines import Inventory
from fabbench.model import Plan
from fabbench.plan import Request, Work
from fabbench.plugins import Plugins
from fabbench.script import Way
from fabbench.script.way import Otherwise
from fabbench.variants import Variant, refuse_images


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

    def way(self, hosts: str, *, inside: Callable[[str], tuple[str, ...]] | None = None, **more: Any) -> Way:
        """Give the way of a script in the document: `hosts` prints the hosts, `more` as `Way` has it.

        `inside` gives `Way.inside` for the image of a variant, or for none. Without it RequestError is raised
        for variants with images.
        """
        if inside is None:
            refuse_images(self.request.variants, "one job")
        elif not self.request.variants:
            more["inside"] = inside("")
        first = self.inventory.hosts[0]
        views = (host.programs for _, host in self.inventory.views())
        programs = {name: path for each in views for name, path in each.items()}
        usual: dict[str, Any] = {"programs": programs, "interface": first.interface}
        usual["inventory"] = self.inventory
        if first.mpi is not None:
            usual["mpirun"] = first.mpi.program
        usual["variants"] = {each.name: self._otherwise(each, inside) for each in self.request.variants}
        return Way(hosts=hosts, **{**usual, **more})

    def _otherwise(self, variant: Variant, inside: Callable[[str], tuple[str, ...]] | None) -> Otherwise:
        first = self.inventory.seen_by(variant.name)[0]
        mpirun = first.mpi.program if first.mpi is not None else "mpirun"
        return Otherwise(
            mpirun=mpirun,
            interface=first.interface,
            inside=inside(variant.image) if inside else None,
            folders=variant.paths,
        )


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
