"""Launchers: where benchmarks run; and formats: documents that run a plan somewhere else.

One module (or package) each, found without editing a list. A launcher's module ends in
``LAUNCHER: Launcher = …``. It does not know what runs: it gets executions and gives lines. A format's module
ends in ``RENDERING: Rendering = …``. What `render` writes is, byte for byte, what a launcher of that name
submits.
Other distributions have theirs in the groups of entry points ``fabbench.launchers`` and
``fabbench.renderings``: docs/add-a-launcher.md. Why something did not work on Kubernetes or Slurm is an
`Explanation`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from fabbench.launchers.shared_options import InstanceOptions, declared_options
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Needs, OptionsT, Target
from fabbench.model.messages import LONGEST_QUOTE, environment, redacted, redacted_values
from fabbench.model.options import LauncherOptions
from fabbench.model.plan import Execution, Plan, Step, Variant
from fabbench.model.plugins import Plugins

if TYPE_CHECKING:
    from threading import Event

    # --help lists the options of all launchers, and needs none of these.
    from fabbench.catalog.instances import Instance
    from fabbench.execution.script.target import ScriptTarget, VariantOverrides
    from fabbench.hosts.check import Check, HostRelations, Progress
    from fabbench.hosts.probe_result import Probe
    from fabbench.model.log import Ending
    from fabbench.plan.request import RunRequest
    from fabbench.report.table import Overview

SWITCH, LABEL = "switch", "label:"
"""What `Launcher.node_groups` tells groups of nodes by; the key of the label follows."""
NODES = 2
"""Hosts of a job or document, where nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInput:
    """What a document is made from."""

    plan: Plan
    request: "RunRequest"
    inventory: Inventory

    @property
    def instance(self) -> "Instance | None":
        """The type of the hosts, as the catalog has it; None: it is not known."""
        from fabbench.catalog.instances import instance

        return instance(self.inventory.hosts[0].instance_type)

    def redacted(self) -> "RenderInput":
        """Return the same without secret values: what a run keeps of a document is rendered from this."""
        request = self.request
        target = replace(
            request.target,
            env=environment(request.target.env),
            variants=redacted_values(request.target.variants),
        )
        request = replace(request, env=environment(request.env), target=target)
        return replace(self, plan=redacted_values(self.plan), request=request)

    @property
    def command(self) -> str:
        """Return a comment of one line: the command that the document is made by, without secrets."""
        from fabbench.execution.script.steps import in_comment

        words = redacted(list(self.request.command))
        return f"# {' '.join(map(in_comment, words))}\n" if words else ""

    def options_as(self, kind: type[OptionsT]) -> OptionsT:
        """Return the format's own options."""
        return self.request.target.options_as(kind)

    def script_target(
        self, hosts: str, *, inside: Callable[[str], tuple[str, ...]] | None = None, **more: Any
    ) -> "ScriptTarget":
        """Return the target of a script in the document. `hosts` prints the hosts; `more` are other fields.

        `inside` gives `ScriptTarget.inside` for the image of a variant, or for none. Without it, raise
        RequestError for variants with images.
        """
        from fabbench.execution.script.target import ScriptTarget
        from fabbench.plan.request import refuse_images

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
        return ScriptTarget(hosts=hosts, **{**usual, **more})

    def _otherwise(
        self, variant: Variant, inside: Callable[[str], tuple[str, ...]] | None
    ) -> "VariantOverrides":
        from fabbench.execution.script.target import VariantOverrides

        first = self.inventory.seen_by(variant.name)[0]
        mpirun = first.mpi.program if first.mpi is not None else "mpirun"
        return VariantOverrides(
            mpirun=mpirun,
            interface=first.interface,
            inside=inside(variant.image) if inside else None,
            folders=variant.paths,
        )


