"""NICs while a job runs that somebody else started: samples of hosts, and what they show together.

Nothing is known of what the job asked for: the NICs that move the most are taken for those that
carry it. The limits are fabbench's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple, TypeAlias

from fabbench.counters.findings import LOW, Asked, Shown, findings, one_finding, rate
from fabbench.counters.snapshot import (
    GONE,
    KINDS,
    Moved,
    NicTraffic,
    Snapshot,
    Traffic,
    difference,
    of_fabric,
)
from fabbench.counters.vocabulary import RX, RX_PACKETS, TX, TX_PACKETS
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Finding, Severity
from fabbench.model.mappings import Names, Reasons, distinct
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_decimal
from fabbench.model.values import frozen

_MOVES = 1e6
"""Bytes per second from which a NIC moves: what idle hosts exchange is less."""
_JOB = 100e6
"""Bytes per second in both directions from which TCP carries a job, on hosts with RDMA NICs."""
_PACKET = 1024
"""Bytes that are assumed of a packet where bytes are not counted (soft-RoCE)."""
_UNEVEN = 0.25
"""Part of the median of all hosts by which a few of them are off."""
STILL_S = 10.0
"""Seconds without data after which a job hangs, or has ended."""
_RDMA = {
    "efa": "EFA NICs",
    "ib": "InfiniBand NICs",
    "roce": "RoCE NICs",
    "cxi": "Slingshot NICs",
}
_LABELS = {**_RDMA, "tcp": "interfaces"}
_RDMA_KINDS = [KINDS[fabric] for fabric in _RDMA]


class HostSamples:
    """Snapshots of one host, one after the other: what moved since the last one, and in all."""

    def __init__(self) -> None:
        self.newest = self.total = Traffic(seconds=None, nics=())
        """What moved between the last two snapshots, and since the first, as far as counted."""
        self.still_s = 0.0
        """For how long nothing has moved now."""
        self.notes: dict[str, None] = {}
        """Sentences: what could not be read, or was not always counted, each once."""
        self._last: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> None:
        """Add a snapshot."""
        self.notes |= dict.fromkeys(snapshot.unread)
        if self._last is not None:
            self._add(difference(self._last, snapshot))
        self._last = snapshot

    def restart(self) -> None:
        """Leave out what moved before the last two snapshots."""
        self.total = self.newest

    def _add(self, moved: Traffic) -> None:
        # Add what moved since the last snapshot to the total.
        self.newest = moved
        seconds = moved.seconds or 0.0
        self.still_s = 0.0 if moving(moved) else self.still_s + seconds
        nics = {(nic.kind, nic.name): nic for nic in self.total.nics}
        for nic in moved.nics:
            key = (nic.kind, nic.name)
            # Interfaces without a device come and go with containers: they just count anew.
            if not nic.counters and nic.device:
                self.notes[f"{nic.name}: {nic.unreadable}"] = None
                nics.setdefault(key, nic)
            elif key in nics and nics[key].counters:
                nics[key] = nics[key].plus(nic)
            else:  # the first time that it counts
                nics[key] = nic
        total_s = seconds + (self.total.seconds or 0.0)
        all_nics = tuple(nics.values())
        self.total = Traffic(seconds=total_s or None, nics=all_nics)


Hosts: TypeAlias = Mapping[str, HostSamples]


class JobView(NamedTuple):
    """What NCCL's RAS and inspector say of the job."""

    # Which ranks wait for which for long, without a period; empty: none, or it is not known
    waits: str = ""
    # What it has said for as long as data may pause: a fault where none move
    findings: Sequence[Finding] = ()
    note: str = ""  # Sentences: where RAS answers, or that one of them says nothing
    # How fast its calls are, and for whom ranks wait: while it runs
    calls: Sequence[Finding] = ()


@frozen
class WatchResult:
    """What the samples of all hosts show together."""

    format: int = 1
    # Of one that is stored; times are in seconds since the epoch
    id: str = ""
    target: str = ""
    started: float = 0.0
    first: str
    """A sentence: the verdict, and what carries data."""
    last: str
    """A sentence: the verdict, and its reason."""
    carriers: Moved
    """What the NICs moved that could carry the data; if none does, all NICs."""
    findings: Sequence[Finding]
    notes: Sequence[str]
    status: Exit

    @property
    def hosts(self) -> Names:
        """The hosts that were sampled."""
        return tuple(self.carriers)

    @property
    def verdict(self) -> str:
        """The answer in a word."""
        return _VERDICTS[self.status]

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return self.first


