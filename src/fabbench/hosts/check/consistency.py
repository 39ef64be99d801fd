"""Checks between hosts: what should be the same on all, their clocks, and whether they reach each other."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.catalog.instances import efa_reaches
from fabbench.hosts.check.model import Check, Clock, ConnectionAttempt, ConnectionResult, HostChecks, Status
from fabbench.hosts.probe_result import Link, Probe
from fabbench.model.messages import listed

_CLOCK_WARN_S, _CLOCK_FAIL_S = 1.0, 30.0
_NAMED = 3
"""How many hosts a sentence names."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that should be the same on all hosts. `always` checks it even if no host reports it."""

    name: str
    value: Callable[[Probe], str]
    advice: str
    always: bool = False


_SAME = (
    _Same("kernel", lambda probe: probe.kernel, "Start all hosts from the same image.", always=True),
    _Same("libfabric version", lambda probe: probe.libfabric, "Use the same libfabric on all hosts.", always=True),
    _Same("EFA installer", lambda probe: probe.efa_installer, "Run the same EFA installer on all hosts."),
    _Same("EFA driver", lambda probe: probe.efa_driver, "Run the same EFA installer on all hosts."),
    _Same(
        "NVIDIA driver",
        lambda probe: probe.nvidia_driver or next((gpu.driver for gpu in probe.gpus), ""),
        "Use the same NVIDIA driver on all hosts.",
    ),
    _Same("NCCL", lambda probe: ", ".join(probe.nccl), "Use the same NCCL on all hosts."),
    _Same(
        "one mpirun",
        lambda probe: f"{probe.mpi.kind.rstrip(' 45')} {probe.mpi.version} at {probe.mpi.program}" if probe.mpi else "",
        "Use the same MPI on all hosts: mpirun starts its own daemon on each of them.",
    ),
)


def among(hosts: Sequence[HostChecks], interfaces: Mapping[str, str]) -> Iterator[Check]:
    """Check what should be the same on all hosts; nothing if there is only one."""
    if len(hosts) < 2:
        return
    for same in _SAME:
        values = {checks.host: same.value(checks.probe) for checks in hosts}
        if same.always or any(values.values()):
            yield from _alike(hosts, same.name, values, same.advice)
    mpi = any(checks.requirements.mpi for checks in hosts)

    def elsewhere(usual: str, other: str) -> bool:
        return mpi and usual.rpartition(",")[0] != other.rpartition(",")[0]

    requested = (name for checks in hosts for name in checks.requirements.programs)
    for program in dict.fromkeys(name for name in requested if name != "mpirun"):
        advice = f"Use the same build of {program} at the same path on all hosts: mpirun starts it by that path."
        programs = ((checks.host, checks.probe.programs.get(program)) for checks in hosts)
        # The size of its file stands for its build.
        builds = {name: f"{item.path}, {item.size} bytes" for name, item in programs if item and item.size is not None}
        yield from _alike(hosts, f"one {program}", builds, advice, fails=elsewhere)
    advice = "NCCL_SOCKET_IFNAME is the same on all hosts: specify a prefix, or several names."
    yield from _alike(hosts, "interface names", interfaces, advice)
    yield from _types(hosts)
    yield from _zones(hosts)


def _alike(
    hosts: Sequence[HostChecks],
    name: str,
    values: Mapping[str, str],
    advice: str,
    *,
    fails: Callable[[str, str], bool] = lambda usual, other: False,  # noqa: ARG005
) -> Iterator[Check]:
    """Compare every host with the most common value (of equals, the first); `fails` decides fail or warn."""
    known = [values[checks.host] for checks in hosts if values.get(checks.host)]
    usual = Counter(known).most_common(1)[0][0] if known else ""
    having = [checks.host for checks in hosts if values.get(checks.host) == usual]
    others = f"while {listed(having, _NAMED)} {'has' if len(having) == 1 else 'have'} {usual}."
    for checks in hosts:
        value = values.get(checks.host, "")
        if not value:
            seen = f"Unknown, {others}" if usual else "Unknown."
            yield checks.skip(name, seen, "Check whether it is installed there, and where.")
        elif len(known) == 1:
            yield checks.skip(
                name, f"{value}; no other host reports its own.", "Check why the others do not report it."
            )
        elif value == usual:
            yield checks.passed(name, f"{value}.")
        else:
            report = checks.fail if fails(usual, value) else checks.warn
            yield report(name, f"{value}, {others}", advice)


