"""What the counters say about a run: NICs that stand out, and bytes that went elsewhere. Pure.

The limits of balance (1.25 times the mean, a tenth of the mean) are fabbench's own.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabbench.counters.snapshot import (
    RX,
    RX_PACKETS,
    TX,
    TX_PACKETS,
    NicKind,
    NicTraffic,
    Traffic,
    kind_of,
    of_fabric,
    others,
)
from fabbench.model.fabrics import INTRA_HOST
from fabbench.model.log import Finding, Severity
from fabbench.model.messages import LONGEST_QUOTE, listed
from fabbench.model.units import RATE_UNITS, Scale, format_decimal

FLOOR = 10_000_000
"""Bytes: below this mean of a host's NICs nothing is said of balance; what starts a run up is less."""
MAX_OVER_MEAN = 1.25
LOW = 0.1
"""Less than this part of the mean, or of what is compared, is almost nothing."""
_MANY = 0.001
"""Drops and retransmissions that are more than this part of the packets are a warning."""

_FABRICS = ("efa", "ib", "roce", "tcp")
_SERIOUS = frozenset(
    {
        *(
            "unresponsive_remote_events",
            "impaired_remote_conn_events",
            "rdma_read_wr_err",
            "rdma_write_wr_err",
        ),
        *("link_downed", "link_error_recovery", "local_link_integrity_errors", "port_rcv_errors"),
        *("local_ack_timeout_err", "rnr_nak_retry_err", "rx_errors", "tx_errors"),
    }
)
_LOST = frozenset(
    {
        *("rx_drops", "retrans_pkts", "retrans_timeout_events", "port_xmit_discards", "symbol_error"),
        *("out_of_sequence", "packet_seq_err", "rx_dropped", "tx_dropped"),
    }
)

