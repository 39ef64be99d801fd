"""The counters around one execution: which NICs count, what they show, and how they are stored.

Pure.

`ExecutionCounters` is the document of a run directory, `counters/NNN-ARM-rR.json`, one per
execution.

A script prints them as marker lines, one per host: ``#@fabbench nics 000-tcp-r1 when=before
number=0 host=a fabric=tcp chosen=eth0 among=all packed=H4sI…``. `number` is the host's index in the
plan. `packed` is what `SNAPSHOT` printed there, as gzip and base64: 32 NICs make a thousand lines.
It is empty if the host did not answer in time. The other words are what the NICs are judged
against.
"""

import math
import re
import zlib
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fabbench.counters.findings import WITHOUT_ROWS, Asked, findings
from fabbench.counters.snapshot import (
    KINDS,
    NicTraffic,
    Snapshot,
    Traffic,
    difference,
    of_fabric,
    read_snapshot,
)
from fabbench.model.hosts import Host
from fabbench.model.log import Finding, Log, Marker, Outcome, Point, Severity, marker_words
from fabbench.model.messages import listed
from fabbench.model.patterns import lazy
from fabbench.model.plan import Execution


@dataclass(frozen=True, slots=True)
class Pair:
    """The snapshots of one host around an execution; None for one that could not be taken."""

    before: Snapshot | None
    after: Snapshot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCounters:
    """The snapshots before and after one execution."""

    format: Literal[1] = 1
    hosts: Mapping[str, Pair]
    asked: Asked
    failures: tuple[str, ...] = ()
    """Sentences: why snapshots are missing, where that was reported."""

    def traffic(self) -> dict[str, Traffic]:
        """Return what each host moved, without hosts that lack a snapshot."""
        pairs = {host: (pair.before, pair.after) for host, pair in self.hosts.items()}
        return {
            host: difference(before, after)
            for host, (before, after) in pairs.items()
            if before and after
        }

    def of_fabric(self, traffic: Mapping[str, Traffic]) -> dict[str, Traffic]:
        """Return the traffic of the fabric's NICs per host, idle ones too, without hosts that have none."""
        kept = {
            host: of_fabric(moved, self.asked.fabric, chosen=self.asked.chosen)
            for host, moved in traffic.items()
        }
        return {host: moved for host, moved in kept.items() if moved.nics}

    def findings(self, *, measured: bool, most: float | None = None) -> tuple[Finding, ...]:
        """Judge what the NICs moved. `measured`: whether rows were; `most`.

        As `findings` takes it.
        """
        asked = self.asked
        moved = {host: traffic for host, traffic in self.traffic().items() if host in asked.among}
        judgments = findings(moved, asked, most) if len(asked.among) > 1 else ()
        # Errors hold even if no row was measured; the other findings are about what was measured.
        kept = (finding for finding in judgments if measured or finding.code in WITHOUT_ROWS)
        notes = (
            note(
                f"No NIC counters of {listed(hosts)} from {when} this execution. "
                f"{' '.join(self.failures)}"
            )
            for when in ("before", "after")
            if (hosts := [host for host, pair in self.hosts.items() if getattr(pair, when) is None])
        )
        return (*kept, *notes)


def expected_nics(execution: Execution, hosts: Sequence[Host]) -> Asked:
    """Return which NICs an execution was to use, and which hosts exchange data in it.

    The NICs are named by the domain or devices that were chosen, and for sockets by the interface
    of each host. A pair uses one NIC on each side. For ranks, the proof has the number of NICs per
    host; fewer ranks than GPUs use a proportional part of them.
    """
    fabric = execution.proof.fabric
    interfaces = [host.interface for host in hosts]
    chosen = execution.proof.devices
    if execution.proof.domain:
        chosen = (execution.proof.domain,)
    elif not chosen and fabric == "tcp" and all(interfaces):
        chosen = tuple(dict.fromkeys(interfaces))
    pairs = [step for step in execution.steps if step.pair]
    nics = _nics_per_host(execution, hosts)
    among = tuple(host.name for host in hosts)
    if pairs:
        nics = len(pairs) if execution.together else 1
        sides = {command.host for step in pairs for command in step.commands}
        among = tuple(host.name for index, host in enumerate(hosts) if index in sides)
    one = len(hosts) == 1 or any(host.virtual for host in hosts)
    return Asked(fabric=fabric, chosen=chosen, expected=nics, among=() if one else among)