def _types(hosts: Sequence[HostChecks]) -> Iterator[Check]:
    values = {checks.host: checks.probe.instance_type for checks in hosts}
    if any(values.values()):
        advice = (
            "Use hosts of the same type: EFA on p4d, p4de and dl1 connects only to the same type, and "
            "a mixed run is as fast as its slowest host."
        )
        yield from _alike(
            hosts, "instance type", values, advice, fails=lambda usual, other: not efa_reaches(usual, other)
        )


def _zones(hosts: Sequence[HostChecks]) -> Iterator[Check]:
    values = {checks.host: checks.probe.zone for checks in hosts}
    if any(values.values()):
        efa = any(checks.probe.devices_of(Link.EFA) or checks.requirements.fabric == "efa" for checks in hosts)
        advice = (
            "Start all hosts in the same Availability Zone: EFA does not cross zones, and TCP is slower across them."
        )
        yield from _alike(hosts, "zone", values, advice, fails=lambda usual, other: efa and usual != other)


def clock(checks: HostChecks, measured: Clock | None) -> Check:
    """Check how far the host's clock is from the local one, within the uncertainty of the round trip."""
    name = "clock"
    if measured is None:
        return checks.skip(name, "The clock was not compared.", "Check again: the host did not report its time.")
    seen = f"The clock is {measured.offset_s:+.3g} s off (± {measured.uncertainty_s:.2g} s)."
    minimum = abs(measured.offset_s) - measured.uncertainty_s
    advice = "Start chrony or another time service there: without it, logs of different hosts cannot be put in order."
    if minimum > _CLOCK_FAIL_S:
        return checks.fail(name, seen, advice)
    if minimum > _CLOCK_WARN_S:
        return checks.warn(name, seen, advice)
    if abs(measured.offset_s) + measured.uncertainty_s > _CLOCK_WARN_S:
        return checks.skip(
            name, f"{seen} That is too imprecise.", "Check again when the connection to the host is faster."
        )
    return checks.passed(name, seen)


def connections(
    host: str, others: Sequence[str], tried: Mapping[tuple[str, str], ConnectionAttempt]
) -> Iterator[Check]:
    """Check that a host reaches those of the others that it was to try; nothing if there are no others."""
    if not others:
        return
    by_result: dict[ConnectionResult, list[tuple[str, str]]] = {result: [] for result in ConnectionResult}
    for other in others:
        attempt = tried.get((host, other), ConnectionAttempt(result=ConnectionResult.UNTRIED))
        by_result[attempt.result].append((other, attempt.why))
    failed = [f"{other} ({why})" if why else other for other, why in by_result[ConnectionResult.FAILED]]
    reached = [other for other, _ in by_result[ConnectionResult.OK]]
    name = "connections"
    if failed:
        advice = (
            "Open all ports between the hosts in both directions. On EC2 the security group must allow "
            "all traffic to and from itself: for EFA, a rule for addresses is not enough."
        )
        seen = f"Not reached: {listed(failed, _NAMED)}{f'; reached: {len(reached)}' if reached else ''}."
        yield Check(host=host, name=name, status=Status.FAIL, seen=seen, advice=advice)
    elif reached:
        seen = f"Reached {listed(reached, _NAMED)}."
        yield Check(host=host, name=name, status=Status.PASS, seen=seen)
    else:
        whys = ", ".join(dict.fromkeys(why for _, why in by_result[ConnectionResult.UNTRIED] if why))
        seen = f"No connection was tested{f': {whys}' if whys else ''}."
        advice = "Check again when the cause is fixed."
        yield Check(host=host, name=name, status=Status.SKIP, seen=seen, advice=advice)
