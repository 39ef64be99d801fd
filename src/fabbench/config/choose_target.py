"""Where to run: the target of fabbench.yaml, or what the environment implies."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fabbench.config import FILE_NAME
from fabbench.config.sections import Config
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.options import LauncherOptions
from fabbench.model.plugins import ALIASES

TARGET_VARIABLE = "FABBENCH_TARGET"
_SSH = "ssh"


class Resolved(NamedTuple):
    """Where to run, and why."""

    target: Target
    """From the file, or with nothing but the name of a launcher."""
    why: str
    """Why there, to follow a colon: ``set with --on``."""


def resolve(  # noqa: PLR0913 - each source that may decide
    on: str | None,
    environment: Mapping[str, str],
    config: Config | None,
    *,
    launchers: Mapping[str, type[LauncherOptions]],
    given: Callable[[type[LauncherOptions]], LauncherOptions],
    hosts: bool = False,
) -> Resolved:
    """Return where to run, and why there.

    The first that is set: `on`, FABBENCH_TARGET, the file's default, the first launcher that the environment
    implies. `given` makes a launcher's options from the given ones; `hosts`: whether hosts are named, which
    are reached over ssh. Raise RequestError for a name that is neither a target of the file nor a launcher,
    and if nothing decides: with each source tried.
    """
    for name, why in (
        (on, "set with --on"),
        (environment.get(TARGET_VARIABLE), f"set with {TARGET_VARIABLE}"),
        (config.default if config else None, f"default of {config.path if config else ''}"),
    ):
        if name:
            return _named(name, why, config, launchers)
    file = f"{config.path} has no default" if config else f"there is no {FILE_NAME} here or in ~/.config/fabbench"
    tried = [f"no --on, no --host and no {TARGET_VARIABLE}", file]
    if hosts and _SSH in launchers:
        return Resolved(_bare(_SSH, launchers[_SSH]), "implied by --host")
    in_order = sorted((kind.order, name, kind) for name, kind in launchers.items() if kind.order)
    for _, name, kind in in_order:
        found, sentence = given(kind).surroundings(environment)
        if found:
            return Resolved(_bare(name, kind), sentence)
        tried.append(sentence)
    raise RequestError(
        f"No target: {'; '.join(tried)}.",
        hint=f"Pass --host NODE, or --on: {', '.join(_known(config, launchers))}. For nodes and clean: a cluster.",
    )


def _bare(name: str, kind: type[LauncherOptions]) -> Target:
    return Target(name=name, launcher=name, options=kind())


def _named(name: str, why: str, config: Config | None, launchers: Mapping[str, type[LauncherOptions]]) -> Resolved:
    if config and name in config.targets:
        return Resolved(config.targets[name], why)
    launcher = ALIASES.get(name, name)
    if launcher in launchers:
        return Resolved(_bare(launcher, launchers[launcher]), why)
    known = list(_known(config, launchers))
    near = did_you_mean(nearest(name, (*known, *ALIASES)))
    file = f"in {config.path}" if config else f"in a {FILE_NAME} (none was found)"
    raise RequestError(
        f"Unknown target {name} ({why}): it is neither {file} nor a launcher.",
        hint=f"{near} Known to --on: {', '.join(known)}.".lstrip(),
    )


def _known(config: Config | None, launchers: Mapping[str, type[LauncherOptions]]) -> Iterator[str]:
    yield from config.targets if config else ()
    yield from sorted(launchers)