def _nics_per_host(execution: Execution, hosts: Sequence[Host]) -> int | None:
    """Return the number of NICs that the ranks of each host are to use; None if not known."""
    ranks = max(
        (sum(command.ranks for command in step.commands) for step in execution.steps), default=0
    )
    gpus = sum(host.gpus for host in hosts)
    devices = max(len(host.linked(execution.proof.fabric)) for host in hosts)
    required = execution.proof.nics or None
    if not devices or not 0 < ranks < gpus:
        return required
    part = math.ceil(devices * ranks / gpus)
    return min(part, required or part)


def with_counter_findings(
    logs: Iterable[Log], counters: ExecutionCounters | None
) -> tuple[Log, ...]:
    """Add to the logs of one execution what its NICs show. No outcome changes.

    Logs alone decide those.

    The counters cannot be attributed to one of several logs, and so each log gets all findings.
    """
    known = tuple(logs)
    if counters is None:
        return known
    sent = [_most_sent(log) for log in known]
    most = None if None in sent else sum(filter(None, sent))
    judgments = counters.findings(measured=any(log.points for log in known), most=most)
    return noted(known, judgments) if judgments else known


def _most_sent(log: Log) -> float | None:
    """Return the bytes that a pair sent at most, both directions and headers included.

    None if not known.

    fi_pingpong prints the number of messages per row; perftest once, without those of its margins
    (-D).
    """
    if log.benchmark not in {"pingpong", "perftest"} or log.outcome is not Outcome.OK:
        return None
    sent: dict[tuple[int, str], float] = {}
    for point in log.points:
        count = _COUNT.fullmatch(str(point.labels.get("sent") or log.facts.get("iterations") or ""))
        if count is None:
            return None
        messages = (
            float(count[1])
            * {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}[count[2]]
            * int(log.facts.get("qps") or 1)
        )
        messages *= (1 if point.labels.get("direction") == "uni" else 2) * (
            1.25 if log.benchmark == "perftest" else 1
        )
        sent[point.size, point.labels.get("device", "")] = messages * (point.size + _HEADERS)
    return sum(sent.values()) or None


_COUNT = lazy(r"(\d{1,9}(?:\.\d)?)([kmb]?)", re.ASCII)
_HEADERS = 200
"""Bytes around a small message, and of its acknowledgement."""


def noted(logs: Iterable[Log], added: Sequence[Finding]) -> tuple[Log, ...]:
    """Add findings to logs."""
    return tuple(replace(log, findings=(*log.findings, *added)) for log in logs)


def note(meaning: str) -> Finding:
    """Return a finding that says why counters are missing."""
    return Finding(code="nic-counters", severity=Severity.NOTE, meaning=meaning.rstrip())


# ---------------------------------------------------------------- several executions


def total(executions: Iterable[ExecutionCounters]) -> tuple[dict[str, Traffic], list[str]]:
    """Add up what the fabric's NICs moved in several executions of one configuration.

    By host, and notes.

    A NIC that is unreadable in one of them is unreadable in the sum.
    """
    moved: dict[str, list[Traffic]] = {}
    notes: dict[str, None] = {}
    for counters in executions:
        for host, traffic in counters.of_fabric(counters.traffic()).items():
            moved.setdefault(host, []).append(traffic)
        if len(counters.asked.among) < 2 and KINDS.get(counters.asked.fabric):
            notes["All data stayed inside one host: NIC counters ignored."] = None
        for host, pair in counters.hosts.items():
            for taken in (pair.before, pair.after):
                notes |= dict.fromkeys(
                    f"{host}: {sentence}" for sentence in (taken.unread if taken else ())
                )
    return {host: _sum(traffics) for host, traffics in moved.items()}, list(notes)


def _sum(traffics: Sequence[Traffic]) -> Traffic:
    known = [traffic.seconds for traffic in traffics if traffic.seconds is not None]
    nics: dict[str, NicTraffic] = {}
    for nic in (nic for traffic in traffics for nic in traffic.nics):
        other = nics.get(nic.name, replace(nic, counters=dict.fromkeys(nic.counters, 0)))
        moved = {
            name: count + nic.counters[name]
            for name, count in other.counters.items()
            if name in nic.counters
        }
        nics[nic.name] = replace(
            other, counters=moved, unreadable=other.unreadable or nic.unreadable
        )
    return Traffic(
        seconds=sum(known) if len(known) == len(traffics) else None, nics=tuple(nics.values())
    )


# ---------------------------------------------------------------- printed


