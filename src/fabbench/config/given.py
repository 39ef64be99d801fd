"""Values of options, with where each came from: what a command line or a call gives. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from fabbench.config.sections import Values, options_of
from fabbench.model.mappings import Names
from fabbench.model.options import LauncherOptions, Launchers, Option, Options, declared


class Origin(Enum):
    """Where the value of an option is from."""

    USER = auto()
    """The command line, or the call of a function."""
    FILE = auto()
    """`defaults.run` of `fabbench.yaml`: it applies where it has an effect."""
    DEFAULT = auto()
    """The command itself, or an environment variable."""


class Given(NamedTuple):
    """The value of one option."""

    value: Any
    origin: Origin = Origin.USER
    flags: Names = ()
    """As the user wrote it on the command line, such as ``--node``."""


GivenOptions: TypeAlias = Mapping[str, Given]
"""Options by the names of their fields. What has no value is absent."""


def value_of(given: GivenOptions, name: str, default: Any = None) -> Any:
    """Return the value of an option, or `default`."""
    return given[name].value if name in given else default


def values_of(given: GivenOptions, names: Iterable[str]) -> Values:
    """Return the values of those options that have one."""
    return {name: given[name].value for name in names if name in given}


def from_origin(given: GivenOptions, origin: Origin) -> Values:
    """Return the values that are from one origin."""
    names = [name for name, each in given.items() if each.origin is origin]
    return values_of(given, names)


def own_options(kind: type[LauncherOptions], given: GivenOptions) -> LauncherOptions:
    """Return a launcher's own options, from those that a user or the file gives."""
    defaults = from_origin(given, Origin.FILE)
    every = defaults | from_origin(given, Origin.USER)
    names = declared(kind).keys() & every.keys()
    return kind(**{name: every[name] for name in names})


def options_by_name(launchers: Launchers) -> Mapping[str, Options]:
    """Return option → launcher → how it declares it, of all that a command line may have."""
    by_name: defaultdict[str, dict[str, Option]] = defaultdict(dict)
    for launcher, kind in launchers.items():
        for name, option in options_of(kind).items():
            if option.flags:
                by_name[name][launcher] = option
    return by_name
