"""Objects against the models of the kubernetes client library: unknown fields, values of other types."""

import re
from collections.abc import Iterator
from typing import Any

# As older and newer versions of the library write it.
_LIST, _DICT = re.compile(r"[lL]ist\[(.*)\]"), re.compile(r"[dD]ict[(\[](\w+), (.*)[)\]]")
_PLAIN: dict[str, type | tuple[type, ...]] = {
    "str": str, "int": int, "bool": bool, "float": (int, float), "object": object, "datetime": str,
}  # fmt: skip


def problems(value: Any, model: str, path: str = "") -> Iterator[str]:
    """Name everything in a value in JSON form that a model does not allow."""
    from kubernetes import client

    path = path or model
    if inner := _LIST.fullmatch(model):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for index, each in enumerate(value):
            yield from problems(each, inner[1], f"{path}[{index}]")
    elif inner := _DICT.fullmatch(model):
        for key, each in value.items():
            yield from problems(each, inner[2], f"{path}.{key}")
    elif model in _PLAIN:
        expected = _PLAIN[model]
        if not isinstance(value, expected) or (model == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is no {model}"
    else:
        found = getattr(client, model)
        fields = {name: found.openapi_types[own] for own, name in found.attribute_map.items()}
        for key, each in value.items():
            if key in fields:
                yield from problems(each, fields[key], f"{path}.{key}")
            else:
                yield f"{path}: no field {key}"


def build(value: Any, model: str) -> Any:
    """Make the client library's own object of a value; ValueError for what must be there and is not."""
    from kubernetes import client

    api: Any = client.ApiClient()
    return api._ApiClient__deserialize(value, model)
