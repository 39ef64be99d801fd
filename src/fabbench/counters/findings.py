"""What the counters show about a run: NICs that stand out, and bytes that went elsewhere.

The limits of balance (1.25 times the mean, a tenth of the mean) are fabbench's own.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import pstdev
from typing import NamedTuple

from fabbench.catalog.systems import pairs_of
from fabbench.counters.congestion import Port, strains
from fabbench.counters.snapshot import KINDS, Moved, NicKind, NicTraffic, Traffic, of_fabric
from fabbench.counters.vocabulary import (
    RETRANSMITTED,
    RX,
    RX_PACKETS,
    TX,
    TX_PACKETS,
    Meaning,
    names_of,
)
from fabbench.model.fabrics import NO_NETWORK
from fabbench.model.log import Finding, Severity
from fabbench.model.mappings import Names, gathered, without, without_empty, without_none
from fabbench.model.messages import LONGEST_QUOTE, listed
from fabbench.model.units import RATE_UNITS, Scale, format_decimal, format_percent
from fabbench.model.values import frozen

FLOOR = 10_000_000
"""Bytes: balance is not judged below this mean of a host's NICs; starting a run moves less."""
MAX_OVER_MEAN = 1.25
"""A NIC that moves more than so many times the mean stands out."""
LOW = 0.1
"""Less than this fraction of the mean, or of what is compared, is almost nothing."""
_MANY = 0.001
"""Drops and retransmissions above this fraction of the packets are a warning."""
_MANY_RETRANSMITTED = 0.01
"""TCP's retransmissions above this fraction of the segments; healthy, busy hosts had 0.002."""
_FEWEST_RETRANSMITTED = 5
WITHOUT_ROWS = frozenset({"nic-down", "nic-errors", "nic-gone", "tcp-retransmits"})
"""Findings that hold even if nothing was measured."""

_SERIOUS = names_of(Meaning.SERIOUS)
_LOST = names_of(Meaning.LOST, Meaning.RESENT)
_ADVICE = pairs_of("counted.csv")


def advice(code: str) -> str:
    """Return what to do about what NICs counted."""
    return _ADVICE[code]


@frozen
class Asked:
    """What the NICs of an execution are judged against."""

    fabric: str
    chosen: Names = ()
    """Names of NICs; empty if none were named."""
    expected: int | None = None
    """NICs that each host was to use.

    None if not known: all of the fabric are expected to take part.
    """
    among: Names = ()
    """Hosts that exchange data; with one, nothing is judged. Empty: not known."""


class Shown(NamedTuple):
    """What one host shows."""

    host: str
    sentence: str
    """Without the host and the period."""
    line: str = ""
    """The counters that show it."""


def findings(hosts: Moved, asked: Asked) -> tuple[Finding, ...]:
    """Judge what each host moved while rows were measured.

    One finding covers all hosts that show it.

    Fabrics inside a host are also judged by what RDMA devices moved; fabrics whose NICs have no
    counters here are not judged. A single host reaches itself through the loopback, which is not a
    NIC.
    """
    kind = KINDS.get(asked.fabric)  # None: no NIC that is read here carries it
    if kind is None and asked.fabric not in NO_NETWORK:
        return ()
    requested = {
        host: of_fabric(traffic, asked.fabric, chosen=asked.chosen, expected=asked.expected)
        for host, traffic in hosts.items()
    }
    wrong = list(_wrong_networks(hosts, requested, asked))
    # Hosts whose data went elsewhere are told once, and not again as idle.
    elsewhere = {shown.host for shown in wrong}
    others = without(requested, elsewhere)
    is_alone = len(hosts) == 1 and asked.among  # its data pass the loopback
    over_interfaces = kind is NicKind.NETDEV and not is_alone
    candidates = (
        one_finding("nic-down", _down(requested) if asked.chosen else ()),
        one_finding("nic-wrong-network", wrong),
        one_finding("nic-idle", _idle(others, asked.fabric)),
        one_finding("nic-imbalance-tx", _imbalances(requested, _SENT)),
        one_finding("nic-imbalance-rx", _imbalances(requested, _RECEIVED)),
        *_congested(hosts if over_interfaces else requested, {kind, NicKind.TCP}),
        _errors(requested),
        one_finding("tcp-retransmits", _retransmitted(hosts) if over_interfaces else ()),
    )
    return tuple(finding for finding in candidates if finding)


