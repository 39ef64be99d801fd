"""What is wrong with hosts, from what they tell of themselves, and what to do about it. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from fabbench.check import devices, gpus, software
from fabbench.check.among import among, clock, connections
from fabbench.check.values import About, Around, Check, Clock, Connection, Contact, Status, Wanted
from fabbench.errors import Exit
from fabbench.hosts.found import Probe

__all__ = [
    "Around",
    "Check",
    "Clock",
    "Connection",
    "Contact",
    "Status",
    "Wanted",
    "check_host",
    "check_hosts",
    "worst",
]

_ANYTHING, _NOTHING = Wanted(), Around()
_CHECKS = (
    software.answer,
    devices.libfabric,
    devices.efa,
    devices.ports,
    devices.verbs,
    devices.memlock,
    devices.huge_pages,
    gpus.gpus,
    gpus.work,
    gpus.plugin,
    software.programs,
    software.mpirun,
    software.tools,
    software.settings,
    software.disk,
    software.load,
)


def check_host(
    host: str, probe: Probe, *, wanted: Wanted = _ANYTHING, address: str = ""
) -> tuple[Check, ...]:
    """Check one host by itself. `address` is where the others reach it."""
    about = About(host=host, probe=probe, wanted=wanted)
    own = (check(about) for check in _CHECKS)
    return (*own, software.interface(about, address)[0])


def check_hosts(
    probes: Mapping[str, Probe], *, wanted: Wanted = _ANYTHING, around: Around = _NOTHING
) -> tuple[Check, ...]:
    """Check hosts, each by itself and then against each other."""
    return tuple(_checks(probes, wanted, around))


def _checks(probes: Mapping[str, Probe], wanted: Wanted, around: Around) -> Iterator[Check]:
    down = around.unreachable
    names = list(dict.fromkeys((*probes, *down)))
    hosts = [About(host=name, probe=probes[name], wanted=wanted) for name in probes if name not in down]
    interfaces = {}
    for about in hosts:
        address = around.addresses.get(about.host, "")
        yield about.passed("reachable", "It answered.")
        yield from check_host(about.host, about.probe, wanted=wanted, address=address)
        yield clock(about, around.clocks.get(about.host))
        others = [name for name in names if name != about.host]
        yield from connections(about.host, others, around.connections)
        interfaces[about.host] = software.interface(about, address)[1]
    for name, why in down.items():
        advice = "Try `ssh` to it by hand, with the same user and key; leave it out if it is gone."
        seen = f"No answer: {why.rstrip('.')}."
        yield Check(host=name, name="reachable", status=Status.FAIL, seen=seen, advice=advice)
    yield from among(hosts, interfaces)


def worst(checks: Iterable[Check]) -> Exit:
    """Give the exit status: a fail refuses, and so do checks of which not one found anything out."""
    found = {check.status for check in checks}
    if Status.FAIL in found or found <= {Status.SKIP}:
        return Exit.REFUSED
    return Exit.FINE
