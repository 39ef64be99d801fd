"""Collects everything that a check needs from all hosts at once.

Probes, and connections between them.

The connections are real, on ports that the kernel chooses. One program on every host
(connect_probe.py) listens, and connects to its targets. It runs as long as the ssh connection, at
most 30 s, and writes no files.
"""

import contextlib
import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from fabbench.execution.worker_pool import map_hosts
from fabbench.hosts.check import Connection, HostRelations
from fabbench.hosts.discover import inventory
from fabbench.hosts.probe import read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Needs, Target
from fabbench.remote.transport import LostError, ProcessStream, Transport

_START_S = 20.0
_SHELL_S, _PROBE_S = 20.0, 60.0
_READY, _LAST = "fabbench ready", "end\t"
_TRIED = re.compile(r"tried (\d{1,9}) ?(.*)")
_TRY_S = 8.0  # Longer than connect_probe.py's timeout for connections


@dataclass(frozen=True, slots=True)
class ProbedHost:
    """Probe result of a host, with the open shell that it came from."""

    probe: Probe
    shell: ProcessStream


def pairs(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Choose which hosts connect: the first with each, in both directions, and a ring.

    mpirun's daemons connect to the first host, and the rings of collectives go from each host to
    the next.
    """
    head, others = names[0], names[1:]
    star = [pair for other in others for pair in ((head, other), (other, head))]
    ring = zip(names, (*others, head), strict=True)
    return tuple(dict.fromkeys(pair for pair in (*star, *ring) if pair[0] != pair[1]))


def _try_connections(
    probed: Mapping[str, ProbedHost], addresses: Mapping[str, str]
) -> dict[tuple[str, str], Connection]:
    """Connect hosts to each other, all concurrently: (from, to) → result.

    No host's failure is raised.
    """
    requested = pairs(tuple(addresses))
    tokens = {name: secrets.token_hex(8) for name in addresses}
    names, workers = {name: name for name in addresses}, len(addresses)
    ports = map_hosts(
        names, lambda name: _listen(name, probed[name], addresses[name], tokens[name]), workers
    )
    listening = {name: name for name, port in ports.items() if isinstance(port, str)}

    def attempt(name: str) -> dict[str, Connection]:
        to = [b for a, b in requested if a == name and b in listening]
        requests = [f"{n} {addresses[b]} {ports[b]} {tokens[b]}\n" for n, b in enumerate(to)]
        shell = probed[name].shell
        _send(shell, "".join(requests))
        found = {}
        for line in shell.answer(name, _TRY_S, last="tried ", count=len(to)):
            if (match := _TRIED.fullmatch(line)) and int(match[1]) < len(to):
                found[to[int(match[1])]] = Connection(made=not match[2], why=match[2])
        return found

    attempts = map_hosts(listening, attempt, workers)
    return {pair: _outcome(pair, ports, attempts) for pair in requested}


def _listen(name: str, host: ProbedHost, address: str, token: str) -> str:
    """Replace a host's shell with the program, and return the port where it listens.

    Raise MachineError.
    """
    python = host.probe.tools.get("python3", "")
    if not python:
        raise MachineError(f"python3 was not found on {name}")
    program = (files("fabbench.remote") / "connect_probe.py").read_text("utf-8")
    _send(host.shell, f"exec {shlex.join((python, '-I', '-S', '-c', program, address, token))}\n")
    for line in host.shell.answer(name, _START_S, last=""):
        kind, _, rest = line.partition(" ")
        if kind == "port" and rest.isdecimal():
            return rest
        if kind == "error":
            raise MachineError(f"{name} cannot listen at {address}: {rest}")
    raise MachineError(f"{name} did not start to listen")


def _outcome(
    pair: tuple[str, str],
    ports: Mapping[str, str | MachineError],
    attempts: Mapping[str, dict[str, Connection] | MachineError],
) -> Connection:
    for result in (ports[pair[0]], ports[pair[1]], attempts.get(pair[0])):
        if isinstance(result, MachineError):
            return Connection(made=None, why=str(result))
        if isinstance(result, dict) and pair[1] in result:
            return result[pair[1]]
    return Connection(made=None, why=f"{pair[0]} did not report the result")


def _send(shell: ProcessStream, text: str) -> None:
    # If the program accepts no more input, its lines tell what it printed, or that the connection
    # broke.
    with contextlib.suppress(LostError):
        shell.send(text.encode())


def host_relations(target: Target, probed: Mapping[str, ProbedHost]) -> HostRelations:
    """Have probed hosts connect to each other, and return their relations.

    Raise MachineError if no host's address is known.
    """

    def address_of(host: tuple[str, ProbedHost]) -> str:
        return inventory(target, {host[0]: host[1].probe}, Needs()).hosts[0].address

    found = map_hosts({name: (name, one) for name, one in probed.items()}, address_of)
    failures = [one for one in found.values() if isinstance(one, MachineError)]
    if failures and len(failures) == len(found):
        raise failures[0]
    known = {name: one for name, one in found.items() if isinstance(one, str) and one}
    attempts = _try_connections(probed, known) if len(known) > 1 else {}
    for name, error in found.items():
        if name in known:
            continue
        attempt = Connection(made=None, why=f"{name} did not report its address")
        if isinstance(error, MachineError):
            attempt = Connection(made=False, why=in_one_line(error))
        attempts |= {
            pair: attempt
            for other in probed
            if other != name
            for pair in ((name, other), (other, name))
        }
    return HostRelations(
        addresses={name: one for name, one in found.items() if isinstance(one, str)},
        connections=attempts,
    )


def probe_in_shell(connection: Transport, host: str, arguments: Sequence[str]) -> ProbedHost:
    """Probe a host; `arguments` are the probe's. Raise MachineError that names it `host`."""
    shell, started = connection.open(("sh", "-s", "--", *arguments)), time.monotonic()
    _send(shell, f"echo {_READY}\n")
    # Text that the login itself prints is not part of the answer, but worth reporting.
    noise = shell.answer(host, _SHELL_S, last=_READY)
    if _READY not in noise:
        raise MachineError(
            f"Login to {host} succeeded, but no shell answered in "
            f"{time.monotonic() - started:.0f} s: "
            f"{' '.join(noise[-2:]) or 'no output'}",
            hint=(
                "The user needs a login shell, and sh in its PATH. Its home or startup files "
                "may be hanging."
            ),
        )
    _send(shell, script())
    noise.remove(_READY)
    return ProbedHost(read_probe([*noise, *shell.answer(host, _PROBE_S, last=_LAST)]), shell)


def in_one_line(error: MachineError) -> str:
    """Return an error with its advice."""
    return f"{str(error).rstrip('.')} ({error.hint.rstrip('.')})" if error.hint else str(error)
