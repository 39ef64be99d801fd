"""Checks between hosts: what should be the same on all, their clocks, whether they reach each other."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.check.values import About, Check, Clock, Connection, Contact, Status
from fabbench.hosts.found import Link, Probe
from fabbench.hosts.mpi import Mpi
from fabbench.instances import efa_reaches

_CLOCK_WARN_S, _CLOCK_FAIL_S = 1.0, 30.0
_NAMED = 3
"""Hosts named in a sentence."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that should be the same on all hosts. `everywhere`: even where no host tells it."""

    name: str
    value: Callable[[Probe], str]
    advice: str
    everywhere: bool = False


_SAME = (
    _Same("kernel", lambda probe: probe.kernel, "Start all hosts from one image.", everywhere=True),
    _Same(
        "libfabric version",
        lambda probe: probe.libfabric,
        "Install the same libfabric on all hosts.",
        everywhere=True,
    ),
    _Same("EFA installer", lambda probe: probe.efa_installer, "Run the same EFA installer on all hosts."),
    _Same("EFA driver", lambda probe: probe.efa_driver, "Run the same EFA installer on all hosts."),
    _Same(
        "NVIDIA driver",
        lambda probe: probe.nvidia_driver or next((gpu.driver for gpu in probe.gpus), ""),
        "Install the same NVIDIA driver on all hosts.",
    ),
    _Same("NCCL", lambda probe: ", ".join(probe.nccl), "Install the same NCCL on all hosts."),
    _Same(
        "one mpirun",
        lambda probe: _mpirun(probe.mpi) if probe.mpi else "",
        "Use one MPI on all hosts: mpirun starts its own daemon on each of them.",
    ),
)


def among(hosts: Sequence[About], interfaces: Mapping[str, str]) -> Iterator[Check]:
    """Check what should be the same on all hosts; nothing where there is only one."""
    if len(hosts) < 2:
        return
    for same in _SAME:
        values = {about.host: same.value(about.probe) for about in hosts}
        if same.everywhere or any(values.values()):
            yield from _alike(hosts, same.name, values, same.advice)
    programs = dict.fromkeys(name for about in hosts for name in about.wanted.programs if name != "mpirun")
    for program in programs:
        advice = f"Install one build of {program} in one place on all hosts: mpirun starts it by one path."
        yield from _alike(hosts, f"one {program}", _builds(hosts, program), advice, fails=_elsewhere(hosts))
    advice = "NCCL_SOCKET_IFNAME takes one list for all hosts: name a prefix, or several names."
    yield from _alike(hosts, "interface names", interfaces, advice)
    yield from _types(hosts)
    yield from _zones(hosts)


def _alike(
    hosts: Sequence[About],
    name: str,
    values: Mapping[str, str],
    advice: str,
    *,
    fails: Callable[[str, str], bool] = lambda usual, other: False,  # noqa: ARG005
) -> Iterator[Check]:
    """Compare every host with what most have (of equals, the first); `fails` says what is worse than warn."""
    known = [values[about.host] for about in hosts if values.get(about.host)]
    usual = Counter(known).most_common(1)[0][0] if known else ""
    having = [about.host for about in hosts if values.get(about.host) == usual]
    for about in hosts:
        value = values.get(about.host, "")
        if not value:
            seen = f"Not known, while {_names(having)} {_have(having)} {usual}." if usual else "Not known."
            yield about.skip(name, seen, "See whether it is installed there, or where it is.")
        elif len(known) == 1:
            yield about.skip(name, f"{value}; no other host says its own.", "See why the others do not.")
        elif value == usual:
            yield about.passed(name, f"{value}.")
        else:
            give = about.fail if fails(usual, value) else about.warn
            yield give(name, f"{value}, while {_names(having)} {_have(having)} {usual}.", advice)


def _builds(hosts: Sequence[About], program: str) -> Mapping[str, str]:
    """Give where each host has a program, and the size of its file, which stands for its build."""
    found = ((about.host, about.probe.programs.get(program)) for about in hosts)
    return {host: f"{item.path}, {item.size} bytes" for host, item in found if item and item.size is not None}


