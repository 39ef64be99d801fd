"""Checks between hosts: what should be the same on all, and whether they reach each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from fabbench.catalog.systems import efa_reaches
from fabbench.hosts.check.model import (
    Attempts,
    Check,
    Connection,
    HostChecks,
    HostDifference,
    Opening,
    Status,
    differences,
    outcome,
)
from fabbench.hosts.check.one_host import FACTS, Fact
from fabbench.hosts.probe_result import Link
from fabbench.model.mappings import distinct, most_common
from fabbench.model.messages import listed, with_remark

_CLOCK_S = 1.0
"""How far clocks may be apart, in seconds."""
_NAMED = 3
"""How many hosts a sentence names."""
_UNTRIED = Connection(made=None)


_Fails: TypeAlias = Callable[[Sequence[HostChecks], str, str], bool]
"""Of hosts, the usual value and another: whether that is a failure, and not a warning."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that should be the same on all hosts."""

    name: str
    record: HostDifference
    value: Callable[[HostChecks], str]
    fails: _Fails = lambda *_: False

    def differs(self, value: str, others: str, *, fails: bool) -> Check:
        """Return the outcome of a host with a value that the others, in words, do not have."""
        status = Status.FAIL if fails else None
        advice = self.record.advice
        return outcome("same.differs", status, value=value, others=others, advice=advice)


def _same_fact(fact: Fact) -> _Same:
    def summary(checks: HostChecks) -> str:
        return fact.summary(checks.probe.topology)

    return _Same(f"same {fact.name}", differences()["topology"], summary)


def _efa_is_involved(hosts: Sequence[HostChecks], *_: str) -> bool:
    """Return whether EFA is there or requested: it does not cross zones."""
    present = any(each.probe.devices_of(Link.EFA) for each in hosts)
    return present or any(each.fabric == "efa" for each in hosts)


def _all_same() -> Iterator[_Same]:
    """Yield what should be the same, but for the programs: in the order of the records."""
    fails: dict[str, _Fails] = {
        "instance type": lambda _, usual, other: not efa_reaches(usual, other),
        "zone": _efa_is_involved,
    }
    for name, record in differences().items():
        if name == "topology":
            yield from map(_same_fact, FACTS)
        elif name in fails:
            yield _Same(name, record, attrgetter(record.value), fails[name])
        elif record.value:
            yield _Same(name, record, attrgetter(record.value))


def _same_program(name: str) -> _Same:
    """Return the check of a program's build, for which the size of its file stands."""

    def build(checks: HostChecks) -> str:  # what tells builds apart; empty: not found there
        program = checks.probe.programs.get(name)
        if program is None or program.size is None:
            return ""
        return f"{program.path}, {program.size} bytes"

    def elsewhere(hosts: Sequence[HostChecks], usual: str, other: str) -> bool:
        # mpirun starts ranks by one path; another build at the same path is only a warning.
        # Values are those of `build`: PATH, SIZE.
        usual_path, _, _ = usual.rpartition(",")
        path, _, _ = other.rpartition(",")
        return path != usual_path and any(each.needs.mpi for each in hosts)

    return _Same(f"one {name}", differences()["program"], build, elsewhere)


def among(hosts: Sequence[HostChecks]) -> Iterator[Check]:
    """Check what should be the same on all hosts; nothing if there is only one."""
    if len(hosts) < 2:
        return
    requested = distinct(name for each in hosts for name in each.needs.programs)
    programs = [_same_program(name) for name in requested if name != "mpirun"]
    for same in (*_all_same(), *programs):
        values = {each.host: same.value(each) for each in hosts}  # empty: not reported
        if same.record.always or any(values.values()):
            yield from _compare_with_usual(same, hosts, values)


def _compare_with_usual(
    same: _Same, hosts: Sequence[HostChecks], values: Mapping[str, str]
) -> Iterator[Check]:
    """Compare every host with the most common value (of equals, the first)."""
    known = list(filter(None, values.values()))
    usual = most_common(known, default="")
    having = [host for host, value in values.items() if value == usual]
    have = "has" if len(having) == 1 else "have"
    others = f"while {listed(having, _NAMED)} {have} {usual}."
    alone = len(known) == 1  # Only one host reports it
    for checks in hosts:
        value = values[checks.host]
        if not value:
            result = outcome("same.unknown", others=f", {others}" if usual else ".")
        elif value == usual:
            result = outcome("same.alone" if alone else "same.same", value=value)
        else:
            fails = same.fails(hosts, usual, value)
            result = same.differs(value, others, fails=fails)
        yield checks.check(same.name, result)


def opened(opening: Opening) -> Mapping[str, Check]:
    """Check that files can be written, and that programs start there, as every run does first."""
    if not opening.writes:  # Nothing is said of an agent that could not be written
        return {"files": outcome("files.no", why=opening.why)}
    return {
        "files": outcome("files.yes"),
        "agent": outcome("agent.yes" if opening.starts else "agent.no", why=opening.why),
    }


def clock(host: str, clocks: Mapping[str, float]) -> Check:
    """Check that a host's clock shows what most do; this machine's decides where none do.

    `clocks`: host → by how many seconds it is ahead of this machine's; negative: behind.
    """
    values = [0.0, *clocks.values()]  # This machine's own first: of equally usual ones it counts

    def alike(one: float) -> int:
        near = [other for other in values if abs(one - other) <= _CLOCK_S]
        return len(near)

    usual = max(values, key=alike)
    ahead = clocks[host] - usual
    how = "ahead of" if ahead > 0 else "behind"
    name = "clock.off" if abs(ahead) > _CLOCK_S else "clock.right"
    return outcome(name, seconds=abs(ahead), how=how)


def connections(host: str, others: Sequence[str], tried: Attempts) -> Check:
    """Check that a host reaches those of the others that it was to try.

    One failure outweighs any number that were reached.
    """
    attempts = {other: tried.get((host, other), _UNTRIED) for other in others}
    failed = [other for other, each in attempts.items() if each.made is False]
    reached = [other for other, each in attempts.items() if each.made]
    if failed:
        with_reasons = [with_remark(other, attempts[other].why) for other in failed]
        names = listed(with_reasons, _NAMED)
        but = f"; reached: {len(reached)}" if reached else ""
        return outcome("connections.failed", names=names, reached=but)
    if reached:
        return outcome("connections.reached", names=listed(reached, _NAMED))
    whys = distinct(each.why for each in attempts.values())
    reasons = ", ".join(filter(None, whys))
    return outcome("connections.untried", whys=f": {reasons}" if reasons else "")