_VERDICTS = {
    Exit.FINE: "ok",
    Exit.BAD_ANSWER: "bad",
    Exit.REFUSED: "incomplete",
    Exit.UNTRUSTED: "undecided",
}


def judged(
    hosts: Hosts,
    failed: Reasons,
    job: JobView = JobView(),  # noqa: B008 - it is immutable
    *,
    newest: bool = False,
) -> WatchResult:
    """Judge what hosts moved, so far or between their last two snapshots.

    `failed`: hosts that do not answer → why.
    """
    sampled = {host: samples for host, samples in hosts.items() if samples.total.seconds}
    moved = {host: samples.total for host, samples in sampled.items()}
    if newest:
        moved = {host: samples.newest for host, samples in sampled.items()}
    fabric = _carrying(moved)
    carriers = moved
    if fabric:
        carriers = {host: of_fabric(traffic, fabric) for host, traffic in moved.items()}
    headline = _headline(carriers, fabric)
    still_s = min((samples.still_s for samples in sampled.values()), default=0.0)
    hangs = False
    calls = job.calls
    if still_s >= STILL_S and (fabric or job.waits):
        why = f"{job.waits} (RAS)" if job.waits else "the job has ended, or hangs"
        headline = f"nothing has moved for {still_s:.0f} s: {why}"
        hangs = bool(job.waits)
        fabric = ""
        calls = ()  # They were before that
    lost = [f"{host} could not be watched: {why}" for host, why in failed.items()]
    notes = lost[1:]  # the last sentence of all has the first
    if job.note:
        notes.append(job.note)
    for host, samples in sampled.items():
        notes += (f"{host}: {note}" for note in samples.notes)
    of_job = () if fabric else job.findings
    found = [*of_job, *job.calls]
    found += filter(None, _findings(sampled, moved, carriers, fabric))
    bad = [f"{headline}."] if hangs else []
    bad += [each.meaning for each in found if each.severity is not Severity.NOTE]
    # Exit status → the sentences that say why; empty: nothing does.
    reasons = {
        Exit.UNTRUSTED: [] if fabric or lost or of_job or calls else [f"{headline}."],
        Exit.REFUSED: lost,
        Exit.BAD_ANSWER: bad,
        Exit.FINE: ["nothing stands out."],
    }
    status = worst(*filter(reasons.get, reasons))  # of those that have a reason
    reason, *_ = reasons[status]
    verdict = _VERDICTS[status]
    return WatchResult(
        first=f"{verdict}: {headline}.",
        last=f"{verdict}: {reason}",
        carriers=carriers,
        findings=found,
        notes=notes,
        status=status,
    )


# ---------------------------------------------------------------- what carries the data


def carries(hosts: Hosts) -> bool:
    """Return whether NICs carried a job between the last two snapshots."""
    newest = {host: samples.newest for host, samples in hosts.items()}
    return bool(_carrying(newest))


def load(traffic: Traffic, nic: NicTraffic) -> float:
    """Return bytes per second in the busier direction, estimated where only packets are counted."""
    count = nic.counters.get
    moved = max(count(TX, 0), count(RX, 0))
    if nic.unreadable:
        moved = _PACKET * max(count(TX_PACKETS, 0), count(RX_PACKETS, 0))
    return traffic.rate(moved) or 0.0


def moving(traffic: Traffic) -> list[NicTraffic]:
    """Return the NICs that move data, and the loopback."""
    return [nic for nic in traffic.nics if load(traffic, nic) >= _MOVES]


def _carrying(moved: Moved) -> str:
    """Return the fabric whose NICs carry the data; empty: none moves.

    Where interfaces count what RDMA devices move, too, they do not move far more. Beside RDMA
    devices some TCP is usual.
    """
    least_tcp = _MOVES
    loads = dict.fromkeys(_LABELS, 0.0)
    for traffic in moved.values():
        if any(nic.kind in _RDMA_KINDS for nic in traffic.nics):
            least_tcp = _JOB
        for fabric in loads:
            nics = moving(of_fabric(traffic, fabric))
            loads[fabric] += sum(load(traffic, nic) for nic in nics)
    tcp = loads.pop("tcp")
    rdma = max(loads, key=loads.__getitem__)
    if loads[rdma] and loads[rdma] >= LOW * tcp:  # a tenth of what interfaces move
        return rdma
    return "tcp" if tcp >= least_tcp else ""


