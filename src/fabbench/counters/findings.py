"""What the counters show about a run: NICs that stand out, and bytes that went elsewhere. Pure.

The limits of balance (1.25 times the mean, a tenth of the mean) are fabbench's own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import pstdev
from typing import NamedTuple

from fabbench.catalog.instances import rows_of
from fabbench.counters.snapshot import (
    KINDS,
    LOST,
    RETRANSMITTED,
    RX,
    RX_PACKETS,
    SERIOUS,
    TX,
    TX_PACKETS,
    NicKind,
    NicTraffic,
    Traffic,
    of_fabric,
)
from fabbench.model.fabrics import NO_NETWORK
from fabbench.model.log import Finding, Severity
from fabbench.model.messages import LONGEST_QUOTE, listed
from fabbench.model.units import RATE_UNITS, Scale, format_decimal

FLOOR = 10_000_000
"""Bytes: balance is not judged below this mean of a host's NICs; starting a run moves less."""
EXCESS = 1.5
"""How many times the benchmark's own bytes are too many.

Headers and packets sent again add some.
"""
MAX_OVER_MEAN = 1.25
LOW = 0.1
"""Less than this fraction of the mean, or of what is compared, is almost nothing."""
_MANY = 0.001
"""Drops and retransmissions above this fraction of the packets are a warning."""
_MANY_RETRANSMITTED, _FEWEST_RETRANSMITTED = 0.01, 5
"""TCP's retransmissions from this fraction and number on.

Healthy connections of a busy host had 0.002.
"""
WITHOUT_ROWS = frozenset({"nic-down", "nic-errors", "tcp-retransmits"})
"""Findings that hold even if nothing was measured."""