class Rendering(ABC):
    """One format. Subclasses set `name` and have `render`."""

    options: type[InstanceOptions] = InstanceOptions
    """Its options. A format of fabbench's own has them in its package: ``FORMAT_OPTIONS``, or ``OPTIONS``."""
    inherits: bool = False
    """Whether programs get the variables of `Target.inherited` from where the document is used."""
    open_starts_nothing: bool = False
    """Whether `open` only looks at machines, so that `preview` may open them."""
    switches_networks: bool = False
    """Whether each variant gets pods in the network that it asks for (`Variant.host_network`)."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for ``--as``."""

    def inventory(self, target: Target, needs: Needs) -> Inventory:
        """Return the hosts of a document, as the catalog has them. Raise RequestError."""
        from fabbench.catalog.offline_inventory import inventory_of

        nodes = target.nodes or len(target.hosts) or NODES
        instance_type = target.options_as(self.options).instance_type
        return inventory_of(instance_type, nodes, target=target, needs=needs)

    def evaluates_gates(self, target: Target) -> bool:
        """Return whether a document has a part that runs fabbench, and evaluates gates."""
        del target
        return False

    @abstractmethod
    def render(self, source: RenderInput) -> str:
        """Write the document that is submitted, with a newline at its end.

        Raise RequestError for what it cannot express.
        """

    def readable(self, source: RenderInput) -> str:
        """Write it as a person would, without what watches over a run; a format may have one form only."""
        return self.render(source)


@cache
def renderings() -> Plugins[Rendering]:
    """Every format there is, by name."""
    return Plugins(
        "fabbench.launchers", "RENDERING", group="fabbench.renderings", wanted=Rendering, home="render"
    )


def require_support(who: "Launcher | Rendering", target: Target) -> None:
    """Raise RequestError for what a target has no effect with: variables to inherit, pods' networks."""
    if target.inherited and not who.inherits:
        raise RequestError(
            f"{who.name} cannot pass on {', '.join(target.inherited)} without exposing its value.",
            hint=f"Pass --env {target.inherited[0]}=VALUE if everybody may see it, or choose another target.",
        )
    named = [variant.name for variant in target.variants if variant.host_network is not None]
    if named and not who.switches_networks:
        what = "one job" if isinstance(who, Rendering) else f"the launcher {who.name}"
        raise RequestError(
            f"The variant {named[0]} sets host-network, but {what} cannot change the network of pods "
            "within one run.",
            hint="Use fabbench run --on kubernetes: it replaces the pods on the same nodes.",
        )


def rendering_named(name: str) -> Rendering:
    """Return one format; raise RequestError that lists those there are."""
    if name not in renderings():
        raise RequestError(f"Unknown format {name}.", hint=f"One of {', '.join(sorted(renderings()))}.")
    return renderings()[name]


def options_of_formats() -> Mapping[str, type[LauncherOptions]]:
    """Return the options of every format, by name."""
    return declared_options(renderings(), "FORMAT_OPTIONS")


class ObjectRef(NamedTuple):
    """One object of Kubernetes to delete. The uid makes sure that it is not another one by now."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Everything of one run in one namespace."""

    run: str
    namespace: str
    age: timedelta
    """Of the oldest object."""
    running: bool
    """Whether a pod of it runs, or its Job has not ended: it may be a run in progress.

    The Job of a fabbench that is gone ends by itself soon, as nobody moves its deadline.
    """
    request: str
    """The command that it was made for; empty where it is not told."""
    things: tuple[ObjectRef, ...]
    """In the order to delete them. What an owner of these takes along is not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What was found, and how it is removed."""

    where: str
    """Where was looked, to follow "in": ``namespace default of prod``."""
    column: str
    """The title of the column of `Leftover.namespace`."""
    found: Sequence[Leftover]
    remove: Callable[[Sequence[Leftover]], None]
    """Removes some of them. Raise MachineError that names what stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found out about machines, for `fabbench.hosts.check`."""

    probes: "Mapping[str, Probe]"
    """Machine → everything that it told of itself."""
    relations: "HostRelations"
    checks: "tuple[Check, ...]" = ()
    """What is known of them without asking them."""
    overviews: "tuple[Overview, ...]" = ()
    """What is shown before the checks, such as the nodes of a cluster."""


class AllocationLostError(MachineError):
    """The machines are held no longer, or cannot be reached: what failed with it says nothing of them."""