_AFFINITY = (
    "Check which NICs each rank was assigned (NCCL's topology file, NVSHMEM's NIC mapping). A run on fewer "
    "GPUs than the host has uses fewer NICs; this is not a fault."
)
_RECEIVER = (
    "The sender also chooses the NIC that receives: look at the senders. NVSHMEM 3.6.5 over EFA does this "
    "with several NICs per PE; NVIDIA/nvshmem pull request 76 changes it. A run on fewer GPUs than the host "
    "has uses fewer NICs; this is not a fault."
)
_ELSEWHERE = (
    "The numbers are not of the network that was requested, or something else used the NICs. Check what "
    "the log shows of the network, and the interfaces passed to the benchmark."
)
_SENT_AGAIN = (
    "Packets were lost or sent again. Few beside many packets are usual under load; compare with other hosts."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTraffic:
    """What a run was to go over."""

    fabric: str
    chosen: Collection[str] = ()
    """Names of NICs; empty: none were named."""
    nics: int | None = None
    """NICs that each host was to use; None: not known, all of the fabric are expected to take part."""
    volume: int | None = None
    """Bytes that each host must have moved at least, both ways; None: not known."""


class _Shown(NamedTuple):
    """What one host shows."""

    host: str
    sentence: str
    """Without the host and the full stop."""
    line: str


def findings(hosts: Mapping[str, Traffic], expected: ExpectedTraffic) -> tuple[Finding, ...]:
    """Judge what each host moved while rows were measured; each finding is one for all hosts that show it.

    Fabrics inside a host are judged by what RDMA devices moved too; of fabrics whose NICs have no
    counters here nothing is said. One host alone reaches itself through the loopback, which is no NIC.
    """
    kind = kind_of(expected.fabric)
    if kind is None and expected.fabric not in INTRA_HOST:
        return ()
    own = {
        host: of_fabric(traffic, expected.fabric, chosen=expected.chosen, expected=expected.nics)
        for host, traffic in hosts.items()
    }
    across = len(hosts) > 1
    wrong = [
        shown for host in hosts if (shown := _wrong(host, hosts[host], own[host], expected, across=across))
    ]
    elsewhere = {shown.host for shown in wrong}
    quiet = [host for host in hosts if host not in elsewhere and (across or kind is not NicKind.NETDEV)]
    idle = [shown for host in quiet if (shown := _idle(host, own[host], expected))]
    found = (
        _one("nic-wrong-network", Severity.ERROR, wrong, _ELSEWHERE),
        _one("nic-idle", Severity.ERROR, idle, _ELSEWHERE),
        _one("nic-imbalance-tx", Severity.WARNING, list(_imbalances(own, TX)), _AFFINITY),
        _one("nic-imbalance-rx", Severity.WARNING, list(_imbalances(own, RX)), _RECEIVER),
        _errors(own),
    )
    return tuple(finding for finding in found if finding)


def _one(code: str, severity: Severity, shown: list[_Shown], advice: str) -> Finding | None:
    """Make one finding of what several hosts show: the first in full, the others by name."""
    if not shown:
        return None
    first, *rest = shown
    same = f"; the same on {listed([other.host for other in rest])}" if rest else ""
    return Finding(
        code=code,
        severity=severity,
        meaning=f"{first.host}: {first.sentence}{same}.",
        line=first.line[:LONGEST_QUOTE],
        advice=advice,
    )


# ---------------------------------------------------------------- where the bytes went


def _wrong(
    host: str, traffic: Traffic, own: Traffic, expected: ExpectedTraffic, *, across: bool
) -> _Shown | None:
    """Find NICs that were not asked for and moved the bytes, more than ten times what those asked for did."""
    if (not own.nics and expected.chosen) or any(nic.unreadable for nic in own.nics):
        return None
    rest = others(traffic, own)
    for fabric in _FABRICS:
        same = kind_of(fabric) is kind_of(expected.fabric)
        if (same and not expected.chosen) or (fabric == "tcp" and not across):
            continue
        other = of_fabric(rest, fabric)
        if other.total >= FLOOR * max(1, len(other.nics)) and own.total < LOW * other.total:
            moved = f"{listed([nic.name for nic in other.nics if nic.total])} moved {amount(other.total)}"
            of_asked = listed([nic.name for nic in own.nics]) or expected.fabric
            sentence = f"{expected.fabric} was requested and {moved}, {of_asked} {amount(own.total)}"
            return _Shown(host, sentence, _line(traffic.nics))
    return None


def _idle(host: str, own: Traffic, expected: ExpectedTraffic) -> _Shown | None:
    """Find NICs that moved less than a tenth of what they must have; where that is not known, nothing at all.

    An interface always moves something, so it needs that volume; nobody but a benchmark uses an RDMA device.
    Where the counters of one of them do not tell, nothing is said.
    """
    if not own.nics or any(nic.unreadable for nic in own.nics):
        return None
    limit = LOW * expected.volume if expected.volume is not None else 1
    if own.total >= limit or (expected.volume is None and kind_of(expected.fabric) is NicKind.NETDEV):
        return None
    must = f" of at least {amount(expected.volume)}" if expected.volume is not None else ""
    sentence = f"the NICs of {expected.fabric} moved {amount(own.total)}{must} while rows were measured"
    return _Shown(host, sentence, _line(own.nics))


# ---------------------------------------------------------------- balance


def _imbalances(own: Mapping[str, Traffic], way: str) -> Iterator[_Shown]:
    """Judge one way; not where it is little beside the other: acknowledgements follow the data."""
    for host, traffic in own.items():
        counts, other = _counts(traffic, way), _counts(traffic, RX if way == TX else TX)
        sums = sum(counts.values()), sum(other.values())
        if sums[0] >= LOW * sums[1] and (sentence := _imbalance(counts, way)):
            even = other and sums[1] >= LOW * sums[0] and not _imbalance(other, way)
            note = f", while {'receiving' if way == TX else 'sending'} is even" if even else ""
            line = ", ".join(f"{name} {way[:2]} {amount(count)}" for name, count in counts.items())
            yield _Shown(host, sentence + note, line)


def _counts(traffic: Traffic, way: str) -> dict[str, int]:
    return {nic.name: nic.moved[way] for nic in traffic.nics if way in nic.moved}


def _imbalance(counts: Mapping[str, int], way: str) -> str:
    """Return which NICs stand out, the few above the mean or the few far below it; empty: none does."""
    found = balance(list(counts.values()))
    if found is None or found.mean < FLOOR:
        return ""
    low = [name for name, count in counts.items() if count < LOW * found.mean]
    high = [name for name, count in counts.items() if count > MAX_OVER_MEAN * found.mean]
    if not low and not high:
        return ""
    few = high if high and (not low or len(high) <= len(low)) else low
    share = sum(counts[name] for name in few) / found.sum
    return (
        f"{listed(few)} ({len(few)} of {len(counts)} NICs) {'sent' if way == TX else 'received'} "
        f"{format_decimal(100 * share, 1)} % of {amount(found.sum)} "
        f"(max/mean {format_decimal(found.max_over_mean, 2)}, cv {format_decimal(found.cv, 2)})"
    )


# ---------------------------------------------------------------- errors


def _errors(own: Mapping[str, Traffic]) -> Finding | None:
    shown, warning = [], False
    for host, traffic in own.items():
        grown = {nic.name: troubles for nic in traffic.nics if (troubles := _troubles(nic))}
        if grown:
            warning = warning or any(_heavy(nic) for nic in traffic.nics)
            lines = [
                f"{name} {', '.join(f'{at} +{by}' for at, by in of.items())}" for name, of in grown.items()
            ]
            counted = sorted({at for of in grown.values() for at in of})
            shown.append(_Shown(host, f"{listed(counted)} grew on {listed(list(grown))}", "; ".join(lines)))
    return _one(
        "nic-errors",
        Severity.WARNING if warning else Severity.NOTE,
        shown,
        _SENT_AGAIN,
    )


def _troubles(nic: NicTraffic) -> dict[str, int]:
    """Return the error counters that grew. A few on a plain interface mean nothing."""
    if nic.kind is NicKind.NETDEV and not _heavy(nic):
        return {}
    return {name: by for name, by in nic.moved.items() if by and name in _SERIOUS | _LOST}


def _heavy(nic: NicTraffic) -> bool:
    if any(nic.moved.get(name) for name in _SERIOUS):
        return True
    lost = sum(nic.moved.get(name, 0) for name in _LOST)
    return lost > _MANY * sum(nic.moved.get(name, 0) for name in (TX_PACKETS, RX_PACKETS))


def _line(nics: Iterable[NicTraffic]) -> str:
    busiest = sorted(nics, key=lambda nic: -nic.total)
    return ", ".join(f"{nic.name} tx {amount(nic.tx)} rx {amount(nic.rx)}" for nic in busiest)


# ---------------------------------------------------------------- evenness, and amounts as text

_RATES = [Scale(unit, RATE_UNITS[unit]) for unit in ("TB/s", "GB/s", "MB/s", "KB/s", "B/s")]


def rate_scale(largest: float) -> Scale:
    """Choose how to write bytes per second of which `largest` is the largest: of idle NICs, down to `B/s`."""
    return next((found for found in _RATES if largest >= found.factor), _RATES[-1])


def amount_scale(largest: float) -> Scale:
    """Choose how to write numbers of bytes of which `largest` is the largest."""
    found = rate_scale(largest)
    return Scale(found.unit.removesuffix("/s"), found.factor)


def amount(count: float | None) -> str:
    """Write a number of bytes: 12.1e9 is ``"12.1 GB"``, and ``"-"`` stands for what is not known."""
    return "-" if count is None else amount_scale(count).quantity(count)


def rate(value: float | None) -> str:
    """Write bytes per second: ``"12.1 GB/s"``, ``"52.5 B/s"``, ``"-"``."""
    return "-" if value is None else rate_scale(value).quantity(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Of what each of several NICs moved. Perfectly even: `max_over_mean` 1, `cv` 0."""

    max_over_mean: float
    cv: float
    """Coefficient of variation: the standard deviation of the whole population divided by the mean."""
    sum: float
    mean: float


def balance(values: Sequence[float]) -> Balance | None:
    """Judge values that are not negative. None where nothing is to balance: fewer than two, or all 0."""
    total = math.fsum(values)
    if len(values) < 2 or total == 0:
        return None
    mean = total / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return Balance(max_over_mean=max(values) / mean, cv=deviation / mean, sum=total, mean=mean)
