"""Plug-ins, found without a list of them.

Modules of fabbench's packages, and what other packages offer.

A module (or package) that ends in ``LAUNCHER = …``, or whatever its parent package calls it, is
found where it is, and named after its package. Other distributions offer the same objects as entry
points (https://packaging.python.org/specifications/entry-points): the group is their kind, and the
entry point's name is theirs. They are loaded on first use.
"""

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from fabbench.model.errors import RequestError
from fabbench.model.values import T

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


# As people call launchers
ALIASES = {
    "k8s": "kubernetes",
    "eks": "kubernetes",
    "sky": "skypilot",
    "sbatch": "slurm",
}


class PluginWarning(UserWarning):
    """Something that another distribution offers cannot be used."""


class Plugins(Mapping[str, T], Generic[T]):
    """Objects of one kind by name: fabbench's own, and those of other distributions.

    Each is imported on first use, which raises RequestError for one that cannot be loaded. Other
    distributions cannot replace fabbench's own names.
    """

    def __init__(
        self, package: str, attribute: str, *, group: str, protocol: type, home: str = ""
    ) -> None:
        """Search `package`: modules `home` of the packages below it, or all modules.

        Without `home`, only importing a module tells whether it has the `attribute`. `group` is
        that of the entry points of other distributions, whose objects must have all of `protocol`.
        """
        self._attribute = attribute
        self._protocol = protocol
        self._home = home
        self._builtin = _modules(package, home)
        offered = _offered(group).items()
        self._entries = {name: entry for name, entry in offered if name not in self._builtin}
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        # A plug-in is imported when it is first used, and then kept.
        if name not in self._loaded:
            if name in self._builtin:
                plugin = self._import(name)
            else:
                plugin = _load(self._entries[name], self._protocol)
            if plugin is None:  # a module that defines none
                raise KeyError(name)
            self._loaded[name] = plugin
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        for name in self._builtin:
            # Without a home, a module may be there and define none.
            if self._home or self._import(name) is not None:
                yield name
        yield from self._entries

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def usable(self) -> dict[str, T]:
        """Load them all. Those that cannot be loaded are left out, with a warning."""
        loaded = {}
        for name in self:
            try:
                loaded[name] = self[name]
            except RequestError as error:
                warnings.warn(error.with_hint, PluginWarning, stacklevel=2)
        return loaded

    def in_package(self, name: str, *attributes: str) -> Any | None:
        """Return the first of `attributes` in the package of a built-in one.

        Its home is not imported.
        """
        if name not in self._builtin:
            return None
        package = self._builtin[name].rpartition(".")[0]
        namespace = vars(importlib.import_module(package))
        return next(
            (namespace[attribute] for attribute in attributes if attribute in namespace), None
        )

    def _import(self, name: str) -> Any | None:
        return getattr(importlib.import_module(self._builtin[name]), self._attribute, None)


def _modules(package: str, home: str) -> dict[str, str]:
    """Return the modules that may define one: its name → the module's.

    It is named after the package of its module, or without `home` as the module.
    """
    path = importlib.import_module(package).__path__
    if not home:
        return {module.name: f"{package}.{module.name}" for module in pkgutil.iter_modules(path)}
    names = (module.name for module in pkgutil.walk_packages(path, f"{package}."))
    return {name.split(".")[-2]: name for name in names if name.endswith(f".{home}")}


def _offered(group: str) -> Mapping[str, "EntryPoint"]:
    """Return what installed distributions offer in a group, by name. Nothing of it is loaded."""
    # importlib.metadata would take 40 ms of a start to tell.
    header = f"[{group}]".encode()
    if not any(header in file.read_bytes() for file in _entry_points_files()):
        return {}
    from importlib import metadata

    return {entry.name: entry for entry in metadata.entry_points(group=group)}


def _entry_points_files() -> Iterator[Path]:
    for folder in sys.path:
        yield from Path(folder).glob("*-info/entry_points.txt")


def _load(entry: "EntryPoint", protocol: type) -> Any:
    """Load one entry point.

    Raise RequestError, naming it, unless it has everything that `protocol` has.
    """
    name = entry.dist.name if entry.dist else "an unknown distribution"
    version = entry.dist.version if entry.dist else ""
    what = f"{entry.group}: {entry.name} of {name} {version} ({entry.value})"
    hint = f"Update {name}, or uninstall it."
    try:
        loaded = entry.load()
    except Exception as error:  # foreign code may raise anything
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise RequestError(f"{what} cannot be loaded: {reason}.", hint=hint) from error
    public = (name for name in vars(protocol) if not name.startswith("_"))
    missing = [attribute for attribute in public if not hasattr(loaded, attribute)]
    if missing:
        lacking = " and no ".join(missing[:3])
        raise RequestError(f"{what} has no {lacking}.", hint=hint)
    if getattr(loaded, "name", entry.name) != entry.name:
        raise RequestError(f"{what} reports the name {loaded.name}.", hint=hint)
    return loaded
