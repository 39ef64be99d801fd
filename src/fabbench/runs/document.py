"""The JSON documents of a store: dataclasses, written atomically and read strictly.

A document may come from another release, be cut by a full disk, or have been edited. Unknown keys are ignored; a
value of the wrong type is damage, reported with its path (``$.executions[0].outcome``).
"""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from fabbench.model.errors import MachineError
from fabbench.runs.folders import ENVIRONMENT_VARIABLE

FORMAT = 1
"""Number of the layout of a run directory, and of each document that has a `format`."""
_MAX_SIZE = 1 << 28

DAMAGE = (ValueError, RecursionError, msgspec.MsgspecError)
"""What reading a damaged document raises."""

T = TypeVar("T")


class StoreError(MachineError):
    """What was measured cannot be stored, as on a full disk: this says nothing about the machines."""


@dataclass(frozen=True, slots=True)
class _Formatted:
    format: int | None = None


def plain(document: Any) -> Any:
    """Return dataclasses, and all in them, as mappings, lists, texts and numbers."""
    return msgspec.to_builtins(document, enc_hook=str)


def write(path: Path, document: Any, *, indent: int | None = 1, durable: bool = True) -> None:
    """Write a document atomically: completely, or not at all. If `durable`, it survives the machine's end."""
    text = json.dumps(plain(document), indent=indent, ensure_ascii=False) + "\n"
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    # A character of an argument that is not valid UTF-8 (a lone surrogate) becomes a JSON escape.
    with unfinished.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    unfinished.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise StoreError if a part of a run cannot be stored."""
    try:
        yield
    except OSError as error:
        first = "Free some space, or specify" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "Specify"
        hint = f"{first} another directory with --store or {ENVIRONMENT_VARIABLE}."
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.", hint=hint) from error


def read(path: Path, kind: type[T]) -> T:
    """Read a document. Raise MachineError if it cannot be read, is damaged, or has another format."""
    try:
        if path.stat().st_size > _MAX_SIZE:
            raise MachineError(f"{path} is damaged: it is larger than {_MAX_SIZE >> 20} MiB.")
        return decode(path.read_bytes(), kind, str(path))
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error


def decode(text: bytes, kind: type[T], where: str) -> T:
    """Return the value of a JSON text; `where` names it in errors. Raise MachineError, as `read` does."""
    try:
        document = _decoded(text, kind)
    except DAMAGE as error:
        _require_format(text, where)
        raise MachineError(f"{where} is damaged: {error}.") from error
    if getattr(document, "format", FORMAT) != FORMAT:
        _require_format(text, where)
    return document


def read_value(value: Any, kind: type[T], where: str) -> T:
    """Return a value of a document that was read as plain. Raise MachineError if it is damaged."""
    try:
        return msgspec.convert(value, kind)
    except DAMAGE as error:
        raise MachineError(f"{where} is damaged: {error}.") from error


def _decoded(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Only json reads the escape of a lone surrogate. It also reads NaN, which is not JSON.
        return msgspec.convert(json.loads(text, parse_constant=_refuse), kind)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _require_format(text: bytes, where: str) -> None:
    """Raise MachineError if another format is the reason why a document cannot be read."""
    with suppress(*DAMAGE):
        number = _decoded(text, _Formatted).format
        if number not in {None, FORMAT}:
            raise MachineError(
                f"{where} has format {number}, and this fabbench reads format {FORMAT}.",
                hint="Read it with the fabbench that wrote it.",
            )
