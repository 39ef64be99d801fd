"""Launchers run benchmarks; formats are documents that run a plan somewhere else.

A module ends in ``LAUNCHER: Launcher = …``, which takes executions and yields lines, or
``RENDERING: Rendering = …``, which writes what a launcher of that name submits as a job. Plug-ins
register theirs: docs/add-a-launcher.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from fabbench.launchers.shared_options import InstanceOptions, declared_options
from fabbench.model.errors import MachineError, RequestError, one_named
from fabbench.model.fabrics import RDMA
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind, Needs, OptionsT, Target
from fabbench.model.mappings import Documents, GroupOfNode, HostLines, Names, only
from fabbench.model.messages import redacted
from fabbench.model.options import LauncherOptions, Launchers
from fabbench.model.plan import Execution, Plan, Step, Variant, Words
from fabbench.model.plugins import Plugins
from fabbench.model.values import frozen

if TYPE_CHECKING:
    from threading import Event

    # --help lists the options of all launchers, and needs none of these.
    from fabbench.catalog.systems import System
    from fabbench.execution.script.target import ScriptTarget, VariantOverrides
    from fabbench.hosts.check import Check, HostRelations, Progress
    from fabbench.hosts.probe_result import Probes
    from fabbench.model.log import ExecutionLines
    from fabbench.plan.request import RunRequest
    from fabbench.remote.transport import Transport
    from fabbench.report.table import Overview

SWITCH = "switch"
LABEL = "label:"
"""What `Launcher.node_groups` groups nodes by; the label's key follows ``label:``."""
NODES = 2
"""Hosts of a job or document if no number is given."""


Inside: TypeAlias = Callable[[str], Words]
"""Image of a variant, "" for the usual one → the words that start a program in it."""


@frozen
class RenderInput:
    """What a document is rendered from."""

    plan: Plan
    request: "RunRequest"
    inventory: Inventory

    @property
    def system(self) -> "System | None":
        """The catalog entry of the hosts' instance type; None if unknown."""
        from fabbench.catalog.systems import system

        return system(self.inventory.first.instance_type)

    @property
    def gpus(self) -> int:
        """The GPUs of each host that the benchmark uses."""
        return self.inventory.gpus_for(self.request.work.needs, self.request.target)

    @property
    def command(self) -> str:
        """Return a one-line comment: the command that renders the document, without secrets."""
        from fabbench.execution.script.words import quote

        words = redacted(list(self.request.command))
        line = " ".join(map(quote, words))
        return f"# {line}\n" if line else ""

    def options_as(self, kind: type[OptionsT]) -> OptionsT:
        """Return the format's options."""
        return self.request.target.options_as(kind)

    def script_target(
        self, hosts: str, *, inside: Inside | None = None, **fields: Any
    ) -> "ScriptTarget":
        """Return the target of a script in the document. `hosts` is as `ScriptTarget.hosts`.

        `inside` maps a variant's image, or "", to `ScriptTarget.inside`; without it, raise
        RequestError for variants with images. `fields` are other fields of the target.
        """
        from fabbench.execution.script.target import ScriptTarget

        if inside is None:
            refuse_images(self.request.target.variants, "one job")
        elif not self.request.target.variants:  # these have their own, see `_overrides`
            fields["inside"] = inside("")
        first = self.inventory.first  # from the catalog: all are alike
        programs: dict[str, str] = {}
        for _, host in self.inventory.views():  # with those of all variants
            programs |= host.programs
        values: dict[str, Any] = {
            "programs": programs,
            "interface": first.interface,
            "variants": {
                each.name: self._overrides(each, inside) for each in self.request.target.variants
            },
            "inventory": self.inventory,
        }
        if first.mpi is not None:
            values["mpirun"] = first.mpi.program
        return ScriptTarget(hosts=hosts, **(values | fields))

    def _overrides(self, variant: Variant, inside: Inside | None) -> "VariantOverrides":
        """Return what differs in the steps of a variant. `inside`: None without images."""
        from fabbench.execution.script.target import VariantOverrides

        first = self.inventory.hosts_for_variant(variant.name)[0]
        return VariantOverrides(
            mpirun=first.mpi.program if first.mpi is not None else "mpirun",
            interface=first.interface,
            inside=inside(variant.image) if inside else (),
            folders=variant.paths,
        )


