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
"""Reads the value (second) of a key (first) at a path such as ``targets.prod.port``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known while a file is read, and the mistakes found so far."""

    mistakes: Mistakes
    folder: Path
    """The directory of the file, which its relative paths start from."""
    launchers: Mapping[str, type[LauncherOptions]]
    """Launcher → its options."""
    benchmarks: Mapping[str, Mapping[str, Option]] | None
    """Benchmark → the options of its command, by their long names. None: not checked."""

    def wrong(self, node: Node, path: str, expected: str) -> None:
        """Note that something else was expected."""
        self.mistakes.add(node, f"{path} is {describe(node)}; expected {expected}.")


def read_section(node: Node, path: str, reading: Reading, keys: Mapping[str, Read]) -> dict[str, Any]:
    """Return key → value of the valid entries. An empty section counts as absent."""
    if isinstance(node, Scalar) and node.type == "null":
        return {}
    if not isinstance(node, Entries):
        reading.wrong(node, path or "The file", f"a mapping with some of {', '.join(keys)}")
        return {}
    values: dict[str, Any] = {}
    for name, (key, value) in node.entries.items():
        if name in keys:
            values[name] = keys[name](key, value, f"{path}.{name}".lstrip("."))
        else:
            unknown(key, path, keys, reading)
    return {name: value for name, value in values.items() if value is not None}


def read_names(node: Node, path: str, reading: Reading, expected: str, read: Read) -> dict[str, Any]:
    """Read a mapping whose keys are names that the user chose."""
    if isinstance(node, Scalar) and node.type == "null":
        return {}
    if not isinstance(node, Entries):
        reading.wrong(node, path, expected)
        return {}
    values = {name: read(key, value, f"{path}.{name}") for name, (key, value) in node.entries.items()}
    return {name: value for name, value in values.items() if value is not None}


def option_keys(kind: type, reading: Reading, *, without: Collection[str] = ()) -> dict[str, Read]:
    """Return readers for the options of a dataclass, by their keys."""
    options = (each for name, each in declared(kind).items() if name not in without)
    return {each.key: partial(_value, each, reading) for each in options if each.only != "render"}


def typed_keys(options: Mapping[str, Option], reading: Reading) -> dict[str, Read]:
    """Return readers for the options of a command, by their long names.

    Values stay as they would be typed: the command line parses them again.
    """
    return {name: partial(_typed, each, reading) for name, each in options.items()}


def _value(option: Option, reading: Reading, key: Scalar, node: Node, path: str) -> Any:
    del key
    if isinstance(option.type, Hosts):
        return _hosts(option.type, reading, node, path)
    if isinstance(option.type, Environment):
        return _environment(option.type, reading, node, path)
    if not option.many:
        return _scalar(option.type, reading, node, path)
    if not isinstance(node, Items) or not node.items:
        reading.wrong(node, path, option.expected)
        return None
    read = (_scalar(option.type, reading, each, f"{path}[{index}]") for index, each in enumerate(node.items))
    return option.many(value for value in read if value is not None)


def _scalar(type_: Type, reading: Reading, node: Node, path: str, *, scalars: Collection[str] | None = None) -> Any:
    """Return one value. `scalars` are the YAML types that it may have; None: those of `type_`."""
    if isinstance(node, Scalar) and node.type in (scalars or type_.scalars):
        try:
            value = type_.parse(node.text)
        except ValueError as error:
            if str(error):
                reading.mistakes.add(node, f"{path}: {error}.")
                return None
        else:
            return reading.folder / value if isinstance(type_, File) else value
    number = isinstance(node, Scalar) and node.type not in {"str", "null"} and type_.scalars == {"str"}
    reading.wrong(node, path, f"{type_.expected}{' in quotes' if number else ''}")
    return None


_TYPED = frozenset({"str", "int", "float"})


def _typed(option: Option, reading: Reading, key: Scalar, node: Node, path: str) -> Any:
    """Return a value, or several, as checked texts, or whether a flag is set."""
    del key
    if isinstance(option.type, Flag):
        return _scalar(option.type, reading, node, path)
    several = option.many and isinstance(node, Items)
    nodes = node.items if several and isinstance(node, Items) else (node,)
    valid = [_scalar(option.type, reading, each, path, scalars=_TYPED) is not None for each in nodes]
    if not all(valid):
        return None
    texts = tuple(each.text for each in nodes if isinstance(each, Scalar))
    return texts if option.many else texts[0]


def _hosts(type_: Hosts, reading: Reading, node: Node, path: str) -> tuple[str, ...] | None:
    items = node.items if isinstance(node, Items) else (node,)
    if not items:
        reading.mistakes.add(node, f"{path} is an empty list; expected {type_.expected}.")
        return None
    names: dict[str, None] = {}
    for index, item in enumerate(items):
        where = path if item is node else f"{path}[{index}]"
        for name in _scalar(type_, reading, item, where) or ():
            if name in names:
                reading.mistakes.add(item, f"{path} names {name} twice.")
            names[name] = None
    return tuple(names)


def _environment(type_: Environment, reading: Reading, node: Node, path: str) -> Mapping[str, str] | None:
    if not isinstance(node, Entries):
        reading.wrong(node, path, type_.expected)
        return None
    values: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        if not isinstance(value, Scalar) or value.type not in _TYPED:
            quoted = isinstance(value, Scalar)
            reading.wrong(value, f"{path}.{name}", "a number or a string (in quotes)" if quoted else "a string")
            continue
        try:
            values |= type_.parse(f"{name}={value.text}")
        except ValueError:
            text = f"{name!r} in {path} is not the name of an environment variable."
            reading.mistakes.add(key, text)
    return values


def unknown(key: Scalar, path: str, valid: Collection[str], reading: Reading, *, what: str = "key") -> None:
    """Note an unknown name, with the closest known name, and all known ones."""
    import difflib

    # Case and underscores are the most common typos.
    shapes = {name.lower().replace("_", "-"): name for name in valid}
    near = difflib.get_close_matches(key.text.lower().replace("_", "-"), shapes, n=1, cutoff=0.5)
    suggestion = f"; did you mean {shapes[near[0]]}?" if near else "."
    known = ", ".join(valid) or "none"
    where = f"{path}: unknown" if path else "Unknown"
    reading.mistakes.add(key, f"{where} {what} {key.text!r}{suggestion} Valid here: {known}.")


def nested(entries: Mapping[str, tuple[Scalar, Node]], name: str) -> Iterator[tuple[str, tuple[Scalar, Node]]]:
    """Yield entries, with the mapping `name` replaced by those in it."""
    for key, (scalar, value) in entries.items():
        if key == name and isinstance(value, Entries):
            yield from value.entries.items()
        else:
            yield key, (scalar, value)