class Allocation(Protocol):
    """Machines that a launcher has found, and holds."""

    @property
    def inventory(self) -> Inventory:
        """Return what is there."""

    @property
    def remote(self) -> bool:
        """Return whether counters come from other machines, and `counters` may be called in any thread.

        Where it may not, it starts a program, which is to be done without threads (see process.py).
        """

    @property
    def documents(self) -> Mapping[str, str]:
        """Return what was submitted to have them, for the record: name of a file → document.

        No secret may be in it: see `RenderInput.redacted`.
        """

    def execute(self, execution: Execution) -> "Generator[str, None, Ending]":
        """Run an execution: give the lines of its log as they come, markers included, and how it ended.

        The call itself may make the machines ready; counters are read after it, and before the first line.
        Closing the generator, or an exception through it, leaves nothing running.
        """

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of every host that answers: name → lines of `fabbench.counters`.

        Nothing where they come with the lines of an execution; see `fabbench.counters.execution_counters`.
        """


@runtime_checkable
class DivisibleAllocation(Allocation, Protocol):
    """Machines of which some can run an execution while others run another one; see `LauncherOptions`."""

    def part(self, hosts: Sequence[int], ended: "Event") -> Allocation:
        """Return some of the machines as an allocation of their own. No machine is in two that run.

        Where the machines are remote, a part may be used in any thread; once `ended` is set, whoever waits
        for its lines gets a KeyboardInterrupt.
        """


@runtime_checkable
class BatchAllocation(Allocation, Protocol):
    """Machines that are given the whole plan as one job; see `fabbench.launchers.batch_job`."""

    def submit(self, source: RenderInput) -> None:
        """Submit the plan, before its first execution. `documents` has then what was submitted.

        Raise RequestError for what the job cannot express, MachineError where it cannot be submitted.
        """


class Launcher(ABC):
    """One way to have machines: how they are reached, checked and cleaned up.

    Subclasses set `name`, and have `open` and `examine`. Everything else has a default.
    """

    options: type[LauncherOptions] = LauncherOptions
    """Its options. A launcher of fabbench's own has them in its package, as ``OPTIONS``."""
    has_deep_check: bool = False
    """Whether `examine` starts pods or a job where it is to be `deep`."""
    cleans: bool = False
    """Whether `leftovers` finds what runs have left, for `fabbench clean`."""
    inherits: bool = False
    """Whether programs get the variables of `Target.inherited` as fabbench has them, by no command line."""
    open_starts_nothing: bool = False
    """Whether `open` only looks at machines, so that `preview` may open them."""
    switches_networks: bool = False
    """Whether each variant gets pods in the network that it asks for (`Variant.host_network`)."""
    groups_by: tuple[str, ...] = ()
    """What `node_groups` knows of nodes: `SWITCH`, `LABEL`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for ``--on``."""

    @abstractmethod
    def open(self, target: Target, needs: Needs) -> AbstractContextManager[Allocation]:
        """Reach the machines, and find out what they have. Leaving the context leaves nothing behind there.

        Raise MachineError for a machine that cannot be reached, or lacks what is needed.
        """

    def preview(self, target: Target, needs: Needs) -> Inventory:
        """Return the machines that a run would use, for `fabbench run --dry-run`. Nothing is started there.

        Raise RequestError where that is known only to `open`, MachineError as `open` does.
        """
        if not self.open_starts_nothing:
            raise RequestError(f"The launcher {target.launcher} has no preview for --dry-run.")
        with self.open(target, needs) as allocation:
            return allocation.inventory

    def command_line(self, step: Step, hosts: Sequence[Host], target: Target) -> tuple[str, ...]:
        """Return the command that starts all ranks of a step, for `fabbench run --dry-run`."""
        from fabbench.execution.mpirun import MpiHosts, mpirun

        del target
        assert hosts[0].mpi is not None  # noqa: S101 - the plan needs it
        alone = len(hosts) == 1 or hosts[0].virtual
        where = ("localhost",) if alone else tuple(host.address.strip("{}") for host in hosts)
        interfaces = {host.interface for host in hosts}
        known = MpiHosts(
            mpi=hosts[0].mpi,
            addresses=where,
            programs=hosts[0].programs,
            interface=interfaces.pop() if len(interfaces) == 1 and not alone else "",
        )
        return mpirun(step, known).argv

    def node_groups(self, target: Target, nodes: Sequence[str], by: str) -> Mapping[str, str]:
        """Return node → its rack, switch or other group, of all `nodes`. Nothing is started.

        `by` is one of `groups_by`, with the key of a label behind `LABEL`. Raise MachineError where a node
        has no group, or the cluster cannot be asked.
        """
        raise NotImplementedError

    def nodes(self, target: Target) -> "Overview":
        """Return the nodes of a cluster as a table, for `fabbench nodes`. Nothing is started.

        Raise RequestError where there is no cluster, MachineError where it cannot be asked.
        """
        raise RequestError(
            f"The launcher {target.launcher} has no list of nodes.",
            hint="fabbench nodes works with --on kubernetes, mpijob and slurm; fabbench check asks hosts.",
        )

    @abstractmethod
    def examine(
        self, target: Target, needs: Needs, *, full: bool, deep: bool, progress: "Progress"
    ) -> Examined:
        """Find out everything that a check wants to know; what `needs` names is looked for.

        `full` tries every connection between machines, not only the most important ones; `deep` starts pods
        or a job to ask from inside. A machine that cannot be reached is a part of the answer.
        """

    def leftovers(
        self, target: Target, *, everywhere: bool, force: bool
    ) -> AbstractContextManager[Leftovers]:
        """Find what runs have left. `everywhere`: in all namespaces; `force`: remove also what does not end.

        Raise MachineError where it cannot be found out, RequestError where the launcher never knows.
        """
        del target, everywhere, force
        raise RequestError(f"The launcher {self.name} cannot list what runs left behind.")


