"""Pickles of plain containers, numbers and text: foreign input, of which nothing is called. Pure.

Python's own reader builds whatever a pickle names: it gets only pickles with no other operations
than plain data needs.
"""

import pickle
import pickletools
from io import BytesIO
from typing import Any, ClassVar

_MOST_OPERATIONS = 10_000_000
_DEEPEST = 20
_CONTAINERS = (dict, list, tuple)
_NAMES = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    BINUNICODE SHORT_BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET
"""
_OF_PLAIN_DATA = frozenset(_NAMES.split())
"""Operations that put values together and call nothing, as `pickletools` names them."""


def read_plain(data: bytes) -> Any:
    """Return what a pickle holds. Raise ValueError if it is damaged, or holds anything else."""
    for number, (operation, _, _) in enumerate(pickletools.genops(data)):
        if number > _MOST_OPERATIONS:
            raise ValueError("it has too many parts")
        name = operation.name
        if name not in _OF_PLAIN_DATA:
            raise ValueError(f"it has more than plain data in protocol 2 or later ({name})")
    try:
        value = _PlainReader(BytesIO(data)).load()
    except (pickle.UnpicklingError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("it is damaged") from error
    if _is_deep(value):
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    return value


class _PlainReader(pickle._Unpickler):  # noqa: SLF001 - the one in C has nothing to override
    """Python's own reader, but no key is a tuple: the hash of a nested one may take forever."""

    stack: list[Any]  # Its own: the values since the last mark

    def set_item(self) -> None:
        """Put the last two values, a key and a value, into the dictionary below them."""
        _require_plain_keys(self.stack[-2:-1])
        super().load_setitem()  # type: ignore[misc] # typeshed leaves it out

    def set_items(self) -> None:
        """Put keys and values, which are in turn since the last mark, into what is below it."""
        _require_plain_keys(self.stack[::2])
        super().load_setitems()  # type: ignore[misc]

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,  # noqa: SLF001
        pickle.SETITEM[0]: set_item,
        pickle.SETITEMS[0]: set_items,
    }
    """Byte of an operation → what carries it out."""


def _require_plain_keys(keys: list[Any]) -> None:
    if not all(isinstance(key, str | int) for key in keys):
        raise TypeError  # `read_plain` says what it means


def _is_deep(value: Any) -> bool:
    """Return whether containers are nested too deep, or within themselves."""
    level = [value]  # the containers at one depth; of one that is in several places, once
    for _ in range(_DEEPEST):
        inner: dict[int, Any] = {}
        for each in level:
            for part in _containers_in(each):
                inner[id(part)] = part
        level = list(inner.values())
    return bool(level)  # some are deeper still


def _containers_in(value: Any) -> list[Any]:
    """Return the containers in a container."""
    if not isinstance(value, _CONTAINERS):
        return []
    parts = value.values() if isinstance(value, dict) else value
    return [part for part in parts if isinstance(part, _CONTAINERS)]
