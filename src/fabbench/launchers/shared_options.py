"""Options that several launchers and formats have, and those of each one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabbench.model.errors import RequestError
from fabbench.model.option_types import INSTANCE_TYPE, Seconds
from fabbench.model.options import LauncherOptions, option
from fabbench.model.plugins import Plugins


@dataclass(frozen=True, kw_only=True)
class InstanceOptions(LauncherOptions):
    """Hosts whose devices the catalog knows by their instance type: every format has these."""

    instance_type: str = option(
        INSTANCE_TYPE,
        "EC2 instance type, such as p5.48xlarge, which determines the number of GPUs and EFA "
        "interfaces. On a cluster, use only nodes of this type.",
        unset="",
    )


def start_timeout(what: str, default: str | None = None) -> Any:
    """Declare how long to wait for the start of `what`."""
    return option(Seconds(1), f"Give up on {what} after SECONDS.", default=default, only="run")


def declared_options(places: Mapping[str, Any], *names: str) -> Mapping[str, type[LauncherOptions]]:
    """Return the options of launchers or formats, by their names. Own ones are not imported for it.

    An own one has them in its package, as the first of `names` that is there, or ``OPTIONS``; others as their
    attribute `options`. One that cannot be loaded has none: it says why when it is used.
    """
    found: dict[str, type[LauncherOptions]] = {}
    for name in places:
        own = places.in_package(name, *names, "OPTIONS") if isinstance(places, Plugins) else None
        try:
            found[name] = own or places[name].options
        except RequestError:
            found[name] = LauncherOptions
    return found
