"""The JSON schema of `fabbench.yaml`, from the declared options."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabbench.config.sections import (
    ABOUT,
    LAUNCHER,
    OPTIONS,
    TARGET_NAME,
    Config,
    Defaults,
    options_of,
)
from fabbench.model.options import Flag, LauncherOptions, Option, Text, declared
from fabbench.model.plan import Variant
from fabbench.plan.request import NAME, TAKEN


def schema(
    launchers: Mapping[str, type[LauncherOptions]],
    benchmarks: Mapping[str, Mapping[str, Option]],
) -> dict[str, Any]:
    """Return the JSON schema of `fabbench.yaml` (draft 7, which editors support best).

    It checks less than the loader: neither that a default exists nor how ranges of hosts are
    written.
    """
    defaults = _properties(declared(Defaults).values())
    defaults["run"] = _described("run", _run_schema(benchmarks))
    variants = {
        "type": ["object", "null"],
        "propertyNames": {"pattern": NAME.pattern, "not": {"enum": sorted(TAKEN)}},
        "additionalProperties": _object(_properties(declared(Variant).values())),
    }
    sections = {
        **_properties(declared(Config).values()),
        "defaults": _described("defaults", _object(defaults)),
        "variants": _described("variants", variants),
        "targets": _described("targets", _targets_schema(launchers)),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fabbench.yaml",
        "description": "Targets and defaults of fabbench.",
        **_object(sections),
    }


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": ["object", "null"],
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _described(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": ABOUT[key][1], **value}


def _properties(options: Iterable[Option]) -> dict[str, Any]:
    return {each.key: each.schema() for each in options if each.only != "render"}


def _run_schema(benchmarks: Mapping[str, Mapping[str, Option]]) -> dict[str, Any]:
    """Return an object of each benchmark's options, without those that all of them have."""
    shared = _shared_by_all([*benchmarks.values()])
    schemas: dict[str, Any] = {}
    for benchmark, options in benchmarks.items():
        properties = {
            name: _value_schema(each) for name, each in options.items() if name not in shared
        }
        schemas[benchmark] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": _SEVERAL,
        }
    return {"type": "object", "properties": schemas, "additionalProperties": {"type": "object"}}


_SIMPLE: Mapping[str, Any] = {"type": ["string", "number", "boolean"]}
_SEVERAL = {"anyOf": [_SIMPLE, {"type": "array", "items": _SIMPLE}]}


def _shared_by_all(benchmarks: Sequence[Mapping[str, Option]]) -> set[str]:
    """Return the names of options that all benchmarks declare alike."""
    first, *others = benchmarks
    shared = set(first)
    for options in others:
        shared = {name for name in shared if options.get(name) == first[name]}
    return shared


def _value_schema(option: Option) -> dict[str, Any]:
    """Return what `defaults.run` may have for an option of a benchmark."""
    value = _SEVERAL if option.many else _SIMPLE
    if isinstance(option.type, Flag):
        value = {"type": "boolean"}
    return {"description": option.help, **value}


def _targets_schema(launchers: Mapping[str, type[LauncherOptions]]) -> dict[str, Any]:
    """Return an object of targets, each with the conditions that its launcher sets."""
    by_launcher = {name: _by_key(kind) for name, kind in launchers.items()}
    every: dict[str, Option] = {}
    for options in by_launcher.values():
        every |= options
    properties = _properties(every.values())
    conditions: list[dict[str, Any]] = []
    for key in properties:
        foreign = [name for name, options in by_launcher.items() if key not in options]
        if foreign:
            then = {"properties": {LAUNCHER: {"not": {"enum": foreign}}}}
            conditions.append({"if": {"required": [key]}, "then": then})
    for name, kind in launchers.items():
        if kind.requires:
            only = {"properties": {LAUNCHER: {"enum": [name]}}}
            conditions.append({"if": only, "then": {"required": list(kind.requires)}})
    known = {"anyOf": [{"enum": list(launchers)}, Text().schema]}
    target = {
        **_object(
            {
                LAUNCHER: _described(LAUNCHER, known),
                **properties,
                OPTIONS: _described(OPTIONS, {"type": "object"}),
            }
        ),
        "type": "object",
        "required": [LAUNCHER],
        "allOf": conditions,
    }
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": TARGET_NAME.pattern, "not": {"enum": list(launchers)}},
        "additionalProperties": target,
    }


def _by_key(kind: type[LauncherOptions]) -> dict[str, Option]:
    """Return all options of the targets of a launcher, by their keys."""
    return {each.key: each for each in options_of(kind).values()}
