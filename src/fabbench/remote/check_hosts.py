"""Collects everything that a check needs from all hosts at once: probes, clocks, connections between them.

The connections are real, on ports that the kernel chooses. One program on every host (connect_probe.py)
listens, and connects to its targets. It runs as long as the ssh connection, at most 30 s, and writes no
files.
"""

import contextlib
import re
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from fabbench.hosts.check import Clock, ConnectionAttempt, ConnectionResult, HostRelations, Progress
from fabbench.hosts.discover import folders, inventory, programs
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Needs, Target
from fabbench.remote.allocation import connected, distinct, host_names
from fabbench.remote.parallel import map_hosts
from fabbench.remote.ssh_transport import SshTransport
from fabbench.remote.transport import AnswerLines, LostError, ProcessStream, Transport

_START_S = 20.0
_TRY_S = 8.0  # Longer than connect_probe.py's timeout for connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One host that takes part in the connection test."""

    name: str
    shell: ProcessStream
    address: str  # Where the other hosts reach it
    python: str  # Path of its python3; empty if it has none


def pairs(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Choose which hosts connect: the first with each, in both directions, and a ring.

    mpirun's daemons connect to the first host, and the rings of collectives go from each host to the next.
    """
    head, others = names[0], names[1:]
    star = [pair for other in others for pair in ((head, other), (other, head))]
    ring = zip(names, (*others, head), strict=True)
    return tuple(dict.fromkeys(pair for pair in (*star, *ring) if pair[0] != pair[1]))


def try_connections(peers: Sequence[Peer]) -> dict[tuple[str, str], ConnectionAttempt]:
    """Connect hosts to each other, all concurrently: (from, to) → result. No host's failure is raised."""
    by_name = {peer.name: peer for peer in peers}
    requested = pairs(tuple(by_name))
    tokens = {name: secrets.token_hex(8) for name in by_name}
    workers = len(peers)
    ports = map_hosts(by_name, lambda peer: _listen(peer, tokens[peer.name]), workers)
    listening = {name: peer for name, peer in by_name.items() if isinstance(ports[name], str)}

    def attempt(peer: Peer) -> dict[str, ConnectionAttempt]:
        to = [b for a, b in requested if a == peer.name and b in listening]
        requests = [f"{n} {by_name[b].address} {ports[b]} {tokens[b]}\n" for n, b in enumerate(to)]
        _send(peer.shell, "".join(requests))
        return dict(_read(to, _until(peer.shell, peer.name, "tried ", _TRY_S, count=len(to))))

    attempts = map_hosts(listening, attempt, workers)
    return {pair: _outcome(pair, ports, attempts) for pair in requested}


@cache
def _program() -> str:
    return (files("fabbench.remote") / "connect_probe.py").read_text("utf-8")


def _listen(peer: Peer, token: str) -> str:
    """Replace a host's shell with the program, and return the port where it listens. Raise MachineError."""
    if not peer.python:
        raise MachineError(f"python3 was not found on {peer.name}")
    argv = (peer.python, "-I", "-S", "-c", _program(), peer.address, token)
    _send(peer.shell, f"exec {shlex.join(argv)}\n")
    for line in _until(peer.shell, peer.name, "", _START_S):
        kind, _, rest = line.partition(" ")
        if kind == "port" and rest.isdecimal():
            return rest
        if kind == "error":
            raise MachineError(f"{peer.name} cannot listen at {peer.address}: {rest}")
    raise MachineError(f"{peer.name} did not start to listen")


def _read(to: Sequence[str], lines: Sequence[str]) -> Iterator[tuple[str, ConnectionAttempt]]:
    """Yield the names of a host's targets, and whether it could connect to them."""
    for line in lines:
        word, _, rest = line.partition(" ")
        number, _, why = rest.partition(" ")
        if word == "tried" and number.isdecimal() and int(number) < len(to):
            result = ConnectionResult.FAILED if why else ConnectionResult.OK
            yield to[int(number)], ConnectionAttempt(result=result, why=why)


def _outcome(
    pair: tuple[str, str],
    ports: Mapping[str, str | MachineError],
    attempts: Mapping[str, dict[str, ConnectionAttempt] | MachineError],
) -> ConnectionAttempt:
    for result in (ports[pair[0]], ports[pair[1]], attempts.get(pair[0])):
        if isinstance(result, MachineError):
            return ConnectionAttempt(result=ConnectionResult.UNTRIED, why=str(result))
        if isinstance(result, dict) and pair[1] in result:
            return result[pair[1]]
    return ConnectionAttempt(result=ConnectionResult.UNTRIED, why=f"{pair[0]} did not report the result")


_CLOCK = "fabbench clock "
_ASK_CLOCK = f'printf "{_CLOCK}%s\\n" "$(date +%s.%N)"\n'
_TRIPS, _QUICK_S = 3, 0.1  # How many times a clock is read, unless an answer is quick
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_CLOCK_S, _PROBE_S = 20.0, 60.0
_LAST = "end\t"
_POLL_S = 0.2
_NO_NEEDS = Needs(programs=(), install="")


def _send(shell: ProcessStream, text: str) -> None:
    # If the program accepts no more input, `_until` reads what it printed, or that the connection broke.
    with contextlib.suppress(LostError):
        shell.send(text.encode())


def _until(shell: ProcessStream, name: str, prefix: str, limit_s: float, count: int = 1) -> list[str]:
    """Return the lines of a host's shell up to the `count`-th that begins with `prefix`.

    There are fewer if the shell ends, or takes longer than `limit_s`. Raise LostError.
    """
    deadline, answer = time.monotonic() + limit_s, AnswerLines(name)
    while count > 0 and not shell.closed and (left_s := deadline - time.monotonic()) > 0:
        lines = shell.read(min(_POLL_S, left_s))
        answer.take(lines)
        count -= sum(line.startswith(prefix) for line in lines)
    return answer.lines


@dataclass(frozen=True, slots=True)
class ProbedHost:
    """Probe result of a host, with the open shell that it came from."""

    probe: Probe
    clock: Clock | None
    shell: ProcessStream


def examine(target: Target, needs: Needs, *, progress: Progress) -> tuple[dict[str, Probe], HostRelations]:
    """Probe hosts, and have them connect to each other: return the probes of those that answered, by name.

    No host's failure is raised. Raise RequestError if a machine is named twice.
    """
    names = host_names(target)
    arguments = probe_arguments(programs(needs), folders(target))
    with connected(target, names, lambda done: progress("connecting", done, len(names))) as results:
        connections = {name: one for name, one in results.items() if isinstance(one, SshTransport)}
        answers = map_hosts(
            connections,
            lambda one: probe_with_clock(one, one.name, arguments),
            len(names),
            lambda done: progress("probing", done, len(connections)),
        )
        probed = {name: one for name, one in answers.items() if not isinstance(one, MachineError)}
        probes = dict(distinct({name: one.probe for name, one in probed.items()}))
        progress("testing connections between them", 0, len(probed))
        relations = host_relations(target, probed)
    errors = {name: one for name, one in {**results, **answers}.items() if isinstance(one, MachineError)}
    unreachable = {name: _message(errors[name]) for name in names if name in errors}
    return probes, replace(relations, unreachable=unreachable)


def host_relations(target: Target, probed: Mapping[str, ProbedHost]) -> HostRelations:
    """Have probed hosts connect to each other, and return their relations.

    Raise MachineError if no host's address is known.
    """
    addresses = _addresses(target, {name: one.probe for name, one in probed.items()})
    return HostRelations(
        addresses={name: one for name, one in addresses.items() if isinstance(one, str)},
        clocks={name: one.clock for name, one in probed.items() if one.clock is not None},
        connections=_test_connections(probed, addresses),
    )


def read_clock(trips: Sequence[tuple[float, str, float]]) -> Clock | None:
    """Compare clocks: for each query when it was sent, the host's answer, and when that arrived.

    The quickest counts: the host read its clock somewhere in between, so the offset is known to half the
    round trip. A clock that reports only whole seconds adds half a second. None: no time was reported.
    """
    clocks = []
    for sent, answer, arrived in trips:
        match = _TIME.match(answer)
        if match is None:
            continue
        whole = match[1] is None
        host_time = float(match[0]) + (0.5 if whole else 0)
        uncertainty = (arrived - sent) / 2 + (0.5 if whole else 0)
        clocks.append(Clock(offset_s=host_time - (sent + arrived) / 2, uncertainty_s=uncertainty))
    return min(clocks, key=lambda clock: clock.uncertainty_s, default=None)


def probe_with_clock(connection: Transport, host: str, arguments: Sequence[str]) -> ProbedHost:
    """Query a host's clock, and then probe it; `arguments` are the probe's. Raise MachineError that names it `host`."""
    shell = connection.open(("sh", "-s", "--", *arguments))
    trips, noise = [], []
    for _ in range(_TRIPS):
        sent, started = time.time(), time.monotonic()
        _send(shell, _ASK_CLOCK)
        lines = _until(shell, host, _CLOCK, _CLOCK_S)
        took = time.monotonic() - started
        noise += [line for line in lines if not line.startswith(_CLOCK)]
        trips += [(sent, line[len(_CLOCK) :], sent + took) for line in lines if line.startswith(_CLOCK)]
        if not trips:
            raise _no_shell(host, noise, took)
        if took < _QUICK_S:
            break
    _send(shell, script())
    # Text that the login itself prints is not part of the answer, but worth reporting.
    probe = read_probe([*noise, *_until(shell, host, _LAST, _PROBE_S)])
    return ProbedHost(probe, read_clock(trips), shell)


def _no_shell(host: str, output: Sequence[str], took_s: float) -> MachineError:
    """Return the error of a login that did not lead to a shell."""
    if took_s >= _CLOCK_S:
        return MachineError(
            f"Login to {host} succeeded, but no shell answered within {took_s:.0f} s.",
            hint="The host, its home directory or its shell's startup files may be hanging.",
        )
    words = " ".join(output[-2:]) or "no output"
    return MachineError(
        f"Login to {host} succeeded, but no shell is available: {words}",
        hint="The user needs a login shell, and the host needs sh in its PATH.",
    )


def _addresses(target: Target, probes: Mapping[str, Probe]) -> dict[str, str | MachineError]:
    """Return each host's address, or why it is unknown. Raise MachineError if none is known."""
    results: dict[str, str | MachineError] = {}
    for name, probe in probes.items():
        try:
            results[name] = inventory(target, {name: probe}, _NO_NEEDS).hosts[0].address
        except MachineError as error:
            results[name] = error
    failures = [one for one in results.values() if isinstance(one, MachineError)]
    if failures and len(failures) == len(results):
        raise failures[0]
    return results


def _test_connections(
    probed: Mapping[str, ProbedHost], addresses: Mapping[str, str | MachineError]
) -> dict[tuple[str, str], ConnectionAttempt]:
    """Try connections between the hosts that have an address; report the others as having none."""
    peers = [
        Peer(name=name, shell=one.shell, address=address, python=one.probe.tools.get("python3", ""))
        for name, one in probed.items()
        if isinstance(address := addresses[name], str) and address
    ]
    attempts = try_connections(peers) if len(peers) > 1 else {}
    for name, address in addresses.items():
        why = _message(address) if isinstance(address, MachineError) else f"{name} did not report its address"
        result = ConnectionResult.FAILED if isinstance(address, MachineError) else ConnectionResult.UNTRIED
        if address == "" or isinstance(address, MachineError):
            others = [other for other in probed if other != name]
            both = [pair for other in others for pair in ((name, other), (other, name))]
            attempts |= dict.fromkeys(both, ConnectionAttempt(result=result, why=why))
    return attempts


def _message(error: MachineError) -> str:
    return f"{str(error).rstrip('.')} ({error.hint.rstrip('.')})" if error.hint else str(error)
