"""The counters around one execution: whose NICs count, what is found, and how it is stored. Pure.

The document of an execution (`fabbench.counters.stored`) has two more names: ``"asked"`` says what its NICs
are judged by, null where nothing is to be judged, and ``"failures"`` why snapshots are missing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabbench.counters.amounts import names
from fabbench.counters.findings import Asked, findings
from fabbench.counters.snapshot import Snapshot
from fabbench.counters.stored import Pair, hosts_document, hosts_from_document
from fabbench.counters.traffic import NicTraffic, Traffic, kind_of, of_fabric
from fabbench.errors import MachineError
from fabbench.machines import Host
from fabbench.model import Finding, Log, Severity, Shape, Trial

_WITHOUT_ROWS = frozenset({"nic-errors"})
"""Findings that hold where no row was measured; the others are about what was."""
_ALONE = "All data stayed inside one host, where they need not pass its NICs: what these moved is not judged."


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The snapshots before and after one execution."""

    asked: Asked
    among: tuple[str, ...]
    """Hosts that exchanged data; fewer than two: nothing is judged."""
    hosts: Mapping[str, Pair]
    failures: tuple[str, ...] = ()
    """Sentences: why snapshots are missing, where that was told."""

    def traffic(self) -> dict[str, Traffic]:
        """Say what the hosts moved; those that lack a snapshot are left out."""
        return {host: moved for host, pair in self.hosts.items() if (moved := pair.traffic())}

    def own(self, traffic: Mapping[str, Traffic]) -> dict[str, Traffic]:
        """Keep the NICs of the fabric, of hosts that have any. None is left out for being idle."""
        kept = {
            host: of_fabric(moved, self.asked.fabric, chosen=self.asked.chosen)
            for host, moved in traffic.items()
        }
        return {host: moved for host, moved in kept.items() if moved.nics}

    def findings(self, *, measured: bool) -> tuple[Finding, ...]:
        """Judge what the NICs moved; `measured` says whether rows were."""
        moved = {host: traffic for host, traffic in self.traffic().items() if host in self.among}
        found = findings(moved, self.asked) if len(self.among) > 1 else ()
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
                yield _note(f"There are no NIC counters of {names(hosts)} {when} this execution. {why}")


def whose(trial: Trial, hosts: Sequence[Host]) -> tuple[Asked, tuple[str, ...]]:
    """Say which NICs a trial was to use, and which hosts exchange data in it.

    A domain that was chosen names the NIC, and for sockets the interface of each host. A pair uses one NIC
    of each side. Of ranks the proof says how many NICs each has, and fewer ranks than GPUs have their part.
    """
    fabric = trial.proof.fabric
    interfaces = [host.interface for host in hosts]
    chosen: tuple[str, ...] = ()
    if trial.proof.domain:
        chosen = (trial.proof.domain,)
    elif fabric == "tcp" and all(interfaces):
        chosen = tuple(dict.fromkeys(interfaces))
    pairs = [step for step in trial.steps if step.shape is Shape.PAIR]
    expected = _expected(trial, hosts)
    among = tuple(host.name for host in hosts)
    if pairs:
        expected = len(pairs) if trial.together else 1
        sides = {command.host for step in pairs for command in step.commands}
        among = tuple(host.name for index, host in enumerate(hosts) if index in sides)
    one = len(hosts) == 1 or any(host.virtual for host in hosts)
    return Asked(fabric=fabric, chosen=chosen, expected=expected), () if one else among


def _expected(trial: Trial, hosts: Sequence[Host]) -> int | None:
    """Give the number of NICs that the ranks of each host are to use; None: not known."""
    ranks = max((sum(command.ranks for command in step.commands) for step in trial.steps), default=0)
    gpus = sum(host.gpus for host in hosts)
    devices = max(len(host.linked(trial.proof.fabric)) for host in hosts)
    wanted = trial.proof.nics
    if not devices or not 0 < ranks < gpus:
        return wanted
    part = math.ceil(devices * ranks / gpus)
    return min(part, wanted or part)


def judged(logs: Iterable[Log], around: Around | None) -> tuple[Log, ...]:
    """Add to the logs of one execution what its NICs show. No outcome changes: logs alone decide those.

    The counters do not tell which of several logs they are of, and so each gets all.
    """
    known = tuple(logs)
    if around is None:
        return known
    found = around.findings(measured=any(log.points for log in known))
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


def total(arounds: Iterable[Around]) -> tuple[dict[str, Traffic], list[str]]:
    """Add up what the fabric's NICs moved in several executions of one arm: by host, and notes.

    A NIC whose counters do not tell in one of them is unreadable.
    """
    moved: dict[str, list[Traffic]] = {}
    notes: dict[str, None] = {}
    for around in arounds:
        for host, traffic in around.own(around.traffic()).items():
            moved.setdefault(host, []).append(traffic)
        if len(around.among) < 2 and kind_of(around.asked.fabric):
            notes[_ALONE] = None
        for host, pair in around.hosts.items():
            for taken in pair:
                notes |= dict.fromkeys(f"{host}: {sentence}" for sentence in _unread(taken))
    return {host: _sum(traffics) for host, traffics in moved.items()}, list(notes)


def _unread(taken: Snapshot | None) -> tuple[str, ...]:
    return taken.unread if taken else ()


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


def document(around: Around) -> dict[str, Any]:
    """Make the document of one execution."""
    asked = around.asked
    return {
        **hosts_document(around.hosts),
        "asked": {
            "fabric": asked.fabric,
            "chosen": list(asked.chosen),
            "expected": asked.expected,
            "among": list(around.among),
        },
        "failures": list(around.failures),
    }


def from_document(stored: Any) -> Around:
    """Read the document of one execution. Raises MachineError for one that is damaged or newer."""
    hosts = hosts_from_document(stored)
    try:
        asked = stored["asked"]
        expected = asked["expected"]
        return Around(
            asked=Asked(
                fabric=str(asked["fabric"]),
                chosen=tuple(map(str, asked["chosen"])),
                expected=None if expected is None else int(expected),
            ),
            among=tuple(map(str, asked["among"])),
            hosts=hosts,
            failures=tuple(map(str, stored["failures"])),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MachineError(
            f"The stored counters are damaged: {type(error).__name__}: {error}.",
            hint="The rest of the run can be read; remove the file to have no note of it.",
        ) from error
