"""The JSON schema of `fabbench.yaml`, from the declared options."""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from fabbench.config.sections import (
    ABOUT,
    LAUNCHER,
    OPTIONS,
    Config,
    Defaults,
)
from fabbench.model.hosts import Target
from fabbench.model.options import (
    Choice,
    Environment,
    LauncherOptions,
    Launchers,
    Option,
    Options,
    Truth,
    declared,
)
from fabbench.model.plan import Variant

Schema: TypeAlias = dict[str, Any]
"""A JSON schema, or properties of one: name → its schema."""
_ONE: Schema = {"type": ["string", "number", "boolean"]}
_SEVERAL: Schema = {"anyOf": [_ONE, {"type": "array", "items": _ONE}]}
_RUN_OPTIONS = "run-options"


def schema(
    launchers: Launchers,
    benchmarks: Mapping[str, Options],
) -> Schema:
    """Return the JSON schema of `fabbench.yaml` (draft 7, which editors support best).

    It has the keys and what they mean, and knows little of values: the loader checks these.
    """
    described: Schema = {}
    runs: Schema = {}
    for benchmark, options in benchmarks.items():
        # Each option is described once for all benchmarks.
        described |= {
            word: {"description": each.help, **_SEVERAL} for word, each in options.items()
        }
        runs[benchmark] = {
            "type": ["object", "null"],
            "propertyNames": {"enum": list(options)},
            "allOf": [{"$ref": f"#/definitions/{_RUN_OPTIONS}"}],
        }
    variant = _section_schema(_option_schemas(Variant))
    targets = [_target_schema(name, kind) for name, kind in launchers.items()]
    defaults = _option_schemas(Defaults)
    defaults["run"] = _with_description("run", {**_mapping_to({}), "properties": runs})
    sections = {
        **_option_schemas(Config),
        "defaults": _with_description("defaults", _section_schema(defaults)),
        "variants": _with_description("variants", _mapping_to(variant)),
        "targets": _with_description("targets", _mapping_to({"anyOf": targets})),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fabbench.yaml",
        "description": "Targets and defaults of fabbench.",
        "definitions": {_RUN_OPTIONS: {"properties": described}},
        **_section_schema(sections),
    }


def _section_schema(properties: Schema) -> Schema:
    """Return an object with these keys and no others; null: a section without entries."""
    return {
        "type": ["object", "null"],
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _mapping_to(value: object) -> Schema:
    return {"type": ["object", "null"], "additionalProperties": value}


def _with_description(key: str, value: Schema) -> Schema:
    return {"description": ABOUT[key][1], **value}  # After what is expected, its meaning


def _option_schemas(kind: type, without: Collection[str] = ()) -> Schema:
    """Return the schemas of the options that a dataclass declares, by their keys."""
    of_kind = declared(kind).items()
    options = [each for name, each in of_kind if name not in without]
    return {each.key: _value_schema(each) for each in options if each.for_runs}


def _value_schema(option: Option) -> Schema:
    """Return what an option may have, and what it means."""
    value = _SEVERAL if option.many else _ONE
    if isinstance(option.type, Environment):  # NAME: VALUE, or a list of NAME=VALUE
        value = {"type": ["object", "array"]}
    elif isinstance(option.type, Truth):
        value = {"type": "boolean"}
    elif isinstance(option.type, Choice):
        value = {"enum": list(option.type.names)}
    return {"description": option.help, **value}


def _target_schema(launcher: str, kind: type[LauncherOptions]) -> Schema:
    properties = {
        LAUNCHER: _with_description(LAUNCHER, {"const": launcher}),
        **_option_schemas(Target, kind.without),
        **_option_schemas(kind),
        OPTIONS: _with_description(OPTIONS, {"type": "object"}),
    }
    required = [LAUNCHER, *kind.requires]
    # Other sections may be null. A target may not: it has to name its launcher.
    return {**_section_schema(properties), "type": "object", "required": required}
