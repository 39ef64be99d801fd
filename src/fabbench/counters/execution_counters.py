"""The counters around one execution: whose NICs count, what is found, and how it is stored. Pure.

A run directory has `counters/NNN-ARM-rR.json`, one per execution:
``{"format": 1, "hosts": {"a": {"before": SNAPSHOT, "after": SNAPSHOT}}, "asked": …, "failures": […]}``.
A snapshot that could not be taken is null. ``"asked"`` says what the NICs are judged by, null where nothing
is to be judged, and ``"failures"`` why snapshots are missing.

A script prints them as marker lines: ``#@fabbench nics 000-tcp-r1 when=before number=0 host=a fabric=tcp
chosen=eth0 among=0,1 packed=H4sI…`` is of one host. `number` counts hosts as the plan does. `packed` is what
`SNAPSHOT` printed there, by gzip and base64: of 32 NICs these are a thousand lines. Empty: the host did not
tell in time. The other words say what the NICs are judged by.
"""

import math
import zlib
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fabbench.counters.findings import ExpectedTraffic, findings
from fabbench.counters.snapshot import (
    Nic,
    NicKind,
    NicTraffic,
    Snapshot,
    Traffic,
    difference,
    kind_of,
    of_fabric,
    read_snapshot,
)
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host
from fabbench.model.log import Finding, Log, Marker, Point, Severity, marker_words
from fabbench.model.messages import listed
from fabbench.model.plan import Execution, Shape

FORMAT = 1


class Pair(NamedTuple):
    """The snapshots of one host around an execution; None: it could not be taken."""

    before: Snapshot | None
    after: Snapshot | None

    def traffic(self) -> Traffic | None:
        """Subtract them; None where one of the two is missing."""
        return difference(self.before, self.after) if self.before and self.after else None


def hosts_document(hosts: Mapping[str, Pair]) -> dict[str, Any]:
    """Make the document of one execution."""
    pairs = {
        host: {name: snapshot_document(taken) if taken else None for name, taken in pair._asdict().items()}
        for host, pair in hosts.items()
    }
    return {"format": FORMAT, "hosts": pairs}


