"""Congestion: what NICs counted of it, as ratios, against limits and against the other NICs.

The table is congestion.csv. A switch that is full marks packets (ECN), the receiver tells the
sender (CNP), which slows down; or it stops the sender (PFC), and data wait. Congestion is no error
by itself: where many send to one, there is some.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import median
from typing import NamedTuple

from fabbench.catalog.systems import records, rows_of
from fabbench.counters.vocabulary import largest_of_priorities
from fabbench.model.mappings import distinct, first_of
from fabbench.model.units import format_decimal, format_quantity
from fabbench.model.values import frozen

SECONDS = "seconds"
_TIMES_THE_MEDIAN = 5
"""How many times the median of the others stands out."""
_FEWEST_OTHERS = 3


@frozen
class Sign:
    """A row of congestion.csv, which says what each column means."""

    code: str
    counter: str
    of: str  # What the counter is compared with: another counter, or `SECONDS`
    times: float  # The factor of this ratio
    limit: float = math.inf  # From this ratio on, it is heavy by itself
    least: float  # From this one on, if it is far above the other NICs
    words: str
    alone: str = ""  # The words where what it is compared with is not known
    without: str = ""  # Counters that no NIC may have grown; of the first, this one's is known


class Port(NamedTuple):
    """What one NIC counted."""

    host: str
    nic: str
    counters: Mapping[str, int]
    seconds: float | None = None
    """How long it took; None: not known."""


class Strain(NamedTuple):
    """What one NIC shows of one sign."""

    sign: Sign
    port: Port
    ratio: float | None
    """None: what it is compared with is not known."""
    sentence: str
    is_heavy: bool
    """Whether it is above the limit, or far above the other NICs."""


@cache
def signs() -> Sequence[Sign]:
    """Return the rows of congestion.csv."""
    return [*records(Sign, rows_of("congestion.csv", "fabbench.counters"))]


def strains(ports: Sequence[Port]) -> Iterator[Strain]:
    """Yield what each NIC shows of congestion, one sign of each code, the heaviest first."""
    for code in distinct(sign.code for sign in signs()):
        of_code = [
            _strain_by_sign(port, sign, ports)
            for port in ports
            if (sign := _sign_shown(port, code, ports))
        ]
        yield from sorted(of_code, key=lambda strain: strain.ratio or 0, reverse=True)


def _sign_shown(port: Port, code: str, ports: Sequence[Port]) -> Sign | None:
    """Return the first sign of a code that a NIC shows: one that can be compared, if any can."""
    of_code = (sign for sign in signs() if sign.code == code)
    holding = (sign for sign in of_code if _holds(sign, port, ports))
    grown = [sign for sign in holding if _count(port, sign)]
    comparable = [sign for sign in grown if _compared_with(port, sign)]
    alone = [sign for sign in grown if sign.alone]
    return first_of([*comparable, *alone], None)


def _holds(sign: Sign, port: Port, ports: Sequence[Port]) -> bool:
    """Return whether nothing was counted that the sign is without."""
    names = sign.without.split()
    grown = any(each.counters.get(name) for each in ports for name in names)
    return not grown and (not names or names[0] in port.counters)


def _count(port: Port, sign: Sign) -> int:
    # Of counters per priority, the largest.
    return largest_of_priorities(port.counters, sign.counter)


def _compared_with(port: Port, sign: Sign) -> float:
    """Return what a counter is compared with; 0: not known."""
    if sign.of == SECONDS:
        return port.seconds or 0
    return port.counters.get(sign.of, 0)


def _ratio(port: Port, sign: Sign) -> float | None:
    # None: what it is compared with is not known.
    whole = _compared_with(port, sign)
    return sign.times * _count(port, sign) / whole if whole else None


def _strain_by_sign(port: Port, sign: Sign, ports: Sequence[Port]) -> Strain:
    # What a NIC shows of one sign, and whether that is much, by itself or beside the other NICs.
    ratio = _ratio(port, sign)
    if ratio is None:
        alone = _filled_in(sign.alone, port, sign, ratio=0)
        return Strain(sign, port, ratio=None, sentence=alone, is_heavy=False)
    sentence = _filled_in(sign.words, port, sign, ratio)
    of_others = (_ratio(other, sign) for other in ports if other is not port)
    others = [known for known in of_others if known is not None]
    stands_out = ratio >= sign.least and _stands_out(ratio, others)
    if stands_out:
        usual = _ratio_in_words(median(others))
        count = len(others)
        sentence += f"; the median of the other {count} NICs is {usual}"
    return Strain(sign, port, ratio, sentence, is_heavy=stands_out or ratio >= sign.limit)


def _stands_out(ratio: float, others: Sequence[float]) -> bool:
    return len(others) >= _FEWEST_OTHERS and ratio > _TIMES_THE_MEDIAN * median(others)


def _filled_in(text: str, port: Port, sign: Sign, ratio: float) -> str:
    count = _count(port, sign)
    quantity = f"{count:,}"
    if sign.counter.endswith("_us"):  # a time in microseconds
        quantity = _time_in_words(count / 1e6)
    period = _time_in_words(port.seconds or 0)
    shown = _ratio_in_words(ratio)
    return text.format(nic=port.nic, count=quantity, ratio=shown, period=period)


def _ratio_in_words(ratio: float) -> str:
    if ratio >= 100:
        return format(ratio, ",.0f")
    return format_decimal(ratio, 2 if ratio >= 0.1 else 4)


def _time_in_words(seconds: float) -> str:
    if seconds < 1:
        return format_quantity(seconds, "s")
    whole = round(seconds)
    return f"{whole} s"