def notify(sentence: str) -> None:
    """Log what a launcher does while one waits for it. The command line writes it on standard error."""
    import logging

    logging.getLogger(__name__).info("%s", sentence)


@cache
def launchers() -> Plugins[Launcher]:
    """Every launcher there is, by name."""
    return Plugins(__name__, "LAUNCHER", group="fabbench.launchers", wanted=Launcher, home="launcher")


def options_of_launchers() -> Mapping[str, type[LauncherOptions]]:
    """Return the options of every launcher, by name."""
    return declared_options(launchers())


def launcher_named(name: str) -> Launcher:
    """Return one launcher; raise RequestError that lists those there are."""
    if name not in launchers():
        known = ", ".join(sorted(launchers()))
        raise RequestError(f"Unknown target {name}.", hint=f"Known to --on: {known}.")
    return launchers()[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a pod does not run, or what ended it."""

    code: str
    """One word or two for programs: `insufficient`, `image`, `quota`, `oom-killed`, …"""
    text: str
    """One or two sentences, with the cluster's own words where they say more."""
    advice: str
    """What to do next."""
    final: bool = True
    """Whether waiting does not help."""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}"


class MessagePattern(NamedTuple):
    """A message of Kubernetes or Slurm, and what it means. Texts may have ``{groups}`` of the pattern."""

    pattern: re.Pattern[str]
    code: str
    text: str
    advice: str
    final: bool = True


def pattern(regex: str, code: str, text: str, advice: str, *, final: bool = True) -> MessagePattern:
    """Return an entry of a table; `regex` ignores case."""
    return MessagePattern(re.compile(regex, re.IGNORECASE | re.DOTALL), code, text, advice, final)


def match_message(table: Iterable[MessagePattern], said: str, **known: str) -> Explanation | None:
    """Find the first entry whose pattern is in what was said; `known` fills other braces."""
    for entry in table:
        if match := entry.pattern.search(said):
            found = {name: text or "" for name, text in match.groupdict().items()}
            filled = {"said": shorten(said), **known, **found}
            return Explanation(
                code=entry.code,
                text=entry.text.format(**filled),
                advice=entry.advice.format(**filled),
                final=entry.final,
            )
    return None


def shorten(said: str, most: int = LONGEST_QUOTE) -> str:
    """Return somebody's words on one line, without the full stop; the middle of long ones is left out.

    Errors of Kubernetes begin with what was tried, and end with the cause.
    """
    line = " ".join(said.split()).rstrip(".")
    half = most // 2
    return line if len(line) <= most else f"{line[:half].rstrip()} … {line[-half:].lstrip()}"
