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
from fabbench.model.options import Flag, LauncherOptions, Option, declared
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
    defaults = _option_schemas(declared(Defaults).values())
    defaults["run"] = _with_description("run", _run_schema(benchmarks))
    variants = {
        "type": ["object", "null"],
        "propertyNames": {"pattern": NAME.pattern, "not": {"enum": sorted(TAKEN)}},
        "additionalProperties": _section_schema(_option_schemas(declared(Variant).values())),
    }
    sections = {
        **_option_schemas(declared(Config).values()),
        "defaults": _with_description("defaults", _section_schema(defaults)),
        "variants": _with_description("variants", variants),
        "targets": _with_description("targets", _targets_schema(launchers)),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fabbench.yaml",
        "description": "Targets and defaults of fabbench.",
        **_section_schema(sections),
    }


def _section_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with these keys and no others; null: a section without entries."""
    return {
        "type": ["object", "null"],
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _with_description(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": ABOUT[key][1], **value}  # After what is expected, its meaning


def _option_schemas(options: Iterable[Option]) -> dict[str, Any]:
    return {each.key: each.schema() for each in options if each.only != "render"}


def _run_schema(benchmarks: Mapping[str, Mapping[str, Option]]) -> dict[str, Any]:
    """Return an object of each benchmark's options."""
    schemas: dict[str, Any] = {}
    for benchmark, options in benchmarks.items():
        properties = {name: _value_schema(each) for name, each in options.items()}
        schemas[benchmark] = _section_schema(properties)
    return {"type": "object", "properties": schemas, "additionalProperties": {"type": "object"}}


_SCALAR: Mapping[str, Any] = {"type": ["string", "number", "boolean"]}
_SCALAR_OR_LIST = {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}


def _value_schema(option: Option) -> dict[str, Any]:
    """Return what `defaults.run` may have for an option of a benchmark."""
    value = _SCALAR_OR_LIST if option.many else _SCALAR
    if isinstance(option.type, Flag):
        value = {"type": "boolean"}
    return {"description": option.help, **value}


def _targets_schema(launchers: Mapping[str, type[LauncherOptions]]) -> dict[str, Any]:
    """Return an object of targets, each with the keys of one of the launchers."""
    targets = [_target_schema(name, kind) for name, kind in launchers.items()]
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": TARGET_NAME.pattern, "not": {"enum": list(launchers)}},
        "additionalProperties": {"anyOf": targets},
    }


def _target_schema(launcher: str, kind: type[LauncherOptions]) -> dict[str, Any]:
    properties = {
        LAUNCHER: _with_description(LAUNCHER, {"const": launcher}),
        **_option_schemas(options_of(kind).values()),
        OPTIONS: _with_description(OPTIONS, {"type": "object"}),
    }
    required = [LAUNCHER, *kind.requires]
    return {**_section_schema(properties), "type": "object", "required": required}
