"""Knowledge as records: a TOML file of a package, all of whose tables are of one array.

Every error names the file and the line: of the text, or of the `[[header]]` of the record.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any, TypeVar

import msgspec

from fabbench.model.templates import text_of

RecordT = TypeVar("RecordT")

_AT_LINE = re.compile(r"at line (\d+)")


class RecordError(ValueError):
    """A record is not what its file should hold; the message begins with file and line."""


class PatternRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a text shows by a pattern; tests hold it to a text that has it and one that has not."""

    pattern: str
    example: str
    counterexample: str


def load(package: str, name: str, kind: type[RecordT]) -> tuple[RecordT, ...]:
    """Return the records of a package's file, in their order.

    `kind` is a `msgspec.Struct` that forbids unknown fields; its `__post_init__` may refuse a
    value by a ValueError. Raise RecordError for the first record that is wrong.
    """
    return parse(text_of(package, name), name, kind)


def parse(text: str, name: str, kind: type[RecordT]) -> tuple[RecordT, ...]:
    """Return the records of a text; `name` is that of its file. Raise RecordError."""
    records: list[RecordT] = []
    for table in _tables(text, name):
        try:
            records.append(msgspec.convert(table, kind))
        except msgspec.ValidationError as error:
            line = _header_lines(text)[len(records)]
            raise RecordError(f"{name}:{line}: {error}") from None
    return tuple(records)


class Sentence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence with places for values, as `str.format` has them."""

    code: str
    text: str


@cache
def sentences(package: str, name: str) -> Mapping[str, str]:
    """Return code → text of the sentences in a package's file."""
    return {each.code: each.text for each in load(package, name, Sentence)}


def sentence(package: str, name: str, code: str, /, **values: object) -> str:
    """Return a sentence of a package's file by its code, with values in its places."""
    return sentences(package, name)[code].format(**values)


def _tables(text: str, name: str) -> list[dict[str, Any]]:
    """Return the tables of the only array of a text."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        line = at[1] if at else text.count("\n")
        raise RecordError(f"{name}:{line}: {error}") from None
    return [*chain.from_iterable(content.values())]  # A file has records of one kind, or none


def _header_lines(text: str) -> list[int]:
    """Return the number of the line of each `[[header]]`."""
    lines = enumerate(text.split("\n"), 1)
    return [number for number, line in lines if line.startswith("[[")]
