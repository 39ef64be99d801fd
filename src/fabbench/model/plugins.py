"""Plug-ins, found without a list of them: modules of fabbench's packages, and what other packages offer.

A module (or package) that ends in ``LAUNCHER = …``, or whatever its parent package calls it, is found where
it is, and named after its package. Other distributions offer the same objects as entry points
(https://packaging.python.org/specifications/entry-points): the group is their kind, and the entry point's
name is theirs. They are loaded on first use.
"""

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fabbench.model.errors import RequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

ALIASES = {"k8s": "kubernetes", "eks": "kubernetes", "sky": "skypilot", "sbatch": "slurm"}
"""Names that people use for launchers and formats."""


class PluginWarning(UserWarning):
    """Something that another distribution offers cannot be used."""


def entry_points(group: str) -> Mapping[str, "EntryPoint"]:
    """Return what installed distributions offer in a group, by name. Nothing of it is loaded."""
    if not _offered():
        return {}
    from importlib import metadata

    return {entry.name: entry for entry in metadata.entry_points(group=group)}


@cache
def _offered() -> bool:
    """Return whether a distribution offers anything: importlib.metadata takes 40 ms of a start to tell."""
    found = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    return any(b"[fabbench." in file.read_bytes() for file in found)


def load(entry: "EntryPoint", protocol: type) -> Any:
    """Load one entry point, and check that it has everything that `protocol` has.

    Raise RequestError that names it if anything is wrong with it.
    """
    source = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    what = f"{entry.group}: {entry.name} of {source} ({entry.value})"
    hint = f"Update {entry.dist.name if entry.dist else 'it'}, or uninstall it."
    try:
        loaded = entry.load()
    except Exception as error:  # foreign code may raise anything
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise RequestError(f"{what} cannot be loaded: {reason}.", hint=hint) from error
    missing = [name for name in vars(protocol) if not name.startswith("_") and not hasattr(loaded, name)]
    if missing:
        raise RequestError(f"{what} has no {' and no '.join(missing[:3])}.", hint=hint)
    if getattr(loaded, "name", entry.name) != entry.name:
        raise RequestError(f"{what} reports the name {loaded.name}.", hint=hint)
    return loaded


class Plugins(Mapping[str, T], Generic[T]):
    """Objects of one kind by name: fabbench's own, and those of other distributions.

    Each is imported on first use, which raises RequestError for one that cannot be loaded. Other
    distributions cannot replace fabbench's own names.
    """

    def __init__(self, package: str, attribute: str, *, group: str, protocol: type, home: str = "") -> None:
        """Search the packages below a package for the module `home` of each.

        Without `home`, every module or package below it may define one: only importing it shows that.
        """
        self._attribute = attribute
        self._has_home = bool(home)
        self._builtin = _modules(package, home)
        self._entries = {name: entry for name, entry in entry_points(group).items() if name not in self._builtin}
        self._protocol = protocol
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            plugin = self._import(name) if name in self._builtin else load(self._entries[name], self._protocol)
            if plugin is None:
                raise KeyError(name)
            self._loaded[name] = plugin
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._builtin or self._has_home:
            return name in self._builtin or name in self._entries
        return self._import(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._builtin if name in self)
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
                warnings.warn(f"{error} {error.hint}", PluginWarning, stacklevel=2)
        return loaded

    def in_package(self, name: str, *attributes: str) -> Any | None:
        """Return the first of `attributes` in the package of a built-in one, without importing its home."""
        if name not in self._builtin or not self._has_home:
            return None
        namespace = vars(importlib.import_module(self._builtin[name].rpartition(".")[0]))
        return next((namespace[attribute] for attribute in attributes if attribute in namespace), None)

    def _import(self, name: str) -> Any | None:
        return getattr(importlib.import_module(self._builtin[name]), self._attribute, None)


def _modules(package: str, home: str) -> dict[str, str]:
    """Return the modules that may define one, by the name of their package, or by their own without `home`.

    Nested packages are searched as well.
    """
    modules: dict[str, str] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        name = f"{package}.{module.name}"
        if module.ispkg and home:
            modules |= _modules(name, home)
        elif module.name == home:
            modules[package.rpartition(".")[2]] = name
        elif not home and not module.name.startswith("_"):
            modules[module.name] = name
    return modules
