"""What the NICs of a host moved between two snapshots, and which of them belong to a fabric. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fabbench.counters.snapshot import RX, TX, Kind, Nic, Snapshot

_KINDS: Mapping[str, Kind] = {
    "efa": Kind.EFA,
    "ib": Kind.IB,
    "roce": Kind.ROCE,
    "tcp": Kind.NETDEV,
    "ofi-tcp": Kind.NETDEV,
}
_FAMILIES: Mapping[str, tuple[str, str]] = {
    "send/recv": ("send_bytes", "recv_bytes"),
    "rdma-write": ("rdma_write_bytes", "rdma_write_recv_bytes"),
    "rdma-read": ("rdma_read_bytes", "rdma_read_resp_bytes"),
}
_GONE = "It was there before, and not after."
_NEW = "It was not there before."


@dataclass(frozen=True, slots=True, kw_only=True)
class NicTraffic:
    """What one NIC moved: by how much each counter grew. What is not known is absent, never 0."""

    name: str
    kind: Kind
    moved: Mapping[str, int]
    unreadable: str = ""
    """A sentence, where the counters do not tell what it moved; `moved` is empty then."""
    link_rate: float | None = None
    device: bool = True
    up: bool | None = None

    @property
    def tx(self) -> int | None:
        """Bytes sent, with what the protocol adds."""
        return self.moved.get(TX)

    @property
    def rx(self) -> int | None:
        """Bytes received, with what the protocol adds."""
        return self.moved.get(RX)

    @property
    def total(self) -> int:
        """Bytes both ways, as far as known."""
        return (self.tx or 0) + (self.rx or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the NICs of one host moved."""

    seconds: float | None
    """None: not known, and so there are no rates."""
    nics: tuple[NicTraffic, ...]

    @property
    def total(self) -> int:
        """Bytes both ways of all NICs, as far as known."""
        return sum(nic.total for nic in self.nics)

    def rate(self, count: float | None) -> float | None:
        """Bytes per second, of a number of bytes."""
        return count / self.seconds if count is not None and self.seconds else None

    def families(self) -> dict[str, int]:
        """Bytes of EFA's families of operations, the largest first; empty where no NIC tells them.

        `rdma-write` with NCCL's RDMA protocol (p5 and later), `send/recv` and `rdma-read` on p4d.
        """
        known = {
            family: [nic.moved[name] for nic in self.nics for name in files if name in nic.moved]
            for family, files in _FAMILIES.items()
        }
        sums = {family: sum(counts) for family, counts in known.items() if counts}
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def difference(before: Snapshot, after: Snapshot) -> Traffic:
    """Subtract two snapshots of one host.

    A NIC that is in one of them only, or of which a counter went backwards (its driver was loaded anew, the
    counter was cleared or came to its end), is listed as unreadable.
    """
    seconds = after.time - before.time if after.time is not None and before.time is not None else None
    restarted = "The host was restarted." if seconds is not None and seconds < 0 else ""
    earlier = {(nic.kind, nic.name): nic for nic in before.nics}
    later = {(nic.kind, nic.name): nic for nic in after.nics}
    nics = [_nic(earlier.get(key), nic, restarted) for key, nic in later.items()]
    nics += [_unreadable(nic, restarted or _GONE) for key, nic in earlier.items() if key not in later]
    return Traffic(seconds=seconds if seconds and seconds > 0 else None, nics=tuple(nics))


def _nic(before: Nic | None, after: Nic, restarted: str) -> NicTraffic:
    if before is None or restarted:
        return _unreadable(after, restarted or _NEW)
    moved = {
        name: count - before.counters[name]
        for name, count in after.counters.items()
        if name in before.counters
    }
    backwards = next((name for name, count in moved.items() if count < 0), None)
    if backwards:
        was, now = before.counters[backwards], after.counters[backwards]
        return _unreadable(after, f"{backwards} went backwards, from {was} to {now}.")
    if TX not in moved and RX not in moved:
        return _unreadable(after, "It has no counters of bytes.")
    return replace(_unreadable(after, ""), moved=moved)


def _unreadable(nic: Nic, reason: str) -> NicTraffic:
    return NicTraffic(
        name=nic.name,
        kind=nic.kind,
        moved={},
        unreadable=reason,
        link_rate=nic.link_rate,
        device=nic.device,
        up=nic.up,
    )


# ---------------------------------------------------------------- whose traffic it is


def kind_of(fabric: str) -> Kind | None:
    """Tell which NICs carry a fabric; None: none does, or their counters are not read here."""
    return _KINDS.get(fabric)


def of_fabric(
    traffic: Traffic, fabric: str, *, chosen: Collection[str] = (), expected: int | None = None
) -> Traffic:
    """Keep the NICs of a fabric.

    `chosen` names those that were asked for; libfabric's domains do too (`rdmap16s27-rdm`). Without it they
    are all ports of the fabric's kind but those that are down, and of plain interfaces the busiest, with
    those that moved at least half as much. `expected` is how many of them this host was to use, where that
    is known: only as many are kept, the busiest.
    """
    nics = [nic for nic in traffic.nics if nic.kind is _KINDS.get(fabric)]
    if chosen:
        wanted = {name.removesuffix("-rdm").removesuffix("-dgrm") for name in chosen}
        nics = [nic for nic in nics if nic.name in wanted]
    elif _KINDS.get(fabric) is Kind.NETDEV:
        nics = _busiest_interfaces(nics)
    else:
        nics = [nic for nic in nics if nic.up is not False or nic.total]
    if expected is not None and len(nics) > expected > 0:
        kept = sorted(nics, key=lambda nic: -nic.total)[:expected]
        nics = [nic for nic in nics if nic in kept]
    return replace(traffic, nics=tuple(nics))


def _busiest_interfaces(nics: Sequence[NicTraffic]) -> list[NicTraffic]:
    """Prefer interfaces with a device: bridges and veths count what goes on through one of them once more."""
    moving = [nic for nic in nics if nic.total]
    moving = [nic for nic in moving if nic.device] or moving
    most = max((nic.total for nic in moving), default=0)
    return [nic for nic in moving if 2 * nic.total >= most]


def others(traffic: Traffic, belonging: Traffic) -> Traffic:
    """Keep the NICs that are not in `belonging`."""
    names = {(nic.kind, nic.name) for nic in belonging.nics}
    return replace(traffic, nics=tuple(nic for nic in traffic.nics if (nic.kind, nic.name) not in names))