def one_finding(
    code: str, shown: Iterable[Shown], severity: Severity = Severity.WARNING
) -> Finding | None:
    """Make one finding from what several hosts show: the first in full, the others by name.

    Errors differ from host to host: there all are told in full. None: no host shows it.
    """
    known = list(shown)
    if not known:
        return None
    first, *rest = known
    others = ""
    are_alike = all(other.sentence == first.sentence for other in rest)
    if code in WITHOUT_ROWS and not are_alike:  # the codes of errors
        others = "".join(f"; {other.host}: {other.sentence}" for other in rest)
    elif rest:
        others = f"; the same on {listed([other.host for other in rest])}"
    return Finding(
        code=code,
        severity=severity,
        meaning=f"{first.host}: {first.sentence}{others}.",
        line=first.line[:LONGEST_QUOTE],
        advice=advice(code),
    )


# ---------------------------------------------------------------- where the bytes went


def _down(requested: Moved) -> Iterator[Shown]:
    for host, traffic in requested.items():
        for nic in traffic.nics:
            if nic.up is False:
                yield Shown(host, f"{nic.name} is down")


def _wrong_networks(hosts: Moved, requested: Moved, asked: Asked) -> Iterator[Shown]:
    """Find hosts whose data went over NICs that were not requested."""
    others = _other_fabrics(asked, across=len(hosts) > 1)
    for host, traffic in hosts.items():  # `requested` has the part of it over requested NICs
        wanted = requested[host]
        # Without the counters of what was requested, nothing can be compared.
        if (asked.chosen and not wanted.nics) or _is_unreadable(wanted):
            continue
        left = tuple(nic for nic in traffic.nics if nic not in wanted.nics)
        rest = Traffic(seconds=traffic.seconds, nics=left)
        used = (of_fabric(rest, fabric) for fabric in others)
        # The first fabric that moved far more than the requested one.
        other = next((moved for moved in used if _dwarfs(moved, wanted)), None)
        if other is not None:
            busy = listed([nic.name for nic in other.nics if nic.total])
            names = listed([nic.name for nic in wanted.nics]) or asked.fabric
            sentence = (
                f"{asked.fabric} was requested and {busy} moved {amount(other.total)}, "
                f"{names} {amount(wanted.total)}"
            )
            yield Shown(host, sentence, _counters_line(traffic.nics))


def _other_fabrics(asked: Asked, *, across: bool) -> list[str]:
    """Return the fabrics that might carry the data instead.

    The requested one is among them if some of its NICs were chosen: then it has others.
    """
    kind = KINDS.get(asked.fabric)
    # Inside a host, interfaces count other data.
    known = ["efa", "ib", "roce", "cxi", *(["tcp"] if across else [])]
    return [fabric for fabric in known if asked.chosen or KINDS[fabric] is not kind]


def _is_unreadable(traffic: Traffic) -> bool:
    return any(nic.unreadable for nic in traffic.nics)


def _dwarfs(other: Traffic, wanted: Traffic) -> bool:
    """Return whether another network moved more than ten times the bytes of the requested one."""
    floor = FLOOR * max(1, len(other.nics))
    return other.total >= floor and wanted.total < LOW * other.total


def _idle(requested: Moved, fabric: str) -> Iterator[Shown]:
    """Find hosts whose RDMA devices moved nothing: only a benchmark uses these.

    An interface always moves something. If the counters of one NIC are unreadable, nothing is
    reported.
    """
    if KINDS.get(fabric) is NicKind.NETDEV:
        return
    for host, traffic in requested.items():
        if traffic.nics and not traffic.total and not _is_unreadable(traffic):
            sentence = f"the NICs of {fabric} moved nothing while rows were measured"
            yield Shown(host, sentence, _counters_line(traffic.nics))


# ---------------------------------------------------------------- balance


