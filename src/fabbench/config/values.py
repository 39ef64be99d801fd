"""Values of `fabbench.yaml`, read as the options that dataclasses declare; mistakes have line and column."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fabbench.config.yaml_tree import Entries, Items, Mistakes, Node, Scalar, describe
from fabbench.model.option_types import Environment, File, Flag, Hosts, Type
from fabbench.model.options import LauncherOptions, Option, declared

Read: TypeAlias = Callable[[Scalar, Node, str], Any]
"""Reads the value (second) of a key (first) that stands at a place such as ``targets.prod.port``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known while a file is read, and the mistakes found so far."""

    mistakes: Mistakes
    folder: Path
    """Where the file lies: what its relative paths begin with."""
    launchers: Mapping[str, type[LauncherOptions]]
    """Launcher → its options."""
    benchmarks: Mapping[str, Mapping[str, Option]] | None
    """Benchmark → the options of its command, by their long names. None: not checked."""

    def wrong(self, node: Node, place: str, wanted: str) -> None:
        """Note that something else is wanted."""
        self.mistakes.add(node, f"{place} is {describe(node)}; expected {wanted}.")


def read_section(
    node: Node, place: str, reading: Reading, keys: Mapping[str, Read], *, wanted: str = "a mapping"
) -> dict[str, Any]:
    """Return key → value, of what is right. A section that is there and empty is as good as absent."""
    if isinstance(node, Scalar) and node.type == "null":
        return {}
    if not isinstance(node, Entries):
        reading.wrong(node, place or "The file", f"{wanted} with some of {', '.join(keys)}")
        return {}
    values: dict[str, Any] = {}
    for name, (key, value) in node.entries.items():
        if name in keys:
            values[name] = keys[name](key, value, f"{place}.{name}".lstrip("."))
        else:
            unknown(key, place, keys, reading)
    return {name: value for name, value in values.items() if value is not None}


def read_names(node: Node, place: str, reading: Reading, wanted: str, read: Read) -> dict[str, Any]:
    """Read a mapping whose keys are names that the user chose."""
    if isinstance(node, Scalar) and node.type == "null":
        return {}
    if not isinstance(node, Entries):
        reading.wrong(node, place, wanted)
        return {}
    found = {name: read(key, value, f"{place}.{name}") for name, (key, value) in node.entries.items()}
    return {name: value for name, value in found.items() if value is not None}


def option_keys(kind: type, reading: Reading, *, without: Collection[str] = ()) -> dict[str, Read]:
    """Return how the options of a dataclass are read, by their keys."""
    options = (each for name, each in declared(kind).items() if name not in without)
    return {each.key: partial(_value, each, reading) for each in options if each.only != "render"}


def typed_keys(options: Mapping[str, Option], reading: Reading) -> dict[str, Read]:
    """Return how options of a command are read, by their long names.

    Values stay as they would be typed: the command line reads them again.
    """
    return {name: partial(_typed, each, reading) for name, each in options.items()}


def _value(option: Option, reading: Reading, key: Scalar, node: Node, place: str) -> Any:
    del key
    if isinstance(option.type, Hosts):
        return _hosts(option.type, reading, node, place)
    if isinstance(option.type, Environment):
        return _environment(option.type, reading, node, place)
    if not option.many:
        return _scalar(option.type, reading, node, place)
    if not isinstance(node, Items) or not node.items:
        reading.wrong(node, place, option.wanted)
        return None
    read = (_scalar(option.type, reading, each, f"{place}[{index}]") for index, each in enumerate(node.items))
    return option.many(value for value in read if value is not None)


def _scalar(
    type_: Type, reading: Reading, node: Node, place: str, *, scalars: Collection[str] | None = None
) -> Any:
    """Return one value. `scalars` is what YAML may take it for; None: what its type says."""
    if isinstance(node, Scalar) and node.type in (scalars or type_.scalars):
        try:
            value = type_.parse(node.text)
        except ValueError as error:
            if str(error):
                reading.mistakes.add(node, f"{place}: {error}.")
                return None
        else:
            return reading.folder / value if isinstance(type_, File) else value
    number = isinstance(node, Scalar) and node.type not in {"str", "null"} and type_.scalars == {"str"}
    reading.wrong(node, place, f"{type_.wanted}{' in quotes' if number else ''}")
    return None


_TYPED = frozenset({"str", "int", "float"})


def _typed(option: Option, reading: Reading, key: Scalar, node: Node, place: str) -> Any:
    """Return a value, or several, as texts that were looked at, or whether a flag is there."""
    del key
    if isinstance(option.type, Flag):
        return _scalar(option.type, reading, node, place)
    several = option.many and isinstance(node, Items)
    nodes = node.items if several and isinstance(node, Items) else (node,)
    right = [_scalar(option.type, reading, each, place, scalars=_TYPED) is not None for each in nodes]
    if not all(right):
        return None
    texts = tuple(each.text for each in nodes if isinstance(each, Scalar))
    return texts if option.many else texts[0]


def _hosts(type_: Hosts, reading: Reading, node: Node, place: str) -> tuple[str, ...] | None:
    items = node.items if isinstance(node, Items) else (node,)
    if not items:
        reading.mistakes.add(node, f"{place} is an empty list; expected {type_.wanted}.")
        return None
    names: dict[str, None] = {}
    for index, item in enumerate(items):
        where = place if item is node else f"{place}[{index}]"
        for name in _scalar(type_, reading, item, where) or ():
            if name in names:
                reading.mistakes.add(item, f"{place} names {name} twice.")
            names[name] = None
    return tuple(names)


def _environment(type_: Environment, reading: Reading, node: Node, place: str) -> Mapping[str, str] | None:
    if not isinstance(node, Entries):
        reading.wrong(node, place, type_.wanted)
        return None
    values: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        if not isinstance(value, Scalar) or value.type not in _TYPED:
            quoted = isinstance(value, Scalar)
            reading.wrong(
                value, f"{place}.{name}", "a number or a string (in quotes)" if quoted else "a string"
            )
            continue
        try:
            values |= type_.parse(f"{name}={value.text}")
        except ValueError:
            text = f"{name!r} in {place} is not the name of an environment variable."
            reading.mistakes.add(key, text)
    return values


def unknown(key: Scalar, place: str, valid: Collection[str], reading: Reading, *, what: str = "key") -> None:
    """Note a name that is not known: with the nearest that is, and all that are."""
    import difflib

    # Case and underscores are how names are mistyped most.
    shapes = {name.lower().replace("_", "-"): name for name in valid}
    near = difflib.get_close_matches(key.text.lower().replace("_", "-"), shapes, n=1, cutoff=0.5)
    suggestion = f"; did you mean {shapes[near[0]]}?" if near else "."
    known = ", ".join(valid) or "none"
    where = f"{place}: unknown" if place else "Unknown"
    reading.mistakes.add(key, f"{where} {what} {key.text!r}{suggestion} Valid here: {known}.")


def nested(
    entries: Mapping[str, tuple[Scalar, Node]], name: str
) -> Iterator[tuple[str, tuple[Scalar, Node]]]:
    """Yield entries, and in place of the mapping `name` those in it."""
    for key, (scalar, value) in entries.items():
        if key == name and isinstance(value, Entries):
            yield from value.entries.items()
        else:
            yield key, (scalar, value)
