"""What is wrong with hosts, judging by what they report, and what to do about it. Pure."""

from collections.abc import Iterable, Mapping

from fabbench.hosts.check import devices, software
from fabbench.hosts.check.consistency import among, clock, connections
from fabbench.hosts.check.model import (
    Check,
    Clock,
    ConnectionAttempt,
    ConnectionResult,
    HostChecks,
    HostRelations,
    Progress,
    Requirements,
    Status,
)
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import Exit

__all__ = ["Check", "Clock", "ConnectionAttempt", "ConnectionResult", "HostRelations", "Progress", "Requirements"]
__all__ += ["Status", "check_host", "check_hosts", "worst"]

_ANYTHING, _NOTHING = Requirements(), HostRelations()
_CHECKS = (
    software.answer,
    devices.libfabric,
    devices.efa,
    devices.ports,
    devices.verbs,
    devices.memlock,
    devices.huge_pages,
    devices.gpus,
    devices.work,
    devices.plugin,
    software.programs,
    software.mpirun,
    software.tools,
    software.settings,
    software.disk,
    software.load,
)


def check_host(
    host: str, probe: Probe, *, requirements: Requirements = _ANYTHING, address: str = ""
) -> tuple[Check, ...]:
    """Check one host by itself. `address` is where the others reach it."""
    checks = HostChecks(host=host, probe=probe, requirements=requirements)
    return (*(check(checks) for check in _CHECKS), software.interface(checks, address)[0])


def check_hosts(
    probes: Mapping[str, Probe], *, requirements: Requirements = _ANYTHING, relations: HostRelations = _NOTHING
) -> tuple[Check, ...]:
    """Check hosts, each by itself and then against each other."""
    down = relations.unreachable
    names = list(dict.fromkeys((*probes, *down)))
    hosts = [
        HostChecks(host=name, probe=probes[name], requirements=requirements) for name in probes if name not in down
    ]
    interfaces, found = {}, list[Check]()
    for checks in hosts:
        address = relations.addresses.get(checks.host, "")
        found.append(checks.passed("reachable", "The host answered."))
        found += check_host(checks.host, checks.probe, requirements=requirements, address=address)
        found.append(clock(checks, relations.clocks.get(checks.host)))
        found += connections(checks.host, [name for name in names if name != checks.host], relations.connections)
        interfaces[checks.host] = software.interface(checks, address)[1]
    for name, why in down.items():
        advice = "Try `ssh` by hand with the same user and key. If the host is gone, leave it out."
        seen = f"No answer: {why.rstrip('.')}."
        found.append(Check(host=name, name="reachable", status=Status.FAIL, seen=seen, advice=advice))
    return (*found, *among(hosts, interfaces))


def worst(checks: Iterable[Check]) -> Exit:
    """Return the exit status: REFUSED if a check failed or all were skipped, else FINE."""
    statuses = {check.status for check in checks}
    return Exit.REFUSED if Status.FAIL in statuses or statuses <= {Status.SKIP} else Exit.FINE
