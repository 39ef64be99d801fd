"""The JSON documents of a run directory: written whole or not at all, and read with distrust.

Whoever reads one may meet what another release wrote, what a full disk cut, or what somebody edited. Keys
that are not known are left out; a value of another kind than it should have is damage, said in a sentence.
"""

import json
import os
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fabbench.model.errors import MachineError
from fabbench.model.messages import one_line

ENVIRONMENT_VARIABLE = "FABBENCH_STORE"
_LONGEST = 40
"""Characters of a wrong value that are shown."""
_LARGEST = 1 << 28
_PLAIN = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}

T = TypeVar("T")


def write(path: Path, document: Any, *, indent: int | None = 1) -> None:
    """Write a file so that it is there whole, or not at all."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_plain) + "\n"
    unfinished = path.with_name(f".{path.name}.unfinished")
    # What is no UTF-8 in an argument (a lone surrogate) is an escape of JSON.
    with unfinished.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def unwritable(path: Path, error: OSError) -> MachineError:
    """Return the error for something of a run that cannot be stored."""
    return MachineError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint=f"Free some space, or specify another directory with --store or {ENVIRONMENT_VARIABLE}.",
    )


def read(path: Path) -> Mapping[str, Any]:
    """Read a document. Raise MachineError where it cannot be read, or holds no object of JSON."""
    try:
        if path.stat().st_size > _LARGEST:
            raise MachineError(f"{path} is damaged: it is larger than {_LARGEST >> 20} MiB.")
        document = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{path} is damaged: {error}.") from error
    if not isinstance(document, dict):
        raise MachineError(f"{path} is damaged: it holds no object.")
    return document


def decode(kind: type[T], value: Any, place: str) -> T:
    """Return a value of JSON as a value of `kind`. `place` names it: ``run.json: ending``.

    `kind` is a frozen dataclass, a plain type, or one of these in a tuple, mapping or union. Raise
    MachineError for a value of another kind, and where a field without a default is missing.
    """
    return cast("T", _decode(kind, value, place))


def _decode(kind: Any, value: Any, place: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or (kind is not float and type(value) is kind):
        return value
    if origin in {Union, types.UnionType}:
        return _decode_union(inner, value, place)
    if is_dataclass(kind):
        return _decode_fields(cast("type", kind), value, place)
    if isinstance(origin, type):
        return _decode_many(origin, inner, value, place)
    if kind is float and type(value) in {int, float}:
        return _float(value, place)
    return _wrong(value, _PLAIN[kind], place)


def _decode_many(origin: type, inner: Sequence[Any], value: Any, place: str) -> Any:
    """Make a mapping, or a tuple for any other collection."""
    if issubclass(origin, Mapping):
        items = _of(dict, value, "an object", place).items()
        return {name: _decode(inner[1], item, f"{place}.{name}") for name, item in items}
    listed = _of(list, value, "a list", place)
    return tuple(_decode(inner[0], item, f"{place}[{index}]") for index, item in enumerate(listed))


def _of(kind: type[T], value: Any, wanted: str, place: str) -> T:
    return value if isinstance(value, kind) else _wrong(value, wanted, place)


def _decode_union(kinds: Sequence[Any], value: Any, place: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    exact = next((kind for kind in others if type(value) is kind), others[0])
    return _decode(exact, value, place)


def _decode_fields(kind: type, value: Any, place: str) -> Any:
    """Make a dataclass of an object. Unknown keys are those of another release, and left out."""
    document = _of(dict, value, "an object", place)
    hints, given = get_type_hints(kind), {}
    for field in fields(kind):
        if field.name in document:
            given[field.name] = _decode(hints[field.name], document[field.name], f"{place}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise MachineError(f"{place} has no {field.name}.")
    return kind(**given)


def _float(value: float, place: str) -> float:
    try:
        return float(value)
    except OverflowError:
        return _wrong(value, "a number", place)


def _wrong(value: Any, wanted: str, place: str) -> NoReturn:
    text = one_line(repr(value))
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    raise MachineError(f"{place} is {cut}; expected {wanted}.")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
