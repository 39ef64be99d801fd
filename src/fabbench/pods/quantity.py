"""Kubernetes quantities: text to numbers and back (k8s.io/apimachinery/pkg/api/resource/quantity.go).

CPUs are counted in thousandths, memory in bytes, devices by the piece.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache

MIB = 1 << 20

_SUFFIXES = {
    "": Fraction(1),
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)


@lru_cache(maxsize=4096)
def quantity(value: str | int) -> Fraction:
    """Read a quantity: ``"8"``, ``"500m"``, ``"5120Mi"``, ``"1e3"``, ``"1E"`` (which is 10¹⁸).

    Raises ValueError for anything else.
    """
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is no quantity of Kubernetes, such as 8, 500m or 5120Mi")
    number, exponent, suffix = match.groups()
    if exponent:
        return Fraction(number) * Fraction(10) ** int(exponent[1:])
    return Fraction(number) * _SUFFIXES[suffix or ""]


def whole(value: str | int) -> int:
    """Read a quantity of something that has no parts, rounded up as Kubernetes does."""
    return math.ceil(quantity(value))


def thousandths(value: str | int) -> int:
    """Read a quantity of CPUs in thousandths, rounded up."""
    return math.ceil(quantity(value) * 1000)


def mebibytes(size: int) -> str:
    """Write bytes as whole mebibytes, rounded down: ``"5120Mi"``."""
    return f"{size // MIB}Mi"


def cpus(millis: int) -> str:
    """Write thousandths of a CPU: ``"4"``, ``"1500m"``."""
    return f"{millis}m" if millis % 1000 else str(millis // 1000)
