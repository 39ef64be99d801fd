"""What is found without a list of it: modules of a package of fabbench's, and what other packages offer.

A module (or package) that ends in ``LAUNCHER = …``, or as its package calls it, is found where it lies. Other
distributions offer the same objects as entry points (https://packaging.python.org/specifications/entry-points):
the group says what they are, the entry point's name is theirs. They are loaded when they are asked for.
"""

import importlib
import pkgutil
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fabbench.errors import RequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
_MOST_NAMED = 3


class PluginWarning(UserWarning):
    """Something that another distribution offers cannot be used."""


def entry_points(group: str) -> Mapping[str, "EntryPoint"]:
    """Give what installed distributions offer in a group, by name. Nothing of it is loaded."""
    from importlib import metadata

    return {entry.name: entry for entry in metadata.entry_points(group=group)}


def load(entry: "EntryPoint", wanted: type) -> Any:
    """Load one entry point, and see that it has all that a `wanted` has.

    Raises RequestError that names it, whatever is wrong with it.
    """
    source = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    what = f"{entry.group}: {entry.name} of {source} ({entry.value})"
    hint = f"Update {entry.dist.name if entry.dist else 'it'}, or uninstall it."
    try:
        found = entry.load()
    except Exception as error:  # foreign code may raise anything
        told = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise RequestError(f"{what} cannot be loaded: {told}.", hint=hint) from error
    missing = [name for name in vars(wanted) if not name.startswith("_") and not hasattr(found, name)]
    if missing:
        raise RequestError(f"{what} has no {' and no '.join(missing[:_MOST_NAMED])}.", hint=hint)
    if getattr(found, "name", entry.name) != entry.name:
        raise RequestError(f"{what} calls itself {found.name}.", hint=hint)
    return found


class Plugins(Mapping[str, T], Generic[T]):
    """Objects of one kind by name: fabbench's own, and those of other distributions.

    Asking for one that cannot be loaded raises RequestError. fabbench's own names cannot be taken.
    """

    def __init__(self, package: str, attribute: str, *, group: str, wanted: type, skip: str = "") -> None:
        """Look through a package's modules; those whose name ends in `skip`, if it is given, are left out."""
        self._own: Final = _modules(package, attribute, skip)
        self._entries: Final = {
            name: entry for name, entry in entry_points(group).items() if name not in self._own
        }
        self._wanted: Final = wanted
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            found: T = self._own[name]
            return found
        if name not in self._loaded:
            self._loaded[name] = load(self._entries[name], self._wanted)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._entries

    def __len__(self) -> int:
        return len(self._own) + len(self._entries)

    def usable(self) -> dict[str, T]:
        """Load them all. What cannot be loaded is left out, and warned of."""
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except RequestError as error:
                warnings.warn(f"{error} {error.hint}", PluginWarning, stacklevel=2)
        return found


def _modules(package: str, attribute: str, skip: str) -> dict[str, Any]:
    """Give what the modules of a package end in, by its own name."""
    found = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if skip and module.name.endswith(skip):
            continue
        each = getattr(importlib.import_module(f"{package}.{module.name}"), attribute, None)
        if each is not None:
            found[each.name] = each
    return found
