"""Objects of Kubernetes against the models of its client library: unknown fields, values of other types."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fabbench.pods.quantity import quantity

# As older and newer versions of the library write it.
_LIST, _DICT = re.compile(r"[lL]ist\[(.*)\]"), re.compile(r"[dD]ict[(\[](\w+), (.*)[)\]]")
_PLAIN: Mapping[str, type | tuple[type, ...]] = {
    "str": str, "int": int, "bool": bool, "float": (int, float), "object": object, "datetime": str,
}  # fmt: skip
_QUANTITIES = "V1ResourceRequirements"


def problems(value: Any, model: str, path: str = "") -> Iterator[str]:
    """Name everything in a value in JSON form that a model, such as ``V1PodSpec``, does not allow.

    Null is as good as absent.
    """
    path = path or model
    if value is None:
        return
    if inner := _LIST.fullmatch(model):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for index, each in enumerate(value):
            yield from problems(each, inner[1], f"{path}[{index}]")
    elif model in _PLAIN:
        expected = _PLAIN[model]
        if not isinstance(value, expected) or (model == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is no {model}"
    elif not isinstance(value, dict):
        yield f"{path}: {value!r} is no mapping"
    elif inner := _DICT.fullmatch(model):
        for key, each in value.items():
            yield from problems(each, inner[2], f"{path}.{key}")
    else:
        yield from _fields(value, model, path)


def _fields(value: Mapping[str, Any], model: str, path: str) -> Iterator[str]:
    """Go through the fields of an object."""
    from kubernetes import client

    found = getattr(client, model)
    fields = {name: found.openapi_types[own] for own, name in found.attribute_map.items()}
    for key, each in value.items():
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            yield f"{path}: no field {key}{meant}"
        elif model == _QUANTITIES and _DICT.fullmatch(fields[key]) and isinstance(each, dict):
            yield from _quantities(each, f"{path}.{key}")
        else:
            yield from problems(each, fields[key], f"{path}.{key}")


def _quantities(amounts: Mapping[str, Any], path: str) -> Iterator[str]:
    """Amounts of resources, which may also be numbers."""
    for name, amount in amounts.items():
        try:
            quantity(amount)
        except ValueError as error:
            yield f"{path}.{name}: {error}"
