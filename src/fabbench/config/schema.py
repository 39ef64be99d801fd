"""The JSON schema of `fabbench.yaml`, from the declared options."""

from collections.abc import Iterable, Mapping
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
    launchers: Mapping[str, type[LauncherOptions]], benchmarks: Mapping[str, Mapping[str, Option]]
) -> dict[str, Any]:
    """Return the JSON schema of `fabbench.yaml` (draft 7, which editors support best).

    It checks less than the loader: neither that a default exists nor how ranges of hosts are
    written.
    """
    defaults = {
        **_properties(declared(Defaults).values()),
        "run": _described("run", _run_schema(benchmarks)),
    }
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
    """Return an object of objects.

    The options of each benchmark, without those that all of them have.
    """
    simple: dict[str, Any] = {"type": ["string", "number", "boolean"]}
    several = {"anyOf": [simple, {"type": "array", "items": simple}]}
    first, *others = benchmarks.values()
    shared = {
        name for name, each in first.items() if all(known.get(name) == each for known in others)
    }
    schemas: dict[str, Any] = {}
    for benchmark, options in benchmarks.items():
        properties = {
            name: {
                "description": each.help,
                **(
                    {"type": "boolean"}
                    if isinstance(each.type, Flag)
                    else several
                    if each.many
                    else simple
                ),
            }
            for name, each in options.items()
            if name not in shared
        }
        schemas[benchmark] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": several,
        }
    return {"type": "object", "properties": schemas, "additionalProperties": {"type": "object"}}


def _targets_schema(launchers: Mapping[str, type[LauncherOptions]]) -> dict[str, Any]:
    """Return an object of targets, each with the conditions that its launcher sets."""
    options = {name: options_of(kind) for name, kind in launchers.items()}
    every = {each.key: each for known in options.values() for each in known.values()}
    conditions: list[dict[str, Any]] = []
    for key in _properties(every.values()):
        foreign = [
            name
            for name, known in options.items()
            if key not in {each.key for each in known.values()}
        ]
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
                LAUNCHER: _described(
                    LAUNCHER, {"anyOf": [{"enum": list(launchers)}, Text().schema]}
                ),
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
        "propertyNames": {"pattern": TARGET_NAME.pattern, "not": {"enum": list(launchers)}},
        "additionalProperties": target,
    }
