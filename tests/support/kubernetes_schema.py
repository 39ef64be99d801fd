"""Objects as the client library of Kubernetes sees them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fabbench.catalog.kubernetes_resources import parse_quantity

# In the notations of older and newer versions of the library.
_LIST, _DICT = re.compile(r"[lL]ist\[(.*)\]"), re.compile(r"[dD]ict[(\[](\w+), (.*)[)\]]")
_PLAIN: Mapping[str, type | tuple[type, ...]] = {
    "str": str, "int": int, "bool": bool, "float": (int, float), "object": object, "datetime": str,
}  # fmt: skip
_QUANTITIES = "V1ResourceRequirements"


def schema_problems(value: Any, model: str, path: str = "") -> Iterator[str]:
    """Yield everything in a JSON value that a model, such as ``V1PodSpec``, does not allow.

    Null counts as absent.
    """
    path = path or model
    if value is None:
        return
    if inner := _LIST.fullmatch(model):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is not a list"
            return
        for index, each in enumerate(value):
            yield from schema_problems(each, inner[1], f"{path}[{index}]")
    elif model in _PLAIN:
        expected = _PLAIN[model]
        if not isinstance(value, expected) or (model == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is not a valid {model}"
    elif not isinstance(value, dict):
        yield f"{path}: {value!r} is not a mapping"
    elif inner := _DICT.fullmatch(model):
        for key, each in value.items():
            yield from schema_problems(each, inner[2], f"{path}.{key}")
    else:
        yield from _model_problems(value, model, path)


def _model_problems(value: Mapping[str, Any], model: str, path: str) -> Iterator[str]:
    """Yield the problems of an object's fields."""
    from kubernetes import client

    class_ = getattr(client, model)
    fields = {
        name: class_.openapi_types[attribute] for attribute, name in class_.attribute_map.items()
    }
    for key, each in value.items():
        if key not in fields:
            yield f"{path}: no field {key}"
        elif model == _QUANTITIES and _DICT.fullmatch(fields[key]) and isinstance(each, dict):
            yield from _quantities(each, f"{path}.{key}")
        else:
            yield from schema_problems(each, fields[key], f"{path}.{key}")


def _quantities(amounts: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the problems of amounts of resources, which may also be numbers."""
    for name, amount in amounts.items():
        try:
            parse_quantity(amount)
        except ValueError as error:
            yield f"{path}.{name}: {error}"


def build(value: Any, model: str) -> Any:
    """Make the client library's own object of a value.

    ValueError for what must be there and is not.
    """
    from kubernetes import client

    api: Any = client.ApiClient()
    return api._ApiClient__deserialize(value, model)
