"""Asking hosts everything that a check needs, all at once: probes, clocks, connections between them."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fabbench.check import Around, Clock, Connection, Contact
from fabbench.errors import MachineError
from fabbench.hosts.found import Probe
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.inventory import folders, inventory, programs
from fabbench.launchers import Progress
from fabbench.machines import Needs, Where
from fabbench.remote import connection as ssh
from fabbench.remote.firewall import Party, try_connections
from fabbench.remote.pool import each
from fabbench.remote.reach import connected, host_names
from fabbench.remote.shell import Conversation, Shell

_CLOCK = "fabbench clock "
_ASK_CLOCK = f'printf "{_CLOCK}%s\\n" "$(date +%s.%N)"\n'
_TRIPS, _QUICK_S = 3, 0.1
"""How often a clock is asked, unless the answer is quick."""
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_CLOCK_S, _PROBE_S = 20.0, 60.0
_LAST = "end\t"
_NO_NEEDS = Needs(programs=(), install="")


@dataclass(frozen=True, slots=True)
class Told:
    """What one host told, and the shell that told it."""

    probe: Probe
    clock: Clock | None
    shell: Conversation


def examine(where: Where, needs: Needs, *, full: bool, progress: Progress) -> tuple[dict[str, Probe], Around]:
    """Find out about hosts: what each tells, and what is seen from outside. No host's failure is raised.

    `full` tries a connection from every host to every other one.
    """
    names = host_names(where)
    arguments = probe_arguments(programs(needs), folders(where))
    with connected(where, names, lambda done: progress("connecting", done, len(names))) as found:
        connections = {name: one for name, one in found.items() if isinstance(one, ssh.Connection)}
        count = _Count("asking", len(connections), progress)
        answers = each(connections, lambda one: count.after(_ask(one, arguments)), len(names))
        told = {name: one for name, one in answers.items() if not isinstance(one, MachineError)}
        probes = {name: one.probe for name, one in told.items()}
        progress("connecting them to each other", 0, len(told))
        seen = around(where, told, full=full)
    failed = {name: _said(one) for name, one in {**found, **answers}.items() if isinstance(one, MachineError)}
    return probes, replace(seen, unreachable={name: failed[name] for name in names if name in failed})


def around(where: Where, told: Mapping[str, Told], *, full: bool) -> Around:
    """Let hosts that have told everything connect to each other; give what is seen of them from outside.

    Raises MachineError if no host's address is known.
    """
    addresses = _addresses(where, {name: one.probe for name, one in told.items()})
    return Around(
        addresses={name: one for name, one in addresses.items() if isinstance(one, str)},
        clocks={name: one.clock for name, one in told.items() if one.clock is not None},
        connections=_between(told, addresses, full=full),
    )


def read_clock(trips: Sequence[tuple[float, str, float]]) -> Clock | None:
    """Compare clocks: for each question when it was sent, what the host said, and when that arrived.

    The quickest counts: the host looked at its clock somewhere between, so that the offset is known to half
    the round trip. A clock that tells whole seconds only adds half a second. None: no time was told.
    """
    clocks = []
    for sent, said, arrived in trips:
        match = _TIME.match(said)
        if match is None:
            continue
        whole = match[1] is None
        told = float(match[0]) + (0.5 if whole else 0)
        uncertainty = (arrived - sent) / 2 + (0.5 if whole else 0)
        clocks.append(Clock(offset_s=told - (sent + arrived) / 2, uncertainty_s=uncertainty))
    return min(clocks, key=lambda clock: clock.uncertainty_s, default=None)


def _ask(connection: ssh.Connection, arguments: Sequence[str]) -> Told:
    """Ask one host for its time, and then for everything. Raises MachineError."""
    return ask(Shell(connection, arguments), str(connection.settings))


def ask(shell: Conversation, who: str) -> Told:
    """Ask a host for its time, and then for everything. The shell has the probe's arguments.

    Raises MachineError that names the host as `who`.
    """
    trips, noise = [], []
    for _ in range(_TRIPS):
        sent, begun = time.time(), time.monotonic()
        shell.send(_ASK_CLOCK)
        lines = shell.until(_CLOCK, _CLOCK_S)
        took = time.monotonic() - begun
        noise += [line for line in lines if not line.startswith(_CLOCK)]
        trips += [(sent, line[len(_CLOCK) :], sent + took) for line in lines if line.startswith(_CLOCK)]
        if not trips:
            raise _no_shell(who, noise, took)
        if took < _QUICK_S:
            break
    shell.send(script())
    # What a login prints by itself is no part of the answer, and a thing to know.
    probe = read_probe([*noise, *shell.until(_LAST, _PROBE_S)])
    return Told(probe, read_clock(trips), shell)


def _no_shell(who: str, said: Sequence[str], took_s: float) -> MachineError:
    """Say that a login did not lead to a shell."""
    if took_s >= _CLOCK_S:
        return MachineError(
            f"{who} let fabbench log in, and then no shell answered for {took_s:.0f} s.",
            hint="The host may hang, or its home folder, or what its shell does at every login.",
        )
    words = " ".join(said[-2:]) or "it said nothing"
    return MachineError(
        f"{who} let fabbench log in, but there is no shell to use: {words}",
        hint="The user needs a login shell, and the host sh in its PATH.",
    )


def _addresses(where: Where, probes: Mapping[str, Probe]) -> dict[str, str | MachineError]:
    """Say where the hosts reach each other, or why it is not known. Raises MachineError if it is for none."""
    found: dict[str, str | MachineError] = {}
    for name, probe in probes.items():
        try:
            found[name] = inventory(where, {name: probe}, _NO_NEEDS).hosts[0].address
        except MachineError as error:
            found[name] = error
    failures = [one for one in found.values() if isinstance(one, MachineError)]
    if failures and len(failures) == len(found):
        raise failures[0]
    return found


def _between(
    told: Mapping[str, Told], addresses: Mapping[str, str | MachineError], *, full: bool
) -> dict[tuple[str, str], Connection]:
    """Try connections between the hosts that have an address; say of the others that they have none."""
    parties = [
        Party(name=name, sh=one.shell, address=address, python=one.probe.tools.get("python3", ""))
        for name, one in told.items()
        if isinstance(address := addresses[name], str) and address
    ]
    found = try_connections(parties, full=full) if len(parties) > 1 else {}
    for name, address in addresses.items():
        why = _said(address) if isinstance(address, MachineError) else f"{name} did not tell its address"
        contact = Contact.FAILED if isinstance(address, MachineError) else Contact.UNTRIED
        if address == "" or isinstance(address, MachineError):
            others = [other for other in told if other != name]
            both = [pair for other in others for pair in ((name, other), (other, name))]
            found |= dict.fromkeys(both, Connection(contact=contact, why=why))
    return found


def _said(error: MachineError) -> str:
    return f"{str(error).rstrip('.')} ({error.hint.rstrip('.')})" if error.hint else str(error)


class _Count:
    """Counts what several threads get done."""

    def __init__(self, what: str, total: int, progress: Progress) -> None:
        self._what, self._total, self._progress = what, total, progress
        self._lock = threading.Lock()
        self._done = 0

    def after(self, result: Told) -> Told:
        """Count one, and pass it on."""
        with self._lock:
            self._done += 1
            self._progress(self._what, self._done, self._total)
        return result