class _Direction(NamedTuple):
    counter: str
    label: str
    verb: str
    gerund: str


_SENT = _Direction(TX, "tx", "sent", "sending")
_RECEIVED = _Direction(RX, "rx", "received", "receiving")


def _imbalances(requested: Moved, direction: _Direction) -> Iterator[Shown]:
    """Find hosts with NICs that stand out in one direction, unless it is small beside the other.

    Those are acknowledgements, which follow the data.
    """
    reverse = _RECEIVED if direction is _SENT else _SENT
    for host, traffic in requested.items():
        counts = _counts(traffic, direction)
        others = _counts(traffic, reverse)
        moved = sum(counts.values())
        back = sum(others.values())  # bytes in the other direction
        sentence = _imbalance(counts, direction) if moved >= LOW * back else ""
        if not sentence:
            continue
        if others and back >= LOW * moved and not _imbalance(others, reverse):
            sentence += f", while {reverse.gerund} is even"
        label = direction.label
        cells = [f"{name} {label} {amount(count)}" for name, count in counts.items()]
        yield Shown(host, sentence, ", ".join(cells))


def _counts(traffic: Traffic, direction: _Direction) -> dict[str, int]:
    counts = {nic.name: nic.counters.get(direction.counter) for nic in traffic.nics}
    return without_none(counts)


def _imbalance(counts: Mapping[str, int], direction: _Direction) -> str:
    """Describe the NICs that stand out, the few above the mean or the few far below it.

    `counts`: NIC → bytes in this direction. Empty if none do, or too little was moved.
    """
    evenness = balance(list(counts.values()))
    if evenness is None or evenness.mean < FLOOR:
        return ""
    few = _standing_out(counts, evenness.mean)
    if not few:
        return ""
    share = sum(counts[name] for name in few) / evenness.sum
    percent = format_percent(share, 1)
    peak = format_decimal(evenness.max_over_mean, 2)
    variation = format_decimal(evenness.cv, 2)
    which = f"{listed(few)} ({len(few)} of {len(counts)} NICs)"
    return (
        f"{which} {direction.verb} "
        f"{percent} of {amount(evenness.sum)} (max/mean {peak}, cv {variation})"
    )


def _standing_out(counts: Mapping[str, int], mean: float) -> list[str]:
    """Return the NICs above the mean or those far below it, whichever are fewer.

    Empty: all are near the mean.
    """
    low: list[str] = []
    high: list[str] = []
    for name, count in counts.items():
        if count < LOW * mean:
            low.append(name)
        elif count > MAX_OVER_MEAN * mean:
            high.append(name)
    if not low or not high:
        return low or high
    return min(high, low, key=len)


# ---------------------------------------------------------------- congestion


def _congested(hosts: Moved, kinds: Collection[NicKind | None]) -> Iterator[Finding | None]:
    """Yield a finding for each sign of congestion that is above its limit, or stands out.

    `kinds`: of the NICs to judge, and TCP's own; None, for a fabric without NICs, matches none.
    """
    ports = [
        Port(host, nic.name, nic.counters, traffic.seconds)
        for host, traffic in hosts.items()
        for nic in traffic.nics
        if nic.kind in kinds
    ]
    heavy = (strain for strain in strains(ports) if strain.is_heavy)
    of_codes = gathered((strain.sign.code, strain) for strain in heavy)
    for code, alike in of_codes.items():
        of_hosts = gathered((strain.port.host, strain.sentence) for strain in alike)
        shown = [Shown(host, _first_and_count(of_hosts[host])) for host in of_hosts]
        yield one_finding(code, shown)


def _first_and_count(sentences: Sequence[str]) -> str:
    """Return the first sentence, and how many of its other NICs show the same."""
    first, *rest = sentences
    return f"{first}; {len(rest)} more of its NICs" if rest else first


# ---------------------------------------------------------------- errors


