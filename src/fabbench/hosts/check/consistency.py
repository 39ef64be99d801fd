"""Checks between hosts: what should be the same on all, and whether they reach each other."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.catalog.instances import efa_reaches
from fabbench.hosts.check.model import ADVICE, Check, Connection, HostChecks, Status, outcome
from fabbench.hosts.check.one_host import FACTS, Fact, interface_of
from fabbench.hosts.probe_result import Link
from fabbench.model.messages import listed

_NAMED = 3
"""How many hosts a sentence names."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that should be the same on all hosts.

    `always` checks it even if no host reports it.
    """

    name: str
    value: Callable[[HostChecks], str]
    kind: str = ""  # Its key in outcomes.toml, if not the name
    always: bool = False
    fails: Callable[[Sequence[HostChecks], str, str], bool] = lambda *_: False
    """Of hosts, the usual value and another: whether that is a failure, and not a warning."""


def _fact(fact: Fact) -> _Same:
    return _Same(f"same {fact.name}", lambda each: fact.summary(each.probe.topology), "topology")


_SAME = (
    _Same("kernel", lambda each: each.probe.kernel, always=True),
    _Same("libfabric version", lambda each: each.probe.libfabric, always=True),
    _Same("EFA installer", lambda each: each.probe.efa_installer),
    _Same("EFA driver", lambda each: each.probe.efa_driver),
    _Same("NIC driver", lambda each: each.probe.of_nics("driver")),
    _Same("NIC firmware", lambda each: each.probe.of_nics("firmware")),
    *map(_fact, FACTS),
    _Same("NVIDIA driver", lambda each: each.probe.gpu_driver),
    _Same("NCCL", lambda each: ", ".join(each.probe.nccl)),
    _Same(
        "one mpirun",
        lambda each: (
            f"{mpi.kind.rstrip(' 45')} {mpi.version} at {mpi.program}"
            if (mpi := each.probe.mpi)
            else ""
        ),
    ),
    _Same("interface names", interface_of, always=True),
    _Same(
        "instance type",
        lambda each: each.probe.instance_type,
        fails=lambda _, usual, other: not efa_reaches(usual, other),
    ),
    _Same(
        "zone",
        lambda each: each.probe.zone,
        fails=lambda hosts, *_: any(
            each.probe.devices_of(Link.EFA) or each.fabric == "efa" for each in hosts
        ),
    ),
)


def _program(name: str) -> _Same:
    """Return the check of a program's build, for which the size of its file stands."""

    def build(checks: HostChecks) -> str:
        found = checks.probe.programs.get(name)
        return f"{found.path}, {found.size} bytes" if found and found.size is not None else ""

    def elsewhere(hosts: Sequence[HostChecks], usual: str, other: str) -> bool:
        mpi = any(each.needs.mpi for each in hosts)
        return mpi and usual.rpartition(",")[0] != other.rpartition(",")[0]

    return _Same(f"one {name}", build, "program", always=True, fails=elsewhere)


def among(hosts: Sequence[HostChecks]) -> Iterator[Check]:
    """Check what should be the same on all hosts; nothing if there is only one."""
    requested = dict.fromkeys(
        name for each in hosts for name in each.needs.programs if name != "mpirun"
    )
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
            result = outcome(
                "same.differs",
                status,
                value=value,
                others=others,
                advice=ADVICE[same.kind or same.name],
            )
        yield checks.check(same.name, result)


def connections(
    host: str, others: Sequence[str], tried: Mapping[tuple[str, str], Connection]
) -> Check:
    """Check that a host reaches those of the others that it was to try."""
    attempts = {other: tried.get((host, other), Connection(made=None)) for other in others}
    failed = [
        f"{other} ({each.why})" if each.why else other
        for other, each in attempts.items()
        if each.made is False
    ]
    reached = [other for other, each in attempts.items() if each.made]
    if failed:
        but = f"; reached: {len(reached)}" if reached else ""
        return outcome("connections.failed", names=listed(failed, _NAMED), reached=but)
    if reached:
        return outcome("connections.reached", names=listed(reached, _NAMED))
    whys = ", ".join(dict.fromkeys(each.why for each in attempts.values() if each.why))
    return outcome("connections.untried", whys=f": {whys}" if whys else "")