class Rendering(ABC):
    """A format. Subclasses set `name` and implement `render`."""

    options: type[InstanceOptions] = InstanceOptions
    """A package has them as ``FORMAT_OPTIONS`` or ``OPTIONS``."""
    inherits: bool = False
    """Whether programs get `Target.inherited` from wherever the document is used."""
    switches_networks: bool = False
    """Whether each variant gets pods in its own network (`Variant.host_network`)."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for ``--as``."""

    def inventory(self, target: Target, needs: Needs) -> Inventory:
        """Return the hosts of a document, from the catalog; `NODES` if no number is given.

        Raise RequestError.
        """
        from fabbench.catalog.offline_inventory import inventory_of

        nodes = target.nodes or len(target.hosts) or NODES
        options = target.options_as(self.options)
        return inventory_of(
            options.instance_type,
            nodes,
            target=target,
            needs=needs,
            amounts=getattr(options, "pod_requests", ()),  # of formats with pods
            image=options.node_image,
        )

    @abstractmethod
    def render(self, source: RenderInput) -> str:
        """Write the document to submit, which ends in a newline.

        Raise RequestError for what it cannot express.
        """


@cache
def renderings() -> Plugins[Rendering]:
    """All formats, by name."""
    return Plugins(
        "fabbench.launchers",
        "RENDERING",
        group="fabbench.renderings",
        protocol=Rendering,
        home="render",  # the module that each format's package has
    )


def require_support(plugin: "Launcher | Rendering", target: Target) -> None:
    """Raise RequestError for inherited variables and pod networks that `plugin` ignores."""
    if target.inherited and not plugin.inherits:
        names = ", ".join(target.inherited)
        raise RequestError(
            f"{plugin.name} cannot pass on {names} without exposing its value.",
            hint=f"Pass --env {target.inherited[0]}=VALUE if it is not a secret, or choose "
            "another target.",
        )
    named = [variant.name for variant in target.variants if variant.host_network is not None]
    if named and not plugin.switches_networks:
        what = "one job" if isinstance(plugin, Rendering) else f"the launcher {plugin.name}"
        raise RequestError(
            f"The variant {named[0]} sets host-network, but {what} cannot change the network of "
            "pods within one run.",
            hint="Use fabbench run --on kubernetes: it replaces the pods on the same nodes.",
        )


def rendering_named(name: str) -> Rendering:
    """Return one format. Raise RequestError, with the known names, if there is no such format."""
    return one_named("format", name, renderings())


def options_of_formats() -> Launchers:
    """Return the options of every format, by name."""
    return declared_options(renderings(), "FORMAT_OPTIONS")


class ObjectRef(NamedTuple):
    """A Kubernetes object to delete. The uid makes sure that it has not been replaced since."""

    kind: str
    namespace: str
    name: str
    uid: str


@frozen
class Leftover:
    """Everything of one run in one namespace."""

    run: str
    namespace: str
    age: timedelta  # Of the oldest object
    # Whether a pod runs or its Job has not ended, as it soon does once fabbench has exited
    running: bool
    request: str  # The command that created it; empty if not recorded
    things: tuple[ObjectRef, ...]
    """In the order of deletion. Objects deleted along with an owner are not listed."""


@frozen
class Leftovers:
    """What was found, and how to remove it."""

    where: str  # Where it was searched for, to follow "in": ``namespace default of prod``
    column: str  # The title of the column of `Leftover.namespace`
    found: Sequence[Leftover]
    remove: Callable[[Sequence[Leftover]], None]
    """Removes some of them. Raises MachineError that names what remains."""