_LARGEST = 1 << 20
"""Bytes of a snapshot that are read; hosts with 32 NICs have some 70 KB."""
_EXPANDS = 100
"""The largest factor by which a snapshot may expand when it is unpacked.

Those of hosts expand some 20.
"""


def expected_facts(execution: Execution, hosts: Sequence[Host]) -> str:
    """Return what the NICs of an execution are judged against, as facts of a marker line."""
    asked = expected_nics(execution, hosts)
    numbers = ",".join(str(number) for number, host in enumerate(hosts) if host.name in asked.among)
    nics = "" if asked.expected is None else str(asked.expected)
    facts = {"fabric": asked.fabric, "chosen": ",".join(asked.chosen), "expected": nics}
    facts["among"] = "all" if len(asked.among) == len(hosts) else numbers
    return marker_words({name: text for name, text in facts.items() if text})


class PrintedCounters:
    """The counters that a script printed for one execution."""

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self._facts: Mapping[str, str] | None = None
        """Those of the last marker: all say what the NICs are judged against."""
        self._hosts: dict[str, Pair] = {}
        self._failures: dict[str, None] = {}
        self._names: dict[str, str] = {}
        """Number of a host → its name."""

    @property
    def counters(self) -> ExecutionCounters | None:
        """Return what is known so far; None if nothing was printed yet."""
        if self._facts is None:
            return None
        fabric, chosen, nics, among = (
            self._facts.get(name, "") for name in ("fabric", "chosen", "expected", "among")
        )
        return ExecutionCounters(
            asked=Asked(
                fabric=fabric,
                chosen=tuple(filter(None, chosen.split(","))),
                expected=int(nics) if nics.isdecimal() else None,
                among=tuple(
                    name
                    for number, name in self._names.items()
                    if {number, "all"} & {*among.split(",")}
                ),
            ),
            hosts=self._hosts,
            failures=tuple(filter(None, self._failures)),
        )

    def take(self, marker: Marker) -> None:
        """Read a line. Counters from before replace earlier ones.

        A job that restarts prints them again.
        """
        facts = marker.facts
        host = self._names.setdefault(
            facts.get("number", ""), facts.get("host", "a host without a name")
        )
        taken, failure = _unpacked(facts.get("packed", ""), host)
        self._failures[failure] = None
        before = self._hosts[host].before if host in self._hosts else None
        self._hosts[host] = (
            Pair(taken, None) if facts.get("when") == "before" else Pair(before, taken)
        )
        self._facts = facts


def _unpacked(text: str, host: str) -> tuple[Snapshot | None, str]:
    """Return the snapshot, or None and the reason, which may be empty."""
    try:
        unpacking = zlib.decompressobj(31)  # gzip
        packed = b64decode(text, validate=True)
        plain = unpacking.decompress(packed, min(_LARGEST, _EXPANDS * len(packed) + _EXPANDS))
    except (ValueError, zlib.error):
        return None, f"The printed counters of {host} are damaged."
    if text and not unpacking.eof:
        return None, f"The printed counters of {host} are incomplete."
    lines = plain.decode("utf-8", "replace").splitlines()
    return (read_snapshot(lines), "") if lines else (None, "")


class ExecutionMarkers:
    """Adds to the logs of each execution what its NICs show, if the script printed the counters.

    Logs are held back until all counters of their execution were read. Without counters none are.
    """

    def __init__(self) -> None:
        self._now: PrintedCounters | None = None
        """The counters of the execution whose steps are being read."""
        self._next: PrintedCounters | None = None
        """Those of the next execution: the one before may have steps open that have not become logs yet."""
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
        """Record that a step starts.

        Return the logs of the previous execution, if this is another one.
        """
        starts = self._next is not None and self._next.execution == marker.execution
        if not starts and self._now is not None and self._now.execution == marker.execution:
            return []
        logs = self.close()
        self._now, self._next = (self._next, None) if starts else (None, self._next)
        return logs

    def keep(self, results: list[Point | Log]) -> list[Point | Log]:
        """Hold back the logs among the results, if there are counters; return the rest."""
        if self._now is None:
            return results
        self._kept += [result for result in results if isinstance(result, Log)]
        return [result for result in results if not isinstance(result, Log)]

    def close(self) -> Sequence[Log]:
        """Return the logs that were held back."""
        logs = with_counter_findings(
            self._kept, self._now.counters if self._now is not None else None
        )
        self._kept = []
        return logs