def _errors(requested: Moved) -> Finding | None:
    # A note; a warning, if any NIC has serious errors, or lost many packets.
    shown: list[Shown] = []
    severity = Severity.NOTE
    for host, traffic in requested.items():
        grown = {nic.name: errors for nic in traffic.nics if (errors := _grown_errors(nic))}
        if not grown:
            continue
        if any(_is_heavy(nic) for nic in traffic.nics):
            severity = Severity.WARNING
        counters = sorted({counter for errors in grown.values() for counter in errors})
        sentence = f"{listed(counters)} grew on {listed([*grown])}"
        lines = [f"{name} {_increases(errors)}" for name, errors in grown.items()]
        shown.append(Shown(host, sentence, "; ".join(lines)))
    return one_finding("nic-errors", shown, severity)


_ERRORS = _SERIOUS | _LOST


def _grown_errors(nic: NicTraffic) -> dict[str, int]:
    """Return the error counters of a NIC that grew; a few on an interface mean nothing."""
    if nic.kind is NicKind.NETDEV and not _is_heavy(nic):
        return {}
    grown = without_empty(nic.counters)
    return {name: growth for name, growth in grown.items() if name in _ERRORS}


def _increases(errors: Mapping[str, int]) -> str:
    return ", ".join(f"{counter} +{growth}" for counter, growth in errors.items())


def _is_heavy(nic: NicTraffic) -> bool:
    # A link or a command failed, or more than a usual part of the packets was lost.
    if any(nic.counters.get(name) for name in _SERIOUS):
        return True
    return _growth(nic, _LOST) > _MANY * _growth(nic, (TX_PACKETS, RX_PACKETS))


def _growth(nic: NicTraffic, names: Iterable[str]) -> int:
    return sum(nic.counters.get(name, 0) for name in names)


def _retransmitted(hosts: Moved) -> Iterator[Shown]:
    """Find hosts whose TCP retransmitted many of the segments that all their programs sent."""
    for host, traffic in hosts.items():
        for tcp in (nic.counters for nic in traffic.nics if nic.kind is NicKind.TCP):
            again = tcp.get(RETRANSMITTED, 0)
            sent = tcp.get(TX_PACKETS, 0) + again  # the kernel counts them apart
            if again >= _FEWEST_RETRANSMITTED and again > _MANY_RETRANSMITTED * sent:
                share = format_percent(again / sent, 1)
                yield Shown(host, f"TCP retransmitted {again} of {sent} segments ({share})")


def _counters_line(nics: Iterable[NicTraffic]) -> str:
    # The counters as evidence, the busiest NIC first; TCP is no NIC.
    devices = [nic for nic in nics if nic.kind is not NicKind.TCP]
    devices.sort(key=lambda nic: nic.total, reverse=True)
    return ", ".join(map(_traffic_text, devices))


def _traffic_text(nic: NicTraffic) -> str:
    return f"{nic.name} tx {amount(nic.tx)} rx {amount(nic.rx)}"


# ---------------------------------------------------------------- evenness, and amounts as text

_UNITS = ("TB/s", "GB/s", "MB/s", "KB/s", "B/s")


def amount(count: float | None) -> str:
    """Format a number of bytes: 12.1e9 is ``"12.1 GB"``; ``"-"`` means not known."""
    return rate(count).removesuffix("/s")


def rate(value: float | None) -> str:
    """Format bytes per second: ``"12.1 GB/s"``, ``"52.5 B/s"`` of idle NICs, ``"-"``."""
    if value is None:
        return "-"
    fitting = (unit for unit in _UNITS if value >= RATE_UNITS[unit])  # the largest unit first
    unit = next(fitting, "B/s")
    return Scale(unit, RATE_UNITS[unit]).quantity(value)


class Balance(NamedTuple):
    """How evenly several NICs moved data. Perfectly even: `max_over_mean` 1, `cv` 0."""

    max_over_mean: float
    cv: float  # the standard deviation of the whole population divided by the mean
    sum: float
    mean: float


def balance(values: Sequence[float]) -> Balance | None:
    """Judge values that are not negative.

    None if there is nothing to balance: fewer than two, or all 0.
    """
    total = math.fsum(values)
    if len(values) < 2 or total == 0:
        return None
    mean = total / len(values)
    peak = max(values)
    deviation = pstdev(values, mean)
    return Balance(max_over_mean=peak / mean, cv=deviation / mean, sum=total, mean=mean)