@frozen
class Examined:
    """What is known about machines, for `fabbench.hosts.check`."""

    probes: "Probes"  # Machine → everything it reported
    relations: "HostRelations"
    checks: "tuple[Check, ...]" = ()  # What is known without probing them
    # What is shown before the checks, such as the nodes of a cluster
    overviews: "tuple[Overview, ...]" = ()


class AllocationLostError(MachineError):
    """The machines are no longer held or reachable: the failure says nothing about them."""


class Allocation(Protocol):
    """Machines that a launcher has found and holds."""

    @property
    def inventory(self) -> Inventory:
        """Return the hosts and what they have."""

    @property
    def documents(self) -> Documents:
        """Return what was submitted to get the machines, without secrets: file name → document."""

    def execute(self, execution: Execution) -> "ExecutionLines":
        """Run an execution. Yield the lines of its log, with markers. Return how it ended.

        The call itself may prepare the machines; counters are read after it and before the first
        line. Closing the generator, or an exception in it, leaves nothing running.
        """

    def counters(self) -> HostLines:
        """Read the NIC counters of hosts that answer: name → lines. Any thread may call it.

        Empty where they come with an execution's lines.
        """


@runtime_checkable
class DivisibleAllocation(Allocation, Protocol):
    """Machines that can be split to run several executions; see `LauncherOptions`."""

    def part(self, hosts: Sequence[int], ended: "Event") -> "DivisibleAllocation":
        """Return some of the machines as a separate allocation; no two that run share a machine.

        A part may be used in any thread; once `ended` is set, one that waits for its lines gets a
        KeyboardInterrupt.
        """


@runtime_checkable
class BatchAllocation(Allocation, Protocol):
    """Machines that get the whole plan as one job; see `fabbench.launchers.batch_job`.

    Those that can be split as well get each execution by itself, when it is its turn.
    """

    def submit(self, source: RenderInput) -> None:
        """Submit the plan before its first execution: `documents` then has it.

        Raise RequestError, MachineError.
        """


Connections: TypeAlias = "AbstractContextManager[Mapping[str, Transport | MachineError]]"