def _elsewhere(hosts: Sequence[About]) -> Callable[[str, str], bool]:
    """Say what fails: another place where mpirun starts the program, but no other build."""
    mpi = any(about.wanted.mpi for about in hosts)
    return lambda usual, other: mpi and usual.rpartition(",")[0] != other.rpartition(",")[0]


def _mpirun(mpi: Mpi) -> str:
    return f"{mpi.kind.rstrip(' 45')} {mpi.version} at {mpi.program}"


def _types(hosts: Sequence[About]) -> Iterator[Check]:
    values = {about.host: about.probe.instance_type for about in hosts}
    if any(values.values()):
        advice = (
            "Measure hosts of one type: EFA of p4d, p4de and dl1 reaches only each other, and a mixed run is "
            "as fast as its slowest host."
        )
        yield from _alike(
            hosts, "instance type", values, advice, fails=lambda usual, other: not efa_reaches(usual, other)
        )


def _zones(hosts: Sequence[About]) -> Iterator[Check]:
    values = {about.host: about.probe.zone for about in hosts}
    if any(values.values()):
        efa = any(about.probe.devices_of(Link.EFA) or about.wanted.fabric == "efa" for about in hosts)
        advice = (
            "Start all hosts in one Availability Zone: EFA does not cross zones, and TCP is slower there."
        )
        yield from _alike(hosts, "zone", values, advice, fails=lambda usual, other: efa and usual != other)


def clock(about: About, told: Clock | None) -> Check:
    """Check how far the host's clock is from the one here, as far as the round trip lets it be known."""
    name = "clock"
    if told is None:
        return about.skip(name, "The clock was not compared.", "Check again: the host did not tell its time.")
    seen = f"The clock is {told.offset_s:+.3g} s off (± {told.uncertainty_s:.2g} s)."
    least = abs(told.offset_s) - told.uncertainty_s
    advice = "Start chrony or another time service there: logs and records of hosts cannot be put in order."
    if least > _CLOCK_FAIL_S:
        return about.fail(name, seen, advice)
    if least > _CLOCK_WARN_S:
        return about.warn(name, seen, advice)
    if abs(told.offset_s) + told.uncertainty_s > _CLOCK_WARN_S:
        return about.skip(
            name, f"{seen} That is too vague.", "Check again when the way to the host is quick."
        )
    return about.passed(name, seen)


def connections(
    host: str, others: Sequence[str], tried: Mapping[tuple[str, str], Connection]
) -> Iterator[Check]:
    """Check that a host reaches those of the others that it was told to try; nothing where there are none."""
    if not others:
        return
    untried = Connection(contact=Contact.UNTRIED)
    results = {other: tried.get((host, other), untried) for other in others}
    failed = [f"{name} ({found.why})" if found.why else name for name, found in _of(results, Contact.FAILED)]
    reached = [name for name, _ in _of(results, Contact.OK)]
    whys = dict.fromkeys(found.why for _, found in _of(results, Contact.UNTRIED) if found.why)
    name = "connections"
    if failed:
        advice = (
            "Open all ports between the hosts, both ways. On EC2 the security group needs rules for all "
            "traffic to and from itself: for EFA a rule for addresses is not enough."
        )
        seen = f"Not reached: {_names(failed)}{f'; reached: {len(reached)}' if reached else ''}."
        yield Check(host=host, name=name, status=Status.FAIL, seen=seen, advice=advice)
    elif reached:
        seen = f"Reached {_names(reached)}."
        yield Check(host=host, name=name, status=Status.PASS, seen=seen)
    else:
        seen = f"No connection was tried{': ' + ', '.join(whys) if whys else ''}."
        advice = "Check with --full to try every pair."
        yield Check(host=host, name=name, status=Status.SKIP, seen=seen, advice=advice)


def _of(results: Mapping[str, Connection], contact: Contact) -> list[tuple[str, Connection]]:
    return [(name, found) for name, found in results.items() if found.contact is contact]


def _names(names: Sequence[str]) -> str:
    shown, more = ", ".join(names[:_NAMED]), len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