def hosts_from_document(document: Any) -> dict[str, Pair]:
    """Read the document of one execution. Raise MachineError for one that is damaged or newer."""
    _check_format(document)
    try:
        return {
            host: Pair(*(snapshot_from_document(pair[name]) if pair[name] else None for name in Pair._fields))
            for host, pair in document["hosts"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(error) from error


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """Make one snapshot's document. Its numbers are in base units."""
    nics = [
        {
            "name": nic.name,
            "kind": nic.kind.value,
            "counters": dict(nic.counters),
            "link_rate": nic.link_rate,
            "device": nic.device,
            "up": nic.up,
        }
        for nic in snapshot.nics
    ]
    return {"format": FORMAT, "time": snapshot.time, "nics": nics, "unread": list(snapshot.unread)}


def snapshot_from_document(document: Any) -> Snapshot:
    """Read one snapshot's document. Raise MachineError for one that is damaged or of another format."""
    _check_format(document)
    try:
        nics = tuple(
            Nic(
                name=str(nic["name"]),
                kind=NicKind(nic["kind"]),
                counters={str(name): _count(value) for name, value in nic["counters"].items()},
                link_rate=None if nic["link_rate"] is None else float(nic["link_rate"]),
                device=bool(nic["device"]),
                up=None if nic["up"] is None else bool(nic["up"]),
            )
            for nic in document["nics"]
        )
        time = None if document["time"] is None else float(document["time"])
        return Snapshot(time=time, nics=nics, unread=tuple(map(str, document["unread"])))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _damaged(error) from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a counter")
    return value


def _check_format(document: Any) -> None:
    number = document.get("format") if isinstance(document, Mapping) else None
    if number != FORMAT:
        raise MachineError(
            f"The stored counters have format {number}; this fabbench reads format {FORMAT}.",
            hint="Read them with the fabbench that wrote them.",
        )


def _damaged(error: Exception) -> MachineError:
    return MachineError(f"The stored counters are damaged: {type(error).__name__}: {error}.")


_WITHOUT_ROWS = frozenset({"nic-errors"})
"""Findings that hold where no row was measured; the others are about what was."""
_ALONE = "All data stayed inside one host, where it need not pass the NICs: their counters are not judged."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCounters:
    """The snapshots before and after one execution."""

    expected: ExpectedTraffic
    among: tuple[str, ...]
    """Hosts that exchanged data; fewer than two: nothing is judged."""
    hosts: Mapping[str, Pair]
    failures: tuple[str, ...] = ()
    """Sentences: why snapshots are missing, where that was told."""

    def traffic(self) -> dict[str, Traffic]:
        """Return what each host moved; hosts that lack a snapshot are left out."""
        return {host: moved for host, pair in self.hosts.items() if (moved := pair.traffic())}

    def of_fabric(self, traffic: Mapping[str, Traffic]) -> dict[str, Traffic]:
        """Return the traffic of the fabric's NICs, per host that has any. Idle NICs are kept."""
        kept = {
            host: of_fabric(moved, self.expected.fabric, chosen=self.expected.chosen)
            for host, moved in traffic.items()
        }
        return {host: moved for host, moved in kept.items() if moved.nics}

    def findings(self, *, measured: bool) -> tuple[Finding, ...]:
        """Judge what the NICs moved; `measured` says whether rows were."""
        moved = {host: traffic for host, traffic in self.traffic().items() if host in self.among}
        found = findings(moved, self.expected) if len(self.among) > 1 else ()
        kept = (finding for finding in found if measured or finding.code in _WITHOUT_ROWS)
        return (*kept, *self._missing())

    def _missing(self) -> Iterator[Finding]:
        lacking = {
            "from before": [host for host, pair in self.hosts.items() if pair.before is None],
            "from after": [host for host, pair in self.hosts.items() if pair.after is None],
        }
        why = " ".join(self.failures)
        for when, hosts in lacking.items():
            if hosts:
                yield _note(f"No NIC counters of {listed(hosts)} {when} this execution. {why}")


class ExpectedNics(NamedTuple):
    """The NICs that an execution is to use."""

    traffic: ExpectedTraffic
    among: tuple[str, ...]
    """Hosts that exchange data; empty: all ranks are on one host."""


def expected_nics(execution: Execution, hosts: Sequence[Host]) -> ExpectedNics:
    """Return which NICs an execution was to use, and which hosts exchange data in it.

    A domain or devices that were chosen name the NICs, and for sockets the interface of each host. A pair
    uses one NIC of each side. Of ranks the proof says how many NICs each has, and fewer ranks than GPUs have
    their part.
    """
    fabric = execution.proof.fabric
    interfaces = [host.interface for host in hosts]
    chosen: tuple[str, ...] = ()
    if execution.proof.domain:
        chosen = (execution.proof.domain,)
    elif execution.proof.devices:
        chosen = execution.proof.devices
    elif fabric == "tcp" and all(interfaces):
        chosen = tuple(dict.fromkeys(interfaces))
    pairs = [step for step in execution.steps if step.shape is Shape.PAIR]
    nics = _nics_per_host(execution, hosts)
    among = tuple(host.name for host in hosts)
    if pairs:
        nics = len(pairs) if execution.together else 1
        sides = {command.host for step in pairs for command in step.commands}
        among = tuple(host.name for index, host in enumerate(hosts) if index in sides)
    one = len(hosts) == 1 or any(host.virtual for host in hosts)
    return ExpectedNics(ExpectedTraffic(fabric=fabric, chosen=chosen, nics=nics), () if one else among)


def _nics_per_host(execution: Execution, hosts: Sequence[Host]) -> int | None:
    """Return the number of NICs that the ranks of each host are to use; None: not known."""
    ranks = max((sum(command.ranks for command in step.commands) for step in execution.steps), default=0)
    gpus = sum(host.gpus for host in hosts)
    devices = max(len(host.linked(execution.proof.fabric)) for host in hosts)
    wanted = execution.proof.nics or None
    if not devices or not 0 < ranks < gpus:
        return wanted
    part = math.ceil(devices * ranks / gpus)
    return min(part, wanted or part)


def judged(logs: Iterable[Log], counters: ExecutionCounters | None) -> tuple[Log, ...]:
    """Add to the logs of one execution what its NICs show. No outcome changes: logs alone decide those.

    The counters do not tell which of several logs they are of, and so each gets all.
    """
    known = tuple(logs)
    if counters is None:
        return known
    found = counters.findings(measured=any(log.points for log in known))
    return noted(known, found) if found else known


def unreadable(logs: Iterable[Log], error: MachineError) -> tuple[Log, ...]:
    """Note in the logs of one execution that its stored counters cannot be read."""
    return noted(logs, [_note(str(error))])


def noted(logs: Iterable[Log], found: Sequence[Finding]) -> tuple[Log, ...]:
    """Add findings to logs."""
    return tuple(replace(log, findings=(*log.findings, *found)) for log in logs)


def _note(meaning: str) -> Finding:
    return Finding(code="nic-counters", severity=Severity.NOTE, meaning=meaning.rstrip())


# ---------------------------------------------------------------- several executions


def total(executions: Iterable[ExecutionCounters]) -> tuple[dict[str, Traffic], list[str]]:
    """Add up what the fabric's NICs moved in several executions of one configuration: by host, and notes.

    A NIC whose counters do not tell in one of them is unreadable.
    """
    moved: dict[str, list[Traffic]] = {}
    notes: dict[str, None] = {}
    for counters in executions:
        for host, traffic in counters.of_fabric(counters.traffic()).items():
            moved.setdefault(host, []).append(traffic)
        if len(counters.among) < 2 and kind_of(counters.expected.fabric):
            notes[_ALONE] = None
        for host, pair in counters.hosts.items():
            for taken in pair:
                notes |= dict.fromkeys(f"{host}: {sentence}" for sentence in (taken.unread if taken else ()))
    return {host: _sum(traffics) for host, traffics in moved.items()}, list(notes)


def _sum(traffics: Sequence[Traffic]) -> Traffic:
    known = [traffic.seconds for traffic in traffics if traffic.seconds is not None]
    nics: dict[str, NicTraffic] = {}
    for traffic in traffics:
        for nic in traffic.nics:
            nics[nic.name] = _both(nics[nic.name], nic) if nic.name in nics else nic
    return Traffic(seconds=sum(known) if len(known) == len(traffics) else None, nics=tuple(nics.values()))


def _both(one: NicTraffic, other: NicTraffic) -> NicTraffic:
    if one.unreadable or other.unreadable:
        return replace(one, moved={}, unreadable=one.unreadable or other.unreadable)
    common = one.moved.keys() & other.moved.keys()
    return replace(
        one, moved={name: one.moved[name] + other.moved[name] for name in one.moved if name in common}
    )


# ---------------------------------------------------------------- stored


def document(counters: ExecutionCounters) -> dict[str, Any]:
    """Make the document of one execution."""
    expected = counters.expected
    return {
        **hosts_document(counters.hosts),
        "asked": {
            "fabric": expected.fabric,
            "chosen": list(expected.chosen),
            "expected": expected.nics,
            "among": list(counters.among),
        },
        "failures": list(counters.failures),
    }


def from_document(stored: Any) -> ExecutionCounters:
    """Read the document of one execution. Raise MachineError for one that is damaged or newer."""
    hosts = hosts_from_document(stored)
    try:
        asked = stored["asked"]
        nics = asked["expected"]
        return ExecutionCounters(
            expected=ExpectedTraffic(
                fabric=str(asked["fabric"]),
                chosen=tuple(map(str, asked["chosen"])),
                nics=None if nics is None else int(nics),
            ),
            among=tuple(map(str, asked["among"])),
            hosts=hosts,
            failures=tuple(map(str, stored["failures"])),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MachineError(
            f"The stored counters are damaged: {type(error).__name__}: {error}.",
            hint="The rest of the run can be read; remove the file to silence this note.",
        ) from error


_LARGEST = 1 << 20
"""Bytes of a snapshot that are read; hosts of 32 NICs have some 70 KB."""
_EXPANDS = 100
"""How many times its packed size a snapshot may have; those of hosts have some 20."""
_GZIP = 31


def expected_facts(execution: Execution, hosts: Sequence[Host]) -> str:
    """Return what the NICs of an execution are judged by, as facts of a marker line."""
    expected, among = expected_nics(execution, hosts)
    numbers = [number for number, host in enumerate(hosts) if host.name in among]
    facts = {
        "fabric": expected.fabric,
        "chosen": ",".join(expected.chosen),
        "expected": "" if expected.nics is None else str(expected.nics),
        "among": ",".join(map(str, numbers)),
    }
    return marker_words({name: text for name, text in facts.items() if text})


class PrintedCounters:
    """The counters that were printed of one execution."""

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self._expected: ExpectedTraffic | None = None
        self._among = ""
        self._hosts: dict[str, Pair] = {}
        self._failures: dict[str, None] = {}
        self._names: dict[str, str] = {}
        """Number of a host → its name."""

    @property
    def counters(self) -> ExecutionCounters | None:
        """Return what is known so far; None: nothing was printed yet."""
        if self._expected is None:
            return None
        return ExecutionCounters(
            expected=self._expected,
            among=tuple(self._names[number] for number in self._among.split(",") if number in self._names),
            hosts=self._hosts,
            failures=tuple(filter(None, self._failures)),
        )

    def take(self, marker: Marker) -> None:
        """Read a line. Counters from before, which come anew where a job does, replace those there are."""
        facts = marker.facts
        host = self._names.setdefault(facts.get("number", ""), facts.get("host", "a host without a name"))
        taken, failure = _unpacked(facts.get("packed", ""), host)
        self._failures[failure] = None
        before = self._hosts[host].before if host in self._hosts else None
        self._hosts[host] = Pair(taken, None) if facts.get("when") == "before" else Pair(before, taken)
        nics = facts.get("expected", "")
        self._among = facts.get("among", "")
        self._expected = ExpectedTraffic(
            fabric=facts.get("fabric", ""),
            chosen=tuple(filter(None, facts.get("chosen", "").split(","))),
            nics=int(nics) if nics.isdecimal() else None,
        )


def _unpacked(text: str, host: str) -> tuple[Snapshot | None, str]:
    """Read a snapshot; where there is none a sentence may say why."""
    try:
        unpacking = zlib.decompressobj(_GZIP)
        packed = b64decode(text, validate=True)
        plain = unpacking.decompress(packed, min(_LARGEST, _EXPANDS * len(packed) + _EXPANDS))
    except (ValueError, zlib.error):
        return None, f"The printed counters of {host} are damaged."
    if text and not unpacking.eof:
        return None, f"The printed counters of {host} are incomplete."
    lines = plain.decode("utf-8", "replace").splitlines()
    return (read_snapshot(lines), "") if lines else (None, "")


class Counted:
    """Adds to the logs of each execution what its NICs show, in a text whose script has printed that.

    Logs are kept back until all counters of their execution were read. Without any nothing is.
    """

    def __init__(self) -> None:
        self._now: PrintedCounters | None = None
        """Of the execution whose steps are read."""
        self._next: PrintedCounters | None = None
        """Of one that will begin: what is open of the execution before may not have become a log yet."""
        self._kept: list[Log] = []

    def take(self, marker: Marker) -> None:
        """Read counters."""
        if marker.facts.get("when") == "before":
            if self._next is None or self._next.execution != marker.execution:
                self._next = PrintedCounters(marker.execution)
            self._next.take(marker)
        elif self._now is not None and self._now.execution == marker.execution:
            self._now.take(marker)

    def begun(self, marker: Marker) -> Sequence[Log]:
        """Take note that a step begins: give the logs of the execution before, if it is of another one."""
        begins = self._next is not None and self._next.execution == marker.execution
        if not begins and self._now is not None and self._now.execution == marker.execution:
            return []
        logs = self.close()
        self._now, self._next = (self._next, None) if begins else (None, self._next)
        return logs

    def keep(self, results: list[Point | Log]) -> list[Point | Log]:
        """Keep the logs among what was read, where there are counters; give the rest."""
        if self._now is None:
            return results
        self._kept += [result for result in results if isinstance(result, Log)]
        return [result for result in results if not isinstance(result, Log)]

    def close(self) -> Sequence[Log]:
        """Return the logs that are kept."""
        logs = judged(self._kept, self._now.counters if self._now is not None else None)
        self._kept = []
        return logs
