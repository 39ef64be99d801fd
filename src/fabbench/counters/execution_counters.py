"""The counters around one execution: which NICs count, what they show, and how they are stored.

`ExecutionCounters` is the document of a run directory, `counters/NNN-ARM-rR.json`, one per
execution.

A script prints them as marker lines, one per host: ``#@fabbench nics 000-tcp-r1 when=before
number=0 host=a fabric=tcp chosen=eth0 among=all packed=H4sI…``. `number` is the host's index in the
plan. `packed` is what `SNAPSHOT` printed there, as gzip and base64: 32 NICs make a thousand lines.
It is empty if the host did not answer in time. The other words are what the NICs are judged
against.
"""

import math
import zlib
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeGuard

from fabbench.counters.findings import WITHOUT_ROWS, Asked, findings
from fabbench.counters.snapshot import (
    KINDS,
    Moved,
    NicTraffic,
    Snapshot,
    Traffic,
    difference,
    of_fabric,
    read_snapshot,
)
from fabbench.model.hosts import Host
from fabbench.model.log import (
    Finding,
    Log,
    Marker,
    Point,
    Proof,
    Severity,
    marker_words,
)
from fabbench.model.mappings import Names, distinct, gathered, map_values, without_empty
from fabbench.model.messages import listed
from fabbench.model.plan import Execution
from fabbench.model.units import parse_whole
from fabbench.model.values import frozen


@dataclass(frozen=True, slots=True)
class Pair:
    """The snapshots of one host around an execution; None for one that could not be taken."""

    before: Snapshot | None
    after: Snapshot | None


@frozen
class ExecutionCounters:
    """The snapshots before and after one execution."""

    format: Literal[1] = 1
    hosts: Mapping[str, Pair]
    asked: Asked
    failures: tuple[str, ...] = ()
    """Sentences: why snapshots are missing, where that was reported."""

    def traffic(self) -> dict[str, Traffic]:
        """Return what each host moved, without hosts that lack a snapshot."""
        return {
            host: difference(pair.before, pair.after)
            for host, pair in self.hosts.items()
            if pair.before and pair.after
        }

    def of_fabric(self, traffic: Moved) -> dict[str, Traffic]:
        """Return the traffic of the fabric's NICs per host, idle ones too.

        Hosts that have none of these are left out.
        """
        moved: dict[str, Traffic] = {}
        for host, of_host in traffic.items():
            # Without the number that was to be used, by which idle ones would be left out.
            wanted = of_fabric(of_host, self.asked.fabric, chosen=self.asked.chosen)
            if wanted.nics:
                moved[host] = wanted
        return moved

    def findings(self, *, measured: bool) -> tuple[Finding, ...]:
        """Judge what the NICs moved; `measured`: whether rows were."""
        judged: list[Finding] = []
        if len(self.asked.among) > 1:
            traffic = self.traffic()
            moved = {host: traffic[host] for host in traffic if host in self.asked.among}
            judged += findings(moved, self.asked)
        # Errors hold even if no row was measured; the other findings are about what was measured.
        kept = [finding for finding in judged if measured or finding.code in WITHOUT_ROWS]
        return (*kept, *self._notes_on_missing())

    def _notes_on_missing(self) -> Iterator[Finding]:
        # Hosts without a snapshot from before, or after; and why, as far as it was reported.
        pairs = self.hosts.items()
        missing = {
            "before": [host for host, pair in pairs if pair.before is None],
            "after": [host for host, pair in pairs if pair.after is None],
        }
        why = " ".join(self.failures)
        for when, hosts in missing.items():
            if hosts:
                yield note(f"No NIC counters of {listed(hosts)} from {when} this execution. {why}")


def expected_nics(execution: Execution, hosts: Sequence[Host]) -> Asked:
    """Return which NICs an execution was to use, and which hosts exchange data in it.

    The NICs are named by the domain or devices that were chosen, and for sockets by the interface
    of each host. A pair uses one NIC on each side. For ranks, the proof has the number of NICs per
    host; fewer ranks than GPUs use a proportional part of them.
    """
    among = list(range(len(hosts)))  # numbers of hosts
    nics = _nics_per_host(execution, hosts)
    pairs = [step for step in execution.steps if step.pair]
    if pairs:
        nics = len(pairs) if execution.together else 1  # of all pairs at once, or one by one
        sides = {command.host for step in pairs for command in step.commands}
        among = sorted(sides)
    # Data that stay on one machine pass no NIC: nothing is judged.
    if len(hosts) < 2 or any(host.virtual for host in hosts):
        among = []
    return Asked(
        fabric=execution.proof.fabric,
        chosen=_chosen_nics(execution.proof, hosts),
        expected=nics,
        among=tuple(hosts[index].name for index in among),
    )