_ADVICE = {row["code"]: row["advice"] for row in rows_of("counted.csv")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the NICs of an execution are judged against."""

    fabric: str
    chosen: tuple[str, ...] = ()
    """Names of NICs; empty if none were named."""
    expected: int | None = None
    """NICs that each host was to use; None if not known.

    All of the fabric are expected to take part.
    """
    among: tuple[str, ...] = ()
    """Hosts that exchange data; with fewer than two, nothing is judged."""


class _Shown(NamedTuple):
    host: str
    sentence: str
    """Without the host and the period."""
    line: str


def findings(
    hosts: Mapping[str, Traffic], asked: Asked, most: float | None = None
) -> tuple[Finding, ...]:
    """Judge what each host moved while rows were measured.

    One finding covers all hosts that show it.

    `most`: the bytes that each host moved for it at most, in both directions together; None: not
    known.

    Fabrics inside a host are also judged by what RDMA devices moved; fabrics whose NICs have no
    counters here are not judged. A single host reaches itself through the loopback, which is not a
    NIC.
    """
    kind = KINDS.get(asked.fabric)
    if kind is None and asked.fabric not in NO_NETWORK:
        return ()
    requested = {
        host: of_fabric(traffic, asked.fabric, chosen=asked.chosen, expected=asked.expected)
        for host, traffic in hosts.items()
    }
    across = len(hosts) > 1
    wrong = [
        shown
        for host in hosts
        if (shown := _wrong(host, hosts[host], requested[host], asked, across=across))
    ]
    elsewhere = {shown.host for shown in wrong}
    quiet = [
        host for host in hosts if host not in elsewhere and (across or kind is not NicKind.NETDEV)
    ]
    idle = [shown for host in quiet if (shown := _idle(host, requested[host], asked))]
    excess = [shown for host in hosts if across and (shown := _excess(host, requested[host], most))]
    down = [(host, nic.name) for host in hosts for nic in requested[host].nics if nic.up is False]
    candidates = (
        _one(
            "nic-down",
            [_Shown(host, f"{name} is down", "") for host, name in down] if asked.chosen else [],
        ),
        _one("nic-wrong-network", wrong),
        _one("nic-idle", idle),
        _one("nic-excess", excess),
        _one("nic-imbalance-tx", list(_imbalances(requested, TX))),
        _one("nic-imbalance-rx", list(_imbalances(requested, RX))),
        _errors(requested),
        _one(
            "tcp-retransmits",
            list(_retransmitted(hosts)) if across and kind is NicKind.NETDEV else [],
        ),
    )
    return tuple(finding for finding in candidates if finding)


def _one(code: str, shown: list[_Shown], severity: Severity = Severity.WARNING) -> Finding | None:
    """Make one finding from what several hosts show: the first in full, the others by name."""
    if not shown:
        return None
    first, *rest = shown
    same = f"; the same on {listed([other.host for other in rest])}" if rest else ""
    if code in WITHOUT_ROWS and any(other.sentence != first.sentence for other in rest):
        same = "".join(f"; {other.host}: {other.sentence}" for other in rest)
    meaning = f"{first.host}: {first.sentence}{same}."
    return Finding(
        code=code,
        severity=severity,
        meaning=meaning,
        line=first.line[:LONGEST_QUOTE],
        advice=_ADVICE[code],
    )


# ---------------------------------------------------------------- where the bytes went


def _wrong(
    host: str, traffic: Traffic, requested: Traffic, asked: Asked, *, across: bool
) -> _Shown | None:
    """Find NICs that were not requested and moved more than ten times the bytes of those that were."""
    if (not requested.nics and asked.chosen) or any(nic.unreadable for nic in requested.nics):
        return None
    rest = replace(traffic, nics=tuple(nic for nic in traffic.nics if nic not in requested.nics))
    for fabric in ("efa", "ib", "roce", "tcp"):
        same = KINDS.get(fabric) is KINDS.get(asked.fabric)
        if (same and not asked.chosen) or (fabric == "tcp" and not across):
            continue
        other = of_fabric(rest, fabric)
        if other.total >= FLOOR * max(1, len(other.nics)) and requested.total < LOW * other.total:
            moved = (
                f"{listed([nic.name for nic in other.nics if nic.total])} moved "
                f"{amount(other.total)}"
            )
            names = listed([nic.name for nic in requested.nics]) or asked.fabric
            sentence = (
                f"{asked.fabric} was requested and {moved}, {names} {amount(requested.total)}"
            )
            return _Shown(host, sentence, _line(traffic.nics))
    return None


def _idle(host: str, requested: Traffic, asked: Asked) -> _Shown | None:
    """Find NICs that moved nothing. An interface always moves something.

    Only a benchmark uses an RDMA device.

    If the counters of one of them are unreadable, nothing is reported.
    """
    if not requested.nics or any(nic.unreadable for nic in requested.nics) or requested.total:
        return None
    if KINDS.get(asked.fabric) is NicKind.NETDEV:
        return None
    return _Shown(
        host,
        f"the NICs of {asked.fabric} moved nothing while rows were measured",
        _line(requested.nics),
    )


def _excess(host: str, requested: Traffic, most: float | None) -> _Shown | None:
    """Find NICs that moved more than all that the benchmark can have sent, lost packets included."""
    if most is None or requested.total <= EXCESS * most + FLOOR:
        return None
    times = format_decimal(requested.total / most, 1)
    sentence = (
        f"the NICs moved {amount(requested.total)}, {times} times the {amount(most)} of "
        "the benchmark"
    )
    return _Shown(host, sentence, _line(requested.nics))


# ---------------------------------------------------------------- balance


def _imbalances(requested: Mapping[str, Traffic], direction: str) -> Iterator[_Shown]:
    """Judge one direction, unless it is small beside the other.

    Acknowledgements follow the data.
    """
    for host, traffic in requested.items():
        counts, other = _counts(traffic, direction), _counts(traffic, RX if direction == TX else TX)
        sums = sum(counts.values()), sum(other.values())
        if sums[0] >= LOW * sums[1] and (sentence := _imbalance(counts, direction)):
            even = other and sums[1] >= LOW * sums[0] and not _imbalance(other, direction)
            note = (
                f", while {'receiving' if direction == TX else 'sending'} is even" if even else ""
            )
            line = ", ".join(
                f"{name} {direction[:2]} {amount(count)}" for name, count in counts.items()
            )
            yield _Shown(host, sentence + note, line)


def _counts(traffic: Traffic, direction: str) -> dict[str, int]:
    return {nic.name: nic.counters[direction] for nic in traffic.nics if direction in nic.counters}


def _imbalance(counts: Mapping[str, int], direction: str) -> str:
    """Describe the NICs that stand out, the few above the mean or the few far below it.

    Empty if none do.
    """
    spread = balance(list(counts.values()))
    if spread is None or spread.mean < FLOOR:
        return ""
    low = [name for name, count in counts.items() if count < LOW * spread.mean]
    high = [name for name, count in counts.items() if count > MAX_OVER_MEAN * spread.mean]
    if not low and not high:
        return ""
    few = high if high and (not low or len(high) <= len(low)) else low
    share = sum(counts[name] for name in few) / spread.sum
    return (
        f"{listed(few)} ({len(few)} of {len(counts)} NICs) "
        f"{'sent' if direction == TX else 'received'} "
        f"{format_decimal(100 * share, 1)} % of {amount(spread.sum)} "
        f"(max/mean {format_decimal(spread.max_over_mean, 2)}, cv {format_decimal(spread.cv, 2)})"
    )


# ---------------------------------------------------------------- errors


def _errors(requested: Mapping[str, Traffic]) -> Finding | None:
    shown, warning = [], False
    for host, traffic in requested.items():
        grown: dict[str, dict[str, int]] = {}
        for nic in traffic.nics:
            errors = {
                name: growth
                for name, growth in nic.counters.items()
                if growth and name in SERIOUS | LOST
            }
            if errors and (
                nic.kind is not NicKind.NETDEV or _heavy(nic)
            ):  # a few on an interface mean nothing
                grown[nic.name] = errors
        if grown:
            warning = warning or any(_heavy(nic) for nic in traffic.nics)
            lines = [
                f"{name} {', '.join(f'{counter} +{growth}' for counter, growth in errors.items())}"
                for name, errors in grown.items()
            ]
            counted = sorted({counter for errors in grown.values() for counter in errors})
            shown.append(
                _Shown(host, f"{listed(counted)} grew on {listed(list(grown))}", "; ".join(lines))
            )
    return _one("nic-errors", shown, Severity.WARNING if warning else Severity.NOTE)


def _heavy(nic: NicTraffic) -> bool:
    if any(nic.counters.get(name) for name in SERIOUS):
        return True
    lost = sum(nic.counters.get(name, 0) for name in LOST)
    return lost > _MANY * sum(nic.counters.get(name, 0) for name in (TX_PACKETS, RX_PACKETS))


def _retransmitted(hosts: Mapping[str, Traffic]) -> Iterator[_Shown]:
    """Find hosts whose TCP retransmitted many segments.

    Of all that the host's programs sent meanwhile.
    """
    for host, traffic in hosts.items():
        for tcp in (nic.counters for nic in traffic.nics if nic.kind is NicKind.TCP):
            again, sent = (
                tcp.get(RETRANSMITTED, 0),
                tcp.get(TX_PACKETS, 0) + tcp.get(RETRANSMITTED, 0),
            )
            if again >= _FEWEST_RETRANSMITTED and again > _MANY_RETRANSMITTED * sent:
                share = format_decimal(100 * again / sent, 1)
                yield _Shown(host, f"TCP retransmitted {again} of {sent} segments ({share} %)", "")


def _line(nics: Iterable[NicTraffic]) -> str:
    busiest = sorted(
        (nic for nic in nics if nic.kind is not NicKind.TCP), key=lambda nic: -nic.total
    )
    return ", ".join(f"{nic.name} tx {amount(nic.tx)} rx {amount(nic.rx)}" for nic in busiest)


# ---------------------------------------------------------------- evenness, and amounts as text

_RATES = [Scale(unit, RATE_UNITS[unit]) for unit in ("TB/s", "GB/s", "MB/s", "KB/s", "B/s")]


def rate_scale(largest: float) -> Scale:
    """Choose the unit for bytes per second of which `largest` is the largest, down to `B/s` for idle NICs."""
    return next((scale for scale in _RATES if largest >= scale.factor), _RATES[-1])


def amount_scale(largest: float) -> Scale:
    """Choose the unit for numbers of bytes of which `largest` is the largest."""
    scale = rate_scale(largest)
    return Scale(scale.unit.removesuffix("/s"), scale.factor)


def amount(count: float | None) -> str:
    """Format a number of bytes: 12.1e9 is ``"12.1 GB"``; ``"-"`` means not known."""
    return "-" if count is None else amount_scale(count).quantity(count)


def rate(value: float | None) -> str:
    """Format bytes per second: ``"12.1 GB/s"``, ``"52.5 B/s"``, ``"-"``."""
    return "-" if value is None else rate_scale(value).quantity(value)


class Balance(NamedTuple):
    """How evenly several NICs moved data. Perfectly even: `max_over_mean` 1, `cv` 0."""

    max_over_mean: float
    cv: float  # the standard deviation of the whole population divided by the mean
    sum: float
    mean: float


def balance(values: Sequence[float]) -> Balance | None:
    """Judge values that are not negative. None if there is nothing to balance.

    Fewer than two, or all 0.
    """
    total = math.fsum(values)
    if len(values) < 2 or total == 0:
        return None
    mean = total / len(values)
    return Balance(
        max_over_mean=max(values) / mean, cv=pstdev(values, mean) / mean, sum=total, mean=mean
    )
