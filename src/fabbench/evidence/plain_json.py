"""JSON of other programs: foreign input, whose numbers are as large as programs print them. Pure."""

import json
from typing import Any

_TOO_LARGE = 2**64


def read_json(text: str | bytes) -> Any:
    """Return what a text holds. Raise ValueError if it is damaged, or has another number."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_number)


def _number(text: str) -> float:
    is_whole = text.removeprefix("-").isdigit()
    return plain_number(int(text) if is_whole else float(text))


def plain_number(number: float) -> float:
    """Return a number that a program may print. Raise ValueError for any other: arithmetic may."""
    if not abs(number) < _TOO_LARGE:  # neither is what is no number
        raise ValueError("it has a number that no program prints")
    return number
