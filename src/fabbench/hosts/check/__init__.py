"""What is wrong with hosts, judging by what they report, and what to do about it. Pure."""

from collections.abc import Callable, Iterable, Mapping

from fabbench.hosts.check import devices, software
from fabbench.hosts.check.consistency import among, clock, connections
from fabbench.hosts.check.devices import FACTS
from fabbench.hosts.check.model import (
    Check,
    Clock,
    Connection,
    HostChecks,
    HostRelations,
    Progress,
    Requirements,
    Result,
    Status,
    outcome,
)
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import Exit

__all__ = ["Check", "Clock", "Connection", "HostRelations", "Progress", "Requirements"]
__all__ += ["Status", "check_host", "check_hosts", "worst"]

_ANYTHING, _NOTHING = Requirements(), HostRelations()
_CHECKS: Mapping[str, Callable[[HostChecks], Result | None]] = {
    "answer": software.answer,
    "libfabric": devices.libfabric,
    "efa": devices.efa,
    "rdma ports": devices.ports,
    "verbs": devices.verbs,
    "memlock": devices.memlock,
    "huge pages": devices.huge_pages,
    "gpus": devices.gpus,
    "gpu work": devices.work,
    "plugin": devices.plugin,
    **{fact.name: fact.check for fact in FACTS},
    "programs": software.programs,
    "mpirun": software.mpirun,
    "tools": software.tools,
    "settings": software.settings,
    "disk": software.disk,
    "load": software.load,
    "interface": software.interface,
}


def check_host(
    host: str, probe: Probe, *, requirements: Requirements = _ANYTHING, address: str = ""
) -> tuple[Check, ...]:
    """Check one host by itself. `address` is where the others reach it."""
    checks = HostChecks(host=host, probe=probe, requirements=requirements, address=address)
    return tuple(checks.check(name, check(checks)) for name, check in _CHECKS.items())


def check_hosts(
    probes: Mapping[str, Probe], *, requirements: Requirements = _ANYTHING, relations: HostRelations = _NOTHING
) -> tuple[Check, ...]:
    """Check hosts, each by itself and then against each other."""
    down, addresses = relations.unreachable, relations.addresses
    names = list(dict.fromkeys((*probes, *down)))
    hosts = [
        HostChecks(host=name, probe=probe, requirements=requirements, address=addresses.get(name, ""))
        for name, probe in probes.items()
        if name not in down
    ]
    found = list[Check]()
    for each in hosts:
        found.append(each.check("reachable", outcome("reachable.yes")))
        found += check_host(each.host, each.probe, requirements=requirements, address=each.address)
        found.append(each.check("clock", clock(relations.clocks.get(each.host))))
        others = [name for name in names if name != each.host]
        if others:
            found.append(each.check("connections", connections(each.host, others, relations.connections)))
    for name, why in down.items():
        result = outcome("reachable.no", why=why.rstrip("."))
        found.append(Check(host=name, name="reachable", **result._asdict()))
    return (*found, *among(hosts))


def worst(checks: Iterable[Check]) -> Exit:
    """Return the exit status: REFUSED if a check failed or all were skipped, else FINE."""
    statuses = {check.status for check in checks}
    return Exit.REFUSED if Status.FAIL in statuses or statuses <= {Status.SKIP} else Exit.FINE