class Launcher(ABC):
    """One way to get machines. Subclasses set `name`, and implement `open` and `examine`."""

    options: type[LauncherOptions] = LauncherOptions  # A package has them as ``OPTIONS``
    has_deep_check: bool = False  # Whether a `deep` `examine` starts pods or a job
    deep_before_tests: bool = False
    """Whether a deep `examine` is worth its time before tests: it waits in no queue."""
    # Whether programs get fabbench's values of `Target.inherited`, not by way of a command line
    inherits: bool = False
    one_job: bool = False
    """Whether a plan is always submitted as a whole: nothing is decided between executions."""
    open_starts_nothing: bool = False
    """Whether `open` only inspects machines, so that `preview` may use it."""
    switches_networks: bool = False
    """Whether each variant gets pods in its own network (`Variant.host_network`)."""
    groups_by: Names = ()  # What `node_groups` can group nodes by: `SWITCH`, `LABEL`

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for ``--on``."""

    @abstractmethod
    def open(self, target: Target, needs: Needs) -> AbstractContextManager[Allocation]:
        """Reach the machines and find out what they have. Leaving it leaves nothing there.

        Raise MachineError.
        """

    def preview(self, target: Target, needs: Needs) -> Inventory:
        """Return what a run would use, and start nothing.

        Raise RequestError where only `open` can tell, and it starts something.
        """
        if not self.open_starts_nothing:
            raise RequestError(f"The launcher {target.launcher} has no preview for --dry-run.")
        with self.open(target, needs) as allocation:
            return allocation.inventory

    def command_line(self, step: Step, hosts: Sequence[Host], target: Target) -> Words:
        """Return the command that starts all ranks of a step, for `fabbench run --dry-run`."""
        from fabbench.execution.mpirun import MpiHosts, mpirun

        del target  # for launchers with another command
        first = hosts[0]
        # Stands for one that is not known
        usual = Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_5, version="")
        known = MpiHosts(mpi=first.mpi or usual, programs=first.programs)
        if len(hosts) > 1 and not hosts[0].virtual:  # virtual ones are parts of one machine
            interfaces = {host.interface for host in hosts}
            known = replace(
                known,
                # Without a probe, an address is the placeholder ``{server}``.
                addresses=tuple(host.address.strip("{}") for host in hosts),
                interface=only(interfaces, ""),
            )
        return mpirun(step, known).argv

    def held_by(self, target: Target) -> str:
        """Return what holds nodes whose executions are submitted one by one, for --dry-run.

        Empty: nothing needs to.
        """
        del target
        return ""

    def node_groups(self, target: Target, nodes: Sequence[str], by: str) -> GroupOfNode:
        """Return node → its rack, switch or other group `by`, one of `groups_by`. Start nothing.

        The key of a label follows `LABEL`. Raise MachineError.
        """
        raise NotImplementedError

    @abstractmethod
    def examine(
        self, target: Target, needs: Needs, *, deep: bool, progress: "Progress"
    ) -> Examined:
        """Return what a check needs, also of machines out of reach; `deep` starts pods or a job."""

    def connections(self, target: Target, wait_s: float) -> Connections:
        """Connect to hosts on which a job runs that others started: name → connection, or error.

        A job that has not started is waited for, at most `wait_s`. Nothing is written there.

        Raise MachineError, and RequestError if the launcher cannot.
        """
        del target, wait_s
        raise RequestError(
            f"The launcher {self.name} does not reach the hosts of a job that runs already.",
            hint="Pass them with --on ssh and --host.",
        )

    def leftovers(
        self, target: Target, *, everywhere: bool, force: bool
    ) -> AbstractContextManager[Leftovers]:
        """Find what runs left behind; `force` removes it even if it won't end.

        Raise RequestError if the launcher cannot.
        """
        del target, everywhere, force
        raise RequestError(
            f"The launcher {self.name} cannot list what runs left behind.",
            hint="What a killed run leaves there ends by itself. Pods and jobs of Slurm are listed "
            "with --on kubernetes or --on slurm.",
        )


def notify(sentence: str) -> None:
    """Log what a launcher does while the user waits; it is written to standard error."""
    import logging

    logging.getLogger(__name__).info("%s", sentence)


@cache
def launchers() -> Plugins[Launcher]:
    """All launchers, by name."""
    return Plugins(
        __name__, "LAUNCHER", group="fabbench.launchers", protocol=Launcher, home="launcher"
    )


def options_of_launchers() -> Launchers:
    """Return the options of every launcher, by name."""
    return declared_options(launchers())


def launcher_named(name: str) -> Launcher:
    """Return one launcher. Raise RequestError, with the known names, if there is no such one."""
    return one_named("target", name, launchers())


def require_way(plan: Plan, ways: Collection[str], place: str, hint: str) -> None:
    """Raise RequestError for a fabric that programs in `place` do not get.

    `ways` are the fabrics that they get; those that need no device are not among them.
    """
    for configuration in plan.configurations:
        fabric = configuration.fabric
        if fabric in _DEVICES and fabric not in ways:
            raise RequestError(
                f"{fabric} needs a way into {place}, and none is known.",
                hint=f"{hint} Or measure another fabric: --fabric tcp.",
            )


_DEVICES = frozenset({*RDMA, "nvlink"})
"""Fabrics that a program uses only where its container gets their devices."""


def refuse_images(variants: Sequence[Variant], subject: str) -> None:
    """Raise RequestError for a variant with an image, where `subject` cannot use several."""
    named = next((variant for variant in variants if variant.image), None)
    if named is not None:
        raise RequestError(
            f"The variant {named.name} sets an image, but {subject} cannot change images within "
            "one run.",
            hint="Run once per image (--image), then compare the runs with fabbench compare.",
        )