def _headline(carriers: Moved, fabric: str) -> str:
    """Say how many NICs carry which part of their links' rates, and where."""
    if not carriers:
        return "no host was sampled"
    hosts = f"on {counted(len(carriers), 'sampled host')}"
    if not fabric:
        return f"no NIC carries a job {hosts}"
    total = 0.0  # bytes per second
    busy: list[NicTraffic] = []
    for traffic in carriers.values():
        nics = moving(traffic)
        busy += nics
        total += sum(load(traffic, nic) for nic in nics)
    links = [nic.link_rate or 0 for nic in busy]
    much = f"{rate(total / len(busy))} each"
    if all(links):
        share = format_decimal(100 * total / sum(links), 0)
        much = f"{share} % of their rate"
    names = listed(distinct(nic.name for nic in busy))
    count = sum(len(traffic.nics) for traffic in carriers.values())
    label = _LABELS[fabric]
    which = f"{len(busy)} of {count} {label} ({names})"
    return f"{which} carry {much} {hosts}"


# ---------------------------------------------------------------- what is bad


def _findings(
    sampled: Hosts, moved: Moved, carriers: Moved, fabric: str
) -> Iterator[Finding | None]:
    yield one_finding("nic-gone", _gone(sampled))
    if fabric == "tcp":
        yield one_finding("tcp-instead", _tcp_beside_idle_nics(moved, carriers))
        yield from findings(moved, Asked(fabric=fabric))  # also by what TCP counts
    elif fabric:
        yield from findings(_in_use(carriers), Asked(fabric=fabric))
    if fabric:
        yield one_finding("host-uneven", _uneven_hosts(carriers))


def _in_use(carriers: Moved) -> Moved:
    """Leave out NICs that are idle on all hosts, as they have another purpose.

    But not half or more of the NICs of a host.
    """
    names = {nic.name for traffic in carriers.values() for nic in moving(traffic)}
    used: dict[str, Traffic] = {}
    for host, traffic in carriers.items():
        nics = tuple(nic for nic in traffic.nics if nic.name in names)
        most_move = 2 * len(nics) > len(traffic.nics)
        used[host] = replace(traffic, nics=nics) if most_move else traffic
    return used


def _gone(sampled: Hosts) -> Iterator[Shown]:
    for host, samples in sampled.items():
        for note in samples.notes:
            if note.endswith(GONE):
                yield Shown(host, note.removesuffix("."))


def _tcp_beside_idle_nics(moved: Moved, carriers: Moved) -> Iterator[Shown]:
    """Find hosts with as much TCP in both directions as only a job has, and RDMA NICs."""
    for host, traffic in moved.items():
        devices = (nic for nic in traffic.nics if nic.kind in _RDMA_KINDS)
        # The data go over TCP: devices that could carry them, as their links are up, do not.
        idle = [nic.name for nic in devices if nic.up]
        both_ways = 0
        for nic in carriers[host].nics:
            both_ways += min(nic.tx or 0, nic.rx or 0)
        if idle and (traffic.rate(both_ways) or 0) >= _JOB:
            names = listed([nic.name for nic in carriers[host].nics])
            yield Shown(host, f"the data go over {names} (TCP) beside idle NICs: {listed(idle)}")


def _uneven_hosts(carriers: Moved) -> Iterator[Shown]:
    """Find the few hosts that send far from the median of all; if none does, that receive so."""
    for counter, verb in ((TX, "sends"), (RX, "receives")):
        rates: dict[str, float] = {}
        for host, traffic in carriers.items():
            count = sum(nic.counters.get(counter, 0) for nic in traffic.nics)
            rates[host] = traffic.rate(count) or 0.0
        usual = median(rates.values())
        off = [host for host, own in rates.items() if _is_far(own, usual)]
        if usual and 2 * len(off) < len(rates):
            for host in off:
                percent = format_decimal(100 * rates[host] / usual, 0)
                yield Shown(host, f"it {verb} {percent} % of what the others do")
            if off:
                return


def _is_far(own: float, usual: float) -> bool:
    return abs(own - usual) > _UNEVEN * usual
