"""The JSON documents of a run directory: written atomically, and read defensively.

A document may come from another release, be truncated by a full disk, or have been edited. Unknown keys are
ignored; a value of the wrong type is damage, reported as a sentence.
"""

import errno
import json
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fabbench.model.errors import MachineError
from fabbench.model.messages import one_line

ENVIRONMENT_VARIABLE = "FABBENCH_STORE"
_MAX_SHOWN = 40
_MAX_SIZE = 1 << 28
_PLAIN = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}

T = TypeVar("T")


def write(path: Path, document: Any, *, indent: int | None = 1) -> None:
    """Write a file atomically: completely, or not at all."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_plain) + "\n"
    unfinished = path.with_name(f".{path.name}.unfinished")
    # A character of an argument that is not valid UTF-8 (a lone surrogate) becomes a JSON escape.
    with unfinished.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise MachineError if a part of a run cannot be stored."""
    try:
        yield
    except OSError as error:
        first = "Free some space, or specify" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "Specify"
        hint = f"{first} another directory with --store or {ENVIRONMENT_VARIABLE}."
        raise MachineError(f"{path} cannot be written: {error.strerror or error}.", hint=hint) from error


def read(path: Path) -> Mapping[str, Any]:
    """Read a document. Raise MachineError if it cannot be read, or is not a JSON object."""
    try:
        if path.stat().st_size > _MAX_SIZE:
            raise MachineError(f"{path} is damaged: it is larger than {_MAX_SIZE >> 20} MiB.")
        document = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{path} is damaged: {error}.") from error
    if not isinstance(document, dict):
        raise MachineError(f"{path} is damaged: it is not a JSON object.")
    return document


def decode(kind: type[T], value: Any, where: str) -> T:
    """Convert a JSON value to a value of `kind`. `where` names it in errors: ``run.json: ending``.

    `kind` is a frozen dataclass, a plain type, or one of these in a tuple, mapping or union. Raise
    MachineError for a value of the wrong type, and if a field without a default is missing.
    """
    return cast("T", _decode(kind, value, where))


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or (kind is not float and type(value) is kind):
        return value
    if origin in {Union, types.UnionType}:
        return _decode_union(inner, value, where)
    if is_dataclass(kind):
        return _decode_fields(cast("type", kind), value, where)
    if isinstance(origin, type):
        return _decode_many(origin, inner, value, where)
    if kind is float and type(value) in {int, float}:
        with suppress(OverflowError):
            return float(value)
    return _wrong(value, _PLAIN[kind], where)


def _decode_many(origin: type, inner: Sequence[Any], value: Any, where: str) -> Any:
    """Convert to a mapping, or to a tuple for any other collection."""
    if issubclass(origin, Mapping):
        items = _of(dict, value, "an object", where).items()
        return {name: _decode(inner[1], item, f"{where}.{name}") for name, item in items}
    listed = _of(list, value, "a list", where)
    return tuple(_decode(inner[0], item, f"{where}[{index}]") for index, item in enumerate(listed))


def _of(kind: type[T], value: Any, expected: str, where: str) -> T:
    return value if isinstance(value, kind) else _wrong(value, expected, where)


def _decode_union(kinds: Sequence[Any], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    exact = next((kind for kind in others if type(value) is kind), others[0])
    return _decode(exact, value, where)


def _decode_fields(kind: type, value: Any, where: str) -> Any:
    """Convert an object to a dataclass. Unknown keys come from another release, and are ignored."""
    document = _of(dict, value, "an object", where)
    hints, given = get_type_hints(kind), {}
    for field in fields(kind):
        if field.name in document:
            given[field.name] = _decode(hints[field.name], document[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise MachineError(f"{where} has no {field.name}.")
    return kind(**given)


def _wrong(value: Any, expected: str, where: str) -> NoReturn:
    text = one_line(repr(value))
    cut = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    raise MachineError(f"{where} is {cut}; expected {expected}.")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