def _chosen_nics(proof: Proof, hosts: Sequence[Host]) -> Names:
    """Return the names of the NICs that were chosen; empty if none were.

    For sockets, the interface of each host is one, if all are known.
    """
    if proof.domain:
        return (proof.domain,)
    interfaces = [host.interface for host in hosts]
    if not proof.devices and proof.fabric == "tcp" and all(interfaces):
        return distinct(interfaces)
    return proof.devices


def _nics_per_host(execution: Execution, hosts: Sequence[Host]) -> int | None:
    """Return how many NICs the ranks of each host are to use; None: all that the fabric has."""
    ranks = max((step.ranks for step in execution.steps), default=0)
    gpus = sum(host.gpus for host in hosts)
    devices = max(len(host.linked(execution.proof.fabric)) for host in hosts)
    required = execution.proof.nics or None  # 0 asks for no number
    if not devices or not 0 < ranks < gpus:  # nothing tells a part of the NICs
        return required
    # Each rank uses the NICs nearest to its GPU: of fewer ranks, only a part is used.
    part = math.ceil(devices * ranks / gpus)
    return min(part, required or part)


def with_counter_findings(
    logs: Iterable[Log], counters: ExecutionCounters | None
) -> tuple[Log, ...]:
    """Add to the logs of one execution what its NICs show.

    No outcome changes: logs alone decide those.

    The counters cannot be attributed to one of several logs, and so each log gets all findings.
    """
    known = tuple(logs)
    if counters is None:
        return known
    measured = any(log.points for log in known)
    shown = counters.findings(measured=measured)
    return noted(known, shown) if shown else known


def noted(logs: Iterable[Log], added: Sequence[Finding]) -> tuple[Log, ...]:
    """Add findings to logs."""
    return tuple(replace(log, findings=(*log.findings, *added)) for log in logs)


def note(meaning: str) -> Finding:
    """Return a finding that says why counters are missing."""
    return Finding(code="nic-counters", severity=Severity.NOTE, meaning=meaning.rstrip())


# ---------------------------------------------------------------- several executions


def total(
    executions: Sequence[ExecutionCounters],
) -> tuple[dict[str, Traffic], Sequence[str]]:
    """Add up what the fabric's NICs moved in several executions of one configuration.

    Return host → its traffic, and notes. A NIC that is unreadable in one of them is unreadable in
    the sum.
    """
    of_executions = [counters.of_fabric(counters.traffic()) for counters in executions]
    moved = gathered(item for each in of_executions for item in each.items())
    sums = map_values(_sum_of_traffic, moved)
    return sums, distinct(chain.from_iterable(map(_notes, executions)))


def _notes(counters: ExecutionCounters) -> Iterator[str]:
    # Why counters say nothing of the data, and what of the snapshots could not be read.
    asked = counters.asked
    if len(asked.among) < 2 and asked.fabric in KINDS:  # `among`: hosts that exchange data
        yield "All data stayed inside one host: NIC counters ignored."
    for host, pair in counters.hosts.items():
        for taken in (pair.before, pair.after):
            for sentence in taken.unread if taken else ():
                yield f"{host}: {sentence}"


def _sum_of_traffic(traffics: Sequence[Traffic]) -> Traffic:
    # If one time is not known, the sum is not.
    nics: dict[str, NicTraffic] = {}
    seconds: float | None = 0.0
    for traffic in traffics:
        if seconds is not None and traffic.seconds is not None:
            seconds += traffic.seconds
        else:
            seconds = None
        for nic in traffic.nics:
            earlier = nics.get(nic.name)
            nics[nic.name] = nic if earlier is None else earlier.plus(nic)
    return Traffic(seconds=seconds, nics=tuple(nics.values()))


# ---------------------------------------------------------------- printed


_MOST_BYTES = 1 << 20
"""Bytes of a snapshot that are read; hosts with 32 NICs have some 70 KB."""
_EXPANDS = 100
"""The largest factor by which a snapshot may expand when it is unpacked.

Those of hosts expand some 20.
"""


def expected_facts(execution: Execution, hosts: Sequence[Host]) -> str:
    """Return what the NICs of an execution are judged against, as facts of a marker line."""
    asked = expected_nics(execution, hosts)
    facts = {
        "fabric": asked.fabric,
        "chosen": ",".join(asked.chosen),
        "expected": "" if asked.expected is None else str(asked.expected),
        "among": _numbers_of_hosts(asked.among, hosts),
    }
    return marker_words(without_empty(facts))


