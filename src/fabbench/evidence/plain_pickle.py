"""Pickles of plain containers, numbers and text: foreign input, of which nothing is called. Pure.

Python's own reader builds whatever a pickle names. This one has only the operations that plain data
needs, and refuses every other.
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any

_MOST_OPERATIONS = 10_000_000
_DEEPEST = 20
_MARK = object()  # where the parts of a list, tuple or dictionary begin on the stack
_CONTAINERS = (dict, list, tuple)
_LITERALS = frozenset(
    {
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
    }
)
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}


def read_plain(data: bytes) -> Any:
    """Return what a pickle holds. Raise ValueError if it is damaged, or holds anything else."""
    stack = _Stack()
    try:
        for number, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if number > _MOST_OPERATIONS:
                raise ValueError("it has too many parts")
            stack.apply(operation.name, argument)
        (value,) = stack.values  # at the end only the whole is there: else a ValueError
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is damaged") from error
    if _is_deep(value):
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    return value


class _Stack:
    """The values of a pickle while it is read."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._memo: dict[int, Any] = {}  # Number → a value that the pickle uses again

    def apply(self, operation: str, argument: Any) -> None:
        """Carry out an operation. Raise ValueError for one that plain data does not need."""
        if operation in _LITERALS:
            self.values.append(argument)
            return
        if operation in _CONSTANTS:
            self.values.append(_CONSTANTS[operation]())
            return
        carry_out = _OPERATIONS.get(operation)
        if carry_out is None:
            raise ValueError(f"it has more than plain data in protocol 2 or later ({operation})")
        carry_out(self, argument)

    def skip(self, _: Any) -> None:
        """Leave out what only says how the pickle is written."""

    def store(self, number: int) -> None:
        """Keep the last value under a number."""
        self._memo[number] = self.values[-1]

    def memoize(self, _: Any) -> None:
        """Keep the last value under the next number."""
        self.store(len(self._memo))

    def get(self, number: int) -> None:
        """Add the value that is kept under a number."""
        self.values.append(self._memo[number])

    def make_tuple(self, _: Any) -> None:
        """Make the values above the last mark a tuple."""
        parts = self._above_mark()
        self.values.append(tuple(parts))

    def make_short_tuple(self, count: int) -> None:
        """Make the last values a tuple."""
        parts = tuple(self.values[-count:])
        self.values[-count:] = [parts]

    def append(self, _: Any) -> None:
        """Put the last value into the list below it."""
        last = self.values.pop()
        self._extend([last])

    def appends(self, _: Any) -> None:
        """Put the values above the last mark into the list below it."""
        self._extend(self._above_mark())

    def set_item(self, _: Any) -> None:
        """Put the last two values into the dictionary below them."""
        value = self.values.pop()
        key = self.values.pop()
        self._set_pairs([key, value])

    def set_items(self, _: Any) -> None:
        """Put the values above the last mark into the dictionary below it."""
        self._set_pairs(self._above_mark())

    def _above_mark(self) -> list[Any]:
        """Remove and return the values above the last mark."""
        popped: list[Any] = []
        while (value := self.values.pop()) is not _MARK:
            popped.append(value)
        return popped[::-1]

    def _extend(self, values: list[Any]) -> None:
        # Add to the list on top of the stack. Another target is no plain data.
        target = self.values[-1]
        if not isinstance(target, list):
            raise TypeError
        target += values

    def _set_pairs(self, pairs: list[Any]) -> None:
        # Add to the dict on top of the stack. Other keys and targets are no plain data.
        target = self.values[-1]
        if not isinstance(target, dict):
            raise TypeError
        keys = pairs[::2]  # keys and values are in turn
        values = pairs[1::2]
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, str | int):
                raise TypeError  # `read_plain` says what it means
            target[key] = value


_OPERATIONS: Mapping[str, Callable[[_Stack, Any], None]] = {
    "BINPUT": _Stack.store,
    "LONG_BINPUT": _Stack.store,
    "MEMOIZE": _Stack.memoize,
    "BINGET": _Stack.get,
    "LONG_BINGET": _Stack.get,
    "PROTO": _Stack.skip,
    "FRAME": _Stack.skip,
    "STOP": _Stack.skip,
    "TUPLE": _Stack.make_tuple,
    "TUPLE1": lambda stack, _: stack.make_short_tuple(1),
    "TUPLE2": lambda stack, _: stack.make_short_tuple(2),
    "TUPLE3": lambda stack, _: stack.make_short_tuple(3),
    "APPEND": _Stack.append,
    "APPENDS": _Stack.appends,
    "SETITEM": _Stack.set_item,
    "SETITEMS": _Stack.set_items,
}


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
