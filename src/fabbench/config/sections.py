"""The sections of `fabbench.yaml`: defaults, variants and targets; and its JSON schema."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fabbench.config.values import Read, Reading, nested, option_keys, read_names, read_section, typed_keys, unknown
from fabbench.config.yaml_tree import Entries, Node, Scalar
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target, options_of
from fabbench.model.option_types import FABRIC, File, Flag, Text, Whole
from fabbench.model.options import LauncherOptions, Option, declared, option
from fabbench.model.plan import Variant
from fabbench.plan.request import NAME, TAKEN, check_name

_TARGET_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
LAUNCHER, OPTIONS = "launcher", "options"
"""Keys of a target that are not options: its launcher, and a mapping for more keys of the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of `fabbench run`."""

    repeat: int | None = option(Whole(1, 999), "Repeats of each configuration (--repeat).")
    fabrics: tuple[str, ...] = option(FABRIC, "Configurations, the first against the last (--fabric).", many=tuple)
    run: Mapping[str, Mapping[str, str | bool | tuple[str, ...]]] = field(default_factory=dict)
    """Benchmark → long name of an option → value as typed; a tuple for an option given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole file."""

    path: Path
    default: str | None = option(Text("the name of a target"), "Where to run without --on and FABBENCH_TARGET.")
    store: Path | None = option(File("a directory"), "Directory where runs are kept, relative to the file.")
    defaults: Defaults = field(default_factory=Defaults)
    targets: Mapping[str, Target] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)


ABOUT: Mapping[str, tuple[str, str]] = MappingProxyType({
    "defaults": ("a mapping", "Defaults of `fabbench run`."),
    "run": (
        "a mapping of benchmarks to their options",
        "Defaults of the options of each benchmark, by their long names.",
    ),
    "variants": ("a mapping of names to variants", "Variants, by the names that --variant takes."),
    "targets": ("a mapping of names to targets", "Places to run, by the names that --on takes."),
    LAUNCHER: ("the name of a launcher", "How to reach its machines and start programs there."),
    OPTIONS: ("a mapping", "More keys of the launcher, as if they were keys of the target."),
})  # fmt: skip
"""Keys that are not options: what is expected, and what they mean."""


def read_file(node: Node, reading: Reading) -> dict[str, Any]:
    """Return the fields of a `Config` that a file has. Anything wrong is added to the mistakes."""
    keys: dict[str, Read] = {
        **option_keys(Config, reading),
        "defaults": lambda _, value, path: _defaults(value, path, reading),
        "variants": lambda key, value, path: read_names(
            value, path, reading, ABOUT[key.text][0], lambda name, each, at: _variant(name, each, at, reading)
        ),
        "targets": lambda key, value, path: read_names(
            value, path, reading, ABOUT[key.text][0], lambda name, each, at: _target(name, each, at, reading)
        ),
    }
    return read_section(node, "", reading, keys)


# ---------------------------------------------------------------- defaults and variants


def _defaults(node: Node, path: str, reading: Reading) -> Defaults:
    keys = {
        **option_keys(Defaults, reading),
        "run": lambda key, value, at: read_names(
            value, at, reading, ABOUT[key.text][0], lambda name, each, of: _benchmark(name, each, of, reading)
        ),
    }
    return Defaults(**read_section(node, path, reading, keys))


def _benchmark(key: Scalar, node: Node, path: str, reading: Reading) -> dict[str, Any] | None:
    known = reading.benchmarks
    if known is None:
        return read_names(
            node,
            path,
            reading,
            "a mapping of options to values",
            lambda _, value, __: value.text if isinstance(value, Scalar) else None,
        )
    if key.text not in known:
        unknown(key, path.rpartition(".")[0], known, reading, what="benchmark")
        return None
    keys = typed_keys(known[key.text], reading)
    if not isinstance(node, Entries):
        reading.wrong(node, path, "a mapping of options to values")
        return None
    for name, (scalar, _) in node.entries.items():
        if name not in keys:
            unknown(scalar, path, keys, reading, what="option")
    valid = {name: entry for name, entry in node.entries.items() if name in keys}
    return read_section(replace(node, entries=valid), path, reading, keys)


def _variant(key: Scalar, node: Node, path: str, reading: Reading) -> Variant | None:
    values = read_section(node, path, reading, option_keys(Variant, reading))
    try:
        check_name(key.text)
    except RequestError as error:
        reading.mistakes.add(key, f"{error} {error.hint}")
        return None
    return Variant(name=key.text, **{name.replace("-", "_"): value for name, value in values.items()})


# ---------------------------------------------------------------- targets


def _target(key: Scalar, node: Node, path: str, reading: Reading) -> Target | None:
    _check_name(key, reading)
    entries = dict(nested(node.entries, OPTIONS)) if isinstance(node, Entries) else {}
    _, named = entries.pop(LAUNCHER, (None, None))
    if OPTIONS in entries:
        reading.wrong(entries.pop(OPTIONS)[1], f"{path}.{OPTIONS}", ABOUT[OPTIONS][0])
    if isinstance(named, Scalar) and named.text not in reading.launchers:
        unknown(named, f"{path}.launcher", sorted(reading.launchers), reading, what="launcher")
        return None
    if not isinstance(node, Entries | Scalar) or (isinstance(node, Scalar) and node.type != "null"):
        reading.wrong(node, path, f"a mapping with some of {LAUNCHER}, {', '.join(declared(Target))}")
        return None
    if not isinstance(named, Scalar) or not isinstance(node, Entries):
        known = ", ".join(sorted(reading.launchers))
        reading.mistakes.add(key, f"{path} has no launcher. Add launcher: and one of {known}.")
        return None
    kind = reading.launchers[named.text]
    keys = {**option_keys(Target, reading, without=kind.without), **option_keys(kind, reading)}
    _check_keys(key, entries, path, named.text, keys, reading)
    valid = {name: entry for name, entry in entries.items() if name in keys}
    values = read_section(replace(node, entries=valid), path, reading, keys)
    fields = {name.replace("-", "_"): value for name, value in values.items()}
    options = {name: fields.pop(name) for name in declared(kind) if name in fields}
    try:
        return Target(name=key.text, launcher=named.text, options=kind(**options), **fields)
    except RequestError as error:
        reading.mistakes.add(key, f"{path}: {error} {error.hint or ''}".rstrip())
        return None


def _check_name(key: Scalar, reading: Reading) -> None:
    name = key.text
    if not _TARGET_NAME.search(name) or "\n" in name:
        text = f"{name!r} cannot be the name of a target: only letters, digits and . _ - can be in it."
        reading.mistakes.add(key, text)
    elif name in reading.launchers:
        text = f"A target cannot be named {name}, which is a launcher: --on {name} means that."
        reading.mistakes.add(key, text)


def _check_keys(  # noqa: PLR0913, PLR0917 - where it is, and what is known there
    key: Scalar,
    entries: Mapping[str, tuple[Scalar, Node]],
    path: str,
    launcher: str,
    keys: Iterable[str],
    reading: Reading,
) -> None:
    """Note keys that are unknown, that belong to another launcher, and that are missing."""
    kind, valid = reading.launchers[launcher], [LAUNCHER, *keys]
    others = {each.key for of in reading.launchers.values() for each in options_of(of).values()}
    for name, (scalar, _) in entries.items():
        if name in valid:
            continue
        if name in others:
            text = f"{path}: {name} means nothing to the launcher {launcher}. Valid here: {', '.join(valid)}."
            reading.mistakes.add(scalar, text)
        else:
            unknown(scalar, path, valid, reading)
    for each in kind.requires:
        option_ = options_of(kind)[each]
        if option_.key not in entries:
            expected = option_.type.expected
            text = f"{path} has no {option_.key}, which the launcher {launcher} needs: {expected}."
            reading.mistakes.add(key, text)


# ---------------------------------------------------------------- JSON schema


def schema(
    launchers: Mapping[str, type[LauncherOptions]], benchmarks: Mapping[str, Mapping[str, Option]]
) -> dict[str, Any]:
    """Return the JSON schema of `fabbench.yaml` (draft 7, which editors support best).

    It checks less than the loader: neither that a default exists nor how ranges of hosts are written.
    """
    defaults = {**_properties(declared(Defaults).values()), "run": _described("run", _run_schema(benchmarks))}
    variants = {
        "type": ["object", "null"],
        "propertyNames": {"pattern": NAME.pattern, "not": {"enum": sorted(TAKEN)}},
        "additionalProperties": _object(_properties(declared(Variant).values())),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fabbench.yaml",
        "description": "Targets and defaults of fabbench.",
        **_object(
            {
                **_properties(declared(Config).values()),
                "defaults": _described("defaults", _object(defaults)),
                "variants": _described("variants", variants),
                "targets": _described("targets", _targets_schema(launchers)),
            }
        ),
    }


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": dict(properties), "additionalProperties": False}


def _described(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": ABOUT[key][1], **value}


def _properties(options: Iterable[Option]) -> dict[str, Any]:
    return {each.key: each.schema() for each in options if each.only != "render"}


def _run_schema(benchmarks: Mapping[str, Mapping[str, Option]]) -> dict[str, Any]:
    """Return an object of objects: the options of each benchmark, without those that all of them have."""
    simple: dict[str, Any] = {"type": ["string", "number", "boolean"]}
    several = {"anyOf": [simple, {"type": "array", "items": simple}]}
    first, *others = benchmarks.values()
    shared = {name for name, each in first.items() if all(known.get(name) == each for known in others)}
    schemas: dict[str, Any] = {}
    for benchmark, options in benchmarks.items():
        properties = {
            name: {
                "description": each.help,
                **({"type": "boolean"} if isinstance(each.type, Flag) else several if each.many else simple),
            }
            for name, each in options.items()
            if name not in shared
        }
        schemas[benchmark] = {"type": "object", "properties": properties, "additionalProperties": several}
    return {"type": "object", "properties": schemas, "additionalProperties": {"type": "object"}}


def _targets_schema(launchers: Mapping[str, type[LauncherOptions]]) -> dict[str, Any]:
    """Return an object of targets, each with the conditions that its launcher sets."""
    options = {name: options_of(kind) for name, kind in launchers.items()}
    every = {each.key: each for known in options.values() for each in known.values()}
    conditions: list[dict[str, Any]] = []
    for key in _properties(every.values()):
        foreign = [name for name, known in options.items() if key not in {each.key for each in known.values()}]
        if foreign:
            then = {"properties": {LAUNCHER: {"not": {"enum": foreign}}}}
            conditions.append({"if": {"required": [key]}, "then": then})
    for name, kind in launchers.items():
        if kind.requires:
            only = {"properties": {LAUNCHER: {"enum": [name]}}}
            conditions.append({"if": only, "then": {"required": list(kind.requires)}})
    target = {
        **_object(
            {
                LAUNCHER: _described(LAUNCHER, {"anyOf": [{"enum": list(launchers)}, Text().schema()]}),
                **_properties(every.values()),
                OPTIONS: _described(OPTIONS, {"type": "object"}),
            }
        ),
        "type": "object",
        "required": [LAUNCHER],
        "allOf": conditions,
    }
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": _TARGET_NAME.pattern, "not": {"enum": list(launchers)}},
        "additionalProperties": target,
    }