def _numbers_of_hosts(names: Collection[str], hosts: Sequence[Host]) -> str:
    """Return the numbers of some hosts, as a marker line states them: `0,2`, or `all`."""
    if len(names) == len(hosts):
        return "all"
    numbers = [number for number, host in enumerate(hosts) if host.name in names]
    return ",".join(map(str, numbers))


class PrintedCounters:
    """The counters that a script printed for one execution."""

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self._facts: Mapping[str, str] | None = None
        """Those of the last marker: all say what the NICs are judged against."""
        self._hosts: dict[str, Pair] = {}  # Host → its counters before and after
        self._failures: dict[str, None] = {}  # Sentences, each once
        self._name_of_number: dict[str, str] = {}
        """Number of a host → its name."""

    @property
    def counters(self) -> ExecutionCounters | None:
        """Return what is known so far; None if nothing was printed yet."""
        if self._facts is None:
            return None
        return ExecutionCounters(
            asked=self._asked(self._facts),
            hosts=self._hosts,
            failures=tuple(filter(None, self._failures)),  # empty: none was reported
        )

    def _asked(self, facts: Mapping[str, str]) -> Asked:
        # The inverse of `expected_facts`: numbers of hosts become their names again.
        chosen = facts.get("chosen", "").split(",")
        numbers = facts.get("among", "").split(",")
        if "all" in numbers:
            numbers = list(self._name_of_number)
        among = (name for number, name in self._name_of_number.items() if number in numbers)
        return Asked(
            fabric=facts.get("fabric", ""),
            chosen=tuple(filter(None, chosen)),
            expected=parse_whole(facts.get("expected", "")),
            among=tuple(among),
        )

    def take(self, marker: Marker) -> None:
        """Read a marker line with the snapshot of one host.

        One from before the execution replaces both earlier ones: a job that restarts prints it
        again.
        """
        facts = marker.facts
        name = facts.get("host", "a host without a name")
        # The first name of a number counts, so that both snapshots are of one host.
        host = self._name_of_number.setdefault(facts.get("number", ""), name)
        taken, failure = _unpacked(facts.get("packed", ""), host)
        self._failures[failure] = None
        if facts.get("when") == "before":
            self._hosts[host] = Pair(taken, after=None)
        else:
            earlier = self._hosts.get(host)
            before = earlier.before if earlier else None
            self._hosts[host] = Pair(before=before, after=taken)
        self._facts = facts


def _unpacked(text: str, host: str) -> tuple[Snapshot | None, str]:
    """Return the snapshot, or None and the reason, which is empty if the host did not answer."""
    try:
        unpacking = zlib.decompressobj(31)  # gzip
        packed = b64decode(text, validate=True)
        limit = _EXPANDS * (len(packed) + 1)  # a log's text may be made to expand far more
        plain = unpacking.decompress(packed, min(_MOST_BYTES, limit))
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
        self._current: PrintedCounters | None = None
        """The counters of the execution whose steps are being read."""
        self._next: PrintedCounters | None = None
        """Those of the next execution: steps of the one before may not have become logs yet."""
        self._kept: list[Log] = []
        """Logs of the current execution that are held back."""

    def take(self, marker: Marker) -> None:
        """Read a marker line with counters: those from before begin the next execution."""
        if marker.facts.get("when") == "before":
            if not _are_of_execution(self._next, marker):
                self._next = PrintedCounters(marker.execution)
            self._next.take(marker)
        elif _are_of_execution(self._current, marker):
            self._current.take(marker)

    def begun(self, marker: Marker) -> Sequence[Log]:
        """Record that a step starts, which its begin marker names.

        Return the logs of the previous execution, if this is another one: what its NICs show is
        then known, and this one's counters become the current ones.
        """
        starts = _are_of_execution(self._next, marker)
        if not starts and _are_of_execution(self._current, marker):
            return []
        logs = self.close()
        self._current = None
        if starts:
            self._current = self._next
            self._next = None
        return logs

    def keep(self, results: list[Point | Log]) -> list[Point | Log]:
        """Hold back the logs among the results, if there are counters; return the rest."""
        if self._current is None:
            return results
        self._kept += [result for result in results if isinstance(result, Log)]
        return [result for result in results if not isinstance(result, Log)]

    def close(self) -> Sequence[Log]:
        """Return the logs that were held back."""
        kept = self._kept
        self._kept = []
        return with_counter_findings(
            kept, counters=self._current.counters if self._current else None
        )


def _are_of_execution(
    counters: PrintedCounters | None, marker: Marker
) -> TypeGuard[PrintedCounters]:
    """Return whether there are counters, and of the execution that a marker names."""
    return counters is not None and counters.execution == marker.execution
