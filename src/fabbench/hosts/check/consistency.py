"""Checks between hosts: what should be the same on all, and whether they reach each other."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fabbench.catalog.instances import efa_reaches
from fabbench.hosts.check.model import Check, Connection, HostChecks, Status, outcome
from fabbench.hosts.check.one_host import FACTS, Fact, interface_of
from fabbench.hosts.probe_result import Link
from fabbench.model.messages import listed

_NAMED = 3
"""How many hosts a sentence names."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that should be the same on all hosts. `always` checks it even if no host reports it."""

    name: str
    value: Callable[[HostChecks], str]
    advice: str
    always: bool = False
    fails: Callable[[Sequence[HostChecks], str, str], bool] = lambda *_: False
    """Of hosts, the usual value and another: whether that is a failure, and not a warning."""


def _summary(fact: Fact, checks: HostChecks) -> str:
    return fact.summary(checks.probe.topology)


_ALIKE = "Find out why: nodes of one kind are alike, and the slowest one limits all."
_SAME = (
    _Same("kernel", lambda each: each.probe.kernel, "Start all hosts from the same image.", always=True),
    _Same("libfabric version", lambda each: each.probe.libfabric, "Use the same libfabric on all hosts.", always=True),
    _Same("EFA installer", lambda each: each.probe.efa_installer, "Run the same EFA installer on all hosts."),
    _Same("EFA driver", lambda each: each.probe.efa_driver, "Run the same EFA installer on all hosts."),
    _Same("NIC driver", lambda each: each.probe.of_nics("driver"), "Install the same driver of the NICs on all hosts."),
    _Same("NIC firmware", lambda each: each.probe.of_nics("firmware"), "Update the firmware of the older NICs."),
    *(_Same(f"same {fact.name}", partial(_summary, fact), _ALIKE) for fact in FACTS),
    _Same("NVIDIA driver", lambda each: each.probe.gpu_driver, "Use the same NVIDIA driver on all hosts."),
    _Same("NCCL", lambda each: ", ".join(each.probe.nccl), "Use the same NCCL on all hosts."),
    _Same(
        "one mpirun",
        lambda each: f"{mpi.kind.rstrip(' 45')} {mpi.version} at {mpi.program}" if (mpi := each.probe.mpi) else "",
        "Use the same MPI on all hosts: mpirun starts its own daemon on each of them.",
    ),
    _Same(
        "interface names",
        interface_of,
        "NCCL_SOCKET_IFNAME is the same on all hosts: specify a prefix, or several names.",
        always=True,
    ),
    _Same(
        "instance type",
        lambda each: each.probe.instance_type,
        "Use hosts of the same type: EFA on p4d, p4de and dl1 connects only to the same type, and "
        "a mixed run is as fast as its slowest host.",
        fails=lambda _, usual, other: not efa_reaches(usual, other),
    ),
    _Same(
        "zone",
        lambda each: each.probe.zone,
        "Start all hosts in the same Availability Zone: EFA does not cross zones, and TCP is slower across them.",
        fails=lambda hosts, *_: any(
            each.probe.devices_of(Link.EFA) or each.requirements.fabric == "efa" for each in hosts
        ),
    ),
)


def _program(name: str) -> _Same:
    """Return the check of a program's build, for which the size of its file stands."""

    def build(checks: HostChecks) -> str:
        found = checks.probe.programs.get(name)
        return f"{found.path}, {found.size} bytes" if found and found.size is not None else ""

    def elsewhere(hosts: Sequence[HostChecks], usual: str, other: str) -> bool:
        mpi = any(each.requirements.mpi for each in hosts)
        return mpi and usual.rpartition(",")[0] != other.rpartition(",")[0]

    advice = f"Use the same build of {name} at the same path on all hosts: mpirun starts it by that path."
    return _Same(f"one {name}", build, advice, always=True, fails=elsewhere)


def among(hosts: Sequence[HostChecks]) -> Iterator[Check]:
    """Check what should be the same on all hosts; nothing if there is only one."""
    requested = dict.fromkeys(name for each in hosts for name in each.requirements.programs if name != "mpirun")
    for same in (*_SAME, *map(_program, requested)) if len(hosts) > 1 else ():
        values = {each.host: same.value(each) for each in hosts}
        if same.always or any(values.values()):
            yield from _alike(same, hosts, values)


def _alike(same: _Same, hosts: Sequence[HostChecks], values: Mapping[str, str]) -> Iterator[Check]:
    """Compare every host with the most common value (of equals, the first)."""
    known = Counter(filter(None, values.values()))
    usual = known.most_common(1)[0][0] if known else ""
    having = [host for host, value in values.items() if value == usual]
    others = f"while {listed(having, _NAMED)} {'has' if len(having) == 1 else 'have'} {usual}."
    for checks in hosts:
        value = values[checks.host]
        if not value:
            result = outcome("same.unknown", others=f", {others}" if usual else ".")
        elif known.total() == 1 or value == usual:
            result = outcome("same.alone" if known.total() == 1 else "same.same", value=value)
        else:
            status = Status.FAIL if same.fails(hosts, usual, value) else None
            result = outcome("same.differs", status, value=value, others=others, advice=same.advice)
        yield checks.check(same.name, result)


def connections(host: str, others: Sequence[str], tried: Mapping[tuple[str, str], Connection]) -> Check:
    """Check that a host reaches those of the others that it was to try."""
    attempts = {other: tried.get((host, other), Connection(made=None)) for other in others}
    failed = [f"{other} ({each.why})" if each.why else other for other, each in attempts.items() if each.made is False]
    reached = [other for other, each in attempts.items() if each.made]
    if failed:
        but = f"; reached: {len(reached)}" if reached else ""
        return outcome("connections.failed", names=listed(failed, _NAMED), reached=but)
    if reached:
        return outcome("connections.reached", names=listed(reached, _NAMED))
    whys = ", ".join(dict.fromkeys(each.why for each in attempts.values() if each.why))
    return outcome("connections.untried", whys=f": {whys}" if whys else "")
