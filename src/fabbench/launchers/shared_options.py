"""Options that several launchers and formats share, and the options of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabbench.model.errors import RequestError
from fabbench.model.options import (
    HOST,
    INSTANCE_TYPE,
    RARE,
    LauncherOptions,
    Launchers,
    Seconds,
    Text,
    option,
)
from fabbench.model.plugins import Plugins
from fabbench.model.values import frozen
from fabbench.remote import SshOptions


@dataclass(frozen=True, kw_only=True)
class InstanceOptions(LauncherOptions):
    """Options of every format: the instance type tells the catalog which devices the hosts have."""

    instance_type: str = option(
        INSTANCE_TYPE,
        "Instance type, such as p5.48xlarge. Also Standard_ND96isr_H100_v5, BM.GPU.H100.8, or "
        "h100-ib; it determines the number of GPUs and NICs. On a cluster, use only nodes of this "
        "type.",
        unset="",
    )

    @property
    def node_image(self) -> str:
        """The image of the nodes; empty: they have none, or their own."""
        return ""


# Minutes, H:MM:SS or D-HH:MM:SS.
_LIMIT = r"^([0-9]{1,6}(:\d\d?)?|[0-9]{1,6}:\d\d?:\d\d?|[0-9]{1,6}-\d\d?(:\d\d?){0,2})$"
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*$"  # A name of something in a batch system


def name_in(system: str) -> Text:
    """Return the type of the name of something in a batch system."""
    return Text(f"a name in {system}", "NAME", _NAME)


def start_timeout(what: str, default: str | None = None) -> Any:
    """Declare how long to wait for the start of `what`."""
    return option(Seconds(1), f"Give up on {what} after SECONDS.", default=default, only="run")


@dataclass(frozen=True, kw_only=True)
class LoginOptions(SshOptions):
    """Options of the launchers that submit jobs to a batch system."""

    login: str | None = option(
        HOST,
        "Login node of the batch system (ssh host). Default: this machine.",
        only="run",
        reaches=True,
    )
    account: str | None = option(
        name_in("the batch system"), "Account (project, bank) to charge for the job."
    )
    time: str | None = option(
        Text("a time limit: minutes, H:MM:SS or D-HH:MM:SS", "LIMIT", _LIMIT),
        "Time limit of the job, such as 2:00:00. Default: estimated from the plan.",
    )
    lost_after: float = option(
        Seconds(1),
        "Abort if the login node is silent for SECONDS.",
        RARE,
        default="300",
        only="run",
    )
    start_timeout: float | None = start_timeout("a job that has not started")


@frozen
class QueueOptions(LoginOptions, InstanceOptions):
    """Options of the launchers and formats that submit their script to a queue."""

    without = ("hosts", "silence_s")  # The system chooses the hosts; a script has no silence limit

    queue: str | None = option(
        name_in("the batch system"), "Queue of the job. Default: the system's default."
    )


def seconds_of(limit: str) -> int:
    """Return the seconds of a time limit: minutes, M:SS, H:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    days, dash, clock = limit.rpartition("-")
    numbers = [int(part) for part in clock.split(":")]
    units = [3600, 60, 1]
    if not dash and len(numbers) < len(units):  # minutes come first only if no days do
        units = [60, 1]
    pairs = zip(numbers, units, strict=False)  # the last units may be left out
    of_the_day = sum(number * unit for number, unit in pairs)
    return int(days or 0) * 86400 + of_the_day


def declared_options(plugins: Mapping[str, Any], *names: str) -> Launchers:
    """Return the options of launchers or formats, by name, without importing built-in ones.

    A built-in one declares them in its package, as the first of `names` (``FORMAT_OPTIONS``) that
    exists, or ``OPTIONS``; others as their attribute `options`. One that cannot be loaded has none:
    it reports why when it is used.
    """
    options: dict[str, type[LauncherOptions]] = {}
    for name in plugins:
        builtin = (
            plugins.in_package(name, *names, "OPTIONS") if isinstance(plugins, Plugins) else None
        )
        try:
            options[name] = builtin or plugins[name].options
        except RequestError:
            options[name] = LauncherOptions
    return options
