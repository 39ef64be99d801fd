"""Options that several launchers and formats share, and the options of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabbench.model.errors import RequestError
from fabbench.model.options import INSTANCE_TYPE, LauncherOptions, Seconds, option
from fabbench.model.plugins import Plugins


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


def start_timeout(what: str, default: str | None = None) -> Any:
    """Declare how long to wait for the start of `what`."""
    return option(Seconds(1), f"Give up on {what} after SECONDS.", default=default, only="run")


def declared_options(
    plugins: Mapping[str, Any], *names: str
) -> Mapping[str, type[LauncherOptions]]:
    """Return the options of launchers or formats, by name, without importing built-in ones.

    A built-in one declares them in its package, as the first of `names` that exists, or
    ``OPTIONS``; others as their attribute `options`. One that cannot be loaded has none: it reports
    why when it is used.
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
