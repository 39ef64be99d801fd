"""What to run: commands, steps, executions, variants, and the plan of them all. Frozen values."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TypeAlias

from fabbench.model.log import Facts
from fabbench.model.log import Proof as Proof  # noqa: PLC0414 - a part of plans, too
from fabbench.model.mappings import Names, Paths, Variables
from fabbench.model.messages import environment
from fabbench.model.options import (
    IMAGE,
    INTERFACE,
    MPIRUN,
    Environment,
    Text,
    Truth,
    Type,
    flat,
    option,
)
from fabbench.model.values import frozen

Words: TypeAlias = tuple[str, ...]
"""Those of a command line, or of a part of one."""


@frozen
class Command:
    """One program to start.

    `env` is added to the machine's environment; `unset` is removed from it.
    """

    argv: Words
    role: str = ""  # `server` or `client` in a pair
    host: int = 0  # Index into the allocation's hosts: names are bound when it runs
    env: Variables = field(default_factory=dict)
    unset: Names = ()
    # Taken from fabbench: their values are in no plan, document or command line
    inherited: Names = ()
    # How many ranks run it, unless it is one of a pair. Several commands share them in their order
    ranks: int = 1

    def filled(self, folder: str, values: Mapping[str, str] | None = None) -> "Command":
        """Return it with its placeholders filled in.

        ``{folder}``, in argv also the keys of `values`.
        """
        env = {name: value.replace("{folder}", folder) for name, value in self.env.items()}
        argv = self.argv
        for placeholder, value in {**(values or {}), "{folder}": folder}.items():
            argv = tuple(word.replace(placeholder, value) for word in argv)
        return replace(self, argv=argv, env=env)


@frozen
class Step:
    """Commands that run together. `label` says what is measured; `facts` go into the begin marker.

    In argv and env, ``{folder}`` stands for a directory on each host that exists for this step
    alone. In the argv of a pair, ``{port}`` and ``{server}`` stand for a free port and the server's
    address.
    """

    id: str
    label: str
    commands: tuple[Command, ...]
    timeout_s: float
    # After how many seconds without output it is stuck; None: only `timeout_s` ends it
    silence_s: float | None = None
    # Name → text of what `{folder}` must hold on every host
    files: Mapping[str, str] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """How many ranks its commands start."""
        return sum(command.ranks for command in self.commands)

    @property
    def pair(self) -> bool:
        """Whether it is a server, and a client that starts once the server is ready.

        Else ranks of MPI.
        """
        return bool(self.commands[0].role)  # ranks have no role


@frozen
class Configuration:
    """One column of a comparison."""

    label: str
    fabric: str
    variant: str = ""

    def __str__(self) -> str:
        """Return the label, and the fabric where the label does not name it."""
        if self.label == self.variant:
            return f"{self.label} ({self.fabric})"
        return self.label


@frozen
class Execution:
    """One repeat of one configuration: one `exec/` directory and one judged log."""

    id: str  # `NNN-CONFIGURATION-rR`: order, configuration, repeat
    configuration: Configuration
    repeat: int
    steps: tuple[Step, ...]
    proof: Proof
    planned_sizes: tuple[int, ...]
    # Whether all steps run concurrently; the log holds them one after another anyway
    together: bool = False


@frozen
class Plan:
    """Everything that will be run, in order. Configurations interleave as executions (A B B A)."""

    benchmark: str
    target: str
    configurations: tuple[Configuration, ...]
    executions: tuple[Execution, ...]
    hosts: int = 1

    @property
    def longest_s(self) -> float:
        """The seconds that all executions take if each step takes its whole limit."""
        total_s = 0.0
        for execution in self.executions:
            limits = [step.timeout_s for step in execution.steps]
            total_s += max(limits) if execution.together else sum(limits)
        return total_s


def _folders(text: str) -> Paths:
    """Return the absolute paths in a text like PATH; raise ValueError."""
    folders = [folder for folder in text.split(":") if folder]
    if not folders or not all(folder.startswith("/") for folder in folders):
        raise ValueError
    return tuple(folder.rstrip("/") or "/" for folder in folders)


@frozen
class Variant:
    """What differs in some of the configurations. With a name only: nothing."""

    name: str
    paths: Paths = option(
        Type(
            "an absolute path that all hosts have, such as /opt/nccl-2.30",
            "DIRECTORY",
            _folders,
        ),
        "Directories on the hosts, searched first for programs and libraries.",
        many=flat,
    )
    env: Variables = option(
        Environment(), "Environment variables of the variant's configurations.", many=dict
    )
    interface: str = option(INTERFACE, "Network interface on the hosts.", unset="")
    mpirun: str = option(MPIRUN, "Path of mpirun on the hosts.", unset="")
    image: str = option(IMAGE, "Container image.", unset="")
    host_network: bool | None = option(
        Truth(),
        "Whether the pods use their nodes' network (hostNetwork). Default: as the target does. "
        "[kubernetes]",
    )
    measured: str = option(
        Text(),
        "What its settings were measured with, as fabbench tune writes it: a run with something "
        "else says so.",
        unset="",
    )

    def __str__(self) -> str:
        """Describe it: directories, then anything else that it sets. No secrets are shown."""
        settings = [*self.paths]
        for name in ("image", "interface", "mpirun"):
            value = getattr(self, name)
            if value:
                settings.append(f"{name} {value}")
        if self.host_network is not None:
            settings.append("host network" if self.host_network else "pod network")
        for name, value in environment(self.env).items():
            settings.append(f"{name}={value}")
        return ", ".join(settings) or "no changes"


DEFAULT_VARIANT = Variant(name="")
