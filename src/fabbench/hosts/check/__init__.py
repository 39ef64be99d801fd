"""What is wrong with hosts, judging by what they report, and what to do about it. Pure."""

from collections.abc import Iterable

from fabbench.hosts.check.consistency import among, clock, connections, opened
from fabbench.hosts.check.model import (
    Check,
    Connection,
    HostChecks,
    HostRelations,
    Opening,
    Progress,
    Status,
    outcome,
    outcome_in,
    refusal,
)
from fabbench.hosts.check.one_host import CHECKS
from fabbench.hosts.probe_result import Probes
from fabbench.model.errors import Exit, Fault
from fabbench.model.hosts import Needs
from fabbench.model.mappings import distinct

__all__ = [
    "Check",
    "Connection",
    "HostRelations",
    "Opening",
    "Progress",
    "Status",
    "check_hosts",
    "fault_of_check",
    "outcome_in",
    "refusal",
    "worst",
]

_ANYTHING = Needs()
_UNTRIED = HostRelations()


def check_hosts(
    probes: Probes,
    needs: Needs = _ANYTHING,
    *,
    image: str = "",
    relations: HostRelations = _UNTRIED,
) -> tuple[Check, ...]:
    """Check hosts, each by itself and then against each other.

    `needs`: what the benchmark requires; `image`: in which pods would run; `relations`: how hosts
    are reached. A check whose result is None is listed as skipped.
    """
    down = relations.unreachable  # Host → why
    names = distinct((*probes, *down))
    hosts = [
        HostChecks(
            host=name,
            probe=probe,
            needs=needs,
            image=image,
            address=relations.addresses.get(name, ""),
        )
        for name, probe in probes.items()
        if name not in down
    ]
    checks: list[Check] = []  # Of all hosts, in order
    for each in hosts:
        results: dict[str, Check | None] = {"reachable": outcome("reachable.yes")}
        results |= {name: check(each) for name, check in CHECKS.items()}
        if each.host in relations.openings:
            results |= opened(relations.openings[each.host])
        if each.host in relations.clocks:
            results["clock"] = clock(each.host, relations.clocks)
        others = [name for name in names if name != each.host]
        if others:  # A host alone has nothing to reach
            results["connections"] = connections(each.host, others, relations.connections)
        checks += (each.check(name, result) for name, result in results.items())
    for name, why in down.items():
        unreached = outcome("reachable.no", why=why.rstrip("."))
        checks.append(unreached.of(name, "reachable"))
    return (*checks, *among(hosts))


_INFRASTRUCTURE = {"reachable", "answer", "connections", "files", "instance type", "zone"}
_HARDWARE = {"efa", "rdma ports", "gpus"}


def fault_of_check(name: str) -> Fault:
    """Return what has to be mended if a check fails, by the check's name."""
    if name in _INFRASTRUCTURE:
        return Fault.INFRASTRUCTURE
    return Fault.HARDWARE if name in _HARDWARE else Fault.SOFTWARE


def worst(checks: Iterable[Check]) -> Exit:
    """Return the exit status: REFUSED if a check failed or all were skipped, else FINE."""
    statuses = {check.status for check in checks}
    # All skipped, or none made: nothing was found out, which is no pass.
    if Status.FAIL in statuses or statuses <= {Status.SKIP}:
        return Exit.REFUSED
    return Exit.FINE
